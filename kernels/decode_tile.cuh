// A tile of tokens as a warp of paged decode attention has it: where its cells are, their way into shared memory, and the products with
// queries and with weights.
#pragma once
#include "cache.cuh"
#include "common.cuh"
#include "mma.cuh"

template <typename E> struct DecodeArgs {
    bf16 *out;           // [batch][heads][DIM]
    float *partial;      // [batch][heads][gridDim.x][DIM + 4]: sums; maximum and weight, for each 128 sums; unused with one share
    u32 *arrived;        // [batch][kv_heads][groups][WARPS]: zero before and after every launch
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
#if __CUDA_ARCH__ >= 1200
    static constexpr bool SMALL = BITS < 16 && DIM < 256; // two blocks of a multiprocessor with their scales
#else
    static constexpr bool SMALL = ROW == 32; // more tokens than 64 want too many registers
#endif
    static constexpr int BUFFER = ROW == 512 ? 8192 : SMALL ? 2048 : 4096;
    static constexpr int TOKENS = BUFFER / ROW;                   // of a warp's tile
    static constexpr int PAGES = TOKENS / 16;                     // pages that it can lie in: a page has a multiple of 16 tokens
    static constexpr int CHUNKS = ROW / 16;                       // 16-byte chunks of a row
    static constexpr int AT_ONCE = 32 / CHUNKS;                   // rows that a warp copies at once
    static constexpr int GROUPS = Vector<E, DIM>::GROUPS;         // bytes of scales behind a buffer, for each row
    static constexpr int SCALES = BUFFER + TOKENS * GROUPS;       // where the scales of keys and of values are behind keys
    static constexpr int SLOT = SCALES + (SCALED ? 8 * TOKENS : 0); // a buffer with them
    static constexpr int PART = DIM + 4;                          // sums of a head in the merge: heads begin in different banks
    static_assert(SLOT % 128 == 0, "buffers begin at multiples of 128");
    static_assert(TOKENS >= 16 && AT_ONCE <= 16, "tiles of whole matrices, copies within 16 tokens");

    // Where a chunk of a row is in a buffer: permuted, so that eight rows of a matrix load lie in different banks. By an exclusive or, and
    // buffers begin at multiples of 128: rows and chunks that differ in bits of their own are found by another one from an address.
    static __host__ __device__ constexpr u32 turned(u32 row) { return (ROW >= 128 ? row & 7 : row / (128 / ROW) & (CHUNKS - 1)) << 4; }
    static __device__ __forceinline__ u32 at(u32 row, u32 chunk) { return row * ROW + (chunk << 4 ^ turned(row)); }
    // The address of a chunk 2 k behind that of the first or the second one.
    static __device__ __forceinline__ u32 behind(u32 chunk, u32 k) { return (chunk ^ (k & 3) << 5) + (k >> 2) * 128; }
};

// How numbers are read that kernels write: behind the wait for earlier ones; and in front of it, where nothing may stay in the first-level
// cache.
struct Present {
    __device__ __forceinline__ u32 operator()(const u32 *from) const { return *from; }
};
struct Past {
    __device__ __forceinline__ u32 operator()(const u32 *from) const { return __ldcg(from); }
};

// Warps of a block. Each has a buffer for a tile's keys and one for its values: with eight of them a multiprocessor that has one block has
// enough bytes on their way, and enough warps for twice the products. Of what is narrow it has two blocks instead.
template <typename E, int DIM, int COLUMNS, bool FOUR = false> struct Block {
    static constexpr bool LONG = Cache<E>::BITS == 16 && DIM >= 128;
#if __CUDA_ARCH__ >= 1200
    static constexpr int WARPS = (LONG && DIM < 256) || COLUMNS == 2 ? 8 : 4; // two blocks or at most 68 KiB
#else
    static constexpr int WARPS = LONG || COLUMNS == 2 ? 8 : 4;
#endif
};

