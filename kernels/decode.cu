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
#include "cache.cuh"
#include "common.cuh"
#include "mma.cuh"
#define HEADS 16 // query heads of a block: the rows of a matrix instruction
#define RING 3   // buffers of a warp
#define MERGED 8 // shares that are merged at a time

template <typename E> struct DecodeArgs {
    bf16 *out;           // [batch][heads][DIM]
    float *partial;      // [batch][heads][gridDim.x][DIM + 4]: sums, maximum, weight, padding; unused with one share
    u32 *arrived;        // [batch][kv_heads][groups]: zero before and after every launch
    const typename Cache<E>::Query *q; // [batch][heads][DIM]
    const E *slab;
    const u32 *ids;      // [table_rows][table_columns]
    const u32 *rows;     // [batch]: the table row of each sequence
    const u32 *lengths;  // [batch]: tokens of each sequence, the query's own included; zero: no sequence
    u64 pool;            // whose slab it is: a table of another pool names nothing here
    u64 block_stride, layer_base;
    u32 block_tokens, table_rows, table_columns, kv_heads, group, window;
    float scale_log2, softcap;
};

template <typename E, int DIM> struct Shape {
    static constexpr int BYTES = Cache<E>::BYTES;
    static constexpr bool SCALED = Cache<E>::SCALED;
    static constexpr int ROW = DIM * BYTES;                       // bytes of a row
    static constexpr int WARPS = 4;
    static constexpr int BUFFER = ROW == 512 ? 8192 : 4096;
    static constexpr int TOKENS = BUFFER / ROW;                   // of a warp's tile
    static constexpr int PAGES = TOKENS / 16;                     // pages that it can lie in: a page has a multiple of 16 tokens
    static constexpr int CHUNKS = ROW / 16;                       // 16-byte chunks of a row
    static constexpr int AT_ONCE = 32 / CHUNKS;                   // rows that a warp copies at once
    static constexpr int SHARED = (DIM == 256 ? 96 : 48) << 10;                       // what the wrapper asks for
    static_assert(SHARED >= WARPS * RING * BUFFER, "the rings fit");
    static_assert(SHARED >= WARPS * HEADS * DIM * 4, "the merge of the warps fits into the place of their rings");

    // Where a chunk of a row is in a buffer: permuted, so that eight rows of a matrix load lie in different banks.
    static __device__ __forceinline__ u32 at(u32 row, u32 chunk) {
        u32 turn = ROW >= 128 ? row & 7 : row / (128 / ROW) & (CHUNKS - 1);
        return row * ROW + ((chunk ^ turn) << 4);
    }
};

// Where a tile's tokens are: for each 16 of them the row of the first one in the keys of its page, or null for a hole; and the
// scale of the first one's key.
template <typename E, int DIM> struct Place {
    const E *keys[Shape<E, DIM>::PAGES];
    const float *scales[Shape<E, DIM>::SCALED ? Shape<E, DIM>::PAGES : 1];
};

template <typename E, int DIM>
__device__ __forceinline__ Place<E, DIM> place_of(const DecodeArgs<E> &a, const u32 *ids, u32 tile, u32 end, u32 kv_head) {
    using S = Shape<E, DIM>;
    Place<E, DIM> place;
#pragma unroll
    for (int i = 0; i < S::PAGES; i++) {
        u32 token = tile * S::TOKENS + i * 16;
        u32 id = token < end ? ids[token / a.block_tokens] : HOLE;
        const E *layer = a.slab + id * a.block_stride + a.layer_base;
        u32 slot = kv_head * a.block_tokens + token % a.block_tokens;
        place.keys[i] = id == HOLE ? nullptr : layer + (u64)slot * DIM;
        if (S::SCALED) {
            const E *scales = layer + 2 * (u64)a.kv_heads * a.block_tokens * DIM;
            place.scales[i * S::SCALED] = reinterpret_cast<const float *>(scales) + slot;
        }
    }
    return place;
}

