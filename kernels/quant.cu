// Projections of 1 to 16 rows with weights of 4 to 8 bits: out = weights x, sums in f32.
//
// Weights were packed into tiles of 16 outputs x 64 elements when they were loaded, in the order in which lanes take
// them: lane (g, t) = (lane / 4, lane % 4) has rows g and g + 8, and of every 32 elements eight. A tile is its low
// bits, 4 of each weight (or all 8), then the fifth and sixth bits, then the scales. Integers become bf16 in registers,
// which is exact; they are multiplied by the inputs, also exactly, and the sum of a block is scaled in f32.
#include "common.cuh"
#include "finish.cuh"
#include "mma.cuh"
#include "outputs.cuh"

#define Q4 4 // 4 bits, f16 scale and offset for every 32
#define Q5 5 // 5 bits around 16, f16 scale for every 32
#define Q6 6 // 6 bits around 32, f16 scale for every 16
#define Q8 8 // 8 bits, signed, f16 scale for every 32
#define F8 9 // e4m3, f16 scale for every 32, 2^8 times too large

template <int F> __device__ constexpr u32 tile_bytes() {
    return F == Q4 ? 512 + 128 : F == Q5 ? 512 + 128 + 64 : F == Q6 ? 512 + 256 + 128 : 1024 + 64;
}

