// RMS norm, alone and behind the addition to the residual stream. A row is read once and kept in registers: `VECTORS` pieces of
// eight elements a thread.
#include "common.cuh"

#define VECTORS 4

// A piece of eight elements of the residual stream, which is f32 or bf16, as it comes from memory.
template <typename R> struct Raw;
template <> struct Raw<float> {
    float4 a, b;
};
template <> struct Raw<bf16> {
    uint4 a;
};
__device__ __forceinline__ Raw<float> load8(const float *from) {
    return {reinterpret_cast<const float4 *>(from)[0], reinterpret_cast<const float4 *>(from)[1]};
}
__device__ __forceinline__ Raw<bf16> load8(const bf16 *from) { return {load16(from)}; }
__device__ __forceinline__ Eight unpack(const Raw<float> &raw) {
    return Eight{{raw.a.x, raw.a.y, raw.a.z, raw.a.w, raw.b.x, raw.b.y, raw.b.z, raw.b.w}};
}
__device__ __forceinline__ Eight unpack(const Raw<bf16> &raw) { return unpack(raw.a); }
__device__ __forceinline__ Raw<float> packed(const Eight &e, const float *) {
    return {make_float4(e.x[0], e.x[1], e.x[2], e.x[3]), make_float4(e.x[4], e.x[5], e.x[6], e.x[7])};
}
__device__ __forceinline__ Raw<bf16> packed(const Eight &e, const bf16 *) { return {pack(e)}; }
__device__ __forceinline__ void store8(float *to, const Raw<float> &raw) {
    reinterpret_cast<float4 *>(to)[0] = raw.a;
    reinterpret_cast<float4 *>(to)[1] = raw.b;
}
__device__ __forceinline__ void store8(bf16 *to, const Raw<bf16> &raw) { store16(to, raw.a); }

// What a later reader of the stream sees of a sum.
__device__ __forceinline__ float as_stored(float x, const float *) { return x; }
__device__ __forceinline__ float as_stored(float x, const bf16 *) { return to_f32(to_bf16(x)); }

// The weight of a piece.
__device__ __forceinline__ Eight weight8(const bf16 *from) { return unpack(load16(from)); }
__device__ __forceinline__ Eight weight8(const float *from) { return unpack(load8(from)); }

// Which row a thread works at, and how many threads do: a warp for rows that fit into its registers, several of them in a block, so that
// many rows are on their way; a block for longer ones. The sum of a warp alone is that of a block of one warp, to the bit.
template <bool OF_WARP> struct Row {
    __device__ __forceinline__ u32 index() const {
        return OF_WARP ? blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32 : blockIdx.x;
    }
    // A thread's piece of eight elements.
    __device__ __forceinline__ u32 piece(int v) const {
        return OF_WARP ? threadIdx.x % 32 + v * 32 : threadIdx.x + v * blockDim.x;
    }
    // One over the root of the mean square.
    __device__ __forceinline__ float scale(float squares, u32 hidden, float epsilon) const {
        extern __shared__ float partial[];
        return rsqrtf((OF_WARP ? warp_sum(squares) : block_sum(squares, partial)) / (float)hidden + epsilon);
    }
};
#define FITS_A_WARP (hidden <= 32 * 8 * VECTORS)

// residual += delta (with ADD); out = residual / rms(residual) * weight. `hidden` is a multiple of 8 and at most
// 8 * VECTORS times the threads of a row.
template <typename R, bool ADD, typename W, bool OF_WARP>
__device__ __forceinline__ void norm_one(bf16 *out, R *residual, const R *x, const bf16 *delta, const W *weight,
                                         u32 hidden, float epsilon, u32 rows) {
    const Row<OF_WARP> row;
    if (row.index() >= rows) return;
    const u64 first = (u64)row.index() * hidden;
    u32 pieces = hidden / 8;
    // All loads of a row first, so that they are on their way together.
    Raw<R> raw[VECTORS];
    uint4 more[VECTORS];
#pragma unroll
    for (int v = 0; v < VECTORS; v++) {
        u32 piece = row.piece(v);
        if (piece < pieces) {
            raw[v] = load8(x + first + piece * 8);
            if (ADD) more[v] = load16(delta + first + piece * 8);
        }
    }
    float squares = 0.0f;
#pragma unroll
    for (int v = 0; v < VECTORS; v++) {
        u32 piece = row.piece(v);
        if (piece < pieces) {
            Eight values = unpack(raw[v]);
            if (ADD) {
                Eight add = unpack(more[v]);
#pragma unroll
                for (int i = 0; i < 8; i++) values.x[i] = as_stored(values.x[i] + add.x[i], x);
                raw[v] = packed(values, x);
                store8(residual + first + piece * 8, raw[v]);
            }
#pragma unroll
            for (int i = 0; i < 8; i++) squares = fmaf(values.x[i], values.x[i], squares);
        }
    }
    float scale = row.scale(squares, hidden, epsilon);
#pragma unroll
    for (int v = 0; v < VECTORS; v++) {
        u32 piece = row.piece(v);
        if (piece < pieces) {
            Eight w = weight8(weight + piece * 8), values = unpack(raw[v]);
#pragma unroll
            for (int i = 0; i < 8; i++) values.x[i] *= scale * w.x[i];
            store16(out + first + piece * 8, pack(values));
        }
    }
}

