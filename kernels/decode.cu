// Paged decode attention: one query a sequence, keys and values in pages. One block handles one sequence, one key/value
// head with up to 16 of its query heads, and one share of the tokens. Blocks of a sequence's shares leave partial results;
// the last one to arrive merges them in the order of the shares, so the result does not depend on timing.
//
// The shares are made on the device from the real lengths: the grid is fixed, and a graph may replay it for any lengths. A short
// sequence has fewer shares than the grid: merging them would take longer than they save.
//
// Inside of a block every warp works for itself: it takes every WARPS-th tile of tokens, copies keys and values into its
// own ring of three buffers two copies ahead, multiplies on the tensor cores (the query heads are the 16 rows), and keeps
// its own softmax state and sums. There is no barrier until the warps are merged at the end.
#include "common.cuh"
#include "mma.cuh"

#define HEADS 16 // query heads of a block: the rows of a matrix instruction
#define RING 3   // buffers of a warp
#define MOST_SHARES 128

template <typename E> struct DecodeArgs {
    bf16 *out;           // [batch][heads][DIM]
    float *partial;      // [batch][heads][gridDim.x][DIM + 2]: sums, maximum, weight; unused with one share
    u32 *arrived;        // [batch][kv_heads][groups]: zero before and after every launch
    const E *q;          // [batch][heads][DIM]
    const E *slab;
    const u32 *ids;      // [table_rows][table_columns]
    const u32 *rows;     // [batch]: the table row of each sequence
    const u32 *lengths;  // [batch]: tokens of each sequence, the query's own included; zero: no sequence
    u64 pool;            // whose slab it is: a table of another pool names nothing here
    u64 block_stride, layer_base;
    u32 block_tokens, table_rows, table_columns, kv_heads, group, window;
    float scale_log2, softcap;
};

template <int DIM> struct Shape {
    static constexpr int TOKENS = DIM == 64 ? 32 : 16; // tokens of a warp's tile: 4 or 8 KiB of keys
    static constexpr int PAGES = TOKENS / 16;          // pages that it can lie in: a page has a multiple of 16 tokens
    static constexpr int WARPS = DIM == 256 ? 2 : 4;
    static constexpr int ROW = DIM * 2;                // bytes of a row
    static constexpr int BUFFER = TOKENS * ROW;
    static constexpr int CHUNKS = DIM / 8;             // 16-byte chunks of a row
    static constexpr int AT_ONCE = 32 / CHUNKS;        // rows that a warp copies at once
    static constexpr int SHARED = WARPS * RING * BUFFER;
    static_assert(SHARED >= WARPS * HEADS * DIM * 4, "the merge of the warps fits into their rings");
    static_assert(SHARED >= HEADS * MOST_SHARES * 4, "and so do the factors of the shares");
};

// Where a tile's tokens are: for each 16 of them the row of the first one in the keys of its page, or null for a hole.
template <typename E, int DIM> struct Place {
    const E *keys[Shape<DIM>::PAGES];
};

template <typename E, int DIM>
__device__ __forceinline__ Place<E, DIM> place_of(const DecodeArgs<E> &a, const u32 *ids, u32 tile, u32 end, u32 kv_head) {
    Place<E, DIM> place;
#pragma unroll
    for (int i = 0; i < Shape<DIM>::PAGES; i++) {
        u32 token = tile * Shape<DIM>::TOKENS + i * 16;
        u32 id = token < end ? ids[token / a.block_tokens] : HOLE;
        place.keys[i] = id == HOLE ? nullptr
                                   : a.slab + id * a.block_stride + a.layer_base +
                                         ((u64)kv_head * a.block_tokens + token % a.block_tokens) * DIM;
    }
    return place;
}

// Starts the copy of a tile's keys, or of its values `offset` elements behind them. What is no token becomes zeros.
template <typename E, int DIM>
__device__ __forceinline__ void copy_tile(u32 buffer, const Place<E, DIM> &place, const E *anywhere, u64 offset, u32 tile,
                                          u32 start, u32 end, u32 lane) {
    using S = Shape<DIM>;
    u32 chunk = lane % S::CHUNKS;
#pragma unroll
    for (int i = 0; i < S::TOKENS / S::AT_ONCE; i++) {
        u32 row = i * S::AT_ONCE + lane / S::CHUNKS, token = tile * S::TOKENS + row;
        const E *keys = place.keys[S::PAGES == 1 ? 0 : i * S::AT_ONCE / 16];
        bool there = keys && token >= start && token < end;
        const E *from = there ? keys + offset + (row % 16) * DIM + chunk * 8 : anywhere;
        copy16_async(buffer + row * S::ROW + ((chunk ^ (row & 7)) << 4), from, there ? 16 : 0);
    }
}

