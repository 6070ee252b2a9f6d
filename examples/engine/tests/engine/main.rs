//! The engine's tests, in one program: each program of its own takes half a minute of optimising and linking the whole engine.
//! Those beside this folder have reasons to be alone: a process's memory limit, a GPU, the command itself.
//! One subject: `cargo test --release -p memtier-engine --test engine soak::`.

#[path = "../common/mod.rs"]
mod common;
#[path = "../reference/mod.rs"]
mod reference;

mod fast_path;
mod kv_low;
mod kv_types;
mod noise;
mod offload;
mod offload_prefix;
mod oracle;
mod policy;
mod prefix;
mod residual;
mod sampling;
mod small;
mod soak;
mod streaming;
mod swap;
mod tiers;
mod tokenizer;
