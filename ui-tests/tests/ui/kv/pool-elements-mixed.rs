//! row: g
//! error: E0308
//! says: expected `&Ticket<GlobalKv<f32>>`, found `&Ticket<GlobalKv<bf16>>`
//! A request of a pool with other elements.

use memtier::*;
use ui_tests::*;

pub fn block<'a>(
    kv: &'a PoolView<'a, GlobalKv<f32>, Eager<Host>>,
    full: &'a Ticket<GlobalKv<f32>>,
    half: &'a Ticket<GlobalKv<bf16>>,
) -> Option<StableSpan<'a, f32, Eager<Host>>> {
    #[cfg(crime)]
    return kv.block(half, 0).ok();
    #[cfg(not(crime))]
    return {
        let _ = half;
        kv.block(full, 0).ok()
    };
}

pub fn main() {}
