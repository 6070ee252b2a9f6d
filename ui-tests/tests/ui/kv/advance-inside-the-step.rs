//! row: r
//! error: E0308
//! says: expected `&Fence`, found `&Step<'_, Llama, Eager<Host>>`
//! Saying that tokens are written while the step that writes them is open.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = serving();
    let mut ticket = ticket(&engine);
    let step: Step<'_, Llama, Eager<Host>> = engine.step(&mut stream)?;
    #[cfg(crime)]
    ticket.advance(Tokens::ZERO, &step)?;
    #[cfg(not(crime))]
    ticket.advance(Tokens::ZERO, &step.finish()?)?;
    Ok(())
}
