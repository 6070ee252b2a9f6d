// Projections of few rows: out = weights x, weights bf16 by rows, up to three matrices of one input side by side, or
// two whose outputs gate each other.
//
// A lane takes 16 bytes of a row of weights, from memory into the registers of the tensor cores: as the order of a sum's
// products is free, those are its elements of two products. A block takes 16 outputs or more; its warps take every so many
// elements of a row, and their sums are added in order. Where a row is long, or outputs are many, weights go through a ring in
// shared memory, so that more of them are on their way.
//
// A row of inputs is a column of a product, and no column depends on another: by the same kernel, or one that takes a
// row's elements in the same order, it gives the same bits whatever rows are beside it.
//
// Kernels here start early. The first weights are read before the wait. The assembler takes no notice of the wait when it moves a load of
// memory that is said never to change (`ld.global.nc`, `__ldg`): weights would be read behind it, and inputs in front of it.
// So only the norm's weight is read that way.
#include "common.cuh"
#include "finish.cuh"
#include "mma.cuh"
#include "outputs.cuh"

// 16 bytes of weights, which nobody reads again.
__device__ __forceinline__ uint4 load_once(const bf16 *from) {
    uint4 v;
    asm volatile("ld.global.L1::no_allocate.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(from)
                 : "memory");
    return v;
}

// Eight inputs from 16-byte pieces of f32, each times its weight, as bf16; and the sum of their squares.
__device__ __forceinline__ uint4 weighted(const float *x, const float *norm, float &squares) {
    float4 l = reinterpret_cast<const float4 *>(x)[0], h = reinterpret_cast<const float4 *>(x)[1];
    float4 p = __ldg(reinterpret_cast<const float4 *>(norm)), q = __ldg(reinterpret_cast<const float4 *>(norm) + 1);
    squares = fmaf(l.x, l.x, fmaf(l.y, l.y, fmaf(l.z, l.z, fmaf(l.w, l.w, squares))));
    squares = fmaf(h.x, h.x, fmaf(h.y, h.y, fmaf(h.z, h.z, fmaf(h.w, h.w, squares))));
    return make_uint4(to_bf16x2(l.x * p.x, l.y * p.y), to_bf16x2(l.z * p.z, l.w * p.w), to_bf16x2(h.x * q.x, h.y * q.y),
                      to_bf16x2(h.z * q.z, h.w * q.w));
}

// The rows of weights of this lane. Behind the last one it is read again, and its sums are dropped.
template <int MT>
__device__ __forceinline__ void rows_of_lane(const bf16 *(&w)[MT][2], const Matrices &m, const Tile &tile, u32 side, bool gated,
                                             u32 columns) {
    u32 lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
#pragma unroll
    for (int i = 0; i < MT; i++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            // Gated, the upper half of a tile of 16 is the other matrix's.
            const bf16 *from = gated && half ? m.w[1] : tile.w;
            u32 row = tile.first + (gated ? (side + i) * 8 : (side + i) * 16 + half * 8) + g;
            w[i][half] = from + (u64)min(row, tile.outputs - 1) * columns + t * 8;
        }
}

// Both halves of a tile's weights, by 16 bytes of a lane each, times eight bytes of NT groups of inputs.
template <int NT> __device__ __forceinline__ void multiply_all(float (&sum)[NT][4], uint4 low, uint4 high, const uint4 (&b)[NT]) {
    u32 first[4] = {low.x, high.x, low.y, high.y}, second[4] = {low.z, high.z, low.w, high.w};
#pragma unroll
    for (int j = 0; j < NT; j++) {
        multiply(sum[j], first, b[j].x, b[j].y);
        multiply(sum[j], second, b[j].z, b[j].w);
    }
}

