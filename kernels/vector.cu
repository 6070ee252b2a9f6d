// Element-wise arithmetic on f32: the first example, from span to graph.
#include "common.cuh"

// Whether all of these start on multiples of 16 bytes: spans may begin at any element.
__device__ __forceinline__ bool aligned(const void *a, const void *b, const void *c) {
    return (((u64)a | (u64)b | (u64)c) & 15) == 0;
}

// out[i] = factor * x[i]
extern "C" __global__ void __launch_bounds__(256) scale_f32(float *out, const float *x, float factor, u64 n) {
    u64 step = (u64)gridDim.x * blockDim.x, first = (u64)blockIdx.x * blockDim.x + threadIdx.x, done = 0;
    if (aligned(out, x, x)) {
        done = n / 4 * 4;
        for (u64 i = first; i < n / 4; i += step) {
            float4 v = reinterpret_cast<const float4 *>(x)[i];
            reinterpret_cast<float4 *>(out)[i] = make_float4(factor * v.x, factor * v.y, factor * v.z, factor * v.w);
        }
    }
    for (u64 i = done + first; i < n; i += step) out[i] = factor * x[i];
}

// out[i] = a[i] + b[i]
extern "C" __global__ void __launch_bounds__(256) add_f32(float *out, const float *a, const float *b, u64 n) {
    u64 step = (u64)gridDim.x * blockDim.x, first = (u64)blockIdx.x * blockDim.x + threadIdx.x, done = 0;
    if (aligned(out, a, b)) {
        done = n / 4 * 4;
        for (u64 i = first; i < n / 4; i += step) {
            float4 v = reinterpret_cast<const float4 *>(a)[i], w = reinterpret_cast<const float4 *>(b)[i];
            reinterpret_cast<float4 *>(out)[i] = make_float4(v.x + w.x, v.y + w.y, v.z + w.z, v.w + w.w);
        }
    }
    for (u64 i = done + first; i < n; i += step) out[i] = a[i] + b[i];
}
