//! The error index, second half: misuses that the compiler explains in its own words.
//!
//! A moved value, a borrow that lasts too long and two types that differ are found before any bound is looked at, so no sentence
//! of ours can be there. What is wrong is then said by the names in the message: the verb that was called, and the two types. Each
//! entry has the error code, what it means here, what to write instead, and the [cases](super::cases) that show it.
//!
//! # Used up: E0382, *use of moved value*
//!
//! Engines, lines, commits, proofs, tickets and steps are values that one call uses up: a phase is left once, a plan line pays for
//! one piece of memory, a commit grows once, a proof publishes once. Use what the call returned instead.
//!
//! ```
//! # use memtier::{Bundle, Engine, Planning, QueueError, Serving};
//! # fn show<B: Bundle>(engine: Engine<Planning<B>>) -> Result<Engine<Serving<B>>, QueueError> {
//! let engine = engine.serve()?; // the name is the next phase's now
//! # Ok(engine) }
//! ```
//!
//! * A transition takes the engine: `phase/engine-used-after-its-transition`, `graph/replay-after-the-engine-is-gone`.
//! * A line is carved once, a part is kept once: `phase/line-carved-twice`, `phase/part-kept-twice`.
//! * A planned commit grows once: `kv/planned-commit-used-twice`.
//! * A request that was dropped or retired has no blocks: `kv/ticket-used-after-drop`, `kv/ticket-used-after-retire`.
//! * A finished step launches nothing, its fence stands behind everything: `kv/step-used-after-finish`.
//! * In an overlap of two streams a part goes to one side (or is `shared`, and read on both): `launch/overlap-part-on-both-sides`.
//! * A pinned buffer that the device writes comes back with proof, `late.take(&settled)?`: `kv/read-back-seen-before-it-is-there`.
//! * A proof is used up by publishing; ask `written` again: `kv/published-twice-on-one-proof`.
//!
//! # Still in use: E0505, *cannot move out of .. because it is borrowed*, and E0597, *does not live long enough*
//!
//! Addresses are borrowed from whoever can end them. The message names three places: where the borrow began (`step`, `load`,
//! `block`), where the owner goes (`serve`, `drain`, `drop`, `retire`, `finish`), and where the address is used afterwards. Move the
//! last use before the end, or end later.
//!
//! ```
//! # use memtier::{Bundle, Engine, Planning, Stream};
//! # fn show<B: Bundle>(mut engine: Engine<Planning<B>>, stream: &mut Stream<B::Space>) -> Result<(), Box<dyn std::error::Error>> {
//! {
//!     let load = engine.load(stream)?;
//!     // .. uploads ..
//! #   drop(load);
//! } // views and staging end here
//! let engine = engine.serve()?;
//! # let _ = engine; Ok(()) }
//! ```
//!
//! * Staging and write views of a load end before `serve`: `phase/staging-alive-at-serve`,
//!   `phase/staging-buffer-alive-at-serve`, `phase/write-view-of-weights-kept-while-serving`, `phase/serve-with-a-step-open`.
//! * Weights end with `end_model`, and no thread or static keeps them: `phase/weights-span-after-end-model`,
//!   `tier/weights-span-in-another-thread`, `tier/leaked-span-in-a-static`. A scoped thread may borrow.
//! * A step ends before its engine, so only a scoped thread launches in it: `launch/step-in-a-spawned-thread`.
//! * A block's span ends with its request, its pool and its step: `kv/block-span-after-retire`, `kv/block-span-outlives-pool`,
//!   `kv/block-span-outlives-request`, `kv/block-kept-after-finish`. Keep the ticket, not the span.
//! * A proof ends with its request: `kv/written-outlives-its-ticket`.
//! * A step's views are no longer than the step: `attacks/s17-shorter-views-in-a-longer-step`.
//! * Scratch ends with its step and its stream: `scratch/scratch-span-outlives-its-stream`, `scratch/scratch-in-another-thread`.
//!
//! E0515, *cannot return value referencing*, is the same across a function's end: a span of a nested frame cannot be returned past it,
//! take it from the caller's frame: `scratch/nested-frame-returned`.
//!
//! # Two at a time: E0499, *mutable more than once*, and E0502, *also borrowed as*
//!
//! An output is `&mut view.field`, an input `&view.field`, and a step is `&mut` of engine and stream. Two of them at a time would be a
//! launch that overwrites what it reads, or two passes over one workspace.
//!
//! ```
//! # use memtier::{Eager, Host, LaunchError, Recorder, StableSpanMut};
//! # struct Work<'a> { hidden: StableSpanMut<'a, f32, Eager<Host>>, attn: StableSpanMut<'a, f32, Eager<Host>> }
//! # fn show(on: &Recorder<Eager<Host>>, work: &mut Work<'_>) -> Result<(), LaunchError> {
//! on.copy::<f32>(&mut work.attn, &work.hidden)?; // two fields: disjoint
//! if let Some((mut head, tail)) = work.hidden.reborrow().split_at(32) {
//!     on.copy::<f32>(&mut head, &tail)?; // two halves: disjoint
//! }
//! # Ok(()) }
//! ```
//!
//! * An output that is an input: `launch/output-aliases-an-input`, `graph/output-aliases-an-input-in-a-capture`,
//!   `launch/copy-onto-itself`, `launch/two-outputs-into-one-buffer`, `launch/slab-read-while-written`,
//!   `span/read-view-while-written`. Take another buffer, or scratch.
//! * Parts that may overlap: `span/ranges-that-overlap` (use `split_at`), `span/two-layers-by-index` (use `pair`),
//!   `kv/two-blocks-of-one-ticket-written`, `kv/block-copied-onto-itself` (two requests are needed, or `copy_pair`).
//! * A view that is held over a replay, which may write it: `launch/view-alive-across-a-replay`. Take it again afterwards.
//! * Two steps over one bundle or one stream: `launch/two-steps-at-once`, `launch/stream-shared-by-two-engines`,
//!   `launch/step-while-an-overlap-is-open`. Finish the first, or take both streams at once: `engine.overlap(..)`.
//! * The engine while it records: `graph/step-in-a-capture`, `graph/pinned-buffer-in-a-capture`. Do it before or after.
//! * The engine while a span of its last step is used: `span/span-used-after-its-step`, `scratch/scratch-span-outlives-its-step`. Take
//!   the span from the step that uses it.
//! * A scratch frame while a nested one is in use: `scratch/scratch-span-outlives-its-nested-frame`,
//!   `scratch/marks-rewound-out-of-order`. Frames nest.
//! * A request while a span of its block or a proof about it is out: `kv/block-extended-under-its-span`,
//!   `kv/request-extended-while-proof-is-out`, `kv/request-taken-out-under-its-span`. Publish first, then extend.
//! * Spans that are collected over several steps (*mutably borrowed in the previous iteration*): `span/spans-of-many-steps`. Each step
//!   takes its own.
//!
//! # Taken out of its place: E0507, *cannot move out of*
//!
//! Referents, write views and frames are not `Copy`: there is one of each, and the ways to another one are named (`share`, `reborrow`,
//! `nested`). Parts never leave the bundle, which keeps them where graphs know them.
//!
//! * `kv/block-ref-copied`: `share()`, which counts.
//! * `span/write-view-copied`: `reborrow()`, for a shorter time. `scratch/frame-copied`: `nested()`.
//! * `phase/weights-moved-out-of-the-bundle`, `kv/pool-moved-out-of-the-bundle`: borrow, or take the pool's `handle()`.
//! * `attacks/p2-context-leaked-into-a-view`: the right to take spans is lent for one view.
//!
//! E0596, *cannot borrow as mutable*, is the same for writing: `phase/part-swapped-out-of-the-bundle` (parts are not exchanged),
//! `graph/replay-through-a-shared-engine` (a step needs the engine by `&mut`; requests need only `bundle`), `launch/body-writes-an-input`
//! (declare it as an [`output`](crate::output)).
//!
//! # Out of its closure or struct: E0521, *borrowed data escapes*, E0373, *may outlive*, and E0106, *missing lifetime specifier*
//!
//! What a capture lends is branded with that capture, and what a CPU operation's body is lent ends with the body. A struct that lives
//! longer than a step cannot hold a span: keep names (tickets, graphs, streams) and take addresses in each step.
//!
//! ```
//! # use memtier::{Bundle, Engine, GlobalKv, Graph, Serving, Stream, Ticket};
//! struct Decoder<B: Bundle> {
//!     requests: Vec<Ticket<GlobalKv<f32>>>,
//!     decode: Graph<B>,
//!     stream: Stream<B::Space>,
//!     engine: Engine<Serving<B>>,
//! }
//! ```
//!
//! * `graph/captured-span-escapes`, `graph/recorder-escapes`, `scratch/captured-scratch-escapes`: use it inside.
//! * `graph/two-captures-mixed`: each capture uses its own `step.on` and views.
//! * `launch/body-keeps-a-slice`: copy what must stay. `launch/body-borrows-the-stack`: `move` plain values into the body, which a graph
//!   keeps.
//! * *Implementation of `FnOnce` is not general enough*: a capture's body must work for every brand. Write the closure in the call, annotate
//!   its argument (`|step: &mut Step<'_, Model, Captured<'_, Host>>|`), or use a function: `attacks/s18-brand-chosen-by-the-caller`.
//! * `span/span-stored-in-the-engine-struct`, `scratch/frame-kept-in-a-struct`: a struct that lives inside one step may have a lifetime.
//!
//! # Another type: E0308, *mismatched types*
//!
//! The last line says which type is expected and which was found; the two names are the explanation.
//!
//! * `expected Line<..>`: a line of another storage or space, or no line at all. Declare what you carve: `phase/line-of-another-storage`,
//!   `phase/line-of-another-space`, `phase/undeclared-storage-carved`, `phase/gone-in-a-line` (what is `Gone` is declared again),
//!   `phase/line-cloned` (a line is a claim, and claims are not copied).
//! * *Types differ in mutability*, `expected &mut _`: an output is `&mut` of a write view, `launch/kernel-writes-a-shared-view`,
//!   `kv/block-written-through-a-shared-ticket`. `expected &mut StableSpanMut<..>`: ids of a page table are written by `set` and
//!   `clear`, `kv/staged-ids`.
//! * `expected Ticket<GlobalKv<..>>, found Ticket<SwaKv<..>>` and the like: requests, tables, slabs and commits belong to one kind of
//!   pool. `kv/pool-kinds-mixed`, `kv/pool-elements-mixed`, `kv/table-row-of-another-kind`, `kv/slab-of-another-kind-to-a-kernel`,
//!   `kv/planned-commit-of-another-kind`, `attacks/a09-ids-of-two-pool-kinds-mixed`.
//! * `expected PlannedCommit<..>, found Blocks`: a pool grows by what the plan paid for, `pool.planned_commit()`:
//!   `kv/growth-without-a-planned-commit`.
//! * `expected &Settled, found &Fence`: a fence proves nothing until it was waited for, `fence.wait()?`: `kv/written-without-waiting`,
//!   `kv/retire-with-an-unwaited-fence`, `kv/read-back-taken-with-a-fence`. `expected &Fence`: `advance` wants the fence of the step that wrote, `step.finish()?`:
//!   `kv/advance-with-a-proof`, `kv/advance-inside-the-step`.
//! * `expected Tokens, found Blocks` and the like: quantities have units. `kv/blocks-for-tokens`, `kv/tokens-for-blocks`,
//!   `kv/number-for-tokens`, `kv/bytes-plus-blocks`, `kv/layers-for-bytes`, `kv/tokens-compared-with-blocks`,
//!   `macros/shape-calculated-with-bytes`. Convert with a function that says how: `tokens.in_blocks_of(per_block)`.
//! * `expected StableSpan<..>`: there is no way from an address or a device span to a stable span, nor from one place to another.
//!   `span/stable-span-from-a-device-span`, `span/stable-span-from-a-raw-pointer`, `span/places-exchanged`.
//! * `expected Matrix<'_, Captured<..>>, found Matrix<'_, Eager<..>>`: a matrix is of the place that its span was taken at. Make it in
//!   `record`, from the capture's own view: `graph/matrix-of-a-step-in-a-capture`.
//! * `expected Owned<.., EnginePersistent>`: a field belongs to one tier. `tier/resident-field-in-a-persistent-slot`.
//! * `expected Graph<..>`, `Stream<..>`: a graph belongs to its bundle, a stream to a space. `graph/graph-of-another-bundle`,
//!   `launch/stream-of-another-space`.
//! * Elements: `launch/wrong-element-from-the-host`, `phase/upload-of-other-elements`.
//! * The body of a CPU operation and its arguments: `launch/body-without-an-argument`, `launch/body-of-other-elements`. The body takes a
//!   tuple with one slice for each argument, in their order.
//! * *Similar names, but actually distinct types*, in a declaration: the path after `crate =`, or a crate that is called `memtier`, has other
//!   things of the names that the macro uses. Name memtier itself: `attacks/t03-option-that-stands-in`, `attacks/t04-array-that-stands-in`,
//!   `attacks/t09-crate-called-memtier`, `attacks/t11-field-that-stands-in`, `attacks/t12-lending-that-stands-in`,
//!   `attacks/t17-field-of-ones-own`. The same as *incompatible type for trait* (E0053), `attacks/t14-context-that-stands-in`,
//!   `attacks/t16-result-that-stands-in`, and as *`memtier::Place` is not satisfied* (E0277), `attacks/t07-place-that-stands-in`.
//! * A layout is no storage: `attacks/p1-dry-storage-kept-at-address-zero`. What a macro returns from a shape is its value:
//!   `attacks/t02-layout-returned-by-a-macro`.
//!
//! E0368, *binary assignment operation cannot be applied*: quantities are added by methods, which are checked, `done = done.plus(more)?`:
//! `kv/tokens-counted-up-in-place`.
//!
//! E0271, *type mismatch resolving `<f16 as KvElement>::Query == bf16`*: attention takes queries of the element that goes with the pool, bf16
//! for a pool of bf16, f16 for f16 and F8E4M3. Have `rope_kv_write` write them as such: `kv/queries-of-another-element-than-the-cache`.
//!
//! E0061 and E0063, *missing*: an argument or a field is left out that the system needs. `kv/retire-without-a-fence` (a proof),
//! `phase/kept-part-without-a-size` (what the next model wants), `phase/part-without-a-line` and `phase/part-without-a-size` (a part that
//! nobody declared).
//!
//! # Which type: E0282 and E0283, *type annotations needed*
//!
//! The body of a capture says how it can fail, and nothing else does: `engine.record::<Model, LaunchError, _>(&mut stream, |step| ..)`, or
//! `Ok::<(), LaunchError>(())` at its end. The element of `take`, `read` and `copy` is named where no argument says it: `scratch.take::<f32>(n)`,
//! `on.copy::<f32>(to, from)`. `async` bodies are none: an operation runs when the device comes to it, and a graph again and again.
//!
//! # Not there: E0599, *no method named*, and private names (E0423, E0451, E0616, E0624, E0422, E0425)
//!
//! Some things are not there on purpose.
//!
//! * `clone`: `kv/block-ref-cloned` (`share()`), `kv/prefix-cloned` (`open()` a request on it), `kv/ticket-cloned`, `span/write-view-cloned`
//!   (`reborrow()`, or `read().clone()` to read), `tier/storage-cloned` (device memory is paid for once).
//! * Writing from a read view: `span/write-from-a-read-view`.
//! * Growing, recording, marking or taking scratch from where it cannot be ordered: `kv/pool-grown-by-its-handle`,
//!   `graph/graph-recorded-by-a-request`, `attacks/r04-marks-made-by-hand`, `scratch/stack-taken-from-the-stream`.
//! * Constructors. Lines, spans, proofs, fences, commits, referents and graphs are made by those who can vouch for them:
//!   `phase/line-forged`, `span/stable-span-from-parts`, `span/raw-span-forged`, `span/context-forged`, `span/lending-forged`,
//!   `tier/owned-forged`,
//!   `kv/settled-forged`, `kv/fence-forged`, `kv/written-of-another-ticket`, `kv/planned-commit-forged`, `kv/block-ref-forged`,
//!   `graph/graph-forged`.
//! * Fields of storages, which have an address only in a step: `span/field-of-the-bundle-as-a-span`, and the engine's own:
//!   `attacks/a13-graph-moved-to-another-engine`.
//! * Phases of one's own. Phase traits take an argument that only memtier can make: `phase/phase-implemented-downstream`,
//!   `attacks/a11-weights-written-while-serving`, `attacks/a12-part-swapped-out-under-a-graph`, `attacks/a27-phase-skipped`.
//!
//! # Traits of others: E0117, E0119, E0200, E0133 and *implementation of an `unsafe` trait*
//!
//! Traits that memory safety rests on are `unsafe` to implement, and the macros implement them, also in a crate that forbids unsafe code.
//!
//! * `tier/storage-implemented-by-hand`, `tier/storage-implemented-with-unsafe`, `attacks/p3-bundle-view-is-the-bundle`: annotate with
//!   `#[tier(..)]` or `#[graph_captured]`.
//! * `attacks/a02-backend-forges-addresses`, `attacks/a01-munmap-anything-through-backend`: a backend promises what the trait lists.
//! * `kv/kind-declared-shareable`, `tier/survival-claimed-downstream`, `tier/tier-of-ones-own`: whether blocks may be shared, and what
//!   survives a swap, follows from kind and tier.
//!
//! # Not found: E0433, *cannot find `memtier` in the crate root*
//!
//! Your Cargo.toml calls memtier by another name, or another crate re-exports it. Say where it is, at each declaration:
//! `#[tier(ModelResident, dims = Dims, crate = renamed)]`, `#[graph_captured(crate = framework::memory)]`. That no attribute `__mt_tier` or
//! `__mt_bundle` is found says the same.
//!
//! # In declarations: E0609, E0080, and syntax
//!
//! * `macros/dims-without-the-field`: a lower-case name in a shape is a field (or a method) of the dims.
//! * `macros/constant-dimension-overflows`, `macros/constant-parameter-overflows`: a constant that does not exist. With const parameters it
//!   is found where an instance is built, by `cargo build` and not by `cargo check`.
//! * `macros/half-typed-field`: the compiler's own syntax error; the rest of the declaration is still there for its users.
