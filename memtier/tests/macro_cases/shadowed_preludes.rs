//! Names of the prelude, of `std` and of our crate, taken by the caller.
#![allow(non_camel_case_types, reason = "names of primitives are taken too")]

use crate::{DIMS, Dims};

/// In its way.
pub struct Option;
/// In its way.
pub struct Result;
/// In its way.
pub struct Vec;
/// In its way.
pub struct Some;
/// In its way.
pub struct None;
/// In its way.
pub struct Ok;
/// In its way.
pub struct Err;
/// In its way.
pub trait Clone {}
/// In its way.
pub trait Copy {}
/// In its way.
pub trait Send {}
/// In its way.
pub trait FnMut {}
/// In its way.
pub trait Storage {}
/// In its way.
pub trait Place {}
/// In its way.
pub struct Host;
/// In its way.
pub struct usize;
/// In its way.
pub struct bool;
/// In its way.
pub struct str;
/// In its way.
pub struct u64;
/// In its way.
pub mod core {}
/// In its way.
pub mod std {}
/// In its way.
pub mod memtier {}

macro_rules! unreachable {
    () => {};
}
macro_rules! assert {
    () => {};
}
unreachable!();
assert!();

/// A storage.
#[::memtier::tier(ModelResident, dims = Dims)]
pub struct W {
    /// An array.
    #[shape(hidden * 2, 3 + 4)]
    #[align(128 * 2)]
    pub x: f32,
    /// Not always there.
    #[shape(hidden)]
    #[when(rows > 1)]
    pub y: f32,
    /// Nested.
    pub inner: [Inner; layers],
}

/// Nested.
#[::memtier::tier(ModelResident, dims = Dims)]
pub struct Inner {
    /// An array.
    #[shape(hidden)]
    pub x: f32,
}

/// A bundle.
#[::memtier::graph_captured]
pub struct Model {
    /// Weights.
    pub w: W,
    /// Others.
    pub inner: Inner,
}

#[test]
fn generated_code_names_things_absolutely() {
    ::core::assert_eq!(W::fields(&DIMS).unwrap().len(), 4);
}
