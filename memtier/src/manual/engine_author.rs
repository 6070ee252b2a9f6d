//! For engine authors: from `Engine<Loading>` to `Engine<Serving>`.
//!
//! Bundle everything that one model needs, and let the engine own it:
//!
//! ```
//! use memtier::{
//!     BlockPool, Blocks, Bytes, Device, Engine, GlobalKv, HostBackend, Limits, PageTable, PoolSpec, Step, StreamSpec,
//!     TableSpec, Tokens, f16, graph_captured, tier,
//! };
//!
//! #[derive(Clone, Copy)]
//! struct Dims { hidden: usize }
//!
//! #[tier(ModelResident, dims = Dims)]
//! struct Weights {
//!     #[shape(hidden)]
//!     scale: f32,
//! }
//!
//! #[graph_captured]
//! struct Model {
//!     weights: Weights,
//!     kv: BlockPool<GlobalKv<f16>>,
//!     table: PageTable<GlobalKv<f16>>,
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // Loading: the device is open, nothing is acquired. Say what will be wanted.
//! let device = Device::new(HostBackend::new(), Bytes::mib(1));
//! let mut engine = Engine::open(&device);
//! let lines = engine.declare_bundle::<Model>(ModelSpec {
//!     weights: Dims { hidden: 64 },
//!     kv: PoolSpec::fixed(Tokens::new(16), 16 * 64, Blocks::new(32)),
//!     table: TableSpec { rows: 4, columns: 8 },
//! });
//! let stream = engine.declare(StreamSpec { scratch: Bytes::kib(16) });
//!
//! // Planning: accepted or refused, with the arithmetic. Then every line becomes memory, once.
//! let mut engine = engine.plan(Limits::new("host", Bytes::mib(1)))?.carve(lines)?;
//! let mut stream = engine.open_stream(stream)?;
//! {
//!     let mut load = engine.load(&mut stream)?;
//!     let mut tensor = load.staging.take::<f32>(load.buffers.weights.scale.len())?;
//!     tensor.fill(1.0);
//!     tensor.upload(load.on, &mut load.buffers.weights.scale)?;
//! }
//!
//! // Serving: the map is frozen. There is no method left that acquires memory.
//! let mut engine = engine.serve::<Model>()?;
//! let mut request = engine.bundle().kv.open(Tokens::new(128));
//! request.extend(Tokens::new(20))?;
//! let mut step = engine.step(&mut stream)?;
//! let Step { buffers: ModelView { weights, table, .. }, on, .. } = &mut step;
//! table.set(on, 0, &request)?;
//! let mut read = [0.0; 64];
//! on.read(weights.scale, &mut read)?;
//! let fence = step.finish()?;
//! request.advance(Tokens::new(20), &fence)?;
//! fence.wait()?;
//! # Ok(())
//! # }
//! ```
//!
//! # The rules of thumb
//!
//! * Keep the engine, its streams and its requests in one struct; requests before the engine, so that they drop first.
//! * `let Step { buffers, on, scratch, .. } = &mut step;` and pass these to model code that is generic over
//!   `P: Place<Space = Host>`: the same function then runs eagerly and inside [`record`](crate::Engine::record).
//! * Everything that changes from step to step goes through buffers that were carved: tokens, positions and lengths in a
//!   workspace, blocks through a page table.
//! * A request that ends, is cancelled, fails or panics drops its ticket. Clear its page table row in the next step.
//! * Admission from other threads goes through [`PoolHandle`](crate::PoolHandle), also while a step is open.
//! * A pool that is declared with fewer `initial` blocks than it may get is growable:
//!   [`planned_commit`](crate::BlockPool::planned_commit) and [`grow`](crate::BlockPool::grow) while serving,
//!   [`give_back`](crate::Engine::give_back) when idle.
//! * `engine.drain()?.end_model()` gives the parts that survive; [`keep`](crate::Engine::keep) makes lines of them.
//!
//! # Two models
//!
//! One after the other is a swap, `engine.drain()?.end_model()`. At the same time there are two ways:
//!
//! * An engine for each, opened on the same [`Device`](crate::Device): what one holds is *held by others* in the plan of the next, which is
//!   refused if both do not fit. Each has its own streams, phases and swaps. The second one's limits say the whole budget again.
//! * One bundle with the parts of both, where they work on each other's results in one step: a draft model beside the one that checks it.
//!
//! ```
//! # use memtier::{Bytes, Device, Engine, HostBackend, Limits, graph_captured, tier};
//! # #[derive(Clone, Copy)]
//! # struct Dims { hidden: usize }
//! # #[tier(ModelResident, dims = Dims)]
//! # struct Weights { #[shape(hidden)] scale: f32 }
//! #[graph_captured]
//! struct Chat { weights: Weights }
//! #[graph_captured]
//! struct Embedding { weights: Weights }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let device = Device::new(HostBackend::new(), Bytes::kib(64));
//! let limits = Limits::new("host", Bytes::kib(64));
//! let mut engine = Engine::open(&device);
//! let lines = engine.declare_bundle::<Chat>(ChatSpec { weights: Dims { hidden: 4096 } });
//! let chat = engine.plan(limits)?.carve(lines)?.serve::<Chat>()?;
//!
//! let mut engine = Engine::open(&device);
//! let lines = engine.declare_bundle::<Embedding>(EmbeddingSpec { weights: Dims { hidden: 4096 } });
//! let embedding = engine.plan(limits)?.carve(lines)?.serve::<Embedding>()?;
//! assert_eq!(device.report().live, Bytes::kib(2 * 4 * 4));
//!
//! let mut engine = Engine::open(&device);
//! let lines = engine.declare_bundle::<Chat>(ChatSpec { weights: Dims { hidden: 16_384 } });
//! assert!(engine.plan(limits).is_err(), "64 KiB beside the 32 KiB of the others");
//! # drop((chat, embedding, lines));
//! # Ok(())
//! # }
//! ```
//!
//! # Layers with a window, layers without
//!
//! A pool for each group of layers that keeps the same tokens, a page table for each pool, and for each request a ticket in each
//! pool. The tickets go together: `extend` both before a step and `advance` both behind it. What has left the window is given up by
//! [`evict_before`](crate::Ticket::evict_before), and free when the row, too, has been set without it:
//!
//! ```
//! # use memtier::{
//! #     BlockPool, Blocks, Bytes, Device, Engine, GlobalKv, HostBackend, Limits, PageTable, PoolSpec, Step, StreamSpec, SwaKv, TableSpec,
//! #     Tokens, f16, graph_captured,
//! # };
//! #[graph_captured]
//! struct Model {
//!     kv: BlockPool<GlobalKv<f16>>,
//!     window: BlockPool<SwaKv<f16>>,
//!     table: PageTable<GlobalKv<f16>>,
//!     recent: PageTable<SwaKv<f16>>,
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let mut engine = Engine::open(&Device::new(HostBackend::new(), Bytes::mib(1)));
//! # let pool = PoolSpec::fixed(Tokens::new(16), 16 * 64, Blocks::new(32));
//! # let table = TableSpec { rows: 4, columns: 8 };
//! # let lines = engine.declare_bundle::<Model>(ModelSpec { kv: pool, window: pool, table, recent: table });
//! # let stream = engine.declare(StreamSpec { scratch: Bytes::kib(16) });
//! # let mut engine = engine.plan(Limits::new("host", Bytes::mib(1)))?.carve(lines)?;
//! # let mut stream = engine.open_stream(stream)?;
//! # let mut engine = engine.serve::<Model>()?;
//! const WINDOW: u64 = 32;
//! let mut all = engine.bundle().kv.open(Tokens::new(128));
//! let mut latest = engine.bundle().window.open(Tokens::new(128));
//! for pass in [40, 16, 16] {
//!     all.extend(Tokens::new(pass))?;
//!     latest.extend(Tokens::new(pass))?;
//!     let mut step = engine.step(&mut stream)?;
//!     let Step { buffers: ModelView { table, recent, .. }, on, .. } = &mut step;
//!     table.set(on, 0, &all)?;
//!     recent.set(on, 0, &latest)?;
//!     // .. the layers, each through the table of its pool ..
//!     let fence = step.finish()?;
//!     all.advance(Tokens::new(pass), &fence)?;
//!     latest.advance(Tokens::new(pass), &fence)?;
//!     latest.evict_before(Tokens::new(latest.tokens().count().saturating_sub(WINDOW)));
//! }
//! assert_eq!((all.blocks(), latest.blocks()), (Blocks::new(5), Blocks::new(3)));
//! # Ok(())
//! # }
//! ```
//!
//! # How much scratch
//!
//! [`StreamSpec::scratch`](crate::StreamSpec::scratch) is the most that one step has at a time. Each [`take`](crate::ScratchFrame::take) is rounded up
//! to 256 bytes, and lasts to the end of its frame; a [`nested`](crate::ScratchFrame::nested) frame gives back what was taken in it. So what only a
//! prompt needs (the activations of a vision encoder) is taken in a frame of its own, and the stream has the larger of the two passes, not
//! their sum. [`ScratchStack::high_water`](crate::ScratchStack::high_water) of a trial run says what it was; a pass that asks for more gets
//! [`ScratchFull`](crate::ScratchFull), with the numbers, and nothing else happens. A graph replays over the same scratch: in a step,
//! replay before anything is taken from it.
//!
//! # Which tier
//!
//! | What | Where | Written |
//! |---|---|---|
//! | weights | `#[tier(ModelResident, ..)]` | while `Planning`, through staging; read-only afterwards |
//! | adapters that are exchanged while serving | `#[tier(EnginePersistent, ..)]`, an array with an item for each slot | in a step, [`write`](crate::Recorder::write); which slot a sequence has goes into a buffer, too |
//! | tokens, positions, lengths, logits | `#[tier(EnginePersistent, ..)]` | by every step |
//! | activations | scratch | by every step |
//! | keys and values | [`BlockPool`](crate::BlockPool)`<`[`GlobalKv`](crate::GlobalKv)`<..>>`, [`SwaKv`](crate::SwaKv) for windows, one pool for each group of layers that keeps the same tokens | through a page table, or block by block |
//! | recurrent state | `BlockPool<`[`RecurrentState`](crate::RecurrentState)`<..>>` | in place |
//! | results that the host looks at later | [`Pinned`](crate::Pinned) | [`read_back`](crate::Recorder::read_back) |
//!
//! What an adapter changes belongs into the [`RootKey`](crate::RootKey) of the prefix cache: requests of two adapters share nothing.
//!
//! # Words
//!
//! | Elsewhere | Here |
//! |---|---|
//! | allocate, malloc | [`declare`](crate::Engine::declare) while `Loading`; `take` for scratch; [`extend`](crate::Ticket::extend) for blocks |
//! | free a sequence, abort, release | drop its [`Ticket`](crate::Ticket) |
//! | copy to the device, to the host | [`write`](crate::Recorder::write), [`read`](crate::Recorder::read), [`read_back`](crate::Recorder::read_back) |
//! | synchronise | [`wait`](crate::Fence::wait) for the fence that [`finish`](crate::Step::finish) returns |
//! | capture, graph launch | [`record`](crate::Engine::record), [`replay`](crate::Step::replay) |
//! | block table | [`PageTable`](crate::PageTable), [`set`](crate::PageTableView::set), [`clear`](crate::PageTableView::clear) |
//! | insert into, match in the radix tree | [`publish`](crate::PrefixCache::publish), [`lookup`](crate::PrefixCache::lookup) |
//! | preempt, swap out | [*Short of blocks*](super::requests#short-of-blocks) |
//! | a layer's weights, `layers[i]` | `layers.at(i)`, `layers.iter()`, `layers.pair(i, j)` |
//!
//! The repository's `examples/engine` is a whole engine written this way, and `examples/01-..` to `13-..` show one idea each.
