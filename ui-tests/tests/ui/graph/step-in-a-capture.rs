//! row: h
//! error: E0499
//! says: cannot borrow `engine` as mutable more than once
//! A forward pass that runs in the middle of recording one.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = serving();
    let (_engine, mut another) = serving();
    engine.record(&mut stream, |step: &mut Step<'_, Llama, _>| -> Result<(), Error> {
        #[cfg(crime)]
        let step: &mut Step<'_, Llama, Eager<Host>> = &mut engine.step(&mut another)?;
        Ok(forward(step)?)
    })?;
    let _ = &mut another;
    Ok(())
}
