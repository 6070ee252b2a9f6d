//! Each call to the device of a request's life fails once, and a request is dropped at each point where it waits: every block comes back.

use std::{
    cell::RefCell,
    error::Error,
    future::Future,
    pin::{Pin, pin},
    task::{Context, Poll, Waker},
};

use memtier::{Blocks, Content, Event, FakeBackend, Fence, Op, PoolSpec, PrefixCacheSpec, Settled, Ticket, Tokens};

use crate::fixture::{Fixture, Kv, MOST, PER_BLOCK, fixed, tokens};

type Failed = Box<dyn Error>;

fn growable() -> PoolSpec {
    PoolSpec { initial: Blocks::new(128), step: Blocks::new(128), floor: Blocks::new(128), ..fixed(512) }
}

fn fixture(asynchronous: bool) -> Fixture {
    let fake = if asynchronous { FakeBackend::asynchronous() } else { FakeBackend::new() };
    Fixture::on(fake, growable(), PrefixCacheSpec::new(Blocks::new(64)))
}

/// Writes `values` from token `from` on, as `launch` of the fixture does, but fails where the device does.
fn write(all: &mut Fixture, ticket: &mut Ticket<Kv>, from: u64, values: &[u64]) -> Result<Settled, Failed> {
    let mut step = all.engine.step(&mut all.stream)?;
    for (token, value) in (from..).zip(values) {
        let mut block = step.buffers.kv.block_mut(ticket, (token / PER_BLOCK) as usize)?;
        let at = (token % PER_BLOCK) as usize;
        step.on.write(&mut block.range(at..at + 1).ok_or("a token of the block")?, &[*value])?;
    }
    let fence: Fence = step.finish()?;
    ticket.advance(Tokens::new(values.len() as u64), &fence)?;
    Ok(fence.wait()?)
}

/// Everything that a request does: found, extended, written, published, seen by a row, forked, owned by a copy, read, grown, retired.
fn life(all: &mut Fixture) -> Result<(), Failed> {
    let prompt = tokens(0, 3);
    let values: Vec<u64> = prompt.iter().map(|token| u64::from(*token)).collect();
    let content = Content::new(all.root, &prompt);
    let lease = all.cache.lookup(&content)?;
    let mut request = lease.open(MOST);
    let has = request.tokens().count();
    request.extend(Tokens::new(prompt.len() as u64 + 2 - has))?;
    if has < prompt.len() as u64 {
        let settled = write(all, &mut request, has, &values[has as usize..])?;
        all.cache.publish(&mut request, &settled, &content)?;
    }
    let mut step = all.engine.step(&mut all.stream)?;
    step.buffers.rows.set(step.on, 0, &request)?;
    step.finish()?.wait()?;
    write(all, &mut request, 12, &[50])?;
    let mut fork = request.fork(MOST);
    let mut step = all.engine.step(&mut all.stream)?;
    step.buffers.kv.own(step.on, &mut fork, 3)?;
    step.buffers.kv.own(step.on, &mut fork, 2)?;
    step.buffers.rows.set(step.on, 1, &fork)?;
    step.finish()?.wait()?;
    write(all, &mut fork, 13, &[60])?;
    let pool = &all.engine.bundle().kv;
    if let Some(commit) = pool.planned_commit() {
        pool.grow(commit).map_err(|refused| refused.to_string())?;
    }
    let mut read = [0; PER_BLOCK as usize];
    let mut step = all.engine.step(&mut all.stream)?;
    step.on.read(step.buffers.kv.block(&fork, 3)?, &mut read)?;
    assert_eq!(read[..2], [50, 60]);
    step.buffers.rows.clear(step.on, 0)?;
    step.buffers.rows.clear(step.on, 1)?;
    let settled = step.finish()?.wait()?;
    request.retire(&settled)?;
    Ok(())
}

/// What the engine does about rows of requests that are gone; then everything is free or cached, and what is cached is right.
fn all_is_back(all: &mut Fixture) {
    let mut step = all.engine.step(&mut all.stream).unwrap();
    step.buffers.rows.clear(step.on, 0).unwrap();
    step.buffers.rows.clear(step.on, 1).unwrap();
    step.finish().unwrap().wait().unwrap();
    let committed = all.engine.bundle().kv.committed().count();
    assert_eq!(all.free() + all.cached(), committed, "free and cached");
    assert_eq!(all.cache.stats().reclaimable, all.cache.stats().cached, "nothing is kept");
    let again = all.open(&tokens(0, 3));
    all.verify(&again, &tokens(0, 3)[..again.tokens().count() as usize]);
    drop(again);
    all.cache.evict(Blocks::new(64));
    all.settle();
    assert_eq!((all.free(), all.cached()), (committed, 0));
}

