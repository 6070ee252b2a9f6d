//! What macros of others got wrong, one file a case, and what our declarations can say.
//!
//! Everything generated works under these lints.
#![forbid(unsafe_code)]
#![deny(warnings, missing_docs, unused, clippy::all)]

pub mod attributes_in_any_order;
pub mod bundles;
pub mod cfg_on_fields;
pub mod documentation;
pub mod expressions;
pub mod generics;
pub mod macro_rules_callers;
pub mod priced_by_the_same_function;
pub mod private_types;
pub mod raw_identifiers;
pub mod shadowed_preludes;
pub mod spaces;

/// The numbers that most cases use.
#[derive(Clone, Copy, Debug)]
pub struct Dims {
    /// Elements of a row.
    pub hidden: usize,
    /// Rows.
    pub rows: usize,
    /// Items.
    pub layers: usize,
}

/// What most cases run with.
pub const DIMS: Dims = Dims { hidden: 8, rows: 3, layers: 2 };

/// The shapes of the fields, by name.
pub fn shapes(fields: Result<Vec<memtier::FieldInfo>, memtier::SizeError>) -> Vec<(String, Vec<usize>)> {
    fields.unwrap().into_iter().map(|field| (field.name, field.shape)).collect()
}
