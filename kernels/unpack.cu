// Tiles of 4 to 8 bits (`quant.cu` says how they lie) as rows again: all of a matrix in bf16, for products of many rows, and rows of an
// embedding in f32.
#include "common.cuh"

#define Q4 4
#define Q5 5
#define Q6 6
#define Q8 8

template <int F> __device__ constexpr u32 tile_bytes() {
    return F == Q4 ? 512 + 128 : F == Q5 ? 512 + 128 + 64 : F == Q6 ? 512 + 256 + 128 : 1024 + 64;
}

__device__ __forceinline__ u32 word_at(const u8 *from) { return __ldg(reinterpret_cast<const u32 *>(from)); }

__device__ __forceinline__ float f16_at(const u8 *from) {
    u16 bits = __ldg(reinterpret_cast<const u16 *>(from));
    float y;
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(bits));
    return y;
}

// The eight weights of row g + 8 * `half` and block `block` of 32 that lane 4 * g + t has: pair p is elements 2p and 2p + 1.
template <int F> __device__ __forceinline__ Eight eight_of(const u8 *tile, u32 lane, u32 block, u32 half) {
    Eight e;
    u32 g = lane / 4, at = block * 2 + half;
    if (F == Q8) {
        float scale = f16_at(tile + 1024 + g * 8 + at * 2);
#pragma unroll
        for (int pair = 0; pair < 4; pair++) {
            u32 w = word_at(tile + block * 512 + lane * 16 + half * 8 + pair / 2 * 4) >> (pair % 2 * 8);
            e.x[2 * pair] = scale * (float)(signed char)(w & 255);
            e.x[2 * pair + 1] = scale * (float)(signed char)(w >> 16 & 255);
        }
        return e;
    }
    u32 low = word_at(tile + lane * 16 + at * 4), high = 0;
    if (F == Q5) high = word_at(tile + 512 + lane * 4) >> (at * 4);
    if (F == Q6) high = word_at(tile + 512 + lane * 8 + block * 4) >> (half * 8);
    float scale[2], offset = 0.0f;
    if (F == Q4) {
        scale[0] = scale[1] = f16_at(tile + 512 + g * 16 + at * 4);
        offset = f16_at(tile + 512 + g * 16 + at * 4 + 2);
    } else if (F == Q5) {
        scale[0] = scale[1] = f16_at(tile + 640 + g * 8 + at * 2);
    } else {
        // The first four are of the first 16 elements, the others of the second.
        scale[0] = f16_at(tile + 768 + g * 16 + block * 8 + half * 2);
        scale[1] = f16_at(tile + 768 + g * 16 + block * 8 + 4 + half * 2);
    }
#pragma unroll
    for (int i = 0; i < 8; i++) {
        u32 pair = i / 2, odd = i % 2;
        int bits = (int)(low >> (pair * 4 + odd * 16) & 15);
        if (F == Q5) bits += (int)((high >> (pair + odd * 16) & 1) << 4) - 16;
        if (F == Q6) bits += (int)((high >> (pair * 2 + odd * 16) & 3) << 4) - 32;
        e.x[i] = scale[i / 4] * (float)bits + offset;
    }
    return e;
}

// Where in its block of 32 the first four of a lane's eight are, and the others.
template <int F> __device__ __forceinline__ u32 first_of(u32 lane) { return lane % 4 * (F == Q6 ? 4 : 8); }
template <int F> __device__ __forceinline__ u32 others_behind() { return F == Q6 ? 16 : 4; }

