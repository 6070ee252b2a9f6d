//! Cold tiers: what becomes of cached blocks that the first pool has no room for, and of all of them when the process ends.
//!
//! | Tier | What | Where | Who moves blocks there |
//! |---|---|---|---|
//! | first | [`PrefixCache`](crate::PrefixCache) | the pool that requests compute with | [`publish`](crate::PrefixCache::publish) |
//! | second | [`TieredCache`](crate::TieredCache): another whole cache over another pool | a part of the same bundle, planned like the first, in the same space or in the host's | [`spill`](crate::TieredCache::spill), in a step |
//! | store | the crate `memtier-store` | a folder, or a bucket that a fleet shares | a save, between steps |
//!
//! `examples/12-persist.rs` uses all three.
//!
//! # The second tier
//!
//! It is a second [`BlockPool`](crate::BlockPool) of the same kind and shape, and a second [`PrefixCache`](crate::PrefixCache) over it.
//! Nothing is shared between the two but names: each pool conserves its own blocks, and no count of one is read for the other.
//!
//! ```no_run
//! # use memtier::*;
//! # #[graph_captured]
//! # struct Model<S: Space = Host> { kv: BlockPool<GlobalKv<f32>, S>, cold: BlockPool<GlobalKv<f32>, S> }
//! # type Failure = Box<dyn std::error::Error>;
//! # fn serve(engine: &mut Engine<Serving<Model>>, stream: &mut Stream<Host>, prompt: &[u32]) -> Result<(), Failure> {
//! let hot = PrefixCache::new(&engine.bundle().kv.handle(), PrefixCacheSpec::new(Blocks::new(2048)))?;
//! let cold = PrefixCache::new(&engine.bundle().cold.handle(), PrefixCacheSpec::new(Blocks::new(16384)))?;
//! let mut tiers = TieredCache::new(hot, cold, TierSpec { paths: 8, longest: Tokens::new(32768) })?;
//! let root = tiers.root(&RootKey::new("the model"))?;
//!
//! // A request: what the first tier has, then what the second has, then what is computed.
//! let content = Content::new(root, prompt);
//! let mut ticket = tiers.lookup(&content)?.open(Tokens::new(4096));
//! let mut step = engine.step(stream)?;
//! let ModelView { kv, cold, .. } = &mut step.buffers;
//! let restored = tiers.restore(step.on, kv, cold, &mut ticket, &content)?;
//! // .. set the page table row, prefill the rest: launches of this step may read what is restored ..
//!
//! // In the same step, what would be given up next is copied out.
//! tiers.spill(step.on, kv, cold, Blocks::new(16))?;
//! let fence = step.finish()?;
//! ticket.advance(restored, &fence)?;
//! tiers.sent(&fence)?;
//! let settled = fence.wait()?;
//! tiers.settle(&settled)?;
//! tiers.hot().publish(&mut ticket, &settled, &content)?;
//! # Ok(()) }
//! ```
//!
//! What to know:
//!
//! * **Order.** Paths are spilled in the order in which the first tier would give them up, each from its first block that the second does not
//!   have. Spilling changes nothing in the first tier, not even the order of use.
//! * **Both have it.** A spilled block stays in the first tier until somebody needs the room, and a restored one stays in the second. A
//!   shared beginning is copied once.
//! * **How much.** A path is copied from its beginning and given up from its end, so a spill that is to save what goes next has room for at
//!   least the longest path.
//! * **When.** What is evicted before it was spilled is gone. A few blocks in every step, or as many as a request is about to take, keeps
//!   ahead of eviction; [`PrefixCacheStats::reclaimable`](crate::PrefixCacheStats::reclaimable) says how much there may be.
//! * **In flight.** Until the copies are done the first pool cannot take those blocks back, and until [`settle`](crate::TieredCache::settle)
//!   nobody finds them in the second. Copies are proven by the fence of their step, as all writes are.
//! * **Cost.** Everything is allocated by [`TieredCache::new`](crate::TieredCache::new). Serving takes nothing from the heap, and the second
//!   tier never has more blocks than its pool.
//! * **Spaces.** The second pool may be in the host's memory beside the device's: write `cold: BlockPool<GlobalKv<f32>, Host>` behind
//!   parts in `Cuda` memory, and open the engine [`with`](crate::Engine::with) a host device, whose budget it is held against. Nothing else
//!   changes. Launches cannot use what is there; [`copy_across`](crate::Recorder::copy_across) brings it over. Where the host backend's
//!   memory is not page-locked (that of [`HostBackend`](crate::HostBackend) is not), a CUDA driver copies through memory of its own, and
//!   copies hold up the thread that launches them. `memtier_cuda::PinnedBackend` is page-locked, and grows and is budgeted alike: there
//!   copies are four to nine times as fast (`docs/gpu-measured.md`), and nobody waits.
//!
//! # Windows and recurrent state
//!
//! What is overwritten in place ([`SwaKv`](crate::SwaKv), [`RecurrentState`](crate::RecurrentState)) is kept as
//! [`Snapshots`](crate::Snapshots), each at the end of a cached prefix. [`TieredSnapshots`](crate::TieredSnapshots) are two lists of them,
//! each over its own cache and its own pool, so a model with a window has four pools, each of which conserves its own blocks and is planned like
//! the others.
//!
//! ```no_run
//! # use memtier::*;
//! # type Kv = GlobalKv<f32>;
//! # type Window = SwaKv<f32>;
//! # #[graph_captured]
//! # struct Model<S: Space = Host> {
//! #     kv: BlockPool<Kv, S>, cold: BlockPool<Kv, S>, window: BlockPool<Window, S>, cold_window: BlockPool<Window, S>,
//! # }
//! # type Failure = Box<dyn std::error::Error>;
//! # fn serve(engine: &mut Engine<Serving<Model>>, stream: &mut Stream<Host>, tiers: &mut TieredCache<Kv>, root: Root,
//! #     prompt: &[u32]) -> Result<(), Failure> {
//! let spec = SnapshotSpec { hot: 4, cold: 64, moving: 2, longest: Tokens::new(32768) };
//! let mut snapshots = TieredSnapshots::<Window>::new(tiers, &engine.bundle().cold_window.handle(), spec)?;
//!
//! // A request starts where there is state for it: the prefix up to there, from both tiers, and the state.
//! let content = Content::new(root, prompt);
//! let mut lease = tiers.lookup(&content)?;
//! let found = snapshots.find(tiers, &lease, &content)?;
//! let blocks = found.as_ref().map_or(Blocks::ZERO, FoundState::blocks);
//! lease.shorten(blocks);
//! let mut ticket = lease.open(Tokens::new(4096));
//! let mut window = engine.bundle().window.open(Tokens::new(4096));
//! let mut step = engine.step(stream)?;
//! let ModelView { kv, cold, window: windows, cold_window, .. } = &mut step.buffers;
//! let (mut restored, mut held) = (Tokens::ZERO, Tokens::ZERO);
//! if let Some(found) = found {
//!     let content = Content::new(root, &prompt[..(blocks.count() * 16) as usize]);
//!     restored = tiers.restore(step.on, kv, cold, &mut ticket, &content)?;
//!     held = found.copy(step.on, windows, cold_window, &mut window)?;
//! }
//!
//! // Copies follow their prefixes: two of them, each with what the second tier lacks of its prefix.
//! snapshots.spill(step.on, tiers, (kv, cold), (windows, cold_window), 2)?;
//! let fence = step.finish()?;
//! ticket.advance(restored, &fence)?;
//! window.advance(held, &fence)?;
//! tiers.sent(&fence)?;
//! snapshots.sent(&fence)?;
//! let settled = fence.wait()?;
//! tiers.settle(&settled)?;
//! snapshots.settle(tiers, &settled)?;
//! # Ok(()) }
//! ```
//!
//! * **Together.** A copy is sent with the blocks that the second cache lacks of its prefix, and found there when both have arrived. A prefix
//!   without state starts nobody; state without its prefix is never found, and makes room first.
//! * **Proof.** A copy is kept where a fence proves that it is in memory, in either tier; what comes back is a request's own once its fence
//!   says so, like every write.
//! * **Found.** [`FoundState`](crate::FoundState) keeps the state and its prefix in the second tier until it is dropped, so what was found can be
//!   restored.
//! * **Room.** The second pool holds what [`SnapshotSpec::cold`](crate::SnapshotSpec::cold) says and its blocks allow; what was unused for longest
//!   goes first. A copy that the second tier has no room for stays in the first, and is not tried again.
//!
//! # Saves
//!
//! `memtier-store` saves either tier and loads into either. A save reads a segment of blocks in a step, and puts it into the store between
//! steps, so an engine serves meanwhile; blocks are kept for the reading of one segment and no longer. The manifest is put last: until then
//! the save before counts. A load takes free blocks only and evicts nothing; what it writes is published with a fence's proof, like computed
//! blocks. States are saved and loaded after the blocks that they are behind, under the same manifest.
//!
//! | What happened | What a load does |
//! |---|---|
//! | nothing was saved yet | `None` |
//! | a save was interrupted | the one before is loaded; of a first one, what there is |
//! | an object is cut off, changed, or of another save | everything before is used; `Loaded::tear` names the object and the damage |
//! | another layout or model, or a version that is newer | an error that names both |
//! | version 1, which had no states | its blocks are loaded |
//! | a state whose prefix was not loaded, or for which there is no room | left out, and counted |
//! | blocks of an adapter without a root here | left out, and counted |
//!
//! # The reference engine
//!
//! `memtier-engine --cold-blocks N` plans a second tier of N blocks beside the pool, and `--cold-snapshots N` room for as many windows of
//! models that have one. While fewer blocks are free than the longest sequence needs, every pass is followed by copies of up to
//! `--spill-ahead N` blocks of the oldest prefixes, or of a window with its prefix, for which nobody waits until the next pass; a request that finds
//! too few free blocks all the same has the rest copied first. It starts with what both tiers have of its prompt. `--prefix-store DIR` loads
//! what is saved there at the start, windows included, and saves at the end; each model, known by the bytes of its file, has a place of its own in
//! it.
//!
//! What a request waits for when it is admitted to a pool that is always full (tiny models, 20,000 requests each with shared prefixes, forks and guesses,
//! three of ten cancelled; `MEMTIER_REQUESTS=20000 cargo test --release -p memtier-engine --test engine soak:: -- --nocapture`, 2026-11-30, two cores
//! of an AMD EPYC that others were using, too):
//!
//! | | median | 99 % below |
//! |---|---|---|
//! | Llama, copied when a request needs the room (`--spill-ahead 0`) | 6.2 µs | 41.0 µs |
//! | Llama, 8 blocks ahead | 4.2 µs | 27.2 µs |
//! | Gemma 3, when needed | 10.9 µs | 46.3 µs |
//! | Gemma 3, ahead | 9.6 µs | 38.1 µs |
//!
//! With `--gpu-layers` each of the two parts of a model has keys and values of its own, and a cache of its own blocks. A prompt starts
//! with what both have. Both are asked, filled and left by the same requests in the same order, so both would give up the same next;
//! where one pool runs dry, the other cache gives up as many, and what is left is the same. `--prefix-store` saves and loads both, each by the
//! layers that it has. `--cold-blocks` is refused there: a second tier is of one pool.
//!
//! # The format
//!
//! The format, byte by byte, is in the documentation of `memtier_store::format`. A checksum finds accidents; it does not say who wrote:
//! give write access to the bucket to nobody whose values a model must not read.
