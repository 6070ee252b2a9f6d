//! row: a
//! error: E0597
//! says: `ticket` does not live long enough
//! The address of a block that outlives the request.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = serving();
    let step = engine.step(&mut stream)?;
    let kv = &step.buffers.kv;
    #[cfg(not(crime))]
    let mut ticket = kv.handle().open(Tokens::new(4));
    let block = {
        #[cfg(crime)]
        let mut ticket = kv.handle().open(Tokens::new(4));
        ticket.extend(Tokens::new(1))?;
        kv.block(&ticket, 0)?
    };
    step.on.read(block, &mut [0.0; 8])?;
    Ok(())
}