template <typename E, int DIM> __device__ __forceinline__ void decode(const DecodeArgs<E> a) {
    using S = Shape<DIM>;
    constexpr int TOKENS = S::TOKENS, WARPS = S::WARPS, THREADS = WARPS * 32;
    extern __shared__ __align__(128) u8 shared[];
    __shared__ float states[WARPS][2][HEADS]; // maximum and weight of every warp and head
    __shared__ bool last;

    u32 share = blockIdx.x;
    u32 groups = (a.group + HEADS - 1) / HEADS;
    u32 kv_head = blockIdx.y / groups, first = blockIdx.y % groups * HEADS;
    u32 sequence = blockIdx.z;
    u32 here = min((u32)HEADS, a.group - first); // query heads of this block
    u32 heads = a.kv_heads * a.group;
    u64 cell = (u64)sequence * heads + kv_head * a.group + first; // its first output row
    u32 t = threadIdx.x, lane = t % 32, warp = t / 32;
    u32 g = lane / 4, c = lane % 4; // row and column of the matrix instructions' fragments

    u32 row = a.rows[sequence];
    bool known = row < a.table_rows && holds_ids_of(a.ids, (u64)a.table_rows * a.table_columns, a.pool);
    u32 end = known ? min(a.lengths[sequence], a.table_columns * a.block_tokens) : 0;
    u32 start = a.window && end > a.window ? end - a.window : 0;
    const u32 *ids = a.ids + (u64)(row < a.table_rows ? row : 0) * a.table_columns;
    // The same number of whole tiles a share and warp, the first ones from `start` on.
    u32 first_tile = start / TOKENS, end_tile = (end + TOKENS - 1) / TOKENS;
    // A step takes about three times as long as the merge of one share, and to merge at all about as long as four steps.
    u32 steps = (end_tile - first_tile + WARPS - 1) / WARPS, shares = 1;
    while (shares < gridDim.x && shares * shares < 3 * steps && steps > 6) shares++;
    if (share >= shares) return;
    u32 each = ((end_tile - first_tile + shares - 1) / shares + WARPS - 1) / WARPS * WARPS;
    u32 from_tile = first_tile + share * each + warp, to_tile = min(first_tile + (share + 1) * each, end_tile);

    u32 ring = shared_address(shared) + warp * RING * S::BUFFER;
    u64 values = (u64)a.kv_heads * a.block_tokens * DIM; // from a key to its value
    u32 tile = from_tile, slot = 0;
    Place<E, DIM> place = place_of<E, DIM>(a, ids, tile, tile < to_tile ? end : 0, kv_head);
    Place<E, DIM> next = place_of<E, DIM>(a, ids, tile + WARPS, tile + WARPS < to_tile ? end : 0, kv_head);
    if (tile < to_tile) {
        copy_tile<E, DIM>(ring, place, a.slab, 0, tile, start, end, lane);
        commit_copies();
        copy_tile<E, DIM>(ring + S::BUFFER, place, a.slab, values, tile, start, end, lane);
        commit_copies();
    }

    // The queries of all heads, as left operands.
    u32 query[DIM / 16][4];
#pragma unroll
    for (int k = 0; k < DIM / 16; k++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            u32 head = g + i % 2 * 8, d = k * 16 + i / 2 * 8 + c * 2;
            query[k][i] = head < here ? *reinterpret_cast<const u32 *>(a.q + (cell + head) * DIM + d) : 0;
        }

    float sums[DIM / 8][4];
#pragma unroll
    for (int d = 0; d < DIM / 8; d++)
#pragma unroll
        for (int i = 0; i < 4; i++) sums[d][i] = 0.0f;
    // Of rows g and g + 8; a weight is this lane's part of it.
    float most[2] = {NEGATIVE_INFINITY, NEGATIVE_INFINITY}, weight[2] = {0.0f, 0.0f};

    for (; tile < to_tile; tile += WARPS) {
        // Keys. One younger copy may still be on its way; the buffer after the next one is free.
        wait_copies<1>();
        __syncwarp();
        u32 buffer = ring + slot * S::BUFFER;
        u32 free_slot = slot == 0 ? 2 : slot - 1;
        bool more = tile + WARPS < to_tile;
        Place<E, DIM> after = next;
        if (more) {
            copy_tile<E, DIM>(ring + free_slot * S::BUFFER, next, a.slab, 0, tile + WARPS, start, end, lane);
            u32 beyond = tile + 2 * WARPS;
            next = place_of<E, DIM>(a, ids, beyond, beyond < to_tile ? end : 0, kv_head);
        }
        commit_copies();
        float score[TOKENS / 8][4];
#pragma unroll
        for (int n = 0; n < TOKENS / 8; n++) {
#pragma unroll
            for (int i = 0; i < 4; i++) score[n][i] = 0.0f;
            u32 key_row = n * 8 + lane % 8;
#pragma unroll
            for (int k = 0; k < DIM / 32; k++) {
                u32 key[4];
                load_matrices(key, buffer + key_row * S::ROW + (((k * 4 + lane / 8) ^ (key_row & 7)) << 4));
                multiply(score[n], query[2 * k], key[0], key[1], a.q);
                multiply(score[n], query[2 * k + 1], key[2], key[3], a.q);
            }
        }

        // Softmax over the tile.
        float now[2] = {most[0], most[1]};
#pragma unroll
        for (int n = 0; n < TOKENS / 8; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                u32 token = tile * TOKENS + n * 8 + c * 2 + i % 2;
                bool there = place.keys[n * 8 / 16] && token >= start && token < end;
                float s = score[n][i] * a.scale_log2;
                // The cap is on the natural score; `softcap` and `scale_log2` are both in units of log2(e).
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
        for (int n = 0; n < TOKENS / 8; n++)
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

        // Values.
        slot = slot == 2 ? 0 : slot + 1;
        wait_copies<1>();
        __syncwarp();
        buffer = ring + slot * S::BUFFER;
        free_slot = slot == 0 ? 2 : slot - 1;
        if (more) copy_tile<E, DIM>(ring + free_slot * S::BUFFER, after, a.slab, values, tile + WARPS, start, end, lane);
        commit_copies();
#pragma unroll
        for (int k = 0; k < TOKENS / 16; k++) {
            u32 p[4];
#pragma unroll
            for (int i = 0; i < 4; i++)
                p[i] = to_pair(score[2 * k + i / 2][i % 2 * 2], score[2 * k + i / 2][i % 2 * 2 + 1], a.q);
            u32 value_row = k * 16 + lane % 16;
#pragma unroll
            for (int d = 0; d < DIM / 16; d++) {
                u32 value[4];
                u32 chunk = d * 2 + lane / 16;
                load_matrices_transposed(value, buffer + value_row * S::ROW + ((chunk ^ (value_row & 7)) << 4));
                multiply(sums[2 * d], p, value[0], value[1], a.q);
                multiply(sums[2 * d + 1], p, value[2], value[3], a.q);
            }
        }
        slot = slot == 2 ? 0 : slot + 1;
        place = after;
    }

    // The warps of this block, in order.
    wait_copies<0>();
#pragma unroll
    for (int r = 0; r < 2; r++) {
        weight[r] += __shfl_xor_sync(FULL, weight[r], 1);
        weight[r] += __shfl_xor_sync(FULL, weight[r], 2);
        if (c == 0) {
            states[warp][0][g + r * 8] = most[r];
            states[warp][1][g + r * 8] = weight[r];
        }
    }
    __syncthreads();
    float *merged = reinterpret_cast<float *>(shared); // [WARPS][HEADS][DIM]
#pragma unroll
    for (int r = 0; r < 2; r++) {
        u32 head = g + r * 8;
        float top = NEGATIVE_INFINITY;
#pragma unroll
        for (int w = 0; w < WARPS; w++) top = fmaxf(top, states[w][0][head]);
        float factor = most[r] == NEGATIVE_INFINITY ? 0.0f : exp2_fast(most[r] - top);
#pragma unroll
        for (int d = 0; d < DIM / 8; d++) {
            float2 pair = make_float2(sums[d][2 * r] * factor, sums[d][2 * r + 1] * factor);
            *reinterpret_cast<float2 *>(merged + (warp * HEADS + head) * DIM + d * 8 + c * 2) = pair;
        }
    }
    __syncthreads();
    for (u32 i = t; i < here * DIM; i += THREADS) {
        u32 head = i / DIM, d = i % DIM;
        float top = NEGATIVE_INFINITY, total = 0.0f, all = 0.0f;
#pragma unroll
        for (int w = 0; w < WARPS; w++) top = fmaxf(top, states[w][0][head]);
#pragma unroll
        for (int w = 0; w < WARPS; w++) {
            total += merged[(w * HEADS + head) * DIM + d];
            float there = states[w][0][head];
            all += there == NEGATIVE_INFINITY ? 0.0f : states[w][1][head] * exp2_fast(there - top);
        }
        if (shares == 1) {
            a.out[(cell + head) * DIM + d] = to_bf16(all > 0.0f ? total / all : 0.0f);
        } else {
            // By the grid's shares, not this sequence's: each has a place of its own.
            float *part = a.partial + ((cell + head) * gridDim.x + share) * (DIM + 2);
            part[d] = total;
            if (d == 0) {
                part[DIM] = top;
                part[DIM + 1] = all;
            }
        }
    }
    if (shares == 1) return;

    // The shares of this sequence. Everything of this one is visible to whoever sees the count.
    __threadfence();
    __syncthreads();
    if (t == 0) {
        u32 *arrived = a.arrived + ((u64)sequence * a.kv_heads + kv_head) * groups + first / HEADS;
        // Wraps to zero at the last one: ready for the next launch.
        last = atomicInc(arrived, shares - 1) == shares - 1;
    }
    __syncthreads();
    if (!last) return;
    __threadfence();
    // What each share counts for: a warp a head. The rings are free: everybody passed a barrier behind their last use.
    float *factors = reinterpret_cast<float *>(shared); // [HEADS][MOST_SHARES]
    const float *parts = a.partial + cell * gridDim.x * (DIM + 2);
    for (u32 head = warp; head < here; head += WARPS) {
        const float *part = parts + (u64)head * gridDim.x * (DIM + 2) + DIM;
        float top = NEGATIVE_INFINITY, all = 0.0f;
        for (u32 s = lane; s < shares; s += 32) top = fmaxf(top, __ldcg(part + s * (DIM + 2)));
        top = warp_max(top);
        for (u32 s = lane; s < shares; s += 32) {
            float there = __ldcg(part + s * (DIM + 2));
            float factor = there == NEGATIVE_INFINITY ? 0.0f : exp2_fast(there - top); // an empty share counts nothing
            factors[head * MOST_SHARES + s] = factor;
            all = fmaf(factor, __ldcg(part + s * (DIM + 2) + 1), all);
        }
        all = warp_sum(all);
        if (lane == 0) states[0][0][head] = all > 0.0f ? 1.0f / all : 0.0f;
    }
    __syncthreads();
    for (u32 i = t; i < here * DIM; i += THREADS) {
        u32 head = i / DIM, d = i % DIM;
        const float *part = parts + (u64)head * gridDim.x * (DIM + 2) + d, *factor = factors + head * MOST_SHARES;
        float total = 0.0f;
#pragma unroll 8
        for (u32 s = 0; s < shares; s++) total = fmaf(factor[s], __ldcg(part + s * (DIM + 2)), total);
        a.out[(cell + head) * DIM + d] = to_bf16(total * states[0][0][head]);
    }
}

// Blocks of a multiprocessor: what shared memory allows, and registers on the larger device.
#if __CUDA_ARCH__ >= 1200
#define RESIDENT(BLOCKS) 2
#else
#define RESIDENT(BLOCKS) BLOCKS
#endif

#define ENTRY(KV, DIM, THREADS, BLOCKS)                                                                                \
    extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT(BLOCKS)) paged_decode_##KV##_d##DIM(                \
        bf16 *out, float *partial, u32 *arrived, const KV *q, const KV *slab, const u32 *ids, const u32 *rows,         \
        const u32 *lengths, u64 pool, u64 block_stride, u64 layer_base, u32 block_tokens, u32 table_rows,              \
        u32 table_columns, u32 kv_heads, u32 group, u32 window, float scale_log2, float softcap) {                     \
        decode<KV, DIM>(DecodeArgs<KV>{out, partial, arrived, q, slab, ids, rows, lengths, pool, block_stride,         \
                                       layer_base, block_tokens, table_rows, table_columns, kv_heads, group, window,   \
                                       scale_log2, softcap});                                                          \
    }

ENTRY(bf16, 64, 128, 4)
ENTRY(bf16, 128, 128, 3)
ENTRY(bf16, 256, 64, 4)
ENTRY(f16, 64, 128, 4)
ENTRY(f16, 128, 128, 3)
ENTRY(f16, 256, 64, 4)
