//! row: g
//! error: E0277
//! says: `SwaKv<f32>` blocks must stay unshared
//! A prefix of blocks that will be overwritten.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = serving();
    #[cfg(crime)]
    let ticket = window_ticket(&engine);
    #[cfg(not(crime))]
    let ticket = ticket(&engine);
    let settled = engine.step::<Llama>(&mut stream)?.finish()?.wait()?;
    let _prefix = ticket.written(&settled)?.publish();
    Ok(())
}
