//! The reference engine of memtier: reads a GGUF, plans, loads and serves it.

pub mod tokenizer;
