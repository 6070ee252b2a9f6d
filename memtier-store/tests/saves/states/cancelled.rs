//! Saves and loads that are dropped while they wait for the store, at each of their waits.

use std::{
    future::Future,
    pin::pin,
    task::{Context, Waker},
};

use memtier::Bytes;
use memtier_store::{PrefixStore, StoreSpec};
use object_store::path::Path;

use super::{Toy, conversations, found, served};
use crate::{late::Gate, toy::prompt};

pub(super) fn gated() -> (std::sync::Arc<Gate>, PrefixStore) {
    let gate = Gate::new();
    let spec = StoreSpec { segment: Bytes::new(64 + 164), most: Bytes::kib(64) };
    (gate.clone(), PrefixStore::new(gate, Path::from("fleet/toy"), spec))
}

/// Polls once, and drops it. Whether it was done: nothing wakes it, so it waits for the store otherwise.
fn dropped_at_its_wait(future: impl Future) -> bool {
    pin!(future).poll(&mut Context::from_waker(Waker::noop())).is_ready()
}

/// Each call of the store is the last that comes back. What had come is right, every block and every copy of a window comes back, requests are
/// served meanwhile, and the next load does all of it.
#[test]
fn a_load_is_dropped_at_each_wait_for_the_store() {
    let (gate, store) = gated();
    served().save(&store).unwrap();
    let mut waits = 0;
    let mut had = Vec::new();
    for calls in 0.. {
        let mut toy = Toy::new(3);
        gate.answer(calls);
        let is_done = dropped_at_its_wait(toy.load_all(&store));
        assert!(is_done || gate.left() == 0, "{calls}: it waits for nothing else");
        gate.answer(usize::MAX);
        toy.check();
        had.push(toy.snapshots.len());
        // Who asks now has what came, and computes the rest.
        let kept = found(&mut toy);
        assert!(kept.iter().zip([5, 4, 2]).all(|(kept, all)| *kept <= all), "{kept:?}");
        toy.serve(&prompt(9, 2));
        toy.check();
        if is_done {
            break;
        }
        waits += 1;
        let mut toy = Toy::new(3);
        gate.answer(calls);
        dropped_at_its_wait(toy.load_all(&store));
        gate.answer(usize::MAX);
        toy.load(&store).unwrap();
        assert_eq!((toy.snapshots.len(), found(&mut toy)), (3, [5, 4, 2]), "{calls}");
    }
    // The manifest, eight blocks, three copies; the copies come one by one.
    assert!(waits >= 12 && had.is_sorted() && had.contains(&1) && had.contains(&2), "{waits} waits, {had:?}");
}

/// The same of a save over an older one: until it is done, the older one is what is there.
#[test]
fn a_save_is_dropped_at_each_wait_for_the_store() {
    let mut waits = 0;
    for calls in 0.. {
        let (gate, store) = gated();
        let mut old = Toy::new(3);
        old.serve(&conversations()[0]);
        old.save(&store).unwrap();
        let mut toy = served();
        gate.answer(calls);
        let is_done = dropped_at_its_wait(toy.save_all(&store));
        gate.answer(usize::MAX);
        toy.check();
        let mut next = Toy::new(3);
        next.load(&store).unwrap();
        match found(&mut next) {
            [5, 4, 2] => {}
            [5, 0, 0] => assert!(!is_done),
            other => panic!("{calls}: {other:?}"),
        }
        if is_done {
            break;
        }
        waits += 1;
        toy.save(&store).unwrap();
        let mut next = Toy::new(3);
        next.load(&store).unwrap();
        assert_eq!(found(&mut next), [5, 4, 2], "{calls}");
    }
    assert!(waits >= 12, "{waits}");
}
