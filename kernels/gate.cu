// Gated activations: out = act(gate) * up. Each row of the input holds the gate and, behind it, the value, as one
// projection writes them.
#include "common.cuh"
#include "outputs.cuh"

// `columns` is a multiple of 8; `pieces` counts eights of the output.
template <bool GELU>
__device__ __forceinline__ void gate_rows(bf16 *out, const bf16 *gate_up, u32 columns, u64 pieces) {
    u32 row_pieces = columns / 8;
    u64 step = (u64)gridDim.x * blockDim.x;
    for (u64 piece = (u64)blockIdx.x * blockDim.x + threadIdx.x; piece < pieces; piece += step) {
        u64 row = piece / row_pieces;
        const bf16 *from = gate_up + (row * row_pieces + piece) * 8;
        Eight gate = unpack(load16(from)), up = unpack(load16(from + columns));
#pragma unroll
        for (int i = 0; i < 8; i++) gate.x[i] = (GELU ? gelu(gate.x[i]) : silu(gate.x[i])) * up.x[i];
        store16(out + piece * 8, pack(gate));
    }
}

extern "C" __global__ void __launch_bounds__(256) silu_gate_bf16(bf16 *out, const bf16 *gate_up, u32 columns, u64 pieces) {
    gate_rows<false>(out, gate_up, columns, pieces);
}

extern "C" __global__ void __launch_bounds__(256) gelu_gate_bf16(bf16 *out, const bf16 *gate_up, u32 columns, u64 pieces) {
    gate_rows<true>(out, gate_up, columns, pieces);
}
