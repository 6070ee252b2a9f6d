// Rotary positions: the angles of a step's tokens, once a step; then, for every layer, the rotation of queries and keys
// with the write of keys and values into their pages.
#include "cache.cuh"
#include "common.cuh"

// sin and cos of any angle, to f32 accuracy: reduced by whole quarter turns in f64, then short polynomials. It runs
// once a token and pair, so f64 is cheap, and there is no table in local memory as in the library's own reduction.
__device__ __forceinline__ float2 cos_sin(double angle) {
    double quarters = rint(angle * 0.63661977236758134308);
    double x = fma(quarters, -1.57079632679489655800, angle);
    x = fma(quarters, -6.12323399573676603587e-17, x);
    double xx = x * x;
    double sine = x * (1.0 + xx * (-1.0 / 6 + xx * (1.0 / 120 + xx * (-1.0 / 5040 + xx * (1.0 / 362880)))));
    double cosine = 1.0 + xx * (-0.5 + xx * (1.0 / 24 + xx * (-1.0 / 720 + xx * (1.0 / 40320 - xx / 3628800))));
    int quadrant = (int)((long long)quarters & 3);
    float s = (float)(quadrant & 1 ? cosine : sine), c = (float)(quadrant & 1 ? sine : cosine);
    if (quadrant == 1 || quadrant == 2) c = -c;
    if (quadrant >= 2) s = -s;
    return make_float2(c, s);
}

// angles[token][pair] = (cos, sin) of positions[token] * frequencies[pair]
extern "C" __global__ void __launch_bounds__(128)
    rope_angles(float *angles, const u32 *positions, const float *frequencies, u32 pairs, u64 total) {
    let_next_start();
    wait_for_earlier();
    u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= total) return;
    float2 value = cos_sin((float)positions[i / pairs] * frequencies[i % pairs]);
    reinterpret_cast<float2 *>(angles)[i] = value;
}

// The same for frequency = scale * base^(-pair / pairs) / factors[pair], in f64: the logarithms of scale and base to base 2 come as
// bits; where there are no factors, they are null.
extern "C" __global__ void __launch_bounds__(128)
    rope_angles_of(float *angles, const u32 *positions, const float *factors, u64 log2_base, u64 log2_scale, u32 pairs, u64 total) {
    let_next_start();
    wait_for_earlier();
    u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= total) return;
    u32 pair = (u32)(i % pairs);
    double exponent = -((double)pair / (double)pairs) * __longlong_as_double((long long)log2_base);
    double frequency = exp2(exponent + __longlong_as_double((long long)log2_scale));
    if (factors) frequency /= (double)factors[pair];
    reinterpret_cast<float2 *>(angles)[i] = cos_sin((double)positions[i / pairs] * frequency);
}

// One warp handles one head of one token. `qkv` has a row a token: query heads, key heads, value heads. Queries are rotated
// into `q`; keys and values go to slot `position % block_tokens` of block `ids[row][position / block_tokens]`, where a
// layer's part of a block is, from `layer_base` on: keys [kv_heads][block_tokens][head_dim], then values alike.
//
// `interleaved`: pairs are neighbours; otherwise element i goes with element i + pairs. Elements from 2 * pairs on are not
// rotated. `normed`: queries and keys are normalised by head first. head_dim is a multiple of 4 and at most 256, pairs
// is even.
//
// Q is the element of queries, E that of the cache, W that of the norms. What scales a cache has, `cache.cuh` says; a vector of
// e4m3 has the largest of its elements over 448.
struct RopeArgs {
    const bf16 *qkv;
    const float *angles;
    const u32 *ids, *rows, *positions;
    u64 pool, block_stride, layer_base;
    u32 block_tokens, table_rows, table_columns, heads, kv_heads, head_dim, pairs, flags;
    float epsilon;
    u64 units;
};

// The nearest e2m1, of two the even one; what is too large becomes the largest.
__device__ __forceinline__ u32 e2m1(float x) {
    float a = fabsf(x);
    u32 steps = (a > 0.25f) + (a >= 0.75f) + (a > 1.25f) + (a >= 1.75f) + (a > 2.5f) + (a >= 3.5f) + (a > 5.0f);
    return steps | (__float_as_uint(x) >> 31) << 3;
}

// Two neighbours of a norm's weight.
__device__ __forceinline__ float2 weights_at(const bf16 *weight, u32 e) {
    u32 word = *reinterpret_cast<const u32 *>(weight + e);
    return make_float2(low_f32(word), high_f32(word));
}
__device__ __forceinline__ float2 weights_at(const float *weight, u32 e) {
    return *reinterpret_cast<const float2 *>(weight + e);
}

// The largest element of a head, without its sign.
__device__ __forceinline__ float largest(const float (&low)[4], const float (&high)[4]) {
    float most = 0.0f;
#pragma unroll
    for (int i = 0; i < 4; i++) most = fmaxf(most, fmaxf(fabsf(low[i]), fabsf(high[i])));
    return warp_max(most);
}

