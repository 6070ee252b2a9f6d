//! A serving engine whose memory is measured: a pool of blocks, a few buffers, one stream with scratch.

use std::error::Error;

use memtier::{
    BlockPool, Blocks, Bytes, Device, Engine, GlobalKv, Host, HostBackend, Limits, Line, Loading, Planning, PoolSpec,
    Serving, Space, Stream, StreamSpec, Tokens, graph_captured, tier,
};

/// Blocks of the pool: as many as a mid-size server has.
pub(crate) const BLOCKS: u64 = 2048;
/// Bytes of one scratch or arena take: an activation row.
pub(crate) const TAKE: usize = 4096;
/// Takes between two rewinds: a layer's worth.
pub(crate) const TAKES: u64 = 64;
/// Buffers that one carve takes from the arena.
pub(crate) const ROWS: usize = 1024;

/// What shapes are made of.
#[derive(Clone, Copy)]
pub(crate) struct Dims {
    rows: usize,
    floats: usize,
}

/// One buffer of [`TAKE`] bytes.
#[tier(EnginePersistent, dims = Dims)]
pub(crate) struct Row {
    #[shape(floats)]
    values: f32,
}

/// Many buffers.
#[tier(EnginePersistent, dims = Dims)]
pub(crate) struct Rows {
    rows: [Row; rows],
}

/// What the engine owns.
#[graph_captured]
pub(crate) struct Measured {
    pub(crate) rows: Rows,
    pub(crate) kv: BlockPool<GlobalKv<f32>>,
}

const DIMS: Dims = Dims { rows: ROWS, floats: TAKE / size_of::<f32>() };

const POOL: PoolSpec = PoolSpec {
    per_block: Tokens::new(16),
    block_elements: 1024,
    floor: Blocks::new(BLOCKS),
    initial: Blocks::new(BLOCKS),
    most: Blocks::new(BLOCKS),
    step: Blocks::new(1),
};

type Lines = (MeasuredLines, Line<Stream<Host>>);

fn declared() -> (Engine<Loading>, Lines) {
    let mut engine = Engine::open(&Device::new(HostBackend::new(), Bytes::mib(256)));
    let lines = engine.declare_bundle::<Measured>(MeasuredSpec { rows: DIMS, kv: POOL });
    let stream = engine.declare(StreamSpec { scratch: Bytes::new(TAKE as u64 * (TAKES + 1)) });
    (engine, (lines, stream))
}

/// An engine whose arenas are open and empty, and the lines to carve.
pub(crate) fn planned() -> Result<(Engine<Planning>, Lines), Box<dyn Error>> {
    let (engine, lines) = declared();
    Ok((engine.plan(Limits::new(Host::NAME, Bytes::mib(256)))?, lines))
}

/// An engine that serves, and its stream.
pub(crate) type Running = (Engine<Serving<Measured>>, Stream<Host>);

/// A serving engine that has made a step, so that its pool knows a stream.
pub(crate) fn serving() -> Result<Running, Box<dyn Error>> {
    let (engine, (lines, stream)) = planned()?;
    let mut engine = engine.carve(lines)?;
    let mut stream = engine.open_stream(stream)?;
    let mut engine = engine.serve::<Measured>()?;
    engine.step(&mut stream)?.finish()?.wait()?;
    Ok((engine, stream))
}
