// The pieces of a tensor core kernel, one instruction each: asynchronous copies, matrix loads, products.
#pragma once
#include "common.cuh"

// An address of shared memory as the instructions below want it.
__device__ __forceinline__ u32 shared_address(const void *pointer) { return (u32)__cvta_generic_to_shared(pointer); }

// Starts the copy of 16 bytes into shared memory, past the first-level cache. Of them `bytes` are read, the rest is zeros.
__device__ __forceinline__ void copy16_async(u32 to, const void *from, u32 bytes) {
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}

// The same, so many bytes behind both addresses.
template <u32 TO, u32 FROM> __device__ __forceinline__ void copy16_at(u32 to, const void *from, u32 bytes) {
    asm volatile("cp.async.cg.shared.global.L2::128B [%0 + %3], [%1 + %4], 16, %2;" ::"r"(to), "l"(from), "r"(bytes), "n"(TO), "n"(FROM)
                 : "memory");
}

// The same of 4, 8 or 16 bytes, as the type says.
template <int BYTES> __device__ __forceinline__ void copy_async(u32 to, const void *from, u32 bytes) {
    if constexpr (BYTES == 16)
        copy16_async(to, from, bytes);
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(to), "l"(from), "n"(BYTES), "r"(bytes) : "memory");
}

// The same of what nobody reads again, by a policy that lets the second-level cache drop it first. A compile test looks whether the assembler kept it.
__device__ __forceinline__ u64 dropped_first() {
    u64 policy;
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}
__device__ __forceinline__ void copy_once(u32 to, const void *from, u32 bytes, u64 policy) {
    asm volatile("cp.async.cg.shared.global.L2::cache_hint.L2::128B [%0], [%1], 16, %2, %3;" ::"r"(to), "l"(from),
                 "r"(bytes), "l"(policy)
                 : "memory");
}

// Ends a group of copies. Groups finish in order.
__device__ __forceinline__ void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits until at most `YOUNGER` groups are on their way. What they wrote is visible to this thread; a barrier makes it so
// for others.
template <int YOUNGER> __device__ __forceinline__ void wait_copies() {
    asm volatile("cp.async.wait_group %0;" ::"n"(YOUNGER) : "memory");
}

// 4, 2 and 16 bytes of shared memory, and two f32.
__device__ __forceinline__ u32 load_shared_word(u32 from) {
    u32 y;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(y) : "r"(from) : "memory");
    return y;
}
__device__ __forceinline__ u32 load_shared_half(u32 from) {
    u16 y;
    asm volatile("ld.shared.u16 %0, [%1];" : "=h"(y) : "r"(from) : "memory");
    return y;
}
__device__ __forceinline__ uint4 load_shared16(u32 from) {
    uint4 y;
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(y.x), "=r"(y.y), "=r"(y.z), "=r"(y.w) : "r"(from) : "memory");
    return y;
}
__device__ __forceinline__ void store_shared16(u32 to, uint4 x) {
    asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(x.x), "r"(x.y), "r"(x.z), "r"(x.w) : "memory");
}
__device__ __forceinline__ float2 load_shared_pair(u32 from) {
    float2 y;
    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(y.x), "=f"(y.y) : "r"(from) : "memory");
    return y;
}

// Four 8x8 matrices of 16-bit elements. Lane l gives the address of row l % 8 of matrix l / 8; each lane gets elements
// 2 * (l % 4) and the next of row l / 4 of every matrix.
__device__ __forceinline__ void load_matrices(u32 (&to)[4], u32 from) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(from)
                 : "memory");
}

// The same, transposed: each lane gets row elements as columns.
__device__ __forceinline__ void load_matrices_transposed(u32 (&to)[4], u32 from) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(from)
                 : "memory");
}

// An 8x8 matrix of 16-bit elements, transposed: each lane has, and gets, elements 2 * (l % 4) and the next of row l / 4.
__device__ __forceinline__ u32 transposed(u32 matrix) {
    u32 y;
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(y) : "r"(matrix));
    return y;
}

// sum (16 x 8, f32) += left (16 x 16) * right (16 x 8), both bf16 or both f16, as the last argument says. With g = lane / 4 and c = lane % 4: sum has rows g
// (0, 1) and g + 8 (2, 3), columns 2c and 2c + 1; left has rows g (0, 2) and g + 8 (1, 3), columns 2c.. (0, 1) and
// 8 + 2c.. (2, 3); right has column g, rows 2c.. and 8 + 2c...
__device__ __forceinline__ void multiply(float (&sum)[4], const u32 (&left)[4], u32 right0, u32 right1,
                                         const bf16 * = nullptr) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
        "%3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right0), "r"(right1));
}

__device__ __forceinline__ void multiply(float (&sum)[4], const u32 (&left)[4], u32 right0, u32 right1, const f16 *) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
        "%3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right0), "r"(right1));
}
