//! row: t
//! error: E0308
//! says: expected a tuple with 2 elements, found one with 1 element
//! A CPU kernel that takes fewer arguments than its launch hands over.

use memtier::*;
use ui_tests::*;

pub fn scale<P: Place<Space = Host>>(
    on: &Recorder<P>,
    out: &mut StableSpanMut<'_, f32, P>,
    x: StableSpan<'_, f32, P>,
) -> Result<(), LaunchError> {
    let arguments = (output::<f32, _, _>(out), input::<f32, _, _>(x));
    #[cfg(crime)]
    let launched = on.host_op(arguments, |(out,)| {
        out.fill(2.0);
        Ok(())
    });
    #[cfg(not(crime))]
    let launched = on.host_op(arguments, |(out, _)| {
        out.fill(2.0);
        Ok(())
    });
    launched
}

pub fn main() {}
