//! Compile-fail tests of memtier.
