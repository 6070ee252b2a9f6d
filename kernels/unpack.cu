// Tiles of 4 to 8 bits (tiles.cuh says how they lie) as rows again: all of a matrix in bf16, for products of many rows, and rows of an
// embedding in f32.
#include "common.cuh"
#include "tiles.cuh"

// A tile in device memory.
struct GlobalTile {
    const u8 *from;
    __device__ __forceinline__ u32 load4(u32 at) const { return __ldg(reinterpret_cast<const u32 *>(from + at)); }
    __device__ __forceinline__ uint2 load8(u32 at) const { return __ldg(reinterpret_cast<const uint2 *>(from + at)); }
    __device__ __forceinline__ uint4 load16(u32 at) const { return __ldg(reinterpret_cast<const uint4 *>(from + at)); }
};

// The eight weights of row g + 8 * `half` and block `block` that this is of.
template <int F> __device__ __forceinline__ Eight eight_of(const Part<F> &part, u32 block, u32 half) {
    Eight e;
    u32 of = half ? part.scale.y : part.scale.x;
    float offset = F == Q4 ? high_f16(of) : 0.0f, scale[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        // Of 6 bits, for either half of the block.
        u32 both = F == Q6 && i ? part.scale.y : part.scale.x;
        scale[i] = F == Q4 ? low_f16(of) : half ? high_f16(both) : low_f16(both);
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
        u32 pair = raised_pair<F>(part, block, half, i, 0x43004300);
        const float raised = low_f32(raised_by<F>());
        e.x[2 * i] = scale[i / 2] * (low_f32(pair) - raised) + offset;
        e.x[2 * i + 1] = scale[i / 2] * (high_f32(pair) - raised) + offset;
    }
    return e;
}

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
        for (u32 block = 0; block < 2; block++) {
            const Part<F> part = load_part<F>(GlobalTile{tile}, lane, block);
#pragma unroll
            for (u32 half = 0; half < 2; half++) {
                u32 r = row + half * 8, c = column + block * 32;
                if (r >= rows || c >= columns) continue;
                Eight e = eight_of<F>(part, block, half);
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
            e = eight_of<F>(load_part<F>(GlobalTile{tile}, lane, block % 2), block % 2, token % 16 / 8);
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