// Writes a head: each lane's pairs of neighbours. `groups` and `scale` are where its scales go, for those that have some.
template <typename T>
__device__ __forceinline__ void write_head(T *to, u8 *, float *, const float (&low)[4], const float (&high)[4], u32 head_dim, u32 lane) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
        u32 e = 2 * (lane + 32 * i);
        if (e < head_dim) *reinterpret_cast<u32 *>(to + e) = to_pair(low[i], high[i], to);
    }
}
__device__ __forceinline__ void write_head(f8 *to, u8 *, float *scale, const float (&low)[4], const float (&high)[4], u32 head_dim,
                                           u32 lane) {
    float most = largest(low, high);
    float inverse = most > 1e-30f ? 448.0f / most : 1.0f;
    if (lane == 0) *scale = most > 1e-30f ? most * (1.0f / 448.0f) : 1.0f;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        u32 e = 2 * (lane + 32 * i);
        if (e < head_dim) *reinterpret_cast<u16 *>(to + e) = to_f8x2(low[i] * inverse, high[i] * inverse);
    }
}

// As the CPU does it: the scale is the f16 next to 1 / 127 of the largest of 32, elements are nearest to what it leaves.
__device__ __forceinline__ void write_head(i8 *to, u8 *groups, float *, const float (&low)[4], const float (&high)[4],
                                           u32 head_dim, u32 lane) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
        float most = fmaxf(fabsf(low[i]), fabsf(high[i]));
#pragma unroll
        for (int step = 1; step < 16; step *= 2) most = fmaxf(most, __shfl_xor_sync(FULL, most, step));
        u16 stored = to_f16(fminf(most / 127.0f, 65504.0f));
        float read = f16_to_f32(stored), inverse = read == 0.0f ? 0.0f : 1.0f / read;
        u32 e = 2 * (lane + 32 * i);
        if (e >= head_dim) continue;
        int first = min(max((int)roundf(low[i] * inverse), -128), 127);
        int second = min(max((int)roundf(high[i] * inverse), -128), 127);
        *reinterpret_cast<u16 *>(to + e) = (u16)((first & 0xff) | (second & 0xff) << 8);
        if (lane % 16 == 0) *reinterpret_cast<u16 *>(groups + e / 32 * 2) = stored;
    }
}
// The scale of the head leaves numbers of at most 6 * 448, those of 16 of them at most 6.
__device__ __forceinline__ void write_head(f4x2 *to, u8 *groups, float *scale, const float (&low)[4], const float (&high)[4],
                                           u32 head_dim, u32 lane) {
    float all = largest(low, high);
    float of_all = all > 1e-30f ? all / (6.0f * 448.0f) : 1.0f;
    if (lane == 0) *scale = of_all;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        float most = fmaxf(fabsf(low[i]), fabsf(high[i]));
#pragma unroll
        for (int step = 1; step < 8; step *= 2) most = fmaxf(most, __shfl_xor_sync(FULL, most, step));
        u32 stored = to_f8x2(most / (6.0f * of_all), 0.0f) & 0xff, wide, none;
        f8x4_to_f16(wide, none, stored);
        float read = f16_to_f32((u16)wide) * of_all, inverse = read == 0.0f ? 0.0f : 1.0f / read;
        // Four lanes have eight elements, a word.
        u32 word = place_e2m1(e2m1(low[i] * inverse), lane % 4) | place_e2m1(e2m1(high[i] * inverse), lane % 4) << 16;
        word |= __shfl_xor_sync(FULL, word, 1);
        word |= __shfl_xor_sync(FULL, word, 2);
        u32 e = 2 * (lane + 32 * i);
        if (e >= head_dim) continue;
        if (lane % 4 == 0) *reinterpret_cast<u32 *>(to + e / 2) = word;
        if (lane % 8 == 0) groups[e / 16] = (u8)stored;
    }
}

