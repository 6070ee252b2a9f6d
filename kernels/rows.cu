// The two ends of a forward pass: rows of the embedding, rows that want logits, and the choice of the next token.
#include "common.cuh"
#include "random.cuh"

// What a pass needs before its layers: how many tokens each token sees, itself included, and counters that are zero.
extern "C" __global__ void __launch_bounds__(256)
    begin_pass(u32 *sees, u32 *arrived, const u32 *positions, u32 tokens, u32 counters) {
    let_next_start();
    wait_for_earlier();
    u32 i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < tokens) sees[i] = positions[i] + 1;
    if (i < counters) arrived[i] = 0;
}

// out[token] = factor * table[tokens[token]]; a token that is not in the table gets zeros. `pieces` counts eights.
extern "C" __global__ void __launch_bounds__(256)
    embed_bf16(float *out, const bf16 *table, const u32 *tokens, u32 vocabulary, u32 hidden, float factor, u64 pieces) {
    let_next_start();
    wait_for_earlier();
    u32 row_pieces = hidden / 8;
    u64 step = (u64)gridDim.x * blockDim.x;
    for (u64 piece = (u64)blockIdx.x * blockDim.x + threadIdx.x; piece < pieces; piece += step) {
        u32 token = tokens[piece / row_pieces];
        Eight e = {};
        if (token < vocabulary) e = unpack(load16(table + (u64)token * hidden + piece % row_pieces * 8));
        float4 *to = reinterpret_cast<float4 *>(out + piece * 8);
        to[0] = make_float4(factor * e.x[0], factor * e.x[1], factor * e.x[2], factor * e.x[3]);
        to[1] = make_float4(factor * e.x[4], factor * e.x[5], factor * e.x[6], factor * e.x[7]);
    }
}

// out[i] = x[picks[i]], rows of `hidden` f32; a pick behind the last of `rows` gets zeros. `pieces` counts fours.
extern "C" __global__ void __launch_bounds__(256)
    gather_f32(float *out, const float *x, const u32 *picks, u32 rows, u32 hidden, u64 pieces) {
    let_next_start();
    wait_for_earlier();
    u32 row_pieces = hidden / 4;
    u64 step = (u64)gridDim.x * blockDim.x;
    for (u64 piece = (u64)blockIdx.x * blockDim.x + threadIdx.x; piece < pieces; piece += step) {
        u32 pick = picks[piece / row_pieces];
        const float4 *from = reinterpret_cast<const float4 *>(x + (u64)pick * hidden) + piece % row_pieces;
        reinterpret_cast<float4 *>(out)[piece] = pick < rows ? *from : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    }
}

// x = cap * tanh(x / cap)
extern "C" __global__ void __launch_bounds__(256) softcap_f32(float *x, float cap, u64 n) {
    let_next_start();
    wait_for_earlier();
    u64 step = (u64)gridDim.x * blockDim.x;
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) x[i] = cap * tanh_exp(x[i] / cap);
}

// A logit with its token as one number: larger logits first, then smaller tokens. NaN comes last.
__device__ __forceinline__ u64 rank_of(float logit, u32 token) {
    u32 bits = __float_as_uint(logit);
    u32 ordered = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
    if (logit != logit) ordered = 0;
    return (u64)ordered << 32 | (u32)~token;
}

// The logit of a rank; that of NaN is one that nothing makes likely.
__device__ __forceinline__ float logit_of(u64 rank) {
    u32 ordered = (u32)(rank >> 32);
    if (ordered == 0) ordered = 0x007fffffu; // -infinity
    return __uint_as_float(ordered & 0x80000000u ? ordered & 0x7fffffffu : ~ordered);
}

#define CANDIDATES 256
#define THREADS 1024

// The largest `wanted` ranks of a row, in falling order, into `best`: the 64-bit number that `wanted` of them reach is found byte
// by byte from above, then those are collected and sorted. No two ranks are equal.
__device__ __forceinline__ void largest(u64 *best, u32 *counts, const float *logits, u32 vocabulary, u32 wanted) {
    __shared__ u64 found;
    __shared__ u32 left, taken;
    u32 t = threadIdx.x;
    u64 prefix = 0;
    u32 need = wanted;
    for (int shift = 56; shift >= 0; shift -= 8) {
        if (t < 256) counts[t] = 0;
        __syncthreads();
        for (u32 token = t; token < vocabulary; token += THREADS) {
            u64 rank = rank_of(logits[token], token);
            if (shift == 56 || rank >> (shift + 8) == prefix) atomicAdd(&counts[rank >> shift & 255], 1);
        }
        __syncthreads();
        if (t == 0) {
            u32 digit = 255, above = 0;
            while (digit > 0 && above + counts[digit] < need) above += counts[digit--];
            found = prefix << 8 | digit;
            left = need - above;
        }
        __syncthreads();
        prefix = found;
        need = left;
        __syncthreads();
    }
    if (t < CANDIDATES) best[t] = 0;
    if (t == 0) taken = 0;
    __syncthreads();
    for (u32 token = t; token < vocabulary; token += THREADS) {
        u64 rank = rank_of(logits[token], token);
        if (rank >= prefix) {
            u32 place = atomicAdd(&taken, 1);
            if (place < CANDIDATES) best[place] = rank;
        }
    }
    __syncthreads();
    // Bitonic, falling.
    for (u32 size = 2; size <= CANDIDATES; size *= 2)
        for (u32 stride = size / 2; stride > 0; stride /= 2) {
            u32 other = t ^ stride;
            if (t < CANDIDATES && other > t) {
                u64 a = best[t], b = best[other];
                bool falling = (t & size) == 0;
                if (falling ? a < b : a > b) {
                    best[t] = b;
                    best[other] = a;
                }
            }
            __syncthreads();
        }
}

