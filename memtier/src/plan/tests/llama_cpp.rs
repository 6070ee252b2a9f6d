//! Sizes that llama.cpp printed, to the last printed digit.

use super::super::kv::RecurrentState;
use super::super::llama_cpp::{Cache, KeyValue, Layer, recurrent_bytes};
use super::*;

use KvDtype::{F16, F32, Q4_0, Q8_0};

/// MiB with two decimals, ties to even like `printf`.
fn printed(bytes: Bytes) -> String {
    format!("{:.2}", bytes.count() as f64 / (1_u64 << 20) as f64)
}

fn global(count: usize, geometry: KvLayer) -> Vec<Layer> {
    vec![Layer { geometry, window: None }; count]
}

fn with_window(count: usize, geometry: KvLayer, window: u64) -> Vec<Layer> {
    vec![Layer { geometry, window: Some(Tokens::new(window)) }; count]
}

/// Layers that see everything, then layers with a window, of one geometry.
fn mixed(geometry: KvLayer, all: usize, windowed: usize, window: u64) -> Vec<Layer> {
    [global(all, geometry), with_window(windowed, geometry, window)].concat()
}

/// `n_seq` sequences of `n_ctx / n_seq` tokens.
fn cache(layers: &[Layer], n_ctx: u64, n_seq: u64) -> Cache<'_> {
    Cache { n_seq, ..Cache::new(layers, Tokens::new(n_ctx)) }
}

fn total(part: KeyValue) -> String {
    printed(part.total().expect("in range"))
}

/// What layers without and with a window take.
fn parts(cache: Cache<'_>) -> [String; 2] {
    let bytes = cache.bytes().expect("in range");
    [total(bytes.global), total(bytes.windowed)]
}

#[test]
fn models_without_windows() {
    let heads = |heads, dim| KvLayer::heads(heads, dim, F16);
    let rows: [(&str, usize, KvLayer, u64, u64, &str); 16] = [
        ("Llama-3-8B", 32, heads(8, 128), 8192, 1, "1024.00"),
        ("Llama-3-8B q8_0", 32, KvLayer::heads(8, 128, Q8_0), 8192, 1, "544.00"),
        ("Llama-3-70B", 80, heads(8, 128), 8192, 1, "2560.00"),
        ("Qwen3-1.7B", 28, heads(8, 128), 4096, 1, "448.00"),
        ("Mixtral-8x7B", 32, heads(8, 128), 2048, 1, "256.00"),
        ("OLMoE-1B-7B q8_0", 16, KvLayer::heads(16, 128, Q8_0), 8192, 1, "544.00"),
        ("Mistral-Small-22B q8_0", 56, KvLayer::heads(8, 128, Q8_0), 49_152, 1, "5712.00"),
        ("Command-R", 40, heads(64, 128), 4096, 1, "5120.00"),
        ("Gemma-2-9B, windows ignored", 42, heads(8, 256), 8192, 1, "2688.00"),
        ("GLM DSA", 78, KvLayer::latent(576, F16), 768_000, 1, "65812.50"),
        ("GLM DSA indexer", 21, KvLayer::latent(128, F16), 768_000, 1, "3937.50"),
        ("DeepSeek-V3 1x4096", 61, KvLayer::latent(576, F16), 4096, 1, "274.50"),
        ("DeepSeek-V3 1x4096 q8_0", 61, KvLayer::latent(576, Q8_0), 4096, 1, "145.83"),
        ("DeepSeek-V3 8x4096", 61, KvLayer::latent(576, F16), 32_768, 8, "2196.00"),
        ("Qwen3.6-27B", 16, heads(4, 256), 262_144, 4, "16384.00"),
        ("Falcon-H1-1.5B", 24, heads(2, 128), 32_768, 1, "768.00"),
    ];
    for (model, count, geometry, n_ctx, n_seq, expected) in rows {
        let layers = global(count, geometry);
        assert_eq!(parts(cache(&layers, n_ctx, n_seq)), [expected, "0.00"], "{model}");
    }
}

#[test]
fn hybrids_cache_only_in_their_attention_layers() {
    // Attention layers, heads, dimension, then 1x4096 and 8x4096.
    let rows = [
        ("Jamba-v0.1", 4, 8, 128, "64.00", "512.00"),
        ("Qwen3-Next-80B", 12, 2, 256, "96.00", "768.00"),
        ("Granite-4-h-small", 4, 8, 128, "64.00", "512.00"),
    ];
    for (model, count, heads, dim, one, eight) in rows {
        let layers = global(count, KvLayer::heads(heads, dim, F16));
        assert_eq!(parts(cache(&layers, 4096, 1))[0], one, "{model}");
        assert_eq!(parts(cache(&layers, 32_768, 8))[0], eight, "{model}");
    }
}

#[test]
fn keys_and_values_may_differ() {
    let halves = |geometry, count, n_ctx| {
        let layers = global(count, geometry);
        let bytes = cache(&layers, n_ctx, 1).bytes().expect("in range").global;
        [printed(bytes.k), printed(bytes.v)]
    };
    let llama_3b = KvLayer { k_dtype: Q8_0, ..KvLayer::heads(8, 128, F16) };
    assert_eq!(halves(llama_3b, 28, 4096), ["119.00", "224.00"]);
    // DeepSeek-Coder-V2-Lite without latents: 16 key heads of 192 and value heads of 128.
    let full = KvLayer { v_dim: 128, ..KvLayer::heads(16, 192, F16) };
    for (n_ctx, expected) in [(2048, "540.00"), (4096, "1080.00"), (8192, "2160.00")] {
        assert_eq!(parts(cache(&global(27, full), n_ctx, 1))[0], expected);
    }
}

