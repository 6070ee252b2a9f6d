//! row: b
//! error: E0597
//! says: `engine` does not live long enough
//! A span that a thread keeps when its model is gone.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = serving();
    let step = engine.step(&mut stream)?;
    let job = move || step.on.read(step.buffers.weights.embed, &mut [0.0; 8]);
    #[cfg(crime)]
    std::thread::spawn(job);
    #[cfg(not(crime))]
    std::thread::scope(|scope| scope.spawn(job).join().unwrap())?;
    Ok(())
}
