// Projections of 1 to 16 rows with large weights of 4 to 8 bits: out = weights x, sums in f32. tiles.cuh says how they lie.
//
// A warp takes every so many tiles of its 16 * MT outputs through a ring of its own in shared memory, of which all stages but one are always
// on their way, the first ones before the inputs are there. Inputs go through a ring of its own, too, or are in registers one turn ahead, where
// that is faster. So warps wait for each other at the end only, when their sums are added in order. What counts besides bytes is how many
// instructions a tile takes: addresses are kept in registers, and a lane's part of a tile comes by loads of 16 bytes. Weights of less than 8 bits are multiplied as they are in the bits of a bf16, which is 128 too
// much and more: what makes up for that is a product of the inputs with a constant, which all tiles of a warp share.
#include "common.cuh"
#include "ring.cuh"

// Of a block of 32 elements of NT groups of eight rows of inputs, what weights have to do with that are raised: minus what they are raised by times
// the inputs' sum, with which sums begin (of 6 bits in either half of the block). Of 4 bits `first` is that sum itself, which their offset is
// multiplied with; FOLDED: the offset makes up for what they are raised by, too. That is less work, and faster for four tiles by sixteen rows; it is
// slower for two tiles by one row (0.56 in place of 0.70 of copy: 14336 elements a row, an H200).
template <int F, int NT, bool FOLDED> __device__ __forceinline__ void begin_block(float (&first)[NT][4], float (&second)[NT][4], const uint4 (&b)[NT]) {
    constexpr u32 ALL = F == Q4 ? 0x3f803f80 : F == Q5 ? 0xc310c310 : 0xc320c320; // 1, -144, -160
    const u32 all[4] = {ALL, ALL, ALL, ALL};
#pragma unroll
    for (int j = 0; j < NT; j++) {
#pragma unroll
        for (int e = 0; e < 4; e++) first[j][e] = second[j][e] = 0.0f;
        if (F < Q8) multiply(first[j], all, b[j].x, b[j].y);
        if (F == Q4 || F == Q5) multiply(first[j], all, b[j].z, b[j].w);
        if (F == Q6) multiply(second[j], all, b[j].z, b[j].w);
        if (F == Q4 && !FOLDED)
#pragma unroll
            for (int e = 0; e < 4; e++) second[j][e] = -128.0f * first[j][e % 2];
    }
}

// A lane's products of one block of a tile with those inputs. `first` and `second` are what `begin_block` made of them.
template <int F, int NT, bool FOLDED>
__device__ __forceinline__ void multiply_part(float (&sum)[NT][4], const Part<F> &it, const uint4 (&b)[NT], const float (&first)[NT][4],
                                              const float (&second)[NT][4], int block, u32 one) {
    u32 a[2][4];
#pragma unroll
    for (int k = 0; k < 2; k++)
#pragma unroll
        for (int e = 0; e < 4; e++) a[k][e] = raised_pair<F>(it, block, e % 2, 2 * k + e / 2, one);
    float d0 = low_f16(it.scale.x), d1 = F == Q4 ? low_f16(it.scale.y) : high_f16(it.scale.x);
    float m0 = high_f16(it.scale.x), m1 = high_f16(it.scale.y);
    if (FOLDED) m0 = fmaf(-128.0f, d0, m0), m1 = fmaf(-128.0f, d1, m1);
#pragma unroll
    for (int j = 0; j < NT; j++) {
        float p[4] = {0.0f, 0.0f, 0.0f, 0.0f};
        if (F == Q5 || F == Q6 || F == Q4 && !FOLDED)
            multiply_from(p, F == Q4 ? second[j] : first[j], a[0], b[j].x, b[j].y);
        else
            multiply(p, a[0], b[j].x, b[j].y);
        if (F == Q6) {
            // A scale for each half of the block: (row g, row g + 8) of the first, then of the second.
            scaled_add(sum[j], d0, d1, p[0], p[1], p[2], p[3]);
            multiply_from(p, second[j], a[1], b[j].z, b[j].w);
            scaled_add(sum[j], low_f16(it.scale.y), high_f16(it.scale.y), p[0], p[1], p[2], p[3]);
            continue;
        }
        multiply(p, a[1], b[j].z, b[j].w);
        scaled_add(sum[j], d0, d1, p[0], p[1], p[2], p[3]);
        if (F == Q4) scaled_add(sum[j], m0, m1, first[j][0], first[j][1], first[j][0], first[j][1]);
    }
}

