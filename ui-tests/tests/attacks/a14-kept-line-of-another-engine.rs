//! Rows q, b: a kept part of one engine as a line of another one, on another device.

#![forbid(unsafe_code)]

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (one, _stream) = serving();
    let (mut one, kept) = one.drain()?.end_model();
    let mut two = loading();
    // Kept in the wrong engine: its device is not that one's.
    let failed = two.keep(kept.kv, &POOL).err().ok_or("kept on another device")?;
    assert_eq!(failed.cause, KeepCause::ForeignDevice);
    // Kept in the right one, and carved in the wrong one.
    let work = one.keep(kept.work, &DIMS)?;
    let lines = LlamaLines { work, ..declare::<Host>(&mut two) };
    let failed = two.plan(limits::<Host>())?.carve(lines).err().ok_or("carved a line of another engine")?;
    assert!(matches!(failed.error, CarveError::ForeignLine { .. }));
    // Nothing was carved: both engines go on.
    let lines = failed.lines;
    drop((lines, failed.engine, failed.error));
    Ok(())
}
