//! row: r
//! error: E0308
//! says: expected `&Settled`, found `&Fence`
//! Freeing blocks whose launches may be in flight.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = serving();
    let ticket = ticket(&engine);
    let fence = engine.step::<Llama>(&mut stream)?.finish()?;
    #[cfg(not(crime))]
    let fence = fence.wait()?;
    ticket.retire(&fence)?;
    Ok(())
}
