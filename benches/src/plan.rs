//! Planning: a whole configuration, and a refusal with its levers. Nobody else's planner is a library to compare with.

use std::error::Error;
use std::hint::black_box;

use memtier::plan::{Amount, Config, Demand, KvDtype, Limits, PlanInput, Tier, plan_memory};
use memtier::{Blocks, Bytes, Overflow};

use crate::timing::Bench;

/// A 4B model on a 32 GiB card, eight sequences of 4096 tokens.
pub(crate) fn accepted() -> Result<Bench, Box<dyn Error>> {
    let (limits, config) = (limits(Bytes::mib(32_607)), config());
    let demands = demands(&config)?;
    Ok(Bench::new("plan_memory, accepted").with("memtier", move |n| {
        for _ in 0..n {
            let input = black_box(PlanInput::new(limits, config, &demands));
            black_box(plan_memory(&input).is_ok());
        }
    }))
}

/// The same on a 12 GiB card: the refusal plans anew for every lever.
pub(crate) fn refused() -> Result<Bench, Box<dyn Error>> {
    let (limits, config) = (limits(Bytes::gib(12)), config());
    let all = demands(&config)?;
    Ok(Bench::new("plan_memory, refused with levers").with("memtier", move |n| {
        for _ in 0..n {
            let input = PlanInput { reprice: Some(&demands), ..PlanInput::new(limits, config, &all) };
            black_box(plan_memory(&black_box(input)).is_err());
        }
    }))
}

fn limits(budget: Bytes) -> Limits {
    let (context, library_reserve) = (Bytes::mib(500), Bytes::mib(3900));
    Limits { context, library_reserve, graphs: 8, graph_bytes: Bytes::mib(2), ..Limits::new("cuda", budget) }
}

fn config() -> Config {
    Config { max_batch: 8, kv_dtype: KvDtype::Fp8, ..Config::default() }
}

/// A dozen lines, as a real engine has: weights by kind, workspaces, caches, pools.
fn demands(config: &Config) -> Result<Vec<Demand>, Overflow> {
    let bytes = |name: &'static str, tier, mib| Demand::bytes(name, tier, "cuda", Bytes::mib(mib));
    let per_sequence = config.max_seq_len.in_blocks_of(config.block_tokens);
    let most = Blocks::new(per_sequence.count().saturating_mul(config.max_batch));
    // 36 layers, K and V of 8 heads of 128, one or two bytes each.
    let width = if config.kv_dtype == KvDtype::Fp8 { 1 } else { 2 };
    let block = Bytes::new(36 * 2 * 8 * 128 * width).times(config.block_tokens.count())?;
    let elastic = Amount::elastic_pool(block, config.block_tokens, per_sequence, most);
    let window = Amount::fixed_pool(Bytes::kib(256), config.block_tokens, Blocks::new(64));
    let mut demands = vec![
        bytes("embedding", Tier::ModelResident, 742),
        bytes("attention weights", Tier::ModelResident, 2430),
        bytes("feed-forward weights", Tier::ModelResident, 4860),
        bytes("norms", Tier::ModelResident, 1),
        bytes("decode workspace", Tier::EnginePersistent, 197),
        bytes("prefill workspace", Tier::EnginePersistent, 200),
        bytes("step parameters", Tier::EnginePersistent, 1),
        bytes("forward scratch", Tier::ForwardScratch, 96),
        Demand::pool("window KV", "cuda", window),
        Demand::pool("KV", "cuda", elastic),
        bytes("load headroom", Tier::ModelResident, 512).transient(),
    ];
    if config.weight_caches {
        demands.push(bytes("decode cache", Tier::ModelResident, 2158).optional());
    }
    Ok(demands)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_plans_measured_are_what_they_are_called() {
        let config = config();
        let all = demands(&config).unwrap();
        assert!(plan_memory(&PlanInput::new(limits(Bytes::mib(32_607)), config, &all)).is_ok());
        let input = PlanInput { reprice: Some(&demands), ..PlanInput::new(limits(Bytes::gib(12)), config, &all) };
        assert!(!plan_memory(&input).unwrap_err().levers().is_empty());
    }
}
