// Projections of many rows: out = x weights^T on the tensor cores, bf16 in, f32 sums; up to three matrices of one input
// side by side, or two whose outputs gate each other.
//
// A warp makes 96 x 48 outputs or less from tiles in shared memory, which arrive by asynchronous copies, some steps ahead. The loop over steps
// is one piece without a branch, so that copies, loads of the next fragments and products are mixed. Where there are few blocks, two groups of
// warps take every other part of each step.
//
// Kernels that start early have their first weights on the way before the wait, and inputs behind it.
//
// In order: a row's elements are taken in the order of the kernels for few rows (skinny.cu), eight warps and PIECE elements each: element by
// element the same products, the sums of one such warp behind the other's. So a row gives the same bits as there.
#include "common.cuh"
#include "leave.cuh"
#include "mma.cuh"
#include "outputs.cuh"

// Where 16 bytes of a row of a tile lie: rows of DEPTH elements, swizzled so that eight rows of a matrix load hit all
// banks; in order, two rows of four neighbouring pieces.
template <int DEPTH, bool IN_ORDER> __device__ __forceinline__ u32 place(u32 row, u32 chunk) {
    if (IN_ORDER) return row * 128 + ((chunk ^ (row & 1) << 2) << 4);
    if (DEPTH == 64) return row * 128 + ((chunk ^ (row & 7)) << 4);
    return row * 64 + ((chunk ^ ((row >> 1) & 3)) << 4);
}

template <int M, int N> __device__ __forceinline__ void clear(float (&sums)[M][N][4]) {
#pragma unroll
    for (int i = 0; i < M; i++)
#pragma unroll
        for (int j = 0; j < N; j++)
#pragma unroll
            for (int e = 0; e < 4; e++) sums[i][j][e] = 0.0f;
}

// The tile of a block, and its first row of inputs. Blocks that run at the same time share rows and weights: eight tiles of rows at a time,
// weights by weights.
template <int BM, int BN> __device__ __forceinline__ Tile tile_of_block(const Matrices &m, u32 rows, bool gated, u32 &first_in) {
    u32 across = (rows + BM - 1) / BM, tiles = gridDim.x / across;
    u32 in_group = 8 * tiles, group = blockIdx.x / in_group, start = group * 8;
    u32 wide = min(across - start, 8u), index = blockIdx.x % in_group, tile_out = index / wide;
    first_in = (start + index % wide) * BM;
    return gated ? Tile{m.w[0], m.rows[0], 0, tile_out * (BN / 2)} : tile_of<BN>(m, tile_out);
}

// What a thread copies: 16 bytes of every PASS-th row of inputs and of weights. Gated, eight rows of one matrix and eight of the other take turns.
template <int PASS> struct Sources {
    const bf16 *x, *w;
    u64 by_x, by_w;
    int rows, outputs; // those that are there, from the first on
    u32 pass_w;
    __device__ __forceinline__ Sources(const bf16 *inputs, const Matrices &m, const Tile &tile, u32 first_in, u32 columns, u32 all_rows,
                                       bool gated, u32 row, u32 chunk) {
        u32 in_tile = gated ? row / 16 * 8 + row % 8 : row;
        pass_w = gated ? PASS / 2 : PASS;
        x = inputs + (u64)(first_in + row) * columns + chunk * 8;
        w = (gated && row / 8 % 2 ? m.w[1] : tile.w) + (u64)(tile.first + in_tile) * columns + chunk * 8;
        by_x = (u64)PASS * columns, by_w = (u64)pass_w * columns;
        rows = (int)(all_rows - first_in - row), outputs = (int)(tile.outputs - tile.first - in_tile);
    }
};