// A block's MT tiles, in `at` of shared memory, by 64 elements of NT groups of eight rows of inputs. TOGETHER: a tile's blocks one behind the other;
// else all tiles' first blocks come first, which takes fewer registers.
template <int F, int NT, int MT, bool TOGETHER>
__device__ __forceinline__ void multiply_tiles(float (&sum)[MT][NT][4], u32 at, const uint4 (&b)[2][NT], u32 one) {
    constexpr bool FOLDED = F == Q4 && MT > 2 && MT <= 2 * NT;
    u32 lane = threadIdx.x % 32;
    float first[2][NT][4], second[2][NT][4];
    if (TOGETHER) {
#pragma unroll
        for (int block = 0; block < 2; block++) begin_block<F, NT, FOLDED>(first[block], second[block], b[block]);
#pragma unroll
        for (int i = 0; i < MT; i++) {
            Part<F> v[2];
            load_parts<F>(v, SharedTile{at + i * tile_bytes<F>()}, lane);
#pragma unroll
            for (int block = 0; block < 2; block++)
                multiply_part<F, NT, FOLDED>(sum[i], v[block], b[block], first[block], second[block], block, one);
        }
    } else {
#pragma unroll
        for (int block = 0; block < 2; block++) {
            begin_block<F, NT, FOLDED>(first[0], second[0], b[block]);
#pragma unroll
            for (int i = 0; i < MT; i++) {
                const Part<F> v = load_part<F>(SharedTile{at + i * tile_bytes<F>()}, lane, block);
                multiply_part<F, NT, FOLDED>(sum[i], v, b[block], first[0], second[0], block, one);
            }
        }
    }
}

// Zero, of which the assembler doesn't know that it is, nor that all lanes have the same. Up to 13.3 it forgets the policy of a copy whose shared
// address has a part that all lanes share, which is an illegal instruction: it did so for sm_120, in two kernels here.
#if __CUDA_ARCH__ >= 1200
#define NOTHING ((how >> 16) & lane)
#else
#define NOTHING 0
#endif

