//! Row j: a kept pool brings its unused planned commits along; the next plan must count what they may still commit.

#![forbid(unsafe_code)]

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let device = Device::new(HostBackend::new(), Bytes::mib(4));
    let pool = PoolSpec { block_elements: 1024, ..POOL };
    let mut engine = Engine::open(&device);
    let lines = engine.declare_bundle::<Llama>(LlamaSpec { kv: pool, ..spec() });
    let engine = engine.plan(Limits::new(Host::NAME, Bytes::mib(4)))?.carve(lines)?.serve::<Llama>()?;
    let (mut engine, kept) = engine.drain()?.end_model();
    let weights = LlamaWeights::price(&DIMS)?;
    let committed = device.report().live;
    let lines = LlamaLines {
        weights: engine.declare(DIMS),
        work: engine.keep(kept.work, &DIMS)?,
        kv: engine.keep(kept.kv, &pool)?,
        window: engine.keep(kept.window, &POOL)?,
        table: engine.keep(kept.table, &TABLE)?,
        recent: engine.keep(kept.recent, &TABLE)?,
    };
    // Enough for what is committed and the weights, not for the growth.
    let budget = committed.plus(weights)?;
    let refused = engine.plan(Limits::new(Host::NAME, budget)).err().ok_or("the growth was not priced")?;
    assert!(matches!(refused.report, PlanError::DoesNotFit(_)), "{refused}");
    // Enough for all of it: what grows stays inside.
    let budget = budget.plus(Bytes::mib(1))?;
    let engine = refused.engine.plan(Limits::new(Host::NAME, budget))?.carve(lines)?.serve::<Llama>()?;
    while let Some(commit) = engine.bundle().kv.planned_commit() {
        engine.bundle().kv.grow(commit)?;
    }
    assert!(device.report().live <= budget);
    Ok(())
}
