//! A device that fails while states are saved and loaded.

use super::{Toy, found, place, served};

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
