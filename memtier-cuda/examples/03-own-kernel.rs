//! A kernel of your own: its wrapper is made from a signature, which is compared with the CUDA source when this program is compiled.
//! Change a parameter here or there, and it does not build.
//!
//! Compile it beside this crate's kernels; the argument is their folder:
//! `cargo run -p memtier-cuda --bin compile-kernels -- --also memtier-cuda/examples/kernels/softplus.cu --out target/kernels`
//! `cargo run -p memtier-cuda --example 03-own-kernel -- target/kernels`
//!
//! Without a GPU: add `--emulated` to the first, and run the second with the emulated driver (`cargo build --release -p memtier-emulator`) on
//! `LD_LIBRARY_PATH`. A kernel that leaves its spans is then told by thread, address and source line.

use memtier::{Bytes, Cuda, Device, Engine, LaunchError, Limits, Space, Step, StreamSpec, graph_captured, tier};
use memtier_cuda::{CudaBackend, KernelModule, Kernels, LaunchGrid, OpenError, kernel};

/// `out[i] = log(1 + exp(x[i]))`. The condition is checked before each launch; whoever writes it vouches that the kernel then stays inside
/// its spans.
#[kernel("examples/kernels/softplus.cu", "softplus_f32", unsafe(requires(
    out.len() as u64 == n,
    x.len() == out.len(),
    grid.blocks().saturating_mul(256) >= n,
)))]
pub fn softplus(out: Out<f32>, x: In<f32>, n: u64);

/// The numbers that shapes are made of.
#[derive(Clone, Copy)]
pub struct Dims {
    /// Elements of a vector.
    pub elements: usize,
}

/// Read and written by every step.
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

const N: usize = 100_000;

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
    let image = std::fs::read(Kernels::load(&backend, folder.as_ref())?.image(folder.as_ref(), "softplus"))?;
    // SAFETY: compiled from the source that the wrapper names, by the command at the top.
    let module = unsafe { KernelModule::load(&backend, &image) }?;
    let kernel = module.get::<softplus>()?;

    let budget = Bytes::mib(16);
    let device = Device::new(backend, budget);
    let mut engine = Engine::open(&device);
    let lines = engine.declare_bundle::<Model>(ModelSpec { work: Dims { elements: N } });
    let stream = engine.declare(StreamSpec { scratch: Bytes::mib(2) });
    let limits = Limits { graphs: 1, graph_bytes: Bytes::mib(1), ..Limits::new(Cuda::NAME, budget) };
    let mut engine = engine.plan(limits)?.carve(lines)?;
    let mut stream = engine.open_stream(stream)?;
    let grid = LaunchGrid::over(N, 256);
    let graph = engine.record::<Model, LaunchError, _>(&mut stream, |step| {
        let Step { buffers: ModelView { work }, on, .. } = step;
        softplus(on, &kernel, grid, &mut work.y, &work.x, N as u64)
    })?;
    let mut engine = engine.serve::<Model>()?;

    let x: Vec<f32> = (0..N).map(|i| (i as f32 - N as f32 / 2.0) / 1000.0).collect();
    let mut step = engine.step(&mut stream)?;
    step.on.write(&mut step.buffers.work.x, &x)?;
    step.replay(graph)?;
    let mut y = vec![0.0; N];
    step.on.read::<f32>(&step.buffers.work.y, &mut y)?;
    // A grid that does not cover the vector never reaches the device.
    let ModelView { work } = &mut step.buffers;
    let refused = softplus(step.on, &kernel, LaunchGrid::new(1), &mut work.y, &work.x, N as u64).unwrap_err();
    step.finish()?.wait()?;
    let exact = |x: f32| f64::from(x).max(0.0) + (-f64::from(x).abs()).exp().ln_1p();
    let worst = x.iter().zip(&y).map(|(x, y)| (exact(*x) - f64::from(*y)).abs()).fold(0.0, f64::max);
    println!("softplus of {N} numbers: {worst:.2e} from f64 at most; too small a grid: {refused}");
    assert!(worst < 1e-5);
    Ok(())
}
