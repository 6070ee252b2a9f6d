//! Objects that come late, or never: a load that waits for the store holds no block, and one that is aborted is over with its fence.

use std::{
    fmt,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, Waker},
};

use async_trait::async_trait;
use futures_executor::block_on;
use futures_util::{StreamExt, future, stream, stream::BoxStream};
use memtier::Blocks;
use memtier_store::PrefixStore;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result, memory::InMemory, path::Path,
};

use crate::{
    SMALL, empty, served,
    toy::{Toy, prompt},
};

/// A store that answers so many calls, and no more until it is told to; one of them with an error.
#[derive(Debug)]
pub(super) struct Gate {
    objects: InMemory,
    left: AtomicUsize,
    /// Calls before the one that fails.
    good: AtomicUsize,
}

impl Gate {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Gate {
            objects: InMemory::new(),
            left: AtomicUsize::new(usize::MAX),
            good: AtomicUsize::new(usize::MAX),
        })
    }

    pub(super) fn answer(&self, calls: usize) {
        self.left.store(calls, Ordering::SeqCst);
    }

    pub(super) fn left(&self) -> usize {
        self.left.load(Ordering::SeqCst)
    }

    /// The call after so many more fails, once.
    pub(super) fn fail_after(&self, calls: usize) {
        self.good.store(calls, Ordering::SeqCst);
    }

    /// No call fails from here on. Whether one did.
    pub(super) fn has_failed(&self) -> bool {
        self.good.swap(usize::MAX, Ordering::SeqCst) == usize::MAX
    }

    fn check(&self) -> Result<()> {
        let count = |good: usize| (good < usize::MAX).then_some(good.wrapping_sub(1));
        match self.good.fetch_update(Ordering::SeqCst, Ordering::SeqCst, count) {
            Ok(0) => Err(Error::Generic { store: "test", source: "asked to fail".into() }),
            _ => Ok(()),
        }
    }

    async fn pass(&self) -> Result<()> {
        self.check()?;
        let take = || self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        std::future::poll_fn(|_| if take().is_ok() { Poll::Ready(()) } else { Poll::Pending }).await;
        Ok(())
    }
}

impl fmt::Display for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a store behind a gate")
    }
}

#[async_trait]
impl ObjectStore for Gate {
    async fn put_opts(&self, location: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        self.pass().await?;
        self.objects.put_opts(location, payload, options).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.objects.put_multipart_opts(location, options).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.pass().await?;
        self.objects.get_opts(location, options).await
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        match self.check() {
            Ok(()) => self.objects.delete_stream(locations),
            Err(error) => stream::once(future::err(error)).boxed(),
        }
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        match self.check() {
            Ok(()) => self.objects.list(prefix),
            Err(error) => stream::once(future::err(error)).boxed(),
        }
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.pass().await?;
        self.objects.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.objects.copy_opts(from, to, options).await
    }
}

/// A gate, the store behind it, in which something is saved, and an engine with nothing cached.
fn gated() -> (Arc<Gate>, PrefixStore, Toy) {
    let gate = Gate::new();
    let store = PrefixStore::new(gate.clone(), Path::from("fleet/toy"), SMALL);
    served(16).save(&store).unwrap();
    (gate, store, empty(8))
}

fn free(toy: &Toy) -> Blocks {
    toy.engine.bundle().kv.free()
}

/// M9: the load is aborted, its completion never comes, or comes when nobody waits any more.
#[test]
fn a_load_whose_objects_never_come_holds_nothing() {
    let (gate, store, mut toy) = gated();
    let mut loader = block_on(store.load(&toy.cache)).unwrap().unwrap();
    gate.answer(0);
    {
        let mut fetch = pin!(loader.fetch());
        for first in 10..30 {
            assert!(fetch.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
            // Every block of the pool can be had meanwhile.
            assert_eq!(toy.serve("a", &prompt(first, 8), &[]), 0);
        }
        // It is aborted here.
    }
    gate.answer(usize::MAX);
    drop(loader);
    toy.check();
    toy.cache.evict(Blocks::new(8));
    assert_eq!(free(&toy), Blocks::new(8));
    assert_eq!(toy.load(&store).unwrap().unwrap().blocks, 8, "the next one finds all of it");
}

#[test]
fn a_load_that_is_aborted_in_flight_gives_its_blocks_back_with_its_fence() {
    let (_gate, store, mut toy) = gated();
    let mut loader = block_on(store.load(&toy.cache)).unwrap().unwrap();
    assert!(block_on(loader.fetch()).unwrap());
    let mut step = toy.engine.step(&mut toy.stream).unwrap();
    let batch = loader.write(step.on, &mut step.buffers.kv).unwrap();
    let fence = step.finish().unwrap();
    let held = batch.blocks();
    assert!(!held.is_zero());
    drop((batch, loader));
    assert_eq!(free(&toy), Blocks::new(8).beyond(held), "the copies may be in flight");
    fence.wait().unwrap();
    assert_eq!(free(&toy), Blocks::new(8));
    assert_eq!(toy.cache.stats().cached, Blocks::ZERO, "what nobody waited for is published by nobody");
}
