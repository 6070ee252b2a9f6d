// One token's way to its attention in one kernel: the norm of the residual stream, the projection to queries, keys and values, their
// rotation, and the write of keys and values into their page. With a kernel for each it is the launches that take the time.
//
// A warp makes two elements that rotate together: 2 i and 2 i + 1, or i and i + pairs. As in the kernels for many tokens, projected
// elements are rounded to bf16 before they rotate.
#include "common.cuh"

// The input as bf16 in shared memory: a row of f32, normalised on the way.
__device__ __forceinline__ void stage_input(u8 *shared, float *partial, const float *x, const float *norm, u32 columns,
                                            float epsilon) {
    const float4 *from = reinterpret_cast<const float4 *>(x), *weight = reinterpret_cast<const float4 *>(norm);
    float squares = 0.0f;
    for (u32 piece = threadIdx.x; piece < columns / 4; piece += blockDim.x) {
        float4 v = from[piece];
        squares = fmaf(v.x, v.x, fmaf(v.y, v.y, fmaf(v.z, v.z, fmaf(v.w, v.w, squares))));
    }
    float scale = rsqrtf(block_sum(squares, partial) / (float)columns + epsilon);
    for (u32 piece = threadIdx.x; piece < columns / 4; piece += blockDim.x) {
        float4 v = from[piece], w = weight[piece];
        uint2 pair = make_uint2(to_bf16x2(v.x * scale * w.x, v.y * scale * w.y),
                                to_bf16x2(v.z * scale * w.z, v.w * scale * w.w));
        *reinterpret_cast<uint2 *>(shared + piece * 8) = pair;
    }
    __syncthreads();
}

// Products of two rows of weights with the input: each lane its own part of the sums. All loads of four pieces of either row are on
// their way before the first is used.
__device__ __forceinline__ float2 dot(const bf16 *const (&weights)[2], const u8 *input, u32 columns, u32 lane) {
    float sum[2] = {0.0f, 0.0f};
    u32 pieces = columns / 8;
    for (u32 first = lane; first < pieces; first += 4 * 32) {
        uint4 raw[2][4];
#pragma unroll
        for (int u = 0; u < 4; u++)
#pragma unroll
            for (int w = 0; w < 2; w++) {
                u32 piece = first + u * 32;
                raw[w][u] = piece < pieces ? __ldcs(reinterpret_cast<const uint4 *>(weights[w] + piece * 8))
                                           : make_uint4(0, 0, 0, 0);
            }
#pragma unroll
        for (int u = 0; u < 4; u++) {
            u32 piece = min(first + u * 32, pieces - 1); // behind the last one the weights are zero
            Eight x = unpack(load16(input + piece * 16));
#pragma unroll
            for (int w = 0; w < 2; w++) {
                Eight e = unpack(raw[w][u]);
#pragma unroll
                for (int i = 0; i < 8; i++) sum[w] = fmaf(e.x[i], x.x[i], sum[w]);
            }
        }
    }
    return make_float2(warp_sum(sum[0]), warp_sum(sum[1]));
}

struct HeadsArgs {
    const bf16 *w[3]; // of queries, keys and values
    const float *angles;
    const u32 *ids, *rows, *positions;
    u64 pool, block_stride, layer_base;
    u32 block_tokens, table_rows, table_columns, heads, kv_heads, head_dim, pairs, interleaved, columns;
    float epsilon;
};

// Where the token's keys and values begin in its page, or null: it has none.
__device__ __forceinline__ f16 *slot_of(f16 *slab, const HeadsArgs &a) {
    u32 row = a.rows[0], position = a.positions[0], column = position / a.block_tokens;
    if (row >= a.table_rows || column >= a.table_columns) return nullptr;
    if (!holds_ids_of(a.ids, (u64)a.table_rows * a.table_columns, a.pool)) return nullptr;
    u32 id = a.ids[(u64)row * a.table_columns + column];
    if (id == HOLE) return nullptr;
    return slab + id * a.block_stride + a.layer_base + (u64)(position % a.block_tokens) * a.head_dim;
}

extern "C" __global__ void __launch_bounds__(128)
    project_heads_f16(f16 *q, f16 *slab, const float *x, const float *norm, const bf16 *w0, const bf16 *w1, const bf16 *w2,
                      const float *angles, const u32 *ids, const u32 *rows, const u32 *positions, u64 pool,
                      u64 block_stride, u64 layer_base, u32 block_tokens, u32 table_rows, u32 table_columns, u32 heads,
                      u32 kv_heads, u32 head_dim, u32 pairs, u32 interleaved, u32 columns, float epsilon) {
    HeadsArgs a{{w0, w1, w2},  angles,       ids,           rows,  positions, pool,     block_stride, layer_base,
                block_tokens,  table_rows,   table_columns, heads, kv_heads,  head_dim, pairs,        interleaved,
                columns,       epsilon};
    extern __shared__ __align__(16) u8 shared[];
    __shared__ float partial[32];
    u32 lane = threadIdx.x % 32, unit = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    u32 half = head_dim / 2, head = unit / half, i = unit % half;
    bool there = head < heads + 2 * kv_heads, value = head >= heads + kv_heads;
    // Its two elements of the head.
    bool turns = !value && i < pairs;
    bool apart = !value && !interleaved;
    u32 low = apart && turns ? i : 2 * i, high = apart && turns ? i + pairs : 2 * i + 1;
    u32 first = head < heads ? 0 : value ? heads + kv_heads : heads;
    const bf16 *w = head < heads ? w0 : value ? w2 : w1;
    const bf16 *const weights[2] = {w + ((u64)(head - first) * head_dim + low) * columns,
                                    w + ((u64)(head - first) * head_dim + high) * columns};
    let_next_start();
    // Weights are on their way before the input is there.
    for (u32 byte = lane * 128; there && byte < columns * 2; byte += 32 * 128) {
        prefetch_line(reinterpret_cast<const u8 *>(weights[0]) + byte);
        prefetch_line(reinterpret_cast<const u8 *>(weights[1]) + byte);
    }
    wait_for_earlier();
    stage_input(shared, partial, x, norm, columns, epsilon);
    if (!there) return;
    float2 sums = dot(weights, shared, columns, lane);
    float e = to_f32(to_bf16(sums.x)), f = to_f32(to_bf16(sums.y));
    if (lane != 0) return;
    if (turns) {
        float2 cs = reinterpret_cast<const float2 *>(angles)[i];
        float turned = e * cs.x - f * cs.y;
        f = e * cs.y + f * cs.x;
        e = turned;
    }
    f16 *to;
    if (head < heads) {
        to = q + (u64)head * head_dim;
    } else {
        to = slot_of(slab, a);
        if (!to) return;
        to += (u64)(head - heads) * block_tokens * head_dim; // keys, then values
    }
    u32 pair = to_f16x2(e, f);
    to[low].bits = (u16)pair;
    to[high].bits = (u16)(pair >> 16);
}
