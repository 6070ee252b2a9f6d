//! Row u: dims with interior mutability, other numbers at every look.

#![forbid(unsafe_code)]

use memtier::*;
use std::sync::atomic::{AtomicUsize, Ordering};
use ui_tests::*;

#[derive(Default)]
pub struct Moody(AtomicUsize);

impl Moody {
    fn rows(&self) -> usize {
        self.0.fetch_add(1, Ordering::Relaxed) + 1
    }
}

#[tier(EnginePersistent, dims = Moody)]
pub struct Work {
    #[shape(rows(), 1000)]
    pub a: f32,
    #[shape(rows(), 1000)]
    pub b: f32,
}

#[graph_captured]
pub struct Model {
    pub work: Work,
}

pub fn main() -> Result<(), Error> {
    let mut engine = loading();
    let lines = engine.declare_bundle::<Model>(ModelSpec { work: Moody::default() });
    let stream = engine.declare(STREAM);
    let mut engine = engine.plan(limits::<Host>())?.carve(lines)?;
    let mut stream = engine.open_stream(stream)?;
    let mut step = engine.step::<Model>(&mut stream)?;
    let work = &mut step.buffers.work;
    assert_eq!((work.a.len(), work.b.len()), (1000, 2000));
    step.on.write(&mut work.a, &[1.0; 1000])?;
    step.on.write(&mut work.b, &[2.0; 2000])?;
    let mut back = [0.0; 1000];
    step.on.read(&work.a, &mut back)?;
    assert_eq!(back, [1.0; 1000], "the fields overlap");
    Ok(())
}
