// Projections of few rows: out = weights x, weights bf16 by rows, up to three matrices of one input side by side, or
// two whose outputs gate each other.
//
// The weights go from memory straight into the registers of the tensor cores: a lane takes 16 bytes of a row, and as the
// order of a sum's products is free, those are its elements of two products. A block takes 16 outputs or more; its warps
// take every so many elements of a row, and their sums are added in order.
//
// A row of inputs is a column of a product, and no column depends on another: by the same kernel, or one that takes a
// row's elements in the same order, it gives the same bits whatever rows are beside it.
#include "common.cuh"
#include "finish.cuh"
#include "mma.cuh"
#include "outputs.cuh"

// 16 bytes of weights, which nobody reads again.
__device__ __forceinline__ uint4 load_once(const bf16 *from) {
    uint4 v;
    asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(from));
    return v;
}

// Eight inputs from 16-byte pieces of f32, each times its weight, as bf16; and the sum of their squares.
__device__ __forceinline__ uint4 weighted(const float *x, const float *norm, float &squares) {
    float4 l = __ldg(reinterpret_cast<const float4 *>(x)), h = __ldg(reinterpret_cast<const float4 *>(x) + 1);
    float4 p = __ldg(reinterpret_cast<const float4 *>(norm)), q = __ldg(reinterpret_cast<const float4 *>(norm) + 1);
    squares = fmaf(l.x, l.x, fmaf(l.y, l.y, fmaf(l.z, l.z, fmaf(l.w, l.w, squares))));
    squares = fmaf(h.x, h.x, fmaf(h.y, h.y, fmaf(h.z, h.z, fmaf(h.w, h.w, squares))));
    return make_uint4(to_bf16x2(l.x * p.x, l.y * p.y), to_bf16x2(l.z * p.z, l.w * p.w), to_bf16x2(h.x * q.x, h.y * q.y),
                      to_bf16x2(h.z * q.z, h.w * q.w));
}

// Blocks: (tiles of outputs, groups of NT * 8 rows of inputs). MT: tiles of 16 outputs of a warp; of the WARPS warps,
// SIDE neighbours have other outputs and the same inputs. STEP: elements of a row that a warp takes at a time, in units
// of 32; AHEAD: the next ones are loaded while these are multiplied. The order of a sum depends on WARPS / SIDE and on
// STEP, and on nothing else.
//
// NORMED: inputs are f32, and normalised on the way: x / rms(x) * norm. The norm's weight comes before the product, the
// division by rms(x) behind it.
template <int NT, int MT, int WARPS, int SIDE, int STEP, bool AHEAD, bool NORMED>
__device__ __forceinline__ void skinny(void *out, const void *x, const Matrices &m, const float *norm, u32 columns, u32 rows,
                                       u32 how, float epsilon) {
    extern __shared__ __align__(16) float shared[];
    __shared__ float squares_of[NORMED ? WARPS / SIDE : 1][NT * 8];
    bool gated = how >= GATE_SILU;
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
    Tile tile = gated ? Tile{m.w[0], m.rows[0], 0, blockIdx.x * (8 * MT * SIDE)} : tile_of<16 * MT * SIDE>(m, blockIdx.x);
    u32 side = warp % SIDE * MT, first_row = blockIdx.y * (NT * 8);
    // The rows of this lane. Behind the last one it is read again, and its sums are dropped.
    const bf16 *w[MT][2];
#pragma unroll
    for (int i = 0; i < MT; i++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            // Gated, the upper half of a tile of 16 is the other matrix's.
            const bf16 *from = gated && half ? m.w[1] : tile.w;
            u32 row = tile.first + (gated ? (side + i) * 8 : (side + i) * 16 + half * 8) + g;
            w[i][half] = from + (u64)min(row, tile.outputs - 1) * columns + t * 8;
        }
    // The first weights are on their way before the inputs are there.
    let_next_start();
#pragma unroll
    for (int i = 0; i < MT; i++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            u32 first = warp / SIDE * STEP * 32;
            if (first < columns) prefetch_line(w[i][half] - t * 8 + first);
        }
    wait_for_earlier();
    u64 input[NT];
#pragma unroll
    for (int j = 0; j < NT; j++) input[j] = (u64)min(first_row + j * 8 + g, rows - 1) * columns + t * 8;

    float sum[MT][NT][4], squares[NT];
#pragma unroll
    for (int j = 0; j < NT; j++) {
        squares[j] = 0.0f;
#pragma unroll
        for (int i = 0; i < MT; i++)
#pragma unroll
            for (int e = 0; e < 4; e++) sum[i][j][e] = 0.0f;
    }
    uint4 a[AHEAD ? 2 : 1][MT][2][STEP], b[AHEAD ? 2 : 1][NT][STEP];
    auto load = [&](int to, u32 k) {
        const uint4 none = make_uint4(0, 0, 0, 0);
#pragma unroll
        for (int s = 0; s < STEP; s++) {
            bool there = k + s * 32 + t * 8 < columns;
#pragma unroll
            for (int i = 0; i < MT; i++)
#pragma unroll
                for (int half = 0; half < 2; half++)
                    a[to][i][half][s] = there ? load_once(w[i][half] + k + s * 32) : none;
        }
#pragma unroll
        for (int s = 0; s < STEP; s++) {
            u32 at = k + s * 32;
            bool there = at + t * 8 < columns;
#pragma unroll
            for (int j = 0; j < NT; j++)
                if (NORMED)
                    b[to][j][s] = there ? weighted(reinterpret_cast<const float *>(x) + input[j] + at,
                                                   norm + at + t * 8, squares[j])
                                        : none;
                else
                    b[to][j][s] = there ? __ldg(reinterpret_cast<const uint4 *>(
                                              reinterpret_cast<const bf16 *>(x) + input[j] + at))
                                        : none;
        }
    };
    auto products = [&](int from) {
#pragma unroll
        for (int s = 0; s < STEP; s++)
#pragma unroll
            for (int i = 0; i < MT; i++) {
                uint4 low = a[from][i][0][s], high = a[from][i][1][s];
                u32 first[4] = {low.x, high.x, low.y, high.y}, second[4] = {low.z, high.z, low.w, high.w};
#pragma unroll
                for (int j = 0; j < NT; j++) {
                    multiply(sum[i][j], first, b[from][j][s].x, b[from][j][s].y);
                    multiply(sum[i][j], second, b[from][j][s].z, b[from][j][s].w);
                }
            }
    };
    constexpr u32 DEEP = WARPS / SIDE;
    const u32 by = DEEP * STEP * 32;
    u32 k = warp / SIDE * STEP * 32;
    if (AHEAD) {
        load(0, k);
        for (; k < columns; k += 2 * by) {
            load(1, k + by);
            products(0);
            load(0, k + 2 * by);
            products(1);
        }
    } else {
        for (; k < columns; k += by) {
            load(0, k);
            products(0);
        }
    }
    if (NORMED)
#pragma unroll
        for (int j = 0; j < NT; j++) {
            squares[j] += __shfl_xor_sync(FULL, squares[j], 1);
            squares[j] += __shfl_xor_sync(FULL, squares[j], 2);
            if (warp % SIDE == 0 && t == 0) squares_of[warp / SIDE][j * 8 + g] = squares[j];
        }
    u32 all = gated ? m.rows[0] : m.rows[0] + m.rows[1] + m.rows[2];
    finish_block<NT, MT, WARPS, SIDE>(sum, shared, [&](int i, u32 output, u32 row, float total, float) {
        if (NORMED) {
            float mean = 0.0f;
#pragma unroll
            for (int part = 0; part < DEEP; part++) mean += squares_of[part][row];
            total *= rsqrtf(mean / (float)columns + epsilon);
        }
        row += first_row;
        if (gated) {
            // The lane 8 further on has the other matrix's. Rounded as through memory.
            float gate = to_f32(to_bf16(total)), up = to_f32(to_bf16(__shfl_down_sync(FULL, total, 8)));
            u32 column = tile.first + i * 8 + output;
            if (output < 8 && row < rows && column < all)
                reinterpret_cast<bf16 *>(out)[(u64)row * all + column] =
                    to_bf16((how == GATE_GELU ? gelu(gate) : silu(gate)) * up);
        } else {
            u32 column = tile.first + i * 16 + output;
            if (row < rows && column < tile.outputs) leave(out, (u64)row * all + tile.before + column, total, how);
        }
    });
}

