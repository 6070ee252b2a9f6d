//! row: e
//! error: E0308
//! says: expected `Owned<f32, EnginePersistent>`, found `Owned<f32, ModelResident>`
//! A field that goes with its model in a place that stays.

use memtier::*;
use ui_tests::*;

pub struct Cache {
    pub rope: Owned<f32, EnginePersistent>,
}

pub fn cache(persistent: Owned<f32, EnginePersistent>, resident: Owned<f32, ModelResident>) -> Cache {
    #[cfg(crime)]
    return Cache { rope: resident };
    #[cfg(not(crime))]
    return {
        drop(resident);
        Cache { rope: persistent }
    };
}

pub fn main() {}
