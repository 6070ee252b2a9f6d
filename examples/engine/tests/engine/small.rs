//! Small models, opened and asked: what several tests begin with.
#![allow(unreachable_pub, reason = "a module of tests has no outside")]

use memtier_engine::{Llm, ModelFile, Row, Sampling, Settings};
use memtier_model::write::TinyModel;

/// A model whose layers see all, and one where all but one slide a window.
pub fn tiny_models() -> [(&'static str, TinyModel); 2] {
    [("llama", TinyModel::llama(5)), ("gemma3", TinyModel::gemma3(5))]
}

/// The same with heads of 32: what types with scales for 32 elements want.
pub fn wide_models() -> [(&'static str, TinyModel); 2] {
    tiny_models().map(|(name, model)| (name, TinyModel { head_dim: 32, ..model }))
}

/// The model on the CPU.
pub fn open(file: &ModelFile, settings: &Settings) -> Llm {
    Llm::open(file, settings, &mut |_| ()).unwrap()
}

/// Tokens that differ from block to block.
pub fn prompt(length: usize, seed: u32) -> Vec<u32> {
    (0..length as u32).map(|at| (at.wrapping_mul(2_654_435_761) ^ seed.wrapping_mul(40_503)) >> 7 & 127).collect()
}

/// Runs until nothing is pending; how many passes that took.
pub fn run(llm: &mut Llm) -> usize {
    let mut passes = 0;
    while llm.step(|_| ()).unwrap() > 0 {
        passes += 1;
    }
    passes
}

/// Ends a request; its prompt and its answer.
pub fn end(llm: &mut Llm, row: Row) -> Vec<u32> {
    let tokens = llm.tokens(row).unwrap().to_vec();
    llm.end(row).unwrap();
    tokens
}

/// What `prompt` is answered with: `length` tokens.
pub fn answer(llm: &mut Llm, prompt: &[u32], length: usize) -> Vec<u32> {
    answer_with(llm, prompt, length, Sampling::GREEDY)
}

/// The same, drawn as `sampling` says.
pub fn answer_with(llm: &mut Llm, prompt: &[u32], length: usize, sampling: Sampling) -> Vec<u32> {
    let row = llm.admit(prompt, length, sampling).unwrap();
    run(llm);
    end(llm, row).split_off(prompt.len())
}