// Blocks on a multiprocessor where that needs no local memory.
#if __CUDA_ARCH__ >= 1200
#define TWO 1
#else
#define TWO 2
#endif

#define ENTRY(NT, MT, WARPS, SIDE, STEP, AHEAD, BLOCKS)                                                                \
    extern "C" __global__ void __launch_bounds__(WARPS * 32, BLOCKS)                                                   \
        project_n##NT##_m##MT##_w##WARPS##_s##SIDE##_k##STEP(                                                          \
            void *out, const bf16 *x, const bf16 *w0, const bf16 *w1, const bf16 *w2, u32 rows0, u32 rows1, u32 rows2, \
            u32 columns, u32 rows, u32 how) {                                                                          \
        skinny<NT, MT, WARPS, SIDE, STEP, AHEAD, false>(out, x, Matrices{{w0, w1, w2}, {rows0, rows1, rows2}}, 0,      \
                                                        columns, rows, how, 0.0f);                                     \
    }

// The order of eight warps, 128 elements each, is that of all kernels for short rows, and of every kernel in the
// batch-invariant mode.
ENTRY(1, 1, 8, 1, 4, false, 3)
ENTRY(2, 1, 8, 1, 4, false, 2)
// Rows that are longer, for up to 8 rows of inputs: few outputs, or many.
ENTRY(1, 1, 16, 1, 4, false, 1)
ENTRY(1, 1, 16, 1, 2, false, 2)
ENTRY(1, 1, 8, 1, 2, false, 4)
// For up to 16: the more outputs share what is read of the inputs, the better, while there are blocks enough.
ENTRY(2, 2, 8, 1, 1, true, TWO)
ENTRY(2, 2, 8, 2, 1, true, 2)
// For more, of many outputs and short rows; of long rows.
ENTRY(2, 1, 8, 2, 2, false, 3)
ENTRY(4, 1, 8, 1, 2, false, 2)

extern "C" __global__ void __launch_bounds__(256, 2)
    project_normed_n1(void *out, const float *x, const bf16 *w0, const bf16 *w1, const bf16 *w2, const float *norm,
                      u32 rows0, u32 rows1, u32 rows2, u32 columns, u32 rows, u32 how, float epsilon) {
    skinny<1, 1, 8, 1, 4, false, true>(out, x, Matrices{{w0, w1, w2}, {rows0, rows1, rows2}}, norm, columns, rows, how,
                                       epsilon);
}

extern "C" __global__ void __launch_bounds__(256, 1)
    project_normed_n2(void *out, const float *x, const bf16 *w0, const bf16 *w1, const bf16 *w2, const float *norm,
                      u32 rows0, u32 rows1, u32 rows2, u32 columns, u32 rows, u32 how, float epsilon) {
    skinny<2, 1, 8, 1, 4, false, true>(out, x, Matrices{{w0, w1, w2}, {rows0, rows1, rows2}}, norm, columns, rows, how,
                                       epsilon);
}
