//! The device that GPU tests run on: a real one, an emulated one (`emulator/`), or none.

use memtier::Cuda;
use memtier_cuda::OpenError;
use memtier_engine::{EngineError, Llm, ModelFile, Settings, cuda::Gpu};
use memtier_model::write::TinyModel;

/// The first GPU, with `threads` threads beside it, or `None` with a sentence; `MEMTIER_REQUIRE_GPU` makes that a failure.
pub fn gpu(threads: usize) -> Option<Gpu> {
    match Gpu::open(0, &Gpu::kernels_folder(), threads) {
        Ok(gpu) => Some(gpu),
        Err(EngineError::Cuda(error @ (OpenError::NoDriver { .. } | OpenError::NoDevice { .. })))
            if std::env::var_os("MEMTIER_REQUIRE_GPU").is_none() =>
        {
            println!("skipped: no CUDA device ({error})");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// What a real device is given, or fewer and smaller cases: for an emulated one, which is some thousand times slower, unless
/// `MEMTIER_EMULATED_LONG` is set, and for a real one under a tool that slows it as much (`MEMTIER_FEW_SHAPES`).
pub fn sized<T>(gpu: &Gpu, all: T, few: T) -> T {
    let asked = match is_emulated(gpu) {
        true => std::env::var_os("MEMTIER_EMULATED_LONG").is_none(),
        false => std::env::var_os("MEMTIER_FEW_SHAPES").is_some(),
    };
    if asked { few } else { all }
}

/// Whether the device is an emulated one.
pub fn is_emulated(gpu: &Gpu) -> bool {
    gpu.backend().info().name == "memtier emulated GPU"
}

/// The model on the GPU.
pub fn on_gpu(gpu: &Gpu, file: &ModelFile, settings: &Settings) -> Llm<Cuda> {
    Llm::<Cuda>::open_on(gpu.clone(), file, settings, None, &mut |_| ()).unwrap()
}

/// The same with heads that the attention kernels take, and room for 512 tokens.
pub fn for_gpu(model: TinyModel) -> TinyModel {
    TinyModel { hidden: 128, head_dim: 64, feed_forward: 192, context: 512, ..model }
}
