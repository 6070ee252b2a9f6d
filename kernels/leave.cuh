// How blocks of large products leave their sums: straight from the fragments of the tensor cores, 16 bytes of a row by each lane.
#pragma once
#include "outputs.cuh"

// Four words of each of the four lanes of a quad, its rows, become its columns: lane t ends up with word t of all four.
__device__ __forceinline__ void turn_quad(u32 (&word)[4]) {
    u32 t = threadIdx.x % 4;
#pragma unroll
    for (int a = 0; a < 4; a += 2) {
        u32 got = __shfl_xor_sync(FULL, t & 1 ? word[a] : word[a + 1], 1);
        if (t & 1) word[a] = got;
        else word[a + 1] = got;
    }
#pragma unroll
    for (int a = 0; a < 2; a++) {
        u32 got = __shfl_xor_sync(FULL, t & 2 ? word[a] : word[a + 2], 2);
        if (t & 2) word[a] = got;
        else word[a + 2] = got;
    }
}

// Stores EIGHTS times eight columns as bf16 of row g and as many of row g + 8, which begin at `to` and `all` * 8 further on: `pair(at)` are a lane's
// two neighbours of the eight columns `at`, those of row g first. Of the two rows `rows` are there, of the columns `columns`.
template <int EIGHTS, typename Pair>
__device__ __forceinline__ void store_eights(bf16 *to, u32 all, u32 rows, u32 columns, Pair pair) {
    u32 t = threadIdx.x % 4;
#pragma unroll
    for (int first = 0; first < 2 * EIGHTS; first += 4) {
        u32 word[4];
#pragma unroll
        for (int e = 0; e < 4; e++) word[e] = first + e < 2 * EIGHTS ? pair(first + e) : 0;
        turn_quad(word);
        u32 at = first + t, half = at / EIGHTS, column = at % EIGHTS * 8;
        if (half < rows && column < columns)
            store16(to + (u64)half * 8 * all + column, make_uint4(word[0], word[1], word[2], word[3]));
    }
}

// Sums of a warp, for matrices of multiples of eight outputs: its lane's first row is `top`, its first output `side`; rows of `out` are `all` long.
template <int MI, int NJ>
__device__ __forceinline__ void leave_eights(void *out, const float (&sum)[MI][2 * NJ][4], const Tile &tile, u32 top, u32 side,
                                             u32 rows, u32 all, u32 how) {
    u32 t = threadIdx.x % 4;
#pragma unroll
    for (int i = 0; i < MI; i++) {
        u64 line = (u64)(top + i * 16) * all + tile.before;
        if (how == STORE_F32 || how == ADD_F32) {
            // A lane and its neighbour give each other half of what they have: then each has four columns of one of two tiles.
            u32 first = side + t / 2 * 4 + t % 2 * 8;
            float *to = static_cast<float *>(out) + line + first;
#pragma unroll
            for (int half = 0; half < 2; half++, to += (u64)8 * all) {
                bool there = top + i * 16 + half * 8 < rows;
                float4 before[NJ];
                // All that is added to is on its way before the first of it is used.
                if (how == ADD_F32)
#pragma unroll
                    for (int j = 0; j < NJ; j++)
                        if (there && first + j * 16 < tile.outputs) before[j] = *reinterpret_cast<float4 *>(to + j * 16);
#pragma unroll
                for (int j = 0; j < NJ; j++) {
                    const float *a = sum[i][2 * j] + half * 2, *b = sum[i][2 * j + 1] + half * 2;
                    float x = __shfl_xor_sync(FULL, t % 2 ? a[0] : b[0], 1), y = __shfl_xor_sync(FULL, t % 2 ? a[1] : b[1], 1);
                    float4 four = t % 2 ? make_float4(x, y, b[0], b[1]) : make_float4(a[0], a[1], x, y);
                    if (how == ADD_F32) four.x += before[j].x, four.y += before[j].y, four.z += before[j].z, four.w += before[j].w;
                    if (there && first + j * 16 < tile.outputs) *reinterpret_cast<float4 *>(to + j * 16) = four;
                }
            }
        } else {
            u32 row = top + i * 16, there = (row < rows) + (row + 8 < rows);
            u32 columns = side < tile.outputs ? tile.outputs - side : 0;
            bf16 *to = static_cast<bf16 *>(out) + line + side;
            if (how == STORE_BF16)
                store_eights<2 * NJ>(to, all, there, columns, [&](int at) {
                    const float *s = sum[i][at % (2 * NJ)] + at / (2 * NJ) * 2;
                    return to_bf16x2(s[0], s[1]);
                });
            else
                store_eights<NJ>(to, all, there, columns, [&](int at) {
                    const float *gate = sum[i][at % NJ * 2] + at / NJ * 2, *up = sum[i][at % NJ * 2 + 1] + at / NJ * 2;
                    return to_bf16x2(gated_output(gate[0], up[0], how), gated_output(gate[1], up[1], how));
                });
        }
    }
}

// Sums of a warp, wherever `out` begins and however many outputs the matrices have.
template <int MI, int NJ>
__device__ __forceinline__ void leave_sums(void *out, const float (&sum)[MI][2 * NJ][4], const Tile &tile, u32 top, u32 side,
                                           u32 rows, const Matrices &m, u32 how) {
    u32 all = how >= GATE_SILU ? m.rows[0] : m.rows[0] + m.rows[1] + m.rows[2];
    if ((m.rows[0] | m.rows[1] | m.rows[2]) % 8 == 0 && reinterpret_cast<u64>(out) % 16 == 0)
        return leave_eights<MI, NJ>(out, sum, tile, top, side, rows, all, how);
    u32 t = threadIdx.x % 4;
#pragma unroll
    for (int i = 0; i < MI; i++)
#pragma unroll
        for (int j = 0; j < 2 * NJ; j++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                u32 row = top + i * 16 + e / 2 * 8, column = side + (how >= GATE_SILU ? j / 2 : j) * 8 + t * 2 + e % 2;
                if (row >= rows || column >= tile.outputs) continue;
                u64 at = (u64)row * all + tile.before + column;
                if (how < GATE_SILU) leave(out, at, sum[i][j][e], how);
                else if (j % 2 == 0) leave(out, at, gated_output(sum[i][j][e], sum[i][j + 1][e], how), STORE_BF16);
            }
}
