//! The chunk arithmetic against a driver that checks every call and fails when told to.

use super::*;
use std::collections::BTreeMap;

const MIB: u64 = 1 << 20;
const G: u64 = 2 * MIB;

/// A driver of numbers: it knows what is reserved, created, mapped and accessible, and panics at a call that CUDA forbids.
#[derive(Default)]
struct Driver {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    next: u64,
    reserved: BTreeMap<u64, u64>,
    handles: BTreeMap<u64, u64>,
    /// Start, end, handle, accessible.
    mapped: BTreeMap<u64, (u64, u64, bool)>,
    calls: u64,
    fail_from: Option<u64>,
    fail_to: u64,
    log: Vec<&'static str>,
}

impl Driver {
    fn call(&self, name: &'static str) -> Result<MutexGuard<'_, State>, String> {
        let mut state = lock(&self.state);
        let call = state.calls;
        state.calls += 1;
        state.log.push(name);
        match state.fail_from {
            Some(from) if (from..state.fail_to).contains(&call) => Err(format!("{name} was told to fail")),
            _ => Ok(state),
        }
    }

    fn fail(&self, after: u64, times: u64) {
        let mut state = lock(&self.state);
        let from = state.calls + after;
        (state.fail_from, state.fail_to) = (Some(from), from + times);
    }

    fn mapped(&self) -> u64 {
        lock(&self.state).mapped.iter().filter(|(_, map)| map.2).map(|(start, map)| map.0 - start).sum()
    }

    fn physical(&self) -> u64 {
        lock(&self.state).handles.values().sum()
    }
}

// SAFETY: addresses are numbers that nobody dereferences.
unsafe impl Vmm for Arc<Driver> {
    type Handle = u64;
    type Error = String;

    fn reserve(&self, bytes: u64) -> Result<u64, String> {
        let mut state = self.call("reserve")?;
        state.next += 1 << 40;
        let base = state.next;
        state.reserved.insert(base, bytes);
        Ok(base)
    }

    unsafe fn free(&self, base: u64, bytes: u64) -> Result<(), String> {
        let mut state = self.call("free")?;
        assert_eq!(state.reserved.remove(&base), Some(bytes));
        assert!(state.mapped.range(base..base + bytes).next().is_none(), "freed with something mapped");
        Ok(())
    }

    fn create(&self, bytes: u64) -> Result<u64, String> {
        let mut state = self.call("create")?;
        assert!(bytes > 0 && bytes.is_multiple_of(G));
        state.next += 1;
        let handle = state.next;
        state.handles.insert(handle, bytes);
        Ok(handle)
    }

    unsafe fn release(&self, handle: u64) -> Result<(), String> {
        let mut state = self.call("release")?;
        assert!(state.mapped.values().all(|map| map.1 != handle), "released while mapped");
        assert!(state.handles.remove(&handle).is_some(), "released twice");
        Ok(())
    }

    unsafe fn map(&self, at: u64, bytes: u64, handle: u64) -> Result<(), String> {
        let mut state = self.call("map")?;
        assert_eq!(state.handles.get(&handle), Some(&bytes));
        let overlaps = state.mapped.iter().any(|(start, map)| *start < at + bytes && map.0 > at);
        assert!(!overlaps, "mapped over a mapping");
        state.mapped.insert(at, (at + bytes, handle, false));
        Ok(())
    }

    unsafe fn unmap(&self, at: u64, bytes: u64) -> Result<(), String> {
        let mut state = self.call("unmap")?;
        let removed = state.mapped.remove(&at).map(|map| map.0);
        assert_eq!(removed, Some(at + bytes), "unmapped something that was not mapped as a whole");
        Ok(())
    }

