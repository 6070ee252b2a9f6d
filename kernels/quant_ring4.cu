// Projections of 1 to 16 rows with large weights of 4 bits, of rows that are a multiple of 128 elements: as quant_ring.cu, with fewer instructions.
//
// A turn is two tiles of each strip of 16 outputs, and inputs are in registers one turn ahead. Offsets of 4 bits are multiplied with the inputs' sums
// by the tensor cores, in tf32: a lane has those of one block of 32 elements, in two parts, of which tf32 has all but the last two digits, and one product
// adds four blocks. What weights are raised by in the bits of a bf16 is where a tile's sums begin: a product of the inputs with -128.
#include "common.cuh"
#include "ring.cuh"

// sum (16 x 8) += left (16 x 4) * right (4 x 8), of tf32: of an f32 its upper 19 bits.
__device__ __forceinline__ void multiply_tf32(float (&sum)[4], float left0, float left1, float right) {
    asm("mma.sync.aligned.m16n8k4.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(__float_as_uint(left0)), "r"(__float_as_uint(left1)), "r"(__float_as_uint(right)));
}
__device__ __forceinline__ float upper_digits(float x) { return __uint_as_float(__float_as_uint(x) & 0xffffe000); }

// Barriers of the two blocks of a cluster that share rows of weights.
__device__ __forceinline__ void arrive_started() { asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory"); }
__device__ __forceinline__ void arrive_stored() { asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory"); }
__device__ __forceinline__ void wait_for_other() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }

// As `leave_all`, of two blocks: each leaves half of the tiles, with what the other one has of them. Two addends: the same bits in either order.
// `others`: MT * NT * 64 floats that nothing else is in.
template <int NT, int MT, int WARPS>
__device__ __forceinline__ void leave_halves(const float (&sum)[MT][NT][4], float *shared, float *others, const Left &at) {
    constexpr u32 ONE = NT * 128;
    static_assert(WARPS * 32 >= ONE && MT % 4 == 0, "a total of each tile to a thread; a gate and what it gates stay together");
    u32 half = blockIdx.z, there;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(shared_address(others)), "r"(half ^ 1));
    float total[MT];
    finish_block<NT, MT, WARPS, 1, true>(sum, shared, [&](int i, u32, u32, float of, float) { total[i % MT] = of; });
    wait_for_other(); // it has begun
    u32 place = threadIdx.x, output = place % 16, row = place / 16;
    bool mine = place < ONE && at.first_row + row < at.rows;
    if (mine)
#pragma unroll
        for (int i = 0; i < MT / 2; i++)
            asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(there + (i * ONE + place) * 4), "f"(half ? total[i] : total[MT / 2 + i]) : "memory");
    arrive_stored();
    wait_for_other();
    if (!mine) return;
    float both[MT / 2];
#pragma unroll
    for (int i = 0; i < MT / 2; i++) both[i] = (half ? total[MT / 2 + i] : total[i]) + others[i * ONE + place];
#pragma unroll
    for (int i = 0; i < MT / 2; i++) at.total(half * (MT / 2) + i, output, row, both[i], both[i ^ 1]);
}

