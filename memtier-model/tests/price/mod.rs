//! Everything that is done with a layout, for tests and fuzzers that want a panic and take any other answer.

#![allow(unreachable_pub, reason = "a module of tests has no outside")]

use memtier::plan::{Config, Limits, PlanInput, plan_memory};
use memtier::{Bytes, Layers, Tokens};
use memtier_model::ModelLayout;
use memtier_model::demands::{LlamaCpp, Pricing, SplitKind, split, vllm};

/// Prices, plans and splits a layout under settings that `below` chooses: a number below its argument.
///
/// # Panics
/// When a plan is over its budget, or a split loses a layer: that is what the caller looks for.
pub fn price(layout: &ModelLayout, below: &mut dyn FnMut(usize) -> usize) {
    let pricing = Pricing::new(layout, "cuda");
    let extreme = |below: &mut dyn FnMut(usize) -> usize| [0, 1, 8, 4096, 1 << 20, 1 << 40, u64::MAX][below(7)];
    let config = Config {
        max_batch: extreme(below),
        max_seq_len: Tokens::new(extreme(below)),
        block_tokens: Tokens::new([0, 1, 16, 1 << 30][below(4)]),
        prefill_chunk: Tokens::new(extreme(below)),
        speculative_depth: [0, 0, 4, u64::MAX][below(4)],
        gpu_layers: [None, Some(Layers::new(3)), Some(Layers::new(u64::MAX))][below(3)],
        ..pricing.config()
    };
    let limits = Limits::new("cuda", Bytes::new(extreme(below)));
    let reprice = |config: &Config| pricing.demands(config);
    if let Ok(demands) = pricing.demands(&config) {
        let input = PlanInput { reprice: Some(&reprice), ..PlanInput::new(limits, config, &demands) };
        match plan_memory(&input) {
            Ok(plan) => assert!(plan.total() <= limits.budget && !plan.to_json().is_empty()),
            Err(failure) => assert!(!failure.report().is_empty()),
        }
    }
    for kind in [SplitKind::Layer, SplitKind::Tensor] {
        let portions = split(&pricing, kind, &[Bytes::gib(24), Bytes::ZERO, Bytes::new(u64::MAX)]);
        assert_eq!(portions.len(), 3);
        if kind == SplitKind::Layer {
            assert_eq!(
                portions.iter().map(|portion| portion.layers.end - portion.layers.start).sum::<u64>(),
                layout.layers.len() as u64
            );
        }
        for portion in portions {
            let _ = pricing.demands_of(&portion, &config);
        }
    }
    let mut settings = LlamaCpp::new(config.max_seq_len);
    settings.n_seq = config.max_batch;
    let _ = settings.bytes(layout);
    let _ = vllm(layout, config.kv_dtype, limits.budget, config.max_seq_len)
        .map(|cache| (cache.tokens(config.max_seq_len), cache.concurrency()));
}
