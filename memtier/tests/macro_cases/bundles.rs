//! What parts can be.

use memtier::{
    BlockPool, Blocks, Bundle, Bytes, Device, Engine, GlobalKv, Host, HostBackend, Limits, PageTable, PoolSpec, Space,
    SwaKv, TableSpec, Tokens, f16, graph_captured, tier,
};

use crate::{DIMS, Dims};

/// Weights.
#[tier(ModelResident, dims = Dims)]
pub struct Weights {
    /// An array.
    #[shape(hidden, rows)]
    pub x: f32,
}

/// Workspace.
#[tier(EnginePersistent, dims = Dims)]
pub struct Work {
    /// An array.
    #[shape(hidden, rows)]
    pub x: f32,
}

/// Every kind of part, optional, listed and repeated.
#[graph_captured]
pub struct Everything {
    /// A storage.
    pub weights: Weights,
    /// One of each stream.
    pub works: [Work; 2],
    /// As many as the model has adapters.
    pub adapters: Vec<Weights>,
    /// One pool a group of layers.
    pub pools: Vec<BlockPool<GlobalKv<f16>>>,
    /// Perhaps.
    pub window: Option<BlockPool<SwaKv<f16>>>,
    /// Perhaps some.
    pub drafts: Option<Vec<Work>>,
    /// A table.
    pub table: PageTable<GlobalKv<f16>>,
}

fn pool(blocks: u64) -> PoolSpec {
    PoolSpec::fixed(Tokens::new(4), 512, Blocks::new(blocks))
}

fn spec() -> EverythingSpec {
    EverythingSpec {
        weights: DIMS,
        works: [DIMS, Dims { rows: 5, ..DIMS }],
        adapters: vec![DIMS; 3],
        pools: vec![pool(4), pool(8)],
        window: None,
        drafts: Some(vec![DIMS]),
        table: TableSpec { rows: 2, columns: 2 },
    }
}

#[test]
fn demands_are_those_of_the_parts_in_order() {
    let demands = Everything::demands(&spec()).unwrap();
    let names: Vec<_> = demands.iter().map(|demand| demand.name.to_string()).collect();
    let expected = ["Weights", "Work", "Work", "Weights", "Weights", "Weights", "global KV", "global KV", "Work"];
    assert_eq!(names[..9], expected);
    assert_eq!(names.len(), 10, "and the table");
    assert_eq!(<Everything as Bundle>::NAME, "Everything");
}

#[test]
fn every_part_is_carved_and_given_back() {
    let device = Device::new(HostBackend::new(), Bytes::mib(1));
    let mut engine = Engine::open(&device);
    let lines = engine.declare_bundle::<Everything>(spec());
    let stream = engine.declare(memtier::StreamSpec { scratch: Bytes::kib(4) });
    let mut engine = engine.plan(Limits::new(Host::NAME, Bytes::mib(1))).unwrap().carve(lines).unwrap();
    let mut stream = engine.open_stream(stream).unwrap();
    let mut engine = engine.serve::<Everything>().unwrap();
    let step = engine.step(&mut stream).unwrap();
    let EverythingView { works, adapters, pools, window, drafts, .. } = &step.buffers;
    assert_eq!((works[1].x.len(), adapters.len(), pools.len()), (40, 3, 2));
    assert!(window.is_none() && drafts.as_ref().is_some_and(|drafts| drafts.len() == 1));
    drop(step);
    let ticket = {
        let mut ticket = engine.bundle().pools[1].open(Tokens::new(4));
        ticket.extend(Tokens::new(1)).unwrap();
        ticket
    };
    let engine = *engine.drain().err().expect("every pool is asked").engine;
    drop(ticket);
    let (engine, kept) = engine.drain().unwrap().end_model();
    let EverythingKept { works, adapters, pools, .. } = kept;
    assert_eq!((works.len(), adapters.len(), pools.len()), (2, 3, 2));
    drop((works, pools, engine, stream));
}