// Weights, which nobody reads again. `early`: by loads that stay in front of the wait for earlier kernels; the others may be moved behind it.
__device__ __forceinline__ uint4 load_once(const u8 *from, bool early) {
    uint4 v;
    if (early)
        asm volatile("ld.global.L1::no_allocate.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                     : "l"(from));
    else
        asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                     : "l"(from));
    return v;
}
__device__ __forceinline__ uint2 load8_once(const u8 *from, bool early) {
    uint2 v;
    if (early)
        asm volatile("ld.global.L1::no_allocate.v2.u32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "l"(from));
    else
        asm volatile("ld.global.nc.L1::no_allocate.v2.u32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "l"(from));
    return v;
}
__device__ __forceinline__ u32 load4_once(const u8 *from, bool early) {
    u32 v;
    if (early)
        asm volatile("ld.global.L1::no_allocate.u32 %0, [%1];" : "=r"(v) : "l"(from));
    else
        asm volatile("ld.global.nc.L1::no_allocate.u32 %0, [%1];" : "=r"(v) : "l"(from));
    return v;
}

__device__ __forceinline__ float low_f16(u32 pair) {
    float y;
    asm("{.reg .f16 l, h; mov.b32 {l, h}, %1; cvt.f32.f16 %0, l;}" : "=f"(y) : "r"(pair));
    return y;
}
__device__ __forceinline__ float high_f16(u32 pair) {
    float y;
    asm("{.reg .f16 l, h; mov.b32 {l, h}, %1; cvt.f32.f16 %0, h;}" : "=f"(y) : "r"(pair));
    return y;
}

// x - y, both of two bf16.
__device__ __forceinline__ u32 minus(u32 x, u32 y) {
    u32 d;
    asm("sub.rn.bf16x2 %0, %1, %2;" : "=r"(d) : "r"(x), "r"(y));
    return d;
}

__device__ __forceinline__ u32 times(u32 x, u32 y) {
    u32 d;
    asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(d) : "r"(x), "r"(y));
    return d;
}

// What a lane has of a tile.
template <int F> struct Bits {
    uint4 low[F >= Q8 ? 2 : 1];
    uint2 high; // Q5: one word
    uint4 scale;
};

template <int F> __device__ __forceinline__ Bits<F> load_tile(const u8 *tile, u32 lane, bool early) {
    Bits<F> v;
    u32 g = lane / 4;
    v.low[0] = load_once(tile + lane * 16, early);
    if (F >= Q8) v.low[F >= Q8] = load_once(tile + 512 + lane * 16, early);
    if (F == Q5) v.high.x = load4_once(tile + 512 + lane * 4, early);
    if (F == Q6) v.high = load8_once(tile + 512 + lane * 8, early);
    const u8 *scales = tile + (F == Q4 ? 512 : F == Q5 ? 640 : F == Q6 ? 768 : 1024);
    if (F == Q4 || F == Q6) {
        v.scale = load_once(scales + g * 16, early);
    } else {
        uint2 s = load8_once(scales + g * 8, early);
        v.scale = make_uint4(s.x, s.y, 0, 0);
    }
    return v;
}

__device__ __forceinline__ u32 word_of(const uint4 &v, int i) { return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w; }

// Two weights as bf16: pair `i` of eight weights of row g + 8 * `half`, of block `block`. 0x4300 is 128, and seven bits
// behind it are added to it.
template <int F> __device__ __forceinline__ u32 pair_of(const Bits<F> &v, int block, int half, int i) {
    const u32 ONE = 0x43004300;
    if (F >= Q8) {
        u32 w = word_of(v.low[F >= Q8 ? block : 0], half * 2 + i / 2) >> (i % 2 * 8);
        if (F == F8) {
            // The exponent counts from 7 there, from 127 here, and 8 of that are the scale's. Exact, also below normal
            // numbers.
            u32 at = w << 8;
            return times((at >> 4 & 0x07f007f0) | (at & 0x80008000), 0x77807780);
        }
        // The sign is worth -128: what is taken away is 128, and 256 with it.
        return minus((w & 0x007f007f) | ONE, (w & 0x00800080) | ONE);
    }
    u32 w = (word_of(v.low[0], block * 2 + half) >> (4 * i)) & 0x000f000f | ONE;
    if (F == Q4) return w; // 128 too much: the offset makes up for it
    if (F == Q5) {
        int p = (block * 2 + half) * 4 + i;
        u32 h = p < 4 ? v.high.x << (4 - p) : v.high.x >> (p - 4);
        return minus(w | (h & 0x00100010), 0x43104310); // 144
    }
    int p = half * 4 + i;
    u32 bits = block ? v.high.y : v.high.x, h = p < 2 ? bits << (4 - 2 * p) : bits >> (2 * p - 4);
    return minus(w | (h & 0x00300030), 0x43204320); // 160
}

template <bool PLAIN, typename T> __device__ __forceinline__ T input_at(const T *from) { return PLAIN ? *from : __ldg(from); }

// Eight inputs of a lane, the first four and those `behind` them, from f32, each times its weight, as bf16; and the sum of their squares.
__device__ __forceinline__ uint4 weighted(const float *x, const float *norm, u32 behind, float &squares) {
    float4 l = *reinterpret_cast<const float4 *>(x), h = *reinterpret_cast<const float4 *>(x + behind);
    float4 p = *reinterpret_cast<const float4 *>(norm), q = *reinterpret_cast<const float4 *>(norm + behind);
    squares = fmaf(l.x, l.x, fmaf(l.y, l.y, fmaf(l.z, l.z, fmaf(l.w, l.w, squares))));
    squares = fmaf(h.x, h.x, fmaf(h.y, h.y, fmaf(h.z, h.z, fmaf(h.w, h.w, squares))));
    return make_uint4(to_bf16x2(l.x * p.x, l.y * p.y), to_bf16x2(l.z * p.z, l.w * p.w), to_bf16x2(h.x * q.x, h.y * q.y),
                      to_bf16x2(h.z * q.z, h.w * q.w));
}

// NORMED: inputs are f32, and normalised on the way: x / rms(x) * norm. The norm's weight comes before the product, the
// division by rms(x) behind it.
template <int F, int NT, int MT, int WARPS, int SIDE, int STEP, bool AHEAD, bool NORMED>
__device__ __forceinline__ void quant(void *out, const void *x, const u8 *w0, const u8 *w1, const u8 *w2,
                                      const float *norm, u32 rows0, u32 rows1, u32 rows2, u32 columns, u32 rows,
                                      u32 how, float epsilon) {
    extern __shared__ __align__(16) float shared[];
    __shared__ float squares_of[NORMED ? WARPS : 1][NT * 8];
    static_assert(!NORMED || SIDE == 1, "every warp has elements of its own");
    constexpr u32 ROWS = 16 * MT * SIDE;
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
    u32 wide = (columns + 63) / 64; // tiles of a row
    // Gated, a block has tiles of both matrices in turns.
    bool gated = how >= GATE_SILU;
    const u8 *w = w0;
    u32 outputs = rows0, before = 0, first = blockIdx.x * (gated ? ROWS / 2 : ROWS);
    if (!gated) {
        u32 tiles0 = (rows0 + ROWS - 1) / ROWS, tiles1 = (rows1 + ROWS - 1) / ROWS, tile = blockIdx.x;
        if (tile >= tiles0 + tiles1) {
            w = w2, outputs = rows2, before = rows0 + rows1, first = (tile - tiles0 - tiles1) * ROWS;
        } else if (tile >= tiles0) {
            w = w1, outputs = rows1, before = rows0, first = (tile - tiles0) * ROWS;
        }
    }
    const u8 *tiles[MT];
    u32 most = (outputs + 15) / 16 - 1, side = warp % SIDE * MT, first_row = blockIdx.y * (NT * 8);
#pragma unroll
    for (int i = 0; i < MT; i++) {
        u32 at = first / 16 + (gated ? (side + i) / 2 : side + i);
        tiles[i] = (gated && i % 2 ? w1 : w) + (u64)min(at, most) * wide * tile_bytes<F>();
    }
    const u8 *inputs[NT];
#pragma unroll
    for (int j = 0; j < NT; j++)
        inputs[j] = reinterpret_cast<const u8 *>(x) +
                    ((u64)min(first_row + j * 8 + g, rows - 1) * columns + t * (F == Q6 ? 4 : 8)) * (NORMED ? 4 : 2);

    float sum[MT][NT][4], squares[NT];
#pragma unroll
    for (int j = 0; j < NT; j++) squares[j] = 0.0f;
#pragma unroll
    for (int i = 0; i < MT; i++)
#pragma unroll
        for (int j = 0; j < NT; j++)
#pragma unroll
            for (int e = 0; e < 4; e++) sum[i][j][e] = 0.0f;

    Bits<F> v[AHEAD ? 2 : 1][STEP][MT];
    uint4 b[AHEAD ? 2 : 1][STEP][NT][2];
    auto load_weights = [&](int to, u32 tile, bool early) {
#pragma unroll
        for (int s = 0; s < STEP; s++)
#pragma unroll
            for (int i = 0; i < MT; i++)
                // Behind the last tile it is read again, with inputs of zero.
                v[to][s][i] = load_tile<F>(tiles[i] + (u64)min(tile + s, wide - 1) * tile_bytes<F>(), lane, early);
    };
    // What waits reads them by plain loads: others are moved in front of the wait.
    auto load_inputs = [&](int to, u32 tile) {
        constexpr u32 BEHIND = F == Q6 ? 16 : 4;
#pragma unroll
        for (int s = 0; s < STEP; s++)
#pragma unroll
            for (int j = 0; j < NT; j++)
#pragma unroll
                for (int block = 0; block < 2; block++) {
                    u32 k = (tile + s) * 64 + block * 32;
                    uint4 y = make_uint4(0, 0, 0, 0);
                    if (k >= columns) {
                        // None.
                    } else if (NORMED) {
                        y = weighted(reinterpret_cast<const float *>(inputs[j]) + k,
                                     norm + k + t * (F == Q6 ? 4 : 8), BEHIND, squares[j]);
                    } else {
                        const bf16 *from = reinterpret_cast<const bf16 *>(inputs[j]) + k;
                        if (F == Q6) {
                            uint2 l = input_at<NT == 1>(reinterpret_cast<const uint2 *>(from));
                            uint2 h = input_at<NT == 1>(reinterpret_cast<const uint2 *>(from + BEHIND));
                            y = make_uint4(l.x, l.y, h.x, h.y);
                        } else {
                            y = input_at<NT == 1>(reinterpret_cast<const uint4 *>(from));
                        }
                    }
                    b[to][s][j][block] = y;
                }
    };
    auto products = [&](int from) {
#pragma unroll
        for (int s = 0; s < STEP; s++)
#pragma unroll
            for (int block = 0; block < 2; block++) {
                // Sums of the inputs themselves, for offsets: products with ones.
                float plain[NT][4];
                if (F == Q4) {
                    const u32 ones[4] = {0x3f803f80, 0x3f803f80, 0x3f803f80, 0x3f803f80};
#pragma unroll
                    for (int j = 0; j < NT; j++) {
#pragma unroll
                        for (int e = 0; e < 4; e++) plain[j][e] = 0.0f;
                        multiply(plain[j], ones, b[from][s][j][block].x, b[from][s][j][block].y);
                        multiply(plain[j], ones, b[from][s][j][block].z, b[from][s][j][block].w);
                    }
                }
#pragma unroll
                for (int i = 0; i < MT; i++) {
                    const Bits<F> &it = v[from][s][i];
                    u32 a[2][4];
#pragma unroll
                    for (int k = 0; k < 2; k++) {
                        a[k][0] = pair_of<F>(it, block, 0, 2 * k);
                        a[k][1] = pair_of<F>(it, block, 1, 2 * k);
                        a[k][2] = pair_of<F>(it, block, 0, 2 * k + 1);
                        a[k][3] = pair_of<F>(it, block, 1, 2 * k + 1);
                    }
                    u32 s0 = block ? it.scale.z : it.scale.x, s1 = block ? it.scale.w : it.scale.y;
                    if (F == Q5 || F >= Q8) s0 = block ? it.scale.y : it.scale.x;
                    float d0 = low_f16(s0), d1 = F == Q5 || F >= Q8 ? high_f16(s0) : low_f16(s1);
#pragma unroll
                    for (int j = 0; j < NT; j++) {
                        float p[4] = {0.0f, 0.0f, 0.0f, 0.0f};
                        float(&c)[4] = sum[i][j];
                        multiply(p, a[0], b[from][s][j][block].x, b[from][s][j][block].y);
                        if (F == Q6) {
                            // A scale for each half of the block: (row g, row g + 8) of the first, then of the second.
                            c[0] = fmaf(low_f16(s0), p[0], c[0]), c[1] = fmaf(low_f16(s0), p[1], c[1]);
                            c[2] = fmaf(high_f16(s0), p[2], c[2]), c[3] = fmaf(high_f16(s0), p[3], c[3]);
                            p[0] = p[1] = p[2] = p[3] = 0.0f;
                            multiply(p, a[1], b[from][s][j][block].z, b[from][s][j][block].w);
                            c[0] = fmaf(low_f16(s1), p[0], c[0]), c[1] = fmaf(low_f16(s1), p[1], c[1]);
                            c[2] = fmaf(high_f16(s1), p[2], c[2]), c[3] = fmaf(high_f16(s1), p[3], c[3]);
                        } else {
                            multiply(p, a[1], b[from][s][j][block].z, b[from][s][j][block].w);
                            c[0] = fmaf(d0, p[0], c[0]), c[1] = fmaf(d0, p[1], c[1]);
                            c[2] = fmaf(d1, p[2], c[2]), c[3] = fmaf(d1, p[3], c[3]);
                            if (F == Q4) {
                                float m0 = fmaf(-128.0f, d0, high_f16(s0)), m1 = fmaf(-128.0f, d1, high_f16(s1));
                                c[0] = fmaf(m0, plain[j][0], c[0]), c[1] = fmaf(m0, plain[j][1], c[1]);
                                c[2] = fmaf(m1, plain[j][2], c[2]), c[3] = fmaf(m1, plain[j][3], c[3]);
                            }
                        }
                    }
                }
            }
    };
    const u32 by = WARPS / SIDE * STEP;
    u32 tile = warp / SIDE * STEP;
    // Launched early (up to 8 rows, early.rs): the first weights are on their way before the inputs are there.
    let_next_start();
    load_weights(0, tile, NT == 1);
    if (NT == 1) wait_for_earlier();
    load_inputs(0, tile);
    if (AHEAD) {
        for (; tile < wide; tile += 2 * by) {
            load_weights(1, tile + by, false);
            load_inputs(1, tile + by);
            products(0);
            load_weights(0, tile + 2 * by, false);
            load_inputs(0, tile + 2 * by);
            products(1);
        }
    } else if (tile < wide) {
        for (;;) {
            products(0);
            tile += by;
            if (tile >= wide) break;
            load_weights(0, tile, false);
            load_inputs(0, tile);
        }
    }
    if (NORMED)
#pragma unroll
        for (int j = 0; j < NT; j++) {
            squares[j] += __shfl_xor_sync(FULL, squares[j], 1);
            squares[j] += __shfl_xor_sync(FULL, squares[j], 2);
            if (t == 0) squares_of[warp][j * 8 + g] = squares[j];
        }

    u32 all = gated ? rows0 : rows0 + rows1 + rows2;
    finish_block<NT, MT, WARPS, SIDE>(sum, shared, [&](int i, u32 output, u32 row, float total, float other) {
        if (NORMED) {
            float mean = 0.0f;
#pragma unroll
            for (int part = 0; part < WARPS; part++) mean += squares_of[part][row];
            float factor = rsqrtf(mean / (float)columns + epsilon);
            total *= factor, other *= factor;
        }
        row += first_row;
        u32 column = first + (gated ? i / 2 : i) * 16 + output;
        if (row >= rows || column >= outputs) return;
        if (!gated) {
            leave(out, (u64)row * all + before + column, total, how);
        } else if (i % 2 == 0) {
            // Rounded as through memory.
            float gate = to_f32(to_bf16(total)), up = to_f32(to_bf16(other));
            reinterpret_cast<bf16 *>(out)[(u64)row * all + column] =
                to_bf16((how == GATE_GELU ? gelu(gate) : silu(gate)) * up);
        }
    });
}

// Blocks on a multiprocessor where that needs no local memory.
#if __CUDA_ARCH__ >= 1200
#define TWO 1
#else
#define TWO 2
#endif

#define ENTRY(F, NT, MT, WARPS, SIDE, STEP, AHEAD, BLOCKS)                                                             \
    extern "C" __global__ void __launch_bounds__(WARPS * 32, BLOCKS)                                                   \
        quant_q##F##_n##NT##_m##MT##_w##WARPS##_s##SIDE##_a##AHEAD(                                                    \
            void *out, const bf16 *x, const u8 *w0, const u8 *w1, const u8 *w2, u32 rows0, u32 rows1, u32 rows2,       \
            u32 columns, u32 rows, u32 how) {                                                                          \
        quant<F, NT, MT, WARPS, SIDE, STEP, AHEAD, false>(out, x, w0, w1, w2, 0, rows0, rows1, rows2, columns, rows,   \
                                                          how, 0.0f);                                                  \
    }

