//! row: r
//! error: E0308
//! says: expected `&Fence`, found `&Settled`
//! Saying that tokens are written, by something that is no step.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = serving();
    let mut ticket = ticket(&engine);
    let fence = engine.step::<Llama>(&mut stream)?.finish()?;
    let settled = fence.wait()?;
    #[cfg(crime)]
    ticket.advance(Tokens::ZERO, &settled)?;
    #[cfg(not(crime))]
    ticket.advance(Tokens::ZERO, &fence)?;
    let _ = settled;
    Ok(())
}