// Leaves the sums of a block's warps, each as `scaled(total, row)` of the block.
template <int NT, int MT, int WARPS, int SIDE, typename Scaled>
__device__ __forceinline__ void leave_block(void *out, const float (&sum)[MT][NT][4], float *shared, const Matrices &m,
                                            const Tile &tile, u32 first_row, u32 rows, u32 how, Scaled scaled) {
    bool gated = how >= GATE_SILU;
    u32 all = gated ? m.rows[0] : m.rows[0] + m.rows[1] + m.rows[2];
    finish_block<NT, MT, WARPS, SIDE>(sum, shared, [&](int i, u32 output, u32 row, float total, float) {
        total = scaled(total, row);
        row += first_row;
        if (gated) {
            // The lane 8 further on has the other matrix's.
            float up = __shfl_down_sync(FULL, total, 8);
            u32 column = tile.first + i * 8 + output;
            if (output < 8 && row < rows && column < all) leave_gated(out, (u64)row * all + column, total, up, how);
        } else {
            u32 column = tile.first + i * 16 + output;
            if (row < rows && column < tile.outputs) leave(out, (u64)row * all + tile.before + column, total, how);
        }
    });
}

// Blocks: (tiles of outputs, groups of NT * 8 rows of inputs). MT: tiles of 16 outputs of a warp; of the WARPS warps,
// SIDE neighbours have other outputs and the same inputs. STEP: elements of a row that a warp takes at a time, in units
// of 32. The order of a sum depends on WARPS / SIDE and on STEP, and on nothing else.
//
// NORMED: inputs are f32, and normalised on the way: x / rms(x) * norm. The norm's weight comes before the product, the
// division by rms(x) behind it.
template <int NT, int MT, int WARPS, int SIDE, int STEP, bool NORMED>
__device__ __forceinline__ void skinny(void *out, const void *x, const Matrices &m, const float *norm, u32 columns, u32 rows,
                                       u32 how, float epsilon) {
    extern __shared__ __align__(16) float shared[];
    __shared__ float squares_of[NORMED ? WARPS / SIDE : 1][NT * 8];
    bool gated = how >= GATE_SILU;
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
    Tile tile = gated ? Tile{m.w[0], m.rows[0], 0, blockIdx.x * (8 * MT * SIDE)} : tile_of<16 * MT * SIDE>(m, blockIdx.x);
    u32 first_row = blockIdx.y * (NT * 8);
    const bf16 *w[MT][2];
    rows_of_lane<MT>(w, m, tile, warp % SIDE * MT, gated, columns);
    uint4 a[MT][2][STEP], b[STEP][NT];
    auto load_weights = [&](u32 k) {
#pragma unroll
        for (int s = 0; s < STEP; s++) {
            bool there = k + s * 32 + t * 8 < columns;
#pragma unroll
            for (int i = 0; i < MT; i++)
#pragma unroll
                for (int half = 0; half < 2; half++)
                    a[i][half][s] = there ? load_once(w[i][half] + k + s * 32) : make_uint4(0, 0, 0, 0);
        }
    };
    // The first weights are on their way before the inputs are there.
    constexpr u32 DEEP = WARPS / SIDE;
    const u32 by = DEEP * STEP * 32;
    u32 k = warp / SIDE * STEP * 32;
    let_next_start();
    load_weights(k);
    wait_for_earlier();
    u64 input[NT];
#pragma unroll
    for (int j = 0; j < NT; j++) input[j] = (u64)min(first_row + j * 8 + g, rows - 1) * columns + t * 8;

    float sum[MT][NT][4] = {}, squares[NT] = {};
    auto load_inputs = [&](u32 k) {
#pragma unroll
        for (int s = 0; s < STEP; s++) {
            u32 at = k + s * 32;
            bool there = at + t * 8 < columns;
            const uint4 none = make_uint4(0, 0, 0, 0);
#pragma unroll
            for (int j = 0; j < NT; j++)
                if (NORMED)
                    b[s][j] = there ? weighted(reinterpret_cast<const float *>(x) + input[j] + at, norm + at + t * 8,
                                               squares[j])
                                    : none;
                else
                    b[s][j] = there ? load16(reinterpret_cast<const bf16 *>(x) + input[j] + at) : none;
        }
    };
    load_inputs(k);
    while (true) {
#pragma unroll
        for (int s = 0; s < STEP; s++)
#pragma unroll
            for (int i = 0; i < MT; i++) multiply_all<NT>(sum[i], a[i][0][s], a[i][1][s], b[s]);
        k += by;
        if (k >= columns) break;
        load_weights(k);
        load_inputs(k);
    }
    if (NORMED)
#pragma unroll
        for (int j = 0; j < NT; j++) {
            squares[j] += __shfl_xor_sync(FULL, squares[j], 1);
            squares[j] += __shfl_xor_sync(FULL, squares[j], 2);
            if (warp % SIDE == 0 && t == 0) squares_of[warp / SIDE][j * 8 + g] = squares[j];
        }
    leave_block<NT, MT, WARPS, SIDE>(out, sum, shared, m, tile, first_row, rows, how, [&](float total, u32 row) {
        if (!NORMED) return total;
        float mean = 0.0f;
#pragma unroll
        for (int part = 0; part < DEEP; part++) mean += squares_of[part][row];
        return total * rsqrtf(mean / (float)columns + epsilon);
    });
}

