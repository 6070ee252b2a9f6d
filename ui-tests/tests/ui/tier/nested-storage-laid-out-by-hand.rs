//! row: e
//! error: E0277
//! says: `ModelResident` storage inside `EnginePersistent` storage
//! The same through what the macros use.

use memtier::__private::Walk;
use memtier::*;
use ui_tests::*;

pub fn lay_out(walk: &mut Walk<'_, EnginePersistent>, resident: &mut Walk<'_, ModelResident>) -> Result<(), SizeError> {
    #[cfg(crime)]
    let _layer = walk.nested::<LayerWeights>("layer", &DIMS)?;
    #[cfg(not(crime))]
    let _layer = resident.nested::<LayerWeights>("layer", &DIMS)?;
    let (_, _) = (walk, resident);
    Ok(())
}

pub fn main() {}
