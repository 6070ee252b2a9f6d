//! Bytes that are recognised again.

use memtier::{Eager, Element, Host, Packed, Recorder, StableSpan, StableSpanMut, Staging, Uploading, bf16, f16};

use crate::model::WeightFormat;

/// A unit of an element with this byte everywhere.
pub trait Filled: Element {
    /// It.
    fn unit(seed: u8) -> Self::Repr;
    /// Whether this is it.
    fn is(unit: &Self::Repr, seed: u8) -> bool;
}
impl Filled for f32 {
    fn unit(seed: u8) -> f32 {
        f32::from(seed)
    }
    fn is(unit: &f32, seed: u8) -> bool {
        *unit == f32::from(seed)
    }
}
impl Filled for f16 {
    fn unit(seed: u8) -> f16 {
        f16::from_f32(f32::from(seed))
    }
    fn is(unit: &f16, seed: u8) -> bool {
        *unit == f16::from_f32(f32::from(seed))
    }
}
impl Filled for bf16 {
    fn unit(seed: u8) -> bf16 {
        bf16::from_f32(f32::from(seed))
    }
    fn is(unit: &bf16, seed: u8) -> bool {
        *unit == bf16::from_f32(f32::from(seed))
    }
}
impl Filled for memtier::Q4_K {
    fn unit(seed: u8) -> Self {
        memtier::Q4_K([seed; 144])
    }
    fn is(unit: &Self, seed: u8) -> bool {
        unit.0 == [seed; 144]
    }
}
impl Filled for Packed<WeightFormat> {
    fn unit(seed: u8) -> u8 {
        seed
    }
    fn is(unit: &u8, seed: u8) -> bool {
        *unit == seed
    }
}

/// Fills a field.
pub fn upload<T: Filled>(
    field: &mut StableSpanMut<'_, T, Uploading<Host>>,
    seed: u8,
    staging: &Staging<'_>,
    on: &Recorder<Uploading<Host>>,
) {
    let mut buffer = staging.take::<T>(field.len()).unwrap();
    buffer.fill(T::unit(seed));
    buffer.upload(on, field).unwrap();
}

/// Checks a field, and counts it.
pub fn holds<T: Filled>(field: StableSpan<'_, T, Eager<Host>>, seed: &mut u8, on: &Recorder<Eager<Host>>) {
    *seed += 1;
    let mut units = vec![T::unit(0); field.len()];
    on.read::<T>(field, &mut units).unwrap();
    assert!(units.iter().all(|unit| T::is(unit, *seed)), "field {seed} was overwritten");
}
