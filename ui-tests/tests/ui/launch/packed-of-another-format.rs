//! row: k
//! error: E0277
//! says: the kernel takes
//! A tensor in one run-time format for a kernel that reads another.

use memtier::*;
use ui_tests::*;

#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Other;

impl PackedFormat for Other {
    fn bytes(&self, _: &[usize]) -> Option<Bytes> {
        None
    }
}

pub fn first<P: Place<Space = Host>>(
    on: &Recorder<P>,
    out: &mut StableSpanMut<'_, f32, P>,
    weight: impl Input<Packed<Format>, P>,
) -> Result<(), LaunchError> {
    on.host_op((output::<f32, _, _>(out), packed::<Format, _, _>(weight)), |(out, weight)| {
        out.fill(weight.meta.rows as f32);
        Ok(())
    })
}

pub fn launch<P: Place<Space = Host>>(
    on: &Recorder<P>,
    out: &mut StableSpanMut<'_, f32, P>,
    right: StableSpan<'_, Packed<Format>, P>,
    other: StableSpan<'_, Packed<Other>, P>,
) -> Result<(), LaunchError> {
    #[cfg(crime)]
    return first(on, out, other);
    #[cfg(not(crime))]
    return {
        let _ = other;
        first(on, out, right)
    };
}

pub fn main() {}