// What a launch is asked for in one sequence: its row of the table, its tokens, and whether the table is of this pool.
struct Asked {
    u32 row, length;
    bool known;
    __device__ __forceinline__ bool same(const Asked &other) const {
        return (row == other.row) & (length == other.length) & (known == other.known);
    }
};
template <typename E, typename Read>
__device__ __forceinline__ Asked asked_of(const DecodeArgs<E> &a, Read read, u32 sequence) {
    const u32 *owner = a.ids + (u64)a.table_rows * a.table_columns;
    // All at once, whatever they say: one after the other they take as long as a tile.
    u32 row = read(a.rows + sequence), length = read(a.lengths + sequence), low = read(owner), high = read(owner + 1);
    return {row, length, (row < a.table_rows) & (low == (u32)a.pool) & (high == (u32)(a.pool >> 32))};
}

// What a warp of a share works on: tiles from `from_tile` on, every WARPS-th, before `to_tile`; and the tokens and ids of the sequence.
struct Share {
    const u32 *ids;
    u32 shares, start, end, from_tile, to_tile;
};
template <typename E, int DIM, int WARPS>
__device__ __forceinline__ Share share_of(const DecodeArgs<E> &a, const Asked &asked, u32 share, u32 warp) {
    using S = Shape<E, DIM>;
    Share it;
    it.end = asked.known ? min(asked.length, a.table_columns * a.block_tokens) : 0;
    it.start = a.window && it.end > a.window ? it.end - a.window : 0;
    it.ids = a.ids + (u64)(asked.row < a.table_rows ? asked.row : 0) * a.table_columns;
    // The same number of whole tiles a share and warp, the first ones from `start` on.
    u32 first = it.start / S::TOKENS, last = (it.end + S::TOKENS - 1) / S::TOKENS;
    // A step takes as long as the merge of about eight shares, and to merge at all as long as two steps.
    u32 steps = (last - first + WARPS - 1) / WARPS;
    it.shares = 1;
    while (it.shares < gridDim.x && it.shares < steps && it.shares * it.shares < 8 * steps && steps > 3) it.shares++;
    u32 each = ((last - first + it.shares - 1) / it.shares + WARPS - 1) / WARPS * WARPS;
    it.from_tile = first + share * each + warp;
    it.to_tile = min(first + (share + 1) * each, last);
    return it;
}

// Which page of its sequence a warp's next tile begins in, and at which of its tokens.
struct Cursor {
    u32 column, offset;
};
template <typename E, int DIM> __device__ __forceinline__ Cursor cursor_of(const DecodeArgs<E> &a, u32 tile) {
    constexpr u32 TOKENS = Shape<E, DIM>::TOKENS;
    return {tile * TOKENS / a.block_tokens, tile * TOKENS % a.block_tokens};
}

// Where a tile's tokens are: for each 16 of them the layer in the block of their page, or null for a hole; and which of the layer's keys
// the first one's is. And whether all of its tokens are there.
template <typename E, int DIM> struct Place {
    static constexpr int PAGES = Shape<E, DIM>::PAGES;
    const u8 *layer[PAGES];
    u32 slot[PAGES];
    bool whole;
    // Which 16 tokens have a page, a bit each.
    __device__ __forceinline__ u32 pages() const {
        u32 pages = 0;
#pragma unroll
        for (int i = 0; i < PAGES; i++) pages |= layer[i] ? 1u << i : 0;
        return pages;
    }
    // For the same tile of the same sequence.
    __device__ __forceinline__ bool same(const Place &other) const {
        bool same = true;
#pragma unroll
        for (int i = 0; i < PAGES; i++) same &= layer[i] == other.layer[i];
        return same;
    }
};

