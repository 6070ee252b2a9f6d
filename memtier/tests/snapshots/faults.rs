//! Each call to the device of a copy's way to the second tier and back fails once: every block comes back, and what is found is right.

use memtier::Blocks;

use crate::toy::{Sizes, Toy, prompt};

/// Served, spilled, given up, restored, and served again behind it.
fn life(toy: &mut Toy) -> Result<(), Box<dyn std::error::Error>> {
    let tokens = prompt(1, 4);
    toy.serve(&tokens)?;
    // Where a prefix was on its way already, its state goes after it.
    for _ in 0..2 {
        toy.send(4)?;
        toy.arrive()?;
    }
    toy.tiers.hot().evict(Blocks::new(100));
    while toy.snapshots.hot_mut().evict_one() {}
    assert_eq!(toy.serve(&tokens)?.blocks, 3);
    toy.serve(&[tokens, prompt(2, 2)].concat())?;
    Ok(())
}

#[test]
fn every_queue_operation_of_a_spill_and_a_restore_fails_once() {
    let (mut failures, mut silent) = (0, 0);
    for nth in 0.. {
        let mut toy = Toy::new(Sizes::default());
        toy.wait();
        let before = toy.fake.queue_calls();
        toy.fake.fail_queue_at(nth);
        let result = life(&mut toy);
        let is_over = toy.fake.queue_calls() - before <= nth;
        toy.fake.fail_queue_at(u64::MAX);
        // What was launched is done, and what was on its way arrives or is given up.
        toy.arrive().unwrap();
        toy.check();
        life(&mut toy).unwrap();
        toy.give_up();
        toy.tiers.cold().evict(Blocks::new(100));
        while toy.snapshots.cold_mut().evict_one() {}
        toy.check();
        assert_eq!(toy.engine.bundle().cold_window.free(), Blocks::new(12), "{nth}");
        match result {
            Ok(()) if is_over => break,
            Ok(()) => silent += 1,
            Err(error) => {
                assert!(error.to_string().contains("the test asked for a failure"), "{nth}: {error}");
                failures += 1;
            }
        }
    }
    // Some fall on the fixture's own steps, which try twice.
    assert!(failures > 100, "{failures} operations failed, and {silent} of the fixture's");
}
