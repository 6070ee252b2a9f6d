//! row: m
//! error: E0499
//! says: cannot borrow `work.hidden` as mutable more than once
//! Two write views of rows that may be the same.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = serving();
    let mut step = engine.step(&mut stream)?;
    let LlamaView { work, .. } = &mut step.buffers;
    #[cfg(crime)]
    let (mut one, two) = (work.hidden.range(0..16).ok_or("no rows")?, work.hidden.range(8..24).ok_or("no rows")?);
    #[cfg(not(crime))]
    let (mut one, two) = work.hidden.reborrow().split_at(16).ok_or("no rows")?;
    host::square(step.on, &mut one, &two)?;
    Ok(())
}
