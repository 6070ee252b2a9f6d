// Projections: out = weights x, weights bf16 by rows, up to three matrices of the same input side by side.
//
// Few rows of input (decode of few sequences): a warp an output, the input in shared memory, 16-byte loads straight from the
// weights. Many rows (prompts, large batches): tiles of 64 x 64 on the tensor cores, three stages of asynchronous copies.
#include "common.cuh"
#include "mma.cuh"

// What becomes of a sum.
#define STORE_BF16 0
#define STORE_F32 1
#define ADD_F32 2

struct Matrices {
    const bf16 *w[3];
    u32 rows[3]; // outputs of each; zero: there is none
};

__device__ __forceinline__ void leave(void *out, u64 at, float sum, u32 how) {
    if (how == STORE_BF16) reinterpret_cast<bf16 *>(out)[at] = to_bf16(sum);
    if (how == STORE_F32) reinterpret_cast<float *>(out)[at] = sum;
    if (how == ADD_F32) reinterpret_cast<float *>(out)[at] += sum;
}

// ---------------------------------------------------------------------------------------------------- few rows

// The inputs as bf16, `columns` each, one behind the other in shared memory. With a `norm` weight they are rows of f32 that are
// normalised on the way; otherwise rows of bf16.
template <int ROWS>
__device__ __forceinline__ void stage_inputs(u8 *shared, float *partial, const void *x, const float *norm, u32 rows,
                                             u32 columns, float epsilon) {
    u32 pieces = columns / 8;
    for (u32 row = 0; row < ROWS; row++) {
        u8 *to = shared + (u64)row * columns * 2;
        if (row >= rows) {
            for (u32 piece = threadIdx.x; piece < pieces; piece += blockDim.x)
                store16(to + piece * 16, make_uint4(0, 0, 0, 0));
        } else if (!norm) {
            const bf16 *from = reinterpret_cast<const bf16 *>(x) + (u64)row * columns;
            for (u32 piece = threadIdx.x; piece < pieces; piece += blockDim.x)
                store16(to + piece * 16, load16(from + piece * 8));
        } else {
            const float4 *from = reinterpret_cast<const float4 *>(reinterpret_cast<const float *>(x) + (u64)row * columns);
            float squares = 0.0f;
            for (u32 piece = threadIdx.x; piece < pieces * 2; piece += blockDim.x) {
                float4 v = from[piece];
                squares = fmaf(v.x, v.x, fmaf(v.y, v.y, fmaf(v.z, v.z, fmaf(v.w, v.w, squares))));
            }
            float scale = rsqrtf(block_sum(squares, partial) / (float)columns + epsilon);
            for (u32 piece = threadIdx.x; piece < pieces * 2; piece += blockDim.x) {
                float4 v = from[piece], w = reinterpret_cast<const float4 *>(norm)[piece];
                uint2 pair = make_uint2(to_bf16x2(v.x * scale * w.x, v.y * scale * w.y),
                                        to_bf16x2(v.z * scale * w.z, v.w * scale * w.w));
                *reinterpret_cast<uint2 *>(to + piece * 8) = pair;
            }
        }
    }
    __syncthreads();
}

// Products of rows of weights with every input: each lane its own part of the sums. All loads of four pieces of every row of
// weights are on their way before the first is used.
template <int ROWS, int WEIGHTS>
__device__ __forceinline__ void dot(float (&sum)[WEIGHTS][ROWS], const bf16 *const (&weights)[WEIGHTS], const u8 *inputs,
                                    u32 columns, u32 lane) {
    u32 pieces = columns / 8;
    for (u32 first = lane; first < pieces; first += 4 * 32) {
        uint4 raw[WEIGHTS][4];
#pragma unroll
        for (int u = 0; u < 4; u++)
#pragma unroll
            for (int w = 0; w < WEIGHTS; w++) {
                u32 piece = first + u * 32;
                raw[w][u] = piece < pieces ? __ldcs(reinterpret_cast<const uint4 *>(weights[w] + piece * 8))
                                           : make_uint4(0, 0, 0, 0);
            }
#pragma unroll
        for (int u = 0; u < 4; u++) {
            u32 piece = min(first + u * 32, pieces - 1); // behind the last one the weights are zero
#pragma unroll
            for (int row = 0; row < ROWS; row++) {
                Eight x = unpack(load16(inputs + ((u64)row * columns + piece * 8) * 2));
#pragma unroll
                for (int w = 0; w < WEIGHTS; w++) {
                    Eight e = unpack(raw[w][u]);
#pragma unroll
                    for (int i = 0; i < 8; i++) sum[w][row] = fmaf(e.x[i], x.x[i], sum[w][row]);
                }
            }
        }
    }
}

