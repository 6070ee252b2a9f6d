//! row: g
//! error: E0277
//! says: `SwaKv<f32>` blocks must stay unshared
//! The same through the request.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (engine, _stream) = serving();
    #[cfg(crime)]
    let ticket = window_ticket(&engine);
    #[cfg(not(crime))]
    let ticket = ticket(&engine);
    assert!(ticket.share(0).is_some());
    Ok(())
}
