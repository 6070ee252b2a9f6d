// Paged prefill attention: any tokens of any sequences, each sees its own sequence up to itself. One block takes 64 tokens
// of the pass and one query head; the tokens of one sequence that stand together are one run, and the block goes over the
// keys of each run. Queries stay in registers, keys and values come in tiles through two buffers, the softmax is the online
// one, all products are on the tensor cores.
#include "common.cuh"
#include "mma.cuh"

#define QUERIES 64 // of a block, 16 a warp

template <typename E> struct PrefillArgs {
    bf16 *out;                            // [tokens][heads][DIM]
    const E *q;                           // [tokens][heads][DIM]
    const E *slab;
    const u32 *ids, *rows, *positions;    // [table_rows][table_columns]; [tokens]; [tokens]
    u64 pool, block_stride, layer_base;
    u32 block_tokens, table_rows, table_columns, tokens, kv_heads, group, window;
    float scale_log2, softcap;
};

template <int DIM> struct Tile {
    static constexpr int TOKENS = 4096 / DIM; // of a tile of keys: 8 KiB
    static constexpr int ROW = DIM * 2;
    static constexpr int CHUNKS = DIM / 8;
    static constexpr int BUFFER = TOKENS * ROW;
    static constexpr int GROUPS = TOKENS / 16; // a page has a multiple of 16 tokens
};

template <typename E, int DIM>
__device__ __forceinline__ void copy_keys(u32 to, const PrefillArgs<E> &a, const u32 *ids, u32 kv_head, u32 tile, u32 end) {
    using T = Tile<DIM>;
    u64 values = (u64)a.kv_heads * a.block_tokens * DIM;
#pragma unroll
    for (int i = 0; i < T::TOKENS * T::CHUNKS / 128; i++) {
        u32 index = i * 128 + threadIdx.x, row = index / T::CHUNKS, chunk = index % T::CHUNKS;
        u32 token = tile * T::TOKENS + row;
        u32 id = token < end ? ids[token / a.block_tokens] : HOLE;
        bool there = id != HOLE;
        const E *from = there ? a.slab + id * a.block_stride + a.layer_base +
                                    ((u64)kv_head * a.block_tokens + token % a.block_tokens) * DIM + chunk * 8
                              : a.slab;
        u32 at = to + row * T::ROW + ((chunk ^ (row & 7)) << 4);
        copy16_async(at, from, there ? 16 : 0);
        copy16_async(at + T::BUFFER, there ? from + values : from, there ? 16 : 0);
    }
}