#[test]
fn every_queue_operation_of_a_request_fails_once() {
    for asynchronous in [false, true] {
        let mut all = fixture(asynchronous);
        let (mut failures, mut marks) = (0, 0);
        for nth in 0.. {
            let before = all.fake.queue_calls();
            all.fake.fail_queue_at(nth);
            let result = life(&mut all);
            let is_over = all.fake.queue_calls() - before <= nth;
            all.fake.fail_queue_at(u64::MAX);
            all_is_back(&mut all);
            match result {
                Ok(()) if is_over => break,
                // The second mark of a step that has ended: nothing was launched since the first.
                Ok(()) => marks += 1,
                Err(error) => {
                    assert!(error.to_string().contains("the test asked for a failure"), "{nth}: {error}");
                    failures += 1;
                }
            }
        }
        assert!(failures > 30 && marks == 6, "{failures} operations failed, and {marks} marks that say nothing new");
    }
}

#[test]
fn every_acquisition_of_a_request_fails_once() {
    let mut all = fixture(false);
    let is_acquisition = |event: &&Event| matches!(event.op, Op::Reserve | Op::Commit);
    all.fake.fail_at(all.fake.journal().iter().filter(is_acquisition).count() as u64);
    let committed = all.engine.bundle().kv.committed();
    let error = life(&mut all).unwrap_err();
    assert!(error.to_string().contains("the test asked for a failure"), "{error}");
    assert_eq!(all.engine.bundle().kv.committed(), committed, "nothing was added");
    all_is_back(&mut all);
    life(&mut all).unwrap();
    assert!(all.engine.bundle().kv.committed() > committed);
    all_is_back(&mut all);
}

/// Lets others run, once.
fn turn() -> impl Future<Output = ()> {
    let mut is_first = true;
    std::future::poll_fn(move |_| match std::mem::replace(&mut is_first, false) {
        true => Poll::Pending,
        false => Poll::Ready(()),
    })
}

/// A request as a server has it: it waits for room, for its launches, and for whoever reads the answer.
async fn request(all: &RefCell<Fixture>, row: usize, prompt: &[u32]) {
    let mut ticket = all.borrow().open(prompt);
    turn().await;
    let mut written = ticket.tokens().count() as usize;
    while written < prompt.len() {
        let end = prompt.len().min(written + 5);
        let fence = all.borrow_mut().launch(&mut ticket, &prompt[..end]);
        turn().await;
        let settled = fence.wait().unwrap();
        turn().await;
        let root = all.borrow().root;
        all.borrow().cache.publish(&mut ticket, &settled, &Content::new(root, prompt)).unwrap();
        written = end;
    }
    let mut fork = ticket.fork(MOST);
    turn().await;
    let _ = all.borrow_mut().own(&mut fork, (prompt.len() - 1) / PER_BLOCK as usize);
    turn().await;
    set(&mut all.borrow_mut(), row, &fork);
    turn().await;
    fork.rewind(Tokens::new(2)).unwrap();
    fork.truncate(Blocks::new(2));
    turn().await;
    all.borrow_mut().verify(&ticket, prompt);
}

fn set(all: &mut Fixture, row: usize, ticket: &Ticket<Kv>) {
    let mut step = all.engine.step(&mut all.stream).unwrap();
    step.buffers.rows.set(step.on, row, ticket).unwrap();
    drop(step.finish().unwrap());
}

fn poll(future: Pin<&mut impl Future<Output = ()>>) -> bool {
    future.poll(&mut Context::from_waker(Waker::noop())).is_ready()
}

#[test]
fn a_request_is_dropped_at_every_point_where_it_waits() {
    let prompt = &tokens(0, 3)[..11];
    for asynchronous in [false, true] {
        let mut points = 0;
        loop {
            let all = RefCell::new(fixture(asynchronous));
            let is_over = {
                // Another one with the same prompt goes on: it was a step behind, and shares what was published.
                let mut other = pin!(request(&all, 1, prompt));
                let is_over = {
                    let mut cancelled = pin!(request(&all, 0, prompt));
                    !(0..points).all(|_| {
                        let is_over = poll(cancelled.as_mut());
                        let _ = !is_over && poll(other.as_mut());
                        !is_over
                    })
                };
                while !poll(other.as_mut()) {}
                is_over
            };
            all_is_back(&mut all.into_inner());
            if is_over {
                break;
            }
            points += 1;
        }
        assert!(points > 10, "{points} points");
    }
}
