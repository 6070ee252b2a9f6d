//! A vector operation from span to graph: the same function runs eagerly and is recorded, and the graph is replayed.
//!
//! Compile the kernels first; the argument is their folder:
//! `cargo run -p memtier-cuda --example 01-span-to-graph -- target/kernels`

use memtier::{
    Bytes, Cuda, Device, Engine, LaunchError, Limits, Place, Recorder, Space, Step, StreamSpec, graph_captured, tier,
};
use memtier_cuda::{CudaBackend, Kernels, OpenError, kernels};

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
}

/// `y = 2 x + x`. Spans only: a host slice, a raw pointer or a vector of another engine does not compile.
fn forward<P: Place<Space = Cuda>>(
    on: &Recorder<P>,
    kernels: &Kernels,
    step: &mut ModelView<'_, P>,
    scratch: &mut memtier::ScratchFrame<'_, P>,
) -> Result<(), LaunchError> {
    let work = &mut step.work;
    let mut scratch = scratch.nested();
    let mut doubled = scratch.take::<f32>(work.x.len())?;
    kernels::scale(on, kernels, &mut doubled, &work.x, 2.0)?;
    kernels::add(on, kernels, &mut work.y, &doubled, &work.x)
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
    println!("{}, {kernels:?}", backend.info().name);

    let budget = Bytes::mib(64);
    let device = Device::new(backend, budget);
    let mut engine = Engine::open(&device);
    let lines = engine.declare_bundle::<Model>(ModelSpec { work: Dims { elements: 1 << 20 } });
    let stream = engine.declare(StreamSpec { scratch: Bytes::mib(4) });
    let limits = Limits { graphs: 1, graph_bytes: Bytes::mib(1), ..Limits::new(Cuda::NAME, budget) };
    let mut engine = engine.plan(limits)?.carve(lines)?;
    let mut stream = engine.open_stream(stream)?;

    // The body runs once and writes down; the device bakes what it wrote into a graph.
    let graph = engine.record::<Model, LaunchError, _>(&mut stream, |step| {
        let Step { buffers, on, scratch, .. } = step;
        forward(on, &kernels, buffers, scratch)
    })?;
    let mut engine = engine.serve::<Model>()?;

    for round in 1..=3u8 {
        let mut step = engine.step(&mut stream)?;
        step.on.write(&mut step.buffers.work.x, &vec![f32::from(round); 1 << 20])?;
        if round == 1 {
            forward(step.on, &kernels, &mut step.buffers, &mut step.scratch)?;
        } else {
            step.replay(graph)?;
        }
        let mut y = [0.0; 4];
        step.on.read::<f32>(&step.buffers.work.y, &mut y)?;
        step.finish()?.wait()?;
        println!("{} of {round}: {y:?}", if round == 1 { "eager" } else { "replay" });
        assert_eq!(y, [3.0 * f32::from(round); 4]);
    }
    println!("acquisitions while serving: {}", device.report().acquisitions[2]);
    Ok(())
}
