//! row: m
//! error: E0597
//! says: `engine` does not live long enough
//! A step that another thread ends, whenever that is.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = serving();
    let mut step = engine.step(&mut stream)?;
    #[cfg(crime)]
    let done = std::thread::spawn(move || step.on.write(&mut step.buffers.work.hidden, &[1.0; 64]));
    #[cfg(crime)]
    done.join().map_err(|_| "the thread panicked")??;
    #[cfg(not(crime))]
    std::thread::scope(|scope| {
        let done = scope.spawn(|| step.on.write(&mut step.buffers.work.hidden, &[1.0; 64]));
        done.join().map_err(|_| "the thread panicked")?.map_err(Error::from)
    })?;
    Ok(())
}
