// Tiles of prefill attention: how a block is made, and the way of keys and values into its shared memory.
#pragma once
#include "cache.cuh"
#include "common.cuh"
#include "mma.cuh"

template <typename E> struct PrefillArgs {
    bf16 *out;                            // [tokens][heads][DIM]
    const typename Cache<E>::Query *q;    // [tokens][heads][DIM]
    const E *slab;
    const u32 *ids, *rows, *positions;    // [table_rows][table_columns]; [tokens]; [tokens]
    u64 pool, block_stride, layer_base;
    u32 block_tokens, table_rows, table_columns, tokens, kv_heads, group, window;
    float scale_log2, softcap;
};

// How a block is made: WARPS warps with PARTS times 16 queries each, tiles of KEYS keys; queries are HELD in registers, or lie in
// shared memory. More queries a warp are less reading of keys and values from shared memory, fewer are less registers.
template <int WARPS_, int PARTS_, int KEYS_, bool HELD_, int BLOCKS_> struct Made {
    static constexpr int WARPS = WARPS_, PARTS = PARTS_, KEYS = KEYS_, BLOCKS = BLOCKS_;
    static constexpr bool HELD = HELD_;
};
// By whether cells have 16 bits. Others want registers on their way: fewer keys.
template <bool WIDE, int DIM> struct Choice;
#if __CUDA_ARCH__ >= 1200
// 99 KB of shared memory, and less of tensor cores to feed from it: small tiles for several blocks of a multiprocessor.
template <> struct Choice<true, 64> { typedef Made<4, 2, 64, true, 2> How; };
template <bool WIDE> struct Choice<WIDE, 128> { typedef Made<4, 1, 32, true, 2> How; };
template <bool WIDE> struct Choice<WIDE, 256> { typedef Made<8, 1, 16, false, 1> How; };
template <> struct Choice<false, 64> { typedef Made<4, 2, 32, true, 2> How; };
#else
template <> struct Choice<true, 64> { typedef Made<4, 2, 128, false, 2> How; };
template <> struct Choice<true, 128> { typedef Made<4, 2, 64, false, 2> How; };
template <> struct Choice<true, 256> { typedef Made<8, 1, 64, false, 1> How; };
template <> struct Choice<false, 64> { typedef Made<4, 2, 64, false, 2> How; };
template <> struct Choice<false, 128> { typedef Made<4, 2, 64, false, 2> How; };
template <> struct Choice<false, 256> { typedef Made<8, 1, 32, false, 1> How; };
#endif

template <typename E, int DIM> struct Tile : Choice<Cache<E>::BITS == 16, DIM>::How {
    using How = typename Choice<Cache<E>::BITS == 16, DIM>::How;
    static constexpr int THREADS = How::WARPS * 32;
    static constexpr int LINES = How::PARTS * 16;        // queries of a warp
    static constexpr int QUERIES = How::WARPS * LINES;   // and of the block
    static constexpr int ROW = DIM * 2;                  // bytes
    static constexpr int CHUNKS = DIM / 8;               // 16-byte chunks of a row
    static constexpr int AT_ONCE = THREADS / CHUNKS;     // rows that the block copies at once
    static constexpr int BUFFER = How::KEYS * ROW;
    static constexpr int GROUPS = How::KEYS / 16;        // a page has a multiple of 16 tokens
    static constexpr int SHARED_Q = How::HELD ? 0 : QUERIES * ROW;
    // Of fewer than 16 bits: bytes of a row as it comes, its 16-byte chunks, rows at once, bytes of its groups' scales; and where in shared
    // memory a tile as it came begins, its groups' scales, and those of whole vectors, keys first.
    static constexpr bool WIDENED = Cache<E>::BITS < 16;
    static constexpr int UNITS = Vector<E, DIM>::UNITS, RAW_CHUNKS = DIM * Cache<E>::BITS / 128;
    static constexpr int RAW_AT_ONCE = THREADS / RAW_CHUNKS < How::KEYS ? THREADS / RAW_CHUNKS : How::KEYS;
    static constexpr int RAW = How::KEYS * RAW_CHUNKS * 16, GROUPED = Vector<E, DIM>::GROUPS;
    static __device__ __forceinline__ u32 raw(u32 base, u32 stage) { return base + 2 * BUFFER + stage * 2 * RAW; }
    static __device__ __forceinline__ u32 groups(u32 base, u32 stage) {
        return base + 2 * BUFFER + 4 * RAW + stage * 2 * How::KEYS * GROUPED;
    }
    static __device__ __forceinline__ u32 scales(u32 base, u32 stage) {
        return base + 2 * BUFFER + 4 * (RAW + How::KEYS * GROUPED) + stage * 2 * How::KEYS * 4;
    }
};

