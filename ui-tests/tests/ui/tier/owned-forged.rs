//! row: n
//! error: E0451
//! says: of struct `Owned` are private
//! A field of a storage made from a number.

use memtier::*;
use ui_tests::*;

pub fn forged(field: Owned<f32, EnginePersistent>) -> Owned<f32, EnginePersistent> {
    #[cfg(crime)]
    let field = Owned { addr: 4096, len: 8, ..field };
    field
}

pub fn main() {}