// The place of the tile at the cursor, which then goes on to the warp's next one. No token is before the first one or behind the last
// one that is attended to, and a tile that is not this warp's has none.
template <typename E, int DIM, typename Read>
__device__ __forceinline__ Place<E, DIM> place_of(const DecodeArgs<E> &a, Read read, const Share &work, Cursor &cursor, Cursor step,
                                                  u32 tile, u32 kv_head) {
    using S = Shape<E, DIM>;
    const u32 *ids = work.ids;
    u32 start = work.start, end = tile < work.to_tile ? work.end : 0;
    Place<E, DIM> place;
    place.whole = tile * S::TOKENS >= start && (tile + 1) * S::TOKENS <= end;
    u32 column = cursor.column, offset = cursor.offset;
    if (S::PAGES > 1 && a.block_tokens % S::TOKENS == 0) {
        // All in one page.
        u32 id = tile * S::TOKENS < end ? read(ids + column) : HOLE;
        const u8 *layer = id == HOLE ? nullptr : reinterpret_cast<const u8 *>(a.slab + id * a.block_stride + a.layer_base);
        place.whole = place.whole && id != HOLE;
#pragma unroll
        for (int i = 0; i < S::PAGES; i++) {
            place.layer[i] = layer;
            place.slot[i] = kv_head * a.block_tokens + offset + i * 16;
        }
        cursor.column += step.column;
        cursor.offset += step.offset;
        if (cursor.offset >= a.block_tokens) cursor.offset -= a.block_tokens, cursor.column++;
        return place;
    }
#pragma unroll
    for (int i = 0; i < S::PAGES; i++) {
        u32 id = tile * S::TOKENS + i * 16 < end ? read(ids + column) : HOLE;
        place.layer[i] = id == HOLE ? nullptr : reinterpret_cast<const u8 *>(a.slab + id * a.block_stride + a.layer_base);
        place.slot[i] = kv_head * a.block_tokens + offset;
        place.whole = place.whole && id != HOLE;
        offset += 16;
        if (offset == a.block_tokens) offset = 0, column++;
    }
    cursor.column += step.column;
    cursor.offset += step.offset;
    if (cursor.offset >= a.block_tokens) cursor.offset -= a.block_tokens, cursor.column++;
    return place;
}

// Calls for a tile's keys and values: they come into the second-level cache.
template <typename E, int DIM>
__device__ __forceinline__ void prefetch_tile(const DecodeArgs<E> &a, const Place<E, DIM> &place, u32 lane) {
    using S = Shape<E, DIM>;
    constexpr int LINES = S::ROW / 8; // of 16 tokens
    u64 values = (u64)a.kv_heads * a.block_tokens * S::ROW;
#pragma unroll
    for (int i = 0; i < S::PAGES; i++) {
        if (!place.layer[i]) continue;
        const u8 *keys = place.layer[i] + (u64)place.slot[i] * S::ROW;
#pragma unroll
        for (u32 line = lane; line < LINES; line += 32) {
            prefetch_line(keys + line * 128);
            prefetch_line(keys + values + line * 128);
        }
    }
}

