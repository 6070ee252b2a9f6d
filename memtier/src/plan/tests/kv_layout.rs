//! memtier's own paged layout, against figures that paged engines printed.

use super::super::kv::RecurrentState;
use super::*;

/// Two decimals as the engines print them.
fn printed(bytes: Bytes, unit: f64) -> String {
    format!("{:.2}", bytes.count() as f64 / unit)
}

const GIB: f64 = (1_u64 << 30) as f64;

fn group(layers: &[KvLayer], block: u64, window: Option<u64>, chunk: u64) -> KvGroup<'_> {
    let (block_tokens, window) = (Tokens::new(block), window.map(Tokens::new));
    KvGroup { layers, block_tokens, window, prefill_chunk: Tokens::new(chunk) }
}

#[test]
fn paged_engines_print_the_same_capacity() {
    // Model, layers, elements of K and V a token and layer, element type, bytes a token, tokens, GiB.
    let rows = [
        ("Llama-3.1-8B", 32, 1024, KvDtype::F16, 131_072, 1952 * 16, "3.81"),
        ("Qwen3-0.6B", 28, 1024, KvDtype::F16, 114_688, 652_144, "69.66"),
        ("Qwen3-30B-A3B", 48, 512, KvDtype::Fp8, 49_152, 221_000, "10.12"),
        ("gpt-oss-120b", 36, 512, KvDtype::F16, 73_728, 78_384, "5.38"),
    ];
    for (model, layers, heads, dtype, per_token, tokens, gib) in rows {
        let layers = vec![KvLayer::heads(heads / 64, 64, dtype); layers];
        let group = group(&layers, 16, None, 512);
        assert_eq!(group.token_bytes(), Ok(Bytes::new(per_token)), "{model}");
        let bytes = group.token_bytes().and_then(|one| one.times(tokens)).expect("in range");
        assert_eq!(printed(bytes, GIB), gib, "{model}");
    }
    // 1952 blocks are 1.56 sequences of 20,000 tokens.
    assert_eq!(1952 * 16 * 100 / 20_000, 156);
    // Keys of 122,420 tokens of Qwen3-30B-A3B.
    let layers = [KvLayer::heads(4, 128, KvDtype::F16); 48];
    let keys = layers[0].k_bytes().and_then(|one| one.times(48 * 122_420)).expect("in range");
    assert_eq!(printed(keys, GIB), "5.60");
}

#[test]
fn a_latent_has_no_values() {
    let layers = [KvLayer::latent(576, KvDtype::F16); 27];
    let bytes = group(&layers, 16, None, 512).token_bytes().and_then(|one| one.times(32_768)).expect("in range");
    assert_eq!(printed(bytes, GIB), "0.95");
    assert_eq!(layers[0].v_bytes(), Ok(Bytes::ZERO));
}

#[test]
fn a_hybrid_shares_pages_between_state_and_attention() {
    // Qwen3.6-35B-A3B with fp8 KV: 30 recurrent layers (4096 wide, 16 groups, state 128, convolution kept in 16 bits) and
    // 10 attention layers of 2 heads of 256. One page holds the state of a layer, or 2096 tokens of one.
    let state = RecurrentState {
        layers: 30,
        inner: 4096,
        conv: 4,
        groups: 16,
        state: 128,
        conv_dtype: KvDtype::Bf16,
        state_dtype: KvDtype::F32,
    };
    let page = state.layer_bytes().expect("in range");
    assert_eq!(page, Bytes::new(2_146_304));
    let layers = [KvLayer::heads(2, 256, KvDtype::Fp8); 10];
    let group = group(&layers, 2096, None, 512);
    assert_eq!(group.block_bytes_in(&layers[0]), Ok(page));
    // A block spans ten layers, attention or recurrent. 5.98 GiB hold 299; a request of 131,072 tokens takes 63 for its
    // tokens and two each for the three groups of recurrent layers.
    let block = group.block_bytes().expect("in range");
    assert_eq!(598 * (1 << 30) / 100 / block.count(), 299);
    let request = group.blocks_for(Tokens::new(131_072)).expect("in range").count() + 2 * 3;
    assert_eq!(request, 69);
    assert_eq!(299 * 100 / request, 433);
    assert_eq!(299 * 131_072 / request, 567_978);
}

