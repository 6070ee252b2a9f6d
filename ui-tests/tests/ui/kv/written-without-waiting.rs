//! row: r
//! error: E0308
//! says: expected `&Settled`, found `&Fence`
//! A fence that nobody waited for, as a proof.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = serving();
    let ticket = ticket(&engine);
    let fence = engine.step::<Llama>(&mut stream)?.finish()?;
    #[cfg(crime)]
    let _written = ticket.written(&fence)?;
    #[cfg(not(crime))]
    let _written = ticket.written(&fence.wait()?)?;
    Ok(())
}
