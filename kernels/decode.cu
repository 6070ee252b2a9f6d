// Paged decode attention: one query a sequence, keys and values in pages. One block handles one sequence, one key/value
// head with up to eight or sixteen of its query heads, and one share of the tokens. Blocks of a sequence's shares leave partial results;
// the last one to arrive merges them in the order of the shares, so the result does not depend on timing.
//
// The shares are made on the device from the real lengths: the grid is fixed, and a graph may replay it for any lengths. A short
// sequence has fewer shares than the grid: merging them would take longer than they save.
//
// Inside of a block every warp works for itself: it takes every WARPS-th tile of tokens, copies keys and values into buffers of its
// own, the next tile's as soon as this one's are used, multiplies on the tensor cores, and keeps its own softmax state and sums. There is one
// barrier, before the warps are merged at the end. Then each warp has a part of the sums, leaves it to the other blocks and counts
// itself: the last one of those with the same part merges it.
//
// Keys and values are the left operands, whose rows are 16 tokens or 16 elements; query heads are the columns, eight of a product. So few
// heads waste less of a product, and a lane has half as many scores and sums as with heads for rows. More than eight heads are two products.
#include "common.cuh"
#include "decode_tile.cuh"
#define AT_ONCE 2048 // warps that a large device has at once

// Stores four sums over their weight; zeros where there is none.
__device__ __forceinline__ void store_four(bf16 *to, float4 total, float all) {
    float by = all > 0.0f ? 1.0f / all : 0.0f;
    *reinterpret_cast<uint2 *>(to) = make_uint2(to_bf16x2(total.x * by, total.y * by), to_bf16x2(total.z * by, total.w * by));
}

// Merges four elements of one head over its shares, in their order, MERGED of them at a time: a part is `dim` sums, and for each 128
// of them, which one warp left, the maximum and the weight.
template <int MERGED>
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
            state[i] = __ldcg(reinterpret_cast<const float2 *>(part + dim + d / 128 * 2));
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

