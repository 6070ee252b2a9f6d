//! Waiting: for the workers of a new pool to come up, and by polling.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How many workers have come up.
#[derive(Default)]
pub(super) struct Started {
    count: Mutex<usize>,
    more: Condvar,
}

impl Started {
    pub(super) fn add(&self) {
        *self.count.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.more.notify_one();
    }

    pub(super) fn until(&self, all: usize) {
        let count = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.more.wait_while(count, |count| *count < all).unwrap_or_else(PoisonError::into_inner));
    }
}

/// Polls until `ready` or until `limit` has passed; whether it became ready.
pub(super) fn poll(limit: Duration, ready: impl Fn() -> bool) -> bool {
    let mut start = None;
    loop {
        for _ in 0..32 {
            if ready() {
                return true;
            }
            std::hint::spin_loop();
        }
        if start.get_or_insert_with(Instant::now).elapsed() >= limit {
            return false;
        }
    }
}
