//! What the GPU tests share: a device or a sentence, kernels, a bundle, random numbers and distances.
#![allow(dead_code, reason = "every test program uses some of it")]
#![allow(unreachable_pub, missing_docs, reason = "a module of test programs")]

use std::{
    cell::RefCell,
    env,
    path::PathBuf,
    sync::{Mutex, MutexGuard, PoisonError},
};

use memtier::{
    BlockPool, Blocks, Bytes, Cuda, Device, Engine, GlobalKv, Limits, PageTable, PoolSpec, Serving, Space, Stream,
    StreamSpec, TableSpec, Tokens, bf16, graph_captured, tier,
};
use memtier_cuda::{CudaBackend, CudaOptions, Kernels, OpenError};

/// The first CUDA device, or `None` with a sentence. `MEMTIER_REQUIRE_GPU` makes its absence a failure.
pub fn backend() -> Option<CudaBackend> {
    alone();
    let mut options = CudaOptions::default();
    options.journal = true;
    options.staging = Bytes::kib(640);
    match CudaBackend::with(options) {
        Ok(backend) => Some(backend),
        Err(error @ (OpenError::NoDriver { .. } | OpenError::NoDevice { .. }))
            if env::var_os("MEMTIER_REQUIRE_GPU").is_none() =>
        {
            println!("skipped: no CUDA device ({error})");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// The emulated device's name (`emulator/` in this repository).
pub const EMULATED: &str = "memtier emulated GPU";

/// Whether the device is an emulated one: it shows what kernels compute and what the driver refuses, and nothing of times or of
/// NVIDIA's libraries.
pub fn is_emulated(backend: &CudaBackend) -> bool {
    backend.info().name == EMULATED
}

/// Whether a test that takes times, or needs NVIDIA's libraries, is over: on an emulated device, which it says.
pub fn skipped_when_emulated(backend: &CudaBackend, what: &str) -> bool {
    let emulated = is_emulated(backend);
    if emulated {
        println!("skipped: {what}, and this is an emulated device");
    }
    emulated
}

/// The same where there is no device at all.
pub fn skipped_without_a_real_device(what: &str) -> bool {
    backend().is_none_or(|backend| skipped_when_emulated(&backend, what))
}

/// What a real device is given, or fewer and smaller shapes: for an emulated device, which is some thousand times slower, unless
/// `MEMTIER_EMULATED_LONG` is set, and for a real one under a tool that slows it as much (`MEMTIER_FEW_SHAPES`).
pub fn sized<T>(backend: &CudaBackend, all: T, few: T) -> T {
    let asked = if is_emulated(backend) {
        env::var_os("MEMTIER_EMULATED_LONG").is_none()
    } else {
        env::var_os("MEMTIER_FEW_SHAPES").is_some()
    };
    if asked { few } else { all }
}

/// The same, for tests that open the device later.
pub fn rounds(all: usize, few: usize) -> usize {
    backend().map_or(all, |backend| sized(&backend, all, few))
}

/// An emulated device that begins nothing while this lives, so that work which a real one would take a while for is still to be done.
/// Nothing on a real one.
pub struct Held(bool);

impl Held {
    pub fn new(backend: &CudaBackend) -> Self {
        let held = is_emulated(backend);
        if held {
            Held::set(true);
        }
        Held(held)
    }

    fn set(held: bool) {
        // SAFETY: the driver is there, and is the emulated one, whose function has this type.
        let result = unsafe {
            let library = cudarc::driver::sys::culib();
            library.get::<unsafe extern "C" fn(std::ffi::c_int) -> u32>(b"memtierEmulatedHold").unwrap()(held.into())
        };
        assert_eq!(result, 0);
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if self.0 {
            Held::set(false);
        }
    }
}

/// One test at a time: they compare what the driver says is free. Held until the test's thread ends.
fn alone() {
    static ALONE: Mutex<()> = Mutex::new(());
    thread_local! {
        static HELD: RefCell<Option<MutexGuard<'static, ()>>> = const { RefCell::new(None) };
    }
    HELD.with_borrow_mut(|held| {
        held.get_or_insert_with(|| ALONE.lock().unwrap_or_else(PoisonError::into_inner));
    });
}

/// The compiled kernels: `MEMTIER_KERNELS`, or a folder `kernels` beside this program.
pub fn kernels(backend: &CudaBackend) -> Kernels {
    Kernels::load(backend, &kernels_folder()).unwrap_or_else(|error| panic!("{error}"))
}

pub fn kernels_folder() -> PathBuf {
    let beside = env::current_exe().ok().and_then(|exe| Some(exe.parent()?.join("kernels")));
    env::var_os("MEMTIER_KERNELS").map(PathBuf::from).or(beside).expect("a folder of compiled kernels")
}

#[derive(Clone, Copy, Debug)]
pub struct Dims {
    pub elements: usize,
}

/// Read-only while serving.
#[tier(ModelResident, dims = Dims, space = Cuda)]
pub struct Weights {
    #[shape(elements)]
    pub weight: f32,
}

/// Read and written by every step.
#[tier(EnginePersistent, dims = Dims, space = Cuda)]
pub struct Work {
    #[shape(elements)]
    pub x: f32,
    #[shape(elements)]
    pub y: f32,
    #[shape(4096)]
    pub arrived: u32,
}

#[graph_captured]
pub struct Toy {
    pub weights: Weights,
    pub work: Work,
    pub kv: BlockPool<GlobalKv<bf16>, Cuda>,
    pub table: PageTable<GlobalKv<bf16>, Cuda>,
}

/// A serving engine on the GPU.
pub struct Rig {
    pub backend: CudaBackend,
    pub device: Device,
    pub kernels: Kernels,
    pub engine: Engine<Serving<Toy>>,
    pub stream: Stream<Cuda>,
}

/// A pool of `blocks` blocks of `elements` bf16.
pub fn pool(per_block: usize, elements: usize, blocks: usize) -> PoolSpec {
    PoolSpec::fixed(Tokens::new(per_block as u64), elements, Blocks::new(blocks as u64))
}

impl Rig {
    /// An engine with a pool, a page table, and scratch of `scratch` bytes.
    pub fn new(scratch: Bytes, kv: PoolSpec, table: TableSpec) -> Option<Self> {
        let backend = backend()?;
        let kernels = kernels(&backend);
        let budget = Bytes::gib(8);
        let device = Device::new(backend.clone(), budget);
        let mut engine = Engine::open(&device);
        let dims = Dims { elements: 1 << 16 };
        let lines = engine.declare_bundle::<Toy>(ToySpec { weights: dims, work: dims, kv, table });
        let stream = engine.declare(StreamSpec { scratch });
        let limits = Limits { graphs: 4, graph_bytes: Bytes::mib(1), ..Limits::new(Cuda::NAME, budget) };
        let mut engine = engine.plan(limits).unwrap().carve(lines).unwrap();
        let mut stream = engine.open_stream(stream).unwrap();
        {
            let mut load = engine.load(&mut stream).unwrap();
            let zeros = load.staging.take::<u32>(4096).unwrap();
            zeros.upload(load.on, &mut load.buffers.work.arrived).unwrap();
        }
        let engine = engine.serve::<Toy>().unwrap();
        Some(Rig { backend, device, kernels, engine, stream })
    }
}

/// A deterministic stream of numbers (splitmix64).
pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    pub fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }

    /// About normal, mean 0, deviation 1.
    pub fn normal(&mut self) -> f32 {
        let uniform = |rng: &mut Self| (rng.next() >> 40) as f32 / (1u64 << 24) as f32;
        let sum: f32 = (0..12).map(|_| uniform(self)).sum();
        sum - 6.0
    }

    pub fn f32s(&mut self, count: usize) -> Vec<f32> {
        (0..count).map(|_| self.normal()).collect()
    }

    pub fn bf16s(&mut self, count: usize) -> Vec<bf16> {
        (0..count).map(|_| bf16::from_f32(self.normal())).collect()
    }
}

/// `|found - expected| / |expected|`, by norm; infinite when anything is not finite or was not written.
pub fn distance(found: impl IntoIterator<Item = f64>, expected: &[f64]) -> f64 {
    let (mut apart, mut size) = (0.0, 0.0);
    let mut count = 0;
    for (found, expected) in found.into_iter().zip(expected) {
        apart += (found - expected).powi(2);
        size += expected.powi(2);
        count += 1;
    }
    assert_eq!(count, expected.len(), "another number of elements");
    let distance = if size == 0.0 { apart.sqrt() } else { (apart / size).sqrt() };
    if distance.is_finite() { distance } else { f64::INFINITY }
}

pub fn wide(values: &[bf16]) -> impl Iterator<Item = f64> + '_ {
    values.iter().map(|value| f64::from(value.to_f32()))
}
