//! Header-only readers of model files (GGUF) for the memtier planner and engines.
