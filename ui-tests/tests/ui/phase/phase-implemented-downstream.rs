//! row: p
//! error: E0425
//! says: cannot find type `Token` in crate `memtier`
//! Making a phase out of another one, by implementing its trait: the argument that every phase method takes has no name.

use memtier::*;
use ui_tests::*;

#[graph_captured]
pub struct Own {
    pub work: DecodeWorkspace,
}

#[cfg(crime)]
impl StartsServing<Own> for Serving<Own> {
    fn into_carved(self, _: memtier::Token) -> Planning<Own> {
        unreachable!()
    }
}

pub fn main() {
    let _: Option<Own> = None;
}
