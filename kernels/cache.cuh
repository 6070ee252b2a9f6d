// What a cache of E means to attention, and how its cells become the numbers that products take.
//
// Behind the values of a layer come, where E has them, the scales of groups: for each key, then for each value, HEAD / 16 bytes; and
// behind those the scales of whole vectors, an f32 each, alike: [kv_heads][block_tokens].
#pragma once
#include "common.cuh"

// An eight-bit integer. 32 of a vector have a scale, an f16: GGUF's Q8_0.
struct i8 {
    u8 bits;
};

// Two e2m1. 16 of a vector have a scale, a ue4m3, and each vector has an f32: NVFP4. Of eight elements in a word the even ones are in the
// low half and the odd ones in the high half, so that those at one place of both halves are neighbours.
struct f4x2 {
    u8 bits;
};

// The element of queries, bits of an element, whether groups and whether vectors have scales; and what numbers are too small by when they
// are read.
template <typename E> struct Cache {
    typedef E Query;
    static constexpr int BITS = 16;
    static constexpr bool GROUPED = false, SCALED = false;
    static constexpr float TIMES = 1.0f;
};
template <> struct Cache<f8> {
    typedef f16 Query;
    static constexpr int BITS = 8;
    static constexpr bool GROUPED = false, SCALED = true;
    static constexpr float TIMES = 1.0f;
};
template <> struct Cache<i8> {
    typedef f16 Query;
    static constexpr int BITS = 8;
    static constexpr bool GROUPED = true, SCALED = false;
    static constexpr float TIMES = 1.0f;
};
template <> struct Cache<f4x2> {
    typedef f16 Query;
    static constexpr int BITS = 4;
    static constexpr bool GROUPED = true, SCALED = true;
    static constexpr float TIMES = 256.0f;
};

// Units of E in a vector of DIM elements, and bytes of its groups' scales.
template <typename E, int DIM> struct Vector {
    static constexpr int UNITS = DIM * Cache<E>::BITS / 8 / (int)sizeof(E);
    static constexpr int GROUPS = Cache<E>::GROUPED ? DIM / 16 : 0;
};

// Products and differences of two f16.
__device__ __forceinline__ u32 times_f16x2(u32 x, u32 y) {
    u32 z;
    // Volatile: made where it is needed instead of kept in registers.
    asm volatile("mul.rn.f16x2 %0, %1, %2;" : "=r"(z) : "r"(x), "r"(y));
    return z;
}
__device__ __forceinline__ u32 minus_f16x2(u32 x, u32 y) {
    u32 z;
    asm("sub.rn.f16x2 %0, %1, %2;" : "=r"(z) : "r"(x), "r"(y));
    return z;
}

// Bytes of a word, as `__byte_perm` names them for both halves, as two f16 that are integers from -128 to 127. 0x6400 is 1024.
__device__ __forceinline__ u32 two_i8(u32 word, u32 which) {
    return minus_f16x2(__byte_perm(word ^ 0x80808080u, 0x64646464u, which), 0x64806480u);
}

// The e2m1 at place `i` of both halves of a word as f16, times 2^-14: exponent and mantissa in their places.
__device__ __forceinline__ u32 two_e2m1(u32 word, int i) {
    u32 turned = word << (12 - 4 * i);
    return (turned & 0x80008000u) | (turned >> 3 & 0x0e000e00u);
}

// Two ue4m3, in the upper bytes of both halves of a word, as f16, times 2^6. What is in the lower bytes does not matter.
__device__ __forceinline__ u32 two_ue4m3(u32 word) { return times_f16x2((word & 0x7f007f00u) >> 1, 0x74007400u); }