// Shared memory: two stages of 2 * MT tiles for each warp; HALVES == 2: and what `leave_halves` has of the other block, which has the other half of
// the elements.
template <int NT, int MT, int WARPS, int HALVES>
__device__ __forceinline__ void quant_ring4(void *out, const bf16 *x, const u8 *w0, const u8 *w1, const u8 *w2, u32 rows0, u32 rows1, u32 rows2,
                                            u32 columns, u32 rows, u32 how) {
    extern __shared__ __align__(16) float shared[];
    constexpr u32 ROWS = 16 * MT, TILE = tile_bytes<Q4>(), LOW = low_bytes<Q4>(), STAGE = 2 * MT * TILE, STEP = WARPS * 2 * TILE;
    // Scales and offsets of a tile are 8 pieces of 16 bytes: a warp copies those of four tiles at once.
    constexpr u32 FOURS = MT / 2;
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
    bool gated = how >= GATE_SILU;
    const u8 *w = w0;
    u32 outputs = rows0, before = 0, first = blockIdx.x * (gated ? ROWS / 2 : ROWS);
    if (!gated) {
        u32 tiles0 = (rows0 + ROWS - 1) / ROWS, tiles1 = (rows1 + ROWS - 1) / ROWS, tile = blockIdx.x;
        if (tile >= tiles0 + tiles1) {
            w = w2, outputs = rows2, before = rows0 + rows1, first = (tile - tiles0 - tiles1) * ROWS;
        } else if (tile >= tiles0) {
            w = w1, outputs = rows1, before = rows0, first = (tile - tiles0) * ROWS;
        }
    }
    // Turns of a row, of this block, and of this warp, which begins with another one than the same warp of other blocks.
    u32 wide = columns / 128, turns = HALVES == 1 ? wide : blockIdx.z ? wide - wide / 2 : wide / 2;
    u32 count = warp < turns ? (turns - warp + WARPS - 1) / WARPS : 0, begin = count ? blockIdx.x % count : 0;
    u32 turn_at = min((HALVES == 2 && blockIdx.z ? wide / 2 : 0) + warp + begin * WARPS, wide - 1);
    const int around = (int)STEP - (int)(count * STEP), back = (int)(WARPS * 128) - (int)(count * (WARPS * 128));
    u32 tiles_until = count - begin, inputs_until = tiles_until;
    let_next_start();
    if (HALVES == 2) arrive_started();

    u32 most = (outputs + 15) / 16 - 1, first_row = blockIdx.y * (NT * 8);
    auto strip = [&](u32 i) {
        u32 at = min(first / 16 + (gated ? i / 2 : i), most);
        return (gated && i % 2 ? w1 : w) + ((u64)at * wide + turn_at) * (2 * TILE);
    };
    const u8 *from[MT], *rest[FOURS];
#pragma unroll
    for (u32 i = 0; i < MT; i++) from[i] = strip(i) + lane * 16, keep(from[i]);
#pragma unroll
    for (u32 i = 0; i < FOURS; i++) {
        u32 of = i * 4 + lane / 8;
        rest[i] = strip(of / 2) + of % 2 * TILE + LOW + lane % 8 * 16, keep(rest[i]);
    }
    const u32 ring = shared_address(shared) + warp * (2 * STAGE);
    const u64 policy = dropped_first();
    // Behind the last turn nothing is read.
    auto copy_tiles = [&](u32 to, u32 bytes) {
        const int by = --tiles_until ? (int)STEP : around;
#pragma unroll
        for (u32 i = 0; i < MT; i++) {
            copy_once(to + lane * 16 + 2 * i * TILE, from[i], bytes, policy);
            copy_once(to + lane * 16 + (2 * i + 1) * TILE, from[i] + TILE, bytes, policy);
            from[i] += by;
        }
#pragma unroll
        for (u32 i = 0; i < FOURS; i++) {
            copy_once(to + (i * 4 + lane / 8) * TILE + LOW + lane % 8 * 16, rest[i], bytes, policy);
            rest[i] += by;
        }
    };
    if (count > 0) copy_tiles(ring, 16);
    commit_copies();
    wait_for_earlier();

    const bf16 *inputs[NT];
#pragma unroll
    for (u32 j = 0; j < NT; j++) inputs[j] = x + (u64)min(first_row + j * 8 + g, rows - 1) * columns + turn_at * 128 + t * 8, keep(inputs[j]);
    uint4 ahead[2][4][NT];
    // Behind the last ones the first are read again.
    auto load_inputs = [&](uint4 (&to)[4][NT]) {
        const int by = --inputs_until ? (int)(WARPS * 128) : back;
#pragma unroll
        for (int j = 0; j < NT; j++) {
#pragma unroll
            for (int k = 0; k < 4; k++) to[k][j] = load_global16(inputs[j] + k * 32);
            inputs[j] += by;
        }
    };
    load_inputs(ahead[0]);

    float sum[MT][NT][4];
#pragma unroll
    for (int i = 0; i < MT; i++)
#pragma unroll
        for (int j = 0; j < NT; j++)
#pragma unroll
            for (int e = 0; e < 4; e++) sum[i][j][e] = 0.0f;
    // Constants (128 twice in `one`, -128 in `raised`, 1 in `ones` where a lane's column of a sum is that of block k), to which zeros are added that
    // the assembler doesn't know of: else it makes registers that are equal anew in every turn.
    const u32 one = 0x43004300 + (how >> 16);
    u32 ones[4][2], raised[4];
#pragma unroll
    for (u32 k = 0; k < 4; k++) {
        raised[k] = 0xc300c300 + (how >> (8 + k));
#pragma unroll
        for (u32 e = 0; e < 2; e++) ones[k][e] = (g == 2 * k ? 0x3f803f80 : 0) + (how >> (17 + 2 * k + e));
    }
    // One turn: tiles at `at`, inputs `b`; while the next ones come.
    auto turn = [&](u32 at, u32 free, uint4 (&b)[4][NT], uint4 (&next)[4][NT]) {
        load_inputs(next);
        copy_tiles(free, count > 1 ? 16 : 0);
        commit_copies();
        // The inputs' sums of block t, of row g.
        float high[NT], low[NT];
#pragma unroll
        for (int j = 0; j < NT; j++) {
            // Registers as they were loaded: rows g + 8 of this product are the same inputs' other elements.
            float s[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
            for (u32 k = 0; k < 4; k++) {
                const u32 a[4] = {b[k][j].x, b[k][j].y, b[k][j].z, b[k][j].w};
                multiply(s, a, ones[k][0], ones[k][1]);
            }
            float all = s[0] + s[2];
            high[j] = upper_digits(all), low[j] = all - high[j];
        }
#pragma unroll
        for (u32 half = 0; half < 2; half++) {
            float start[2][NT][4];
#pragma unroll
            for (int block = 0; block < 2; block++)
#pragma unroll
                for (int j = 0; j < NT; j++) {
                    const uint4 &of = b[2 * half + block][j];
#pragma unroll
                    for (int e = 0; e < 4; e++) start[block][j][e] = 0.0f;
                    multiply(start[block][j], raised, of.x, of.y);
                    multiply(start[block][j], raised, of.z, of.w);
                }
#pragma unroll
            for (int i = 0; i < MT; i++) {
                Part<Q4> v[2];
                load_parts<Q4>(v, SharedTile{at + (i * 2 + half) * TILE}, lane);
#pragma unroll
                for (int block = 0; block < 2; block++) {
                    float d0 = low_f16(v[block].scale.x), d1 = low_f16(v[block].scale.y);
                    u32 a[2][4];
#pragma unroll
                    for (int k = 0; k < 2; k++)
#pragma unroll
                        for (int e = 0; e < 4; e++) a[k][e] = raised_pair<Q4>(v[block], block, e % 2, 2 * k + e / 2, one);
#pragma unroll
                    for (int j = 0; j < NT; j++) {
                        const uint4 &of = b[2 * half + block][j];
                        float p[4] = {0.0f, 0.0f, 0.0f, 0.0f};
                        multiply_from(p, start[block][j], a[0], of.x, of.y);
                        multiply(p, a[1], of.z, of.w);
                        scaled_add(sum[i][j], d0, d1, p[0], p[1], p[2], p[3]);
                    }
                }
            }
        }
#pragma unroll
        for (int i = 0; i < MT; i++) {
            // Scale and offset of block t, of row g and of row g + 8.
            uint2 y = load_shared8(at + (i * 2 + t / 2) * TILE + LOW + g * 16 + t % 2 * 8);
            float m0 = high_f16(y.x), m1 = high_f16(y.y);
#pragma unroll
            for (int j = 0; j < NT; j++) multiply_tf32(sum[i][j], m0, m1, high[j]), multiply_tf32(sum[i][j], m0, m1, low[j]);
        }
    };
    wait_copies<0>();
    __syncwarp();
    while (count > 0) {
        // A copy for each stage, so that addresses are constants, and registers trade places.
#pragma unroll
        for (u32 s = 0; s < 2; s++) {
            if (count > 0) {
                turn(ring + s * STAGE, ring + (1 - s) * STAGE, ahead[s], ahead[1 - s]);
                wait_copies<0>();
                __syncwarp();
                count--;
            }
        }
    }
    // The ring is free for the sums.
    __syncthreads();
    const Left left{out, gated ? rows0 : rows0 + rows1 + rows2, before, first, first_row, outputs, rows, how};
    if constexpr (HALVES == 2) leave_halves<NT, MT, WARPS>(sum, shared, shared + WARPS * (2 * STAGE) / 4, left);
    else leave_all<NT, MT, WARPS, 1>(sum, shared, left);
}

#define ENTRY(NT, SIZE, MT, WARPS)                                                                                     \
    extern "C" __global__ void __launch_bounds__(WARPS * 32, 1) quant_ring4_n##NT##_##SIZE(                            \
        void *out, const bf16 *x, const u8 *w0, const u8 *w1, const u8 *w2, u32 rows0, u32 rows1, u32 rows2,           \
        u32 columns, u32 rows, u32 how) {                                                                              \
        quant_ring4<NT, MT, WARPS, 1>(out, x, w0, w1, w2, rows0, rows1, rows2, columns, rows, how);                    \
    }
#define HALVES_ENTRY(NT, SIZE, MT, WARPS)                                                                              \
    extern "C" __global__ void __cluster_dims__(1, 1, 2) __launch_bounds__(WARPS * 32, 1) quant_ring4_n##NT##_##SIZE(  \
        void *out, const bf16 *x, const u8 *w0, const u8 *w1, const u8 *w2, u32 rows0, u32 rows1, u32 rows2,           \
        u32 columns, u32 rows, u32 how) {                                                                              \
        quant_ring4<NT, MT, WARPS, 2>(out, x, w0, w1, w2, rows0, rows1, rows2, columns, rows, how);                    \
    }

// A multiprocessor has two tiles of 16 outputs, or four.
ENTRY(1, pair, 2, 16)
ENTRY(1, quad, 2, 8)
HALVES_ENTRY(2, pair, 4, 8)
ENTRY(2, quad, 4, 8)
