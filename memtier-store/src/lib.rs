//! Saves and loads [`PrefixCache`](memtier::PrefixCache)s: one machine uses a folder, a fleet shares a bucket.
//!
//! The store is any [`ObjectStore`](object_store::ObjectStore): a local folder, memory, S3, Google, Azure. The caller brings it, with the
//! features of `object_store` that it needs, and the runtime that it wants.
//!
//! Work on the device is done in steps and takes no time of the store; work on the store is done between steps, so an engine can serve
//! meanwhile. While a save runs, blocks are kept one segment's reading at a time, and no longer.
//!
//! What comes from a store is not believed. A block is used if its checksum is right, and if its name is that of its parent and tokens; its
//! parent must be a root that the cache has, or a block before it. A damaged object ends the load there, and everything before it is used.
//! Blocks are written into requests' own blocks, and published with a fence's proof, as if they had been computed. **A checksum is no
//! signature:** whoever can write to the bucket can write values that a model will read.
//!
//! What is overwritten in place, a sliding window or the state of recurrent layers, is saved as it was at the end of cached prefixes
//! ([`Snapshots`](memtier::Snapshots)): [`Saver::states`] begins a list of them after the blocks, [`Loader::states`] loads it when the blocks are there.
//! Both are under one manifest.
//!
//! [`format`](mod@format) says what is stored, byte by byte.
//!
//! ```
//! use std::sync::Arc;
//!
//! use futures_executor::block_on;
//! use memtier::{
//!     BlockPool, Blocks, Bytes, Content, Device, Engine, GlobalKv, Host, HostBackend, Limits, PoolSpec, PrefixCache,
//!     PrefixCacheSpec, RootKey, Serving, Space, Stream, StreamSpec, Tokens, graph_captured,
//! };
//! use memtier_store::{PrefixStore, StoreSpec};
//! use object_store::{memory::InMemory, path::Path};
//!
//! #[graph_captured]
//! struct Model<S: Space = Host> {
//!     kv: BlockPool<GlobalKv<f32>, S>,
//! }
//!
//! type Cache = PrefixCache<GlobalKv<f32>>;
//!
//! /// An engine for 64 blocks of 16 tokens, with nothing cached.
//! fn engine() -> Result<(Engine<Serving<Model>>, Stream<Host>, Cache), Box<dyn std::error::Error>> {
//!     let device = Device::new(HostBackend::new(), Bytes::mib(1));
//!     let mut engine = Engine::open(&device);
//!     let kv = PoolSpec::fixed(Tokens::new(16), 16 * 32, Blocks::new(64));
//!     let lines = engine.declare_bundle::<Model>(ModelSpec { kv });
//!     let stream = engine.declare(StreamSpec { scratch: Bytes::kib(1) });
//!     let mut engine = engine.plan(Limits::new(Host::NAME, Bytes::mib(1)))?.carve(lines)?;
//!     let stream = engine.open_stream(stream)?;
//!     let engine = engine.serve::<Model>()?;
//!     let cache = PrefixCache::new(&engine.bundle().kv.handle(), PrefixCacheSpec::new(Blocks::new(64)))?;
//!     Ok((engine, stream, cache))
//! }
//!
//! // The first engine computes a prompt of 32 tokens, and publishes its two blocks.
//! let (mut first, mut stream, cache) = engine()?;
//! let root = cache.root(&RootKey::new("toy"))?;
//! let prompt: Vec<u32> = (0..32).collect();
//! let mut ticket = cache.lookup(&Content::new(root, &prompt))?.open(Tokens::new(32));
//! ticket.extend(Tokens::new(32))?;
//! let mut step = first.step(&mut stream)?;
//! for (index, value) in [1.5, 2.5].into_iter().enumerate() {
//!     step.on.write(&mut step.buffers.kv.block_mut(&mut ticket, index)?, &[value; 16 * 32])?;
//! }
//! let fence = step.finish()?;
//! ticket.advance(Tokens::new(32), &fence)?;
//! cache.publish(&mut ticket, &fence.wait()?, &Content::new(root, &prompt))?;
//!
//! // It saves: blocks are read in steps, objects are put between them.
//! let store = PrefixStore::new(Arc::new(InMemory::new()), Path::from("toy"), StoreSpec::default());
//! let mut saver = store.save(&cache)?;
//! loop {
//!     let step = first.step(&mut stream)?;
//!     let segment = saver.gather(step.on, &step.buffers.kv)?;
//!     step.finish()?.wait()?;
//!     let Some(segment) = segment else { break };
//!     block_on(saver.put(&segment))?;
//! }
//! assert_eq!(block_on(saver.commit())?.blocks, Blocks::new(2));
//!
//! // The second engine, in another process, another day: loads, and need not compute.
//! let (mut second, mut stream, cache) = engine()?;
//! let root = cache.root(&RootKey::new("toy"))?;
//! let mut loader = block_on(store.load(&cache))?.ok_or("nothing was saved")?;
//! while block_on(loader.fetch())? {
//!     let mut step = second.step(&mut stream)?;
//!     let batch = loader.write(step.on, &mut step.buffers.kv)?;
//!     loader.publish(batch, &step.finish()?)?;
//! }
//! assert_eq!(loader.finish().blocks, 2);
//! let ticket = cache.lookup(&Content::new(root, &prompt))?.open(Tokens::new(48));
//! let step = second.step(&mut stream)?;
//! let mut values = [0.0; 16 * 32];
//! step.on.read(step.buffers.kv.block(&ticket, 1)?, &mut values)?;
//! assert_eq!(values, [2.5; 16 * 32]);
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

#[cfg(target_endian = "big")]
compile_error!("elements are stored as they are in memory, and the format is little endian");

mod error;
pub mod format;
mod load;
mod save;
mod store;

pub use error::{StoreError, Tear};
pub use load::{Batch, Loaded, Loader, StateBatch, StateLoader};
pub use save::{Saved, Saver, Segment, StateSaver};
pub use store::{PrefixStore, StoreSpec};
