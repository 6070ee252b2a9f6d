// Projections of many rows: out = x weights^T on the tensor cores, bf16 in, f32 sums; up to three matrices of one input
// side by side, or two whose outputs gate each other.
//
// A warp makes 64 x 64 outputs (or less, where there are few) from tiles in shared memory. Tiles arrive by asynchronous
// copies, some steps ahead; fragments of the next 16 elements are loaded while those of the last are multiplied.
//
// In order: a row's elements are taken in the order of the kernels for few rows (skinny.cu), eight warps and PIECE elements each: element by
// element the same products, the sums of one such warp behind the other's. So a row gives the same bits as there.
#include "common.cuh"
#include "mma.cuh"
#include "outputs.cuh"

// Where 16 bytes of a row of a tile lie: rows of DEPTH elements, swizzled so that eight rows of a matrix load hit all
// banks; in order, two rows of four neighbouring pieces.
template <int DEPTH, bool IN_ORDER> __device__ __forceinline__ u32 place(u32 row, u32 chunk) {
    if (IN_ORDER) return row * 128 + ((chunk ^ (row & 1) << 2) << 4);
    if (DEPTH == 64) return row * 128 + ((chunk ^ (row & 7)) << 4);
    return row * 64 + ((chunk ^ ((row >> 1) & 3)) << 4);
}

// Fragments of 16 rows: matrices as the instruction has them; or eight neighbouring elements of row g and of row g + 8.
__device__ __forceinline__ void load_fragment(u32 (&to)[4], u32 from) { load_matrices(to, from); }
__device__ __forceinline__ void load_fragment(u32 (&to)[8], u32 from) {
    uint4 low = load_shared16(from), high = load_shared16(from + 8 * 128);
    to[0] = low.x, to[1] = low.y, to[2] = low.z, to[3] = low.w;
    to[4] = high.x, to[5] = high.y, to[6] = high.z, to[7] = high.w;
}

template <int M, int N> __device__ __forceinline__ void clear(float (&sums)[M][N][4]) {
#pragma unroll
    for (int i = 0; i < M; i++)
#pragma unroll
        for (int j = 0; j < N; j++)
#pragma unroll
            for (int e = 0; e < 4; e++) sums[i][j][e] = 0.0f;
}

// From one step's elements to the next's. In order: PIECE of every eight times as many, then the next ones; whether those of
// a warp end here.
template <int DEPTH, int PIECE> __device__ __forceinline__ bool next_step(u32 &k, u32 columns) {
    if (PIECE == 0 || (k % (PIECE ? PIECE : 1) + DEPTH < PIECE && k + DEPTH < columns)) {
        k += DEPTH;
        return false;
    }
    constexpr u32 ONE = PIECE ? PIECE : 1, TURN = 8 * ONE;
    u32 piece = k / ONE * ONE;
    bool ends = piece + TURN >= columns;
    k = ends ? piece % TURN + ONE : piece + TURN;
    return ends;
}

// Leaves the sums of a warp: its lane's first row is `top`, its first output `side`; `all` outputs are side by side.
template <int MI, int NJ>
__device__ __forceinline__ void leave_tile(void *out, const float (&sum)[MI][2 * NJ][4], const Tile &tile, u32 top, u32 side,
                                           u32 rows, u32 all, u32 how) {
    bool gated = how >= GATE_SILU;
    // A span of bf16 may begin at any of them, and matrices may have any number of rows.
    bool pairs = (all | tile.before) % 2 == 0 && reinterpret_cast<u64>(out) % 8 == 0;
#pragma unroll
    for (int i = 0; i < MI; i++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            u32 r = top + i * 16 + half * 8;
            if (r >= rows) continue;
            u64 line = (u64)r * all + tile.before;
            if (gated) {
#pragma unroll
                for (int j = 0; j < NJ; j++) {
                    float y[2];
                    u32 column = side + j * 8;
#pragma unroll
                    for (int e = 0; e < 2; e++) {
                        // Rounded as through memory.
                        float gate = to_f32(to_bf16(sum[i][2 * j][half * 2 + e]));
                        float up = to_f32(to_bf16(sum[i][2 * j + 1][half * 2 + e]));
                        y[e] = (how == GATE_GELU ? gelu(gate) : silu(gate)) * up;
                    }
                    if (pairs && column + 1 < tile.outputs) {
                        leave_pair(out, line + column, y[0], y[1], STORE_BF16);
                    } else {
                        if (column < tile.outputs) leave(out, line + column, y[0], STORE_BF16);
                        if (column + 1 < tile.outputs) leave(out, line + column + 1, y[1], STORE_BF16);
                    }
                }
            } else {
                // All that is added to is on its way before the first of it is used.
                float2 before[2 * NJ];
                bool adds = how == ADD_F32 && pairs;
#pragma unroll
                for (int j = 0; j < 2 * NJ; j++)
                    if (adds && side + j * 8 + 1 < tile.outputs)
                        before[j] = *reinterpret_cast<const float2 *>(static_cast<const float *>(out) + line + side + j * 8);
#pragma unroll
                for (int j = 0; j < 2 * NJ; j++) {
                    u32 column = side + j * 8;
                    float low = sum[i][j][half * 2], high = sum[i][j][half * 2 + 1];
                    if (pairs && column + 1 < tile.outputs) {
                        if (adds) leave_pair(out, line + column, before[j].x + low, before[j].y + high, STORE_F32);
                        else leave_pair(out, line + column, low, high, how);
                    } else {
                        if (column < tile.outputs) leave(out, line + column, low, how);
                        if (column + 1 < tile.outputs) leave(out, line + column + 1, high, how);
                    }
                }
            }
        }
}

