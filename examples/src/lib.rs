//! Short numbered examples of memtier.
