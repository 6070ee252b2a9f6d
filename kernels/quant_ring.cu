// Projections of 1 to 16 rows with large weights of 4 to 8 bits: out = weights x, sums in f32. tiles.cuh says how they lie.
//
// A warp takes every so many tiles of its 16 * MT outputs through a ring of its own in shared memory, of which all stages but one are always
// on their way, the first ones before the inputs are there. Inputs are in registers one turn ahead. So warps wait for each other at the end
// only, when their sums are added in order. Weights of less than 8 bits are multiplied as they are in the bits of a bf16, which is 128 too
// much and more: sums begin with minus that times the inputs' sum, a product with a constant that all tiles of a warp share.
#include "common.cuh"
#include "finish.cuh"
#include "mma.cuh"
#include "outputs.cuh"
#include "tiles.cuh"

__device__ __forceinline__ uint2 load_shared8(u32 from) {
    uint2 y;
    asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(y.x), "=r"(y.y) : "r"(from) : "memory");
    return y;
}
// A tile in shared memory.
struct SharedTile {
    u32 from;
    __device__ __forceinline__ u32 load4(u32 at) const { return load_shared_word(from + at); }
    __device__ __forceinline__ uint2 load8(u32 at) const { return load_shared8(from + at); }
    __device__ __forceinline__ uint4 load16(u32 at) const { return load_shared16(from + at); }
};

// sum = start + left * right: as `multiply`, of bf16, whose sum stays as it is.
__device__ __forceinline__ void multiply_from(float (&sum)[4], const float (&start)[4], const u32 (&left)[4], u32 right0, u32 right1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, "
        "%13};"
        : "=f"(sum[0]), "=f"(sum[1]), "=f"(sum[2]), "=f"(sum[3])
        : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right0), "r"(right1), "f"(start[0]), "f"(start[1]),
          "f"(start[2]), "f"(start[3]));
}

// What a product adds to its sums, with a scale for row g and one for row g + 8.
__device__ __forceinline__ void scaled_add(float (&sum)[4], float d0, float d1, float p0, float p1, float p2, float p3) {
    sum[0] = fmaf(d0, p0, sum[0]), sum[1] = fmaf(d0, p1, sum[1]);
    sum[2] = fmaf(d1, p2, sum[2]), sum[3] = fmaf(d1, p3, sum[3]);
}

// A block's MT tiles, in `at` of shared memory, by a block of 32 of NT groups of eight rows of inputs.
template <int F, int NT, int MT>
__device__ __forceinline__ void multiply_block(float (&sum)[MT][NT][4], u32 at, const uint4 (&b)[NT], int block, u32 one) {
    constexpr u32 ALL = F == Q4 ? 0x3f803f80 : F == Q5 ? 0xc310c310 : 0xc320c320; // 1, -144, -160
    const u32 all[4] = {ALL, ALL, ALL, ALL};
    // Where registers are scarce, weights are what they are before they are multiplied, and sums begin with zero.
    constexpr bool SCARCE = NT == 2 && MT == 2 && (F == Q4 || F == Q6);
    u32 lane = threadIdx.x % 32;
    // What sums begin with; for Q6 of either half of the block; for Q4 the inputs' sums, too.
    float plain[NT][4], start[NT][4];
#pragma unroll
    for (int j = 0; j < NT; j++) {
#pragma unroll
        for (int e = 0; e < 4; e++) plain[j][e] = start[j][e] = 0.0f;
        if (F == Q4 || F < Q8 && !SCARCE) multiply(plain[j], all, b[j].x, b[j].y);
        if (F == Q4 || F == Q5) multiply(plain[j], all, b[j].z, b[j].w);
        if (F == Q6 && !SCARCE) multiply(start[j], all, b[j].z, b[j].w);
        if (F == Q4 && !SCARCE)
#pragma unroll
            for (int e = 0; e < 4; e++) start[j][e] = -128.0f * plain[j][e % 2];
    }
#pragma unroll
    for (int i = 0; i < MT; i++) {
        const Part<F> it = load_part<F>(SharedTile{at + i * tile_bytes<F>()}, lane, block);
        u32 a[2][4];
#pragma unroll
        for (int k = 0; k < 2; k++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                a[k][e] = raised_pair<F>(it, block, e % 2, 2 * k + e / 2, one);
                if (SCARCE) a[k][e] = minus(a[k][e], raised_by<F>());
            }
        float d0 = low_f16(it.scale.x), d1 = F == Q4 ? low_f16(it.scale.y) : high_f16(it.scale.x);
#pragma unroll
        for (int j = 0; j < NT; j++) {
            float p[4];
            multiply_from(p, F == Q4 ? start[j] : plain[j], a[0], b[j].x, b[j].y);
            if (F == Q6) {
                // A scale for each half of the block: (row g, row g + 8) of the first, then of the second.
                scaled_add(sum[i][j], d0, d1, p[0], p[1], p[2], p[3]);
                multiply_from(p, start[j], a[1], b[j].z, b[j].w);
                scaled_add(sum[i][j], low_f16(it.scale.y), high_f16(it.scale.y), p[0], p[1], p[2], p[3]);
                continue;
            }
            multiply(p, a[1], b[j].z, b[j].w);
            scaled_add(sum[i][j], d0, d1, p[0], p[1], p[2], p[3]);
            const float(&of)[4] = plain[j];
            if (F == Q4) scaled_add(sum[i][j], high_f16(it.scale.x), high_f16(it.scale.y), of[0], of[1], of[0], of[1]);
        }
    }
}