// Blocks of WM x WN warps, 16 MI x 16 NJ outputs each; of SLICES of them, each takes its part of every step.
template <int WM, int WN, int SLICES, int MI, int NJ, int DEPTH, int STAGES>
__device__ __forceinline__ void gemm(void *out, const bf16 *x, const Matrices &m, u32 columns, u32 rows, u32 how) {
    constexpr int BM = 16 * MI * WM, BN = 16 * NJ * WN, WARPS = WM * WN, THREADS = 32 * WARPS * SLICES;
    constexpr int CHUNKS = DEPTH / 8, PASS = THREADS / CHUNKS; // rows that all threads copy at once
    constexpr int NX = BM / PASS, ALL = NX + BN / PASS, KK = DEPTH / 16 / SLICES;
    static_assert(BM % PASS == 0 && BN % PASS == 0 && KK % 2 == 0 && SLICES <= 2 && MI % SLICES == 0, "");
    constexpr u32 LEFT = BM * DEPTH * 2, STAGE = LEFT + BN * DEPTH * 2;
    extern __shared__ __align__(128) u8 shared[];
    u32 base = shared_address(shared), lane = threadIdx.x % 32, warp = threadIdx.x / 32 % WARPS, slice = threadIdx.x / 32 / WARPS;
    bool gated = how >= GATE_SILU;
    u32 first_in, row = threadIdx.x / CHUNKS, chunk = threadIdx.x % CHUNKS;
    Tile tile = tile_of_block<BM, BN>(m, rows, gated, first_in);
    Sources<PASS> from(x, m, tile, first_in, columns, rows, gated, row, chunk);
    // Whether nothing of the tile, and of its steps, is missing.
    bool whole = columns % DEPTH == 0 && first_in + BM <= rows && tile.first + (gated ? BN / 2 : BN) <= tile.outputs;
    u32 to = base + place<DEPTH, false>(row, chunk), steps = (columns + DEPTH - 1) / DEPTH;

    float sum[MI][2 * NJ][4];
    clear(sum);
    u32 left_row = warp % WM * (16 * MI) + lane % 16, right_row = warp / WM * (16 * NJ) + lane % 8 + lane / 16 * 8;
    u32 a[2][MI][4], b[2][NJ][4];
    auto load = [&](int into, u32 stage, int k) {
        u32 at = k + slice * KK, left = base + stage * STAGE, right = left + LEFT;
        left += place<DEPTH, false>(left_row, at * 2 + lane / 16);
        right += place<DEPTH, false>(right_row, at * 2 + lane / 8 % 2);
#pragma unroll
        for (int i = 0; i < MI; i++) load_matrices(a[into][i], left + i * 16 * DEPTH * 2);
#pragma unroll
        for (int j = 0; j < NJ; j++) load_matrices(b[into][j], right + j * 16 * DEPTH * 2);
    };
    auto run = [&](const bool all_there) {
        u32 coming = 0, fill = 0;
        // Rows `first` to `last` of those that this thread copies of a step; behind the last step, and behind the end of a row, zeros.
        auto copy = [&](int first, int last) {
            u32 at = to + fill * STAGE, bytes = (all_there ? coming < columns : coming + chunk * 8 < columns) ? 16 : 0;
#pragma unroll
            for (int i = 0; i < ALL; i++) {
                if (i < first || i >= last) continue;
                bool there = all_there || (i < NX ? i * PASS < from.rows : (i - NX) * (int)from.pass_w < from.outputs);
                const bf16 *source = i < NX ? from.x : from.w;
                copy16_async(at + i * PASS * DEPTH * 2, there ? source : x, there ? bytes : 0);
                if (i < NX) from.x += from.by_x;
                else from.w += from.by_w;
            }
        };
        auto next = [&] {
            commit_copies();
            fill = fill + 1 == STAGES ? 0 : fill + 1;
            coming += DEPTH;
            from.x += DEPTH - NX * from.by_x, from.w += DEPTH - (ALL - NX) * from.by_w;
        };
        let_next_start();
        const bf16 *first_x = from.x, *first_w = from.w;
#pragma unroll
        for (int s = 0; s < STAGES - 1; s++) fill = s, coming = s * DEPTH, from.w = first_w + s * DEPTH, copy(NX, ALL);
        wait_for_earlier();
        fill = 0, coming = 0;
#pragma unroll
        for (int s = 0; s < STAGES - 1; s++) {
            from.x = first_x + s * DEPTH, copy(0, NX);
            from.w = first_w + s * DEPTH + (ALL - NX) * from.by_w, next();
        }
        wait_copies<STAGES - 2>();
        __syncthreads();
        u32 stage = 0;
        load(0, 0, 0);
#pragma unroll 1
        for (u32 step = 0; step < steps; step++) {
#pragma unroll
            for (int k = 0; k < KK; k++) {
                if (k == KK - 1) {
                    wait_copies<STAGES - 2>();
                    __syncthreads();
                    stage = stage + 1 == STAGES ? 0 : stage + 1;
                }
                load((k + 1) % 2, stage, (k + 1) % KK);
                // The step to copy goes where everybody is through with the last one.
                if (k < KK - 1) copy(ALL * k / (KK - 1), ALL * (k + 1) / (KK - 1));
                if (k == KK - 2) next();
#pragma unroll
                for (int i = 0; i < MI; i++)
#pragma unroll
                    for (int j = 0; j < NJ; j++) {
                        multiply(sum[i][2 * j], a[k % 2][i], b[k % 2][j][0], b[k % 2][j][1]);
                        multiply(sum[i][2 * j + 1], a[k % 2][i], b[k % 2][j][2], b[k % 2][j][3]);
                    }
            }
        }
    };
    if (whole) run(true);
    else run(false);
    wait_copies<0>();

    u32 top = first_in + warp % WM * (16 * MI) + lane / 4, side = tile.first + warp / WM * (gated ? 8 * NJ : 16 * NJ);
    if constexpr (SLICES == 1) {
        leave_sums<MI, NJ>(out, sum, tile, top, side, rows, m, how);
    } else {
        // Each slice leaves half of the rows, and gives the other one its sums of the others; the ring is not in their way.
        constexpr int HALF = MI / 2, EACH = HALF * 2 * NJ * 4;
        float *room = reinterpret_cast<float *>(shared + STAGES * STAGE) + lane, part[HALF][2 * NJ][4];
        float *gives = room + (slice * WARPS + warp) * EACH * 32, *gets = room + ((slice ^ 1) * WARPS + warp) * EACH * 32;
#pragma unroll
        for (int i = 0; i < HALF; i++)
#pragma unroll
            for (int j = 0; j < 2 * NJ; j++)
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    gives[((i * 2 * NJ + j) * 4 + e) * 32] = slice ? sum[i][j][e] : sum[i + HALF][j][e];
                    part[i][j][e] = slice ? sum[i + HALF][j][e] : sum[i][j][e];
                }
        __syncthreads();
#pragma unroll
        for (int i = 0; i < HALF; i++)
#pragma unroll
            for (int j = 0; j < 2 * NJ; j++)
#pragma unroll
                for (int e = 0; e < 4; e++) part[i][j][e] += gets[((i * 2 * NJ + j) * 4 + e) * 32];
        leave_sums<HALF, NJ>(out, part, tile, top + slice * HALF * 16, side, rows, m, how);
    }
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