// Up to three matrices, one behind the other. A warp has a tile at a time.
template <int F>
__device__ __forceinline__ void unpack_tiles(bf16 *out, const u8 *w0, const u8 *w1, const u8 *w2, u32 rows0, u32 rows1,
                                             u32 rows2, u32 columns, u64 count) {
    u32 lane = threadIdx.x % 32, wide = (columns + 63) / 64;
    u64 tiles0 = (u64)((rows0 + 15) / 16) * wide, tiles1 = (u64)((rows1 + 15) / 16) * wide;
    u64 step = (u64)gridDim.x * (blockDim.x / 32);
    for (u64 at = (u64)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32; at < count; at += step) {
        const u8 *tiles = w0;
        u64 of = at, before = 0;
        u32 rows = rows0;
        if (at >= tiles0 + tiles1) {
            tiles = w2, of = at - tiles0 - tiles1, before = (u64)rows0 + rows1, rows = rows2;
        } else if (at >= tiles0) {
            tiles = w1, of = at - tiles0, before = rows0, rows = rows1;
        }
        const u8 *tile = tiles + of * tile_bytes<F>();
        u32 row = (u32)(of / wide) * 16 + lane / 4, column = (u32)(of % wide) * 64 + first_of<F>(lane);
#pragma unroll
        for (u32 half = 0; half < 2; half++)
#pragma unroll
            for (u32 block = 0; block < 2; block++) {
                u32 r = row + half * 8, c = column + block * 32;
                if (r >= rows || c >= columns) continue;
                Eight e = eight_of<F>(tile, lane, block, half);
                uint4 y = make_uint4(to_bf16x2(e.x[0], e.x[1]), to_bf16x2(e.x[2], e.x[3]), to_bf16x2(e.x[4], e.x[5]),
                                     to_bf16x2(e.x[6], e.x[7]));
                bf16 *to = out + (before + r) * columns + c;
                if (F == Q6) {
                    *reinterpret_cast<uint2 *>(to) = make_uint2(y.x, y.y);
                    *reinterpret_cast<uint2 *>(to + others_behind<F>()) = make_uint2(y.z, y.w);
                } else {
                    *reinterpret_cast<uint4 *>(to) = y;
                }
            }
    }
}

// out[i] = factor * row tokens[i] of the matrix; a token that is not there gets zeros. `pieces` counts eights.
template <int F>
__device__ __forceinline__ void embed_tiles(float *out, const u8 *tiles, const u32 *tokens, u32 vocabulary, u32 columns,
                                            float factor, u64 pieces) {
    u32 row_pieces = columns / 8, wide = (columns + 63) / 64;
    u64 step = (u64)gridDim.x * blockDim.x;
    for (u64 piece = (u64)blockIdx.x * blockDim.x + threadIdx.x; piece < pieces; piece += step) {
        u32 token = tokens[piece / row_pieces], eight = (u32)(piece % row_pieces), block = eight / 4;
        u32 lane = token % 8 * 4 + eight % 4;
        Eight e = {};
        if (token < vocabulary) {
            const u8 *tile = tiles + ((u64)(token / 16) * wide + block / 2) * tile_bytes<F>();
            e = eight_of<F>(tile, lane, block % 2, token % 16 / 8);
        }
        float *to = out + piece / row_pieces * columns + block * 32 + first_of<F>(lane);
        *reinterpret_cast<float4 *>(to) =
            make_float4(factor * e.x[0], factor * e.x[1], factor * e.x[2], factor * e.x[3]);
        *reinterpret_cast<float4 *>(to + others_behind<F>()) =
            make_float4(factor * e.x[4], factor * e.x[5], factor * e.x[6], factor * e.x[7]);
    }
}

#define ENTRY(F)                                                                                                       \
    extern "C" __global__ void __launch_bounds__(256)                                                                  \
        unpack_q##F(bf16 *out, const u8 *w0, const u8 *w1, const u8 *w2, u32 rows0, u32 rows1, u32 rows2, u32 columns, \
                    u64 count) {                                                                                       \
        let_next_start();                                                                                              \
        wait_for_earlier();                                                                                            \
        unpack_tiles<F>(out, w0, w1, w2, rows0, rows1, rows2, columns, count);                                         \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(256) embed_q##F(                                                      \
        float *out, const u8 *tiles, const u32 *tokens, u32 vocabulary, u32 columns, float factor, u64 pieces) {       \
        let_next_start();                                                                                              \
        wait_for_earlier();                                                                                            \
        embed_tiles<F>(out, tiles, tokens, vocabulary, columns, factor, pieces);                                       \
    }

ENTRY(4)
ENTRY(5)
ENTRY(6)
ENTRY(8)
