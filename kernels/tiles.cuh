// How weights of 4 to 8 bits lie: tiles of 16 outputs x 64 elements, in the order in which the tensor cores' lanes take them. `tiles.rs` packs them.
//
// Lane (g, t) = (lane / 4, lane % 4) has rows g and g + 8, and of every 32 elements, a block, eight: 8t and behind, of 6 bits 4t and
// behind and those 16 further on. A tile is its low bits, 4 of each weight (or all 8), then the fifth and sixth bits, then the scales.
#pragma once
#include "common.cuh"

#define Q4 4 // 4 bits, f16 scale and offset for every 32
#define Q5 5 // 5 bits around 16, f16 scale for every 32
#define Q6 6 // 6 bits around 32, f16 scale for every 16
#define Q8 8 // 8 bits, signed, f16 scale for every 32
#define F8 9 // e4m3, f16 scale for every 32, 2^8 times too large

// Where the upper bits begin, and the scales.
template <int F> __device__ constexpr u32 low_bytes() { return F >= Q8 ? 1024 : 512; }
template <int F> __device__ constexpr u32 scales_at() { return low_bytes<F>() + (F == Q5 ? 128 : F == Q6 ? 256 : 0); }
template <int F> __device__ constexpr u32 tile_bytes() { return scales_at<F>() + (F == Q4 || F == Q6 ? 128 : 64); }

// Where in its block the first four of a lane's eight elements are, and the others.
template <int F> __device__ __forceinline__ u32 first_of(u32 lane) { return lane % 4 * (F == Q6 ? 4 : 8); }
template <int F> __device__ constexpr u32 others_behind() { return F == Q6 ? 16 : 4; }

// What a lane has of a block: weights of row g and of row g + 8, their upper bits, scales.
template <int F> struct Part {
    u32 low[2][F >= Q8 ? 2 : 1], high;
    // Of 4 bits, scale and offset of either row; of 6, of the first 16 elements of either row and of the others; else, of either row.
    uint2 scale;
};

// `tile` gives 4, 8 or 16 bytes from a place on.
template <int F, typename Tile> __device__ __forceinline__ Part<F> load_part(const Tile &tile, u32 lane, u32 block) {
    Part<F> v = {};
    u32 g = lane / 4;
    if constexpr (F >= Q8) {
        uint4 low = tile.load16(block * 512 + lane * 16);
        v.low[0][0] = low.x, v.low[0][1] = low.y, v.low[1][0] = low.z, v.low[1][1] = low.w;
    } else {
        uint2 low = tile.load8(lane * 16 + block * 8);
        v.low[0][0] = low.x, v.low[1][0] = low.y;
    }
    if (F == Q5) v.high = tile.load4(low_bytes<F>() + lane * 4);
    if (F == Q6) v.high = tile.load4(low_bytes<F>() + lane * 8 + block * 4);
    if (F == Q4 || F == Q6)
        v.scale = tile.load8(scales_at<F>() + g * 16 + block * 8);
    else
        v.scale.x = tile.load4(scales_at<F>() + g * 8 + block * 4);
    return v;
}

// The halves of a word as f16.
__device__ __forceinline__ float low_f16(u32 pair) {
    float y;
    asm("{.reg .f16 l, h; mov.b32 {l, h}, %1; cvt.f32.f16 %0, l;}" : "=f"(y) : "r"(pair));
    return y;
}
__device__ __forceinline__ float high_f16(u32 pair) {
    float y;
    asm("{.reg .f16 l, h; mov.b32 {l, h}, %1; cvt.f32.f16 %0, h;}" : "=f"(y) : "r"(pair));
    return y;
}

// x - y and x * y, both of two bf16.
__device__ __forceinline__ u32 minus(u32 x, u32 y) {
    u32 d;
    asm("sub.rn.bf16x2 %0, %1, %2;" : "=r"(d) : "r"(x), "r"(y));
    return d;
}
__device__ __forceinline__ u32 times(u32 x, u32 y) {
    u32 d;
    asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(d) : "r"(x), "r"(y));
    return d;
}

// What `raised_pair` leaves too much in a weight, twice as bf16: weights of less than 8 bits are in the mantissa of 128, raised by what
// makes them no negative numbers.
template <int F> __device__ constexpr u32 raised_by() { return F == Q4 ? 0x43004300 : F == Q5 ? 0x43104310 : F == Q6 ? 0x43204320 : 0; }

// Two weights as bf16, exactly, but for `raised_by`: pair `i` of eight of row g + 8 * `half`. 0x4300 is 128, and seven bits behind it are
// added to it. `one`: 0x4300 twice.
template <int F> __device__ __forceinline__ u32 raised_pair(const Part<F> &v, int block, int half, int i, u32 one) {
    if (F >= Q8) {
        const int k = F >= Q8 ? i / 2 : 0;
        u32 w = (half ? v.low[1][k] : v.low[0][k]) >> (i % 2 * 8);
        if (F == F8) {
            // The exponent counts from 7 there, from 127 here, and 8 of that are the scale's. Exact, also below normal numbers.
            u32 at = w << 8;
            return times((at >> 4 & 0x07f007f0) | (at & 0x80008000), 0x77807780);
        }
        // The sign is worth -128: what is taken away is 128, and 256 with it.
        return minus((w & 0x007f007f) | one, (w & 0x00800080) | one);
    }
    u32 w = ((half ? v.low[1][0] : v.low[0][0]) >> (4 * i)) & 0x000f000f | one;
    if (F == Q5) {
        int p = (block * 2 + half) * 4 + i;
        w |= (p < 4 ? v.high << (4 - p) : v.high >> (p - 4)) & 0x00100010;
    }
    if (F == Q6) {
        int p = half * 4 + i;
        w |= (p < 2 ? v.high << (4 - 2 * p) : v.high >> (2 * p - 4)) & 0x00300030;
    }
    return w;
}
