//! Every interleaving of what requests on two threads do with one block, and every value that the memory model lets them see.
//!
//! The block's memory is a cell that loom watches: whoever has the block writes it, whoever has a lease reads it.
//!
//! `RUSTFLAGS="--cfg loom" cargo test --release -p memtier --lib prefix_cache::model`

use std::sync::Arc;

use loom::{cell::UnsafeCell, model::Builder, thread};

use super::{Content, Digest, Lease, Root, Tree, lease::At};
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

/// A cache that has the pool's only block as the block of token 7.
fn cached(core: &SharedCore) -> (Arc<Tree>, Root) {
    let tree = Arc::new(Tree::new(core.clone(), 0, 1, 1, 0).unwrap());
    assert!(core.set_cache(&tree));
    let (number, run) = tree.add_root(Digest::from_bytes([1; 32])).unwrap();
    let root = Root { tree: core.id, number, run };
    assert!(acquire(core));
    {
        let mut state = tree.lock();
        state.begin(run);
        let at = At { run, depth: 0, root: run };
        let at = tree.publish(&mut state, at, &Content::new(root, &[7]), 1, &mut [0]);
        assert_eq!(at.depth, 1, "it was not there");
        state.end(at.run);
    }
    (tree, root)
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
                let at = tree.lookup(&Content::new(root, &[7]), |blocks| assert_eq!(blocks, [0])).unwrap();
                let lease = Lease { tree, at };
                if lease.blocks() == 1 {
                    assert_eq!(memory.read(), 7, "another one's value, under the lease");
                }
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
