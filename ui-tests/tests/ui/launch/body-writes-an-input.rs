//! row: t
//! error: E0596
//! says: cannot borrow
//! A CPU kernel that writes what its launch declares as read.

use memtier::*;
use ui_tests::*;

pub fn zero<P: Place<Space = Host>>(on: &Recorder<P>, x: &mut StableSpanMut<'_, f32, P>) -> Result<(), LaunchError> {
    #[cfg(crime)]
    let arguments = (input::<f32, _, _>(&*x),);
    #[cfg(not(crime))]
    let arguments = (output::<f32, _, _>(x),);
    on.host_op(arguments, |(x,)| {
        x.fill(0.0);
        Ok(())
    })
}

pub fn main() {}