// Blocks of WM x WN warps, 16 MI x 16 NJ outputs each. GROUP: tiles of rows that neighbouring blocks share weights over.
template <int WM, int WN, int MI, int NJ, int DEPTH, int STAGES, int GROUP, int PIECE = 0>
__device__ __forceinline__ void gemm(void *out, const bf16 *x, const Matrices &m, u32 columns, u32 rows, u32 how) {
    constexpr bool IN_ORDER = PIECE > 0;
    constexpr int BM = 16 * MI * WM, BN = 16 * NJ * WN, THREADS = 32 * WM * WN;
    constexpr int CHUNKS = DEPTH / 8, PASS = THREADS / CHUNKS; // rows that all threads copy at once
    constexpr u32 LEFT = BM * DEPTH * 2, STAGE = LEFT + BN * DEPTH * 2;
    extern __shared__ __align__(128) u8 shared[];
    u32 base = shared_address(shared), lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    bool gated = how >= GATE_SILU;

    // Blocks that run at the same time share rows and weights: GROUP tiles of rows at a time, weights by weights.
    u32 across = (rows + BM - 1) / BM, tiles = gridDim.x / across;
    u32 in_group = GROUP * tiles, group = blockIdx.x / in_group, start = group * GROUP;
    u32 wide = min(across - start, (u32)GROUP), index = blockIdx.x % in_group;
    u32 first_in = (start + index % wide) * BM, tile_out = index / wide;
    Tile tile = gated ? Tile{m.w[0], m.rows[0], 0, tile_out * (BN / 2)} : tile_of<BN>(m, tile_out);

    // What this thread copies: 16 bytes of every PASS-th row. Gated, eight rows of one matrix and eight of the other take
    // turns.
    u32 row = threadIdx.x / CHUNKS, chunk = threadIdx.x % CHUNKS;
    const bf16 *from_x = x + (u64)(first_in + row) * columns + chunk * 8;
    u32 in_tile = gated ? row / 16 * 8 + row % 8 : row;
    const bf16 *from_w = (gated && row / 8 % 2 ? m.w[1] : tile.w) + (u64)(tile.first + in_tile) * columns + chunk * 8;
    u32 pass_w = gated ? PASS / 2 : PASS;
    u32 to = place<DEPTH, IN_ORDER>(row, chunk);
    auto copy = [&](u32 stage, u32 k) {
        bool there = k + chunk * 8 < columns;
#pragma unroll
        for (int i = 0; i < BM / PASS; i++) {
            bool ok = there && first_in + row + i * PASS < rows;
            copy16_async(base + stage * STAGE + to + i * PASS * DEPTH * 2,
                         ok ? from_x + (u64)(i * PASS) * columns + k : x, ok ? 16 : 0);
        }
#pragma unroll
        for (int i = 0; i < BN / PASS; i++) {
            bool ok = there && tile.first + in_tile + i * pass_w < tile.outputs;
            copy16_async(base + stage * STAGE + LEFT + to + i * PASS * DEPTH * 2,
                         ok ? from_w + (u64)(i * pass_w) * columns + k : x, ok ? 16 : 0);
        }
    };

    // What was summed, and in order the sums of earlier warps.
    float sum[MI][2 * NJ][4], total[IN_ORDER ? MI : 1][IN_ORDER ? 2 * NJ : 1][4];
    clear(sum);
    clear(total);

    // Fragments of K elements: 16 as the instruction has them, or 32 of which a lane has eight neighbours, for two products.
    constexpr int K = IN_ORDER ? 32 : 16;
    u32 g = lane / 4, t = lane % 4;
    u32 left_row = warp % WM * (16 * MI) + (IN_ORDER ? g : lane % 16);
    u32 right_row = warp / WM * (16 * NJ) + (IN_ORDER ? g : lane % 8 + lane / 16 * 8);
    u32 a[IN_ORDER ? 1 : 2][MI][K / 4], b[IN_ORDER ? 1 : 2][NJ][K / 4];
    auto load = [&](int into, u32 stage, int k) {
        u32 left = base + stage * STAGE, right = left + LEFT;
        left += place<DEPTH, IN_ORDER>(left_row, IN_ORDER ? k * 4 + t : k * 2 + lane / 16);
        right += place<DEPTH, IN_ORDER>(right_row, IN_ORDER ? k * 4 + t : k * 2 + lane / 8 % 2);
#pragma unroll
        for (int i = 0; i < MI; i++) load_fragment(a[into][i], left + i * 16 * DEPTH * 2);
#pragma unroll
        for (int j = 0; j < NJ; j++) load_fragment(b[into][j], right + j * 16 * DEPTH * 2);
    };
    auto products = [&](const u32 (&a)[MI][K / 4], const u32 (&b)[NJ][K / 4]) {
#pragma unroll
        for (int p = 0; p < K / 16; p++)
#pragma unroll
            for (int i = 0; i < MI; i++)
#pragma unroll
                for (int j = 0; j < NJ; j++) {
                    const u32 *l = a[i] + 2 * p, *r = b[j] + 2 * p;
                    u32 left[4] = {l[0], IN_ORDER ? l[K / 8] : l[1], IN_ORDER ? l[1] : l[2], l[K / 8 + 1]};
                    multiply(sum[i][2 * j], left, r[0], r[1]);
                    multiply(sum[i][2 * j + 1], left, r[K / 8], r[K / 8 + 1]);
                }
    };

    u32 steps = (columns + DEPTH - 1) / DEPTH, from = 0, now = 0;
#pragma unroll
    for (int s = 0; s < STAGES - 1; s++) {
        if (s < steps) {
            copy(s, from);
            next_step<DEPTH, PIECE>(from, columns);
        }
        commit_copies();
    }
    u32 stage = 0, fill = STAGES - 1;
    // The next step to copy goes where everybody is through with the last one.
    auto copy_next = [&](u32 step) {
        if (step + STAGES - 1 < steps) {
            copy(fill, from);
            next_step<DEPTH, PIECE>(from, columns);
        }
        commit_copies();
        fill = fill + 1 == STAGES ? 0 : fill + 1;
    };
    if constexpr (IN_ORDER) {
        // There are no registers for two fragments; the other block of the multiprocessor multiplies meanwhile.
        for (u32 step = 0; step < steps; step++) {
            wait_copies<STAGES - 2>();
            __syncthreads();
            copy_next(step);
#pragma unroll
            for (int k = 0; k < DEPTH / K; k++) {
                load(0, stage, k);
                products(a[0], b[0]);
            }
            stage = stage + 1 == STAGES ? 0 : stage + 1;
            if (next_step<DEPTH, PIECE>(now, columns)) {
#pragma unroll
                for (int i = 0; i < MI; i++)
#pragma unroll
                    for (int j = 0; j < 2 * NJ; j++)
#pragma unroll
                        for (int e = 0; e < 4; e++) total[i][j][e] += sum[i][j][e];
                clear(sum);
            }
        }
    } else {
        wait_copies<STAGES - 2>();
        __syncthreads();
        load(0, 0, 0);
        for (u32 step = 0; step < steps; step++) {
#pragma unroll
            for (int k = 0; k < DEPTH / K; k++) {
                if (k == DEPTH / K - 1) {
                    wait_copies<STAGES - 2>();
                    __syncthreads();
                    stage = stage + 1 == STAGES ? 0 : stage + 1;
                }
                load((k + 1) % 2, stage, (k + 1) % (DEPTH / K));
                if (k == 0) copy_next(step);
                products(a[k % 2], b[k % 2]);
            }
        }
    }
    wait_copies<0>();

    u32 all = gated ? m.rows[0] : m.rows[0] + m.rows[1] + m.rows[2];
    u32 top = first_in + warp % WM * (16 * MI) + g;
    u32 side = tile.first + warp / WM * (gated ? 8 * NJ : 16 * NJ) + t * 2;
    if constexpr (IN_ORDER) leave_tile<MI, NJ>(out, total, tile, top, side, rows, all, how);
    else leave_tile<MI, NJ>(out, sum, tile, top, side, rows, all, how);
}