// COLUMNS: products side by side, of eight heads each. FOUR: there are at most four heads, and each is two columns, as many as there are groups of 16 elements in the rows of a product of NVFP4.
// So weights take the scales of groups in place of values, of which there are eight times as many.
template <typename E, int DIM, int COLUMNS, bool FOUR = false> __device__ __forceinline__ void decode(const DecodeArgs<E> a) {
    using S = Shape<E, DIM>;
    using Q = typename Cache<E>::Query;
    constexpr int TOKENS = S::TOKENS, WARPS = Block<E, DIM, COLUMNS, FOUR>::WARPS, THREADS = WARPS * 32;
    constexpr int MINE = FOUR ? 4 : 8 * COLUMNS; // heads of this block
    // Bytes of a warp: a tile, or what it leaves to the others.
    constexpr int EACH = 2 * S::SLOT > MINE * S::PART * 4 ? 2 * S::SLOT : MINE * S::PART * 4;
    static_assert(EACH % 128 == 0, "buffers begin at multiples of 128");
    extern __shared__ __align__(128) u8 shared[];
    __shared__ float states[WARPS][2][MINE]; // maximum and weight of every warp and head

    u32 share = blockIdx.x, sequence = blockIdx.z, groups = (a.group + MINE - 1) / MINE, heads = a.kv_heads * a.group;
    u32 kv_head = blockIdx.y / groups, first = blockIdx.y % groups * MINE;
    u32 here = min((u32)MINE, a.group - first); // of them are there
    u64 cell = (u64)sequence * heads + kv_head * a.group + first; // its first output row
    u32 t = threadIdx.x, lane = t % 32, warp = t / 32;
    u32 g = lane / 4, c = lane % 4; // row and column of the matrix instructions' fragments

    // The grid fills whole multiprocessors evenly (the wrapper sees to that), so blocks of the next one come as these go.
    let_next_start();
    // Meanwhile they find out where their first tiles are, and call for the first of them. What says so may be written by the kernel in
    // front, so this is what was there before or what will be. Ids always name blocks of the pool, since no kernel writes them: what
    // they name can be copied as soon as the kernels in front are done, and is copied again if it was not what was to be copied.
    Asked asked = asked_of(a, Past{}, sequence);
    Share work = share_of<E, DIM, WARPS>(a, asked, share, warp);
    Cursor step = cursor_of<E, DIM>(a, WARPS), cursor = cursor_of<E, DIM>(a, work.from_tile), again = cursor;
    Place<E, DIM> place = place_of<E, DIM>(a, Past{}, work, cursor, step, work.from_tile, kv_head);
    // (Blocks of a later wave do not wait.)
    if ((blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x < AT_ONCE / WARPS) prefetch_tile<E, DIM>(a, place, lane);
    wait_for_earlier();
    u32 keys = shared_address(shared) + warp * EACH, values = keys + S::SLOT;
    auto copy = [&](u32 tile) {
        bool there = tile < work.to_tile;
        if (there) copy_tile<E, DIM, false>(a, keys, place, tile, work.start, work.end, lane);
        commit_copies();
        if (there) copy_tile<E, DIM, true>(a, values, place, tile, work.start, work.end, lane);
        commit_copies();
    };
    copy(work.from_tile);

    // The queries of all heads, as right operands.
    u32 query[COLUMNS][DIM / 16][2];
    // Rows are elements of values, columns heads 2c and 2c + 1.
    float sums[COLUMNS][DIM / 16][4];
    // Of those heads; a weight is this lane's part of it.
    float most[COLUMNS][2], weight[COLUMNS][2];
#pragma unroll
    for (int m = 0; m < COLUMNS; m++) {
        u32 head = m * 8 + (FOUR ? g % 4 : g);
#pragma unroll
        for (int k = 0; k < DIM / 16; k++)
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const Q *from = a.q + (cell + head) * DIM + query_element<E, DIM>(k, i, c);
                query[m][k][i] = head < here ? *reinterpret_cast<const u32 *>(from) : 0;
            }
#pragma unroll
        for (int d = 0; d < DIM / 16; d++)
#pragma unroll
            for (int i = 0; i < 4; i++) sums[m][d][i] = 0.0f;
        most[m][0] = most[m][1] = NEGATIVE_INFINITY;
        weight[m][0] = weight[m][1] = 0.0f;
    }

    // Was it that?
    Asked now = asked_of(a, Present{}, sequence);
    bool same = place.same(place_of<E, DIM>(a, Present{}, work, again, step, work.from_tile, kv_head));
    if (!(now.same(asked) & same)) {
        wait_copies<0>();
        __syncwarp();
        work = share_of<E, DIM, WARPS>(a, now, share, warp);
        cursor = cursor_of<E, DIM>(a, work.from_tile);
        place = place_of<E, DIM>(a, Present{}, work, cursor, step, work.from_tile, kv_head);
        copy(work.from_tile);
    }
    if (share >= work.shares) return;
    u32 shares = work.shares, start = work.start, end = work.end, to_tile = work.to_tile;

    for (u32 tile = work.from_tile; tile < to_tile; tile += WARPS) {
        // Keys. This tile's values may still be on their way.
        wait_copies<1>();
        __syncwarp();
        // The next tile takes this one's place.
        u32 later = tile + WARPS, pages = place.pages();
        bool whole = place.whole;
        place = place_of<E, DIM>(a, Present{}, work, cursor, step, later, kv_head);
        // Rows are tokens g and g + 8 of 16, columns heads.
        float score[COLUMNS][TOKENS / 16][4], of_value[TOKENS / 16][2];
#pragma unroll
        for (int n = 0; n < TOKENS / 16; n++) {
            float tokens[COLUMNS][4] = {};
            score_tokens<E, DIM, COLUMNS>(tokens, query, keys, n * 16, lane);
#pragma unroll
            for (int late = 0; late < 2; late++) {
                float by = a.scale_log2 * Cache<E>::TIMES;
                if constexpr (S::SCALED) {
                    u32 scales = keys + S::SCALES + (n * 16 + late * 8 + g) * 4;
                    by *= __uint_as_float(load_shared_word(scales));
                    of_value[n][late] = __uint_as_float(load_shared_word(scales + TOKENS * 4));
                }
#pragma unroll
                for (int m = 0; m < COLUMNS; m++)
#pragma unroll
                    for (int r = 0; r < 2; r++) score[m][n][2 * late + r] = tokens[m][2 * late + r] * by;
            }
        }
        __syncwarp(); // everybody has read the keys
        if (later < to_tile) copy_tile<E, DIM, false>(a, keys, place, later, start, end, lane);
        commit_copies();

        // The cap is on the natural score; `softcap` and `scale_log2` are both in units of log2(e).
        if (a.softcap > 0.0f) {
            float inward = __fdividef(1.0f, a.softcap);
#pragma unroll
            for (int m = 0; m < COLUMNS; m++)
#pragma unroll
                for (int n = 0; n < TOKENS / 16; n++)
#pragma unroll
                    for (int i = 0; i < 4; i++) score[m][n][i] = a.softcap * tanh_exp(score[m][n][i] * inward);
        }
        if (!whole) {
#pragma unroll
            for (int n = 0; n < TOKENS / 16; n++)
#pragma unroll
                for (int late = 0; late < 2; late++) {
                    u32 token = tile * TOKENS + n * 16 + late * 8 + g;
                    if (pages >> n & 1 && token >= start && token < end) continue;
#pragma unroll
                    for (int m = 0; m < COLUMNS; m++) score[m][n][2 * late] = score[m][n][2 * late + 1] = NEGATIVE_INFINITY;
                    if (S::SCALED) of_value[n][late] = 1.0f;
                }
        }
        // Softmax over the tile. With scales, the largest of scores plus the logarithm of the value's scale is what all are
        // relative to: then a weight times its scale is small, whatever the scales are. What they are relative to follows only when it
        // grew by more than 2^8, or 2^4: until then the sums need no rescaling.
        float now[COLUMNS][2], rescale[COLUMNS][2];
#pragma unroll
        for (int m = 0; m < COLUMNS; m++) now[m][0] = now[m][1] = NEGATIVE_INFINITY;
#pragma unroll
        for (int n = 0; n < TOKENS / 16; n++)
#pragma unroll
            for (int late = 0; late < 2; late++) {
                float log = S::SCALED ? log2_fast(fmaxf(of_value[n][late], 1e-30f)) : 0.0f;
#pragma unroll
                for (int m = 0; m < COLUMNS; m++)
#pragma unroll
                    for (int r = 0; r < 2; r++) {
                        float with = score[m][n][2 * late + r];
                        if (S::SCALED) with += log;
                        now[m][r] = fmaxf(now[m][r], with);
                    }
            }
#pragma unroll
        for (int step = 4; step < 32; step *= 2)
#pragma unroll
            for (int m = 0; m < COLUMNS; m++)
#pragma unroll
                for (int r = 0; r < 2; r++) now[m][r] = fmaxf(now[m][r], __shfl_xor_sync(FULL, now[m][r], step));
        bool grown = false;
#pragma unroll
        for (int m = 0; m < COLUMNS; m++)
#pragma unroll
            for (int r = 0; r < 2; r++) {
                bool higher = now[m][r] > most[m][r] + (FOUR ? 4.0f : 8.0f); // scales of groups are up to 448
                grown |= higher;
                rescale[m][r] = higher ? exp2_fast(most[m][r] - now[m][r]) : 1.0f;
                if (higher) most[m][r] = now[m][r];
                weight[m][r] *= rescale[m][r];
                now[m][r] = most[m][r] == NEGATIVE_INFINITY ? 0.0f : most[m][r]; // no token yet: everything below is 2^-inf
            }
        if (__any_sync(FULL, grown)) {
#pragma unroll
            for (int m = 0; m < COLUMNS; m++)
#pragma unroll
                for (int d = 0; d < DIM / 16; d++)
#pragma unroll
                    for (int i = 0; i < 4; i++) sums[m][d][i] *= rescale[m][i % 2];
        }
        // The weights, as right operands: heads are columns, so 8 x 8 of them are transposed.
        u32 p[TOKENS / 16][COLUMNS][2];
#pragma unroll
        for (int n = 0; n < TOKENS / 16; n++)
#pragma unroll
            for (int m = 0; m < COLUMNS; m++)
#pragma unroll
                for (int late = 0; late < 2; late++) {
                    float low = exp2_fast(score[m][n][2 * late] - now[m][0]);
                    float high = exp2_fast(score[m][n][2 * late + 1] - now[m][1]);
                    weight[m][0] += low;
                    weight[m][1] += high;
                    if (S::SCALED) low *= of_value[n][late], high *= of_value[n][late];
                    p[n][m][late] = transposed(to_pair(low, high, (const Q *)nullptr));
                }

        // Values.
        wait_copies<1>();
        __syncwarp();
#pragma unroll
        for (int n = 0; n < TOKENS / 16; n++) add_values<E, DIM, COLUMNS, FOUR>(sums, p[n], values, n * 16, lane);
        __syncwarp();
        if (later < to_tile) copy_tile<E, DIM, true>(a, values, place, later, start, end, lane);
        commit_copies();
    }

    // The warps of this block leave their sums where their tiles were.
    float *left = reinterpret_cast<float *>(shared); // [MINE][PART] of each warp
    wait_copies<0>();
    __syncwarp();
#pragma unroll
    for (int m = 0; m < COLUMNS; m++)
#pragma unroll
        for (int r = 0; r < 2; r++) {
            u32 head = m * 8 + 2 * c + r;
#pragma unroll
            for (int step = 4; step < 32; step *= 2) weight[m][r] += __shfl_xor_sync(FULL, weight[m][r], step);
            if (g == 0 && head < MINE) {
                states[warp][0][head] = most[m][r];
                states[warp][1][head] = weight[m][r];
            }
            if (FOUR) {
                if (g / 4 != c / 2) continue; // of the other group's scales
                head %= 4;
            }
            if (head >= here) continue;
            float *to = left + warp * (EACH / 4) + head * S::PART;
#pragma unroll
            for (int d = 0; d < DIM / 16; d++)
#pragma unroll
                for (int late = 0; late < 2; late++) to[value_element<E>(d, g, late)] = sums[m][d][2 * late + r] * Cache<E>::TIMES;
        }
    __syncthreads();
    // In order.
    for (u32 i = t; i < here * (DIM / 4); i += THREADS) {
        u32 head = i / (DIM / 4), d = i % (DIM / 4) * 4;
        float4 total = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        float all = 0.0f, top = NEGATIVE_INFINITY;
#pragma unroll
        for (int w = 0; w < WARPS; w++) top = fmaxf(top, states[w][0][head]);
#pragma unroll
        for (int w = 0; w < WARPS; w++) {
            float4 it = *reinterpret_cast<const float4 *>(left + w * (EACH / 4) + head * S::PART + d);
            float there = states[w][0][head], factor = there == NEGATIVE_INFINITY ? 0.0f : exp2_fast(there - top);
            total.x = fmaf(factor, it.x, total.x);
            total.y = fmaf(factor, it.y, total.y);
            total.z = fmaf(factor, it.z, total.z);
            total.w = fmaf(factor, it.w, total.w);
            all = fmaf(factor, states[w][1][head], all);
        }
        if (shares == 1) {
            store_four(a.out + (cell + head) * DIM + d, total, all);
        } else {
            // By the grid's shares, not this sequence's: each has a place of its own.
            float *part = a.partial + ((cell + head) * gridDim.x + share) * (DIM + 4);
            *reinterpret_cast<float4 *>(part + d) = total;
            if (d % 128 == 0) *reinterpret_cast<float2 *>(part + DIM + d / 128 * 2) = make_float2(top, all);
        }
    }
    if (shares == 1 || warp * 32 >= here * (DIM / 4)) return;

    // The shares of this sequence. A warp has the same part of the sums in every block: the last one to arrive merges it.
    __syncwarp();
    u32 before = 0;
    if (lane == 0) {
        u32 *arrived = a.arrived + (((u64)sequence * a.kv_heads + kv_head) * groups + first / MINE) * WARPS + warp;
        // Wraps to zero at the last one: ready for the next launch.
        before = arrive(arrived, shares - 1);
    }
    if (__shfl_sync(FULL, before, 0) != shares - 1) return;
    __syncwarp();
    const float *parts = a.partial + cell * gridDim.x * (DIM + 4);
    for (u32 i = t; i < here * (DIM / 4); i += THREADS) {
        u32 head = i / (DIM / 4), d = i % (DIM / 4) * 4;
        bf16 *to = a.out + (cell + head) * DIM + d;
        const float *part = parts + (u64)head * gridDim.x * (DIM + 4);
        if (shares <= 4)
            merge_shares<4>(to, part, d, DIM, shares);
        else if (shares <= 8)
            merge_shares<8>(to, part, d, DIM, shares);
        else
            merge_shares<16>(to, part, d, DIM, shares);
    }
}

