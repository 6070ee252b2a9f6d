//! How the typed core is built, and what lost.
//!
//! # One rule
//!
//! **Names may outlive, addresses may not.** Owners (the engine, streams, tickets, prefixes) are affine, `'static + Send`
//! values. An address exists only as a span, and a span is always borrowed: from a storage, a scratch frame or a pool, inside
//! a step, a load or a capture. Whoever keeps an address for longer (a graph) lives in the same engine as what it points to,
//! and holds a count on its memory. So the engine's own struct has no lifetime parameter, refers to nothing inside itself,
//! sits in an `Arc`, and crosses threads and `.await`.
//!
//! # What carries which guarantee
//!
//! | # | Illegal state | Carried by |
//! |---|---|---|
//! | a | a request's block or span used after the request; a block outliving its pool | [`Ticket`](crate::Ticket) by value, spans borrowed from pool *and* ticket |
//! | b | model-resident handles, spans or graphs surviving a swap | `end_model` takes the engine; only [`Survives`](crate::Survives) parts come back; graphs are names with a plan id |
//! | c | scratch escaping its mark, marks rewound out of order | [`ScratchFrame`](crate::ScratchFrame) splits like a slice; there is no mark |
//! | d | a graph replayed after its buffers are gone; a foreign buffer in a capture | the bundle never leaves the engine; [`Captured`](crate::Captured) brand in the span's place |
//! | e | cross-tier smuggling | [`SameTier`](crate::SameTier), [`OutlivesModel`](crate::OutlivesModel) |
//! | f | load-time staging alive while serving | staging borrows the engine, `serve` takes it |
//! | g | sharing an unshareable block; ids of two kinds mixed | [`Shareable`](crate::Shareable), [`BlockId`](crate::BlockId) by kind, written by page tables only |
//! | h | allocating inside a capture | [`OutsideCapture`](crate::OutsideCapture) |
//! | i | acquiring memory while serving | the phase traits: [`OpensMemory`](crate::OpensMemory), [`CarvesStorage`](crate::CarvesStorage) |
//! | j | growth without a planned commit | [`PlannedCommit`](crate::PlannedCommit) is made by a plan only, and used up |
//! | k | a kernel argument that is no stable span of the right element | [`Input`](crate::Input), [`SameElement`](crate::SameElement) |
//! | l | host memory in a CUDA kernel, or the other way | [`Is`](crate::Is) on the place's space |
//! | m | an output aliasing an input | outputs are `&mut view.field`, inputs `&view.field`: the borrow checker |
//! | n | a stable span made from anything else | no constructor; no way back from [`DeviceSpan`](crate::DeviceSpan) |
//! | o | a second referent without `share()` | [`BlockRef`](crate::BlockRef) is not `Clone` |
//! | p | an engine after its transition, a phase skipped | transitions take `self`; the phase is a type |
//! | q | carving what was not declared, or twice | [`Line`](crate::Line) by value; a foreign line is a typed error |
//! | r | publishing the unwritten, freeing in flight | [`Written`](crate::Written), [`Settled`](crate::Settled); page tables pin; blocks wait for the last step that could reach them |
//! | s | tokens, blocks, bytes mixed; `needed - held` | [`Tokens`](crate::Tokens), [`Blocks`](crate::Blocks), [`Bytes`](crate::Bytes) do not subtract |
//! | t | a launch wrapper whose parameters are not the kernel's | `#[kernel("file.cu", "entry")]` of `memtier-cuda` reads the source and compares number, order, address or value, `const`, element and launch bounds; the loaded function's type is the kernel's name |
//! | u | a size formula that overflows | checked shapes; [`SizeError`](crate::SizeError) names the field |
//!
//! # What stays at run time, and says so
//!
//! * An instance of the right type that is the wrong one: a stream of another engine ([`StepError`](crate::StepError)), a
//!   line of another plan ([`CarveError`](crate::CarveError)), a ticket of another pool ([`BlockError`](crate::BlockError)),
//!   a stale graph ([`ReplayError`](crate::ReplayError)).
//! * Quiescence: `drain` waits and counts once; its result is a type.
//! * How far a kernel reads and writes for a grid: no signature says it. A generated wrapper is an `unsafe fn`, or checks before each
//!   launch what its author wrote into `unsafe(requires(..))`.
//! * Device time: a step's borrows end when it is launched. Scratch and pools are bound to streams, blocks wait for fences,
//!   and steps on different streams of one engine are ordered one behind the other.
//! * What a launch really wrote: [`advance`](crate::Ticket::advance) is the author's word. The system checks that the tokens
//!   fit the blocks, that launches of that step could reach them, and that the step has ended.
//! * Allocators outside our reach are counted, and values (capacity, leaks through `mem::forget`) are values.
//!
//! # Shapes that were decided, and what lost
//!
//! **A step owns its end.** Launches count towards a step's fence only if they happened before it ended, so a recorder whose
//! step is over refuses. The alternative, a fence anywhere on the recorder, let a mark taken one line too early vouch for a
//! later write.
//!
//! **Page tables are a part, not numbers.** Kernels and graphs find blocks through ids in device memory, and nobody can see
//! from the outside which launch uses which. When ids were plain numbers, a request that was cancelled after its row had been
//! written freed blocks that the next replay wrote into. Now [`PageTable::set`](crate::PageTableView::set) pins what a row
//! names until the row is changed, ids of two kinds are two types, and scratch cannot hold ids.
//!
//! **A replay happens in a step**, with `&mut` of it: views and graph share one stream order, inputs are written and results
//! are read in the same step. The alternative, `engine.replay(..)` between two steps, had to look up everything twice and
//! left the tickets of the written table unprotected.
//!
//! **The price is kept.** Declaring lays a storage out once and the line carries the layout; carving only adds the base
//! address. Laying out again at the carve would trust that dimensions (any type, interior mutability included) say the same
//! thing twice.
//!
//! **One block is one contiguous piece**, all layers of its group in it. A slab that is layer-major outside has to grow,
//! copy, spill and save a block in as many pieces as there are layers; kernels take a base and a stride and do not care.
//!
//! **Releasing is a store.** The last referent of a block knows that it is the last and needs no read-modify-write; acquiring
//! pops a list under a spin lock and looks for released blocks only when the list runs dry. A mutex around a free list pays
//! four atomic read-modify-writes for a pair.
//!
//! **Traits that carry soundness are `unsafe` or closed.** [`Storage`](crate::Storage) and [`Bundle`](crate::Bundle) are
//! `unsafe` and written by the macros, which works under `#![forbid(unsafe_code)]`; phase traits take an argument that only
//! this crate can make, since the orphan rule would let a downstream crate implement them for `Serving<ItsBundle>`.
//!
//! **Generated code trusts no path.** `crate = path`, and `extern crate self as memtier` without it, are safe code, and can name a module that
//! has the real traits beside helpers of its own: an `Option` with two in it, a `keep` that forgets. A restriction on the path would not
//! help, as no path is surely memtier's. So the body of an `unsafe impl` calls methods of its parameters only (`cx.part(&mut self.kv)`,
//! `walk.field(..)`): the compiler holds those against the real trait's signature, and what they give back is what a field has to be. An
//! impostor's own trait may be implemented, and no engine takes it; its types do not compile; its arithmetic gives numbers, as
//! the author's own would. Methods are found on receivers for which no trait in scope is asked first. The attacks `t03` to `t17` are these.
//!
//! **Two streams at once take parts, not views.** Steps on different streams are ordered; prefill that overlaps decode is
//! [`overlap`](crate::Engine::overlap). Nothing orders its two sides, so each part of the bundle is [`Lent`](crate::Lent) to one of
//! them, by value, or [`shared`](crate::Lent::shared) and written by neither: aliasing between streams is a moved value, and a span on
//! the wrong side is a [`LaunchError::WrongStream`](crate::LaunchError::WrongStream) as everywhere. Two shapes lost. Views that both
//! sides could launch on, with the hazards tracked at each launch, would have to take a slab for all its blocks, and every KV write
//! would order the two again. Views marked anew for another stream would let a launch of the first one be missed by the second. The
//! price: a pool belongs to one side, so overlapping prefill and decode have a pool each and a finished prompt is copied over (a
//! bundle has arrays of pools), and graphs, which reach every part, are replayed in steps only. One pool on both sides needs the
//! books to say which stream reached a block, at every launch.
//!
//! **Results are read back by value.** [`read_back`](crate::Recorder::read_back) takes a pinned buffer and gives it back with proof
//! that its step is done, so step `n` is looked at while `n + 1` replays and nobody sees half a copy. A borrowed buffer would have
//! tied the step's lifetime to the next one's; a buffer that stays readable would have been written under a `&`. Dropped in flight, it
//! is kept until the copy is done.
//!
//! **A step ends on the stream it was opened on, behind what runs.** A recorder is a reference and can be exchanged for that of
//! another engine's step, whose numbers are others; and another thread may be inside an operation when a step is finished. The end
//! refuses new operations first and lets those under way come before its mark.
//!
//! **A request cannot take back what it published while launches reach it.** [`rewind`](crate::Ticket::rewind) refuses tokens in a
//! block that others refer to and a row names: the next launch would write them again. With the row cleared, setting it asks for a
//! block of its own.
//!
//! **A bundle over two spaces has one stream, and the other space is for copies.** The first part says where the bundle's stream
//! launches; parts in [`Host`](crate::Host) memory may stand beside it. Their views are taken [`Beside`](crate::Beside) the step's own
//! place, and no launch accepts that place: not the device's, whose memory it is not, and not a CPU operation's, since nothing orders
//! a host stream's operations with the device's copies. What accepts it is [`copy_across`](crate::Recorder::copy_across), a launch of
//! the bundle's stream, eager or captured. So fences, pools, graphs and drains go by one order and need to know nothing new: a
//! [`TieredCache`](crate::TieredCache) spills into host memory as it does into a second pool of the device. Two shapes lost. A step over
//! two streams would need an order between the two at every part, or views that say which stream wrote last; spans that fit any stream
//! of the engine would leave that order to the author.
//!
//! What it does not do: CPU operations never compute with the host's parts, so an engine that runs some layers on the CPU opens a
//! second engine there, as `examples/engine` does. The parts beside take no side in an [`overlap`](crate::Engine::overlap). `copy_across`
//! between two parts that are both beside is refused. A bundle that is generic over its space has all parts there: that `Host` is beside
//! `S` is known of `Cuda` only. Page tables are read by launches, so one that is beside does not compile. The
//! budget of a plan is the first space's: what is wanted beside is listed in it, and held against the host device's own budget when its
//! arenas are opened.