// Shared memory: for each warp STAGES * MT tiles; INPUTS: and (STAGES - 1) * NT KiB, through which its inputs go in the same way.
template <int F, int NT, int MT, int WARPS, int SIDE, int STAGES, bool INPUTS>
__device__ __forceinline__ void quant_ring(void *out, const bf16 *x, const u8 *w0, const u8 *w1, const u8 *w2, u32 rows0,
                                           u32 rows1, u32 rows2, u32 columns, u32 rows, u32 how) {
    extern __shared__ __align__(16) float shared[];
    constexpr u32 ROWS = 16 * MT * SIDE, TILE = tile_bytes<F>(), STAGE = MT * TILE, ROOM = INPUTS ? NT * 1024 : 0, DEEP = WARPS / SIDE;
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
    // Where strips begin, in units of 16 bytes.
    auto strip = [&](u32 i) {
        u32 at = first / 16 + (gated ? (side + i) / 2 : side + i);
        return ((u64)min(at, most) * wide + part) * TILE;
    };
    const u8 *matrix[2] = {w + lane * 16, (gated ? w1 : w) + lane * 16}, *rest[TURNS];
    u32 low[MT];
#pragma unroll
    for (u32 i = 0; i < MT; i++) low[i] = (u32)(strip(i) / 16), keep(low[i]);
#pragma unroll
    for (u32 i = 0; i < TURNS; i++) {
        u32 piece = min(i * 32 + lane, MT * REST - 1);
        rest[i] = (gated && piece / REST % 2 ? w1 : w) + strip(piece / REST) + LOW + piece % REST * 16;
        keep(rest[i]);
    }
    const u32 ring = (shared_address(shared) ^ NOTHING) + warp * (STAGES * STAGE + (STAGES - 1) * ROOM), room = ring + STAGES * STAGE;
    u32 count = part < wide ? (wide - part + DEEP - 1) / DEEP : 0;
    const u64 policy = dropped_first();
    // Of its turns a block begins with another one than its neighbours, and takes those in front of that last: the L2 cache has an input in one
    // place, and all blocks would want it at the same time. Weights of up to 6 bits by 8 rows gain nothing by it.
    constexpr bool ROTATED = F >= Q8 || NT > 1;
    const u32 begin = ROTATED && count ? blockIdx.x % count : 0;
    const int around = (int)(DEEP * TILE) - (int)(count * (DEEP * TILE));
    u32 until = count - begin;
    matrix[0] += begin * (DEEP * TILE), matrix[1] += begin * (DEEP * TILE);
#pragma unroll
    for (u32 i = 0; i < TURNS; i++) rest[i] += begin * (DEEP * TILE);
    auto copy_tiles = [&](u32 to) {
        const int by = ROTATED && !--until ? around : (int)(DEEP * TILE);
#pragma unroll
        for (u32 i = 0; i < MT; i++) {
            const u8 *from = matrix[i % 2] + (u64)low[i] * 16;
            copy_once(to + i * TILE + lane * 16, from, 16, policy);
            if (F >= Q8) copy_once(to + i * TILE + 512 + lane * 16, from + 512, 16, policy);
        }
        matrix[0] += by, matrix[1] += by;
#pragma unroll
        for (u32 i = 0; i < TURNS; i++) {
            u32 piece = i * 32 + lane;
            if (TURNS * 32 == MT * REST || piece < MT * REST)
                copy_once(to + piece / REST * TILE + LOW + piece % REST * 16, rest[i], 16, policy);
            rest[i] += by;
        }
    };
#pragma unroll
    for (u32 s = 0; s < STAGES - 1; s++) {
        if (s < count) copy_tiles(ring + s * STAGE);
        commit_copies();
    }
    wait_for_earlier();

    // A lane's row of each group of eight, where its next inputs are.
    const bf16 *inputs[NT];
#pragma unroll
    for (u32 j = 0; j < NT; j++) {
        inputs[j] = x + (u64)min(first_row + j * 8 + g, rows - 1) * columns + (min(part, wide - 1) + begin * DEEP) * 64 + (INPUTS ? t * 8 : first_of<F>(lane));
        if (INPUTS || F != Q6) keep(inputs[j]);
    }
    // Of 64 elements there may be only 32: weights behind them are zeros, and are multiplied with the first ones once more.
    int left = (int)columns - (int)(min(part, wide - 1) + begin * DEEP) * 64;
    // To the inputs of the next turn; behind the last of all they are read again.
    const int back = ROTATED ? (int)(DEEP * 64) - (int)(count * (DEEP * 64)) : 0;
    auto step = [&] { return left > (int)DEEP * 64 ? (int)DEEP * 64 : back; };
    auto copy_inputs = [&](u32 to) {
        u32 behind = left > 32 ? 32 : 0;
        const int by = step();
#pragma unroll
        for (int j = 0; j < NT; j++) {
            copy16_async(to + j * 512 + lane * 16, inputs[j], 16);
            copy16_async(to + (NT + j) * 512 + lane * 16, inputs[j] + behind, 16);
            inputs[j] += by;
        }
        left -= by;
    };
    // By plain loads: another kernel may have just written them.
    uint4 b[2][NT], ahead[2][NT];
    auto load_inputs = [&] {
        u32 behind = left > 32 ? 32 : 0;
        const int by = step();
#pragma unroll
        for (int j = 0; j < NT; j++) {
#pragma unroll
            for (int block = 0; block < 2; block++) {
                const bf16 *from = block ? inputs[j] + behind : inputs[j];
                if (F == Q6) {
                    uint2 l = *reinterpret_cast<const uint2 *>(from), h = *reinterpret_cast<const uint2 *>(from + 16);
                    ahead[block][j] = make_uint4(l.x, l.y, h.x, h.y);
                } else {
                    ahead[block][j] = load_global16(from);
                }
            }
            inputs[j] += by;
        }
        left -= by;
    };
    if (INPUTS) {
#pragma unroll
        for (u32 s = 0; s < STAGES - 1; s++) {
            if (s < count) copy_inputs(room + s * ROOM);
            commit_copies();
        }
    } else {
        load_inputs();
    }

    float sum[MT][NT][4];
#pragma unroll
    for (int i = 0; i < MT; i++)
#pragma unroll
        for (int j = 0; j < NT; j++)
#pragma unroll
            for (int e = 0; e < 4; e++) sum[i][j][e] = 0.0f;
    // 0x4300 twice. `how` is a small number: the assembler doesn't know that, and so keeps it in a register.
    const u32 one = 0x43004300 + (how >> 16);
    // Where in the rings are the tiles, and the inputs, that are multiplied now. In front of the tiles are those before, whose place is free.
    u32 now = 0, here = 0;
    for (; count > 0; count--) {
        wait_copies<STAGES - 2>();
        __syncwarp();
        if (INPUTS) {
#pragma unroll
            for (int block = 0; block < 2; block++)
#pragma unroll
                for (int j = 0; j < NT; j++) {
                    u32 from = room + here + (block * NT + j) * 512;
                    if (F == Q6) {
                        uint2 l = load_shared8(from + g * 64 + t * 8), h = load_shared8(from + g * 64 + 32 + t * 8);
                        b[block][j] = make_uint4(l.x, l.y, h.x, h.y);
                    } else {
                        b[block][j] = load_shared16(from + lane * 16);
                    }
                }
            __syncwarp();
        } else {
#pragma unroll
            for (int block = 0; block < 2; block++)
#pragma unroll
                for (int j = 0; j < NT; j++) b[block][j] = ahead[block][j];
            load_inputs();
        }
        if (count > STAGES - 1) {
            copy_tiles(ring + (now ? now - STAGE : (STAGES - 1) * STAGE));
            if (INPUTS) copy_inputs(room + here);
        }
        commit_copies();
        multiply_tiles<F, NT, MT, INPUTS>(sum, ring + now, b, one);
        now = now == (STAGES - 1) * STAGE ? 0 : now + STAGE;
        here = here == (STAGES - 2) * ROOM ? 0 : here + ROOM;
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

#define ENTRY(F, NT, SIZE, MT, WARPS, SIDE, STAGES, INPUTS, BLOCKS)                                                    \
    extern "C" __global__ void __launch_bounds__(WARPS * 32, BLOCKS) quant_ring_q##F##_n##NT##_##SIZE(                 \
        void *out, const bf16 *x, const u8 *w0, const u8 *w1, const u8 *w2, u32 rows0, u32 rows1, u32 rows2,           \
        u32 columns, u32 rows, u32 how) {                                                                              \
        quant_ring<F, NT, MT, WARPS, SIDE, STAGES, INPUTS>(out, x, w0, w1, w2, rows0, rows1, rows2, columns, rows,     \
                                                           how);                                                       \
    }

// A multiprocessor has two tiles of 16 outputs, four, or more of them.
ENTRY(4, 1, pair, 2, 16, 1, 2, 0, 1)
ENTRY(4, 1, quad, 4, 16, 1, 2, 0, 1)
ENTRY(4, 1, many, 4, 8, 1, 2, 0, TWO)
ENTRY(4, 2, pair, 2, 16, 1, 2, 1, 1)
ENTRY(4, 2, quad, 4, 12, 1, 2, 1, 1)
ENTRY(4, 2, many, 7, 8, 1, 2, 1, 1)
ENTRY(5, 1, pair, 2, 16, 1, 2, 0, 1)
ENTRY(5, 1, quad, 4, 16, 1, 2, 0, 1)
ENTRY(5, 1, many, 4, 8, 1, 2, 0, TWO)
ENTRY(5, 2, pair, 2, 16, 1, 2, 1, 1)
ENTRY(5, 2, quad, 4, 12, 1, 2, 1, 1)
ENTRY(5, 2, many, 7, 8, 1, 2, 1, 1)
ENTRY(6, 1, pair, 2, 16, 1, 2, 0, 1)
ENTRY(6, 1, quad, 4, 12, 1, 2, 0, 1)
ENTRY(6, 1, many, 4, 8, 1, 2, 0, TWO)
ENTRY(6, 2, pair, 2, 16, 1, 2, 1, 1)
ENTRY(6, 2, quad, 4, 8, 1, 2, 1, 1)
ENTRY(6, 2, many, 7, 4, 1, 3, 1, 1)
ENTRY(8, 1, pair, 2, 16, 1, 2, 0, 1)
ENTRY(8, 1, quad, 2, 16, 2, 2, 0, 1)
ENTRY(8, 1, many, 4, 8, 1, 2, 0, 2)
ENTRY(8, 2, pair, 2, 16, 1, 2, 0, 1)
ENTRY(8, 2, quad, 2, 16, 2, 2, 0, 1)
ENTRY(8, 2, many, 2, 8, 2, 3, 0, 2)
ENTRY(9, 1, pair, 2, 16, 1, 2, 0, 1)
ENTRY(9, 1, quad, 2, 16, 2, 2, 0, 1)
ENTRY(9, 1, many, 4, 8, 1, 2, 0, 2)
ENTRY(9, 2, pair, 2, 16, 1, 2, 0, 1)
ENTRY(9, 2, quad, 2, 16, 2, 2, 0, 1)
ENTRY(9, 2, many, 2, 8, 2, 3, 0, 2)
