// How blocks whose warps share rows of weights come to an end: sums of all warps, in order. So the same inputs give the
// same bits, and a row of inputs the same beside any others.
#pragma once
#include "common.cuh"

// `sum`: fragments of MT x NT products of 16 outputs by 8 rows; of the WARPS warps, SIDE neighbours have other outputs,
// and every SIDE-th has the same ones. Calls `leave(i, output, row, total, other)` for each output of tile `i` of MT *
// SIDE (the tiles of a warp are neighbours) and row of inputs, `other` being the total there of the tile beside it (0
// and 1, 2 and 3, ..); by whole warps, whose lanes have outputs 0 to 15 of two rows. `shared`: WARPS * NT * 128 floats, AT_ONCE: MT
// times as many, for fewer barriers.
template <int NT, int MT, int WARPS, int SIDE, bool AT_ONCE = false, typename Leave>
__device__ __forceinline__ void finish_block(const float (&sum)[MT][NT][4], float *shared, Leave leave) {
    constexpr u32 ONE = NT * 128, TILE = SIDE * ONE, THREADS = WARPS * 32, EACH = (TILE + THREADS - 1) / THREADS;
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    constexpr u32 NEXT = AT_ONCE ? WARPS * ONE : 0;
    float total[MT][EACH];
    auto put = [&](int i) {
#pragma unroll
        for (int j = 0; j < NT; j++)
#pragma unroll
            for (int e = 0; e < 4; e++) shared[i * NEXT + ((warp * NT + j) * 4 + e) * 32 + lane] = sum[i][j][e];
    };
    auto add = [&](int i) {
#pragma unroll
        for (int each = 0; each < EACH; each++) {
            u32 at = each * THREADS + threadIdx.x, side = at / ONE, output = at % 16, row = at % ONE / 16;
            // Where a fragment has it: element 2 * (output / 8) + row % 2 of lane 4 * (output % 8) + row % 8 / 2.
            u32 from = i * NEXT + side * ONE + (row / 8 * 4 + output / 8 * 2 + row % 2) * 32 + output % 8 * 4 + row % 8 / 2;
            total[i][each] = 0.0f;
            if (at < TILE)
#pragma unroll
                for (int part = 0; part < WARPS / SIDE; part++) total[i][each] += shared[part * TILE + from];
        }
    };
    if (AT_ONCE) {
#pragma unroll
        for (int i = 0; i < MT; i++) put(i);
        __syncthreads();
#pragma unroll
        for (int i = 0; i < MT; i++) add(i);
    } else {
#pragma unroll
        for (int i = 0; i < MT; i++) {
            if (i) __syncthreads();
            put(i);
            __syncthreads();
            add(i);
        }
    }
#pragma unroll
    for (int i = 0; i < MT; i++)
#pragma unroll
        for (int each = 0; each < EACH; each++) {
            u32 at = each * THREADS + threadIdx.x;
            if (at < TILE)
                leave(at / ONE * MT + i, at % 16, at % ONE / 16, total[i][each], total[(i ^ 1) < MT ? i ^ 1 : i][each]);
        }
}