// Few outputs: as many blocks as there are tiles. The gated form has two tiles to a block.
ENTRY(4, 1, 1, 8, 1, 2, 0, 2)
ENTRY(5, 1, 1, 8, 1, 2, 0, 2)
ENTRY(6, 1, 1, 8, 1, 2, 0, 2)
ENTRY(8, 1, 1, 8, 1, 2, 0, 2)
ENTRY(9, 1, 1, 8, 1, 2, 0, 2)
// More of them; long rows; very many.
ENTRY(4, 1, 2, 8, 1, 1, 1, 2)
ENTRY(5, 1, 2, 8, 1, 1, 1, TWO)
ENTRY(6, 1, 2, 8, 1, 1, 1, TWO)
ENTRY(8, 1, 2, 8, 1, 1, 1, 2)
ENTRY(9, 1, 2, 8, 1, 1, 1, 2)
ENTRY(4, 1, 2, 16, 1, 1, 1, 1)
ENTRY(8, 1, 2, 16, 1, 1, 1, 1)
ENTRY(4, 1, 4, 8, 1, 1, 0, 2)
ENTRY(8, 1, 2, 8, 1, 1, 0, 4)
// Up to 16 rows of inputs.
ENTRY(4, 2, 2, 8, 1, 1, 1, TWO)
ENTRY(8, 2, 2, 8, 1, 1, 1, TWO)
ENTRY(9, 2, 2, 8, 1, 1, 1, 1)
ENTRY(4, 2, 2, 8, 2, 1, 1, TWO)
ENTRY(5, 2, 2, 8, 2, 1, 1, 1)
ENTRY(6, 2, 2, 8, 2, 1, 1, 1)
ENTRY(8, 2, 2, 8, 2, 1, 1, TWO)

