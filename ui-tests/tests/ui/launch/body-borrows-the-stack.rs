//! row: d
//! error: E0373
//! says: closure may outlive the current function
//! A CPU kernel that reads the caller's stack: in a graph it runs when the caller has returned.

use memtier::*;
use ui_tests::*;

pub fn scale<P: Place<Space = Host>>(
    on: &Recorder<P>,
    out: &mut StableSpanMut<'_, f32, P>,
    factor: f32,
) -> Result<(), LaunchError> {
    #[cfg(crime)]
    let body = |(out,): (&mut [f32],)| {
        out.fill(factor);
        Ok(())
    };
    #[cfg(not(crime))]
    let body = move |(out,): (&mut [f32],)| {
        out.fill(factor);
        Ok(())
    };
    on.host_op((output::<f32, _, _>(out),), body)
}

pub fn main() {}
