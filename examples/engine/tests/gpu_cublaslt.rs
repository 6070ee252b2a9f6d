//! Prompts by cuBLASLt beside prompts by memtier's kernels. Where the library is not installed, that it is not missed. Skipped with a
//! sentence where there is no CUDA device. Needs `--features cuda` and, for a device, `MEMTIER_KERNELS`; `MEMTIER_CUBLASLT` names
//! the library's file.
#![cfg(feature = "cuda")]

mod common;

use common::{
    Temporary,
    gpu::{for_gpu, gpu, is_emulated, on_gpu},
    logits, relative, tiny_file,
};
use memtier::{Bytes, Cuda, plan::Tier};
use memtier_engine::{Llm, ModelFile, Sampling, Settings};
use memtier_model::write::TinyModel;

fn settings() -> Settings {
    Settings {
        budget: Bytes::gib(2),
        // Logits of so many tokens are looked at in one pass.
        max_batch: 210,
        max_seq_len: 512,
        prefill_chunk: 256,
        prefix_cache: false,
        cublaslt: true,
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

#[test]
fn prompts_by_the_library_are_those_by_our_kernels() {
    let Some(gpu) = gpu(2) else { return };
    for (name, path) in models() {
        let file = ModelFile::open(path.path()).unwrap();
        let mut ours = on_gpu(&gpu, &file, &Settings { cublaslt: false, ..settings() });
        assert!(ours.libraries().unwrap().contains("--cublaslt"));
        let mut llm = on_gpu(&gpu, &file, &settings());
        let said = llm.libraries().unwrap();
        println!("{name}: {said}");
        let workspace = |llm: &Llm<Cuda>| {
            let lines = llm.memory_plan().lines().iter();
            let of = lines.filter(|line| line.tier == Tier::EnginePersistent).map(|line| line.granted.count());
            of.sum::<u64>()
        };
        // Passes gated by a launch of their own, on the way, and of few rows.
        let lengths: &[u32] = if is_emulated(&gpu) { &[200] } else { &[65, 100, 191, 192, 230, 500] };
        if said.contains("by cuBLASLt") {
            assert!(workspace(&llm) >= workspace(&ours), "what the library works in is a line of the plan");
            // The first prompts of a process, so that what is loaded then is counted.
            let before = llm.library_allocations().unwrap();
            for length in lengths {
                let row = llm.admit(&prompt(*length), 3, Sampling::GREEDY).unwrap();
                while llm.step(|_| ()).unwrap() > 0 {}
                llm.end(row).unwrap();
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
        let mut differ = false;
        for length in lengths {
            let tokens = prompt(*length);
            let (by_library, by_ours) = (logits(&mut llm, &tokens), logits(&mut ours, &tokens));
            let far = relative(&by_library, &by_ours);
            println!("{name}, {length} tokens: logits {far:.5} of their size apart");
            assert!(far < 0.015, "{name}, {length} tokens: {far}");
            differ |= far > 0.0;
            assert!(logits(&mut llm, &tokens) == by_library, "{name}: the same prompt gave other bits");
        }
        // Not each of them: small sums are often added in one order by both.
        assert!(is_emulated(&gpu) || said.contains("by cuBLASLt") == differ, "{name}: was it the library?");
        assert_eq!(llm.memory_report().unplanned_acquisitions(), 0);
    }
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
