// What every kernel here shares: integer types, bf16 as bits, 16-byte loads, and reductions.
//
// NVRTC has no stdint and no bf16 type, and these sources need no CUDA headers: a bf16 is the upper half of an f32.
#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

// A bf16 by its bits.
struct bf16 {
    u16 bits;
};

// An f16 by its bits.
struct f16 {
    u16 bits;
};

// An e4m3 by its bits.
struct f8 {
    u8 bits;
};

// Programmatic launch. A kernel that is launched early may run while the one in front of it still does: before this, it reads only what
// no kernel writes (weights; other things only as a hint of what to fetch), and writes nothing. Every thread comes by here, so that a kernel that is done says that all in front
// of it are. Launched as usual, it goes straight through.
__device__ __forceinline__ void wait_for_earlier() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
// From here on, the next kernel of the stream may start if it is launched early.
__device__ __forceinline__ void let_next_start() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }

// Counts this block at `counter`, which wraps behind `most`: what it and its barriers' threads wrote is visible to whoever counts later, and what
// was written before earlier counts to this thread. Gives the count before.
__device__ __forceinline__ u32 arrive(u32 *counter, u32 most) {
    u32 before;
    asm volatile("atom.acq_rel.gpu.global.inc.u32 %0, [%1], %2;" : "=r"(before) : "l"(counter), "r"(most) : "memory");
    return before;
}

// A line of 128 bytes, on its way into the second-level cache.
__device__ __forceinline__ void prefetch_line(const void *line) { asm volatile("prefetch.global.L2 [%0];" ::"l"(line)); }

// No block: a position in it is skipped when read and dropped when written.
#define HOLE 0xffffffffu
#define FULL 0xffffffffu

// Whose ids a page table holds is written behind them, low half first: zero before its first row is set, and then every id
// is a hole. A graph may have been recorded before that, so kernels look when they run.
__device__ __forceinline__ bool holds_ids_of(const u32 *ids, u64 count, u64 pool) {
    return ids[count] == (u32)pool && ids[count + 1] == (u32)(pool >> 32);
}
// -inf, without a header.
#define NEGATIVE_INFINITY __int_as_float(0xff800000)

__device__ __forceinline__ float to_f32(bf16 x) { return __uint_as_float((u32)x.bits << 16); }

// Round to nearest even, NaN stays NaN: the conversion instruction does both.
__device__ __forceinline__ bf16 to_bf16(float x) {
    bf16 y;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
    return y;
}

// Two in one instruction: `low` ends up in the low half.
__device__ __forceinline__ u32 to_bf16x2(float low, float high) {
    u32 y;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low));
    return y;
}

__device__ __forceinline__ u32 to_f16x2(float low, float high) {
    u32 y;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low));
    return y;
}

// One as f16 by its bits, and back.
__device__ __forceinline__ u16 to_f16(float x) {
    u16 y;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y) : "f"(x));
    return y;
}
__device__ __forceinline__ float f16_to_f32(u16 x) {
    float y;
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x));
    return y;
}

// Two as a cache holds them: by the element of what they are written to.
__device__ __forceinline__ u32 to_pair(float low, float high, const bf16 *) { return to_bf16x2(low, high); }
__device__ __forceinline__ u32 to_pair(float low, float high, const f16 *) { return to_f16x2(low, high); }

__device__ __forceinline__ float low_f32(u32 pair) { return __uint_as_float(pair << 16); }
__device__ __forceinline__ float high_f32(u32 pair) { return __uint_as_float(pair & 0xffff0000u); }

// Eight bf16 at a time, from and to addresses that are multiples of 16.
struct Eight {
    float x[8];
};

__device__ __forceinline__ Eight unpack(uint4 raw) {
    Eight e;
    u32 word[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        e.x[2 * i] = low_f32(word[i]);
        e.x[2 * i + 1] = high_f32(word[i]);
    }
    return e;
}

__device__ __forceinline__ uint4 pack(const Eight &e) {
    return make_uint4(to_bf16x2(e.x[0], e.x[1]), to_bf16x2(e.x[2], e.x[3]), to_bf16x2(e.x[4], e.x[5]),
                      to_bf16x2(e.x[6], e.x[7]));
}

__device__ __forceinline__ uint4 load16(const void *from) { return *reinterpret_cast<const uint4 *>(from); }
__device__ __forceinline__ void store16(void *to, uint4 value) { *reinterpret_cast<uint4 *>(to) = value; }

__device__ __forceinline__ float warp_sum(float x) {
#pragma unroll
    for (int offset = 16; offset > 0; offset >>= 1) x += __shfl_xor_sync(FULL, x, offset);
    return x;
}

__device__ __forceinline__ float warp_max(float x) {
#pragma unroll
    for (int offset = 16; offset > 0; offset >>= 1) x = fmaxf(x, __shfl_xor_sync(FULL, x, offset));
    return x;
}

// The sum over a block of whole warps, in every thread, in an order that depends on the block's size only. `partial` is
// shared memory for 32 values; it is free again behind the second barrier.
__device__ __forceinline__ float block_sum(float x, float *partial) {
    x = warp_sum(x);
    int warps = blockDim.x / 32;
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = x;
    __syncthreads();
    float y = (int)(threadIdx.x % 32) < warps ? partial[threadIdx.x % 32] : 0.0f;
    y = warp_sum(y);
    __syncthreads();
    return y;
}

// 2^x and tanh on the special function units: relative errors about 2^-22 and 2^-11.
__device__ __forceinline__ float exp2_fast(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

__device__ __forceinline__ float log2_fast(float x) {
    float y;
    asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// Four e4m3, the first in the low byte, as two pairs of f16: exact.
__device__ __forceinline__ void f8x4_to_f16(u32 &low, u32 &high, u32 four) {
    asm("{\n.reg .b16 l, h;\nmov.b32 {l, h}, %2;\ncvt.rn.f16x2.e4m3x2 %0, l;\ncvt.rn.f16x2.e4m3x2 %1, h;\n}"
        : "=r"(low), "=r"(high)
        : "r"(four));
}

// Two f32 as e4m3, `low` in the low byte; what is too large becomes the largest.
__device__ __forceinline__ u16 to_f8x2(float low, float high) {
    u16 y;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(y) : "f"(high), "f"(low));
    return y;
}

#define LOG2E 1.4426950408889634f

// tanh by way of 2^x: absolute error a few units of 2^-24, where the instruction for tanh has 2^-11.
__device__ __forceinline__ float tanh_exp(float x) {
    float a = fabsf(x);
    float e = exp2_fast(-2.0f * LOG2E * a);
    float y = __fdividef(1.0f - e, 1.0f + e);
    return copysignf(y, x);
}