    unsafe fn give_access(&self, at: u64, bytes: u64) -> Result<(), String> {
        let mut state = self.call("access")?;
        let mut covered = 0;
        for (start, map) in state.mapped.range_mut(at..at + bytes) {
            map.2 = true;
            covered += map.0 - start;
        }
        assert_eq!(covered, bytes, "access to a hole");
        Ok(())
    }
}

fn regions(chunk: u64) -> (Arc<Driver>, Regions<Arc<Driver>>) {
    let driver = Arc::new(Driver::default());
    (driver.clone(), Regions::new(driver, chunk))
}

#[test]
fn a_commit_is_one_allocation_up_to_the_limit_and_one_access_call() {
    let (driver, regions) = regions(256 * MIB);
    regions.reserve(1 << 34, 256 * MIB).unwrap();
    assert_eq!(lock(&driver.state).log, ["reserve", "create", "map", "access"]);
    lock(&driver.state).log.clear();
    let (base, _) = (regions.reserve(1 << 34, 0).unwrap(), ());
    // SAFETY: numbers.
    unsafe { regions.commit(base, 0, 600 * MIB) }.unwrap();
    assert_eq!(lock(&driver.state).log, ["reserve", "create", "map", "create", "map", "create", "map", "access"]);
}

#[test]
fn a_failure_at_any_call_of_a_commit_changes_nothing() {
    for failing in 0.. {
        let (driver, regions) = regions(8 * G);
        let base = regions.reserve(100 * G, 3 * G).unwrap();
        let before = (driver.mapped(), driver.physical());
        driver.fail(failing, 1);
        // SAFETY: numbers.
        let result = unsafe { regions.commit(base, 3 * G, 40 * G) };
        if result.is_ok() {
            // More calls than a commit makes.
            assert!(failing > 10, "{failing}");
            return;
        }
        assert_eq!((driver.mapped(), driver.physical()), before, "call {failing}");
        // SAFETY: numbers.
        unsafe { regions.commit(base, 3 * G, 40 * G) }.unwrap();
        assert_eq!((driver.mapped(), driver.physical()), (40 * G, 40 * G));
        // SAFETY: numbers.
        unsafe { regions.release(base) }.unwrap();
        assert_eq!((driver.mapped(), driver.physical()), (0, 0));
    }
}

#[test]
fn what_a_rollback_cannot_undo_is_undone_before_the_next_commit() {
    let (driver, regions) = regions(8 * G);
    let base = regions.reserve(100 * G, 0).unwrap();
    // The third chunk is not created, nor is the second one unmapped.
    driver.fail(4, 2);
    // SAFETY: numbers.
    unsafe { regions.commit(base, 0, 40 * G) }.unwrap_err();
    assert_eq!(driver.physical(), 8 * G);
    // SAFETY: numbers.
    unsafe { regions.commit(base, 0, 40 * G) }.unwrap();
    assert_eq!((driver.mapped(), driver.physical()), (40 * G, 40 * G));
}

#[test]
fn a_failed_decommit_leaves_everything_committed() {
    for failing in 0..3 {
        let (driver, regions) = regions(8 * G);
        let base = regions.reserve(100 * G, 24 * G).unwrap();
        driver.fail(failing, 1);
        // SAFETY: numbers.
        unsafe { regions.decommit(base, 0, 24 * G) }.unwrap_err();
        assert_eq!((driver.mapped(), driver.physical()), (24 * G, 24 * G));
        // SAFETY: numbers.
        unsafe { regions.decommit(base, 0, 24 * G) }.unwrap();
        assert_eq!((driver.mapped(), driver.physical()), (0, 0));
    }
}

#[test]
fn growth_and_shrinking_in_any_order_of_whole_commits_is_exact() {
    let (driver, regions) = regions(256 * MIB);
    let base = regions.reserve(24 << 30, 0).unwrap();
    let mut now = 0;
    for chunks in [8, 2, 6, 4, 10, 0] {
        let next = chunks * 256 * MIB;
        let moved = match next > now {
            // SAFETY: numbers.
            true => unsafe { regions.commit(base, now, next) },
            // SAFETY: numbers.
            false => unsafe { regions.decommit(base, next, now) },
        };
        moved.unwrap();
        now = next;
        assert_eq!((driver.mapped(), driver.physical()), (now, now));
    }
}

#[test]
fn a_decommit_inside_of_a_chunk_is_refused_with_what_to_do() {
    let (driver, regions) = regions(256 * MIB);
    let base = regions.reserve(24 << 30, 256 * MIB).unwrap();
    // SAFETY: numbers.
    let error = unsafe { regions.decommit(base, 128 * MIB, 256 * MIB) }.unwrap_err();
    assert!(error.reason.contains("whole commits"), "{}", error.reason);
    assert_eq!(driver.mapped(), 256 * MIB);
}

#[test]
fn a_reservation_whose_first_commit_fails_is_gone() {
    let (driver, regions) = regions(8 * G);
    driver.fail(3, 1);
    regions.reserve(100 * G, 24 * G).unwrap_err();
    assert!(lock(&driver.state).reserved.is_empty());
    assert_eq!(driver.physical(), 0);
}