extern "C" __global__ void __launch_bounds__(128, 2)
    gemm_bf16(void *out, const bf16 *x, const bf16 *w0, const bf16 *w1, const bf16 *w2, u32 rows0, u32 rows1, u32 rows2,
              u32 columns, u32 rows, u32 how) {
    gemm<2, 2, 4, 4, 64, 3, 8>(out, x, Matrices{{w0, w1, w2}, {rows0, rows1, rows2}}, columns, rows, how);
}

// Where there are too few tiles of 128 x 128: 64 x 64, and 64 x 128 for few rows and many outputs.
extern "C" __global__ void __launch_bounds__(128, 3)
    gemm_bf16_small(void *out, const bf16 *x, const bf16 *w0, const bf16 *w1, const bf16 *w2, u32 rows0, u32 rows1,
                    u32 rows2, u32 columns, u32 rows, u32 how) {
    gemm<2, 2, 2, 2, 64, 4, 8>(out, x, Matrices{{w0, w1, w2}, {rows0, rows1, rows2}}, columns, rows, how);
}

extern "C" __global__ void __launch_bounds__(128, 3)
    gemm_bf16_wide(void *out, const bf16 *x, const bf16 *w0, const bf16 *w1, const bf16 *w2, u32 rows0, u32 rows1,
                   u32 rows2, u32 columns, u32 rows, u32 how) {
    gemm<2, 2, 2, 4, 64, 3, 8>(out, x, Matrices{{w0, w1, w2}, {rows0, rows1, rows2}}, columns, rows, how);
}

