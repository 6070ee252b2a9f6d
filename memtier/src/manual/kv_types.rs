//! Keys and values of smaller types, layer by layer; the latest tokens unrounded; sequences that run on.
//!
#![doc = include_str!("kv_types.md")]