// Which 16 tokens of a tile have a page, a bit each.
template <typename E, int DIM> __device__ __forceinline__ u32 pages_of(const Place<E, DIM> &place) {
    u32 pages = 0;
#pragma unroll
    for (int i = 0; i < Shape<E, DIM>::PAGES; i++) pages |= place.keys[i] ? 1 << i : 0;
    return pages;
}

// Starts the copy of a tile's keys, or of its values `offset` elements behind them. What is no token becomes zeros.
template <typename E, int DIM>
__device__ __forceinline__ void copy_tile(u32 buffer, const Place<E, DIM> &place, const E *anywhere, u64 offset, u32 tile,
                                          u32 start, u32 end, u32 lane) {
    using S = Shape<E, DIM>;
    u32 chunk = lane % S::CHUNKS;
#pragma unroll
    for (int i = 0; i < S::TOKENS / S::AT_ONCE; i++) {
        u32 row = i * S::AT_ONCE + lane / S::CHUNKS, token = tile * S::TOKENS + row;
        const E *keys = place.keys[S::PAGES == 1 ? 0 : i * S::AT_ONCE / 16];
        bool there = keys && token >= start && token < end;
        const E *from = there ? keys + offset + (row % 16) * DIM + chunk * (16 / S::BYTES) : anywhere;
        copy16_async(buffer + S::at(row, chunk), from, there ? 16 : 0);
    }
}

// The scales of a tile's keys and values: token 32 * i + lane of it. One where there is no token.
template <typename E, int DIM> struct Scales {
    static constexpr int EACH = Shape<E, DIM>::SCALED ? (Shape<E, DIM>::TOKENS + 31) / 32 : 1;
    float key[EACH], value[EACH];
};

template <typename E, int DIM>
__device__ __forceinline__ Scales<E, DIM> scales_of(const DecodeArgs<E> &a, const Place<E, DIM> &place, u32 tile, u32 start,
                                                    u32 end, u32 lane) {
    using S = Shape<E, DIM>;
    Scales<E, DIM> scales;
#pragma unroll
    for (int i = 0; i < Scales<E, DIM>::EACH; i++) {
        scales.key[i] = scales.value[i] = 1.0f;
        if (!S::SCALED) continue;
        u32 token = tile * S::TOKENS + i * 32 + lane;
        constexpr bool two = S::PAGES > 1;
        const E *keys = lane < 16 ? place.keys[i * 2 * two] : two ? place.keys[(i * 2 + 1) * two] : nullptr;
        const float *from = lane >= 16 ? place.scales[(i * 2 + 1) * two * S::SCALED] : place.scales[i * 2 * two * S::SCALED];
        if (keys && token >= start && token < end) {
            scales.key[i] = from[lane % 16];
            scales.value[i] = from[lane % 16 + (u64)a.kv_heads * a.block_tokens];
        }
    }
    return scales;
}

// Scores of the query heads and eight tokens, rows of a buffer from `row` on.
template <typename E, int DIM>
__device__ __forceinline__ void score_tokens(float (&score)[4], const u32 (&query)[DIM / 16][4], u32 buffer, u32 row, u32 lane) {
    using S = Shape<E, DIM>;
    row += lane % 8;
    if constexpr (S::BYTES == 2) {
#pragma unroll
        for (int k = 0; k < DIM / 32; k++) {
            u32 key[4];
            load_matrices(key, buffer + S::at(row, k * 4 + lane / 8));
            multiply(score, query[2 * k], key[0], key[1], (const E *)nullptr);
            multiply(score, query[2 * k + 1], key[2], key[3], (const E *)nullptr);
        }
    } else {
        // A lane gets elements 4c to 4c + 3 of 16; the queries were loaded in that order.
#pragma unroll
        for (int k = 0; k < DIM / 64; k++) {
            u32 key[4];
            load_matrices(key, buffer + S::at(row, k * 4 + lane / 8));
#pragma unroll
            for (int i = 0; i < 4; i++) {
                u32 low, high;
                f8x4_to_f16(low, high, key[i]);
                multiply(score, query[4 * k + i], low, high, (const f16 *)nullptr);
            }
        }
    }
}

