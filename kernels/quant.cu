// Projections of 1 to 16 rows with weights of 4 to 8 bits: out = weights x, sums in f32.
//
// The weights are tiles (tiles.cuh says how they lie). Integers become bf16 in registers, which is exact; they are multiplied by the
// inputs, also exactly, and the sum of a block is scaled in f32.
#include "common.cuh"
#include "finish.cuh"
#include "mma.cuh"
#include "outputs.cuh"
#include "tiles.cuh"

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
    const u8 *scales = tile + scales_at<F>();
    if (F == Q4 || F == Q6) {
        v.scale = load_once(scales + g * 16, early);
    } else {
        uint2 s = load8_once(scales + g * 8, early);
        v.scale = make_uint4(s.x, s.y, 0, 0);
    }
    return v;
}

// What a lane has of a block.
template <int F> __device__ __forceinline__ Part<F> part_of(const Bits<F> &v, int block) {
    Part<F> part = {};
    if constexpr (F >= Q8) {
        part.low[0][0] = v.low[block].x, part.low[0][1] = v.low[block].y;
        part.low[1][0] = v.low[block].z, part.low[1][1] = v.low[block].w;
        part.scale.x = block ? v.scale.y : v.scale.x;
    } else {
        part.low[0][0] = block ? v.low[0].z : v.low[0].x, part.low[1][0] = block ? v.low[0].w : v.low[0].y;
        part.high = F == Q6 && block ? v.high.y : v.high.x;
        if (F == Q5) part.scale.x = block ? v.scale.y : v.scale.x;
        else part.scale = block ? make_uint2(v.scale.z, v.scale.w) : make_uint2(v.scale.x, v.scale.y);
    }
    return part;
}

// Two weights as bf16; of 4 bits 128 too much, for which the offset makes up.
template <int F> __device__ __forceinline__ u32 pair_of(const Part<F> &v, int block, int half, int i) {
    u32 w = raised_pair<F>(v, block, half, i, 0x43004300);
    return F == Q5 || F == Q6 ? minus(w, raised_by<F>()) : w;
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
                    ((u64)min(first_row + j * 8 + g, rows - 1) * columns + first_of<F>(lane)) * (NORMED ? 4 : 2);

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
        constexpr u32 BEHIND = others_behind<F>();
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
                                     norm + k + first_of<F>(lane), BEHIND, squares[j]);
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
                    const Part<F> it = part_of<F>(v[from][s][i], block);
                    u32 a[2][4];
#pragma unroll
                    for (int k = 0; k < 2; k++) {
                        a[k][0] = pair_of<F>(it, block, 0, 2 * k);
                        a[k][1] = pair_of<F>(it, block, 1, 2 * k);
                        a[k][2] = pair_of<F>(it, block, 0, 2 * k + 1);
                        a[k][3] = pair_of<F>(it, block, 1, 2 * k + 1);
                    }
                    u32 s0 = it.scale.x, s1 = it.scale.y;
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
            // As `gated_output`, whose call becomes other machine code for sm_120.
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
