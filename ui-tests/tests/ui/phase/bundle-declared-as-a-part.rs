//! row: q
//! error: E0277
//! says: `Llama` is neither a storage nor another part of a bundle
//! A whole bundle declared like one of its parts.

use memtier::*;
use ui_tests::*;

pub fn main() {
    let mut engine = loading();
    #[cfg(crime)]
    let _lines = engine.declare::<Llama>(spec());
    #[cfg(not(crime))]
    let _lines = engine.declare_bundle::<Llama>(spec());
}
