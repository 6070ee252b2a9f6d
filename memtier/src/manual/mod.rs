//! The manual: the design, a guide for each of its readers, and the error index.

pub mod cases;
pub mod cold_tiers;
pub mod compiler_errors;
pub mod cost;
pub mod design;
pub mod engine_author;
pub mod errors;
pub mod first_errors;
pub mod kv_types;
pub mod library_author;
pub mod memory_policy;
pub mod operator;
pub mod requests;
