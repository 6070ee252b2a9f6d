//! Sizes that engines printed for published models, from headers of their shapes to the last printed digit.

mod zoo;

use memtier::plan::KvDtype::{self, *};
use memtier::{Bytes, Tokens};
use memtier_model::TensorType;
use memtier_model::demands::{LlamaCpp, vllm};
use zoo::*;

/// MiB as llama.cpp prints them.
fn mib(bytes: Bytes) -> String {
    format!("{:.2}", bytes.count() as f64 / f64::from(1 << 20))
}

/// Keys and values without and with windows, index keys, states; what is nothing is left out.
fn printed(model: &Model, settings: LlamaCpp) -> String {
    let bytes = settings.bytes(&model.layout()).expect("in range");
    let parts = [
        bytes.global.total().expect("in range"),
        bytes.windowed.total().expect("in range"),
        bytes.index,
        bytes.recurrent().expect("in range"),
    ];
    parts.into_iter().filter(|part| !part.is_zero()).map(mib).collect::<Vec<_>>().join(" + ")
}

fn one(n_ctx: u64) -> LlamaCpp {
    LlamaCpp::new(Tokens::new(n_ctx))
}

fn of(keys: KvDtype, values: KvDtype, n_ctx: u64) -> LlamaCpp {
    let mut settings = one(n_ctx);
    (settings.keys, settings.values) = (keys, values);
    settings
}

/// As builds padded that had no flash attention.
fn padded(n_ctx: u64, pad: u64) -> LlamaCpp {
    with(one(n_ctx), |settings| settings.pad = Tokens::new(pad))
}

fn seqs(n_seq: u64, n_ctx: u64) -> LlamaCpp {
    let mut settings = one(n_ctx);
    settings.n_seq = n_seq;
    settings
}

fn with(mut settings: LlamaCpp, change: impl Fn(&mut LlamaCpp)) -> LlamaCpp {
    change(&mut settings);
    settings
}

#[test]
fn models_that_attend_to_everything() {
    let f16 = TensorType::F16;
    let rows: Vec<(&str, Model, LlamaCpp, &str)> = vec![
        ("Llama-3-8B", llama(LLAMA_3_8B, f16, false), one(8192), "1024.00"),
        ("Llama-3-8B", llama(LLAMA_3_8B, f16, false), of(Q8_0, Q8_0, 8192), "544.00"),
        ("Llama-3-70B", llama(LLAMA_3_70B, f16, false), one(8192), "2560.00"),
        ("Llama-3.2-3B", llama(LLAMA_3_2_3B, f16, true), of(Q8_0, F16, 4096), "343.00"),
        ("Qwen3-1.7B", qwen3(QWEN3_1_7B, f16), one(4096), "448.00"),
        ("Mixtral-8x7B", mixtral(f16), one(2048), "256.00"),
        ("OLMoE-1B-7B", olmoe(f16), of(Q8_0, Q8_0, 8192), "544.00"),
        ("Mistral-Small-22B", llama(MISTRAL_SMALL_22B, f16, false), of(Q8_0, Q8_0, 49_152), "5712.00"),
        ("Command-R", command_r(), one(4096), "5120.00"),
        ("DeepSeek-Coder-V2-Lite", deepseek_v2_lite(f16, false), one(2048), "540.00"),
        ("DeepSeek-Coder-V2-Lite", deepseek_v2_lite(f16, false), one(4096), "1080.00"),
        ("DeepSeek-Coder-V2-Lite", deepseek_v2_lite(f16, false), one(8192), "2160.00"),
        ("DeepSeek-V3.1", deepseek_v3(), padded(15_008, 32), "1005.79"),
        ("DeepSeek-V3 1x4096", deepseek_v3(), one(4096), "274.50"),
        ("DeepSeek-V3 1x4096", deepseek_v3(), of(Q8_0, Q8_0, 4096), "145.83"),
        ("DeepSeek-V3 8x4096", deepseek_v3(), seqs(8, 32_768), "2196.00"),
        ("GLM DSA", glm_dsa(), one(768_000), "65812.50 + 3937.50"),
    ];
    for (name, model, settings, expected) in rows {
        assert_eq!(printed(&model, settings), expected, "{name} {settings:?}");
    }
}

#[test]
fn keys_and_values_of_different_types_are_printed_apart() {
    let bytes = of(Q8_0, F16, 4096).bytes(&llama(LLAMA_3_2_3B, TensorType::F16, true).layout()).expect("in range");
    assert_eq!([mib(bytes.global.k), mib(bytes.global.v)], ["119.00", "224.00"]);
}