// The same for long rows. A warp takes 64 elements at a time: 128 bytes of each of its rows, a whole line. They go through a ring
// of STAGES stages in shared memory, of which all but one are always on their way, before the inputs are there too. A lane copies what it
// multiplies itself, so nobody waits for anybody. Shared memory: STAGES * MT * WARPS * 2 KiB.
#define STAGES 3
template <int NT, int MT, int WARPS, int SIDE>
__device__ __forceinline__ void skinny_ring(void *out, const bf16 *x, const Matrices &m, u32 columns, u32 rows, u32 how) {
    constexpr u32 DEEP = WARPS / SIDE, PIECE = WARPS * 512, STAGE = MT * 4 * PIECE, TURN = DEEP * 64;
    extern __shared__ __align__(16) float shared[];
    bool gated = how >= GATE_SILU;
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
    Tile tile = gated ? Tile{m.w[0], m.rows[0], 0, blockIdx.x * (8 * MT * SIDE)} : tile_of<16 * MT * SIDE>(m, blockIdx.x);
    u32 first_row = blockIdx.y * (NT * 8), ring = shared_address(shared) + threadIdx.x * 16, k = warp / SIDE * 64;
    const u64 policy = dropped_first();
    const bf16 *w[MT][2];
    rows_of_lane<MT>(w, m, tile, warp % SIDE * MT, gated, columns);
    // Where a lane's piece is: unit `s` of 32 elements, half `half` of tile `i`.
    auto place = [&](int stage, int s, int i, int half) { return ring + stage * STAGE + ((s * MT + i) * 2 + half) * PIECE; };
    auto copy = [&](int stage, u32 k) {
        if (k < columns)
#pragma unroll
            for (int s = 0; s < 2; s++) {
                // Behind the end of a row are zeros.
                bool there = k + s * 32 + t * 8 < columns;
#pragma unroll
                for (int i = 0; i < MT; i++)
#pragma unroll
                    for (int half = 0; half < 2; half++)
                        copy_once(place(stage, s, i, half), w[i][half] + (there ? k + s * 32 : 0), there ? 16 : 0, policy);
            }
        commit_copies();
    };
    let_next_start();
#pragma unroll
    for (int stage = 0; stage < STAGES - 1; stage++) copy(stage, k + stage * TURN);
    wait_for_earlier();
    const bf16 *input[NT];
#pragma unroll
    for (int j = 0; j < NT; j++) input[j] = x + (u64)min(first_row + j * 8 + g, rows - 1) * columns + t * 8;
    uint4 b[2][2][NT];
    auto load_inputs = [&](int to, u32 k) {
#pragma unroll
        for (int s = 0; s < 2; s++) {
            bool there = k + s * 32 + t * 8 < columns;
#pragma unroll
            for (int j = 0; j < NT; j++) b[to][s][j] = there ? load16(input[j] + k + s * 32) : make_uint4(0, 0, 0, 0);
        }
    };
    float sum[MT][NT][4] = {};
    load_inputs(0, k);
    while (k < columns)
#pragma unroll
        for (int turn = 0; turn < 2 * STAGES; turn++, k += TURN)
            if (k < columns) {
                load_inputs((turn + 1) % 2, k + TURN);
                wait_copies<STAGES - 2>();
                uint4 a[2][MT][2];
#pragma unroll
                for (int s = 0; s < 2; s++)
#pragma unroll
                    for (int i = 0; i < MT; i++)
#pragma unroll
                        for (int half = 0; half < 2; half++)
                            a[s][i][half] = load_shared16(place(turn % STAGES, s, i, half));
                copy((turn + STAGES - 1) % STAGES, k + (STAGES - 1) * TURN);
#pragma unroll
                for (int s = 0; s < 2; s++)
#pragma unroll
                    for (int i = 0; i < MT; i++) multiply_all<NT>(sum[i], a[s][i][0], a[s][i][1], b[turn % 2][s]);
            }
    // The ring becomes the place of the sums.
    wait_copies<0>();
    __syncthreads();
    leave_block<NT, MT, WARPS, SIDE>(out, sum, shared, m, tile, first_row, rows, how,
                                     [](float total, u32) { return total; });
}

