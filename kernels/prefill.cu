// Paged prefill attention: any tokens of any sequences, each sees its own sequence up to itself. One block takes QUERIES
// tokens of the pass and one query head; the tokens of one sequence that stand together are one run, and the block goes
// over the keys of each run. Keys and values come in tiles through two buffers, the next tile while this one is worked on;
// the softmax is the online one, all products are on the tensor cores.
//
// A tile that all queries of a warp see whole is not masked, one that none of them sees is skipped.
//
// Tiles of fewer than 16 bits come as they are, through two smaller buffers, and each is widened to f16 into one place before it is worked
// on, times the scales of its groups, and keys times those of whole keys. Scales of whole values are multiplied to weights: what is small
// of all values may be all that a query sees.
#include "common.cuh"
#include "prefill_tile.cuh"

template <typename E, int DIM> __device__ __forceinline__ void prefill(const PrefillArgs<E> a) {
    using T = Tile<E, DIM>;
    using Q = typename Cache<E>::Query;
    constexpr bool SCALED = Cache<E>::SCALED;
    constexpr int PARTS = T::PARTS, KEYS = T::KEYS, LINES = T::LINES;
    float scale_log2 = a.scale_log2 * Widened<E>::KEYS;
    extern __shared__ __align__(1024) u8 shared[];
    __shared__ u32 row_of[T::QUERIES], position_of[T::QUERIES];
    __shared__ const E *places[4][T::GROUPS];
    // Of each warp: tokens from x on, and before y, are seen by none of its queries; those from z on and before w by all.
    __shared__ uint4 sight[T::WARPS];
    __shared__ const u32 *ids_of_run;
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, c = lane % 4;
    // Heads that share keys run together. Late tokens see the most: they start first.
    u32 first = (gridDim.y - 1 - blockIdx.y) * T::QUERIES, head = blockIdx.x, kv_head = head / a.group;
    u32 heads = a.kv_heads * a.group, count = min((u32)T::QUERIES, a.tokens - first);
    for (u32 i = threadIdx.x; i < T::QUERIES; i += T::THREADS) {
        row_of[i] = i < count ? a.rows[first + i] : HOLE;
        position_of[i] = i < count ? a.positions[first + i] : 0;
    }
    u32 base = shared_address(shared) + T::SHARED_Q, my_line = warp * LINES;

    // The queries: as left operands in registers, or rows in shared memory.
    u32 query[T::HELD ? PARTS : 1][T::HELD ? DIM / 16 : 1][4];
    const Q *queries = a.q + ((u64)first * heads + head) * DIM;
    if (T::HELD) {
#pragma unroll
        for (int m = 0; m < PARTS; m++)
#pragma unroll
            for (int k = 0; k < DIM / 16; k++)
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    u32 line = my_line + m * 16 + g + i % 2 * 8, d = k * 16 + i / 2 * 8 + c * 2;
                    const Q *from = queries + (u64)line * heads * DIM + d;
                    query[m * T::HELD][k * T::HELD][i] = line < count ? *reinterpret_cast<const u32 *>(from) : 0;
                }
    } else {
        for (u32 i = threadIdx.x; i < T::QUERIES * T::CHUNKS; i += T::THREADS) {
            u32 line = i / T::CHUNKS, chunk = i % T::CHUNKS;
            const Q *from = queries + (line < count ? (u64)line * heads * DIM + chunk * 8 : 0);
            copy16_async(at<DIM>(shared_address(shared), line, chunk), from, line < count ? 16 : 0);
        }
        commit_copies();
    }
    __syncthreads();
    bool known = holds_ids_of(a.ids, (u64)a.table_rows * a.table_columns, a.pool);

    float sums[PARTS][DIM / 8][4];
    // Of lines g and g + 8 of each part; a weight is this lane's part of it.
    float most[PARTS][2], weight[PARTS][2];
