// What projections share: up to three matrices of one input, what becomes of a sum, and gates.
#pragma once
#include "common.cuh"

// What becomes of a sum.
#define STORE_BF16 0
#define STORE_F32 1
#define ADD_F32 2
#define GATE_SILU 3 // of two matrices, bf16
#define GATE_GELU 4

struct Matrices {
    const bf16 *w[3];
    u32 rows[3]; // outputs of each; zero: there is none
};

__device__ __forceinline__ void leave(void *out, u64 at, float sum, u32 how) {
    if (how == STORE_BF16) reinterpret_cast<bf16 *>(out)[at] = to_bf16(sum);
    if (how == STORE_F32) reinterpret_cast<float *>(out)[at] = sum;
    if (how == ADD_F32) reinterpret_cast<float *>(out)[at] += sum;
}

// Two neighbours, the first at an even place.
__device__ __forceinline__ void leave_pair(void *out, u64 at, float low, float high, u32 how) {
    if (how == STORE_BF16) *reinterpret_cast<u32 *>(reinterpret_cast<bf16 *>(out) + at) = to_bf16x2(low, high);
    float2 *to = reinterpret_cast<float2 *>(reinterpret_cast<float *>(out) + at);
    if (how == STORE_F32) *to = make_float2(low, high);
    if (how == ADD_F32) *to = make_float2(to->x + low, to->y + high);
}

__device__ __forceinline__ float silu(float x) { return __fdividef(x, 1.0f + exp2_fast(-LOG2E * x)); }
// The tanh form.
__device__ __forceinline__ float gelu(float x) {
    return 0.5f * x * (1.0f + tanh_exp(0.7978845608028654f * (x + 0.044715f * x * x * x)));
}

// What two outputs that gate each other become, rounded as through memory.
__device__ __forceinline__ float gated_output(float gate, float up, u32 how) {
    gate = to_f32(to_bf16(gate)), up = to_f32(to_bf16(up));
    return (how == GATE_GELU ? gelu(gate) : silu(gate)) * up;
}
__device__ __forceinline__ void leave_gated(void *out, u64 at, float gate, float up, u32 how) {
    reinterpret_cast<bf16 *>(out)[at] = to_bf16(gated_output(gate, up, how));
}

// A tile of the outputs of up to three matrices: tiles do not cross from one to the next.
struct Tile {
    const bf16 *w;
    u32 outputs; // of its matrix
    u32 before;  // outputs of the matrices in front of it
    u32 first;   // its first output, in its matrix
};

template <int OUTPUTS> __device__ __forceinline__ Tile tile_of(const Matrices &m, u32 tile) {
    u32 tiles0 = (m.rows[0] + OUTPUTS - 1) / OUTPUTS, tiles1 = (m.rows[1] + OUTPUTS - 1) / OUTPUTS;
    if (tile < tiles0) return Tile{m.w[0], m.rows[0], 0, tile * OUTPUTS};
    tile -= tiles0;
    if (tile < tiles1) return Tile{m.w[1], m.rows[1], m.rows[0], tile * OUTPUTS};
    tile -= tiles1;
    return Tile{m.w[2], m.rows[2], m.rows[0] + m.rows[1], tile * OUTPUTS};
}
