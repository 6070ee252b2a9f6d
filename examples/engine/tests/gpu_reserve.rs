//! The engine's plan against what the driver says is in use, over two starts, each a process of its own; and what others than the engine
//! allocate while it serves. Skipped with a sentence where there is no CUDA device.
#![cfg(feature = "cuda")]

mod common;

use std::{path::Path, process::Command};

use common::{
    gpu::{for_gpu, gpu, on_gpu},
    tiny_file,
};
use memtier::{Bytes, Cuda};
use memtier_engine::{Llm, ModelFile, Sampling, Settings};
use memtier_model::write::TinyModel;

const CHILD: &str = "MEMTIER_RESERVE_CHILD";

/// One start with six graphs, served for a while.
fn start(folder: &Path) {
    let gpu = gpu(2).unwrap();
    let file = ModelFile::open(folder.join("model.gguf")).unwrap();
    let settings = Settings {
        budget: Bytes::gib(4),
        max_batch: 6,
        max_seq_len: 512,
        prefill_chunk: 96,
        graphs: 6,
        threads: 2,
        reserve_file: Some(folder.join("reserve")),
        ..Settings::default()
    };
    let mut llm = on_gpu(&gpu, &file, &settings);
    let serve = |llm: &mut Llm<Cuda>| {
        let rows: Vec<_> = (1..=6).map(|seed| llm.admit(&[seed, 2, 3, 4, 5], 40, Sampling::GREEDY).unwrap()).collect();
        while llm.step(|_| ()).unwrap() > 0 {}
        rows.into_iter().for_each(|row| llm.end(row).unwrap());
    };
    serve(&mut llm);
    let reserve = llm.measured_start().unwrap().unwrap();
    let before = llm.library_allocations().unwrap();
    serve(&mut llm);
    match (before, llm.library_allocations().unwrap()) {
        (Ok(before), Ok(after)) => {
            assert_eq!(after - before, 0, "somebody allocated while serving");
            println!("start: allocations while serving: library 0");
        }
        (_, Err(why)) | (Err(why), _) => println!("skipped: {why}"),
    }
    let report = llm.memory_report();
    assert_eq!(report.unplanned_acquisitions(), 0);
    reserve.to_string().lines().for_each(|line| println!("start: {line}"));
    let Some(planned) = reserve.planned else { return };
    // The context, the remembered reserve and the plan's memory are all there is.
    let named = reserve.context.count() + planned.count() + reserve.ours.count();
    let apart = named.abs_diff(reserve.used.count()) as f64 / reserve.used.count() as f64;
    assert!(apart <= 0.005, "{apart}: {reserve}");
    assert!(!reserve.is_apart(), "the plan needs a correction: {reserve}");
    println!("start: the remembered reserve holds");
}

#[test]
fn a_second_start_plans_what_the_driver_says_is_in_use() {
    if let Some(folder) = std::env::var_os(CHILD) {
        return start(folder.as_ref());
    }
    if gpu(2).is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let model = tiny_file("reserve", TinyModel { heads: 6, ..for_gpu(TinyModel::llama(30)) });
    std::fs::copy(model.path(), folder.join("model.gguf")).unwrap();
    let mut said = Vec::new();
    for _ in 0..2 {
        let name = "a_second_start_plans_what_the_driver_says_is_in_use";
        let mut child = Command::new(std::env::current_exe().unwrap());
        let output = child.args([name, "--exact", "--nocapture"]).env(CHILD, folder).output().unwrap();
        let out = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{out}\n{}", String::from_utf8_lossy(&output.stderr));
        out.lines().filter(|line| line.starts_with("start: ")).for_each(|line| println!("{line}"));
        said.push(out);
    }
    assert!(!said[0].contains("holds") && said[1].contains("the remembered reserve holds"), "{said:?}");
}