#[test]
fn sizes_of_quantised_rows_fill_up_their_last_granule() {
    for dtype in KvDtype::ALL {
        assert_eq!(dtype.row(64), Ok(Bytes::new(2 * dtype.bytes_of_32())), "{dtype}");
        assert_eq!(dtype.name().parse(), Ok(dtype));
    }
    assert_eq!(KvDtype::Q8_0.row(33), Ok(Bytes::new(68)));
    // 64 bytes of elements, 8 of scales, an f32.
    assert_eq!(KvLayer::heads(1, 128, KvDtype::Nvfp4).k_bytes(), Ok(Bytes::new(76)));
    assert_eq!(KvDtype::F32.row(u64::MAX), Err(Overflow));
    assert!("q8".parse::<KvDtype>().is_err_and(|unknown| unknown.to_string().contains("`q8`")));
    assert!(KvDtype::ALL.windows(2).all(|pair| pair[0].bytes_of_32() >= pair[1].bytes_of_32()));
}

#[test]
fn a_windowed_sequence_never_holds_more_than_its_bound() {
    // Walk a sequence chunk by chunk and count the blocks between the oldest token a pass reads and its newest.
    for (window, block, chunk) in [(128, 32, 1), (512, 16, 512), (1, 1, 1), (5, 16, 3), (1024, 16, 384), (7, 5, 11)] {
        let group = group(&[], block, Some(window), chunk);
        let bound = group.window_blocks().expect("in range").expect("a window").count();
        let mut most = 0;
        for start in 0..(window + chunk + block) * 3 {
            let oldest = start + 1 - window.min(start + 1);
            let newest = start + chunk - 1;
            // One more token may be laid out before the pass has settled.
            for newest in [newest, newest + 1] {
                most = most.max(newest / block - oldest / block + 1);
            }
        }
        assert!(most <= bound && bound <= most + 1, "window {window} block {block} chunk {chunk}: {most} of {bound}");
        assert_eq!(group.blocks_for(Tokens::new(1)), Ok(Blocks::new(1)));
    }
}

#[test]
fn a_block_the_window_still_reaches_is_counted() {
    // Window 128, blocks of 32: position 158 reads from 31, so five blocks are held; position 159 reads from 32.
    let group = group(&[], 32, Some(128), 1);
    assert_eq!(group.window_blocks(), Ok(Some(Blocks::new(5))));
}

#[test]
fn layers_of_a_group_may_differ() {
    // Gemma 3n and 4 mix head counts, dimensions and element types.
    let layers = [
        KvLayer::heads(8, 256, KvDtype::Bf16),
        KvLayer::heads(2, 512, KvDtype::Fp8),
        KvLayer { v_dtype: KvDtype::Q4_0, ..KvLayer::heads(1, 64, KvDtype::Q8_0) },
    ];
    assert_eq!(group(&layers, 16, None, 1).token_bytes(), Ok(Bytes::new(8192 + 2048 + 68 + 36)));
}

#[test]
fn absurd_geometry_is_an_error() {
    let layers = [KvLayer::heads(u64::MAX, u64::MAX, KvDtype::F16)];
    assert_eq!(group(&layers, 16, None, 1).block_bytes(), Err(Overflow));
    let wide = group(&[], 0, Some(u64::MAX), u64::MAX);
    assert_eq!(wide.blocks_for(Tokens::MAX), Err(Overflow));
    assert_eq!(group(&[], 0, Some(0), 0).blocks_for(Tokens::MAX), Ok(Blocks::ZERO));
}

#[test]
fn a_demand_may_shrink_to_one_sequence_unless_it_has_a_window() {
    let layers = [KvLayer::heads(8, 128, KvDtype::Fp8); 36];
    let demand = group(&layers, 16, None, 512).demand("KV", GPU, 8, Tokens::new(4096)).expect("in range");
    let expected = Amount::elastic_pool(Bytes::kib(1152), Tokens::new(16), Blocks::new(256), Blocks::new(2048));
    assert_eq!(demand.amount, expected);
    let demand = group(&layers, 16, Some(512), 512).demand("window", GPU, 8, Tokens::new(4096)).expect("in range");
    assert_eq!(demand.amount, Amount::fixed_pool(Bytes::kib(1152), Tokens::new(16), Blocks::new(8 * 65)));
}
