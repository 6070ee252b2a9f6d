//! Blocks: acquire, share, release.

use std::hint::black_box;

use slab::Slab;

use crate::mutex_pool::MutexPool;
use crate::timing::Bench;

/// As many blocks as a mid-size server has.
const BLOCKS: u32 = 2048;
/// A long prompt's worth of blocks at once.
const MANY: usize = 500;

/// One block, there and back.
pub(crate) fn one_block() -> Bench {
    Bench::new("block acquire + release")
        .with("mutex pool", mutex_one())
        .with("slab (no refcount, no lock)", slab_one())
}

/// Many blocks at once, there and back; per block.
pub(crate) fn many_blocks() -> Bench {
    Bench::new("500 blocks acquire + release")
        .with("mutex pool", mutex_many())
        .with("slab (no refcount, no lock)", slab_many())
}

/// A second reference to a block, there and back.
pub(crate) fn shared_block() -> Bench {
    Bench::new("block share + drop").with("mutex pool", mutex_share())
}

fn mutex_one() -> impl FnMut(u64) {
    let pool = MutexPool::new(BLOCKS);
    move |n| {
        for _ in 0..n {
            let block = pool.acquire();
            black_box(block.as_ref().map(|block| block.id()));
        }
    }
}

fn slab_one() -> impl FnMut(u64) {
    let mut slab: Slab<u32> = Slab::with_capacity(BLOCKS as usize);
    move |n| {
        for _ in 0..n {
            let id = black_box(slab.insert(1));
            black_box(slab.remove(id));
        }
    }
}

fn mutex_many() -> impl FnMut(u64) {
    let pool = MutexPool::new(BLOCKS);
    move |n| {
        // Room for the references is not what is measured.
        let mut held = Vec::with_capacity(MANY);
        for _ in 0..n {
            black_box(pool.acquire_many(MANY, &mut held));
            held.clear();
        }
    }
}

fn slab_many() -> impl FnMut(u64) {
    let mut slab: Slab<u32> = Slab::with_capacity(BLOCKS as usize);
    move |n| {
        let mut held = Vec::with_capacity(MANY);
        for _ in 0..n {
            held.extend((0..MANY).map(|_| slab.insert(1)));
            for id in held.drain(..) {
                black_box(slab.remove(id));
            }
        }
    }
}

fn mutex_share() -> impl FnMut(u64) {
    let pool = MutexPool::new(BLOCKS);
    move |n| {
        let Some(block) = pool.acquire() else { return };
        for _ in 0..n {
            black_box(block.share().id());
        }
    }
}