// The address of a chunk of a row in shared memory: chunks are permuted, so that matrix loads meet no bank twice.
template <int DIM> __device__ __forceinline__ u32 at(u32 base, u32 row, u32 chunk) {
    return base + row * (DIM * 2) + ((chunk ^ (row & 7)) << 4);
}

// Where 16 tokens of a tile are: the first key's row; null for a hole and behind the end.
template <typename E, int DIM>
__device__ __forceinline__ const E *place_of(const PrefillArgs<E> &a, u32 id, u32 kv_head, u32 token) {
    return id == HOLE ? nullptr
                      : a.slab + id * a.block_stride + a.layer_base +
                            ((u64)kv_head * a.block_tokens + token % a.block_tokens) * Vector<E, DIM>::UNITS;
}

// Starts the copy of a tile's keys and values. Of them `left` tokens are there; the rest, and holes, become zeros.
template <typename E, int DIM>
__device__ __forceinline__ void copy_tile(const PrefillArgs<E> &a, u32 to, const E *const *places, u32 left) {
    using T = Tile<E, DIM>;
    u64 values = (u64)a.kv_heads * a.block_tokens * DIM; // from a key to its value
    u32 chunk = threadIdx.x % T::CHUNKS, first = threadIdx.x / T::CHUNKS;
#pragma unroll
    for (int i = 0; i < T::KEYS / T::AT_ONCE; i++) {
        u32 row = i * T::AT_ONCE + first;
        const E *place = places[row / 16];
        bool there = place && row < left;
        const E *from = there ? place + (row % 16) * DIM + chunk * 8 : a.slab;
        u32 where = at<DIM>(to, row, chunk);
        copy16_async(where, from, there ? 16 : 0);
        copy16_async(where + T::BUFFER, from + (there ? values : 0), there ? 16 : 0);
    }
}

// The same for fewer than 16 bits, into the buffers of a stage. Scales of groups go a thread for each vector, those of vectors a thread for
// four of them.
template <typename E, int DIM>
__device__ __forceinline__ void copy_raw(const PrefillArgs<E> &a, u32 base, u32 stage, const E *const *places, u32 kv_head,
                                         u32 tile, u32 left) {
    using T = Tile<E, DIM>;
    u64 vectors = 2 * (u64)a.kv_heads * a.block_tokens, values = vectors / 2 * T::UNITS;
    u32 chunk = threadIdx.x % T::RAW_CHUNKS, first = threadIdx.x / T::RAW_CHUNKS;
#pragma unroll
    for (int i = 0; i < T::KEYS / T::RAW_AT_ONCE; i++) {
        u32 row = i * T::RAW_AT_ONCE + first;
        if (T::RAW_AT_ONCE * T::RAW_CHUNKS < T::THREADS && first >= T::RAW_AT_ONCE) break;
        const E *place = places[row / 16];
        bool there = place && row < left;
        const E *from = there ? place + (row % 16) * T::UNITS + chunk * 16 : a.slab;
        u32 where = T::raw(base, stage) + (row * T::RAW_CHUNKS + chunk) * 16;
        copy16_async(where, from, there ? 16 : 0);
        copy16_async(where + T::RAW, from + (there ? values : 0), there ? 16 : 0);
    }
    // Where the layer begins, and which of its vectors the first of 16 tokens is: from the place of its key.
    auto slot_of = [&](u32 row) { return kv_head * a.block_tokens + (tile * T::KEYS + row) % a.block_tokens; };
    if constexpr (Cache<E>::GROUPED) {
        static_assert(T::KEYS * 2 <= T::THREADS, "a thread for each vector");
        if (threadIdx.x < T::KEYS * 2) {
            u32 of_values = threadIdx.x / T::KEYS, row = threadIdx.x % T::KEYS;
            const E *place = places[row / 16];
            bool there = place && row < left;
            const E *layer = place - (u64)slot_of(row / 16 * 16) * T::UNITS;
            const E *from = layer + vectors * T::UNITS + (slot_of(row) + of_values * (vectors / 2)) * T::GROUPED;
            copy_async<T::GROUPED>(T::groups(base, stage) + threadIdx.x * T::GROUPED, there ? from : a.slab,
                                   there ? T::GROUPED : 0);
        }
    }
    if constexpr (Cache<E>::SCALED) {
        static_assert(T::KEYS / 2 <= T::THREADS, "a thread for four scales");
        if (threadIdx.x < T::KEYS / 2) {
            u32 of_values = threadIdx.x / (T::KEYS / 4), row = threadIdx.x % (T::KEYS / 4) * 4;
            const E *place = places[row / 16];
            bool there = place && row < left;
            const E *layer = place - (u64)slot_of(row / 16 * 16) * T::UNITS;
            const E *from = layer + vectors * (T::UNITS + T::GROUPED) + (slot_of(row) + of_values * (vectors / 2)) * 4;
            copy16_async(T::scales(base, stage) + (of_values * T::KEYS + row) * 4, there ? from : a.slab,
                         there ? min(left - row, 4u) * 4 : 0);
        }
    }
}