// The same for many outputs of short rows: every warp makes tiles of 16 outputs alone, one after the other, the next one's weights
// on their way while it is at this one's end. A sum is that of steps of 128 elements, as if up to eight warps had taken one
// each. Shared memory: LINES * WARPS * 2 KiB.
#define LINES 4
template <int NT, int WARPS>
__device__ __forceinline__ void skinny_tiles(void *out, const bf16 *x, const Matrices &m, u32 columns, u32 rows, u32 how) {
    constexpr u32 PIECE = WARPS * 512, LINE = 4 * PIECE;
    extern __shared__ __align__(16) float shared[];
    bool gated = how >= GATE_SILU;
    u32 lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    auto tiles_of = [](u32 outputs) { return (outputs + 15) / 16; };
    u32 tiles = gated ? (m.rows[0] + 7) / 8 : tiles_of(m.rows[0]) + tiles_of(m.rows[1]) + tiles_of(m.rows[2]);
    u32 all = gated ? m.rows[0] : m.rows[0] + m.rows[1] + m.rows[2];
    auto tile_at = [&](u32 at) { return gated ? Tile{m.w[0], m.rows[0], 0, at * 8} : tile_of<16>(m, at); };
    u32 first_row = blockIdx.y * (NT * 8), ring = shared_address(shared) + threadIdx.x * 16, by = gridDim.x * WARPS;
    const u32 own = blockIdx.x * WARPS + threadIdx.x / 32;
    const u64 policy = dropped_first();
    // What is on its way next, and where in the ring that and what is multiplied next lie.
    const bf16 *w[1][2];
    u32 coming = own, coming_k = 0, coming_line = 0, line = 0;
    auto next = [](u32 line) { return line + 1 == LINES ? 0 : line + 1; };
    auto copy = [&] {
        if (coming < tiles) {
            if (coming_k == 0) rows_of_lane<1>(w, m, tile_at(coming), 0, gated, columns);
#pragma unroll
            for (int s = 0; s < 2; s++) {
                bool there = coming_k + s * 32 + t * 8 < columns;
#pragma unroll
                for (int half = 0; half < 2; half++)
                    copy_once(ring + coming_line * LINE + (s * 2 + half) * PIECE,
                              w[0][half] + (there ? coming_k + s * 32 : 0), there ? 16 : 0, policy);
            }
            coming_k += 64;
            if (coming_k >= columns) coming_k = 0, coming += by;
        }
        commit_copies();
        coming_line = next(coming_line);
    };
    let_next_start();
#pragma unroll 1
    for (int i = 0; i < LINES - 1; i++) copy();
    wait_for_earlier();
    const bf16 *input[NT];
#pragma unroll
    for (int j = 0; j < NT; j++) input[j] = x + (u64)min(first_row + j * 8 + g, rows - 1) * columns + t * 8;
    for (u32 at = own; at < tiles; at += by) {
        float total[NT][4] = {};
        for (u32 step = 0; step < columns; step += 128) {
            float sum[NT][4] = {};
#pragma unroll
            for (int half = 0; half < 2; half++) {
                u32 k = step + half * 64;
                if (k >= columns) break;
                uint4 a[2][2], b[2][NT];
#pragma unroll
                for (int s = 0; s < 2; s++) {
                    bool there = k + s * 32 + t * 8 < columns;
#pragma unroll
                    for (int j = 0; j < NT; j++) b[s][j] = there ? load16(input[j] + k + s * 32) : make_uint4(0, 0, 0, 0);
                }
                wait_copies<LINES - 2>();
#pragma unroll
                for (int s = 0; s < 2; s++)
#pragma unroll
                    for (int i = 0; i < 2; i++) a[s][i] = load_shared16(ring + line * LINE + (s * 2 + i) * PIECE);
                line = next(line);
                copy();
#pragma unroll
                for (int s = 0; s < 2; s++) multiply_all<NT>(sum, a[s][0], a[s][1], b[s]);
            }
#pragma unroll
            for (int j = 0; j < NT; j++)
#pragma unroll
                for (int e = 0; e < 4; e++) total[j][e] += sum[j][e];
        }
        Tile tile = tile_at(at);
#pragma unroll
        for (int j = 0; j < NT; j++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                u32 row = first_row + j * 8 + t * 2 + e % 2, column = tile.first + g + (gated ? 0 : e / 2 * 8);
                if (row >= rows || column >= tile.outputs) continue;
                if (!gated) leave(out, (u64)row * all + tile.before + column, total[j][e], how);
                if (gated && e < 2) leave_gated(out, (u64)row * all + column, total[j][e], total[j][e + 2], how);
            }
    }
}