// Blocks of a multiprocessor: what shared memory allows, and registers on the larger device.
#if __CUDA_ARCH__ >= 1200
#define RESIDENT(BLOCKS) (BLOCKS < 2 ? BLOCKS : 2)
#else
#define RESIDENT(BLOCKS) BLOCKS
#endif

#define ENTRY(KV, NAME, DIM, HOW, BLOCKS)                                                                              \
    extern "C" __global__ void __launch_bounds__(Block<KV, DIM, HOW>::WARPS * 32, RESIDENT(BLOCKS))                    \
        paged_decode_##KV##_##NAME(                                                                                    \
        bf16 *out, float *partial, u32 *arrived, const Cache<KV>::Query *q, const KV *slab, const u32 *ids, const u32 *rows,         \
        const u32 *lengths, u64 pool, u64 block_stride, u64 layer_base, u32 block_tokens, u32 table_rows,              \
        u32 table_columns, u32 kv_heads, u32 group, u32 window, float scale_log2, float softcap) {                     \
        decode<KV, DIM, HOW>(DecodeArgs<KV>{out, partial, arrived, q, slab, ids, rows, lengths, pool, block_stride, \
                                                layer_base, block_tokens, table_rows, table_columns, kv_heads, group,  \
                                                window, scale_log2, softcap});                                         \
    }

