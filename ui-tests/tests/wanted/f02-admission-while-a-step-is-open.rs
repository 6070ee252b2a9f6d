//! Another thread admits a request while the decode loop holds a step: the pool has a name.

#![forbid(unsafe_code)]

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = serving();
    let pool = engine.bundle().kv.handle();
    let mut step = engine.step(&mut stream)?;
    let admitted = std::thread::scope(|scope| {
        let admitted = scope.spawn(|| {
            let mut ticket = pool.open(Tokens::new(4));
            ticket.extend(Tokens::new(1)).map(|()| ticket)
        });
        forward(&mut step).map(|()| admitted.join())
    })?;
    let ticket = admitted.map_err(|_| "the thread panicked")??;
    step.buffers.table.set(step.on, 0, &ticket)?;
    forward(&mut step)?;
    Ok(())
}
