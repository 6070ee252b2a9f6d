// Paged decode attention: one query a sequence, keys and values in pages. One block handles one sequence, one key/value
// head with up to GROUP of its query heads, and one share of the tokens. Blocks of a sequence's shares leave partial
// results; the last one to arrive merges them in the order of the shares, so the result does not depend on timing.
//
// The shares are made on the device from the real lengths: the grid is fixed, and a graph may replay it for any lengths.
#include "common.cuh"

#define THREADS 128
#define TILE 64

struct DecodeArgs {
    bf16 *out;           // [batch][heads][DIM]
    float *partial;      // [batch][heads][shares][DIM + 2]: sums, maximum, weight; unused with one share
    u32 *arrived;        // [batch][kv_heads][groups]: zero before and after every launch
    const bf16 *q;       // [batch][heads][DIM]
    const bf16 *slab;
    const u32 *ids;      // [table_rows][table_columns]
    const u32 *rows;     // [batch]: the table row of each sequence
    const u32 *lengths;  // [batch]: tokens of each sequence, the query's own included; zero: no sequence
    u64 block_stride, layer_base;
    u32 block_tokens, table_rows, table_columns, kv_heads, group, window;
    float scale_log2, softcap;
};

// The part of a row's address that stays the same for all tokens of a page.
__device__ __forceinline__ const bf16 *page_of(const DecodeArgs &a, const u32 *ids, u32 token, u32 part, int dim) {
    u32 id = ids[token / a.block_tokens];
    if (id == HOLE) return nullptr;
    return a.slab + id * a.block_stride + a.layer_base +
           ((u64)part * a.block_tokens + token % a.block_tokens) * dim;
}

