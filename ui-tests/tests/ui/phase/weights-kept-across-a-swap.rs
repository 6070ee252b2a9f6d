//! row: b
//! error: E0277
//! says: `ModelResident` storage does not survive a model swap
//! Making a line of model-resident storage out of an old one.

use memtier::*;
use ui_tests::*;

pub fn keep<T: Survives>(engine: &mut Engine<Loading>, part: Option<T>, spec: &T::Spec) -> Option<Line<T>> {
    engine.keep(part?, spec).ok()
}

pub fn main() {
    let mut engine = loading();
    #[cfg(crime)]
    keep::<LlamaWeights>(&mut engine, None, &DIMS);
    #[cfg(not(crime))]
    keep::<DecodeWorkspace>(&mut engine, None, &DIMS);
}