#[test]
fn older_builds_pad_to_32_cells() {
    // DeepSeek-V3.1 at 15,008 tokens, a multiple of 32 and not of 256.
    let layers = global(61, KvLayer::latent(576, F16));
    let cache = Cache { pad: Tokens::new(32), ..cache(&layers, 15_008, 1) };
    assert_eq!(parts(cache)[0], "1005.79");
}

#[test]
fn windowed_layers_get_their_window_and_one_batch() {
    let gemma_270m = |dtype| mixed(KvLayer::heads(1, 256, dtype), 3, 15, 512);
    let layers = gemma_270m(F16);
    let sixteen = cache(&layers, 8192, 1);
    for (n_seq, expected) in [(1, "15.00"), (2, "30.00"), (4, "60.00")] {
        assert_eq!(parts(cache(&layers, 8192, n_seq)), ["24.00", expected], "{n_seq} sequences");
    }
    let unified = |n_ctx, n_seq| Cache { unified: true, ..cache(&layers, n_ctx, n_seq) };
    assert_eq!(parts(unified(8192, 4)), ["24.00", "37.50"]);
    assert_eq!(parts(unified(4096, 8)), ["12.00", "60.00"]);
    assert_eq!(parts(cache(&layers, 5000, 1)), ["15.00", "15.00"]);
    assert_eq!(parts(Cache { ubatch: Tokens::new(256), ..sixteen }), ["24.00", "11.25"]);
    assert_eq!(parts(Cache { swa_full: true, ..sixteen }), ["24.00", "120.00"]);
    assert_eq!(parts(cache(&gemma_270m(Q8_0), 8192, 1)), ["12.75", "7.97"]);
    assert_eq!(parts(cache(&gemma_270m(Q4_0), 8192, 1)), ["6.75", "4.22"]);
    assert_eq!(parts(cache(&layers, 32_768, 8)), ["96.00", "120.00"]);
}

#[test]
fn larger_models_with_windows() {
    let gemma_4b = mixed(KvLayer::heads(4, 256, F16), 5, 29, 1024);
    assert_eq!(parts(cache(&gemma_4b, 131_072, 1)), ["2560.00", "174.00"]);

    // Global layers of half the width.
    let gemma_12b =
        [global(8, KvLayer::heads(1, 512, F16)), with_window(40, KvLayer::heads(8, 256, F16), 1024)].concat();
    assert_eq!(parts(cache(&gemma_12b, 8192, 2)), ["128.00", "960.00"]);

    // Printed with 1024 windowed cells: four sequences in one stream.
    let gpt_oss = mixed(KvLayer::heads(8, 64, F16), 18, 18, 128);
    let unified = Cache { unified: true, ..cache(&gpt_oss, 65_536, 4) };
    assert_eq!(parts(unified), ["2304.00", "36.00"]);
    // Printed with 256: one sequence and batches of at most 128.
    let gpt_oss_20b = mixed(KvLayer::heads(8, 64, Q8_0), 12, 12, 128);
    let cache = Cache { ubatch: Tokens::new(128), ..cache(&gpt_oss_20b, 8192, 1) };
    assert_eq!(parts(cache), ["102.00", "3.19"]);
}

#[test]
fn recurrent_states() {
    // Layers, width, groups, state, sequences.
    let rows = [
        ("Mamba-2.8B", [64, 5120, 0, 16], 1, "23.75"),
        ("Falcon-H1-1.5B", [24, 3072, 1, 256], 1, "72.98"),
        ("Granite-4-h-tiny", [36, 3072, 1, 128], 1, "55.37"),
        ("Qwen3.6-27B", [48, 6144, 16, 128], 1, "149.62"),
        ("Qwen3.6-27B", [48, 6144, 16, 128], 4, "598.50"),
        ("Jamba-v0.1", [28, 8192, 0, 16], 1, "16.62"),
        ("Jamba-v0.1", [28, 8192, 0, 16], 8, "133.00"),
        ("Qwen3-Next-80B", [36, 4096, 16, 128], 1, "75.38"),
        ("Qwen3-Next-80B", [36, 4096, 16, 128], 8, "603.00"),
        ("Granite-4-h-small", [36, 8192, 1, 128], 1, "147.48"),
        ("Granite-4-h-small", [36, 8192, 1, 128], 8, "1179.84"),
    ];
    for (model, [layers, inner, groups, state], seqs, expected) in rows {
        let state = RecurrentState { layers, inner, conv: 4, groups, state, conv_dtype: F32, state_dtype: F32 };
        assert_eq!(recurrent_bytes(&state, seqs, 0).map(printed).as_deref(), Ok(expected), "{model} x {seqs}");
        // A kept snapshot is a second state.
        assert_eq!(recurrent_bytes(&state, seqs, 1), recurrent_bytes(&state, 2 * seqs, 0));
    }
}

#[test]
fn absurd_settings_are_an_error() {
    let layers = global(1, KvLayer::heads(8, 128, F16));
    assert_eq!(cache(&layers, u64::MAX, 1).bytes().map(|bytes| bytes.global.k), Err(Overflow));
    let zeros = Cache { pad: Tokens::ZERO, ..cache(&layers, 0, 0) };
    assert_eq!(parts(zeros), ["0.00", "0.00"]);
}