// Adds 16 tokens' values, rows of a buffer from `row` on, times their weights `p`.
template <typename E, int DIM>
__device__ __forceinline__ void add_values(float (&sums)[DIM / 8][4], const u32 (&p)[4], u32 buffer, u32 row, u32 lane) {
    using S = Shape<E, DIM>;
    row += lane % 16;
#pragma unroll
    for (int d = 0; d < S::CHUNKS / 2; d++) {
        u32 value[4];
        load_matrices_transposed(value, buffer + S::at(row, d * 2 + lane / 16));
        if constexpr (S::BYTES == 2) {
            multiply(sums[2 * d], p, value[0], value[1], (const E *)nullptr);
            multiply(sums[2 * d + 1], p, value[2], value[3], (const E *)nullptr);
        } else {
            // A lane gets elements 2g and 2g + 1 of tokens 2c and 2c + 1: even elements are one product, odd ones another.
#pragma unroll
            for (int i = 0; i < 2; i++) {
                u32 even[2], odd[2];
                f8x4_to_f16(even[0], odd[0], __byte_perm(value[2 * i], 0, 0x3120));
                f8x4_to_f16(even[1], odd[1], __byte_perm(value[2 * i + 1], 0, 0x3120));
                multiply(sums[4 * d + 2 * i], p, even[0], even[1], (const f16 *)nullptr);
                multiply(sums[4 * d + 2 * i + 1], p, odd[0], odd[1], (const f16 *)nullptr);
            }
        }
    }
}

// Stores four sums over their weight; zeros where there is none.
__device__ __forceinline__ void store_four(bf16 *to, float4 total, float all) {
    float by = all > 0.0f ? 1.0f / all : 0.0f;
    *reinterpret_cast<uint2 *>(to) = make_uint2(to_bf16x2(total.x * by, total.y * by), to_bf16x2(total.z * by, total.w * by));
}

// Merges four elements of one head over its shares, in their order, MERGED of them at a time: a part is `dim` sums, the maximum
// and the weight.
__device__ __forceinline__ void merge_shares(bf16 *to, const float *parts, u32 d, u32 dim, u32 shares) {
    float most = NEGATIVE_INFINITY, all = 0.0f;
    float4 total = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    for (u32 from = 0; from < shares; from += MERGED) {
        float4 sums[MERGED];
        float2 state[MERGED];
        float now = most;
#pragma unroll
        for (int i = 0; i < MERGED; i++) {
            const float *part = parts + (u64)min(from + i, shares - 1) * (dim + 4);
            sums[i] = __ldcg(reinterpret_cast<const float4 *>(part + d));
            state[i] = __ldcg(reinterpret_cast<const float2 *>(part + dim));
        }
#pragma unroll
        for (int i = 0; i < MERGED; i++) {
            if (from + i >= shares) state[i].x = NEGATIVE_INFINITY;
            now = fmaxf(now, state[i].x);
        }
        float rescale = most == NEGATIVE_INFINITY ? 0.0f : exp2_fast(most - now);
        most = now;
        all *= rescale;
        total = make_float4(total.x * rescale, total.y * rescale, total.z * rescale, total.w * rescale);
#pragma unroll
        for (int i = 0; i < MERGED; i++) {
            float factor = state[i].x == NEGATIVE_INFINITY ? 0.0f : exp2_fast(state[i].x - now); // empty ones count nothing
            all = fmaf(factor, state[i].y, all);
            total.x = fmaf(factor, sums[i].x, total.x);
            total.y = fmaf(factor, sums[i].y, total.y);
            total.z = fmaf(factor, sums[i].z, total.z);
            total.w = fmaf(factor, sums[i].w, total.w);
        }
    }
    store_four(to, total, all);
}