template <typename R, bool ADD, typename W>
__device__ __forceinline__ void norm_row(bf16 *out, R *residual, const R *x, const bf16 *delta, const W *weight,
                                         u32 hidden, float epsilon, u32 rows) {
    let_next_start();
    wait_for_earlier();
    if (FITS_A_WARP) norm_one<R, ADD, W, true>(out, residual, x, delta, weight, hidden, epsilon, rows);
    else norm_one<R, ADD, W, false>(out, residual, x, delta, weight, hidden, epsilon, rows);
}

extern "C" __global__ void __launch_bounds__(1024)
    rms_norm_f32(bf16 *out, const float *x, const bf16 *weight, u32 hidden, float epsilon, u32 rows) {
    norm_row<float, false>(out, nullptr, x, nullptr, weight, hidden, epsilon, rows);
}

extern "C" __global__ void __launch_bounds__(1024)
    rms_norm_bf16(bf16 *out, const bf16 *x, const bf16 *weight, u32 hidden, float epsilon, u32 rows) {
    norm_row<bf16, false>(out, nullptr, x, nullptr, weight, hidden, epsilon, rows);
}

extern "C" __global__ void __launch_bounds__(1024)
    residual_rms_norm_f32(bf16 *out, float *residual, const bf16 *delta, const bf16 *weight, u32 hidden,
                          float epsilon, u32 rows) {
    norm_row<float, true>(out, residual, residual, delta, weight, hidden, epsilon, rows);
}

extern "C" __global__ void __launch_bounds__(1024)
    residual_rms_norm_bf16(bf16 *out, bf16 *residual, const bf16 *delta, const bf16 *weight, u32 hidden,
                           float epsilon, u32 rows) {
    norm_row<bf16, true>(out, residual, residual, delta, weight, hidden, epsilon, rows);
}

extern "C" __global__ void __launch_bounds__(1024)
    rms_norm_wide(bf16 *out, const float *x, const float *weight, u32 hidden, float epsilon, u32 rows) {
    norm_row<float, false>(out, nullptr, x, nullptr, weight, hidden, epsilon, rows);
}

// residual += delta / rms(delta) * weight: a norm behind attention or feed-forward.
template <bool OF_WARP>
__device__ __forceinline__ void add_norm(float *residual, const float *delta, const float *weight, u32 hidden, float epsilon,
                                         u32 rows) {
    const Row<OF_WARP> row;
    if (row.index() >= rows) return;
    const u64 first = (u64)row.index() * hidden;
    u32 pieces = hidden / 8;
    Eight values[VECTORS];
    float squares = 0.0f;
#pragma unroll
    for (int v = 0; v < VECTORS; v++) {
        u32 piece = row.piece(v);
        if (piece < pieces) {
            values[v] = unpack(load8(delta + first + piece * 8));
#pragma unroll
            for (int i = 0; i < 8; i++) squares = fmaf(values[v].x[i], values[v].x[i], squares);
        }
    }
    float scale = row.scale(squares, hidden, epsilon);
#pragma unroll
    for (int v = 0; v < VECTORS; v++) {
        u32 piece = row.piece(v);
        if (piece < pieces) {
            Eight w = weight8(weight + piece * 8), sum = unpack(load8(residual + first + piece * 8));
#pragma unroll
            for (int i = 0; i < 8; i++) sum.x[i] = fmaf(values[v].x[i] * scale, w.x[i], sum.x[i]);
            store8(residual + first + piece * 8, packed(sum, residual));
        }
    }
}

extern "C" __global__ void __launch_bounds__(1024)
    add_rms_norm_f32(float *residual, const float *delta, const float *weight, u32 hidden, float epsilon, u32 rows) {
    let_next_start();
    wait_for_earlier();
    if (FITS_A_WARP) add_norm<true>(residual, delta, weight, hidden, epsilon, rows);
    else add_norm<false>(residual, delta, weight, hidden, epsilon, rows);
}
