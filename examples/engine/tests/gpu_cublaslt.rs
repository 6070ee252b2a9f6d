//! Prompts by cuBLASLt beside prompts by memtier's kernels. Where the library is not installed, that it is not missed; where it refuses, that
//! memtier's kernels do what it leaves. Skipped with a sentence where there is no CUDA device. Needs `--features cuda` and, for a device,
//! `MEMTIER_KERNELS`; `MEMTIER_CUBLASLT` names the library's file.
#![cfg(feature = "cuda")]

mod common;
#[path = "../../../memtier-cuda/tests/support/stand_in.rs"]
mod stand_in;

use std::process::Command;

use common::{
    Temporary,
    gpu::{for_gpu, gpu, is_emulated, on_gpu},
    logits, relative, tiny_file,
};
use memtier::{Bytes, Cuda, plan::Tier};
use memtier_engine::{Llm, ModelFile, Sampling, Settings, cuda::Gpu};
use memtier_model::write::TinyModel;
use stand_in::refusing;

fn settings() -> Settings {
    Settings {
        budget: Bytes::gib(2),
        // Logits of so many tokens are looked at in one pass.
        max_batch: 210,
        max_seq_len: 512,
        prefill_chunk: 256,
        prefix_cache: false,
        threads: 2,
        ..Settings::default()
    }
}

