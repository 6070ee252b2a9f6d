// Products of matrices of 8 and 4 bits: out = scale * x weights^T, sums in f32.
//
// fp8: e4m3 with an f32 for each row of either matrix. nvfp4: e2m1, two to a byte, with a ue4m3 for every 16. Where the
// tensor cores have instructions for them (sm_120), those are used; elsewhere a function of the same name does what
// they do, so that all around it is the same code, and tested.
#include "common.cuh"
#include "mma.cuh"

#if defined(__CUDA_ARCH_FAMILY_SPECIFIC__) && __CUDA_ARCH_FAMILY_SPECIFIC__ == 1200
#define BLOCK_SCALED 1
#define UNROLLED _Pragma("unroll")
#define AT_ONCE 4
#else
#define BLOCK_SCALED 0
// What stands in for the instructions needs the registers.
#define UNROLLED _Pragma("unroll 1")
#define AT_ONCE 1
#endif

__device__ __forceinline__ u32 times_f16x2(u32 x, u32 y) {
    u32 z;
    // Volatile: made where it is needed instead of kept in registers.
    asm volatile("mul.rn.f16x2 %0, %1, %2;" : "=r"(z) : "r"(x), "r"(y));
    return z;
}

// The two e2m1 at bits 4 * i and 4 * i + 16 of a word as f16, times 2^-14: exponent and mantissa in their places.
__device__ __forceinline__ u32 two_e2m1(u32 word, int i) {
    u32 v = word >> (4 * i);
    return (v & 0x00070007) << 9 | (v & 0x00080008) << 12;
}

// A ue4m3 of a word of four, as two f16: times 2^8, exponents being what they are there.
__device__ __forceinline__ u32 two_ue4m3(u32 word, u32 byte) {
    u32 bits = (word >> (8 * byte) & 0x7f) << 7;
    return times_f16x2(bits | bits << 16, 0x5c005c00);
}

// sum (16 x 8, f32) += left (16 x 64) * right (64 x 8), e2m1 with a ue4m3 for every 16 of a row or column, as the
// instruction has it. With g = lane / 4 and t = lane % 4: left has rows g (0, 2) and g + 8 (1, 3), elements 8t.. (0, 1)
// and 32 + 8t.. (2, 3); right has column g, elements 8t.. and 32 + 8t... Scales, four to a word: of row g from lane t =
// 0, of row g + 8 from lane t = 1, of column g from lane t = 0. This is what the instruction does, by products of f16:
// e2m1 x ue4m3 is exact there.
__device__ __forceinline__ void multiply_nvf4_slow(float (&sum)[4], const u32 (&left)[4], u32 right0, u32 right1,
                                                   u32 left_scale, u32 right_scale) {
    u32 lane = threadIdx.x % 32, t = lane % 4, first = lane & ~3u;
    u32 low = __shfl_sync(FULL, left_scale, first), high = __shfl_sync(FULL, left_scale, first + 1);
    u32 side = __shfl_sync(FULL, right_scale, first);
    const u32 up = 0x74007400; // 2^14
    u32 s[4] = {two_ue4m3(low, t / 2), two_ue4m3(high, t / 2), two_ue4m3(low, 2 + t / 2), two_ue4m3(high, 2 + t / 2)};
    u32 r0 = two_ue4m3(side, t / 2), r1 = two_ue4m3(side, 2 + t / 2);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        u32 a[4];
#pragma unroll
        for (int e = 0; e < 4; e++) a[e] = times_f16x2(times_f16x2(two_e2m1(left[e], i), up), s[e]);
        multiply(sum, a, times_f16x2(times_f16x2(two_e2m1(right0, i), up), r0),
                 times_f16x2(times_f16x2(two_e2m1(right1, i), up), r1), (const f16 *)0);
    }
}

__device__ __forceinline__ void multiply_nvf4(float (&sum)[4], const u32 (&left)[4], u32 right0, u32 right1, u32 left_scale,
                                              u32 right_scale) {
#if BLOCK_SCALED
    asm("mma.sync.aligned.kind::mxf4nvf4.block_scale.scale_vec::4X.m16n8k64.row.col.f32.e2m1.e2m1.f32.ue4m3 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3}, {%10}, {%12, %12}, {%11}, {%12, %12};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right0), "r"(right1), "r"(left_scale),
          "r"(right_scale), "h"((u16)0));
#else
    multiply_nvf4_slow(sum, left, right0, right1, left_scale, right_scale);
#endif
}

