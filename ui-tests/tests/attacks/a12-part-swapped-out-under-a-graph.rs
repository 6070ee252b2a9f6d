//! row: d
//! error: E0425
//! says: cannot find type `Token` in crate `memtier`
//! The same, to exchange a part that graphs have baked.

#![forbid(unsafe_code)]

use memtier::*;
use std::cell::RefCell;
use ui_tests::*;

thread_local!(static SLOT: RefCell<Option<DecodeWorkspace>> = const { RefCell::new(None) });

#[graph_captured]
pub struct Own {
    pub work: DecodeWorkspace,
}

#[cfg(crime)]
impl StagesUploads<Own> for Serving<Own> {
    fn target(&mut self, token: memtier::Token) -> &mut Own {
        let bundle = OwnsBuffers::<Own>::parts(self, token).bundle;
        SLOT.with_borrow_mut(|slot| slot.as_mut().map(|work| std::mem::swap(&mut bundle.work, work)));
        bundle
    }
}

pub fn main() {
    assert!(SLOT.with_borrow(|slot| slot.is_none()));
}