fn models() -> [(&'static str, Temporary); 2] {
    let gemma = TinyModel { window: 24, layers: 2, ..for_gpu(TinyModel::gemma3(31)) };
    let llama = TinyModel { heads: 6, layers: 2, ..for_gpu(TinyModel::llama(30)) };
    [("llama", tiny_file("cublaslt-llama", llama)), ("gemma3", tiny_file("cublaslt-gemma3", gemma))]
}

fn prompt(length: u32) -> Vec<u32> {
    (0..length).map(|i| 3 + (i * i * 7 + i * 19) % 200).collect()
}

/// What the plan has for the workspace.
fn workspace(llm: &Llm<Cuda>) -> u64 {
    let lines = llm.memory_plan().lines().iter();
    lines.filter(|line| line.tier == Tier::EnginePersistent).map(|line| line.granted.count()).sum()
}

/// Asserts that the workspace has so many bytes more. Lines are whole pages, so only whole pages are seen to the byte.
fn assert_works_in(bytes: u64, llm: &Llm<Cuda>, ours: &Llm<Cuda>) {
    const PAGE: u64 = 4096;
    let (more, pages) = (workspace(llm) - workspace(ours), bytes.next_multiple_of(PAGE));
    let exact = more == pages || !bytes.is_multiple_of(PAGE) && more + PAGE == pages;
    assert!(exact, "the library's {bytes} bytes are in the plan's line, which has {more} more");
}

/// Products of the library in passes of up to `pass` of these tokens, each from the first on, of a model of two layers: queries to
/// values, gate and up, and both ways back. The model is small: from 129 rows on it pays.
fn products(tokens: usize, pass: usize) -> usize {
    let passes = (0..tokens).step_by(pass).map(|first| pass.min(tokens - first));
    passes.map(|rows| if rows < 129 { 0 } else { 2 * 4 }).sum()
}

#[test]
fn prompts_by_the_library_are_those_by_our_kernels() {
    let Some(gpu) = gpu(2) else { return };
    for (name, path) in models() {
        let file = ModelFile::open(path.path()).unwrap();
        let mut ours = on_gpu(&gpu, &file, &Settings { cublaslt: false, ..settings() });
        assert!(ours.libraries().unwrap().contains("--no-cublaslt"));
        let mut llm = on_gpu(&gpu, &file, &settings());
        let said = llm.libraries().unwrap();
        println!("{name}: {said}");
        // Passes for it, and of fewer rows.
        let lengths: &[u32] = if is_emulated(&gpu) { &[200] } else { &[65, 128, 129, 192, 230, 500] };
        let mut launched = 0;
        if said.contains("by cuBLASLt") {
            let bytes = said.split_once("workspace ").and_then(|(_, rest)| rest.split_once([';', ' ']));
            let bytes: u64 = bytes.unwrap().0.parse().unwrap();
            assert_works_in(bytes.max(1), &llm, &ours);
            // The first prompts of a process, so that what is loaded then is counted.
            let before = llm.library_allocations().unwrap();
            for length in lengths {
                let row = llm.admit(&prompt(*length), 3, Sampling::GREEDY).unwrap();
                while llm.step(|_| ()).unwrap() > 0 {}
                llm.end(row).unwrap();
                launched += products(*length as usize, 256);
                assert!(
                    llm.libraries().unwrap().ends_with(&format!("; {launched} products so far")),
                    "{name}, {length} tokens"
                );
            }
            match (before, llm.library_allocations().unwrap()) {
                (Ok(before), Ok(after)) => assert_eq!(after - before, 0, "{name}: somebody allocated while serving"),
                (_, Err(why)) | (Err(why), _) => println!("skipped: {why}"),
            }
        } else {
            assert!(
                std::env::var_os("MEMTIER_REQUIRE_CUBLASLT").is_none(),
                "MEMTIER_REQUIRE_CUBLASLT is set, but {said}"
            );
            assert!(said.contains("could not be opened") && said.contains("nvidia-cublas"), "{said}");
            assert_eq!(workspace(&llm), workspace(&ours));
        }
        for length in lengths {
            let tokens = prompt(*length);
            let (by_library, by_ours) = (logits(&mut llm, &tokens), logits(&mut ours, &tokens));
            // Small sums are often added in one order by both, so they may be the same bits.
            let far = relative(&by_library, &by_ours);
            println!("{name}, {length} tokens: logits {far:.5} of their size apart");
            assert!(far < 0.015, "{name}, {length} tokens: {far}");
            assert!(logits(&mut llm, &tokens) == by_library, "{name}: the same prompt gave other bits");
            launched += 2 * products(*length as usize, 210);
        }
        if said.contains("by cuBLASLt") {
            let said = llm.libraries().unwrap();
            assert!(said.ends_with(&format!("; {launched} products so far")), "{name}: {said}");
        }
        assert_eq!(llm.memory_report().unplanned_acquisitions(), 0);
    }
}

/// What says to the second process that it is the one.
const REFUSED: &str = "MEMTIER_CUBLASLT_REFUSES";

/// In a process of its own, by whose environment the engine finds the library.
#[test]
fn what_the_library_refuses_is_multiplied_by_our_kernels() {
    if std::env::var_os(REFUSED).is_none() {
        if gpu(2).is_none() {
            return;
        }
        let Some(library) = refusing() else { return };
        let mut again = Command::new(std::env::current_exe().unwrap());
        again.args(["--exact", "what_the_library_refuses_is_multiplied_by_our_kernels", "--nocapture"]);
        let output = again.env(REFUSED, "1").env("MEMTIER_CUBLASLT", library.path()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success() && said.contains("1 passed"),
            "{said}{}",
            String::from_utf8_lossy(&output.stderr)
        );
        return;
    }
    let gpu = gpu(2).unwrap();
    let [(_, path), _] = models();
    let file = ModelFile::open(path.path()).unwrap();
    refused_launches(&gpu, &file);
    refused_recordings(&gpu, &file);
}

/// What the engine says when the library did nothing, and refused so many products.
fn assert_refused(llm: &Llm<Cuda>, left: usize) {
    let said = llm.libraries().unwrap();
    let expected = format!("; 0 products so far; it refused {left}, which memtier's kernels did");
    assert!(said.ends_with(&expected), "{said}, not{expected}");
}

fn refused_launches(gpu: &Gpu, file: &ModelFile) {
    let mut ours = on_gpu(gpu, file, &Settings { cublaslt: false, ..settings() });
    let mut llm = on_gpu(gpu, file, &settings());
    let said = llm.libraries().unwrap();
    println!("{said}");
    assert!(said.contains("by cuBLASLt 13.0.0") && said.ends_with("; 0 products so far"), "{said}");
    assert_works_in(1 << 20, &llm, &ours);
    let mut left = 0;
    for length in [129, 200] {
        let tokens = prompt(length);
        assert!(logits(&mut llm, &tokens) == logits(&mut ours, &tokens), "{length} tokens");
        left += products(length as usize, 210);
        assert_refused(&llm, left);
    }
}

/// Decode passes of 129 and 130 requests are recorded while the engine loads, and have products for the library. It was tried for 129 rows, and takes 130
/// when it is asked, but refuses both while their graph is made: each recording is made once more.
fn refused_recordings(gpu: &Gpu, file: &ModelFile) {
    const MOST: usize = 130;
    let settings = Settings { max_batch: MOST, graphs: MOST, max_seq_len: 64, ..settings() };
    let mut ours = on_gpu(gpu, file, &Settings { cublaslt: false, ..settings.clone() });
    let mut llm = on_gpu(gpu, file, &settings);
    let each = products(129, MOST);
    assert_refused(&llm, 2 * each);
    // Recorded anew while it serves: it is known now.
    llm.forget_graphs().unwrap();
    let mut answers = Vec::new();
    for llm in [&mut llm, &mut ours] {
        let before = llm.graph_stats();
        assert_eq!(before.builds, MOST as u64);
        let rows: Vec<_> = (0..MOST).map(|i| llm.admit(&[3 + i as u32], 3, Sampling::GREEDY).unwrap()).collect();
        let mut answer = Vec::new();
        while llm.step(|token| answer.push((token.row, token.token))).unwrap() > 0 {}
        rows.into_iter().for_each(|row| llm.end(row).unwrap());
        // The first pass of all is one of prompts of one token: a decode pass like the others.
        assert!(llm.graph_stats().reuses > before.reuses, "{:?}", llm.graph_stats());
        assert_eq!(llm.memory_report().unplanned_acquisitions(), 0);
        answers.push(answer);
    }
    assert_eq!(answers[0].len(), 3 * MOST);
    assert!(answers[0] == answers[1]);
    assert_refused(&llm, 3 * each);
}

#[test]
fn who_wants_the_same_bits_beside_any_others_gets_no_library() {
    let Some(gpu) = gpu(2) else { return };
    let [(_, path), _] = models();
    let file = ModelFile::open(path.path()).unwrap();
    let invariant = on_gpu(&gpu, &file, &Settings { batch_invariant: true, ..settings() });
    assert!(invariant.libraries().unwrap().contains("--batch-invariant"));
    let few = on_gpu(&gpu, &file, &Settings { prefill_chunk: 32, max_batch: 2, ..settings() });
    assert!(few.libraries().unwrap().contains("at most 32 tokens"));
}
