//! A spin lock with one atomic read-modify-write per critical section.
//!
//! The pool's sections are a few loads and stores. A futex mutex pays a second read-modify-write to unlock, which is half
//! the cost of an acquisition; a plain store does here. A waiter yields after a bounded spin, so a preempted owner costs
//! a time slice and not a core.

use std::{
    cell::UnsafeCell,
    ops::{Deref, DerefMut},
};

use super::sync::{AtomicBool, Ordering, spin_loop, yield_now};

/// How often a waiter looks before it yields.
const SPINS: u32 = 64;

pub(crate) struct SpinLock<T> {
    held: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: a guard, and with it a reference to the value, exists in one thread at a time.
unsafe impl<T: Send> Sync for SpinLock<T> {}

pub(crate) struct Guard<'l, T>(&'l SpinLock<T>);

impl<T> SpinLock<T> {
    pub(crate) fn new(value: T) -> Self {
        SpinLock { held: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    #[inline]
    pub(crate) fn lock(&self) -> Guard<'_, T> {
        if self.held.swap(true, Ordering::Acquire) {
            self.wait();
        }
        Guard(self)
    }

    /// The lock, if nobody has it.
    #[inline]
    pub(crate) fn try_lock(&self) -> Option<Guard<'_, T>> {
        (!self.held.load(Ordering::Relaxed) && !self.held.swap(true, Ordering::Acquire)).then(|| Guard(self))
    }

    #[cold]
    fn wait(&self) {
        let mut spins = 0;
        loop {
            while self.held.load(Ordering::Relaxed) {
                spins += 1;
                if spins < SPINS { spin_loop() } else { yield_now() }
            }
            if !self.held.swap(true, Ordering::Acquire) {
                return;
            }
        }
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this guard holds the lock, so nobody has the value mutably.
        unsafe { &*self.0.value.get() }
    }
}
impl<T> DerefMut for Guard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this guard holds the lock and is borrowed mutably, so nobody else has the value.
        unsafe { &mut *self.0.value.get() }
    }
}
impl<T> Drop for Guard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.0.held.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::SpinLock;

    #[test]
    fn a_held_lock_is_not_had_twice() {
        let lock = SpinLock::new(1);
        let held = lock.lock();
        assert!(lock.try_lock().is_none());
        drop(held);
        *lock.try_lock().unwrap() += 1;
        assert_eq!(lock.try_lock().map(|held| *held), Some(2), "it was let go of");
    }

    #[test]
    fn one_thread_at_a_time() {
        let count = SpinLock::new(0u64);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..20_000).for_each(|_| *count.lock() += 1));
            }
        });
        assert_eq!(*count.lock(), 80_000);
    }
}
