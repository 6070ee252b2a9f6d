//! Row u: a run-time format whose size is another one at every call, and that equals everything. It is asked once: what was
//! priced is what is carved, and spans are as long as that.

#![forbid(unsafe_code)]

use memtier::*;
use std::sync::atomic::{AtomicU64, Ordering};
use ui_tests::*;

static CALLS: AtomicU64 = AtomicU64::new(0);

#[derive(Clone, Copy, Debug)]
pub struct Liar;

impl PartialEq for Liar {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl PackedFormat for Liar {
    fn bytes(&self, _: &[usize]) -> Option<Bytes> {
        Some(Bytes::new(1000 * (CALLS.fetch_add(1, Ordering::Relaxed) + 1)))
    }
}

#[tier(EnginePersistent, dims = Dims)]
pub struct Held {
    #[shape(vocab, hidden)]
    #[format(Liar)]
    pub first: Packed<Liar>,
    #[shape(hidden)]
    pub second: f32,
}

#[graph_captured]
pub struct Model {
    pub held: Held,
}

pub fn main() -> Result<(), Error> {
    let mut engine = loading();
    let lines = engine.declare_bundle::<Model>(ModelSpec { held: DIMS });
    let stream = engine.declare(STREAM);
    let calls = CALLS.load(Ordering::Relaxed);
    let mut engine = engine.plan(limits::<Host>())?.carve(lines)?;
    assert_eq!(CALLS.load(Ordering::Relaxed), calls, "asked again after it was priced");
    let mut stream = engine.open_stream(stream)?;
    let load = engine.load(&mut stream)?;
    assert_eq!(load.buffers.held.first.len() as u64, 1000 * calls);
    drop(load);
    let (mut engine, kept) = engine.serve::<Model>()?.drain()?.end_model();
    // It says that its format is the same; the size says that it is not.
    assert!(engine.keep(kept.held, &DIMS).is_err());
    Ok(())
}
