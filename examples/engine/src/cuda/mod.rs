//! Serving from a CUDA device: the same bundle, plan, requests and page tables; weights in tiles of few bits or in bf16, keys and values
//! in f16, e4m3, q8_0 or NVFP4, and the operations of a pass over CUDA kernels.

mod library;
mod run;
mod scratch;
mod weights;

use std::path::{Path, PathBuf};

use memtier::{
    Bytes, Cuda, Device, Place, SizeError,
    plan::KvDtype,
    reserve::{ReserveKey, StartUp},
};
use memtier_cuda::{AllocationCounter, CountError, CudaBackend, Kernels};

use crate::{
    EngineError,
    arch::Arch,
    compute::Compute,
    config::Settings,
    ops::{Cpu, Rope},
    weights::{GpuWeights, RopeDims},
};
use library::Library;
pub use run::CudaRun;
pub(crate) use weights::tile_rows;

/// What the plan keeps for each CUDA graph of a pass, some two hundred launches: an assumption.
const GRAPH_BYTES: Bytes = Bytes::mib(2);

/// An open CUDA device with its kernels. A name: clones share them.
#[derive(Clone)]
pub struct Gpu {
    backend: CudaBackend,
    kernels: Kernels,
    cpu: Cpu,
    counter: Result<AllocationCounter, CountError>,
    library: Library,
}

impl Gpu {
    /// Opens device `ordinal`, with the kernels that `compile-kernels` left in `kernels`, and `threads` threads of the process.
    ///
    /// # Errors
    /// [`EngineError::Cuda`] without a driver or a device, [`EngineError::CudaKernels`] when the kernels are not there or not
    /// for it. Each names the remedy.
    pub fn open(ordinal: u32, kernels: &Path, threads: usize) -> Result<Self, EngineError> {
        let backend = CudaBackend::open(ordinal)?;
        let kernels = Kernels::load(&backend, kernels)?;
        let counter = AllocationCounter::start();
        Ok(Gpu { backend, kernels, cpu: Cpu::new(threads)?, counter, library: Library::default() })
    }

    /// Where compiled kernels are looked for: `MEMTIER_KERNELS`, or the folder `kernels` beside the program.
    pub fn kernels_folder() -> PathBuf {
        let beside = || std::env::current_exe().ok().and_then(|exe| Some(exe.parent()?.join("kernels")));
        std::env::var_os("MEMTIER_KERNELS").map(PathBuf::from).or_else(beside).unwrap_or_else(|| "kernels".into())
    }

    /// The memory of the device.
    pub fn backend(&self) -> &CudaBackend {
        &self.backend
    }
}

fn unsupported(what: String, why: &'static str) -> EngineError {
    EngineError::Unsupported { what, why }
}

fn setting(name: &'static str, value: impl ToString, remedy: &str) -> EngineError {
    EngineError::Setting { name, value: value.to_string(), remedy: remedy.to_owned() }
}

impl Compute for Cuda {
    type Ops = Gpu;
    type Run<'p, P: Place<Space = Cuda> + 'p> = CudaRun<'p, P>;
    const ON_HOST: bool = false;
    const GRAPH_BYTES: Bytes = GRAPH_BYTES;
    const ASSUMED_RESERVE: Bytes = CudaBackend::ASSUMED_RESERVE;

    fn cpu(ops: &Gpu) -> &Cpu {
        &ops.cpu
    }

    fn device(ops: &Gpu, budget: Bytes) -> Device {
        Device::new(ops.backend.clone(), budget)
    }

    fn start_up(ops: &Gpu) -> StartUp {
        ops.backend.start_up()
    }

    fn used(ops: &Gpu) -> Option<Bytes> {
        ops.backend.used().ok()
    }

    fn free(ops: &Gpu) -> Option<Bytes> {
        ops.backend.memory().ok().map(|memory| memory.free)
    }

    fn reserve_key(ops: &Gpu, libraries: &str, path: &str) -> ReserveKey {
        ops.backend.reserve_key(libraries, path)
    }

    fn context(ops: &Gpu) -> Bytes {
        ops.backend.context_memory()
    }

    fn library_allocations(ops: &Gpu) -> Option<Result<u64, String>> {
        let counter = ops.counter.as_ref();
        Some(counter.map(|counter| counter.so_far().others()).map_err(ToString::to_string))
    }

