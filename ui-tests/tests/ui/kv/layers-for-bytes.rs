//! row: s
//! error: E0308
//! says: expected `Bytes`, found `Layers`
//! A number of layers as a budget.

use memtier::*;
use ui_tests::*;

pub fn main() {
    #[cfg(crime)]
    let limits = Limits::new(Host::NAME, Layers::new(32));
    #[cfg(not(crime))]
    let limits = Limits::new(Host::NAME, Bytes::mib(32));
    assert_eq!(limits.graphs, 0);
}
