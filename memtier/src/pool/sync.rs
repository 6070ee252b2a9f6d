//! What the books of a pool are shared with. The models put loom's in its place.

#[cfg(not(all(test, loom)))]
mod place {
    pub(in crate::pool) use std::{
        hint::spin_loop,
        sync::{
            Mutex, MutexGuard,
            atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
        },
        thread::yield_now,
    };
}

#[cfg(all(test, loom))]
mod place {
    pub(in crate::pool) use loom::{
        hint::spin_loop,
        sync::{
            Mutex, MutexGuard,
            atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
        },
        thread::yield_now,
    };
}

pub(super) use place::*;
