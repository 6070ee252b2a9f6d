//! Device memory, by its address. The one file that trusts addresses: those who call have asked [`Memory`] first.
//!
//! Everything is atomic and relaxed, for blocks run on several threads and may share words. For a processor these are
//! plain loads and stores.
//!
//! [`Memory`]: crate::ptx::Memory

use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};

/// Reads an element.
///
/// # Safety
///
/// `address` is a multiple of `bytes`, which is 1, 2, 4 or 8, and the bytes are there to read until the call returns; whoever
/// else writes them does so atomically.
#[inline(always)]
pub(super) unsafe fn load(address: u64, bytes: usize) -> u64 {
    // SAFETY: aligned, there, and shared atomically only: the caller says so.
    unsafe {
        match bytes {
            1 => u64::from(AtomicU8::from_ptr(address as *mut u8).load(Relaxed)),
            2 => u64::from(AtomicU16::from_ptr(address as *mut u16).load(Relaxed)),
            4 => u64::from(AtomicU32::from_ptr(address as *mut u32).load(Relaxed)),
            _ => AtomicU64::from_ptr(address as *mut u64).load(Relaxed),
        }
    }
}

/// Writes an element.
///
/// # Safety
///
/// As for [`load`], and the bytes may be written.
#[inline(always)]
pub(super) unsafe fn store(address: u64, bytes: usize, value: u64) {
    // SAFETY: aligned, there, writable, and shared atomically only: the caller says so.
    unsafe {
        match bytes {
            1 => AtomicU8::from_ptr(address as *mut u8).store(value as u8, Relaxed),
            2 => AtomicU16::from_ptr(address as *mut u16).store(value as u16, Relaxed),
            4 => AtomicU32::from_ptr(address as *mut u32).store(value as u32, Relaxed),
            _ => AtomicU64::from_ptr(address as *mut u64).store(value, Relaxed),
        }
    }
}

/// Replaces an element of 4 or 8 bytes by what the function makes of it; returns the old one.
///
/// # Safety
///
/// As for [`store`].
pub(super) unsafe fn update(address: u64, bytes: usize, f: impl Fn(u64) -> u64) -> u64 {
    // SAFETY: aligned, there, writable, and shared atomically only: the caller says so.
    unsafe {
        if bytes == 4 {
            let word = AtomicU32::from_ptr(address as *mut u32);
            let changed = word.fetch_update(SeqCst, SeqCst, |old| Some(f(u64::from(old)) as u32));
            u64::from(changed.unwrap_or_else(|old| old))
        } else {
            let word = AtomicU64::from_ptr(address as *mut u64);
            word.fetch_update(SeqCst, SeqCst, |old| Some(f(old))).unwrap_or_else(|old| old)
        }
    }
}

/// What a barrier or a fence of a device orders: everything before, for everybody.
pub(super) fn fence() {
    std::sync::atomic::fence(SeqCst);
}