// Eight neighbouring elements of row g and of row g + 8.
__device__ __forceinline__ void load_neighbours(u32 (&to)[8], u32 from) {
    uint4 low = load_shared16(from), high = load_shared16(from + 8 * 128);
    to[0] = low.x, to[1] = low.y, to[2] = low.z, to[3] = low.w;
    to[4] = high.x, to[5] = high.y, to[6] = high.z, to[7] = high.w;
}

// The same in order: 64 x 64 outputs of a block, 32 x 32 of each of its four warps; steps of 64 elements.
template <int PIECE> __device__ __forceinline__ void gemm_in_order(void *out, const bf16 *x, const Matrices &m, u32 columns, u32 rows, u32 how) {
    constexpr int SIDE = 64, DEPTH = 64, STAGES = 3, PASS = 16, EACH = SIDE / PASS;
    constexpr u32 LEFT = SIDE * DEPTH * 2, STAGE = 2 * LEFT;
    extern __shared__ __align__(128) u8 shared[];
    u32 base = shared_address(shared), lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    bool gated = how >= GATE_SILU;
    u32 first_in, row = threadIdx.x / 8, chunk = threadIdx.x % 8;
    Tile tile = tile_of_block<SIDE, SIDE>(m, rows, gated, first_in);
    Sources<PASS> from(x, m, tile, first_in, columns, rows, gated, row, chunk);
    u32 to = base + place<DEPTH, true>(row, chunk), steps = (columns + DEPTH - 1) / DEPTH, coming = 0, now = 0, stage = 0, fill = 0;
    auto copy = [&](u32 step) {
        if (step < steps) {
            bool there = coming + chunk * 8 < columns;
#pragma unroll
            for (int i = 0; i < EACH; i++) {
                bool in = there && i * PASS < from.rows, of = there && i * (int)from.pass_w < from.outputs;
                u32 at = to + fill * STAGE + i * PASS * DEPTH * 2;
                copy16_async(at, in ? from.x + i * from.by_x + coming : x, in ? 16 : 0);
                copy16_async(at + LEFT, of ? from.w + i * from.by_w + coming : x, of ? 16 : 0);
            }
            next_step<DEPTH, PIECE>(coming, columns);
        }
        commit_copies();
        fill = fill + 1 == STAGES ? 0 : fill + 1;
    };
    // What was summed, and the sums of earlier warps.
    float sum[2][4][4], total[2][4][4];
    clear(sum);
    clear(total);
    u32 g = lane / 4, t = lane % 4, left_row = warp % 2 * 32 + g, right_row = warp / 2 * 32 + g;
#pragma unroll
    for (int s = 0; s < STAGES - 1; s++) copy(s);
    // There are no registers for two fragments; the other block of the multiprocessor multiplies meanwhile.
    for (u32 step = 0; step < steps; step++) {
        wait_copies<STAGES - 2>();
        __syncthreads();
        copy(step + STAGES - 1);
#pragma unroll
        for (int k = 0; k < DEPTH / 32; k++) {
            // A lane has eight neighbours, for two products.
            u32 a[2][8], b[2][8], left = base + stage * STAGE, right = left + LEFT;
            left += place<DEPTH, true>(left_row, k * 4 + t), right += place<DEPTH, true>(right_row, k * 4 + t);
#pragma unroll
            for (int i = 0; i < 2; i++) load_neighbours(a[i], left + i * 16 * 128), load_neighbours(b[i], right + i * 16 * 128);
#pragma unroll
            for (int p = 0; p < 2; p++)
#pragma unroll
                for (int i = 0; i < 2; i++)
#pragma unroll
                    for (int j = 0; j < 2; j++) {
                        const u32 *l = a[i] + 2 * p, *r = b[j] + 2 * p, both[4] = {l[0], l[4], l[1], l[5]};
                        multiply(sum[i][2 * j], both, r[0], r[1]);
                        multiply(sum[i][2 * j + 1], both, r[4], r[5]);
                    }
        }
        stage = stage + 1 == STAGES ? 0 : stage + 1;
        if (next_step<DEPTH, PIECE>(now, columns)) {
#pragma unroll
            for (int i = 0; i < 2; i++)
#pragma unroll
                for (int j = 0; j < 4; j++)
#pragma unroll
                    for (int e = 0; e < 4; e++) total[i][j][e] += sum[i][j][e];
            clear(sum);
        }
    }
    wait_copies<0>();
    leave_sums<2, 2>(out, total, tile, first_in + left_row, tile.first + warp / 2 * (gated ? 16 : 32), rows, m, how);
}

