//! row: a
//! error: E0521
//! says: borrowed data escapes outside of closure
//! A CPU kernel that keeps the slice it was lent.

use memtier::*;
use std::sync::Mutex;
use ui_tests::*;

pub static KEPT: Mutex<&'static [f32]> = Mutex::new(&[]);

pub fn keep<P: Place<Space = Host>>(on: &Recorder<P>, x: StableSpan<'_, f32, P>) -> Result<(), LaunchError> {
    on.host_op((input::<f32, _, _>(x),), |(x,)| {
        let Ok(mut kept) = KEPT.lock() else { return Ok(()) };
        #[cfg(crime)]
        (*kept = x);
        #[cfg(not(crime))]
        (*kept = Vec::leak(x.to_vec()));
        Ok(())
    })
}

pub fn main() {}
