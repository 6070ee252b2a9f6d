//! row: n
//! error: E0133
//! says: call to unsafe function `release` is unsafe
//! Releasing the engine's arena through another backend object, under a live span: releasing is unsafe.

#![forbid(unsafe_code)]

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = serving();
    let mut step = engine.step(&mut stream)?;
    let addr = step.buffers.work.tokens.read().widen().addr();
    let tag = Tag { name: "attack", phase: PhaseName::Serving, pinned: false };
    #[cfg(crime)]
    HostBackend::new().release(tag, addr, Bytes::kib(64), Bytes::ZERO)?;
    let _ = (addr, tag);
    step.on.write(&mut step.buffers.work.tokens, &[1; 8])?;
    Ok(())
}