// The same of 16 x 32 by 32 x 8 e4m3, without scales. Block-scaled with a scale of one it has twice the rate where
// there is such a thing.
__device__ __forceinline__ void multiply_fp8(float (&sum)[4], const u32 (&left)[4], u32 right0, u32 right1) {
#if BLOCK_SCALED
    asm("mma.sync.aligned.m16n8k32.row.col.kind::mxf8f6f4.block_scale.scale_vec::1X.f32.e4m3.e4m3.f32.ue8m0 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3}, {%10}, {%11, %11}, {%10}, {%11, %11};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right0), "r"(right1), "r"(0x7f7f7f7f), "h"((u16)0));
#else
    asm("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right0), "r"(right1));
#endif
}

// Where 16 bytes of a row of a tile lie: rows of 64 or 128 bytes, swizzled so that eight rows of a matrix load hit all
// banks.
template <int BYTES> __device__ __forceinline__ u32 place(u32 row, u32 chunk) {
    if (BYTES == 128) return row * 128 + ((chunk ^ (row & 7)) << 4);
    return row * 64 + ((chunk ^ ((row >> 1) & 3)) << 4);
}

#define TILE 128 // rows of either matrix, and elements of a row, that a block takes at a time

// Where the four scales of 64 elements of a row lie in those of 128 rows.
__device__ __forceinline__ u32 scale_place(u32 row) { return row % 32 * 16 + row / 32 * 4; }

// Blocks: (tiles of outputs, tiles of rows). Four warps, 64 x 64 each. FOUR: nvfp4, scales being bytes as they are
// stored: 512 for 128 rows x 64 elements, those of a row of elements one behind the other. Otherwise fp8, scales being
// f32. Rows are whole tiles of elements.
template <bool FOUR, int STAGES>
__device__ __forceinline__ void scaled(bf16 *out, const u8 *x, const u8 *w, const u8 *x_scales, const u8 *w_scales,
                                       u32 columns, u32 rows, u32 outputs, float scale) {
    constexpr int BYTES = FOUR ? 64 : 128, CHUNKS = BYTES / 16, PASS = 128 / CHUNKS, STEPS = BYTES / 32;
    constexpr u32 LEFT = TILE * BYTES, SCALES = FOUR ? 2 * 1024 : 0, STAGE = 2 * LEFT + SCALES;
    extern __shared__ __align__(128) u8 shared[];
    u32 base = shared_address(shared), lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    u32 first_in = blockIdx.y * TILE, first_out = blockIdx.x * TILE;
    u32 steps = columns / TILE, line = FOUR ? columns / 2 : columns;
    u32 row = threadIdx.x / CHUNKS, chunk = threadIdx.x % CHUNKS, to = place<BYTES>(row, chunk);
    auto copy = [&](u32 stage, u32 step) {
        u32 into = base + stage * STAGE;
        UNROLLED
        for (int i = 0; i < TILE / PASS; i++) {
            u32 r = first_in + row + i * PASS, o = first_out + row + i * PASS, at = step * BYTES + chunk * 16;
            copy16_async(into + to + i * PASS * BYTES, r < rows ? x + (u64)r * line + at : x, r < rows ? 16 : 0);
            copy16_async(into + LEFT + to + i * PASS * BYTES, o < outputs ? w + (u64)o * line + at : w,
                         o < outputs ? 16 : 0);
        }
        if (FOUR) {
            // A thread each 16 bytes: 1 KiB for the rows of 128 elements, of either matrix.
            u32 half = threadIdx.x / 64, at = threadIdx.x % 64 * 16;
            const u8 *from = half ? w_scales + (u64)blockIdx.x * steps * 1024 : x_scales + (u64)blockIdx.y * steps * 1024;
            copy16_async(into + 2 * LEFT + half * 1024 + at, from + (u64)step * 1024 + at, 16);
        }
    };
    float sum[4][8][4];
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 8; j++)
#pragma unroll
            for (int e = 0; e < 4; e++) sum[i][j][e] = 0.0f;
#pragma unroll
    for (int s = 0; s < STAGES - 1; s++) {
        if (s < steps) copy(s, s);
        commit_copies();
    }
    u32 m = warp % 2 * 64, n = warp / 2 * 64;
    u32 left_row = m + lane % 16, right_row = n + lane % 8 + lane / 16 * 8;
    u32 stage = 0, fill = STAGES - 1;
    for (u32 step = 0; step < steps; step++) {
        wait_copies<STAGES - 2>();
        __syncthreads();
        // The stage of the last step: everybody is through with it.
        if (step + STAGES - 1 < steps) copy(fill, step + STAGES - 1);
        commit_copies();
        fill = fill + 1 == STAGES ? 0 : fill + 1;
        u32 at = base + stage * STAGE;
        UNROLLED
        for (int k = 0; k < STEPS; k++) {
            u32 a[4][4], b[AT_ONCE][4], of_left[4];
            const u8 *scales = shared + stage * STAGE + 2 * LEFT + k * 512;
#pragma unroll
            for (int i = 0; i < 4; i++) {
                load_matrices(a[i], at + place<BYTES>(left_row, k * 2 + lane / 16) + i * 16 * BYTES);
                if (FOUR)
                    of_left[i] = *reinterpret_cast<const u32 *>(scales + scale_place(m + i * 16 + lane / 4 + lane % 2 * 8));
            }
            u32 right = at + LEFT + place<BYTES>(right_row, k * 2 + lane / 8 % 2);
#pragma unroll
            for (int j = 0; j < 4; j++) {
                // All of them, or one after the other: it is a matter of registers.
                if (j % AT_ONCE == 0)
#pragma unroll
                    for (int next = 0; next < AT_ONCE; next++) load_matrices(b[next], right + (j + next) * 16 * BYTES);
#pragma unroll
                for (int half = 0; half < 2; half++) {
                    u32 r0 = b[j % AT_ONCE][half * 2], r1 = b[j % AT_ONCE][half * 2 + 1];
                    u32 of_right = 0;
                    if (FOUR)
                        of_right = *reinterpret_cast<const u32 *>(
                            scales + 1024 + scale_place(n + j * 16 + half * 8 + lane / 4));
#pragma unroll
                    for (int i = 0; i < 4; i++)
                        if (FOUR)
                            multiply_nvf4(sum[i][j * 2 + half], a[i], r0, r1, of_left[i], of_right);
                        else
                            multiply_fp8(sum[i][j * 2 + half], a[i], r0, r1);
                }
            }
        }
        stage = stage + 1 == STAGES ? 0 : stage + 1;
    }
    wait_copies<0>();
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int e = 0; e < 4; e += 2) {
            u32 r = first_in + m + i * 16 + lane / 4 + e / 2 * 8;
            if (r >= rows) continue;
            float of_row = FOUR ? scale : scale * reinterpret_cast<const float *>(x_scales)[r];
#pragma unroll
            for (int j = 0; j < 8; j++)
#pragma unroll
                for (int odd = 0; odd < 2; odd++) {
                    u32 o = first_out + n + j * 8 + lane % 4 * 2 + odd;
                    if (o >= outputs) continue;
                    float of_output = FOUR ? 1.0f : reinterpret_cast<const float *>(w_scales)[o];
                    out[(u64)r * outputs + o] = to_bf16(sum[i][j][e + odd] * of_row * of_output);
                }
        }
}

