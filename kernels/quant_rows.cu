// Projections of 17 rows and more with weights of 4 to 6 or 8 bits whose rows are short: out = weights x, sums in f32. tiles.cuh says how they lie.
//
// Tiles are read once for 16, 32 or 64 rows of inputs, and become what the tensor cores take on the way. `few`: every tile of a row has a warp of its own, whose
// inputs come straight from memory, so that few outputs still give every multiprocessor work; sums are added in order. `even` and `head`: tiles
// and inputs go through a ring that a block shares.
#include "common.cuh"
#include "ring.cuh"

// Weights in device memory, which no other block of these rows reads; they may be read before the inputs are there.
__device__ __forceinline__ uint4 weights16(const u8 *from) {
    uint4 y;
    asm volatile("ld.global.L1::no_allocate.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(y.x), "=r"(y.y), "=r"(y.z), "=r"(y.w) : "l"(from) : "memory");
    return y;
}
__device__ __forceinline__ uint2 weights8(const u8 *from) {
    uint2 y;
    asm volatile("ld.global.L1::no_allocate.L2::128B.v2.u32 {%0, %1}, [%2];" : "=r"(y.x), "=r"(y.y) : "l"(from) : "memory");
    return y;
}
__device__ __forceinline__ u32 weights4(const u8 *from) {
    u32 y;
    asm volatile("ld.global.L1::no_allocate.L2::128B.u32 %0, [%1];" : "=r"(y) : "l"(from) : "memory");
    return y;
}

// Both blocks of what a lane has of a tile, in as few loads as there can be.
template <int F> __device__ __forceinline__ void load_parts(Part<F> (&v)[2], const u8 *tile, u32 lane) {
    u32 g = lane / 4;
    if constexpr (F == Q8) {
#pragma unroll
        for (int block = 0; block < 2; block++) {
            uint4 low = weights16(tile + block * 512 + lane * 16);
            v[block].low[0][0] = low.x, v[block].low[0][1] = low.y, v[block].low[1][0] = low.z, v[block].low[1][1] = low.w;
        }
    } else {
        uint4 low = weights16(tile + lane * 16);
        v[0].low[0][0] = low.x, v[0].low[1][0] = low.y, v[1].low[0][0] = low.z, v[1].low[1][0] = low.w;
        if (F == Q5) v[0].high = v[1].high = weights4(tile + low_bytes<F>() + lane * 4);
        if (F == Q6) {
            uint2 high = weights8(tile + low_bytes<F>() + lane * 8);
            v[0].high = high.x, v[1].high = high.y;
        }
    }
    if constexpr (F == Q4 || F == Q6) {
        uint4 scale = weights16(tile + scales_at<F>() + g * 16);
        v[0].scale = make_uint2(scale.x, scale.y), v[1].scale = make_uint2(scale.z, scale.w);
    } else {
        uint2 scale = weights8(tile + scales_at<F>() + g * 8);
        v[0].scale = make_uint2(scale.x, 0), v[1].scale = make_uint2(scale.y, 0);
    }
}

// A lane's products of a block of 4 bits, whose weights are rounded to bf16 as in unpack.cu: offsets are less work so, where rows are many.
template <int NJ> __device__ __forceinline__ void multiply_rounded(float (&sum)[NJ][4], const Part<Q4> &it, const uint4 (&b)[NJ], int block, u32 one) {
    float scale[2] = {low_f16(it.scale.x), low_f16(it.scale.y)};
    float offset[2] = {fmaf(-128.0f, scale[0], high_f16(it.scale.x)), fmaf(-128.0f, scale[1], high_f16(it.scale.y))};
    u32 a[2][4];
#pragma unroll
    for (int k = 0; k < 2; k++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const int half = e % 2;
            u32 w = raised_pair<Q4>(it, block, half, 2 * k + e / 2, one);
            a[k][e] = to_bf16x2(fmaf(scale[half], low_f32(w), offset[half]), fmaf(scale[half], high_f32(w), offset[half]));
        }
#pragma unroll
    for (int j = 0; j < NJ; j++) multiply(sum[j], a[0], b[j].x, b[j].y), multiply(sum[j], a[1], b[j].z, b[j].w);
}

// The same with weights as the whole numbers that they are: sums are multiplied with their scales.
template <int F, int NJ> __device__ __forceinline__ void multiply_exact(float (&sum)[NJ][4], const Part<F> &it, const uint4 (&b)[NJ], int block, u32 one) {
    float d0 = low_f16(it.scale.x), d1 = high_f16(it.scale.x);
    u32 a[2][4];
#pragma unroll
    for (int k = 0; k < 2; k++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            a[k][e] = raised_pair<F>(it, block, e % 2, 2 * k + e / 2, one);
            if (F == Q5 || F == Q6) a[k][e] = minus(a[k][e], raised_by<F>());
        }
#pragma unroll
    for (int j = 0; j < NJ; j++) {
        float p[4] = {0.0f, 0.0f, 0.0f, 0.0f};
        multiply(p, a[0], b[j].x, b[j].y);
        if (F == Q6) {
            // A scale for each half of the block.
            scaled_add(sum[j], d0, d1, p[0], p[1], p[2], p[3]);
            d0 = low_f16(it.scale.y), d1 = high_f16(it.scale.y);
            p[0] = p[1] = p[2] = p[3] = 0.0f;
        }
        multiply(p, a[1], b[j].z, b[j].w);
        scaled_add(sum[j], d0, d1, p[0], p[1], p[2], p[3]);
        if (F == Q6) d0 = low_f16(it.scale.x), d1 = high_f16(it.scale.x);
    }
}

template <int F, int NJ> __device__ __forceinline__ void multiply_block(float (&sum)[NJ][4], const Part<F> &it, const uint4 (&b)[NJ], int block, u32 one) {
    if constexpr (F == Q4) multiply_rounded<NJ>(sum, it, b, block, one);
    else multiply_exact<F, NJ>(sum, it, b, block, one);
}

// What a block multiplies: strips of 16 outputs of one matrix; gated, of two in turns.
struct Strips {
    const u8 *w, *other;
    u32 outputs, before, first, most; // of the matrix; of those in front of it; its first; its last strip
    bool gated;
    __device__ __forceinline__ const u8 *matrix(u32 strip) const { return gated && strip % 2 ? other : w; }
    __device__ __forceinline__ u32 at(u32 strip) const { return min(first / 16 + (gated ? strip / 2 : strip), most); }
};
template <u32 OUTPUTS>
__device__ __forceinline__ Strips strips_of(const u8 *w0, const u8 *w1, const u8 *w2, u32 rows0, u32 rows1, u32 rows2, u32 how) {
    u32 tile = blockIdx.x, tiles0 = (rows0 + OUTPUTS - 1) / OUTPUTS, tiles1 = (rows1 + OUTPUTS - 1) / OUTPUTS;
    if (how >= GATE_SILU) return Strips{w0, w1, rows0, 0, tile * (OUTPUTS / 2), (rows0 + 15) / 16 - 1, true};
    if (tile >= tiles0 + tiles1) return Strips{w2, w2, rows2, rows0 + rows1, (tile - tiles0 - tiles1) * OUTPUTS, (rows2 + 15) / 16 - 1, false};
    if (tile >= tiles0) return Strips{w1, w1, rows1, rows0, (tile - tiles0) * OUTPUTS, (rows1 + 15) / 16 - 1, false};
    return Strips{w0, w0, rows0, 0, tile * OUTPUTS, (rows0 + 15) / 16 - 1, false};
}

// Where a fragment's element lies: `at` counts elements of lanes of quarters of groups of eight rows of strips.
struct Place {
    u32 row, column;
    __device__ __forceinline__ Place(const Strips &m, u32 first_row, u32 strip, u32 at) {
        u32 lane = at % 32, e = at / 32 % 4;
        row = first_row + at / 128 * 8 + lane % 4 * 2 + e % 2, column = m.first + strip * 16 + lane / 4 + e / 2 * 8;
    }
};

// 16 outputs by 16 rows; a warp has every so many tiles. Shared memory: 1 KiB for each.
template <int F>
__device__ __forceinline__ void few(void *out, const bf16 *x, const u8 *w0, const u8 *w1, const u8 *w2, u32 rows0, u32 rows1, u32 rows2, u32 columns,
                                    u32 rows, u32 how) {
    extern __shared__ __align__(128) float shared[];
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32, g = lane / 4;
    u32 wide = (columns + 63) / 64, first_row = blockIdx.y * 16, all = rows0 + rows1 + rows2;
    const Strips m = strips_of<16>(w0, w1, w2, rows0, rows1, rows2, STORE_F32);
    let_next_start();
    const u8 *from = m.w + ((u64)m.at(0) * wide + warp) * tile_bytes<F>();
    int left = (int)columns - (int)warp * 64;
    Part<F> next[2], v[2];
    if (left > 0) load_parts<F>(next, from, lane);
    wait_for_earlier();
    // Which of the inputs come next: fewer than 2^32, of rows that are short.
    u32 inputs[2];
#pragma unroll
    for (u32 j = 0; j < 2; j++) inputs[j] = min(first_row + j * 8 + g, rows - 1) * columns + warp * 64 + first_of<F>(lane);
    // What is added to is on its way while the products are made.
    float old = 0.0f;
    if (how == ADD_F32 && threadIdx.x < 256) {
        const Place place(m, first_row, 0, threadIdx.x);
        if (place.row < rows && place.column < m.outputs) old = static_cast<const float *>(out)[(u64)place.row * all + m.before + place.column];
    }
    float sum[2][4];
#pragma unroll
    for (int j = 0; j < 2; j++)
#pragma unroll
        for (int e = 0; e < 4; e++) sum[j][e] = 0.0f;
    const u32 one = 0x43004300 + (how >> 16);
    for (; left > 0; left -= warps * 64) {
        uint4 b[2][2];
        // Of 64 elements there may be only 32: weights behind them are zeros, and are multiplied with the first ones once more.
        u32 behind = left > 32 ? 32 : 0;
#pragma unroll
        for (int block = 0; block < 2; block++)
#pragma unroll
            for (int j = 0; j < 2; j++) {
                const bf16 *at = x + (block ? inputs[j] + behind : inputs[j]);
                if (F == Q6) {
                    uint2 l = *reinterpret_cast<const uint2 *>(at), h = *reinterpret_cast<const uint2 *>(at + others_behind<F>());
                    b[block][j] = make_uint4(l.x, l.y, h.x, h.y);
                } else {
                    b[block][j] = *reinterpret_cast<const uint4 *>(at);
                }
            }
        v[0] = next[0], v[1] = next[1];
        from += (u64)warps * tile_bytes<F>();
        if (left > (int)(warps * 64)) load_parts<F>(next, from, lane);
#pragma unroll
        for (int block = 0; block < 2; block++) multiply_block<F, 2>(sum, v[block], b[block], block, one);
        inputs[0] += warps * 64, inputs[1] += warps * 64;
    }
#pragma unroll
    for (int j = 0; j < 2; j++)
#pragma unroll
        for (int e = 0; e < 4; e++) shared[warp * 256 + j * 128 + e * 32 + lane] = sum[j][e];
    __syncthreads();
    for (u32 at = threadIdx.x; at < 256; at += warps * 32) {
        const Place place(m, first_row, 0, at);
        float total = 0.0f;
        for (u32 part = 0; part < warps; part++) total += shared[part * 256 + at];
        if (place.row >= rows || place.column >= m.outputs) continue;
        u64 to = (u64)place.row * all + m.before + place.column;
        if (how != ADD_F32) leave(out, to, total, how);
        else static_cast<float *>(out)[to] = (at == threadIdx.x ? old : static_cast<const float *>(out)[to]) + total;
    }
}

// 16 MI outputs of each of WO warps by 8 NJ rows; of KS warps with the same ones, each has every so many tiles. Shared memory: STAGES times KS * 1024 NJ
// bytes of inputs and MI * WO * KS tiles; the sums of all warps, where they are added (KS > 1).
template <int F, int MI, int NJ, int WO, int KS, int STAGES>
__device__ __forceinline__ void shared_ring(void *out, const bf16 *x, const u8 *w0, const u8 *w1, const u8 *w2, u32 rows0, u32 rows1, u32 rows2,
                                            u32 columns, u32 rows, u32 how) {
    extern __shared__ __align__(128) float shared[];
    constexpr u32 TILE = tile_bytes<F>(), BO = MI * WO, BR = 8 * NJ, THREADS = 32 * WO * KS, PASS = THREADS / (8 * KS);
    constexpr u32 INPUTS = BR * KS * 128, STAGE = INPUTS + BO * KS * TILE, STRIP = KS * TILE / 16, PIECES = BO * STRIP;
    static_assert(BR % PASS == 0 && THREADS % (8 * KS) == 0, "");
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4, slice = warp % KS, side = warp / KS * MI;
    const Strips m = strips_of<16 * BO>(w0, w1, w2, rows0, rows1, rows2, how);
    u32 wide = (columns + 63) / 64, steps = (wide + KS - 1) / KS, first_row = blockIdx.y * BR, base = shared_address(shared);
    u32 row = threadIdx.x / (8 * KS), chunk = threadIdx.x % (8 * KS);
    // By no policy: several blocks of rows may read them.
    auto copy_weights = [&](u32 to, u32 step) {
#pragma unroll
        for (u32 i = 0; i < (PIECES + THREADS - 1) / THREADS; i++) {
            u32 piece = i * THREADS + threadIdx.x, strip = piece / STRIP, inside = piece % STRIP;
            if ((i + 1) * THREADS <= PIECES || piece < PIECES)
                copy16_async(to + INPUTS + piece * 16, m.matrix(strip) + ((u64)m.at(strip) * wide + step * KS) * TILE + inside * 16,
                             step * KS + inside / (TILE / 16) < wide ? 16 : 0);
        }
    };
    // Every second row's halves of 64 bytes change places, so that eight rows' pieces are in different banks. What is not there is zeros.
    auto copy_inputs = [&](u32 to, u32 step) {
#pragma unroll
        for (u32 i = 0; i < BR / PASS; i++) {
            u32 r = i * PASS + row, in = first_row + r, column = step * (64 * KS) + chunk * 8, at = chunk % 8 ^ (r & 1) << 2;
            copy16_async(to + (chunk / 8 * BR + r) * 128 + (at << 4), x + (u64)min(in, rows - 1) * columns + min(column, columns - 8),
                         in < rows && column < columns ? 16 : 0);
        }
    };
    let_next_start();
#pragma unroll
    for (u32 s = 0; s < STAGES - 1; s++)
        if (s < steps) copy_weights(base + s * STAGE, s);
    wait_for_earlier();
#pragma unroll
    for (u32 s = 0; s < STAGES - 1; s++) {
        if (s < steps) copy_inputs(base + s * STAGE, s);
        commit_copies();
    }
    float sum[MI][NJ][4];
#pragma unroll
    for (int i = 0; i < MI; i++)
#pragma unroll
        for (int j = 0; j < NJ; j++)
#pragma unroll
            for (int e = 0; e < 4; e++) sum[i][j][e] = 0.0f;
    const u32 one = 0x43004300 + (how >> 16);
    u32 stage = 0, fill = STAGES - 1;
    for (u32 step = 0; step < steps; step++) {
        wait_copies<STAGES - 2>();
        __syncthreads();
        if (step + STAGES - 1 < steps) copy_weights(base + fill * STAGE, step + STAGES - 1), copy_inputs(base + fill * STAGE, step + STAGES - 1);
        commit_copies();
        fill = fill + 1 == STAGES ? 0 : fill + 1;
        u32 at = base + stage * STAGE, inputs = at + (slice * BR + g) * 128, tiles = at + INPUTS + (side * KS + slice) * TILE, turn = (g & 1) << 2;
        stage = stage + 1 == STAGES ? 0 : stage + 1;
#pragma unroll
        for (int block = 0; block < 2; block++) {
            uint4 b[NJ];
#pragma unroll
            for (int j = 0; j < NJ; j++) {
                u32 of = inputs + j * 1024;
                if (F == Q6) {
                    u32 piece = block * 4 + t / 2, half = t % 2 * 8;
                    uint2 l = load_shared8(of + ((piece ^ turn) << 4) + half), h = load_shared8(of + (((piece + 2) ^ turn) << 4) + half);
                    b[j] = make_uint4(l.x, l.y, h.x, h.y);
                } else {
                    b[j] = load_shared16(of + (((block * 4 + t) ^ turn) << 4));
                }
            }
#pragma unroll
            for (int i = 0; i < MI; i++) {
                const Part<F> it = load_part<F>(SharedTile{tiles + i * KS * TILE}, lane, block);
                multiply_block<F, NJ>(sum[i], it, b, block, one);
            }
        }
    }
    u32 all = m.gated ? rows0 : rows0 + rows1 + rows2;
    auto leave_one = [&](u32 strip, u32 at, float total, float other) {
        const Place place(m, first_row, strip, at);
        if (place.row >= rows || place.column >= m.outputs) return;
        u64 to = (u64)place.row * all + m.before + place.column;
        if (m.gated) leave_gated(out, to, total, other, how);
        else leave(out, to, total, how);
    };
    // Such blocks gate nothing.
    if constexpr (KS == 1) {
#pragma unroll
        for (int i = 0; i < MI; i++)
#pragma unroll
            for (int j = 0; j < NJ; j++)
#pragma unroll
                for (int e = 0; e < 4; e++)
                    leave_one(side + i, j * 128 + e * 32 + lane, sum[i][j][e], 0.0f);
        return;
    }
    // The ring is free for the sums.
    constexpr u32 ONE = NJ * 128, ALL = BO * ONE;
    wait_copies<0>();
    __syncthreads();
#pragma unroll
    for (int i = 0; i < MI; i++)
#pragma unroll
        for (int j = 0; j < NJ; j++)
#pragma unroll
            for (int e = 0; e < 4; e++) shared[slice * ALL + (side + i) * ONE + j * 128 + e * 32 + lane] = sum[i][j][e];
    __syncthreads();
    for (u32 at = threadIdx.x; at < (m.gated ? ALL / 2 : ALL); at += THREADS) {
        u32 strip = at / ONE, in = at % ONE;
        const float *of = shared + (m.gated ? 2 * strip : strip) * ONE + in;
        float total = 0.0f, other = 0.0f;
#pragma unroll
        for (u32 part = 0; part < KS; part++) {
            total += of[part * ALL];
            if (m.gated) other += of[part * ALL + ONE];
        }
        leave_one(strip, in, total, other);
    }
}

#define ENTRY(F, NAME, THREADS, BLOCKS, ...)                                                                           \
    extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) quant_rows_q##F##_##NAME(                            \
        void *out, const bf16 *x, const u8 *w0, const u8 *w1, const u8 *w2, u32 rows0, u32 rows1, u32 rows2,           \
        u32 columns, u32 rows, u32 how) {                                                                              \
        __VA_ARGS__(out, x, w0, w1, w2, rows0, rows1, rows2, columns, rows, how);                                      \
    }

// 16 outputs by 16 rows; 32 by 32; 64 by 64, where the outputs are a vocabulary (of 6 bits by four warps: two would have too few registers).
ENTRY(4, few, 384, 2, few<4>)
ENTRY(5, few, 384, 2, few<5>)
ENTRY(6, few, 384, 2, few<6>)
ENTRY(8, few, 384, 2, few<8>)
ENTRY(4, even, 192, 3, shared_ring<4, 1, 4, 2, 3, 3>)
ENTRY(5, even, 192, 3, shared_ring<5, 1, 4, 2, 3, 3>)
ENTRY(6, even, 192, 3, shared_ring<6, 1, 4, 2, 3, 3>)
ENTRY(8, even, 192, 3, shared_ring<8, 1, 4, 2, 3, 3>)
ENTRY(4, head, 64, 4, shared_ring<4, 2, 8, 2, 1, 4>)
ENTRY(5, head, 64, 4, shared_ring<5, 2, 8, 2, 1, 4>)
ENTRY(6, head, 128, 3, shared_ring<6, 1, 8, 4, 1, 4>)
ENTRY(8, head, 64, 4, shared_ring<8, 2, 8, 2, 1, 4>)
