//! The manual: the design, and a guide for each of its readers.

pub mod design;
pub mod engine_author;
pub mod library_author;
pub mod operator;
