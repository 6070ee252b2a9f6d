// Projections of many rows: out = x weights^T on the tensor cores, bf16 in, f32 sums; up to three matrices of one input
// side by side, or two whose outputs gate each other.
//
// A warp makes 64 x 64 outputs (or less, where there are few) from tiles in shared memory. Tiles arrive by asynchronous
// copies, some steps ahead; fragments of the next 16 elements are loaded while those of the last are multiplied.
#include "common.cuh"
#include "mma.cuh"
#include "outputs.cuh"

// Where 16 bytes of a row of a tile lie: rows of DEPTH elements, swizzled so that eight rows of a matrix load hit all
// banks.
template <int DEPTH> __device__ __forceinline__ u32 place(u32 row, u32 chunk) {
    if (DEPTH == 64) return row * 128 + ((chunk ^ (row & 7)) << 4);
    return row * 64 + ((chunk ^ ((row >> 1) & 3)) << 4);
}

// Blocks of WM x WN warps, 16 MI x 16 NJ outputs each. GROUP: tiles of rows that neighbouring blocks share weights over.
template <int WM, int WN, int MI, int NJ, int DEPTH, int STAGES, int GROUP>
__device__ __forceinline__ void gemm(void *out, const bf16 *x, const Matrices &m, u32 columns, u32 rows, u32 how) {
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
    u32 to = place<DEPTH>(row, chunk);
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

    float sum[MI][2 * NJ][4];
#pragma unroll
    for (int i = 0; i < MI; i++)
#pragma unroll
        for (int j = 0; j < 2 * NJ; j++)
#pragma unroll
            for (int e = 0; e < 4; e++) sum[i][j][e] = 0.0f;

    u32 left_row = warp % WM * (16 * MI) + lane % 16, right_row = warp / WM * (16 * NJ) + lane % 8 + lane / 16 * 8;
    u32 a[2][MI][4], b[2][NJ][4];
    auto load = [&](int into, u32 stage, int k) {
        u32 left = base + stage * STAGE + place<DEPTH>(left_row, k * 2 + lane / 16);
        u32 right = base + stage * STAGE + LEFT + place<DEPTH>(right_row, k * 2 + lane / 8 % 2);
#pragma unroll
        for (int i = 0; i < MI; i++) load_matrices(a[into][i], left + i * 16 * DEPTH * 2);
#pragma unroll
        for (int j = 0; j < NJ; j++) load_matrices(b[into][j], right + j * 16 * DEPTH * 2);
    };

    u32 steps = (columns + DEPTH - 1) / DEPTH;
#pragma unroll
    for (int s = 0; s < STAGES - 1; s++) {
        if (s < steps) copy(s, s * DEPTH);
        commit_copies();
    }
    wait_copies<STAGES - 2>();
    __syncthreads();
    load(0, 0, 0);
    u32 stage = 0, fill = STAGES - 1;
    for (u32 step = 0; step < steps; step++) {
#pragma unroll
        for (int k = 0; k < DEPTH / 16; k++) {
            if (k == DEPTH / 16 - 1) {
                wait_copies<STAGES - 2>();
                __syncthreads();
                stage = stage + 1 == STAGES ? 0 : stage + 1;
            }
            load((k + 1) % 2, stage, (k + 1) % (DEPTH / 16));
            if (k == 0) {
                // The stage of the last step: everybody is through with it.
                if (step + STAGES - 1 < steps) copy(fill, (step + STAGES - 1) * DEPTH);
                commit_copies();
                fill = fill + 1 == STAGES ? 0 : fill + 1;
            }
#pragma unroll
            for (int i = 0; i < MI; i++)
#pragma unroll
                for (int j = 0; j < NJ; j++) {
                    multiply(sum[i][2 * j], a[k % 2][i], b[k % 2][j][0], b[k % 2][j][1]);
                    multiply(sum[i][2 * j + 1], a[k % 2][i], b[k % 2][j][2], b[k % 2][j][3]);
                }
        }
    }
    wait_copies<0>();

    u32 all = gated ? m.rows[0] : m.rows[0] + m.rows[1] + m.rows[2];
    u32 top = first_in + warp % WM * (16 * MI) + lane / 4;
    u32 side = tile.first + warp / WM * (gated ? 8 * NJ : 16 * NJ) + lane % 4 * 2;
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
#pragma unroll
                for (int j = 0; j < 2 * NJ; j++) {
                    u32 column = side + j * 8;
                    float low = sum[i][j][half * 2], high = sum[i][j][half * 2 + 1];
                    if (pairs && column + 1 < tile.outputs) {
                        leave_pair(out, line + column, low, high, how);
                    } else {
                        if (column < tile.outputs) leave(out, line + column, low, how);
                        if (column + 1 < tile.outputs) leave(out, line + column + 1, high, how);
                    }
                }
            }
        }
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