template <typename Q, typename E, typename W>
__device__ __forceinline__ void rope_kv_write(Q *q, E *slab, const W *q_norm, const W *k_norm, const RopeArgs &a) {
    let_next_start();
    wait_for_earlier();
    u64 pool = a.pool, units = a.units;
    u32 table_rows = a.table_rows, table_columns = a.table_columns, block_tokens = a.block_tokens;
    u32 heads = a.heads, kv_heads = a.kv_heads, head_dim = a.head_dim, pairs = a.pairs, flags = a.flags;
    float epsilon = a.epsilon;
    u64 unit = (u64)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    if (unit >= units) return;
    u32 lane = threadIdx.x % 32;
    u32 all = heads + 2 * kv_heads;
    u64 token = unit / all;
    u32 head = (u32)(unit % all);
    bool interleaved = flags & 1, normed = flags & 2;
    const bf16 *from = a.qkv + (token * all + head) * head_dim;

    E *to = nullptr;
    u8 *groups = nullptr;
    float *scale = nullptr;
    if (head >= heads) {
        u32 row = a.rows[token], position = a.positions[token];
        u32 column = position / block_tokens;
        if (row >= table_rows || column >= table_columns) return;
        if (!holds_ids_of(a.ids, (u64)table_rows * table_columns, pool)) return;
        u32 id = a.ids[(u64)row * table_columns + column];
        if (id == HOLE) return;
        u32 part = head - heads; // keys, then values
        E *layer = slab + id * a.block_stride + a.layer_base;
        u64 slot = (u64)part * block_tokens + position % block_tokens;
        // Units of a vector, and bytes of its groups' scales; both are bytes where there are any of these.
        u32 row_units = head_dim * Cache<E>::BITS / 8 / (u32)sizeof(E), of_groups = Cache<E>::GROUPED ? head_dim / 16 : 0;
        u64 vectors = 2 * (u64)kv_heads * block_tokens;
        to = layer + slot * row_units;
        groups = reinterpret_cast<u8 *>(layer + vectors * row_units) + slot * of_groups;
        scale = reinterpret_cast<float *>(layer + vectors * (row_units + of_groups)) + slot;
    }

    // Each lane holds up to four pairs of neighbours.
    float low[4], high[4];
    float squares = 0.0f;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        u32 e = 2 * (lane + 32 * i);
        low[i] = high[i] = 0.0f;
        if (e < head_dim) {
            u32 word = *reinterpret_cast<const u32 *>(from + e);
            low[i] = low_f32(word);
            high[i] = high_f32(word);
            squares = fmaf(low[i], low[i], fmaf(high[i], high[i], squares));
        }
    }
    bool value = head >= heads + kv_heads;
    if (normed && !value) {
        const W *weight = head < heads ? q_norm : k_norm;
        float scale = rsqrtf(warp_sum(squares) / (float)head_dim + epsilon);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            u32 e = 2 * (lane + 32 * i);
            if (e < head_dim) {
                float2 w = weights_at(weight, e);
                low[i] *= scale * w.x;
                high[i] *= scale * w.y;
            }
        }
    }
    const float2 *angle = reinterpret_cast<const float2 *>(a.angles) + token * pairs;
    if (!value && interleaved) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            u32 pair = lane + 32 * i;
            if (pair < pairs) {
                float2 cs = angle[pair];
                float first = low[i], second = high[i];
                low[i] = first * cs.x - second * cs.y;
                high[i] = first * cs.y + second * cs.x;
            }
        }
    } else if (!value) {
        // The partner of element e is e + pairs or e - pairs, in another lane or register: through shared memory.
        extern __shared__ float rows_of_warps[];
        float *mine = rows_of_warps + (threadIdx.x / 32) * head_dim;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            u32 e = 2 * (lane + 32 * i);
            if (e < head_dim) {
                mine[e] = low[i];
                mine[e + 1] = high[i];
            }
        }
        __syncwarp();
#pragma unroll
        for (int i = 0; i < 4; i++) {
            u32 e = 2 * (lane + 32 * i);
            if (e < 2 * pairs) {
                bool first = e < pairs;
                u32 pair = first ? e : e - pairs, other = first ? e + pairs : e - pairs;
                float2 cs0 = angle[pair], cs1 = angle[pair + 1];
                float sign = first ? -1.0f : 1.0f;
                low[i] = low[i] * cs0.x + sign * mine[other] * cs0.y;
                high[i] = high[i] * cs1.x + sign * mine[other + 1] * cs1.y;
            }
        }
    }
    if (head < heads)
        write_head(q + (token * heads + head) * head_dim, groups, scale, low, high, head_dim, lane);
    else
        write_head(to, groups, scale, low, high, head_dim, lane);
}

#define ENTRY(KV, Q, NORM)                                                                                               \
    extern "C" __global__ void __launch_bounds__(128) rope_kv_write_##KV(                                              \
        Q *q, KV *slab, const bf16 *qkv, const float *angles, const u32 *ids, const u32 *rows, const u32 *positions,  \
        const NORM *q_norm, const NORM *k_norm, u64 pool, u64 block_stride, u64 layer_base, u32 block_tokens,          \
        u32 table_rows, u32 table_columns, u32 heads, u32 kv_heads, u32 head_dim, u32 pairs, u32 flags, float epsilon, \
        u64 units) {                                                                                                   \
        rope_kv_write(q, slab, q_norm, k_norm,                                                                         \
                      RopeArgs{qkv, angles, ids, rows, positions, pool, block_stride, layer_base, block_tokens,        \
                               table_rows, table_columns, heads, kv_heads, head_dim, pairs, flags, epsilon, units});   \
    }

ENTRY(bf16, bf16, bf16)
ENTRY(f16, f16, float)
ENTRY(f8, f16, float)
ENTRY(i8, f16, float)
ENTRY(f4x2, f16, float)
