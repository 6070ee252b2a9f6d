// What a cache of E means to attention: the element of queries, bytes of an element, and whether each token has a scale for its key and
// one for its value, in f32 behind the values of the layer: keys' [kv_heads][block_tokens], then values' alike.
#pragma once
#include "common.cuh"

template <typename E> struct Cache {
    typedef E Query;
    static constexpr int BYTES = 2;
    static constexpr bool SCALED = false;
};
template <> struct Cache<f8> {
    typedef f16 Query;
    static constexpr int BYTES = 1;
    static constexpr bool SCALED = true;
};
