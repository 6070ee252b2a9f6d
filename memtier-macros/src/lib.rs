//! The attribute macros of memtier.
