//! row: r
//! error: E0382
//! says: borrow of moved value: `step`
//! A launch behind the fence that stands for the step.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = serving();
    let mut step = engine.step(&mut stream)?;
    #[cfg(crime)]
    let _fence = step.finish()?;
    step.on.write(&mut step.buffers.work.tokens, &[1])?;
    Ok(())
}
