//! Random histories: whatever is found is right, and every pool conserves its blocks, after each operation.

use memtier::Blocks;
use proptest::prelude::*;

use crate::toy::{PER_BLOCK, Sizes, Toy};

/// How many histories: `MEMTIER_OPERATIONS` counts operations, of which each has about a hundred.
fn cases() -> u32 {
    let operations: Option<u32> = std::env::var("MEMTIER_OPERATIONS").ok().and_then(|count| count.parse().ok());
    operations.map_or(40, |operations| operations.div_ceil(100))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), ..ProptestConfig::default() })]

    #[test]
    fn what_is_found_is_right_and_every_pool_conserves_its_blocks(
        ops in proptest::collection::vec((0..20u8, 1..9usize, any::<u8>()), 1..200),
        is_small in any::<bool>(),
    ) {
        let small = Sizes { kv: 10, cold: 12, window: 9 + 2 * 3, cold_window: 5, hot_states: 1, cold_states: 2 };
        let mut toy = Toy::new(if is_small { small } else { Sizes::default() });
        let mut in_flight = 0;
        for (kind, length, bits) in ops {
            match kind {
                0..10 => {
                    // One of two tokens a block, so that prefixes meet.
                    let token = |index: usize| u32::from(bits >> (index / PER_BLOCK) & 1);
                    let tokens: Vec<_> = (0..length * PER_BLOCK - usize::from(bits) % PER_BLOCK).map(token).collect();
                    // Blocks that are being copied cannot be had.
                    if in_flight > 0 {
                        toy.arrive().unwrap();
                        in_flight = 0;
                    }
                    toy.serve(&tokens).unwrap();
                }
                10..14 => {
                    toy.spill(length).unwrap();
                    in_flight = 0;
                }
                14 => in_flight += toy.send(length).unwrap(),
                15 => drop(toy.tiers.hot().evict(Blocks::new(length as u64))),
                16 => drop(toy.tiers.cold().evict(Blocks::new(length as u64))),
                17 => drop(toy.snapshots.hot_mut().evict_one()),
                18 => drop(toy.snapshots.cold_mut().evict_one()),
                _ => {
                    let root = toy.root;
                    toy.tiers.forget(root).unwrap();
                    toy.root_again();
                }
            }
            toy.check();
        }
    }
}
