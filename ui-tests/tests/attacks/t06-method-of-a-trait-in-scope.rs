//! A trait in scope with methods that are called as what generated code calls, on a receiver that the compiler looks at first.

#![forbid(unsafe_code)]

use memtier::*;
use ui_tests::*;

/// For every type: answers before a method of its own with `&mut self` would.
pub trait BeforeWriting: Sized {
    fn span_mut<T, R>(&self, _: T) -> R {
        panic!("asked for a write view")
    }
    fn view_mut<T, R>(&self, _: T) -> R {
        panic!("asked for write views")
    }
    fn as_mut<R>(&self) -> Asked<R> {
        panic!("asked for what is optional")
    }
}
impl<T> BeforeWriting for T {}

/// What an optional field would be asked for.
pub struct Asked<R>(R);
impl<R> Asked<R> {
    pub fn map<T, U>(self, _: impl FnOnce(&mut T) -> U) -> Option<U> {
        panic!("asked for what is optional")
    }
}

macro_rules! before_everything { ($($name:ident)*) => {
    /// For every type: answers before a method of its own with `&self` or `&mut self` would, and before one that is there for some types only.
    pub trait BeforeEverything: Sized {
        $(fn $name<T, R>(self, _: T) -> R { panic!(concat!("asked for `", stringify!($name), "`")) })*
    }
    impl<T> BeforeEverything for T {}
} }
before_everything! { field packed nested nested_mut array array_mut present done owned line part part_of load_part load_part_of }

#[tier(EnginePersistent, dims = Dims)]
pub struct Inner {
    #[shape(hidden)]
    pub data: f32,
}

#[tier(EnginePersistent, dims = Dims)]
pub struct Outer {
    #[shape(hidden)]
    pub data: f32,
    #[shape(hidden)]
    #[when(layers > 0)]
    pub maybe: f32,
    pub one: Inner,
    #[when(layers > 0)]
    pub other: Inner,
    pub more: [Inner; layers],
    #[when(layers > 0)]
    pub most: [Inner; layers],
}

#[graph_captured]
pub struct Model {
    pub outer: Outer,
    pub inner: Inner,
}

pub fn main() -> Result<(), Error> {
    let mut engine = loading();
    let lines = engine.declare_bundle::<Model>(ModelSpec { outer: DIMS, inner: DIMS });
    let stream = engine.declare(STREAM);
    let mut engine = engine.plan(limits::<Host>())?.carve(lines)?;
    let mut stream = engine.open_stream(stream)?;
    let graph = engine.record::<Model, LaunchError, _>(&mut stream, |step| {
        step.on.copy(&mut step.buffers.outer.data, step.buffers.outer.one.data.read())
    })?;
    let mut engine = engine.serve::<Model>()?;
    let mut step = engine.step::<Model>(&mut stream)?;
    step.on.write(&mut step.buffers.outer.one.data, &[2.0; 8])?;
    step.replay(graph)?;
    let mut copied = [0.0; 8];
    step.on.read(step.buffers.outer.data.read(), &mut copied)?;
    assert_eq!(copied, [2.0; 8]);
    assert_eq!(step.buffers.outer.most.map(|most| most.len()), Some(DIMS.layers));
    Ok(())
}
