// Random numbers that are a function of a key and a counter: Philox4x32-10 of Salmon, Moraes, Dror and Shaw, "Parallel random
// numbers: as easy as 1, 2, 3", SC 2011, with the constants of that paper and of its library Random123. The CPU's are the same
// (`examples/engine-kernels/src/random.rs`).
#pragma once
#include "common.cuh"

// What the numbers at a position are for, the second word of a counter.
#define FOR_TOKEN 0u

__device__ __forceinline__ uint4 philox4x32(uint4 c, u32 k, u32 l) {
#pragma unroll
    for (int round = 0; round < 10; round++) {
        u32 first = __umulhi(0xD2511F53u, c.x), second = __umulhi(0xCD9E8D57u, c.z);
        c = make_uint4(second ^ c.y ^ k, 0xCD9E8D57u * c.z, first ^ c.w ^ l, 0xD2511F53u * c.x);
        k += 0x9E3779B9u;
        l += 0xBB67AE85u;
    }
    return c;
}

// From 0 to below 1, a multiple of 2^-24: what a seed, low word first, gives for a purpose at a position.
__device__ __forceinline__ float uniform_at(u32 seed_low, u32 seed_high, u32 position, u32 purpose) {
    u32 word = philox4x32(make_uint4(position, purpose, 0u, 0u), seed_low, seed_high).x;
    return (float)(word >> 8) * (1.0f / 16777216.0f);
}
