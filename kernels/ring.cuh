// What the kernels share whose warps take weights of few bits through rings of their own: quant_ring.cu, quant_ring4.cu.
#pragma once
#include "common.cuh"
#include "finish.cuh"
#include "mma.cuh"
#include "outputs.cuh"
#include "tiles.cuh"

__device__ __forceinline__ uint2 load_shared8(u32 from) {
    uint2 y;
    asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(y.x), "=r"(y.y) : "r"(from) : "memory");
    return y;
}
// A tile in shared memory.
struct SharedTile {
    u32 from;
    __device__ __forceinline__ u32 load4(u32 at) const { return load_shared_word(from + at); }
    __device__ __forceinline__ uint2 load8(u32 at) const { return load_shared8(from + at); }
    __device__ __forceinline__ uint4 load16(u32 at) const { return load_shared16(from + at); }
};

// sum = start + left * right: as `multiply`, of bf16, whose sum stays as it is.
__device__ __forceinline__ void multiply_from(float (&sum)[4], const float (&start)[4], const u32 (&left)[4], u32 right0, u32 right1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, "
        "%13};"
        : "=f"(sum[0]), "=f"(sum[1]), "=f"(sum[2]), "=f"(sum[3])
        : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right0), "r"(right1), "f"(start[0]), "f"(start[1]),
          "f"(start[2]), "f"(start[3]));
}

// What a product adds to its sums, with a scale for row g and one for row g + 8.
__device__ __forceinline__ void scaled_add(float (&sum)[4], float d0, float d1, float p0, float p1, float p2, float p3) {
    sum[0] = fmaf(d0, p0, sum[0]), sum[1] = fmaf(d0, p1, sum[1]);
    sum[2] = fmaf(d1, p2, sum[2]), sum[3] = fmaf(d1, p3, sum[3]);
}

// Both blocks of what a lane has of a tile: in as few loads as there can be.
template <int F> __device__ __forceinline__ void load_parts(Part<F> (&v)[2], const SharedTile &tile, u32 lane) {
    u32 g = lane / 4;
    if constexpr (F >= Q8) {
        v[0] = load_part<F>(tile, lane, 0), v[1] = load_part<F>(tile, lane, 1);
    } else {
        uint4 low = tile.load16(lane * 16);
        v[0].low[0][0] = low.x, v[0].low[1][0] = low.y, v[1].low[0][0] = low.z, v[1].low[1][0] = low.w;
        if (F == Q5) v[0].high = v[1].high = tile.load4(low_bytes<F>() + lane * 4);
        if (F == Q6) {
            uint2 high = tile.load8(low_bytes<F>() + lane * 8);
            v[0].high = high.x, v[1].high = high.y;
        }
        if (F == Q5) {
            uint2 scale = tile.load8(scales_at<F>() + g * 8);
            v[0].scale.x = scale.x, v[1].scale.x = scale.y;
        } else {
            uint4 scale = tile.load16(scales_at<F>() + g * 16);
            v[0].scale = make_uint2(scale.x, scale.y), v[1].scale = make_uint2(scale.z, scale.w);
        }
    }
}

// Where the sums of a block go: rows of `all` outputs, of which `before` are those of matrices in front of this one, whose `outputs` begin at
// `first`; and inputs from `first_row` on.
struct Left {
    void *out;
    u32 all, before, first, first_row, outputs, rows, how;

    // The total of tile `i`, gated of either matrix in turns, with the one beside it.
    __device__ __forceinline__ void total(int i, u32 output, u32 row, float total, float other) const {
        bool gated = how >= GATE_SILU;
        row += first_row;
        u32 column = first + (gated ? i / 2 : i) * 16 + output;
        if (row >= rows || column >= outputs) return;
        if (!gated) {
            leave(out, (u64)row * all + before + column, total, how);
        } else if (i % 2 == 0) {
            // As `gated_output`, whose call becomes other machine code for sm_120.
            float gate = to_f32(to_bf16(total)), up = to_f32(to_bf16(other));
            reinterpret_cast<bf16 *>(out)[(u64)row * all + column] = to_bf16((how == GATE_GELU ? gelu(gate) : silu(gate)) * up);
        }
    }
};

template <int NT, int MT, int WARPS, int SIDE>
__device__ __forceinline__ void leave_all(const float (&sum)[MT][NT][4], float *shared, const Left &at) {
    finish_block<NT, MT, WARPS, SIDE, true>(
        sum, shared, [&](int i, u32 output, u32 row, float total, float other) { at.total(i, output, row, total, other); });
}

// So that the compiler keeps it in a register, in place of making it again in every turn.
__device__ __forceinline__ void keep(u32 &x) { asm volatile("" : "+r"(x)); }
template <typename T> __device__ __forceinline__ void keep(const T *&x) { asm volatile("" : "+l"(x)); }

// 16 bytes by a plain load of device memory, which the compiler doesn't know of a pointer that is kept.
__device__ __forceinline__ uint4 load_global16(const void *from) {
    uint4 y;
    asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(y.x), "=r"(y.y), "=r"(y.z), "=r"(y.w) : "l"(from) : "memory");
    return y;
}
