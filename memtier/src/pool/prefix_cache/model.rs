//! Every interleaving of what requests on two threads, and the tiers on a third, do with one block, and every value that the memory model lets them see.
//!
//! The block's memory is a cell that loom watches: whoever has the block writes it, whoever has a lease reads it.
//!
//! `RUSTFLAGS="--cfg loom" cargo test --release -p memtier --lib prefix_cache::model`

use std::sync::Arc;

use loom::{cell::UnsafeCell, model::Builder, thread};

use super::{
    Content, Digest, Lease, Root, Tree,
    lease::At,
    tree::{Path, SpillFrom},
};
use crate::{
    pool::core::{Core, SharedCore},
    units::{Blocks, Tokens},
};

struct Memory(UnsafeCell<u64>);

// SAFETY: loom reports whoever reaches the cell while another one does.
unsafe impl Sync for Memory {}
// SAFETY: as above.
unsafe impl Send for Memory {}

impl Memory {
    fn write(&self, value: u64) {
        // SAFETY: the model's claim, which loom checks.
        self.0.with_mut(|cell| unsafe { *cell = value });
    }

    fn read(&self) -> u64 {
        // SAFETY: as above.
        self.0.with(|cell| unsafe { *cell })
    }
}

/// A pool of one block, and its memory.
fn pool() -> (SharedCore, Arc<Memory>) {
    let one = Blocks::new(1);
    (Core::shared("pool", Tokens::new(1), 1, one, one, 0), Arc::new(Memory(UnsafeCell::new(0))))
}

fn acquire(core: &SharedCore) -> bool {
    core.acquire(None, 1, |ids| assert_eq!(ids, [0])).is_ok()
}

fn model(of: impl Fn() + Sync + Send + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(of);
}

#[test]
fn a_block_dropped_elsewhere_is_acquired_when_it_is_let_go_of() {
    model(|| {
        let (core, memory) = pool();
        assert!(acquire(&core));
        core.share(0);
        let drops = [(); 2].map(|()| {
            let (core, memory) = (core.clone(), memory.clone());
            thread::spawn(move || {
                memory.read();
                core.release(0);
            })
        });
        if acquire(&core) {
            memory.write(1);
            core.release(0);
        }
        drops.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(core.free(), Blocks::new(1));
        assert!(acquire(&core));
        core.release(0);
    });
}

/// A cache that has nothing yet.
fn empty(core: &SharedCore) -> (Arc<Tree>, Root) {
    let tree = Arc::new(Tree::new(core.clone(), 0, 1, 1, 0).unwrap());
    assert!(core.set_cache(&tree));
    let (number, run) = tree.add_root(Digest::from_bytes([1; 32])).unwrap();
    (tree, Root { tree: core.id, number, run })
}

/// Publishes block 0 as the block of token 7, whose only referent is the caller's.
fn publish(tree: &Tree, root: Root) {
    let mut state = tree.lock();
    state.begin(root.run);
    let at = At { run: root.run, depth: 0, root: root.run };
    let at = tree.publish(&mut state, at, &Content::new(root, &[7]), 1, &mut [0]);
    assert_eq!(at.depth, 1, "it was not there");
    state.end(at.run);
}

/// A cache that has the pool's only block as the block of token 7.
fn cached(core: &SharedCore) -> (Arc<Tree>, Root) {
    let (tree, root) = empty(core);
    assert!(acquire(core));
    publish(&tree, root);
    (tree, root)
}

/// A request that reads what is cached of token 7, if it is.
fn reads(tree: &Arc<Tree>, root: Root, memory: &Memory) -> bool {
    let at = tree.lookup(&Content::new(root, &[7]), |blocks| assert_eq!(blocks, [0])).unwrap();
    let lease = Lease { tree: tree.clone(), at };
    if lease.blocks() == 1 {
        assert_eq!(memory.read(), 7, "another one's value, under the lease");
    }
    lease.blocks() == 1
}

#[test]
fn a_block_that_is_looked_up_is_not_evicted_under_its_lease() {
    model(|| {
        let (core, memory) = pool();
        let (tree, root) = cached(&core);
        memory.write(7);
        let reader = thread::spawn({
            let (tree, memory) = (tree.clone(), memory.clone());
            move || {
                reads(&tree, root, &memory);
            }
        });
        let taken = acquire(&core);
        if taken {
            memory.write(8);
        }
        reader.join().unwrap();
        assert_eq!(acquire(&core), !taken, "evicted by one of the two");
        assert_eq!((core.free(), core.reclaimable()), (Blocks::ZERO, Blocks::ZERO));
        core.release(0);
        drop(tree);
        assert_eq!(core.free(), Blocks::new(1));
    });
}

/// The second tier gets a copy of what another thread takes back for a request of its own, and both go on being used.
#[test]
fn what_is_spilled_is_copied_before_it_is_handed_out() {
    model(|| {
        let ((hot, fast), (cold, slow)) = (pool(), pool());
        let ((first, _), (second, behind)) = (cached(&hot), empty(&cold));
        fast.write(7);
        let request = thread::spawn({
            let (hot, fast, second, slow) = (hot.clone(), fast.clone(), second.clone(), slow.clone());
            move || {
                let taken = acquire(&hot);
                if taken {
                    fast.write(8);
                    hot.release(0);
                }
                // What was given up is found in the second tier, or not yet.
                reads(&second, behind, &slow);
            }
        });
        let mut path = Path::default();
        if first.coldest(&mut SpillFrom::default(), 1, &mut path).is_some() {
            assert!(acquire(&cold), "nobody else wants it");
            let value = fast.read();
            assert_eq!(value, 7, "another one's value, under the referent");
            slow.write(value);
            path.blocks.iter().for_each(|block| hot.release(*block));
            publish(&second, behind);
        }
        request.join().unwrap();
        // Each tier by its own books.
        assert_eq!(u64::from(first.idle()) + hot.free().count(), 1, "cached or free");
        assert_eq!(u64::from(second.idle()) + cold.free().count(), 1, "the same in the second");
    });
}

/// A request copies out of the second tier what another thread gives up there.
#[test]
fn what_is_restored_is_not_overwritten_under_its_lease() {
    model(|| {
        let (cold, slow) = pool();
        let (second, behind) = cached(&cold);
        slow.write(7);
        let spill = thread::spawn({
            let (cold, slow, second) = (cold.clone(), slow.clone(), second.clone());
            move || {
                // Room for another path: by policy, and then by need.
                second.evict(|blocks, _| {
                    cold.release_all(blocks);
                    blocks.len()
                });
                let taken = acquire(&cold);
                if taken {
                    slow.write(9);
                    cold.release(0);
                }
                taken
            }
        });
        let found = reads(&second, behind, &slow);
        let taken = spill.join().unwrap();
        assert!(found || taken, "it is there until it was given up");
        assert_eq!(u64::from(second.idle()) + cold.free().count(), 1, "cached or free");
    });
}
