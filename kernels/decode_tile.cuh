// A tile of tokens as a warp of paged decode attention has it: where its cells are, their way into shared memory, and the products with
// queries and with weights.
#pragma once
#include "cache.cuh"
#include "common.cuh"
#include "mma.cuh"
#define HEADS 16 // query heads of a block: the rows of a matrix instruction
#define RING 3   // buffers of a warp

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
    static constexpr int BITS = Cache<E>::BITS;
    static constexpr bool SCALED = Cache<E>::SCALED, GROUPED = Cache<E>::GROUPED;
    static constexpr int UNITS = Vector<E, DIM>::UNITS;           // of a row
    static constexpr int ROW = DIM * BITS / 8;                    // bytes of a row
    static constexpr int WARPS = 4;
#if __CUDA_ARCH__ >= 1200
    static constexpr bool SMALL = BITS == 4 || (GROUPED && DIM < 256); // two blocks of a multiprocessor with their scales
#else
    static constexpr bool SMALL = BITS == 4; // of four bits there are enough in half of it
#endif
    static constexpr int BUFFER = ROW == 512 ? 8192 : SMALL ? 2048 : 4096;
    static constexpr int TOKENS = BUFFER / ROW;                   // of a warp's tile
    static constexpr int PAGES = TOKENS / 16;                     // pages that it can lie in: a page has a multiple of 16 tokens
    static constexpr int CHUNKS = ROW / 16;                       // 16-byte chunks of a row
    static constexpr int AT_ONCE = 32 / CHUNKS;                   // rows that a warp copies at once
    static constexpr int GROUPS = Vector<E, DIM>::GROUPS;         // bytes of scales behind a buffer, for each row
    static constexpr int SLOT = BUFFER + TOKENS * GROUPS;         // a buffer with them
    static constexpr int SHARED = DIM == 256 ? 96 << 10 : GROUPED && !SMALL ? 51 << 10 : 48 << 10; // what the wrapper asks for
    static_assert(SHARED >= WARPS * RING * SLOT, "the rings fit");
    static_assert(SHARED >= WARPS * HEADS * DIM * 4, "the merge of the warps fits into the place of their rings");

    // Where a chunk of a row is in a buffer: permuted, so that eight rows of a matrix load lie in different banks.
    static __device__ __forceinline__ u32 at(u32 row, u32 chunk) {
        u32 turn = ROW >= 128 ? row & 7 : row / (128 / ROW) & (CHUNKS - 1);
        return row * ROW + ((chunk ^ turn) << 4);
    }
};

// What a warp of a share works on: tiles from `from_tile` on, every WARPS-th, before `to_tile`; and the tokens and ids of the sequence.
template <typename E> struct Share {
    const u32 *ids;
    u32 shares, start, end, from_tile, to_tile;
};

// How numbers are read that kernels write: behind the wait for earlier ones; and in front of it, where nothing may stay in the first-level
// cache.
struct Present {
    __device__ __forceinline__ u32 operator()(const u32 *from) const { return *from; }
};
struct Past {
    __device__ __forceinline__ u32 operator()(const u32 *from) const { return __ldcg(from); }
};

template <typename E, int DIM, typename Read>
__device__ __forceinline__ Share<E> work_of(const DecodeArgs<E> &a, Read read, u32 sequence, u32 share, u32 warp) {
    using S = Shape<E, DIM>;
    u32 row = read(a.rows + sequence);
    const u32 *owner = a.ids + (u64)a.table_rows * a.table_columns;
    bool known = row < a.table_rows && read(owner) == (u32)a.pool && read(owner + 1) == (u32)(a.pool >> 32);
    Share<E> it;
    it.end = known ? min(read(a.lengths + sequence), a.table_columns * a.block_tokens) : 0;
    it.start = a.window && it.end > a.window ? it.end - a.window : 0;
    it.ids = a.ids + (u64)(row < a.table_rows ? row : 0) * a.table_columns;
    // The same number of whole tiles a share and warp, the first ones from `start` on.
    u32 first = it.start / S::TOKENS, last = (it.end + S::TOKENS - 1) / S::TOKENS;
    // A step takes as long as the merge of about eight shares, and to merge at all as long as two steps.
    u32 steps = (last - first + S::WARPS - 1) / S::WARPS;
    it.shares = 1;
    while (it.shares < gridDim.x && it.shares < steps && it.shares * it.shares < 8 * steps && steps > 3) it.shares++;
    u32 each = ((last - first + it.shares - 1) / it.shares + S::WARPS - 1) / S::WARPS * S::WARPS;
    it.from_tile = first + share * each + warp;
    it.to_tile = min(first + (share + 1) * each, last);
    return it;
}

