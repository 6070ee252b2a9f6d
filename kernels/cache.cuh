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
// low half and the odd ones in the high half, so that those at one place of both halves are neighbours. In a half, what follows the sign of
// element i (exponent and mantissa, three bits) begins at bit 9 - 3 i, and its sign is bit 15, 12, 14 or 13.
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
    static constexpr float TIMES = 16384.0f;
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

// The eight e2m1 of a word as four pairs of f16, times 2^-14: a pair is at one place of both halves. Exponent and mantissa of the first are
// in their places already, with its sign; shifts bring the others there. Multiplications are shifts that take another unit than the masks.
__device__ __forceinline__ void eight_e2m1(u32 (&pairs)[4], u32 word) {
    constexpr u32 IN_PLACE = 0x8e008e00u;
    pairs[0] = word & IN_PLACE;
    pairs[1] = word << 3 & IN_PLACE;
    pairs[2] = (word & 0x40384038u) * 66 & IN_PLACE;  // the sign by one, the rest by six
    pairs[3] = (word & 0x20072007u) * 516 & IN_PLACE; // by two and by nine
}
// Where the four bits of an e2m1 are in the half of a word for its place `i` there.
__device__ __forceinline__ u32 place_e2m1(u32 bits, u32 i) {
    u32 sign = bits >> 3, rest = bits & 7;
    return sign << (i == 0 ? 15 : i == 1 ? 12 : i == 2 ? 14 : 13) | rest << (9 - 3 * i);
}

// Two e4m3, in the lower half of a word, as f16.
__device__ __forceinline__ u32 two_e4m3(u32 word) {
    u32 y;
    asm("{\n.reg .b16 l, h;\nmov.b32 {l, h}, %1;\ncvt.rn.f16x2.e4m3x2 %0, l;\n}" : "=r"(y) : "r"(word));
    return y;
}
