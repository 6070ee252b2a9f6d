//! row: i
//! error: E0277
//! says: nothing can be declared or planned in phase `Serving<Llama>`
//! A second bundle, while requests run.

use memtier::*;
use ui_tests::*;

pub fn main() {
    #[cfg(crime)]
    let (mut engine, _) = serving();
    #[cfg(not(crime))]
    let mut engine = loading();
    let _lines = engine.declare_bundle::<Llama>(spec());
}
