//! Blocks: acquire, share, release.

use std::error::Error;
use std::hint::black_box;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use memtier::{Blocks, Tokens};
use slab::Slab;

use crate::mutex_pool::{MutexPool, MutexRef};
use crate::serving::{BLOCKS, serving};
use crate::timing::Bench;

/// A long prompt's worth of blocks at once.
const MANY: usize = 500;
/// References that own the pool, as memtier's do.
const MUTEX: &str = "mutex pool, owning references";
/// References that borrow the pool: cheaper, and they cannot leave its scope.
const MUTEX_BORROWED: &str = "mutex pool, borrowing references";
/// Bare ids, all given back under one lock.
const MUTEX_IDS: &str = "mutex pool, bare ids";
/// What any lock takes at the least, when nobody else wants it.
const LOCK: &str = "one atomic swap and one store";
/// What `slab` leaves out.
const SLAB: &str = "slab (no refcount, no lock)";

/// One block taken by hand, there and back.
pub(crate) fn one_block() -> Result<Bench, Box<dyn Error>> {
    let (engine, stream) = serving()?;
    let pool = engine.bundle().kv.handle();
    let memtier = move |n| {
        let _alive = (&engine, &stream);
        for _ in 0..n {
            let block = pool.acquire();
            black_box(block.as_ref().map(|block| block.id()).ok());
        }
    };
    Ok(Bench::new("block acquire + release")
        .with("memtier", memtier)
        .with(MUTEX, mutex_one(owned()))
        .with(MUTEX_BORROWED, mutex_one(borrowed()))
        .with(SLAB, slab_one())
        .with(LOCK, lock_alone()))
}

/// One block into a request's table and out again.
pub(crate) fn one_of_a_request() -> Result<Bench, Box<dyn Error>> {
    Ok(Bench::new("request: one block more, one less")
        .with("memtier", tickets(1)?)
        .with(MUTEX_IDS, mutex_many(1))
        .with(SLAB, slab_many(1)))
}

/// Many blocks at once, there and back.
pub(crate) fn many_blocks() -> Result<Bench, Box<dyn Error>> {
    Ok(Bench::new("request: 500 blocks more, 500 less")
        .with("memtier", tickets(MANY)?)
        .with(MUTEX_IDS, mutex_many(MANY))
        .with(SLAB, slab_many(MANY)))
}

/// A second reference to a block, there and back.
pub(crate) fn shared_block() -> Result<Bench, Box<dyn Error>> {
    let (engine, stream) = serving()?;
    let block = engine.bundle().kv.acquire()?;
    let memtier = move |n| {
        let _alive = (&engine, &stream);
        for _ in 0..n {
            black_box(block.share().id());
        }
    };
    Ok(Bench::new("block share + drop")
        .with("memtier", memtier)
        .with(MUTEX, mutex_share(owned()))
        .with(MUTEX_BORROWED, mutex_share(borrowed())))
}

fn tickets(count: usize) -> Result<impl FnMut(u64), Box<dyn Error>> {
    let (engine, stream) = serving()?;
    let mut ticket = engine.bundle().kv.open(Tokens::new(16 * BLOCKS));
    let blocks = Blocks::new(count as u64);
    Ok(move |n| {
        let _alive = (&engine, &stream);
        for _ in 0..n {
            black_box(ticket.push(black_box(blocks)).is_ok());
            ticket.truncate(Blocks::ZERO);
        }
    })
}

fn owned() -> Arc<MutexPool> {
    Arc::new(MutexPool::new(BLOCKS as u32))
}

/// Leaked: a contender lives as long as the program.
fn borrowed() -> &'static MutexPool {
    Box::leak(Box::new(MutexPool::new(BLOCKS as u32)))
}

fn mutex_one<P: Deref<Target = MutexPool> + Clone>(pool: P) -> impl FnMut(u64) {
    move |n| {
        for _ in 0..n {
            let block = MutexRef::acquire(&pool);
            black_box(block.as_ref().map(|block| block.id()));
        }
    }
}

fn lock_alone() -> impl FnMut(u64) {
    let held = AtomicBool::new(false);
    move |n| {
        for _ in 0..n {
            black_box(held.swap(true, Ordering::Acquire));
            held.store(false, Ordering::Release);
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

fn mutex_many(count: usize) -> impl FnMut(u64) {
    let mut ticket = borrowed().open(count);
    move |n| {
        for _ in 0..n {
            black_box(ticket.push(black_box(count)));
            ticket.clear();
        }
    }
}

fn slab_many(count: usize) -> impl FnMut(u64) {
    let mut slab: Slab<u32> = Slab::with_capacity(BLOCKS as usize);
    move |n| {
        let mut held = Vec::with_capacity(count);
        for _ in 0..n {
            held.extend((0..black_box(count)).map(|_| slab.insert(1)));
            for id in held.drain(..) {
                black_box(slab.remove(id));
            }
        }
    }
}

fn mutex_share<P: Deref<Target = MutexPool> + Clone>(pool: P) -> impl FnMut(u64) {
    move |n| {
        let Some(block) = MutexRef::acquire(&pool) else { return };
        for _ in 0..n {
            black_box(block.share().id());
        }
    }
}