template <int ROWS>
__device__ __forceinline__ void few(void *out, const void *x, const Matrices &m, const float *norm, u32 columns, u32 rows,
                                    u32 how, float epsilon) {
    extern __shared__ __align__(16) u8 shared[];
    __shared__ float partial[32];
    stage_inputs<ROWS>(shared, partial, x, norm, rows, columns, epsilon);
    u32 lane = threadIdx.x % 32, warps = blockDim.x / 32;
    u32 all = m.rows[0] + m.rows[1] + m.rows[2];
    for (u32 at = blockIdx.x * warps + threadIdx.x / 32; at < all; at += gridDim.x * warps) {
        u32 row = at;
        const bf16 *w = m.w[0];
        if (row >= m.rows[0]) {
            row -= m.rows[0];
            w = m.w[1];
            if (row >= m.rows[1]) {
                row -= m.rows[1];
                w = m.w[2];
            }
        }
        float sum[1][ROWS] = {};
        const bf16 *const weights[1] = {w + (u64)row * columns};
        dot(sum, weights, shared, columns, lane);
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
            float total = warp_sum(sum[0][i]);
            if (lane == 0 && i < rows) leave(out, (u64)i * all + at, total, how);
        }
    }
}

__device__ __forceinline__ float silu(float x) { return __fdividef(x, 1.0f + exp2_fast(-LOG2E * x)); }
__device__ __forceinline__ float gelu(float x) {
    return 0.5f * x * (1.0f + tanh_exp(0.7978845608028654f * (x + 0.044715f * x * x * x)));
}

// out = act(gate x) * (up x)
template <int ROWS>
__device__ __forceinline__ void few_gated(bf16 *out, const void *x, const bf16 *gate, const bf16 *up, const float *norm,
                                          u32 outputs, u32 columns, u32 rows, u32 is_gelu, float epsilon) {
    extern __shared__ __align__(16) u8 shared[];
    __shared__ float partial[32];
    stage_inputs<ROWS>(shared, partial, x, norm, rows, columns, epsilon);
    u32 lane = threadIdx.x % 32, warps = blockDim.x / 32;
    for (u32 at = blockIdx.x * warps + threadIdx.x / 32; at < outputs; at += gridDim.x * warps) {
        float sum[2][ROWS] = {};
        const bf16 *const weights[2] = {gate + (u64)at * columns, up + (u64)at * columns};
        dot(sum, weights, shared, columns, lane);
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
            // As through memory in the tiled path: both are rounded before they meet.
            float g = to_f32(to_bf16(warp_sum(sum[0][i]))), u = to_f32(to_bf16(warp_sum(sum[1][i])));
            if (lane == 0 && i < rows) out[(u64)i * outputs + at] = to_bf16((is_gelu ? gelu(g) : silu(g)) * u);
        }
    }
}

// --------------------------------------------------------------------------------------------------- many rows

#define TILE 64          // rows and columns of the output, and elements of the input, that a block takes at a time
#define STAGES 3
#define PART (TILE * 128) // bytes of a tile of one operand

// Starts the copies of rows `first`.. of a matrix of `rows` x `columns`, elements `k`..: 128 bytes a row, swizzled.
__device__ __forceinline__ void copy_part(u32 to, const bf16 *from, u32 first, u32 rows, u32 k, u32 columns) {
#pragma unroll
    for (int i = 0; i < TILE * 8 / 128; i++) {
        u32 index = i * 128 + threadIdx.x, row = index / 8, chunk = index % 8;
        bool there = first + row < rows && k + chunk * 8 < columns;
        const bf16 *source = there ? from + (u64)(first + row) * columns + k + chunk * 8 : from;
        copy16_async(to + row * 128 + ((chunk ^ (row & 7)) << 4), source, there ? 16 : 0);
    }
}