#pragma unroll
    for (int m = 0; m < PARTS; m++) {
        most[m][0] = most[m][1] = NEGATIVE_INFINITY;
        weight[m][0] = weight[m][1] = 0.0f;
#pragma unroll
        for (int d = 0; d < DIM / 8; d++)
#pragma unroll
            for (int i = 0; i < 4; i++) sums[m][d][i] = 0.0f;
    }
    for (u32 from = 0, to = 0; from < count; from = to) {
        u32 row = row_of[from], lowest = HOLE, highest = 0;
        // And of this warp's queries in it.
        u32 warp_lowest = HOLE, warp_highest = 0;
        for (to = from; to < count && row_of[to] == row; to++) {
            u32 position = position_of[to];
            lowest = min(lowest, position);
            highest = max(highest, position);
            if (to >= my_line && to < my_line + LINES) {
                warp_lowest = min(warp_lowest, position);
                warp_highest = max(warp_highest, position);
            }
        }
        if (!known || row >= a.table_rows) continue;
        u32 end = min(highest + 1, a.table_columns * a.block_tokens);
        u32 start = a.window && lowest + 1 > a.window ? lowest + 1 - a.window : 0;
        u32 tile = start / KEYS, tiles = (end + KEYS - 1) / KEYS;

        // The ids of a tile are looked up three tiles ahead, and known to the block from two tiles ahead on.
        auto id_of = [&](u32 tile) {
            u32 token = tile * KEYS + threadIdx.x * 16;
            return token < end ? ids_of_run[token / a.block_tokens] : HOLE;
        };
        u32 ahead = HOLE;
        __syncthreads(); // places and buffers are free
        if (threadIdx.x == 0) ids_of_run = a.ids + (u64)row * a.table_columns;
        __syncwarp(); // the threads that read it are of this warp
        if (lane == 0) {
            bool in = warp_lowest != HOLE, whole = from <= my_line && to >= my_line + LINES;
            u32 window = a.window ? a.window : HOLE;
            sight[warp] = make_uint4(in ? warp_highest + 1 : 0, in && warp_lowest >= window ? warp_lowest + 1 - window : 0,
                                     warp_highest >= window ? warp_highest + 1 - window : 0,
                                     whole ? min(warp_lowest + 1, end) : 0);
        }
        if (threadIdx.x < T::GROUPS) {
#pragma unroll
            for (int i = 0; i < 2; i++)
                places[(tile + i) & 3][threadIdx.x] =
                    place_of<E, DIM>(a, id_of(tile + i), kv_head, (tile + i) * KEYS + threadIdx.x * 16);
            ahead = id_of(tile + 2);
        }
        __syncthreads();
        u32 stage = 0;
        // The keys and values of a tile, into the buffers of `stage`.
        auto copy = [&](u32 stage, u32 tile) {
            if constexpr (T::WIDENED)
                copy_raw<E, DIM>(a, base, stage, places[tile & 3], kv_head, tile, end - tile * KEYS);
            else
                copy_tile<E, DIM>(a, base + stage * 2 * T::BUFFER, places[tile & 3], end - tile * KEYS);
        };
        if (tile < tiles) copy(0, tile);
        commit_copies();
        for (; tile < tiles; tile++, stage ^= 1) {
            wait_copies<0>();
            __syncthreads(); // the tile is there, and the other buffer is free
            if (tile + 1 < tiles) copy(stage ^ 1, tile + 1);
            commit_copies();
            if constexpr (T::WIDENED) {
                widen<E, DIM>(base, stage);
                __syncthreads(); // the tile is there in f16
            }
            if (threadIdx.x < T::GROUPS) {
                places[(tile + 2) & 3][threadIdx.x] =
                    place_of<E, DIM>(a, ahead, kv_head, (tile + 2) * KEYS + threadIdx.x * 16);
                ahead = id_of(tile + 3);
            }
            u32 low = tile * KEYS; // the tile's first token
            if (low >= sight[warp].x || low + KEYS <= sight[warp].y) continue;
            // This lane's row of a matrix load of keys, and of values; turned to other chunks of it by an exclusive or: rows begin at
            // multiples of their size.
            u32 buffers = base + (T::WIDENED ? 0 : stage * 2 * T::BUFFER);
            u32 keys = at<DIM>(buffers, lane / 16 * 8 + lane % 8, lane / 8 % 2);
            u32 values = at<DIM>(buffers + T::BUFFER, lane % 16, lane / 16);
            // Of this lane's tokens: 8 n + 2 c and the next.
            u32 scales = T::scales(base, stage) + c * 8;
            u32 lines = at<DIM>(shared_address(shared), my_line + lane % 16, lane / 16);

            float score[PARTS][KEYS / 8][4];
#pragma unroll
            for (int m = 0; m < PARTS; m++)
#pragma unroll
                for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
                    for (int i = 0; i < 4; i++) score[m][n][i] = 0.0f;
#pragma unroll
            for (int k = 0; k < DIM / 16; k++) {
                u32 left[PARTS][4];
#pragma unroll
                for (int m = 0; m < PARTS; m++) {
                    if (T::HELD) {
#pragma unroll
                        for (int i = 0; i < 4; i++) left[m][i] = query[m * T::HELD][k * T::HELD][i];
                    } else {
                        load_matrices(left[m], (lines ^ (k * 32)) + m * 16 * T::ROW);
                    }
                }
#pragma unroll
                for (int n = 0; n < KEYS / 16; n++) {
                    u32 key[4];
                    load_matrices(key, (keys ^ (k * 32)) + n * 16 * T::ROW);
#pragma unroll
                    for (int m = 0; m < PARTS; m++) {
                        multiply(score[m][2 * n], left[m], key[0], key[1], a.q);
                        multiply(score[m][2 * n + 1], left[m], key[2], key[3], a.q);
                    }
                }
            }

            if (a.softcap > 0.0f) {
                float inward = __fdividef(scale_log2, a.softcap), outward = __fdividef(a.softcap, scale_log2);
#pragma unroll
                for (int m = 0; m < PARTS; m++)
#pragma unroll
                    for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
                        for (int i = 0; i < 4; i++) score[m][n][i] = tanh_exp(score[m][n][i] * inward) * outward;
            }
            u32 holes = 0;
#pragma unroll
            for (int i = 0; i < T::GROUPS; i++) holes |= places[tile & 3][i] ? 0 : 1 << i;
            if (holes || low < sight[warp].z || low + KEYS > sight[warp].w) {
#pragma unroll
                for (int m = 0; m < PARTS; m++)
#pragma unroll
                    for (int r = 0; r < 2; r++) {
                        u32 line = my_line + m * 16 + g + r * 8, position = position_of[line];
                        // Tokens from `begin` to `behind`: none for a query of another run.
                        bool in_run = line >= from && line < to;
                        u32 behind = in_run ? min(position + 1, end) : 0;
                        u32 begin = a.window && position + 1 > a.window ? position + 1 - a.window : 0;
#pragma unroll
                        for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
                            for (int i = 0; i < 2; i++) {
                                u32 token = low + n * 8 + c * 2 + i;
                                bool there = token >= begin && token < behind && !(holes >> (n / 2) & 1);
                                if (!there) score[m][n][2 * r + i] = NEGATIVE_INFINITY;
                            }
                    }
            }

            // What scores are relative to follows their maximum only when that grew by more than 2^8: until then weights stay small
            // enough, and the sums need no rescaling. With scales it is the maximum of scores plus the logarithm of the value's scale:
            // then weights times their scales stay small, whatever the scales are.
            float now[PARTS][2], rescale[PARTS][2];
            bool grown = false;
            if constexpr (SCALED) {
#pragma unroll
                for (int m = 0; m < PARTS; m++) now[m][0] = now[m][1] = NEGATIVE_INFINITY;
#pragma unroll
                for (int n = 0; n < KEYS / 8; n++) {
                    float2 of_value = load_shared_pair(scales + KEYS * 4 + n * 32);
                    float logs[2] = {log2_fast(fmaxf(of_value.x, 1e-30f)), log2_fast(fmaxf(of_value.y, 1e-30f))};
#pragma unroll
                    for (int m = 0; m < PARTS; m++)
#pragma unroll
                        for (int i = 0; i < 4; i++) {
                            float with = fmaf(score[m][n][i], scale_log2, logs[i % 2]);
                            now[m][i / 2] = fmaxf(now[m][i / 2], with);
                        }
                }
            } else {
#pragma unroll
                for (int m = 0; m < PARTS; m++)
#pragma unroll
                    for (int r = 0; r < 2; r++) now[m][r] = fmaxf(score[m][0][2 * r], score[m][0][2 * r + 1]);
#pragma unroll
                for (int n = 1; n < KEYS / 8; n++)
#pragma unroll
                    for (int m = 0; m < PARTS; m++)
#pragma unroll
                        for (int r = 0; r < 2; r++)
                            now[m][r] = fmaxf(now[m][r], fmaxf(score[m][n][2 * r], score[m][n][2 * r + 1]));
            }
#pragma unroll
            for (int step = 1; step < 4; step *= 2)
#pragma unroll
                for (int m = 0; m < PARTS; m++)
#pragma unroll
                    for (int r = 0; r < 2; r++) now[m][r] = fmaxf(now[m][r], __shfl_xor_sync(FULL, now[m][r], step));
#pragma unroll
            for (int m = 0; m < PARTS; m++)
#pragma unroll
                for (int r = 0; r < 2; r++) {
                    float top = SCALED ? now[m][r] : now[m][r] * scale_log2;
                    bool higher = top > most[m][r] + 8.0f;
                    rescale[m][r] = higher ? exp2_fast(most[m][r] - top) : 1.0f;
                    grown |= higher;
                    if (higher) most[m][r] = top;
                    weight[m][r] *= rescale[m][r];
                    now[m][r] = most[m][r] == NEGATIVE_INFINITY ? 0.0f : most[m][r]; // no token yet: everything is 2^-inf
                }
            if (__any_sync(FULL, grown)) {
#pragma unroll
                for (int m = 0; m < PARTS; m++)
#pragma unroll
                    for (int d = 0; d < DIM / 8; d++)
#pragma unroll
                        for (int i = 0; i < 4; i++) sums[m][d][i] *= rescale[m][i / 2];
            }

#pragma unroll
            for (int k = 0; k < KEYS / 16; k++) {
                u32 p[PARTS][4];
                float2 of_value[2];
#pragma unroll
                for (int i = 0; i < 2; i++)
                    if (SCALED) of_value[i] = load_shared_pair(scales + KEYS * 4 + (2 * k + i) * 32);
#pragma unroll
                for (int m = 0; m < PARTS; m++)
#pragma unroll
                    for (int i = 0; i < 4; i++) {
                        const float *pair = &score[m][2 * k + i / 2][i % 2 * 2];
                        float low = exp2_fast(fmaf(pair[0], scale_log2, -now[m][i % 2]));
                        float high = exp2_fast(fmaf(pair[1], scale_log2, -now[m][i % 2]));
                        weight[m][i % 2] += low + high;
                        if (SCALED) {
                            low *= of_value[i / 2].x;
                            high *= of_value[i / 2].y;
                        }
                        p[m][i] = to_pair(low, high, a.q);
                    }
#pragma unroll
                for (int d = 0; d < DIM / 16; d++) {
                    u32 value[4];
                    load_matrices_transposed(value, (values ^ (d * 32)) + k * 16 * T::ROW);
#pragma unroll
                    for (int m = 0; m < PARTS; m++) {
                        multiply(sums[m][2 * d], p[m], value[0], value[1], a.q);
                        multiply(sums[m][2 * d + 1], p[m], value[2], value[3], a.q);
                    }
                }
            }
        }
        wait_copies<0>();
    }