    fn check(settings: &Settings) -> Result<(), EngineError> {
        if settings.gpu_layers.is_some() {
            let remedy = "all layers run on --device: leave it out";
            return Err(setting("gpu-layers", "given", remedy));
        }
        let types = &settings.kv_types;
        let mut all = types.layers.iter().map(|(_, dtype)| *dtype).chain([types.rest]);
        if !all.all(|dtype| matches!(dtype, KvDtype::F16 | KvDtype::Fp8Head | KvDtype::Q8_0 | KvDtype::Nvfp4)) {
            let remedy = "keys and values on a GPU are f16, fp8, q8_0 or nvfp4: use one of them";
            return Err(setting("kv-type", types, remedy));
        }
        if settings.kv_residual > 0 {
            let remedy =
                "the latest tokens on a GPU are as the others: leave it out, or keep layers f16 with --kv-type-layers";
            return Err(setting("kv-residual", settings.kv_residual, remedy));
        }
        if let Some(streaming) = settings.streaming {
            return Err(setting(
                "stream-window",
                streaming.window,
                "sequences on a GPU have --max-seq-len: leave it out",
            ));
        }
        if let Some(low) = settings.kv_low {
            return Err(setting(
                "kv-low",
                low,
                "requests on a GPU share one pool: use --kv-type fp8, q8_0 or nvfp4, or leave it out",
            ));
        }
        Ok(())
    }

    fn prepare(mut arch: Arch) -> Result<Arch, EngineError> {
        for layer in &arch.layers {
            let head_dim = layer.kv.shape.head_dim;
            if ![64, 128, 256].contains(&head_dim) {
                let what = format!("heads of {head_dim} elements on a GPU");
                return Err(unsupported(what, "the attention kernels take 64, 128 and 256"));
            }
        }
        for rope in &arch.ropes {
            if !(rope.dims / 2).is_multiple_of(2) {
                let what = format!("{} rotated elements of a head on a GPU", rope.dims);
                return Err(unsupported(what, "they must be a multiple of 4"));
            }
        }
        let widths = arch.weights.layers.iter().flat_map(|layer| [layer.hidden, layer.q_rows, layer.ffn]);
        if let Some(width) = widths.into_iter().find(|width| !width.is_multiple_of(8)) {
            return Err(unsupported(format!("rows of {width} elements on a GPU"), "they must be a multiple of 8"));
        }
        arch.weights = match arch.gpu_weights {
            GpuWeights::File => weights::in_tiles(arch.weights),
            GpuWeights::Bf16 => arch.weights.in_bf16(),
        };
        if arch.ropes.iter().any(|rope| rope.factors.is_some()) {
            // Kernels read them from memory.
            let pairs = |rope: &Rope| rope.factors.as_ref().map_or(1, |factors| factors.len());
            arch.weights.ropes = arch.ropes.iter().map(|rope| RopeDims { pairs: pairs(rope) }).collect();
        }
        arch.with_wide_scales()
    }

    fn with_libraries(mut ops: Gpu, arch: &mut Arch, settings: &Settings) -> Gpu {
        ops.library = Library::open(&ops.backend, arch, settings);
        arch.library = ops.library.workspace();
        ops
    }

    fn libraries(ops: &Gpu) -> Option<(String, String)> {
        Some((ops.library.version(), ops.library.to_string()))
    }

    fn scratch(arch: &Arch, tokens: usize, picks: usize) -> Result<Bytes, SizeError> {
        scratch::bytes(arch, tokens, picks)
    }
}

#[cfg(test)]
mod tests {
    use engine_kernels::KvFormat;
    use memtier::{
        Tokens, f16,
        plan::{kv::KvLayer, kv_layout::BlockLayout},
    };
    use memtier_cuda::kernels::PagedKv;

    use super::*;
    use crate::kv_types::dtype_of;

    #[test]
    fn kernels_and_planner_agree_on_the_bytes_of_a_layer() {
        for format in [KvFormat::F16, KvFormat::Fp8, KvFormat::Q8_0, KvFormat::Nvfp4] {
            let dtype = match dtype_of(format) {
                KvDtype::Fp8Head => KvDtype::Fp8Head32,
                dtype => dtype,
            };
            for (kv_heads, head_dim, block_tokens) in [(3, 64, 16), (1, 128, 32), (8, 128, 64), (1, 256, 32)] {
                let kv = PagedKv { layer_base: 0, kv_heads, head_dim, packed: run::packed(format) };
                let units = kv.block_units::<f16>(block_tokens).unwrap() as u64;
                let layer = KvLayer::heads(kv_heads as u64, head_dim as u64, dtype);
                let layout = BlockLayout::new(&[layer], Tokens::new(block_tokens as u64)).unwrap();
                assert_eq!(layout.block_bytes(), Bytes::new(2 * units), "{format:?}, {head_dim}");
            }
        }
    }
}
