//! row: e
//! error: E0277
//! says: `ModelResident` storage does not survive a model swap
//! Weights where something must stay for ever.

use memtier::*;
use ui_tests::*;

pub fn hold_for_ever<T: Storage<Tier: OutlivesModel>>() {}

pub fn main() {
    #[cfg(crime)]
    hold_for_ever::<LlamaWeights>();
    #[cfg(not(crime))]
    hold_for_ever::<DecodeWorkspace>();
}