// Where the sums of a block go: rows of `all` outputs, of which `before` are those of matrices in front of this one, whose `outputs` begin at
// `first`; and inputs from `first_row` on.
struct Left {
    void *out;
    u32 all, before, first, first_row, outputs, rows, how;
};

template <int NT, int MT, int WARPS, int SIDE>
__device__ __forceinline__ void leave_all(const float (&sum)[MT][NT][4], float *shared, const Left &at) {
    bool gated = at.how >= GATE_SILU;
    finish_block<NT, MT, WARPS, SIDE>(sum, shared, [&](int i, u32 output, u32 row, float total, float other) {
        row += at.first_row;
        u32 column = at.first + (gated ? i / 2 : i) * 16 + output;
        if (row >= at.rows || column >= at.outputs) return;
        if (!gated) {
            leave(at.out, (u64)row * at.all + at.before + column, total, at.how);
        } else if (i % 2 == 0) {
            // Rounded as through memory.
            float gate = to_f32(to_bf16(total)), up = to_f32(to_bf16(other));
            reinterpret_cast<bf16 *>(at.out)[(u64)row * at.all + column] =
                to_bf16((at.how == GATE_GELU ? gelu(gate) : silu(gate)) * up);
        }
    });
}

// Shared memory: WARPS * STAGES * MT tiles, more than the sums at the end need.
template <int F, int NT, int MT, int WARPS, int SIDE, int STAGES>
__device__ __forceinline__ void quant_ring(void *out, const bf16 *x, const u8 *w0, const u8 *w1, const u8 *w2, u32 rows0,
                                           u32 rows1, u32 rows2, u32 columns, u32 rows, u32 how) {
    extern __shared__ __align__(16) float shared[];
    constexpr u32 ROWS = 16 * MT * SIDE, TILE = tile_bytes<F>(), STAGE = MT * TILE, DEEP = WARPS / SIDE;
    // Behind the first 512 bytes of a tile (1024 of 8 bits) come pieces of 16 that are fewer than lanes.
    constexpr u32 LOW = low_bytes<F>(), REST = (TILE - LOW) / 16, TURNS = (MT * REST + 31) / 32;
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
    u32 wide = (columns + 63) / 64, part = warp / SIDE; // tiles of a row; this warp's first
    // Gated, a block has tiles of both matrices in turns.
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
    let_next_start();
    u32 most = (outputs + 15) / 16 - 1, side = warp % SIDE * MT, first_row = blockIdx.y * (NT * 8);
    auto strip = [&](u32 i) {
        u32 at = first / 16 + (gated ? (side + i) / 2 : side + i);
        return (gated && i % 2 ? w1 : w) + ((u64)min(at, most) * wide + part) * TILE;
    };
    const u8 *low[MT], *rest[TURNS];
#pragma unroll
    for (u32 i = 0; i < MT; i++) low[i] = strip(i) + lane * 16;
#pragma unroll
    for (u32 i = 0; i < TURNS; i++) {
        u32 piece = min(i * 32 + lane, MT * REST - 1);
        rest[i] = strip(piece / REST) + LOW + piece % REST * 16;
    }
    u32 ring = shared_address(shared) + warp * (STAGES * STAGE), count = part < wide ? (wide - part + DEEP - 1) / DEEP : 0;
    const u64 policy = dropped_first();
    auto copy_tiles = [&](u32 to) {
#pragma unroll
        for (u32 i = 0; i < MT; i++) {
            copy_once(to + i * TILE + lane * 16, low[i], 16, policy);
            if (F >= Q8) copy_once(to + i * TILE + 512 + lane * 16, low[i] + 512, 16, policy);
            low[i] += DEEP * TILE;
        }
#pragma unroll
        for (u32 i = 0; i < TURNS; i++) {
            u32 piece = i * 32 + lane;
            if (TURNS * 32 == MT * REST || piece < MT * REST)
                copy_once(to + piece / REST * TILE + LOW + piece % REST * 16, rest[i], 16, policy);
            rest[i] += DEEP * TILE;
        }
    };
#pragma unroll
    for (u32 s = 0; s < STAGES - 1; s++) {
        if (s < count) copy_tiles(ring + s * STAGE);
        commit_copies();
    }
    wait_for_earlier();

    // Where they are, from the first row of the block on.
    x += (u64)first_row * columns;
    u32 inputs[NT];
#pragma unroll
    for (u32 j = 0; j < NT; j++)
        inputs[j] = min(j * 8 + g, rows - 1 - first_row) * columns + part * 64 + first_of<F>(lane);
    int left = (int)columns - (int)part * 64;
    uint4 ahead[2][NT];
    // By plain loads: another kernel may have just written them.
    auto load_inputs = [&](int block) {
#pragma unroll
        for (int j = 0; j < NT; j++) {
            uint4 y = make_uint4(0, 0, 0, 0);
            if (left > block * 32) {
                const bf16 *from = x + (u64)(inputs[j] + block * 32);
                if (F == Q6) {
                    uint2 l = *reinterpret_cast<const uint2 *>(from), h = *reinterpret_cast<const uint2 *>(from + 16);
                    y = make_uint4(l.x, l.y, h.x, h.y);
                } else {
                    y = load16(from);
                }
            }
            ahead[block][j] = y;
            if (block) inputs[j] += DEEP * 64;
        }
        if (block) left -= DEEP * 64;
    };
    load_inputs(0);
    load_inputs(1);

    float sum[MT][NT][4];
#pragma unroll
    for (int i = 0; i < MT; i++)
#pragma unroll
        for (int j = 0; j < NT; j++)
#pragma unroll
            for (int e = 0; e < 4; e++) sum[i][j][e] = 0.0f;
    // 0x4300 twice. `how` is a small number: the assembler doesn't know that, and so keeps it in a register.
    const u32 one = 0x43004300 + (how >> 16);
    // The next inputs are asked for at the beginning of a turn, or where registers are scarce as soon as theirs are free.
    constexpr bool BEFORE = F >= Q8 || MT > 2;
    // Where in the ring the tiles are that are multiplied now. In front of them were those before, whose place is free.
    u32 now = 0;
    for (; count > 0; count--) {
        wait_copies<STAGES - 2>();
        __syncwarp();
        if (count > STAGES - 1) copy_tiles(ring + (now ? now - STAGE : (STAGES - 1) * STAGE));
        commit_copies();
        u32 at = ring + now;
        now = now == (STAGES - 1) * STAGE ? 0 : now + STAGE;
        uint4 b[2][NT];
#pragma unroll
        for (int block = 0; BEFORE && block < 2; block++) {
#pragma unroll
            for (int j = 0; j < NT; j++) b[block][j] = ahead[block][j];
            load_inputs(block);
        }
#pragma unroll
        for (int block = 0; block < 2; block++) {
            multiply_block<F, NT, MT>(sum, at, BEFORE ? b[block] : ahead[block], block, one);
            if (!BEFORE) load_inputs(block);
        }
    }
    // The ring is free for the sums.
    __syncthreads();
    leave_all<NT, MT, WARPS, SIDE>(
        sum, shared, Left{out, gated ? rows0 : rows0 + rows1 + rows2, before, first, first_row, outputs, rows, how});
}

