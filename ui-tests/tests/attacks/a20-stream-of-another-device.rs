//! A stream of another engine, on another device: `step` and `record` take none, and it is gone with its engine.

#![forbid(unsafe_code)]

use memtier::*;
use ui_tests::*;

pub fn main() {
    let (mut one, mut its_own) = serving_cuda();
    let (two, mut foreign) = serving_cuda();
    assert_eq!(one.record(&mut foreign, |step| forward_cuda(step)).err(), Some(RecordError::ForeignStream));
    assert_eq!(one.step::<Llama<Cuda>>(&mut foreign).err(), Some(StepError::ForeignStream));
    drop(two);
    assert_eq!(one.step::<Llama<Cuda>>(&mut foreign).err(), Some(StepError::ForeignStream));
    // Exchanged behind the engine's back.
    std::mem::swap(&mut its_own, &mut foreign);
    assert_eq!(one.step::<Llama<Cuda>>(&mut its_own).err(), Some(StepError::ForeignStream));
    assert!(one.step::<Llama<Cuda>>(&mut foreign).is_ok());
}