#define NORMED_ENTRY(F, MT, STEP, AHEAD, BLOCKS)                                                                       \
    extern "C" __global__ void __launch_bounds__(256, BLOCKS) quant_normed_q##F##_m##MT(                               \
        void *out, const float *x, const u8 *w0, const u8 *w1, const u8 *w2, const float *norm, u32 rows0, u32 rows1,  \
        u32 rows2, u32 columns, u32 rows, u32 how, float epsilon) {                                                    \
        quant<F, 1, MT, 8, 1, STEP, AHEAD, true>(out, x, w0, w1, w2, norm, rows0, rows1, rows2, columns, rows, how,    \
                                                 epsilon);                                                             \
    }

// Up to 8 rows, normalised on the way: few outputs, and more of them or gated ones.
NORMED_ENTRY(4, 1, 2, 0, 2)
NORMED_ENTRY(5, 1, 2, 0, 2)
NORMED_ENTRY(6, 1, 2, 0, 2)
NORMED_ENTRY(8, 1, 2, 0, 2)
NORMED_ENTRY(4, 2, 1, 0, 2)
NORMED_ENTRY(5, 2, 1, 0, 2)
NORMED_ENTRY(6, 2, 1, 0, 2)
NORMED_ENTRY(8, 2, 1, 0, 2)