// Where rows of 96 outputs leave fewer tiles to the last multiprocessors.
extern "C" __global__ void __launch_bounds__(128, 3)
    gemm_bf16_middle(void *out, const bf16 *x, const bf16 *w0, const bf16 *w1, const bf16 *w2, u32 rows0, u32 rows1,
                     u32 rows2, u32 columns, u32 rows, u32 how) {
    gemm<2, 2, 2, 3, 64, 3, 8>(out, x, Matrices{{w0, w1, w2}, {rows0, rows1, rows2}}, columns, rows, how);
}

// For long rows, whose ends do not count: fewer bytes a product.
extern "C" __global__ void __launch_bounds__(256, 1)
    gemm_bf16_huge(void *out, const bf16 *x, const bf16 *w0, const bf16 *w1, const bf16 *w2, u32 rows0, u32 rows1, u32 rows2,
                   u32 columns, u32 rows, u32 how) {
    gemm<4, 2, 4, 4, 32, 4, 4>(out, x, Matrices{{w0, w1, w2}, {rows0, rows1, rows2}}, columns, rows, how);
}

// For the batch-invariant mode.
extern "C" __global__ void __launch_bounds__(128, 3)
    gemm_bf16_in_order(void *out, const bf16 *x, const bf16 *w0, const bf16 *w1, const bf16 *w2, u32 rows0, u32 rows1,
                       u32 rows2, u32 columns, u32 rows, u32 how) {
    gemm<2, 2, 2, 2, 64, 3, 8, 128>(out, x, Matrices{{w0, w1, w2}, {rows0, rows1, rows2}}, columns, rows, how);
}

extern "C" __global__ void __launch_bounds__(128, 3)
    gemm_bf16_in_rings(void *out, const bf16 *x, const bf16 *w0, const bf16 *w1, const bf16 *w2, u32 rows0, u32 rows1,
                       u32 rows2, u32 columns, u32 rows, u32 how) {
    gemm<2, 2, 2, 2, 64, 3, 8, 64>(out, x, Matrices{{w0, w1, w2}, {rows0, rows1, rows2}}, columns, rows, how);
}