// Chooses a token for each row of logits, a block a row. Temperature 0 takes the largest logit, the first of equals; otherwise of the
// largest top-k (0: 256, the most) the largest that make up top-p, by the fraction that the seed gives for the token's position.
extern "C" __global__ void __launch_bounds__(THREADS) sample_f32(u32 *sampled, const float *logits, const float *how,
    const u32 *seeds, const u32 *picks, const u32 *rows, const u32 *positions, u32 vocabulary, u32 tokens, u32 sequences) {
    let_next_start();
    wait_for_earlier();
    __shared__ u64 best[CANDIDATES];
    __shared__ u32 counts[256];
    u32 row = blockIdx.x, t = threadIdx.x;
    const float *mine = logits + (u64)row * vocabulary;
    // The token whose logits these are, and its sequence. Where there is none the largest logit is taken.
    u32 token_of = picks[row], sequence = token_of < tokens ? rows[token_of] : sequences;
    float temperature = sequence < sequences ? how[2 * sequence] : 0.0f;
    if (!(temperature > 0.0f)) {
        u64 top = 0;
        for (u32 token = t; token < vocabulary; token += THREADS) {
            u64 rank = rank_of(mine[token], token);
            top = rank > top ? rank : top;
        }
#pragma unroll
        for (int offset = 16; offset > 0; offset >>= 1) {
            u64 other = __shfl_xor_sync(FULL, top, offset);
            top = other > top ? other : top;
        }
        if (t % 32 == 0) best[t / 32] = top;
        __syncthreads();
        if (t == 0) {
            for (u32 i = 1; i < THREADS / 32; i++) top = best[i] > top ? best[i] : top;
            sampled[row] = ~(u32)top;
        }
        return;
    }
    float top_p = how[2 * sequence + 1];
    u32 top_k = seeds[3 * sequence];
    u32 wanted = min(top_k == 0 || top_k > CANDIDATES ? CANDIDATES : top_k, vocabulary);
    largest(best, counts, mine, vocabulary, wanted);
    if (t != 0) return;
    float top = logit_of(best[0]);
    float total = 0.0f, kept = 0.0f;
    for (u32 i = 0; i < wanted; i++) total += exp2_fast((logit_of(best[i]) - top) / temperature * LOG2E);
    u32 candidates = 0;
    while (candidates < wanted) {
        kept += exp2_fast((logit_of(best[candidates++]) - top) / temperature * LOG2E);
        if (kept >= top_p * total) break;
    }
    // The chosen token goes behind the one whose logits these are.
    u32 position = positions[token_of] + 1;
    float rest = uniform_at(seeds[3 * sequence + 1], seeds[3 * sequence + 2], position, FOR_TOKEN) * kept;
    u32 chosen = ~(u32)best[0];
    for (u32 i = 0; i < candidates; i++) {
        rest -= exp2_fast((logit_of(best[i]) - top) / temperature * LOG2E);
        if (rest < 0.0f) {
            chosen = ~(u32)best[i];
            break;
        }
    }
    sampled[row] = chosen;
}

// out[i] = Philox4x32-10 of the counter inputs[i][0..4] under the key inputs[i][4..6]
extern "C" __global__ void __launch_bounds__(256) philox4x32_10(u32 *out, const u32 *inputs, u64 n) {
    let_next_start();
    wait_for_earlier();
    u64 step = (u64)gridDim.x * blockDim.x;
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
        const u32 *in = inputs + 6 * i;
        uint4 words = philox4x32(make_uint4(in[0], in[1], in[2], in[3]), in[4], in[5]);
        u32 *to = out + 4 * i;
        to[0] = words.x;
        to[1] = words.y;
        to[2] = words.z;
        to[3] = words.w;
    }
}
