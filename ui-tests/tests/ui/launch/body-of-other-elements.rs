//! row: t
//! error: E0308
//! says: expected `&[f32]`, found `&[u32]`
//! A CPU kernel over another element than its launch hands over.

use memtier::*;
use ui_tests::*;

pub fn sum(x: &[f32]) -> f32 {
    x.iter().sum()
}

pub fn total<P: Place<Space = Host>>(
    on: &Recorder<P>,
    out: &mut StableSpanMut<'_, f32, P>,
    x: StableSpan<'_, f32, P>,
    ids: StableSpan<'_, u32, P>,
) -> Result<(), LaunchError> {
    #[cfg(crime)]
    let arguments = (output::<f32, _, _>(out), input::<u32, _, _>(ids));
    #[cfg(not(crime))]
    let arguments = (output::<f32, _, _>(out), input::<f32, _, _>(x));
    on.host_op(arguments, |(out, x)| {
        out.fill(sum(x));
        Ok(())
    })
}

pub fn main() {}