// Calls for the keys and values of a warp's first tile.
template <typename E, int DIM>
__device__ __forceinline__ void prefetch_first(const DecodeArgs<E> &a, const Share<E> &work, u32 kv_head, u32 lane) {
    using S = Shape<E, DIM>;
    constexpr int LINES = S::ROW / 8, EACH = 128 / (int)sizeof(E); // of 16 tokens; units of a line
    u64 values = (u64)a.kv_heads * a.block_tokens * S::UNITS;
#pragma unroll
    for (int i = 0; i < S::PAGES; i++) {
        u32 token = work.from_tile * S::TOKENS + i * 16;
        if (work.from_tile >= work.to_tile || token >= work.end) return;
        u32 id = Past{}(work.ids + token / a.block_tokens);
        if (id == HOLE) continue;
        const E *keys = a.slab + id * a.block_stride + a.layer_base +
                        ((u64)kv_head * a.block_tokens + token % a.block_tokens) * S::UNITS;
#pragma unroll
        for (u32 line = lane; line < LINES; line += 32) {
            prefetch_line(keys + line * EACH);
            prefetch_line(keys + values + line * EACH);
        }
    }
}

// Where a tile's tokens are: for each 16 of them the row of the first one in the keys of its page, or null for a hole; which row that is
// of the layer's keys; and the scale of the first one's key.
template <typename E, int DIM> struct Place {
    const E *keys[Shape<E, DIM>::PAGES];
    u32 slots[Shape<E, DIM>::GROUPED ? Shape<E, DIM>::PAGES : 1];
    const float *scales[Shape<E, DIM>::SCALED && !Shape<E, DIM>::GROUPED ? Shape<E, DIM>::PAGES : 1];
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
        place.keys[i] = id == HOLE ? nullptr : layer + (u64)slot * S::UNITS;
        if (S::GROUPED) place.slots[i * S::GROUPED] = slot;
        if (S::SCALED && !S::GROUPED) {
            const E *scales = layer + 2 * (u64)a.kv_heads * a.block_tokens * S::UNITS;
            place.scales[i * (S::SCALED && !S::GROUPED)] = reinterpret_cast<const float *>(scales) + slot;
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
__device__ __forceinline__ void copy_tile(const DecodeArgs<E> &a, u32 buffer, const Place<E, DIM> &place, u64 offset, u32 tile,
                                          u32 start, u32 end, u32 lane) {
    using S = Shape<E, DIM>;
    const E *anywhere = a.slab;
    u32 chunk = lane % S::CHUNKS;
#pragma unroll
    for (int i = 0; i < S::TOKENS / S::AT_ONCE; i++) {
        u32 row = i * S::AT_ONCE + lane / S::CHUNKS, token = tile * S::TOKENS + row;
        const E *keys = place.keys[S::PAGES == 1 ? 0 : i * S::AT_ONCE / 16];
        bool there = keys && token >= start && token < end;
        const E *from = there ? keys + offset + (row % 16) * S::UNITS + chunk * (16 / (int)sizeof(E)) : anywhere;
        copy16_async(buffer + S::at(row, chunk), from, there ? 16 : 0);
    }
    if constexpr (S::GROUPED) {
        // The scales of groups, token by token: what is no token has none, as its elements.
        u64 vectors = 2 * (u64)a.kv_heads * a.block_tokens;
#pragma unroll
        for (int i = 0; i < (S::TOKENS + 31) / 32; i++) {
            u32 row = i * 32 + lane, token = tile * S::TOKENS + row;
            constexpr bool two = S::PAGES > 1;
            const E *keys = place.keys[two ? i * 2 : 0];
            u32 slot = place.slots[two ? i * 2 : 0];
            if (two && lane >= 16) keys = place.keys[two ? i * 2 + 1 : 0], slot = place.slots[two ? i * 2 + 1 : 0];
            if (row >= S::TOKENS) break;
            bool there = keys && token >= start && token < end;
            const E *scales = keys + (vectors - slot) * S::UNITS + (slot + row % 16 + (offset ? vectors / 2 : 0)) * S::GROUPS;
            copy_async<S::GROUPS>(buffer + S::BUFFER + row * S::GROUPS, there ? scales : anywhere, there ? S::GROUPS : 0);
        }
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
        constexpr bool held = S::SCALED && !S::GROUPED; // else they are found from the keys
        const float *from = lane >= 16 ? place.scales[(i * 2 + 1) * two * held] : place.scales[i * 2 * two * held];
        if constexpr (S::SCALED && S::GROUPED) {
            u32 slot = lane >= 16 ? place.slots[(i * 2 + 1) * two] : place.slots[i * 2 * two];
            u64 vectors = 2 * (u64)a.kv_heads * a.block_tokens;
            from = reinterpret_cast<const float *>(keys + (vectors - slot) * S::UNITS + vectors * S::GROUPS) + slot;
        }
        if (keys && token >= start && token < end) {
            scales.key[i] = from[lane % 16] * Cache<E>::TIMES;
            scales.value[i] = from[lane % 16 + (u64)a.kv_heads * a.block_tokens] * Cache<E>::TIMES;
        }
    }
    return scales;
}

// The element of a query that pair `i` of its k-th product begins with, in the order in which a lane gets those of keys.
template <typename E> __device__ __forceinline__ u32 query_element(u32 k, u32 i, u32 c) {
    switch (Cache<E>::BITS) {
    case 16: return k * 16 + i / 2 * 8 + c * 2;
    case 8: return k * 16 + c * 4 + i / 2 * 2; // four of 16
    default: return k / 2 * 32 + c * 8 + k % 2 * 4 + i / 2 * 2; // eight of 32, in two products
    }
}

// Where the first of two neighbours of a sum is in a row: fragment `d`, row `c` of its lane; and how far apart the two are.
template <typename E> __device__ __forceinline__ u32 value_element(u32 d, u32 c) {
    switch (Cache<E>::BITS) {
    case 16: return d * 8 + c * 2;
    case 8: return d / 2 * 16 + c * 4 + d % 2; // even elements are one product, odd ones another
    default: return d / 4 * 32 + c * 8 + d % 4 * 2;
    }
}
template <typename E> struct Apart {
    static constexpr int BY = Cache<E>::BITS == 8 ? 2 : 1;
};

// Scores of the query heads and eight tokens, rows of a buffer from `row` on.
template <typename E, int DIM>
__device__ __forceinline__ void score_tokens(float (&score)[4], const u32 (&query)[DIM / 16][4], u32 buffer, u32 row, u32 lane) {
    using S = Shape<E, DIM>;
    u32 scales = buffer + S::BUFFER + (row + lane / 4) * S::GROUPS; // of this lane's token
    row += lane % 8;
    if constexpr (S::BITS == 16) {
#pragma unroll
        for (int k = 0; k < DIM / 32; k++) {
            u32 key[4];
            load_matrices(key, buffer + S::at(row, k * 4 + lane / 8));
            multiply(score, query[2 * k], key[0], key[1], (const E *)nullptr);
            multiply(score, query[2 * k + 1], key[2], key[3], (const E *)nullptr);
        }
    } else if constexpr (S::BITS == 8) {
        // A lane gets elements 4c to 4c + 3 of 16.
#pragma unroll
        for (int k = 0; k < DIM / 64; k++) {
            u32 key[4];
            load_matrices(key, buffer + S::at(row, k * 4 + lane / 8));
            u32 both = S::GROUPED ? load_shared_word(scales + k * 4) : 0;
#pragma unroll
            for (int i = 0; i < 4; i++) {
                u32 low, high;
                if constexpr (S::GROUPED) {
                    u32 scale = __byte_perm(both, 0, i < 2 ? 0x1010 : 0x3232);
                    low = times_f16x2(two_i8(key[i], 0x4140), scale);
                    high = times_f16x2(two_i8(key[i], 0x4342), scale);
                } else {
                    f8x4_to_f16(low, high, key[i]);
                }
                multiply(score, query[4 * k + i], low, high, (const f16 *)nullptr);
            }
        }
    } else {
        // A lane gets elements 8c to 8c + 7 of 32. Of two matrices there are four where a row has no more.
        constexpr int MATRICES = S::CHUNKS < 4 ? S::CHUNKS : 4;
#pragma unroll
        for (int k = 0; k < S::CHUNKS / MATRICES; k++) {
            u32 key[4], four = 0;
            load_matrices(key, buffer + S::at(row, k * 4 + lane / 8 % MATRICES));
#pragma unroll
            for (int i = 0; i < MATRICES; i++) {
                if (i % 2 == 0) four = load_shared_word(scales + (k * 4 + i) * 2);
                u32 scale = two_ue4m3(__byte_perm(four, 0, (i % 2 * 2 + lane % 4 / 2) * 0x1111));
#pragma unroll
                for (int half = 0; half < 2; half++)
                    multiply(score, query[2 * (4 * k + i) + half], times_f16x2(two_e2m1(key[i], 2 * half), scale),
                             times_f16x2(two_e2m1(key[i], 2 * half + 1), scale), (const f16 *)nullptr);
            }
        }
    }
}

// Adds 16 tokens' values, rows of a buffer from `row` on, times their weights `p`.
template <typename E, int DIM>
__device__ __forceinline__ void add_values(float (&sums)[DIM / 8][4], const u32 (&p)[4], u32 buffer, u32 row, u32 lane) {
    using S = Shape<E, DIM>;
    // Of the tokens of this lane's pairs: 2c and 2c + 1, and eight later.
    u32 scales = buffer + S::BUFFER + (row + lane % 4 * 2) * S::GROUPS, of[4];
    row += lane % 16;
#pragma unroll
    for (int d = 0; d < (S::CHUNKS + 1) / 2; d++) {
        u32 value[4];
        load_matrices_transposed(value, buffer + S::at(row, d * 2 + lane / 16));
        if (S::GROUPED && (S::BITS == 4 || d % 2 == 0)) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                u32 word = S::BITS == 4 ? d : d / 2;
                of[i] = load_shared_word(scales + (i / 2 * 8 + i % 2) * S::GROUPS + word * 4);
            }
        }
        if constexpr (S::BITS == 16) {
            multiply(sums[2 * d], p, value[0], value[1], (const E *)nullptr);
            multiply(sums[2 * d + 1], p, value[2], value[3], (const E *)nullptr);
        } else if constexpr (S::BITS == 8) {
            // A lane gets elements 2g and 2g + 1 of tokens 2c and 2c + 1: even elements are one product, odd ones another.
            u32 which = d % 2 ? 0x7632 : 0x5410, scale[2] = {};
            if (S::GROUPED) scale[0] = __byte_perm(of[0], of[1], which), scale[1] = __byte_perm(of[2], of[3], which);
#pragma unroll
            for (int i = 0; i < 2; i++) {
                u32 even[2], odd[2];
#pragma unroll
                for (int late = 0; late < 2; late++) {
                    u32 word = value[2 * i + late];
                    if constexpr (S::GROUPED) {
                        even[late] = times_f16x2(two_i8(word, 0x4240), scale[late]);
                        odd[late] = times_f16x2(two_i8(word, 0x4341), scale[late]);
                    } else {
                        f8x4_to_f16(even[late], odd[late], __byte_perm(word, 0, 0x3120));
                    }
                }
                multiply(sums[4 * d + 2 * i], p, even[0], even[1], (const f16 *)nullptr);
                multiply(sums[4 * d + 2 * i + 1], p, odd[0], odd[1], (const f16 *)nullptr);
            }
        } else {
            // A lane gets elements 8 (g / 2) + g % 2, and every second behind it, of tokens 2c and 2c + 1: each of the four is a product.
#pragma unroll
            for (int i = 0; i < 2; i++) {
                u32 byte = i * 2 + lane / 16, which = byte * 0x11 + (byte + 4) * 0x1100;
                u32 early = two_ue4m3(__byte_perm(of[0], of[1], which)), late = two_ue4m3(__byte_perm(of[2], of[3], which));
#pragma unroll
                for (int e = 0; e < 4; e++)
                    multiply(sums[8 * d + 4 * i + e], p, times_f16x2(two_e2m1(value[2 * i], e), early),
                             times_f16x2(two_e2m1(value[2 * i + 1], e), late), (const f16 *)nullptr);
            }
        }
    }
}
