//! A device, and a store, that fail while states are saved and loaded.

use futures_executor::block_on;
use memtier_store::{Loaded, StoreError};

use super::{Toy, cancelled::gated, found, place, served};

/// Each call to the device while states are saved, and while they are loaded, fails once: what was loaded is right, every block comes back, and
/// the next attempt does all of it.
#[test]
fn every_queue_operation_of_a_save_and_a_load_fails_once() {
    let (mut failures, mut is_over) = ([0, 0], false);
    for nth in 0.. {
        let (_, store) = place();
        let mut toy = served();
        let before = toy.fake.queue_calls();
        toy.fake.fail_queue_at(nth);
        let saved = toy.save(&store);
        is_over |= toy.fake.queue_calls() - before <= nth;
        toy.fake.fail_queue_at(u64::MAX);
        toy.check();
        failures[0] += u64::from(saved.is_err());
        if is_over {
            break;
        }
        toy.save(&store).unwrap();
        assert_eq!(Toy::new(3).load(&store).unwrap().states, 3, "{nth}");
    }
    let (_, store) = place();
    served().save(&store).unwrap();
    for nth in 0.. {
        let mut toy = Toy::new(3);
        toy.check();
        let before = toy.fake.queue_calls();
        toy.fake.fail_queue_at(nth);
        let loaded = toy.try_load(&store);
        let is_over = toy.fake.queue_calls() - before <= nth;
        toy.fake.fail_queue_at(u64::MAX);
        toy.check();
        found(&mut toy);
        failures[1] += u64::from(loaded.is_err());
        if is_over {
            break;
        }
        toy.load(&store).unwrap();
        assert_eq!((toy.snapshots.len(), found(&mut toy)), (3, [5, 4, 2]), "{nth}");
    }
    assert!(failures[0] > 20 && failures[1] > 20, "{failures:?}");
}

fn is_whole(loaded: &Loaded) -> bool {
    (loaded.blocks, loaded.states, &loaded.tear) == (8, 3, &None)
}

/// Each put, list and deletion of a save fails once: what counts is this save or the one before, whole, and nothing is left of the other
/// when the next one is done.
#[test]
fn every_call_to_the_store_of_a_save_fails_once() {
    let mut failures = 0;
    for nth in 0.. {
        let (objects, store) = gated();
        served().save(&store).unwrap();
        let mut toy = served();
        objects.fail_after(nth);
        let saved = toy.save(&store);
        let is_over = !objects.has_failed();
        toy.check();
        failures += u64::from(saved.is_err());
        assert!(is_whole(&Toy::new(3).load(&store).unwrap()), "{nth}");
        if is_over {
            break;
        }
        toy.save(&store).unwrap();
        assert!(is_whole(&Toy::new(3).load(&store).unwrap()), "{nth}");
        block_on(store.sweep()).unwrap();
        assert_eq!(block_on(store.sweep()).unwrap(), 0);
    }
    // Eight blocks and three states, an object each, and the manifest.
    assert!(failures >= 12, "{failures}");
}

/// Each get of a load fails once: what was loaded is right, every block comes back, and the next attempt does all of it.
#[test]
fn every_call_to_the_store_of_a_load_fails_once() {
    let (objects, store) = gated();
    served().save(&store).unwrap();
    let mut failures = 0;
    for nth in 0.. {
        let mut toy = Toy::new(3);
        objects.fail_after(nth);
        let loaded = toy.try_load(&store);
        let is_over = !objects.has_failed();
        toy.check();
        found(&mut toy);
        match loaded {
            Ok(loaded) => assert!(is_over && is_whole(&loaded), "{nth}"),
            Err(StoreError::Object(error)) => assert!(error.to_string().contains("asked to fail")),
            Err(error) => panic!("{error}"),
        }
        failures += u64::from(!is_over);
        if is_over {
            break;
        }
        let loaded = toy.load(&store).unwrap();
        assert_eq!((loaded.blocks + loaded.there, toy.snapshots.len(), found(&mut toy)), (8, 3, [5, 4, 2]), "{nth}");
    }
    assert_eq!(failures, 12, "the manifest, eight blocks and three states");
}