#define ENTRY(NAME, THREADS, BLOCKS, ...)                                                                              \
    extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)                                                      \
        gemm_##NAME(void *out, const bf16 *x, const bf16 *w0, const bf16 *w1, const bf16 *w2, u32 rows0, u32 rows1,    \
                    u32 rows2, u32 columns, u32 rows, u32 how) {                                                       \
        __VA_ARGS__(out, x, Matrices{{w0, w1, w2}, {rows0, rows1, rows2}}, columns, rows, how);                        \
    }

// By their outputs: rows by columns.
ENTRY(bf16_32x64, 128, 2, gemm<1, 2, 2, 2, 2, 64, 7>)
ENTRY(bf16_64x64, 128, 2, gemm<2, 2, 1, 2, 2, 64, 6>)
ENTRY(bf16_64x96, 128, 3, gemm<2, 2, 1, 2, 3, 64, 3>)
ENTRY(bf16_64x128, 128, 3, gemm<2, 2, 1, 2, 4, 64, 3>)
ENTRY(bf16_128x64, 128, 3, gemm<2, 2, 1, 4, 2, 64, 3>)
ENTRY(bf16_128x96, 128, 2, gemm<2, 2, 1, 4, 3, 64, 3>)
ENTRY(bf16_128x128, 128, 2, gemm<2, 2, 1, 4, 4, 64, 3>)
// Fewer bytes a product.
ENTRY(bf16_192x192, 256, 1, gemm<2, 4, 1, 6, 3, 32, 4>)
// For the batch-invariant mode.
ENTRY(in_order, 128, 3, gemm_in_order<128>)
ENTRY(in_rings, 128, 3, gemm_in_order<64>)
