//! A configuration that does not fit is refused before anything is loaded, with the arithmetic and what to change. What it
//! says is true: the first lever, applied as printed, makes it fit.

use memtier::{
    Blocks, Bundle, Bytes, Device, Engine, HostBackend, Limits, Overflow, PlanError, PlanRequest, PoolSpec, TableSpec,
    plan::{Config, Demand, Locks},
};
use memtier_examples::{DIMS, POOL, Toy, ToySpec};

/// The sizes of the bundle as a function of the configuration.
fn spec(config: &Config) -> ToySpec {
    let context = config.max_seq_len.in_blocks_of(POOL.per_block).count();
    let blocks = Blocks::new(context);
    // 32 KiB a token: a model of some size.
    let kv = PoolSpec { block_elements: 4 * 8192, floor: blocks, initial: blocks, most: blocks, ..POOL };
    ToySpec { weights: DIMS, work: DIMS, kv, table: TableSpec { rows: DIMS.max_batch, columns: context as usize } }
}

fn demands(config: &Config) -> Result<Vec<Demand>, Overflow> {
    Ok(Toy::demands(&spec(config))?)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let device = Device::new(HostBackend::new(), Bytes::mib(96));
    let config = Config { max_seq_len: memtier::Tokens::new(4096), block_tokens: POOL.per_block, ..Config::default() };
    let limits = Limits::new("host", Bytes::mib(96));
    let mut engine = Engine::open(&device);
    let lines = engine.declare_bundle::<Toy>(spec(&config));
    let request = PlanRequest { limits, config, locks: Locks::default(), reprice: Some(&demands) };

    let refused = engine.plan(request).err().ok_or("128 MiB of KV fit into 96 MiB")?;
    assert_eq!(device.report().live, Bytes::ZERO);

    // The engine and the lines come back. Apply the first lever as it is printed.
    let PlanError::DoesNotFit(failure) = &refused.report else { return Err(Box::new(refused)) };
    println!("{}\n", failure.report());
    assert_eq!(format!("{refused:?}"), failure.report(), "what `?` in `main` would have printed");
    let lever = failure.levers().first().ok_or("no lever")?;
    let (mut limits, mut config) = (limits, config);
    lever.apply(&mut limits, &mut config);
    drop(lines);
    let mut engine = Engine::open(&device);
    let lines = engine.declare_bundle::<Toy>(spec(&config));
    let engine = engine.plan(PlanRequest { limits, config, locks: Locks::default(), reprice: Some(&demands) })?;
    println!("{}", engine.memory_plan());
    let engine = engine.carve(lines)?;
    assert_eq!(device.report().live, engine.memory_plan().total());
    Ok(())
}