// Blocks on a multiprocessor, where that needs no local memory.
#if __CUDA_ARCH__ >= 1200
#define TWO 1
#else
#define TWO 2
#endif

#define ENTRY(F, NT, SIZE, MT, WARPS, SIDE, STAGES, BLOCKS)                                                            \
    extern "C" __global__ void __launch_bounds__(WARPS * 32, BLOCKS) quant_ring_q##F##_n##NT##_##SIZE(                 \
        void *out, const bf16 *x, const u8 *w0, const u8 *w1, const u8 *w2, u32 rows0, u32 rows1, u32 rows2,           \
        u32 columns, u32 rows, u32 how) {                                                                              \
        quant_ring<F, NT, MT, WARPS, SIDE, STAGES>(out, x, w0, w1, w2, rows0, rows1, rows2, columns, rows, how);       \
    }

// A multiprocessor has two tiles of 16 outputs, four, or more of them.
ENTRY(4, 1, pair, 2, 16, 1, 2, 1)
ENTRY(4, 1, quad, 4, 16, 1, 2, 1)
ENTRY(4, 1, many, 4, 8, 1, 2, TWO)
ENTRY(4, 2, pair, 2, 16, 1, 2, 1)
ENTRY(4, 2, quad, 4, 8, 1, 2, 1)
ENTRY(4, 2, many, 7, 8, 1, 2, 1)
ENTRY(5, 1, pair, 2, 16, 1, 2, 1)
ENTRY(5, 1, quad, 4, 16, 1, 2, 1)
ENTRY(5, 1, many, 4, 8, 1, 2, TWO)
ENTRY(5, 2, pair, 2, 16, 1, 2, 1)
ENTRY(5, 2, quad, 4, 8, 1, 2, 1)
ENTRY(5, 2, many, 7, 8, 1, 2, 1)
ENTRY(6, 1, pair, 2, 16, 1, 2, 1)
ENTRY(6, 1, quad, 4, 12, 1, 2, 1)
ENTRY(6, 1, many, 4, 8, 1, 2, TWO)
ENTRY(6, 2, pair, 2, 16, 1, 2, 1)
ENTRY(6, 2, quad, 4, 8, 1, 2, 1)
ENTRY(6, 2, many, 7, 8, 1, 2, 1)
ENTRY(8, 1, pair, 2, 16, 1, 2, 1)
ENTRY(8, 1, quad, 2, 16, 2, 2, 1)
ENTRY(8, 1, many, 4, 8, 1, 2, 2)
ENTRY(8, 2, pair, 2, 16, 1, 2, 1)
ENTRY(8, 2, quad, 2, 16, 2, 2, 1)
ENTRY(8, 2, many, 2, 8, 2, 3, 2)
ENTRY(9, 1, pair, 2, 16, 1, 2, 1)
ENTRY(9, 1, quad, 2, 16, 2, 2, 1)
ENTRY(9, 1, many, 4, 8, 1, 2, 2)
ENTRY(9, 2, pair, 2, 16, 1, 2, 1)
ENTRY(9, 2, quad, 2, 16, 2, 2, 1)
ENTRY(9, 2, many, 2, 8, 2, 3, 2)