// Starts the copy of a tile's keys, or of its values. What is no token becomes zeros; only scales of whole vectors may be anything there.
template <typename E, int DIM, bool VALUES, bool WHOLE, int I>
__device__ __forceinline__ void copy_rows(u32 to, const Place<E, DIM> &place, u64 mine, u32 half, u32 token, u32 start, u32 end,
                                          const u8 *anywhere) {
    using S = Shape<E, DIM>;
    if constexpr (I < S::TOKENS / S::AT_ONCE) {
        constexpr u32 ROW_AT = I * S::AT_ONCE, GROUP = ROW_AT / 16;
        const u8 *from = place.layer[GROUP] + (u64)(place.slot[GROUP] + (VALUES ? half : 0)) * S::ROW + mine;
        u32 now = token + ROW_AT;
        bool there = WHOLE || (place.layer[GROUP] && now >= start && now < end);
        copy16_at<ROW_AT * S::ROW, ROW_AT % 16 * S::ROW>(to ^ S::turned(ROW_AT), WHOLE || place.layer[GROUP] ? from : anywhere, there ? 16 : 0);
        copy_rows<E, DIM, VALUES, WHOLE, I + 1>(to, place, mine, half, token, start, end, anywhere);
    }
}
template <typename E, int DIM, bool VALUES, bool WHOLE>
__device__ __forceinline__ void copy_part(const DecodeArgs<E> &a, u32 buffer, const Place<E, DIM> &place, u32 tile, u32 start, u32 end,
                                          u32 lane) {
    using S = Shape<E, DIM>;
    const u8 *anywhere = reinterpret_cast<const u8 *>(a.slab);
    u32 half = a.kv_heads * a.block_tokens; // vectors from a key to its value
    u32 row = lane / S::CHUNKS, first = tile * S::TOKENS;
    copy_rows<E, DIM, VALUES, WHOLE, 0>(buffer + S::at(row, lane % S::CHUNKS), place, row * S::ROW + lane % S::CHUNKS * 16, half,
                                        first + row, start, end, anywhere);
    if constexpr (S::GROUPED) {
        // The scales of groups, token by token.
        u64 groups = (u64)half * (2 * S::ROW);
#pragma unroll
        for (int i = 0; i < (S::TOKENS + 31) / 32; i++) {
            u32 row = i * 32 + lane, token = first + row;
            constexpr int late = S::PAGES > 1 ? 1 : 0;
            bool second = late && lane >= 16;
            const u8 *layer = second ? place.layer[2 * i * late + late] : place.layer[2 * i * late];
            u32 slot = (second ? place.slot[2 * i * late + late] : place.slot[2 * i * late]) + lane % 16 + (VALUES ? half : 0);
            if (S::TOKENS < 32 && row >= S::TOKENS) break;
            bool there = WHOLE || (layer && token >= start && token < end);
            const u8 *from = layer + groups + (u64)slot * S::GROUPS;
            copy_async<S::GROUPS>(buffer + S::BUFFER + row * S::GROUPS, there ? from : anywhere, there ? S::GROUPS : 0);
        }
    }
    if constexpr (S::SCALED && !VALUES) {
        // The scales of vectors, keys' and values', four at a time: softmax asks for both.
        u64 scales = (u64)half * (2 * (S::ROW + S::GROUPS)) + ((lane & 4 ? half : 0) + lane % 4 * 4) * 4;
        u32 to = buffer + S::SCALES + (lane & 4 ? S::TOKENS * 4 : 0) + lane % 4 * 16;
#pragma unroll
        for (int i = 0; i < S::PAGES; i++) {
            if (lane >= 8) break;
            const u8 *from = place.layer[i] + scales + (u64)place.slot[i] * 4;
            bool there = WHOLE || place.layer[i];
            copy16_async(to + i * 64, there ? from : anywhere, there ? 16 : 0);
        }
    }
}
template <typename E, int DIM, bool VALUES>
__device__ __forceinline__ void copy_tile(const DecodeArgs<E> &a, u32 buffer, const Place<E, DIM> &place, u32 tile, u32 start, u32 end,
                                          u32 lane) {
    if (place.whole)
        copy_part<E, DIM, VALUES, true>(a, buffer, place, tile, start, end, lane);
    else
        copy_part<E, DIM, VALUES, false>(a, buffer, place, tile, start, end, lane);
}

// The element of a query that pair `i` of its k-th product begins with, in the order in which column `c` gets those of keys.
template <typename E, int DIM> __device__ __forceinline__ u32 query_element(u32 k, u32 i, u32 c) {
    switch (Cache<E>::BITS) {
    case 16: return k * 16 + i * 8 + c * 2;
    case 8: return k * 16 + c * 4 + i * 2; // four of 16
    default: return c * (DIM / 4) + k * 4 + i * 2; // a quarter of the row
    }
}

// The element of a value that rows g and, if `late`, g + 8 of product `d` are.
template <typename E> __device__ __forceinline__ u32 value_element(u32 d, u32 g, u32 late) {
    switch (Cache<E>::BITS) {
    case 16: return d * 16 + late * 8 + g;
    case 8: return d * 16 + g * 2 + late;
    default: return d / 2 * 32 + g / 2 * 8 + g % 2 + d % 2 * 4 + late * 2;
    }
}

