//! A device that stands still: what no driver has, for tests of what happens while work is under way.

use std::ffi::c_int;

use super::calls::in_context;

/// Holds the device, or lets it go on: while it is held, streams begin nothing. Whoever waits for one meanwhile waits until another thread
/// lets go.
///
/// # Safety
/// None is needed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memtierEmulatedHold(hold: c_int) -> u32 {
    in_context("memtierEmulatedHold", |inside| {
        inside.held = hold != 0;
        inside.wake();
        Ok(())
    })
}