template <typename E, int DIM> __device__ __forceinline__ void decode(const DecodeArgs<E> a) {
    using S = Shape<E, DIM>;
    using Q = typename Cache<E>::Query;
    constexpr int TOKENS = S::TOKENS, WARPS = S::WARPS, THREADS = WARPS * 32;
    extern __shared__ __align__(128) u8 shared[];
    __shared__ float states[WARPS][2][HEADS]; // maximum and weight of every warp and head
    __shared__ bool last;

    u32 share = blockIdx.x, sequence = blockIdx.z, groups = (a.group + HEADS - 1) / HEADS, heads = a.kv_heads * a.group;
    u32 kv_head = blockIdx.y / groups, first = blockIdx.y % groups * HEADS;
    u32 here = min((u32)HEADS, a.group - first); // query heads of this block
    u64 cell = (u64)sequence * heads + kv_head * a.group + first; // its first output row
    u32 t = threadIdx.x, lane = t % 32, warp = t / 32;
    u32 g = lane / 4, c = lane % 4; // row and column of the matrix instructions' fragments

    let_next_start();
    wait_for_earlier();
    u32 row = a.rows[sequence];
    bool known = row < a.table_rows && holds_ids_of(a.ids, (u64)a.table_rows * a.table_columns, a.pool);
    u32 end = known ? min(a.lengths[sequence], a.table_columns * a.block_tokens) : 0;
    u32 start = a.window && end > a.window ? end - a.window : 0;
    const u32 *ids = a.ids + (u64)(row < a.table_rows ? row : 0) * a.table_columns;
    // The same number of whole tiles a share and warp, the first ones from `start` on.
    u32 first_tile = start / TOKENS, end_tile = (end + TOKENS - 1) / TOKENS;
    // A step takes as long as the merge of about eight shares, and to merge at all as long as two steps.
    u32 steps = (end_tile - first_tile + WARPS - 1) / WARPS, shares = 1;
    while (shares < gridDim.x && shares < steps && shares * shares < 8 * steps && steps > 3) shares++;
    if (share >= shares) return;
    u32 each = ((end_tile - first_tile + shares - 1) / shares + WARPS - 1) / WARPS * WARPS;
    u32 from_tile = first_tile + share * each + warp, to_tile = min(first_tile + (share + 1) * each, end_tile);

    u32 ring = shared_address(shared) + warp * RING * S::BUFFER;
    u64 values = (u64)a.kv_heads * a.block_tokens * DIM; // from a key to its value
    u32 tile = from_tile, slot = 0;
    Place<E, DIM> next = place_of<E, DIM>(a, ids, tile, tile < to_tile ? end : 0, kv_head);
    Place<E, DIM> third = place_of<E, DIM>(a, ids, tile + WARPS, tile + WARPS < to_tile ? end : 0, kv_head);
    u32 pages = pages_of<E, DIM>(next);
    if (tile < to_tile) {
        copy_tile<E, DIM>(ring, next, a.slab, 0, tile, start, end, lane);
        commit_copies();
        copy_tile<E, DIM>(ring + S::BUFFER, next, a.slab, values, tile, start, end, lane);
        commit_copies();
        if (tile + WARPS < to_tile)
            copy_tile<E, DIM>(ring + 2 * S::BUFFER, third, a.slab, 0, tile + WARPS, start, end, lane);
        commit_copies();
    }

    Scales<E, DIM> scales = scales_of<E, DIM>(a, next, tile, start, end, lane);
    // The queries of all heads, as left operands.
    u32 query[DIM / 16][4];
#pragma unroll
    for (int k = 0; k < DIM / 16; k++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            u32 head = g + i % 2 * 8, d = k * 16 + (S::BYTES == 2 ? i / 2 * 8 + c * 2 : c * 4 + i / 2 * 2);
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
        // Keys. Two younger copies may still be on their way: this tile's values and the next one's keys.
        wait_copies<2>();
        __syncwarp();
        u32 buffer = ring + slot * S::BUFFER;
        bool more = tile + WARPS < to_tile;
        next = third;
        u32 beyond = tile + 2 * WARPS;
        third = place_of<E, DIM>(a, ids, beyond, beyond < to_tile ? end : 0, kv_head);
        float score[TOKENS / 8][4];
#pragma unroll
        for (int n = 0; n < TOKENS / 8; n++) {
#pragma unroll
            for (int i = 0; i < 4; i++) score[n][i] = 0.0f;
            score_tokens<E, DIM>(score[n], query, buffer, n * 8, lane);
        }
        __syncwarp(); // everybody has read the keys: the next values go where they were
        if (more) copy_tile<E, DIM>(buffer, next, a.slab, values, tile + WARPS, start, end, lane);
        commit_copies();

        // Softmax over the tile. With scales, the largest of scores plus the logarithm of the value's scale is what all are
        // relative to: then a weight times its scale is at most one, whatever the scales are.
        float of_key[S::SCALED ? TOKENS / 8 : 1][2], of_value[S::SCALED ? TOKENS / 8 : 1][2];
        if constexpr (S::SCALED) {
#pragma unroll
            for (int n = 0; n < TOKENS / 8; n++)
#pragma unroll
                for (int i = 0; i < 2; i++) {
                    u32 from = n * 8 % 32 + c * 2 + i;
                    of_key[n][i] = __shfl_sync(FULL, scales.key[n / 4], from) * a.scale_log2;
                    of_value[n][i] = __shfl_sync(FULL, scales.value[n / 4], from);
                }
            if (more) scales = scales_of<E, DIM>(a, next, tile + WARPS, start, end, lane);
        }
        float now[2] = {most[0], most[1]};
#pragma unroll
        for (int n = 0; n < TOKENS / 8; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                u32 token = tile * TOKENS + n * 8 + c * 2 + i % 2;
                bool there = (pages >> (n / 2) & 1) && token >= start && token < end;
                float s = score[n][i] * (S::SCALED ? of_key[n * S::SCALED][i % 2] : a.scale_log2);
                // The cap is on the natural score; `softcap` and `scale_log2` are both in units of log2(e).
                if (a.softcap > 0.0f) s = a.softcap * tanh_exp(s / a.softcap);
                score[n][i] = there ? s : NEGATIVE_INFINITY;
                now[i / 2] = fmaxf(now[i / 2], S::SCALED ? score[n][i] + log2_fast(fmaxf(of_value[n * S::SCALED][i % 2], 1e-30f)) : score[n][i]);
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
                if (S::SCALED) score[n][i] *= of_value[n * S::SCALED][i % 2];
            }
        if (__any_sync(FULL, rescale[0] != 1.0f || rescale[1] != 1.0f)) {
#pragma unroll
            for (int d = 0; d < DIM / 8; d++)
#pragma unroll
                for (int i = 0; i < 4; i++) sums[d][i] *= rescale[i / 2];
        }

        // Values.
        slot = slot == 2 ? 0 : slot + 1;
        wait_copies<2>();
        __syncwarp();
        buffer = ring + slot * S::BUFFER;
#pragma unroll
        for (int k = 0; k < TOKENS / 16; k++) {
            u32 p[4];
#pragma unroll
            for (int i = 0; i < 4; i++)
                p[i] = to_pair(score[2 * k + i / 2][i % 2 * 2], score[2 * k + i / 2][i % 2 * 2 + 1], (const Q *)nullptr);
            add_values<E, DIM>(sums, p, buffer, k * 16, lane);
        }
        __syncwarp();
        if (beyond < to_tile) copy_tile<E, DIM>(buffer, third, a.slab, 0, beyond, start, end, lane);
        commit_copies();
        slot = slot == 2 ? 0 : slot + 1;
        pages = pages_of<E, DIM>(next);
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
        if (head >= here) continue;
        float top = NEGATIVE_INFINITY;
#pragma unroll
        for (int w = 0; w < WARPS; w++) top = fmaxf(top, states[w][0][head]);
        float factor = most[r] == NEGATIVE_INFINITY ? 0.0f : exp2_fast(most[r] - top);
        float *to = merged + (warp * HEADS + head) * DIM;
#pragma unroll
        for (int d = 0; d < DIM / 8; d++) {
            if constexpr (S::BYTES == 2) {
                float2 pair = make_float2(sums[d][2 * r] * factor, sums[d][2 * r + 1] * factor);
                *reinterpret_cast<float2 *>(to + d * 8 + c * 2) = pair;
            } else {
                to[d / 2 * 16 + c * 4 + d % 2] = sums[d][2 * r] * factor;
                to[d / 2 * 16 + c * 4 + d % 2 + 2] = sums[d][2 * r + 1] * factor;
            }
        }
    }
    __syncthreads();
    for (u32 i = t; i < here * (DIM / 4); i += THREADS) {
        u32 head = i / (DIM / 4), d = i % (DIM / 4) * 4;
        float4 total = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        float all = 0.0f, top = NEGATIVE_INFINITY;
#pragma unroll
        for (int w = 0; w < WARPS; w++) top = fmaxf(top, states[w][0][head]);
#pragma unroll
        for (int w = 0; w < WARPS; w++) {
            float4 it = *reinterpret_cast<const float4 *>(merged + (w * HEADS + head) * DIM + d);
            total = make_float4(total.x + it.x, total.y + it.y, total.z + it.z, total.w + it.w);
            float there = states[w][0][head];
            all += there == NEGATIVE_INFINITY ? 0.0f : states[w][1][head] * exp2_fast(there - top);
        }
        if (shares == 1) {
            store_four(a.out + (cell + head) * DIM + d, total, all);
        } else {
            // By the grid's shares, not this sequence's: each has a place of its own.
            float *part = a.partial + ((cell + head) * gridDim.x + share) * (DIM + 4);
            *reinterpret_cast<float4 *>(part + d) = total;
            if (d == 0) *reinterpret_cast<float2 *>(part + DIM) = make_float2(top, all);
        }
    }
    if (shares == 1) return;

    // The shares of this sequence: the last block to arrive merges them.
    __syncthreads();
    if (t == 0) {
        // What the barrier made visible to this thread, the fence makes visible to whoever sees the count.
        __threadfence();
        u32 *arrived = a.arrived + ((u64)sequence * a.kv_heads + kv_head) * groups + first / HEADS;
        // Wraps to zero at the last one: ready for the next launch.
        last = atomicInc(arrived, shares - 1) == shares - 1;
        __threadfence();
    }
    __syncthreads();
    if (!last) return;
    const float *parts = a.partial + cell * gridDim.x * (DIM + 4);
    for (u32 i = t; i < here * (DIM / 4); i += THREADS) {
        u32 head = i / (DIM / 4), d = i % (DIM / 4) * 4;
        merge_shares(a.out + (cell + head) * DIM + d, parts + (u64)head * gridDim.x * (DIM + 4), d, DIM, shares);
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
        bf16 *out, float *partial, u32 *arrived, const Cache<KV>::Query *q, const KV *slab, const u32 *ids, const u32 *rows,         \
        const u32 *lengths, u64 pool, u64 block_stride, u64 layer_base, u32 block_tokens, u32 table_rows,              \
        u32 table_columns, u32 kv_heads, u32 group, u32 window, float scale_log2, float softcap) {                     \
        decode<KV, DIM>(DecodeArgs<KV>{out, partial, arrived, q, slab, ids, rows, lengths, pool, block_stride,         \
                                       layer_base, block_tokens, table_rows, table_columns, kv_heads, group, window,   \
                                       scale_log2, softcap});                                                          \
    }

ENTRY(bf16, 64, 128, 4)
ENTRY(bf16, 128, 128, 3)
ENTRY(bf16, 256, 128, 2)
ENTRY(f8, 64, 128, 2)
ENTRY(f8, 128, 128, 3)
ENTRY(f8, 256, 128, 2)
ENTRY(f16, 64, 128, 4)
ENTRY(f16, 128, 128, 3)
ENTRY(f16, 256, 128, 2)
