//! row: k
//! error: E0277
//! says: the kernel takes `u8` elements
//! A packed tensor for a kernel that knows nothing of its format.

use memtier::*;
use ui_tests::*;

pub fn launch<P: Place<Space = Host>>(
    on: &Recorder<P>,
    out: &mut StableSpanMut<'_, u8, P>,
    plain: StableSpan<'_, u8, P>,
    packed: StableSpan<'_, Packed<Format>, P>,
) -> Result<(), LaunchError> {
    #[cfg(crime)]
    return on.copy::<u8>(out, packed);
    #[cfg(not(crime))]
    return {
        let _ = packed;
        on.copy::<u8>(out, plain)
    };
}

pub fn main() {}