#[test]
fn models_with_windows() {
    let small = || gemma("gemma3", GEMMA_3_270M);
    let unified = |n_seq, n_ctx| with(seqs(n_seq, n_ctx), |s| s.unified = true);
    let ubatch = |n_ctx, tokens| with(one(n_ctx), |s| s.ubatch = Tokens::new(tokens));
    let full = |n_ctx| with(one(n_ctx), |s| s.swa_full = true);
    let of_20b = with(of(Q8_0, Q8_0, 8192), |s| s.ubatch = Tokens::new(128));
    let rows: Vec<(&str, Model, LlamaCpp, &str)> = vec![
        ("Gemma-2-9B", gemma("gemma2", GEMMA_2_9B), full(8192), "1344.00 + 1344.00"),
        ("Gemma-3-270M", small(), one(8192), "24.00 + 15.00"),
        ("Gemma-3-270M", small(), seqs(2, 8192), "24.00 + 30.00"),
        ("Gemma-3-270M", small(), seqs(4, 8192), "24.00 + 60.00"),
        ("Gemma-3-270M unified", small(), unified(4, 8192), "24.00 + 37.50"),
        ("Gemma-3-270M unified", small(), unified(8, 4096), "12.00 + 60.00"),
        ("Gemma-3-270M", small(), one(5000), "15.00 + 15.00"),
        ("Gemma-3-270M ubatch", small(), ubatch(8192, 256), "24.00 + 11.25"),
        ("Gemma-3-270M swa-full", small(), full(8192), "24.00 + 120.00"),
        ("Gemma-3-270M", small(), of(Q8_0, Q8_0, 8192), "12.75 + 7.97"),
        ("Gemma-3-270M", small(), of(Q4_0, Q4_0, 8192), "6.75 + 4.22"),
        ("Gemma-3-270M", small(), seqs(8, 32_768), "96.00 + 120.00"),
        ("Gemma-3-4B", gemma("gemma3", GEMMA_3_4B), one(131_072), "2560.00 + 174.00"),
        ("Gemma-4-12B", gemma_4_12b(), seqs(2, 8192), "128.00 + 960.00"),
        ("gpt-oss-120b", gpt_oss(36, 128), unified(4, 65_536), "2304.00 + 36.00"),
        ("gpt-oss-20b", gpt_oss(24, 32), of_20b, "102.00 + 3.19"),
    ];
    for (name, model, settings, expected) in rows {
        assert_eq!(printed(&model, settings), expected, "{name} {settings:?}");
    }
}

#[test]
fn models_that_recur() {
    let rows: Vec<(&str, Model, LlamaCpp, &str)> = vec![
        ("Mamba-2.8B", mamba_2_8b(), one(4096), "23.75"),
        ("Falcon-H1-1.5B", falcon_h1_1_5b(), one(32_768), "768.00 + 72.98"),
        ("Granite-4-h-tiny", granite_4_h_tiny(), one(4096), "32.00 + 55.37"),
        ("Qwen3.6-27B", qwen3_6_27b(), seqs(4, 262_144), "16384.00 + 598.50"),
        ("Jamba-v0.1", jamba_v0_1(), one(4096), "64.00 + 16.62"),
        ("Jamba-v0.1", jamba_v0_1(), seqs(8, 32_768), "512.00 + 133.00"),
        ("Qwen3-Next-80B", qwen3_next_80b(), one(4096), "96.00 + 75.38"),
        ("Qwen3-Next-80B", qwen3_next_80b(), seqs(8, 32_768), "768.00 + 603.00"),
        ("Granite-4-h-small", granite_4_h_small(), one(4096), "64.00 + 147.48"),
        ("Granite-4-h-small", granite_4_h_small(), seqs(8, 32_768), "512.00 + 1179.84"),
    ];
    for (name, model, settings, expected) in rows {
        assert_eq!(printed(&model, settings), expected, "{name} {settings:?}");
    }
}

