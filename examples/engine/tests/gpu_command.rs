//! The command on a device that is not there, or with kernels that are not: one line, with the value and the remedy. Skipped with a sentence
//! where there is no CUDA device. Needs `--features cuda` and `MEMTIER_KERNELS`.
#![cfg(feature = "cuda")]

mod common;

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use common::{
    gpu::{for_gpu, gpu},
    tiny_file,
};
use memtier_engine::cuda::Gpu;
use memtier_model::write::TinyModel;

/// The command: where cargo built it, or beside the tests, as `cargo xtask gpu` stages both.
fn program() -> PathBuf {
    let built = PathBuf::from(env!("CARGO_BIN_EXE_memtier-engine"));
    if built.exists() { built } else { std::env::current_exe().unwrap().with_file_name("memtier-engine") }
}

/// What a run that must fail says: one line, and no panic.
fn refused(model: &str, device: &str, kernels: &Path) -> String {
    let mut command = Command::new(program());
    command.args(["demo", "--model-file", model, "--device", device, "--threads", "1"]);
    let Output { status, stderr, .. } = command.env("MEMTIER_KERNELS", kernels).output().unwrap();
    let said = String::from_utf8(stderr).unwrap();
    assert!(matches!(status.code(), Some(1 | 2)) && said.trim_end().lines().count() == 1, "{device}: {said}");
    said
}

/// A folder of kernels like `ours`, by links.
#[cfg(unix)]
fn linked(ours: &Path) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(ours).unwrap().map(Result::unwrap) {
        let (from, to) = (entry.path(), folder.path().join(entry.file_name()));
        match from.is_dir() {
            true => {
                fs::create_dir(&to).unwrap();
                for image in fs::read_dir(&from).unwrap().map(|image| image.unwrap()) {
                    std::os::unix::fs::symlink(image.path(), to.join(image.file_name())).unwrap();
                }
            }
            false => drop(fs::copy(&from, &to).unwrap()),
        }
    }
    folder
}

#[cfg(unix)]
#[test]
fn devices_and_kernels_that_are_not_there_are_one_line_with_the_remedy() {
    if gpu(1).is_none() {
        return;
    }
    if !program().exists() {
        return println!("skipped: {} is not there", program().display());
    }
    let model = tiny_file("command", for_gpu(TinyModel::llama(30)));
    let (model, ours) = (model.text(), fs::canonicalize(Gpu::kernels_folder()).unwrap());
    for (device, says) in [
        ("cuda:99", "no CUDA device 99"),
        ("cuda:4294967296", "--device cuda:4294967296: expected cpu, or cuda:"),
        ("cuda:-1", "--device cuda:-1"),
        ("cuda:", "--device cuda:"),
    ] {
        let said = refused(model, device, &ours);
        assert!(said.contains(says), "{device}: {said}");
    }
    let has = |said: &str, words: &[&str]| {
        assert!(words.iter().all(|word| said.contains(word)) && said.contains("MEMTIER_KERNELS"), "{said}");
    };
    has(&refused(model, "cuda:0", Path::new("/nowhere")), &["/nowhere/manifest.txt", "compile-kernels"]);
    // Another crate's, noise, and nothing.
    let folder = linked(&ours);
    let manifest = folder.path().join("manifest.txt");
    let good = fs::read(&manifest).unwrap();
    for bad in [&b"memtier kernels 1\nsources 0000000000000000\n"[..], &[0xff, 0xfe, 0], b""] {
        fs::write(&manifest, bad).unwrap();
        has(&refused(model, "cuda:0", folder.path()), &["manifest.txt", "compile the kernels again"]);
    }
    // Its first line alone is there, as after a full disk: no image is named.
    let lines: Vec<_> = good.split_inclusive(|byte| *byte == b'\n').take(2).collect();
    fs::write(&manifest, lines.concat()).unwrap();
    has(&refused(model, "cuda:0", folder.path()), &["the manifest does not name it", "compile the kernels again"]);
    fs::write(&manifest, &good).unwrap();
    // Of every target one image is half of what it was, and then none.
    let images: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
    let images = images.iter().filter(|path| path.is_dir()).flat_map(|path| fs::read_dir(path).unwrap());
    let images: Vec<_> = images.map(|image| image.unwrap().path()).collect();
    let gates: Vec<_> = images.iter().filter(|path| path.file_stem().is_some_and(|stem| stem == "gate")).collect();
    assert!(!gates.is_empty());
    for gate in &gates {
        let whole = fs::read(gate).unwrap();
        fs::remove_file(gate).unwrap();
        fs::write(gate, &whole[..whole.len() / 2]).unwrap();
    }
    has(&refused(model, "cuda:0", folder.path()), &["gate.", "and the manifest says", "compile the kernels again"]);
    gates.iter().for_each(|gate| fs::remove_file(gate).unwrap());
    has(&refused(model, "cuda:0", folder.path()), &["gate.", "is no compiled kernel", "compile the kernels again"]);
}