// Adds the scores of 16 tokens, rows of a buffer from `row` on: those of tokens g and g + 8, heads 2c and 2c + 1.
template <typename E, int DIM, int COLUMNS>
__device__ __forceinline__ void score_tokens(float (&score)[COLUMNS][4], const u32 (&query)[COLUMNS][DIM / 16][2], u32 buffer, u32 row,
                                             u32 lane) {
    using S = Shape<E, DIM>;
    using Q = typename Cache<E>::Query;
    auto add = [&](const u32(&left)[4], u32 k) {
#pragma unroll
        for (int m = 0; m < COLUMNS; m++) multiply(score[m], left, query[m][k][0], query[m][k][1], (const Q *)nullptr);
    };
    u32 g = lane / 4, c = lane % 4;
    u32 scales = buffer + S::BUFFER + (row + g) * S::GROUPS; // of this lane's tokens, the second eight rows on
    u32 keys = buffer + S::at(lane % 16, lane / 16);
    if constexpr (S::BITS == 16) {
#pragma unroll
        for (int k = 0; k < DIM / 16; k++) {
            u32 key[4];
            load_matrices(key, S::behind(keys, k) + row * S::ROW);
            add(key, k);
        }
    } else if constexpr (S::BITS == 8) {
        // A lane gets elements 4c to 4c + 3 of 16.
#pragma unroll
        for (int k = 0; k < DIM / 32; k++) {
            u32 key[4], both[2] = {};
            load_matrices(key, S::behind(keys, k) + row * S::ROW);
            if constexpr (S::GROUPED) {
                both[0] = load_shared_word(scales + k / 2 * 4);
                both[1] = load_shared_word(scales + 8 * S::GROUPS + k / 2 * 4);
            }
#pragma unroll
            for (int j = 0; j < 2; j++) {
                u32 left[4];
#pragma unroll
                for (int late = 0; late < 2; late++) {
                    u32 word = key[2 * j + late];
                    if constexpr (S::GROUPED) {
                        u32 scale = __byte_perm(both[late], 0, k % 2 ? 0x3232 : 0x1010);
                        left[late] = times_f16x2(two_i8(word, 0x4140), scale);
                        left[2 + late] = times_f16x2(two_i8(word, 0x4342), scale);
                    } else {
                        f8x4_to_f16(left[late], left[2 + late], word);
                    }
                }
                add(left, 2 * k + j);
            }
        }
    } else {
        // A lane gets a quarter of each row, up to four words of it, two groups, at a time.
        constexpr int WORDS = DIM / 32, TIMES = WORDS > 4 ? WORDS / 4 : 1, NOW = WORDS / TIMES;
#pragma unroll
        for (int part = 0; part < TIMES; part++) {
            u32 words[2][NOW], both[2];
#pragma unroll
            for (int late = 0; late < 2; late++) {
                u32 at = buffer + (row + late * 8) * S::ROW + S::at(g, NOW == 4 ? c * TIMES + part : c / 2);
                if constexpr (NOW == 4) {
                    uint4 it = load_shared16(at ^ S::turned(late * 8));
                    words[late][0] = it.x, words[late][1] = it.y, words[late][2] = it.z, words[late][3] = it.w;
                } else {
                    float2 it = load_shared_pair((at ^ S::turned(late * 8)) + c % 2 * 8);
                    words[late][0] = __float_as_uint(it.x), words[late][1] = __float_as_uint(it.y);
                }
                u32 group = NOW == 4 ? (c * TIMES + part) * 2 : c / 2 * 2;
                both[late] = two_e4m3(load_shared_half(scales + late * 8 * S::GROUPS + group));
            }
#pragma unroll
            for (int j = 0; j < NOW; j++) {
                u32 numbers[2][4];
#pragma unroll
                for (int late = 0; late < 2; late++) {
                    u32 scale = (NOW == 4 ? j / 2 : c % 2) ? __byte_perm(both[late], 0, 0x3232) : __byte_perm(both[late], 0, 0x1010);
                    eight_e2m1(numbers[late], words[late][j]);
#pragma unroll
                    for (int i = 0; i < 4; i++) numbers[late][i] = times_f16x2(numbers[late][i], scale);
                }
#pragma unroll
                for (int h = 0; h < 2; h++) {
                    u32 left[4] = {numbers[0][2 * h], numbers[1][2 * h], numbers[0][2 * h + 1], numbers[1][2 * h + 1]};
                    add(left, 2 * (part * NOW + j) + h);
                }
            }
        }
    }
}

