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
#include "decode_tile.cuh"
#define MERGED 8 // shares that are merged at a time

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

    // The grid fills whole multiprocessors evenly (the wrapper sees to that), so blocks of the next one come as these go.
    let_next_start();
    // Meanwhile the first tiles come into the second-level cache. What says where they are may be written by the kernel in front, so
    // this is what was there before or what will be: nothing but where it is worth looking depends on it. Ids always name blocks of
    // the pool, since no kernel writes them.
    // (With heads of 256 elements there are no registers for it.)
    if (DIM < 256) prefetch_first<E, DIM>(a, work_of<E, DIM>(a, Past{}, sequence, share, warp), kv_head, lane);
    wait_for_earlier();
    Share<E> work = work_of<E, DIM>(a, Present{}, sequence, share, warp);
    if (share >= work.shares) return;
    u32 shares = work.shares, start = work.start, end = work.end, to_tile = work.to_tile;
    const u32 *ids = work.ids;

    u32 ring = shared_address(shared) + warp * RING * S::SLOT;
    u64 values = (u64)a.kv_heads * a.block_tokens * S::UNITS; // from a key to its value
    u32 tile = work.from_tile, slot = 0;
    Place<E, DIM> next = place_of<E, DIM>(a, ids, tile, tile < to_tile ? end : 0, kv_head);
    Place<E, DIM> third = place_of<E, DIM>(a, ids, tile + WARPS, tile + WARPS < to_tile ? end : 0, kv_head);
    u32 pages = pages_of<E, DIM>(next);
    if (tile < to_tile) {
        copy_tile<E, DIM>(a, ring, next, 0, tile, start, end, lane);
        commit_copies();
        copy_tile<E, DIM>(a, ring + S::SLOT, next, values, tile, start, end, lane);
        commit_copies();
        if (tile + WARPS < to_tile)
            copy_tile<E, DIM>(a, ring + 2 * S::SLOT, third, 0, tile + WARPS, start, end, lane);
        commit_copies();
    }

    Scales<E, DIM> scales = scales_of<E, DIM>(a, next, tile, start, end, lane);
    // The queries of all heads, as left operands.
    u32 query[DIM / 16][4];
#pragma unroll
    for (int k = 0; k < DIM / 16; k++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            u32 head = g + i % 2 * 8, d = query_element<E>(k, i, c);
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
        u32 buffer = ring + slot * S::SLOT;
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
        if (more) copy_tile<E, DIM>(a, buffer, next, values, tile + WARPS, start, end, lane);
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
        buffer = ring + slot * S::SLOT;
#pragma unroll
        for (int k = 0; k < TOKENS / 16; k++) {
            u32 p[4];
#pragma unroll
            for (int i = 0; i < 4; i++)
                p[i] = to_pair(score[2 * k + i / 2][i % 2 * 2], score[2 * k + i / 2][i % 2 * 2 + 1], (const Q *)nullptr);
            add_values<E, DIM>(sums, p, buffer, k * 16, lane);
        }
        __syncwarp();
        if (beyond < to_tile) copy_tile<E, DIM>(a, buffer, third, 0, beyond, start, end, lane);
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
            float *at = to + value_element<E>(d, c);
            if constexpr (Apart<E>::BY == 1) {
                *reinterpret_cast<float2 *>(at) = make_float2(sums[d][2 * r] * factor, sums[d][2 * r + 1] * factor);
            } else {
                at[0] = sums[d][2 * r] * factor;
                at[Apart<E>::BY] = sums[d][2 * r + 1] * factor;
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
        u32 *arrived = a.arrived + ((u64)sequence * a.kv_heads + kv_head) * groups + first / HEADS;
        // Wraps to zero at the last one: ready for the next launch.
        last = arrive(arrived, shares - 1) == shares - 1;
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
ENTRY(i8, 64, 128, 2)
ENTRY(i8, 128, 128, 3)
ENTRY(i8, 256, 128, 2)
ENTRY(f4x2, 64, 128, 2)
ENTRY(f4x2, 128, 128, 2)