template <int DIM, int GROUP>
__device__ __forceinline__ void decode(const DecodeArgs a) {
    constexpr int PIECES = DIM / 8;          // 16-byte pieces of a row
    constexpr int LANES = 8;                 // lanes that share a key row
    constexpr int EACH = PIECES / LANES;     // pieces of a key row a lane
    constexpr int AT_ONCE = THREADS / LANES; // key rows of one round
    constexpr int WAYS = THREADS / PIECES;   // value rows of one round
    extern __shared__ float shared[];
    float *query = shared;                       // [GROUP][DIM], scaled
    float *score = query + GROUP * DIM;          // [GROUP][TILE]
    float *state = score + GROUP * TILE;         // [3][GROUP]: maximum, weight, rescaling
    float *sums = state + 3 * GROUP;             // [THREADS][8], for the last reduction, one head at a time
    __shared__ bool last;

    u32 shares = gridDim.x, share = blockIdx.x;
    u32 groups = (a.group + GROUP - 1) / GROUP;
    u32 kv_head = blockIdx.y / groups, first = blockIdx.y % groups * GROUP;
    u32 sequence = blockIdx.z;
    u32 here = min((u32)GROUP, a.group - first); // query heads of this block
    u32 heads = a.kv_heads * a.group;
    u32 head = kv_head * a.group + first;
    u32 t = threadIdx.x;

    u32 row = a.rows[sequence];
    u32 length = row < a.table_rows ? min(a.lengths[sequence], a.table_columns * a.block_tokens) : 0;
    u32 start = a.window && length > a.window ? length - a.window : 0;
    // Whole tiles a share, the first ones from `start` on.
    u32 tiles = (length - start + TILE - 1) / TILE;
    u32 each = (tiles + shares - 1) / shares * TILE;
    u32 from = min(start + share * each, length), to = min(from + each, length);
    const u32 *ids = a.ids + (u64)(row < a.table_rows ? row : 0) * a.table_columns;

    for (u32 i = t; i < GROUP * DIM; i += THREADS) {
        u32 g = i / DIM;
        query[i] = g < here ? to_f32(a.q[((u64)sequence * heads + head + g) * DIM + i % DIM]) : 0.0f;
    }
    if (t < GROUP) {
        state[t] = NEGATIVE_INFINITY;
        state[GROUP + t] = 0.0f;
    }
    float acc[GROUP][8];
#pragma unroll
    for (int g = 0; g < GROUP; g++)
#pragma unroll
        for (int i = 0; i < 8; i++) acc[g][i] = 0.0f;
    __syncthreads();

    for (u32 base = from; base < to; base += TILE) {
        // Scores: eight lanes a token.
#pragma unroll
        for (int round = 0; round < TILE / AT_ONCE; round++) {
            u32 slot = round * AT_ONCE + t / LANES, token = base + slot;
            const bf16 *key = token < to ? page_of(a, ids, token, kv_head, DIM) : nullptr;
            float dot[GROUP];
#pragma unroll
            for (int g = 0; g < GROUP; g++) dot[g] = 0.0f;
            if (key) {
#pragma unroll
                for (int e = 0; e < EACH; e++) {
                    int piece = e * LANES + t % LANES;
                    Eight k = unpack(load16(key + piece * 8));
#pragma unroll
                    for (int g = 0; g < GROUP; g++) {
                        const float4 *q4 = reinterpret_cast<const float4 *>(query + g * DIM + piece * 8);
                        float4 x = q4[0], y = q4[1];
                        dot[g] += x.x * k.x[0] + x.y * k.x[1] + x.z * k.x[2] + x.w * k.x[3] + y.x * k.x[4] +
                                  y.y * k.x[5] + y.z * k.x[6] + y.w * k.x[7];
                    }
                }
            }
#pragma unroll
            for (int g = 0; g < GROUP; g++) {
#pragma unroll
                for (int offset = LANES / 2; offset > 0; offset >>= 1) dot[g] += __shfl_xor_sync(FULL, dot[g], offset);
            }
            if (t % LANES == 0) {
#pragma unroll
                for (int g = 0; g < GROUP; g++) {
                    float s = dot[g] * a.scale_log2;
                    // The cap is on the natural score; `softcap` and `scale_log2` are both in units of log2(e).
                    if (a.softcap > 0.0f) s = a.softcap * tanh_exp(s / a.softcap);
                    score[g * TILE + slot] = key ? s : NEGATIVE_INFINITY;
                }
            }
        }
        __syncthreads();
        // Softmax state: a warp a head.
        for (u32 g = t / 32; g < here; g += THREADS / 32) {
            float s0 = score[g * TILE + t % 32], s1 = score[g * TILE + 32 + t % 32];
            float before = state[g], now = fmaxf(before, warp_max(fmaxf(s0, s1)));
            float p0 = now == NEGATIVE_INFINITY ? 0.0f : exp2_fast(s0 - now);
            float p1 = now == NEGATIVE_INFINITY ? 0.0f : exp2_fast(s1 - now);
            score[g * TILE + t % 32] = p0;
            score[g * TILE + 32 + t % 32] = p1;
            float weight = warp_sum(p0 + p1);
            float rescale = before == NEGATIVE_INFINITY ? 0.0f : exp2_fast(before - now);
            if (t % 32 == 0) {
                state[g] = now;
                state[GROUP + g] = state[GROUP + g] * rescale + weight;
                state[2 * GROUP + g] = rescale;
            }
        }
        __syncthreads();
        // Values: a thread a column of eight.
#pragma unroll
        for (int g = 0; g < GROUP; g++) {
            float rescale = g < here ? state[2 * GROUP + g] : 0.0f;
#pragma unroll
            for (int i = 0; i < 8; i++) acc[g][i] *= rescale;
        }
#pragma unroll 4
        for (int round = 0; round < TILE / WAYS; round++) {
            u32 slot = round * WAYS + t / PIECES, token = base + slot;
            const bf16 *value = token < to ? page_of(a, ids, token, a.kv_heads + kv_head, DIM) : nullptr;
            if (value) {
                Eight v = unpack(load16(value + t % PIECES * 8));
#pragma unroll
                for (int g = 0; g < GROUP; g++) {
                    float p = g < here ? score[g * TILE + slot] : 0.0f;
#pragma unroll
                    for (int i = 0; i < 8; i++) acc[g][i] = fmaf(p, v.x[i], acc[g][i]);
                }
            }
        }
        __syncthreads();
    }

    // The ways of each column, in order, one head at a time.
    u64 cell = (u64)sequence * heads + head;
#pragma unroll
    for (int g = 0; g < GROUP; g++) {
        if (g < here) {
#pragma unroll
            for (int i = 0; i < 8; i++) sums[t * 8 + i] = acc[g][i];
        }
        __syncthreads();
        if (g < here && t < PIECES) {
            Eight total;
#pragma unroll
            for (int i = 0; i < 8; i++) total.x[i] = 0.0f;
            for (int way = 0; way < WAYS; way++)
#pragma unroll
                for (int i = 0; i < 8; i++) total.x[i] += sums[(way * PIECES + t) * 8 + i];
            float weight = state[GROUP + g];
            if (shares == 1) {
                float inverse = weight > 0.0f ? 1.0f / weight : 0.0f;
#pragma unroll
                for (int i = 0; i < 8; i++) total.x[i] *= inverse;
                store16(a.out + (cell + g) * DIM + t * 8, pack(total));
            } else {
                float *to_partial = a.partial + ((cell + g) * shares + share) * (DIM + 2);
#pragma unroll
                for (int i = 0; i < 8; i++) to_partial[t * 8 + i] = total.x[i];
                if (t == 0) {
                    to_partial[DIM] = state[g];
                    to_partial[DIM + 1] = weight;
                }
            }
        }
        __syncthreads();
    }
    if (shares == 1) return;

    // Everything of this share is visible to whoever sees the count.
    __threadfence();
    __syncthreads();
    if (t == 0) {
        u32 *arrived = a.arrived + ((u64)sequence * a.kv_heads + kv_head) * groups + first / GROUP;
        // Wraps to zero at the last one: ready for the next launch.
        last = atomicInc(arrived, shares - 1) == shares - 1;
    }
    __syncthreads();
    if (!last) return;
    __threadfence();
    for (u32 i = t; i < here * DIM; i += THREADS) {
        u32 g = i / DIM, d = i % DIM;
        const float *parts = a.partial + (cell + g) * shares * (DIM + 2);
        float most = NEGATIVE_INFINITY;
        for (u32 s = 0; s < shares; s++) most = fmaxf(most, __ldcg(parts + s * (DIM + 2) + DIM));
        float total = 0.0f, weight = 0.0f;
        for (u32 s = 0; s < shares; s++) {
            const float *part = parts + s * (DIM + 2);
            float there = __ldcg(part + DIM);
            if (there == NEGATIVE_INFINITY) continue; // an empty share
            float rescale = exp2_fast(there - most);
            total = fmaf(rescale, __ldcg(part + d), total);
            weight = fmaf(rescale, __ldcg(part + DIM + 1), weight);
        }
        a.out[(cell + g) * DIM + d] = to_bf16(weight > 0.0f ? total / weight : 0.0f);
    }
}

#define ENTRY(DIM, GROUP)                                                                                              \
    extern "C" __global__ void __launch_bounds__(THREADS) paged_decode_bf16_d##DIM##_g##GROUP(                         \
        bf16 *out, float *partial, u32 *arrived, const bf16 *q, const bf16 *slab, const u32 *ids, const u32 *rows,     \
        const u32 *lengths, u64 block_stride, u64 layer_base, u32 block_tokens, u32 table_rows, u32 table_columns,     \
        u32 kv_heads, u32 group, u32 window, float scale_log2, float softcap) {                                        \
        decode<DIM, GROUP>(DecodeArgs{out, partial, arrived, q, slab, ids, rows, lengths, block_stride, layer_base,    \
                                      block_tokens, table_rows, table_columns, kv_heads, group, window, scale_log2,    \
                                      softcap});                                                                       \
    }

ENTRY(64, 1)
ENTRY(64, 2)
ENTRY(64, 4)
ENTRY(64, 8)
ENTRY(128, 1)
ENTRY(128, 2)
ENTRY(128, 4)
ENTRY(128, 8)
ENTRY(256, 1)
ENTRY(256, 2)
ENTRY(256, 4)
ENTRY(256, 8)