// Adds 16 tokens' values, rows of a buffer from `row` on, times their weights `p`.
template <typename E, int DIM, int COLUMNS, bool FOUR>
__device__ __forceinline__ void add_values(float (&sums)[COLUMNS][DIM / 16][4], const u32 (&p)[COLUMNS][2], u32 buffer, u32 row,
                                           u32 lane) {
    using S = Shape<E, DIM>;
    using Q = typename Cache<E>::Query;
    auto add = [&](const u32(&left)[4], u32 d) {
#pragma unroll
        for (int m = 0; m < COLUMNS; m++) multiply(sums[m][d], left, p[m][0], p[m][1], (const Q *)nullptr);
    };
    u32 g = lane / 4, c = lane % 4;
    // Of the tokens of this lane's pairs: 2c and 2c + 1, and eight later.
    u32 scales = buffer + S::BUFFER + (row + c * 2) * S::GROUPS;
    u32 values = buffer + (S::BITS == 16 ? S::at(lane / 16 * 8 + lane % 8, lane / 8 % 2) : S::at(lane % 16, lane / 16));
    if constexpr (S::BITS == 16) {
#pragma unroll
        for (int d = 0; d < DIM / 16; d++) {
            u32 value[4];
            load_matrices_transposed(value, S::behind(values, d) + row * S::ROW);
            add(value, d);
        }
    } else {
        u32 which = g / 4 | (4 + g / 4) << 4 | (2 + g / 4) << 8 | (6 + g / 4) << 12; // bytes of four bits: of this lane's group of each two
        u32 of[4], four[2];
#pragma unroll
        for (int d = 0; d < S::CHUNKS / 2; d++) {
            u32 value[4];
            load_matrices_transposed(value, S::behind(values, d) + row * S::ROW);
            // Scales of two chunks are two f16 of eight-bit integers, four bytes of four bits.
            if constexpr (S::GROUPED) {
                if (S::BITS == 4 || d % 2 == 0) {
                    constexpr int PER = S::BITS == 4 ? 1 : 2;
#pragma unroll
                    for (int i = 0; i < 4; i++) of[i] = load_shared_word(scales + (i / 2 * 8 + i % 2) * S::GROUPS + d / PER * 4);
                }
#pragma unroll
                for (int i = 0; i < 2; i++)
                    four[i] = __byte_perm(of[2 * i], of[2 * i + 1], S::BITS == 4 ? which : d % 2 ? 0x7632 : 0x5410);
            }
            u32 scale[2][2]; // of four bits, chunk by chunk
            if constexpr (S::BITS == 4) {
#pragma unroll
                for (int i = 0; i < 2; i++) f8x4_to_f16(scale[0][i], scale[1][i], four[i]);
            }
#pragma unroll
            for (int j = 0; j < 2; j++) {
                if constexpr (S::BITS == 8) {
                    // A lane gets elements 2g and 2g + 1 of tokens 2c and 2c + 1: even elements are rows g, odd ones rows g + 8.
                    u32 left[4];
#pragma unroll
                    for (int i = 0; i < 2; i++) {
                        u32 word = value[2 * j + i];
                        if constexpr (S::GROUPED) {
                            left[2 * i] = times_f16x2(two_i8(word, 0x4240), four[i]);
                            left[2 * i + 1] = times_f16x2(two_i8(word, 0x4341), four[i]);
                        } else {
                            f8x4_to_f16(left[2 * i], left[2 * i + 1], __byte_perm(word, 0, 0x3120));
                        }
                    }
                    add(left, 2 * d + j);
                } else {
                    // A lane gets elements 8 (g / 2) + g % 2, and every second behind it, of tokens 2c and 2c + 1.
                    u32 numbers[2][4];
#pragma unroll
                    for (int i = 0; i < 2; i++) {
                        eight_e2m1(numbers[i], value[2 * j + i]);
#pragma unroll
                        for (int e = 0; e < 4; e++)
                            if (!FOUR) numbers[i][e] = times_f16x2(numbers[i][e], scale[j][i]);
                    }
                    u32 right[2] = {p[0][0], p[0][1]};
                    if (FOUR) right[0] = times_f16x2(right[0], scale[j][0]), right[1] = times_f16x2(right[1], scale[j][1]);
#pragma unroll
                    for (int h = 0; h < 2; h++) {
                        u32 left[4] = {numbers[0][2 * h], numbers[0][2 * h + 1], numbers[1][2 * h], numbers[1][2 * h + 1]};
                        u32 to = 2 * (2 * d + j) + h;
                        if (FOUR)
                            multiply(sums[0][to], left, right[0], right[1], (const Q *)nullptr);
                        else
                            add(left, to);
                    }
                }
            }
        }
    }
}
