//! Calls of the driver that fail because a test said so.

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicU32, Ordering},
};

/// Failures to come.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    /// How many there are: nearly always none, and then nothing else is looked at.
    armed: AtomicU32,
    list: Mutex<Vec<(&'static str, u64)>>,
}

impl Faults {
    /// The call of that name fails once, after so many that are made.
    pub(crate) fn arm(&self, call: &'static str, after: u64) {
        self.list.lock().unwrap_or_else(PoisonError::into_inner).push((call, after));
        self.armed.fetch_add(1, Ordering::Release);
    }

    /// Whether this call fails.
    pub(crate) fn hit(&self, call: &str) -> bool {
        self.armed.load(Ordering::Acquire) > 0 && self.look(call)
    }

    #[cold]
    fn look(&self, call: &str) -> bool {
        let mut list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(index) = list.iter().position(|(name, _)| *name == call) else { return false };
        if list[index].1 > 0 {
            list[index].1 -= 1;
            return false;
        }
        list.remove(index);
        self.armed.fetch_sub(1, Ordering::Release);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_hits_once_its_own_call_at_its_turn() {
        let faults = Faults::default();
        assert!(!faults.hit("a"));
        faults.arm("a", 2);
        faults.arm("b", 0);
        assert_eq!(
            ["a", "b", "b", "a", "a", "a"].map(|call| faults.hit(call)),
            [false, true, false, false, true, false]
        );
    }
}