#pragma unroll
    for (int m = 0; m < PARTS; m++)
#pragma unroll
        for (int r = 0; r < 2; r++) {
            u32 line = my_line + m * 16 + g + r * 8;
            float all = weight[m][r];
            all += __shfl_xor_sync(FULL, all, 1);
            all += __shfl_xor_sync(FULL, all, 2);
            float inverse = all > 0.0f ? Cache<E>::TIMES / all : 0.0f;
            if (line >= count) continue;
            bf16 *to = a.out + ((u64)(first + line) * heads + head) * DIM + c * 2;
#pragma unroll
            for (int d = 0; d < DIM / 8; d++) {
                u32 pair = to_bf16x2(sums[m][d][2 * r] * inverse, sums[m][d][2 * r + 1] * inverse);
                *reinterpret_cast<u32 *>(to + d * 8) = pair;
            }
        }
}

#define ENTRY(KV, Q, DIM)                                                                                              \
    extern "C" __global__ void __launch_bounds__(Tile<KV, DIM>::THREADS, Tile<KV, DIM>::BLOCKS)                   \
        paged_prefill_##KV##_d##DIM(                                                                                   \
        bf16 *out, const Q *q, const KV *slab, const u32 *ids, const u32 *rows, const u32 *positions, u64 pool,        \
        u64 block_stride, u64 layer_base, u32 block_tokens, u32 table_rows, u32 table_columns, u32 kv_heads,           \
        u32 group, u32 window, float scale_log2, float softcap, u32 tokens) {                                          \
        prefill<KV, DIM>(PrefillArgs<KV>{out, q, slab, ids, rows, positions, pool, block_stride, layer_base,           \
                                         block_tokens, table_rows, table_columns, tokens, kv_heads, group, window,     \
                                         scale_log2, softcap});                                                        \
    }

ENTRY(bf16, bf16, 64)
ENTRY(bf16, bf16, 128)
ENTRY(bf16, bf16, 256)
ENTRY(f16, f16, 64)
ENTRY(f16, f16, 128)
ENTRY(f16, f16, 256)
ENTRY(f8, f16, 64)
ENTRY(f8, f16, 128)
ENTRY(f8, f16, 256)
ENTRY(i8, f16, 64)
ENTRY(i8, f16, 128)
ENTRY(i8, f16, 256)
ENTRY(f4x2, f16, 64)
ENTRY(f4x2, f16, 128)
ENTRY(f4x2, f16, 256)