ENTRY(bf16, d64, 64, 1, 4)
ENTRY(bf16, d128, 128, 1, 2)
ENTRY(bf16, d256, 256, 1, 1)
ENTRY(f8, d64, 64, 1, 3)
ENTRY(f8, d128, 128, 1, 4)
ENTRY(f8, d256, 256, 1, 2)
ENTRY(f16, d64, 64, 1, 4)
ENTRY(f16, d128, 128, 1, 2)
ENTRY(f16, d256, 256, 1, 1)
ENTRY(i8, d64, 64, 1, 3)
ENTRY(i8, d128, 128, 1, 4)
ENTRY(i8, d256, 256, 1, 2)
ENTRY(f4x2, d64, 64, 1, 3)
ENTRY(f4x2, d128, 128, 1, 3)
ENTRY(f4x2, d256, 256, 1, 2)
// For at most four heads to a key/value head.
#define FOUR_HEADS 1, true
ENTRY(f4x2, d64_four, 64, FOUR_HEADS, 3)
ENTRY(f4x2, d128_four, 128, FOUR_HEADS, 3)
ENTRY(f4x2, d256_four, 256, FOUR_HEADS, 2)
// For more than eight heads to a key/value head.
ENTRY(bf16, d128_wide, 128, 2, 1)
ENTRY(f8, d128_wide, 128, 2, 1)
ENTRY(f16, d128_wide, 128, 2, 1)
ENTRY(i8, d128_wide, 128, 2, 1)
ENTRY(f4x2, d128_wide, 128, 2, 1)