// Blocks: (tiles of outputs, those of each matrix for themselves; tiles of inputs). Four warps, 32 x 32 each.
extern "C" __global__ void __launch_bounds__(128)
    project_many(void *out, const bf16 *x, const bf16 *w0, const bf16 *w1, const bf16 *w2, u32 rows0, u32 rows1, u32 rows2,
                 u32 columns, u32 rows, u32 how) {
    extern __shared__ __align__(128) u8 shared[];
    u32 base = shared_address(shared), lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    u32 tile = blockIdx.x, outputs = rows0, before = 0, all = rows0 + rows1 + rows2;
    const bf16 *w = w0;
    u32 tiles0 = (rows0 + TILE - 1) / TILE, tiles1 = (rows1 + TILE - 1) / TILE;
    if (tile >= tiles0 + tiles1) {
        tile -= tiles0 + tiles1;
        w = w2;
        outputs = rows2;
        before = rows0 + rows1;
    } else if (tile >= tiles0) {
        tile -= tiles0;
        w = w1;
        outputs = rows1;
        before = rows0;
    }
    u32 first_out = tile * TILE, first_in = blockIdx.y * TILE;
    u32 steps = (columns + TILE - 1) / TILE;
    u32 m = warp / 2 * 32, n = warp % 2 * 32;

    float sum[2][4][4];
#pragma unroll
    for (int i = 0; i < 2; i++)
#pragma unroll
        for (int j = 0; j < 4; j++)
#pragma unroll
            for (int e = 0; e < 4; e++) sum[i][j][e] = 0.0f;
#pragma unroll
    for (int s = 0; s < STAGES - 1; s++) {
        if (s < steps) {
            copy_part(base + s * 2 * PART, x, first_in, rows, s * TILE, columns);
            copy_part(base + s * 2 * PART + PART, w, first_out, outputs, s * TILE, columns);
        }
        commit_copies();
    }
    for (u32 step = 0; step < steps; step++) {
        wait_copies<STAGES - 2>();
        __syncthreads();
        u32 next = step + STAGES - 1;
        if (next < steps) {
            u32 to = base + next % STAGES * 2 * PART;
            copy_part(to, x, first_in, rows, next * TILE, columns);
            copy_part(to + PART, w, first_out, outputs, next * TILE, columns);
        }
        commit_copies();
        u32 left = base + step % STAGES * 2 * PART, right = left + PART;
#pragma unroll
        for (int k = 0; k < 2; k++) { // 32 elements each
            u32 a[2][2][4];
#pragma unroll
            for (int i = 0; i < 2; i++)
#pragma unroll
                for (int half = 0; half < 2; half++) {
                    u32 row = m + i * 16 + lane % 16, chunk = k * 4 + half * 2 + lane / 16;
                    load_matrices(a[i][half], left + row * 128 + ((chunk ^ (row & 7)) << 4));
                }
#pragma unroll
            for (int j = 0; j < 4; j++) {
                u32 b[4];
                u32 row = n + j * 8 + lane % 8, chunk = k * 4 + lane / 8;
                load_matrices(b, right + row * 128 + ((chunk ^ (row & 7)) << 4));
#pragma unroll
                for (int i = 0; i < 2; i++) {
                    multiply(sum[i][j], a[i][0], b[0], b[1]);
                    multiply(sum[i][j], a[i][1], b[2], b[3]);
                }
            }
        }
    }
    wait_copies<0>();
#pragma unroll
    for (int i = 0; i < 2; i++)
#pragma unroll
        for (int j = 0; j < 4; j++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                u32 row = first_in + m + i * 16 + lane / 4 + e / 2 * 8;
                u32 column = first_out + n + j * 8 + lane % 4 * 2 + e % 2;
                if (row < rows && column < outputs) leave(out, (u64)row * all + before + column, sum[i][j][e], how);
            }
}

#define ENTRY(ROWS)                                                                                                    \
    extern "C" __global__ void __launch_bounds__(128) project_few_r##ROWS(                                             \
        void *out, const void *x, const bf16 *w0, const bf16 *w1, const bf16 *w2, const float *norm, u32 rows0,        \
        u32 rows1, u32 rows2, u32 columns, u32 rows, u32 how, float epsilon) {                                         \
        few<ROWS>(out, x, Matrices{{w0, w1, w2}, {rows0, rows1, rows2}}, norm, columns, rows, how, epsilon);           \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(128) project_gated_r##ROWS(                                           \
        bf16 *out, const void *x, const bf16 *gate, const bf16 *up, const float *norm, u32 outputs, u32 columns,       \
        u32 rows, u32 is_gelu, float epsilon) {                                                                        \
        few_gated<ROWS>(out, x, gate, up, norm, outputs, columns, rows, is_gelu, epsilon);                             \
    }

ENTRY(1)
ENTRY(4)