/// Blocks of vLLM that print as `gib` with two decimals, and what it says of them.
#[test]
fn what_vllm_printed() {
    let gib = |hundredths: u64| Bytes::new((hundredths << 30) / 100);
    // A printed size is rounded: half a hundredth more is the most it can stand for.
    let rounded = |hundredths: u64| gib(hundredths).plus(Bytes::new((1 << 30) / 200)).expect("in range");
    let f16 = TensorType::F16;

    // 3.81 GiB: 1952 blocks, 1.56 requests of 20,000 tokens.
    let memory = Bytes::new(1952 * 16 * 131_072);
    let cache = vllm(&llama(LLAMA_3_8B, f16, false).layout(), F16, memory, Tokens::new(20_000)).expect("in range");
    assert_eq!((cache.block, cache.blocks), (Bytes::new(131_072 * 16), 1952));
    assert_eq!(format!("{:.2}", memory.count() as f64 / f64::from(1 << 30)), "3.81");
    assert_eq!(cache.concurrency(), Some(156));

    // 69.66 GiB: 652,144 tokens.
    let small = qwen3(QWEN3_0_6B, f16).layout();
    let cache = vllm(&small, F16, gib(6966), Tokens::new(40_960)).expect("in range");
    assert_eq!(cache.block, Bytes::new(114_688 * 16));
    let tokens = 652_144;
    let least = vllm(&small, F16, rounded(6965), Tokens::new(40_960)).expect("in range");
    let most = vllm(&small, F16, rounded(6966), Tokens::new(40_960)).expect("in range");
    assert!((least.blocks..=most.blocks).contains(&(tokens / 16)));

    // 221,000 tokens of fp8 in 10.12 GiB, at 49,152 bytes each.
    let moe = qwen3_30b_a3b(f16).layout();
    let cache = vllm(&moe, Fp8, gib(1012), Tokens::new(16)).expect("in range");
    assert_eq!(cache.block, Bytes::new(49_152 * 16));
    assert_eq!(cache.blocks * 16 / 1000, 221);
    // 122,420 tokens of 16 bits: 5.60 GiB of keys and as many of values.
    let bytes = padded(122_420, 32).bytes(&moe).expect("in range").global;
    assert_eq!(bytes.k, bytes.v);
    assert_eq!(format!("{:.2}", bytes.k.count() as f64 / f64::from(1 << 30)), "5.60");

    // Latents of DeepSeek V2 Lite at 32,768 tokens: 0.95 GiB.
    let latent = deepseek_v2_lite(f16, true).layout();
    let cache = vllm(&latent, F16, gib(95), Tokens::new(32_768)).expect("in range");
    assert_eq!(format!("{:.2}", (cache.block.count() * 2048) as f64 / f64::from(1 << 30)), "0.95");

    // gpt-oss-120b: 78,384 tokens in 5.38 GiB.
    let oss = gpt_oss(36, 128).layout();
    let cache = vllm(&oss, F16, gib(538), Tokens::new(131_072)).expect("in range");
    assert_eq!(cache.block, Bytes::new(73_728 * 16));
    assert_eq!(format!("{:.2}", (cache.block.count() * 78_384 / 16) as f64 / f64::from(1 << 30)), "5.38");
}

#[test]
fn vllm_gives_a_hybrid_blocks_as_large_as_its_state() {
    // Qwen3.6-35B-A3B, fp8, 5.98 GiB: pages of 2,146,304 bytes, blocks of 2096 tokens, 299 of them, 69 a request of
    // 131,072 tokens, 567,978 tokens, 4.33 requests.
    let memory = Bytes::new((598 << 30) / 100);
    let cache = vllm(&qwen3_6_35b_a3b().layout(), Fp8, memory, Tokens::new(131_072)).expect("in range");
    assert_eq!((cache.page, cache.block_tokens), (Bytes::new(2_146_304), Tokens::new(2096)));
    assert_eq!((cache.blocks, cache.blocks_per_request), (299, 69));
    assert_eq!(cache.tokens(Tokens::new(131_072)), Some(567_978));
    assert_eq!(cache.concurrency(), Some(433));
}

/// Weights on the device as llama.cpp printed them: all but the embedding, which stays with the CPU.
#[test]
fn weights_are_the_sum_of_their_tensors() {
    use memtier_model::layout::Place;
    let offloaded = |model: &Model| Bytes::new(model.layout().weight_bytes(|weight| weight.place != Place::Embedding));
    assert_eq!(mib(offloaded(&llama_3_8b_q4_k_m())), "4403.49");
    assert_eq!(mib(offloaded(&mistral_small_22b_q6_k())), "17295.40");
    // Its routers were in 16 bits; here they are in 32.
    let routers = Bytes::new(32 * 4096 * 8 * 2);
    assert_eq!(mib(offloaded(&mixtral_q4_k_m()).beyond(routers)), "25145.55");
    // Printed 11160.99: CUDA pads the last row of a quantised tensor to 512 elements. 26 layers of shared experts (2816)
    // and of experts (1408), and the dense layer (10,944).
    let lite = deepseek_coder_v2_lite_q5_k_m();
    let padding: u64 = cuda_padding(&lite);
    assert_eq!(mib(offloaded(&lite)), "11160.98");
    assert_eq!(mib(offloaded(&lite).plus(Bytes::new(padding)).expect("in range")), "11160.99");
}

/// What CUDA adds to quantised tensors whose rows are no multiple of 512 elements.
fn cuda_padding(model: &Model) -> u64 {
    let header = model.file.header_bytes();
    let size = model.file.file_size();
    let limits = memtier_model::gguf::Limits::default();
    let header = memtier_model::Header::parse_prefix(&header, size, &limits).expect("a sound header");
    let odd =
        header.tensors().iter().filter(|tensor| tensor.tensor_type.is_quantised() && tensor.shape.row() % 512 != 0);
    odd.filter_map(|tensor| tensor.tensor_type.row_bytes(512 - tensor.shape.row() % 512)).sum()
}