template <typename E, int DIM> __device__ __forceinline__ void prefill(const PrefillArgs<E> a) {
    using T = Tile<DIM>;
    extern __shared__ __align__(128) u8 shared[];
    __shared__ u32 row_of[QUERIES], position_of[QUERIES];
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, c = lane % 4;
    // Late tokens see the most: they start first.
    u32 first = (gridDim.x - 1 - blockIdx.x) * QUERIES, head = blockIdx.y, kv_head = head / a.group;
    u32 heads = a.kv_heads * a.group, count = min((u32)QUERIES, a.tokens - first);
    if (threadIdx.x < QUERIES) {
        bool there = threadIdx.x < count;
        row_of[threadIdx.x] = there ? a.rows[first + threadIdx.x] : HOLE;
        position_of[threadIdx.x] = there ? a.positions[first + threadIdx.x] : 0;
    }
    __syncthreads();
    bool known = holds_ids_of(a.ids, (u64)a.table_rows * a.table_columns, a.pool);
    u32 base = shared_address(shared);

    // This lane's two queries.
    u32 mine[2] = {warp * 16 + g, warp * 16 + g + 8};
    u32 query[DIM / 16][4];
#pragma unroll
    for (int k = 0; k < DIM / 16; k++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            u32 token = mine[i % 2], d = k * 16 + i / 2 * 8 + c * 2;
            const E *from = a.q + ((u64)(first + token) * heads + head) * DIM + d;
            query[k][i] = token < count ? *reinterpret_cast<const u32 *>(from) : 0;
        }
    float sums[DIM / 8][4];
#pragma unroll
    for (int d = 0; d < DIM / 8; d++)
#pragma unroll
        for (int i = 0; i < 4; i++) sums[d][i] = 0.0f;
    float most[2] = {NEGATIVE_INFINITY, NEGATIVE_INFINITY}, weight[2] = {0.0f, 0.0f};

    for (u32 from = 0, to = 0; from < count; from = to) {
        u32 row = row_of[from], lowest = HOLE, highest = 0;
        for (to = from; to < count && row_of[to] == row; to++) {
            lowest = min(lowest, position_of[to]);
            highest = max(highest, position_of[to]);
        }
        if (!known || row >= a.table_rows) continue;
        const u32 *ids = a.ids + (u64)row * a.table_columns;
        u32 end = min(highest + 1, a.table_columns * a.block_tokens);
        u32 start = a.window && lowest + 1 > a.window ? lowest + 1 - a.window : 0;
        u32 tile = start / T::TOKENS, tiles = (end + T::TOKENS - 1) / T::TOKENS;
        bool in_run[2] = {mine[0] >= from && mine[0] < to, mine[1] >= from && mine[1] < to};
        u32 position[2] = {position_of[mine[0]], position_of[mine[1]]};
        // Whether any query of this warp sees a tile.
        u32 warp_last = 0;
        bool warp_in = warp * 16 < to && warp * 16 + 16 > from;
        for (u32 i = max(from, warp * 16); i < min(to, warp * 16 + 16); i++) warp_last = max(warp_last, position_of[i]);

        __syncthreads(); // the buffers are free
        u32 stage = 0;
        if (tile < tiles) copy_keys<E, DIM>(base, a, ids, kv_head, tile, end);
        commit_copies();
        for (; tile < tiles; tile++, stage ^= 1) {
            if (tile + 1 < tiles)
                copy_keys<E, DIM>(base + (stage ^ 1) * 2 * T::BUFFER, a, ids, kv_head, tile + 1, end);
            commit_copies();
            wait_copies<1>();
            __syncthreads();
            u32 keys = base + stage * 2 * T::BUFFER, values = keys + T::BUFFER;
            if (warp_in && tile * T::TOKENS <= warp_last) {
                u32 holes = 0;
#pragma unroll
                for (int i = 0; i < T::GROUPS; i++) {
                    u32 token = tile * T::TOKENS + i * 16;
                    if (token >= end || ids[token / a.block_tokens] == HOLE) holes |= 1 << i;
                }
                float score[T::TOKENS / 8][4];
#pragma unroll
                for (int n = 0; n < T::TOKENS / 8; n++) {
#pragma unroll
                    for (int i = 0; i < 4; i++) score[n][i] = 0.0f;
                    u32 key_row = n * 8 + lane % 8;
#pragma unroll
                    for (int k = 0; k < DIM / 32; k++) {
                        u32 key[4];
                        load_matrices(key, keys + key_row * T::ROW + (((k * 4 + lane / 8) ^ (key_row & 7)) << 4));
                        multiply(score[n], query[2 * k], key[0], key[1], a.q);
                        multiply(score[n], query[2 * k + 1], key[2], key[3], a.q);
                    }
                }
                float now[2] = {most[0], most[1]};
#pragma unroll
                for (int n = 0; n < T::TOKENS / 8; n++)
#pragma unroll
                    for (int i = 0; i < 4; i++) {
                        u32 token = tile * T::TOKENS + n * 8 + c * 2 + i % 2, at = position[i / 2];
                        bool there = in_run[i / 2] && token <= at && (!a.window || token + a.window > at) &&
                                     token < end && !(holes >> (n / 2) & 1);
                        float s = score[n][i] * a.scale_log2;
                        if (a.softcap > 0.0f) s = a.softcap * tanh_exp(s / a.softcap);
                        score[n][i] = there ? s : NEGATIVE_INFINITY;
                        now[i / 2] = fmaxf(now[i / 2], score[n][i]);
                    }
                float rescale[2];
#pragma unroll
                for (int r = 0; r < 2; r++) {
                    now[r] = fmaxf(now[r], __shfl_xor_sync(FULL, now[r], 1));
                    now[r] = fmaxf(now[r], __shfl_xor_sync(FULL, now[r], 2));
                    rescale[r] = now[r] == most[r] ? 1.0f : exp2_fast(most[r] - now[r]);
                    most[r] = now[r];
                    weight[r] *= rescale[r];
                    if (now[r] == NEGATIVE_INFINITY) now[r] = 0.0f; // no token yet: everything below is 2^-inf
                }
#pragma unroll
                for (int n = 0; n < T::TOKENS / 8; n++)
#pragma unroll
                    for (int i = 0; i < 4; i++) {
                        score[n][i] = exp2_fast(score[n][i] - now[i / 2]);
                        weight[i / 2] += score[n][i];
                    }
                if (__any_sync(FULL, rescale[0] != 1.0f || rescale[1] != 1.0f)) {
#pragma unroll
                    for (int d = 0; d < DIM / 8; d++)
#pragma unroll
                        for (int i = 0; i < 4; i++) sums[d][i] *= rescale[i / 2];
                }
#pragma unroll
                for (int k = 0; k < T::TOKENS / 16; k++) {
                    u32 p[4];
#pragma unroll
                    for (int i = 0; i < 4; i++)
                        p[i] = to_pair(score[2 * k + i / 2][i % 2 * 2], score[2 * k + i / 2][i % 2 * 2 + 1], a.q);
                    u32 value_row = k * 16 + lane % 16;
#pragma unroll
                    for (int d = 0; d < DIM / 16; d++) {
                        u32 value[4];
                        u32 chunk = d * 2 + lane / 16;
                        load_matrices_transposed(value, values + value_row * T::ROW + ((chunk ^ (value_row & 7)) << 4));
                        multiply(sums[2 * d], p, value[0], value[1], a.q);
                        multiply(sums[2 * d + 1], p, value[2], value[3], a.q);
                    }
                }
            }
            __syncthreads(); // before the next copy goes into the buffer that was just read
        }
        wait_copies<0>();
    }

#pragma unroll
    for (int r = 0; r < 2; r++) {
        weight[r] += __shfl_xor_sync(FULL, weight[r], 1);
        weight[r] += __shfl_xor_sync(FULL, weight[r], 2);
        float inverse = weight[r] > 0.0f ? 1.0f / weight[r] : 0.0f;
        if (mine[r] >= count) continue;
        bf16 *to = a.out + ((u64)(first + mine[r]) * heads + head) * DIM + c * 2;
#pragma unroll
        for (int d = 0; d < DIM / 8; d++)
            *reinterpret_cast<u32 *>(to + d * 8) = to_bf16x2(sums[d][2 * r] * inverse, sums[d][2 * r + 1] * inverse);
    }
}

#define ENTRY(KV, DIM, BLOCKS)                                                                                         \
    extern "C" __global__ void __launch_bounds__(128, BLOCKS) paged_prefill_##KV##_d##DIM(                             \
        bf16 *out, const KV *q, const KV *slab, const u32 *ids, const u32 *rows, const u32 *positions, u64 pool,       \
        u64 block_stride, u64 layer_base, u32 block_tokens, u32 table_rows, u32 table_columns, u32 tokens,             \
        u32 kv_heads, u32 group, u32 window, float scale_log2, float softcap) {                                        \
        prefill<KV, DIM>(PrefillArgs<KV>{out, q, slab, ids, rows, positions, pool, block_stride, layer_base,           \
                                         block_tokens, table_rows, table_columns, tokens, kv_heads, group, window,     \
                                         scale_log2, softcap});                                                        \
    }

ENTRY(bf16, 64, 2)
ENTRY(bf16, 128, 2)
ENTRY(bf16, 256, 2)
ENTRY(f16, 64, 2)
ENTRY(f16, 128, 2)
ENTRY(f16, 256, 2)
