//! Tests of the planner, by subject.

mod grants;
mod kv_layout;
mod laws;
mod levers;
mod llama_cpp;
mod loan;
mod reference_card;
mod report;

use super::kv::{KvGroup, KvLayer};
use super::*;
use crate::units::{Blocks, Bytes, Layers, Overflow, Tokens};

const GPU: &str = "cuda";

fn mib(count: u64) -> Bytes {
    Bytes::mib(count)
}

/// Tenths of a MiB, as the measurements were printed.
fn tenths(count: u64) -> Bytes {
    Bytes::new(count * (1 << 20) / 10)
}

fn plan(limits: Limits, demands: &[Demand]) -> Result<MemoryPlan, PlanFailure> {
    plan_memory(&PlanInput::new(limits, Config::default(), demands))
}

fn fits(limits: Limits, demands: &[Demand]) -> MemoryPlan {
    plan(limits, demands).unwrap_or_else(|failure| panic!("{}", failure.report()))
}

fn refused(limits: Limits, demands: &[Demand]) -> PlanFailure {
    plan(limits, demands).expect_err("this must be refused")
}

fn weights(bytes: Bytes) -> Demand {
    Demand::bytes("model weights", Tier::ModelResident, GPU, bytes)
}

fn kv(block: Bytes, floor: u64, most: u64) -> Demand {
    Demand::pool("KV", GPU, Amount::elastic_pool(block, Tokens::new(16), Blocks::new(floor), Blocks::new(most)))
}

fn blocks(plan: &MemoryPlan, name: &str) -> u64 {
    plan.line(name).and_then(|line| line.blocks).map(|blocks| blocks.granted.count()).expect("a line of blocks")
}

fn granted(plan: &MemoryPlan, name: &str) -> Bytes {
    plan.line(name).expect("a line").granted
}

/// A small model whose every setting has a price, so that every lever moves something.
///
/// 16 layers of 100 MiB; KV of 4 heads of 64 in every layer; vision 300 MiB; weight caches 200 MiB and mandatory; a state
/// slab of 8 MiB a sequence; scratch of 64 KiB a token of the chunk; 20 MiB a draft token.
fn small_model(config: &Config) -> Result<Vec<Demand>, Overflow> {
    let layers = [KvLayer::heads(4, 64, config.kv_dtype); 16];
    let group = KvGroup {
        layers: &layers,
        block_tokens: config.block_tokens,
        window: None,
        prefill_chunk: config.prefill_chunk,
    };
    let on_device = config.gpu_layers.unwrap_or(config.layers);
    let mut demands = vec![
        weights(mib(100).times(on_device.count())?),
        Demand::bytes("rest of the weights", Tier::ModelResident, "host", {
            mib(100).times(config.layers.minus(on_device)?.count())?
        }),
        group.demand("KV", GPU, config.max_batch, config.max_seq_len)?,
        Demand::pool("state", GPU, Amount::fixed_pool(mib(8), Tokens::ZERO, Blocks::new(config.max_batch))),
        Demand::bytes("scratch", Tier::ForwardScratch, GPU, Bytes::kib(64).times(config.prefill_chunk.count())?),
        Demand::bytes("drafts", Tier::EnginePersistent, GPU, mib(20).times(config.speculative_depth)?),
    ];
    if config.vision {
        demands.push(Demand::bytes("vision tower", Tier::ModelResident, GPU, mib(300)));
    }
    if config.weight_caches {
        demands.push(Demand::bytes("weight caches", Tier::ModelResident, GPU, mib(200)));
    }
    Ok(demands)
}

fn small_config() -> Config {
    Config {
        max_batch: 8,
        max_seq_len: Tokens::new(8192),
        vision: true,
        speculative_depth: 4,
        layers: Layers::new(16),
        ..Config::default()
    }
}

/// Plans [`small_model`] with levers.
fn plan_small(budget: Bytes, locks: Locks) -> Result<MemoryPlan, PlanFailure> {
    let config = small_config();
    let demands = small_model(&config).expect("sizes in range");
    let limits = Limits::new(GPU, budget);
    plan_memory(&PlanInput { locks, reprice: Some(&small_model), ..PlanInput::new(limits, config, &demands) })
}
