//! row: d
//! error: E0200
//! says: the trait `Bundle` requires an `unsafe impl` declaration
//! A bundle whose view is the bundle itself: a step could move a captured part out.

#![forbid(unsafe_code)]

use memtier::__private::{Carver, Check, Cx, Declarer, Gates, Keep, Lend, Prices, Swap};
use memtier::*;
use ui_tests::*;

#[graph_captured]
pub struct Honest {
    pub work: DecodeWorkspace,
}

pub struct One {
    pub work: Option<DecodeWorkspace>,
}

#[cfg(crime)]
impl Bundle for One {
    type Space = Host;
    type Spec = ();
    type Lines = HonestLines;
    type View<'a, P: Place<Space = Host>> = &'a mut One;
    type LoadView<'a, P: Place<Space = Host>> = &'a mut One;
    type Parts<'a> = &'a mut One;
    type Kept = One;
    const NAME: &'static str = "One";

    fn price(_: &(), _: &mut Prices<'_>) -> Result<(), SizeError> {
        Ok(())
    }
    fn declare(_: (), _: &mut Declarer<'_>) -> HonestLines {
        unreachable!()
    }
    fn carve(_: HonestLines, _: &mut Carver<'_>) -> Self {
        unreachable!()
    }
    fn view<P: Place<Space = Host>>(&mut self, _: &Cx<P>) -> &mut One {
        self
    }
    fn load_view<P: Place<Space = Host>>(&mut self, _: &Cx<P>) -> &mut One {
        self
    }
    fn parts(&mut self, _: &Lend) -> &mut One {
        self
    }
    fn kept(self, _: &Swap) -> One {
        self
    }
    fn keep(&self, _: &mut Keep) {}
    fn gates(&self, _: &mut Gates<'_>) {}
}

pub fn main() {
    let _: Option<Honest> = None;
}
