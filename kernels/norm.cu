// RMS norm, alone and behind the addition to the residual stream. One block a row; a row is read once and kept in
// registers: `VECTORS` pieces of eight elements a thread.
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
__device__ __forceinline__ void store8(float *to, const Eight &e) {
    reinterpret_cast<float4 *>(to)[0] = make_float4(e.x[0], e.x[1], e.x[2], e.x[3]);
    reinterpret_cast<float4 *>(to)[1] = make_float4(e.x[4], e.x[5], e.x[6], e.x[7]);
}
__device__ __forceinline__ void store8(bf16 *to, const Eight &e) { store16(to, pack(e)); }

// What a later reader of the stream sees of a sum.
__device__ __forceinline__ float as_stored(float x, const float *) { return x; }
__device__ __forceinline__ float as_stored(float x, const bf16 *) { return to_f32(to_bf16(x)); }

// residual += delta (with ADD); out = residual / rms(residual) * weight. `hidden` is a multiple of 8 and at most
// blockDim.x * 8 * VECTORS.
// The weight of a piece.
__device__ __forceinline__ Eight weight8(const bf16 *from) { return unpack(load16(from)); }
__device__ __forceinline__ Eight weight8(const float *from) { return unpack(load8(from)); }

template <typename R, bool ADD, typename W>
__device__ __forceinline__ void norm_row(bf16 *out, R *residual, const R *x, const bf16 *delta, const W *weight,
                                         u32 hidden, float epsilon) {
    let_next_start();
    wait_for_earlier();
    extern __shared__ float partial[];
    u64 row = (u64)blockIdx.x * hidden;
    u32 pieces = hidden / 8;
    // All loads of a row first, so that they are on their way together.
    Raw<R> raw[VECTORS];
    uint4 more[VECTORS];
#pragma unroll
    for (int v = 0; v < VECTORS; v++) {
        u32 piece = threadIdx.x + v * blockDim.x;
        if (piece < pieces) {
            raw[v] = load8(x + row + piece * 8);
            if (ADD) more[v] = load16(delta + row + piece * 8);
        }
    }
    Eight values[VECTORS];
    float squares = 0.0f;
#pragma unroll
    for (int v = 0; v < VECTORS; v++) {
        u32 piece = threadIdx.x + v * blockDim.x;
        if (piece < pieces) {
            values[v] = unpack(raw[v]);
            if (ADD) {
                Eight add = unpack(more[v]);
#pragma unroll
                for (int i = 0; i < 8; i++) values[v].x[i] = as_stored(values[v].x[i] + add.x[i], x);
                store8(residual + row + piece * 8, values[v]);
            }
#pragma unroll
            for (int i = 0; i < 8; i++) squares = fmaf(values[v].x[i], values[v].x[i], squares);
        }
    }
    float scale = rsqrtf(block_sum(squares, partial) / (float)hidden + epsilon);
#pragma unroll
    for (int v = 0; v < VECTORS; v++) {
        u32 piece = threadIdx.x + v * blockDim.x;
        if (piece < pieces) {
            Eight w = weight8(weight + piece * 8);
#pragma unroll
            for (int i = 0; i < 8; i++) values[v].x[i] *= scale * w.x[i];
            store16(out + row + piece * 8, pack(values[v]));
        }
    }
}

extern "C" __global__ void __launch_bounds__(1024)
    rms_norm_f32(bf16 *out, const float *x, const bf16 *weight, u32 hidden, float epsilon) {
    norm_row<float, false>(out, nullptr, x, nullptr, weight, hidden, epsilon);
}

extern "C" __global__ void __launch_bounds__(1024)
    rms_norm_bf16(bf16 *out, const bf16 *x, const bf16 *weight, u32 hidden, float epsilon) {
    norm_row<bf16, false>(out, nullptr, x, nullptr, weight, hidden, epsilon);
}

extern "C" __global__ void __launch_bounds__(1024)
    residual_rms_norm_f32(bf16 *out, float *residual, const bf16 *delta, const bf16 *weight, u32 hidden,
                          float epsilon) {
    norm_row<float, true>(out, residual, residual, delta, weight, hidden, epsilon);
}

extern "C" __global__ void __launch_bounds__(1024)
    residual_rms_norm_bf16(bf16 *out, bf16 *residual, const bf16 *delta, const bf16 *weight, u32 hidden,
                           float epsilon) {
    norm_row<bf16, true>(out, residual, residual, delta, weight, hidden, epsilon);
}

extern "C" __global__ void __launch_bounds__(1024)
    rms_norm_wide(bf16 *out, const float *x, const float *weight, u32 hidden, float epsilon) {
    norm_row<float, false>(out, nullptr, x, nullptr, weight, hidden, epsilon);
}

// residual += delta / rms(delta) * weight: a norm behind attention or feed-forward.
extern "C" __global__ void __launch_bounds__(1024)
    add_rms_norm_f32(float *residual, const float *delta, const float *weight, u32 hidden, float epsilon) {
    let_next_start();
    wait_for_earlier();
    extern __shared__ float partial[];
    u64 row = (u64)blockIdx.x * hidden;
    u32 pieces = hidden / 8;
    Eight values[VECTORS];
    float squares = 0.0f;
#pragma unroll
    for (int v = 0; v < VECTORS; v++) {
        u32 piece = threadIdx.x + v * blockDim.x;
        if (piece < pieces) {
            values[v] = unpack(load8(delta + row + piece * 8));
#pragma unroll
            for (int i = 0; i < 8; i++) squares = fmaf(values[v].x[i], values[v].x[i], squares);
        }
    }
    float scale = rsqrtf(block_sum(squares, partial) / (float)hidden + epsilon);
#pragma unroll
    for (int v = 0; v < VECTORS; v++) {
        u32 piece = threadIdx.x + v * blockDim.x;
        if (piece < pieces) {
            Eight w = weight8(weight + piece * 8), sum = unpack(load8(residual + row + piece * 8));
#pragma unroll
            for (int i = 0; i < 8; i++) sum.x[i] = fmaf(values[v].x[i] * scale, w.x[i], sum.x[i]);
            store8(residual + row + piece * 8, sum);
        }
    }
}
