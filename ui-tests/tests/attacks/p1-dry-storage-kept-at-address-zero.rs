//! row: n
//! error: E0308
//! says: expected `Option<DecodeWorkspace>`, found
//! A storage kept from pricing, with fields at address zero: pricing gives layouts, only a carve gives storages.

#![forbid(unsafe_code)]

use memtier::__private::Walk;
use memtier::*;
use ui_tests::*;

pub fn steal(walk: &mut Walk<'_, EnginePersistent>) -> Result<Option<DecodeWorkspace>, SizeError> {
    #[cfg(crime)]
    let stolen: Option<DecodeWorkspace> = walk.nested::<DecodeWorkspace>("work", &DIMS)?;
    #[cfg(not(crime))]
    let stolen = {
        walk.nested::<DecodeWorkspace>("work", &DIMS)?;
        None
    };
    Ok(stolen)
}

pub fn main() {}
