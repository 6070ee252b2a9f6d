//! A region that grows under a graph: the graph is recorded over a pool with one block, the pool grows by what the plan paid for, and the
//! same graph goes on at the same addresses.
//!
//! Compile the kernels first; the argument is their folder:
//! `cargo run -p memtier-cuda --example 02-growable-region -- target/kernels`

use memtier::{
    BlockPool, Blocks, Bytes, Cuda, Device, Engine, GlobalKv, LaunchError, Limits, PoolSpec, Space, Step, StreamSpec,
    Tokens, graph_captured, tier,
};
use memtier_cuda::{CudaBackend, Kernels, OpenError, kernels};

/// Elements of a block: 2 MiB of f32.
const BLOCK: usize = 1 << 19;

/// The numbers that shapes are made of.
#[derive(Clone, Copy)]
pub struct Dims {
    /// Elements of a vector.
    pub elements: usize,
}

/// Read and written by every step, at addresses that never change.
#[tier(EnginePersistent, dims = Dims, space = Cuda)]
pub struct Work {
    /// What comes in.
    #[shape(elements)]
    pub x: f32,
    /// What comes out.
    #[shape(elements)]
    pub y: f32,
}

/// All that a graph may bake in.
#[graph_captured]
pub struct Model {
    /// The vectors.
    pub work: Work,
    /// Keys and values: one block from the start, 512 more when they are wanted.
    pub kv: BlockPool<GlobalKv<f32>, Cuda>,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let backend = match CudaBackend::open(0) {
        Err(error @ OpenError::NoDriver { .. }) => {
            println!("skipped: {error}");
            return Ok(());
        }
        opened => opened?,
    };
    let folder =
        std::env::args_os().nth(1).ok_or("the folder of compiled kernels, please: see the top of this example")?;
    let kernels = Kernels::load(&backend, folder.as_ref())?;

    let budget = Bytes::gib(2);
    let device = Device::new(backend.clone(), budget);
    let mut engine = Engine::open(&device);
    // The addresses of all 513 blocks are reserved, the memory of one is committed: addresses cost nothing.
    let fixed = PoolSpec::fixed(Tokens::new(16), BLOCK, Blocks::new(513));
    let kv = PoolSpec { floor: Blocks::new(1), initial: Blocks::new(1), step: Blocks::new(128), ..fixed };
    let lines = engine.declare_bundle::<Model>(ModelSpec { work: Dims { elements: BLOCK }, kv });
    let stream = engine.declare(StreamSpec { scratch: Bytes::mib(4) });
    let limits = Limits { graphs: 1, graph_bytes: Bytes::mib(1), ..Limits::new(Cuda::NAME, budget) };
    let mut engine = engine.plan(limits)?.carve(lines)?;
    let mut stream = engine.open_stream(stream)?;
    let graph = engine.record::<Model, LaunchError, _>(&mut stream, |step| {
        let Step { buffers: ModelView { work, .. }, on, .. } = step;
        kernels::scale(on, &kernels, &mut work.y, &work.x, 2.0)
    })?;
    let mut engine = engine.serve::<Model>()?;

    let mut request = engine.bundle().kv.open(Tokens::new(16 * 400));
    let mut last = 0.0;
    for round in 0..4u8 {
        // The pool's last block goes through the graph and back: it may be one that came with the latest growth.
        while request.push(Blocks::new(100)).is_err() {
            let commit = engine.bundle().kv.planned_commit().ok_or("the plan has no more")?;
            let before = backend.memory()?.free;
            engine.bundle().kv.grow(commit)?;
            println!(
                "grown to {}: {} by the driver's count",
                engine.bundle().kv.committed(),
                before.beyond(backend.memory()?.free)
            );
        }
        let mut step = engine.step(&mut stream)?;
        let index = 100 * usize::from(round) + 99;
        step.on.write(&mut step.buffers.kv.block_mut(&mut request, index)?, &vec![f32::from(round) + 1.0; BLOCK])?;
        let ModelView { work, kv } = &mut step.buffers;
        step.on.copy::<f32>(&mut work.x, kv.block(&request, index)?)?;
        step.replay(graph)?;
        let mut y = [0.0];
        step.on.read::<f32>(&step.buffers.work.y, &mut y)?;
        step.finish()?.wait()?;
        assert_eq!(y, [2.0 * (f32::from(round) + 1.0)]);
        last = y[0];
    }
    drop(request);
    let report = device.report();
    println!(
        "the last replay gave {last}, with one recording; commits while serving: {}, all planned",
        report.planned_commits
    );
    assert_eq!(report.acquisitions[2], report.planned_commits);
    Ok(())
}
