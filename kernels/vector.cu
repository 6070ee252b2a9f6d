// Element-wise arithmetic on f32: the first example, from span to graph.
#include "common.cuh"

// out[i] = factor * x[i]
extern "C" __global__ void __launch_bounds__(256) scale_f32(float *out, const float *x, float factor, u64 n) {
    u64 step = (u64)gridDim.x * blockDim.x;
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) out[i] = factor * x[i];
}

// out[i] = a[i] + b[i]
extern "C" __global__ void __launch_bounds__(256) add_f32(float *out, const float *a, const float *b, u64 n) {
    u64 step = (u64)gridDim.x * blockDim.x;
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) out[i] = a[i] + b[i];
}
