//! row: o
//! error: E0599
//! says: no method named `clone` found for struct `Ticket<K>`
//! Two requests with the same blocks.

use memtier::*;
use ui_tests::*;

pub fn main() {
    let (engine, _stream) = serving();
    let ticket = ticket(&engine);
    #[cfg(crime)]
    let _twin: Ticket<GlobalKv<f32>> = ticket.clone();
    assert_eq!(ticket.blocks(), Blocks::new(1));
}