// By how much keys are too small when they are widened: so that f16 has room for large ones.
template <typename E> struct Widened {
    static constexpr float KEYS = 1.0f;
};
template <> struct Widened<f4x2> {
    static constexpr float KEYS = 128.0f;
};

// Sixteen bytes of a row as f16, in the order of its elements, times the scales of their groups, which begin at `groups`, and times `all`
// in both halves if they are keys.
template <typename E, int DIM, bool OF_KEYS>
__device__ __forceinline__ void widen_chunk(u32 to, u32 row, u32 chunk, uint4 raw, u32 groups, u32 all) {
    u32 words[4] = {raw.x, raw.y, raw.z, raw.w}, wide[Cache<E>::BITS == 4 ? 16 : 8];
    if constexpr (Cache<E>::BITS == 4) {
        u32 four = load_shared_word(groups + chunk / 2 * 4); // of which two are this chunk's
#pragma unroll
        for (int w = 0; w < 4; w++) {
            u32 both = two_e4m3(chunk % 2 ? four >> 16 : four), scale = __byte_perm(both, 0, w / 2 ? 0x3232 : 0x1010), pairs[4];
            eight_e2m1(pairs, words[w]);
#pragma unroll
            for (int i = 0; i < 4; i++) wide[4 * w + i] = times_f16x2(pairs[i], scale);
        }
    } else if constexpr (Cache<E>::GROUPED) {
        u32 scale = __byte_perm(load_shared_word(groups + chunk / 4 * 4), 0, chunk / 2 % 2 ? 0x3232 : 0x1010);
#pragma unroll
        for (int w = 0; w < 4; w++) {
            wide[2 * w] = times_f16x2(two_i8(words[w], 0x4140), scale);
            wide[2 * w + 1] = times_f16x2(two_i8(words[w], 0x4342), scale);
        }
    } else {
#pragma unroll
        for (int w = 0; w < 4; w++) f8x4_to_f16(wide[2 * w], wide[2 * w + 1], words[w]);
    }
    constexpr int CHUNKS = 16 / Cache<E>::BITS;
    if constexpr (Cache<E>::SCALED && OF_KEYS) {
#pragma unroll
        for (int i = 0; i < 4 * CHUNKS; i++) wide[i] = times_f16x2(wide[i], all);
    }
#pragma unroll
    for (int i = 0; i < CHUNKS; i++)
        store_shared16(at<DIM>(to, row, CHUNKS * chunk + i),
                       make_uint4(wide[4 * i], wide[4 * i + 1], wide[4 * i + 2], wide[4 * i + 3]));
}

// Widens what this thread copied to where products read it. Scales came by other threads: behind a barrier.
template <typename E, int DIM> __device__ __forceinline__ void widen(u32 base, u32 stage) {
    using T = Tile<E, DIM>;
    u32 chunk = threadIdx.x % T::RAW_CHUNKS, first = threadIdx.x / T::RAW_CHUNKS;
#pragma unroll 1
    for (int i = 0; i < T::KEYS / T::RAW_AT_ONCE; i++) {
        u32 row = i * T::RAW_AT_ONCE + first, from = T::raw(base, stage) + (row * T::RAW_CHUNKS + chunk) * 16;
        if (T::RAW_AT_ONCE * T::RAW_CHUNKS < T::THREADS && first >= T::RAW_AT_ONCE) break;
        u32 groups = T::groups(base, stage) + row * T::GROUPED, all = 0;
        if (Cache<E>::SCALED) {
            float scale = __uint_as_float(load_shared_word(T::scales(base, stage) + row * 4)) * (Cache<E>::TIMES / Widened<E>::KEYS);
            all = to_f16x2(scale, scale);
        }
        widen_chunk<E, DIM, true>(base, row, chunk, load_shared16(from), groups, all);
        widen_chunk<E, DIM, false>(base + T::BUFFER, row, chunk, load_shared16(from + T::RAW), groups + T::KEYS * T::GROUPED, all);
    }
}