extern "C" __global__ void __launch_bounds__(128, 1)
    gemm_fp8(bf16 *out, const u8 *x, const u8 *w, const u8 *x_scales, const u8 *w_scales, u32 columns, u32 rows,
             u32 outputs, float scale) {
    scaled<false, 3>(out, x, w, x_scales, w_scales, columns, rows, outputs, scale);
}

extern "C" __global__ void __launch_bounds__(128, 1)
    gemm_nvfp4(bf16 *out, const u8 *x, const u8 *w, const u8 *x_scales, const u8 *w_scales, u32 columns, u32 rows,
               u32 outputs, float scale) {
    scaled<true, 5>(out, x, w, x_scales, w_scales, columns, rows, outputs, scale);
}

// One warp: the product of fragments that are given lane by lane (four words of left, two of right, a scale of either),
// by the instruction where there is one, and by what stands in for it.
extern "C" __global__ void __launch_bounds__(32) nvf4_both_ways(float *fast, float *slow, const u32 *fragments) {
    u32 lane = threadIdx.x;
    const u32 *f = fragments + lane * 8;
    u32 left[4] = {f[0], f[1], f[2], f[3]};
    float x[4] = {0.0f, 0.0f, 0.0f, 0.0f}, y[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    multiply_nvf4(x, left, f[4], f[5], f[6], f[7]);
    multiply_nvf4_slow(y, left, f[4], f[5], f[6], f[7]);
#pragma unroll
    for (int e = 0; e < 4; e++) {
        fast[lane * 4 + e] = x[e];
        slow[lane * 4 + e] = y[e];
    }
}