// Blocks on a multiprocessor where that needs no local memory.
#if __CUDA_ARCH__ >= 1200
#define TWO 1
#else
#define TWO 2
#endif

template <int NT, int MT, int WARPS, int SIDE, int STEP>
__device__ __forceinline__ void plain(void *out, const bf16 *x, const Matrices &m, u32 columns, u32 rows, u32 how) {
    skinny<NT, MT, WARPS, SIDE, STEP, false>(out, x, m, nullptr, columns, rows, how, 0.0f);
}

#define MATRICES Matrices{{w0, w1, w2}, {rows0, rows1, rows2}}
// Behind the first three arguments, the function.
#define ENTRY(NAME, WARPS, BLOCKS, ...)                                                                                \
    extern "C" __global__ void __launch_bounds__(WARPS * 32, BLOCKS)                                                   \
        project_##NAME(void *out, const bf16 *x, const bf16 *w0, const bf16 *w1, const bf16 *w2, u32 rows0, u32 rows1, \
                       u32 rows2, u32 columns, u32 rows, u32 how) {                                                    \
        __VA_ARGS__(out, x, MATRICES, columns, rows, how);                                                             \
    }

// The order of eight warps, 128 elements each, is that of all kernels for short rows, and of most in the
// batch-invariant mode.
ENTRY(n1, 8, 3, plain<1, 1, 8, 1, 4>)
ENTRY(n2, 8, 2, plain<2, 1, 8, 1, 4>)
// Rows of middling length, for up to 8 rows of inputs.
ENTRY(n1_deep, 16, 1, plain<1, 1, 16, 1, 4>)
// For more than 16, of many outputs and short rows; of long rows.
ENTRY(n2_side, 8, 3, plain<2, 1, 8, 2, 2>)
ENTRY(n4, 8, 2, plain<4, 1, 8, 1, 2>)
// Long rows: of few outputs; of more, for up to 8 and up to 16 rows of inputs in one order; of many for 16, so that more outputs
// share what is read of the inputs.
ENTRY(ring_n1_deep, 16, TWO, skinny_ring<1, 1, 16, 1>)
ENTRY(ring_n1, 8, TWO, skinny_ring<1, 2, 8, 1>)
ENTRY(ring_n2, 8, TWO, skinny_ring<2, 2, 8, 1>)
ENTRY(ring_n2_side, 8, TWO, skinny_ring<2, 2, 8, 2>)
// As many outputs as a vocabulary has, of short rows.
ENTRY(tiles_n1, 8, 3, skinny_tiles<1, 8>)
ENTRY(tiles_n2, 8, 3, skinny_tiles<2, 8>)

extern "C" __global__ void __launch_bounds__(256, 2)
    project_normed_n1(void *out, const float *x, const bf16 *w0, const bf16 *w1, const bf16 *w2, const float *norm,
                      u32 rows0, u32 rows1, u32 rows2, u32 columns, u32 rows, u32 how, float epsilon) {
    skinny<1, 1, 8, 1, 4, true>(out, x, MATRICES, norm, columns, rows, how, epsilon);
}

extern "C" __global__ void __launch_bounds__(256, 1)
    project_normed_n2(void *out, const float *x, const bf16 *w0, const bf16 *w1, const bf16 *w2, const float *norm,
                      u32 rows0, u32 rows1, u32 rows2, u32 columns, u32 rows, u32 how, float epsilon) {
    skinny<2, 1, 8, 1, 4, true>(out, x, MATRICES, norm, columns, rows, how, epsilon);
}
