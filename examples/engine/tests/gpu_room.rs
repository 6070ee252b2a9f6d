//! Plans that a GPU has no room for. A program of its own: other tests would take and give back memory of the same device. Skipped with a
//! sentence where there is no CUDA device. Needs `--features cuda` and `MEMTIER_KERNELS`.
#![cfg(feature = "cuda")]

mod common;

use common::{
    gpu::{for_gpu, gpu, on_gpu},
    tiny_file,
};
use memtier::{Bytes, Cuda, Device, Engine, Limits, Space, Stream, StreamSpec};
use memtier_engine::{EngineError, Llm, ModelFile, Settings};
use memtier_model::write::TinyModel;

#[test]
fn a_plan_that_the_device_has_no_room_for_takes_nothing() {
    let Some(gpu) = gpu(2) else { return };
    let settings = Settings {
        budget: Bytes::gib(1),
        max_batch: 6,
        max_seq_len: 512,
        prefill_chunk: 32,
        threads: 2,
        // Where it is installed it takes memory of its own before the plan is looked at, and keeps some of it.
        cublaslt: false,
        ..Settings::default()
    };
    let file = tiny_file("no_room", TinyModel { heads: 6, ..for_gpu(TinyModel::llama(30)) });
    let file = ModelFile::open(file.path()).unwrap();
    // A budget that the device does not have, and a plan that needs it: some 300 GB of keys and values.
    let much = Settings { budget: Bytes::gib(1 << 12), max_batch: 128, max_seq_len: 1 << 22, ..settings.clone() };
    let before = gpu.backend().memory().unwrap();
    let refused = [
        Llm::<Cuda>::open_on(gpu.clone(), &file, &much, None, &mut |_| ()).err().unwrap(),
        Llm::<Cuda>::plan_on(&gpu, &file, &much).err().unwrap(),
    ];
    for refused in refused {
        let EngineError::DeviceFull { wanted, free } = refused else { panic!("{refused}") };
        assert!(free == before.free && wanted > before.total, "{wanted}, {free}: {before:?}");
        let says = refused.to_string();
        assert!(
            says.contains(&format!("--budget {}MiB", free.in_mib())) && says.contains(&wanted.to_string()),
            "{says}"
        );
    }
    assert_eq!(gpu.backend().memory().unwrap(), before, "nothing was taken");

    // Nor has a swap room where somebody has taken all but what the first model has.
    let deep = tiny_file("no_room-deep", TinyModel { layers: 24, ..for_gpu(TinyModel::llama(33)) });
    let deep = ModelFile::open(deep.path()).unwrap();
    let llm = on_gpu(&gpu, &file, &settings);
    let free = gpu.backend().memory().unwrap().free;
    let mut other = Engine::open(&Device::new(gpu.backend().clone(), free));
    let scratch = Bytes::mib((free.in_mib() - 4) / 2 * 2);
    let _line = other.declare::<Stream<Cuda>>(StreamSpec { scratch });
    let other = other.plan(Limits::new(Cuda::NAME, free)).unwrap();
    let left = gpu.backend().memory().unwrap().free;
    assert!(left < Bytes::mib(16), "{left}");
    let failed = llm.swap(&deep, &mut |_| ()).err().unwrap();
    let EngineError::DeviceFull { wanted, free } = failed.error else { panic!("{failed}") };
    assert!(free > left && wanted > free, "{wanted}, {free}: what the first model had is there again");
    drop(other);
}
