//! The error index: what the compiler says about a misuse, why it is one, and the right program.
//!
//! Find your message by its first line. Types in it are written out by the compiler: a `..` below stands for them. Messages that
//! memtier words itself are on this page; where only the compiler can speak (a moved value, a borrow that lasts too long, two
//! types that differ), look in [compiler_errors](super::compiler_errors). [cases](super::cases) lists a program for each that is
//! kept as a test, with its legal twin, and [first_errors](super::first_errors) prints five messages in full.
//!
//! The setting of the examples: an engine of a bundle `B`, its stream, and requests.
//!
//! # Phases
//!
//! An engine is `Loading`, then `Planning`, then `Serving`. Each method says in its bound which phases it makes sense in.
//!
//! ## nothing can be declared or planned in phase `{Self}`
//!
//! The planner compares *everything* that will be wanted with the budget, once. A line declared afterwards would be memory that
//! nobody checked, so `declare`, `declare_bundle`, `keep`, `revise` and `plan` are for `Loading`. While `Serving`, a request gets
//! blocks with [`extend`](crate::Ticket::extend), a forward pass gets [`scratch`](crate::ScratchFrame::take), and a new buffer
//! waits for the next model.
//!
//! ```
//! # use memtier::{BlockPool, Engine, GlobalKv, Limits, Line, Loading, PoolSpec, Refused, Stream, StreamSpec, Host};
//! # fn show(mut engine: Engine<Loading>, pool: PoolSpec, stream: StreamSpec, limits: Limits) -> Result<(), Refused> {
//! let kv: Line<BlockPool<GlobalKv<f32>>> = engine.declare(pool);
//! let stream: Line<Stream<Host>> = engine.declare(stream);
//! let engine = engine.plan(limits)?; // from here on the lines are claims, and there are no more
//! # let _ = (kv, stream, engine); Ok(()) }
//! ```
//!
//! ## storage cannot be carved in phase `{Self}`
//!
//! Carving turns plan lines into memory: there must be a plan, and it must not have been carved. The order is `declare`, `plan`,
//! `carve`, `serve`. An engine has one bundle; for a second model see [*Two models*](super::engine_author#two-models).
//!
//! ```
//! # use memtier::{Engine, Limits, Lines, Loading};
//! # fn show<L: Lines + 'static>(engine: Engine<Loading>, lines: L, limits: Limits) -> Result<(), Box<dyn std::error::Error>> {
//! let engine = engine.plan(limits)?.carve(lines)?.serve()?;
//! # let _ = engine; Ok(()) }
//! ```
//!
//! ## memory cannot be acquired in phase `{Self}`
//!
//! Streams (with their scratch) and pinned buffers are opened between `plan` and `serve`, from lines of the plan. An engine that
//! could open one more while serving could run out of memory while serving.
//!
//! ```
//! # use memtier::{CarveError, Engine, Host, Line, Pinned, Planning, Stream};
//! # fn show(engine: &mut Engine<Planning>, stream: Line<Stream<Host>>, pinned: Line<Pinned<u8>>) -> Result<(), CarveError> {
//! let stream = engine.open_stream(stream)?;
//! let pinned = engine.pin(pinned)?;
//! # let _ = (stream, pinned); Ok(()) }
//! ```
//!
//! ## nothing can be loaded in phase `{Self}`
//!
//! Uploads and host staging belong between `carve` and `serve`: before, there is nothing to load into, and afterwards weights
//! are read-only and host staging is gone.
//!
//! ```
//! # use memtier::{Bundle, Engine, Host, Planning, Stream};
//! # fn show<B: Bundle>(mut engine: Engine<Planning<B>>, stream: &mut Stream<B::Space>) -> Result<(), Box<dyn std::error::Error>> {
//! {
//!     let load = engine.load(stream)?;
//!     let tensor = load.staging.take::<f32>(64)?; // fill it, then `tensor.upload(load.on, &mut load.buffers..)`
//! #   let _ = tensor;
//! }
//! let engine = engine.serve()?;
//! # let _ = engine; Ok(()) }
//! ```
//!
//! ## serving cannot start from phase `{Self}`
//!
//! Only a carved plan serves: see *storage cannot be carved* for the order.
//!
//! ## an engine in phase `{Self}` owns no buffers
//!
//! Steps, captures and replays work on the bundle, which exists from `carve` to `end_model`. A graph goes with the model that it
//! was recorded for; record it again for the next one. `Serving<Drained<..>>` in the message: the engine was drained,
//! [`resume`](crate::Engine::resume) it.
//!
//! ```
//! # use memtier::{Bundle, Engine, LaunchError, Serving, Stream};
//! # fn show<B: Bundle>(engine: &mut Engine<Serving<B>>, stream: &mut Stream<B::Space>) -> Result<(), Box<dyn std::error::Error>> {
//! let graph = engine.record(stream, |_step| Ok::<(), LaunchError>(()))?;
//! engine.step(stream)?.replay(graph)?;
//! # Ok(()) }
//! ```
//!
//! ## an engine in phase `{Self}` is not serving
//!
//! Requests come in (`bundle`) and leave (`drain`) while `Serving`. While `Planning`, `load` and `step` reach the buffers; after a
//! `drain`, [`resume`](crate::Engine::resume) serves again.
//!
//! ## a model cannot end in phase `{Self}`
//!
//! Ending a model frees its weights. `drain` first waits for every stream and counts every pool's blocks; its result is the proof,
//! as a type. When requests are still there, the engine comes back with the error, still serving.
//!
//! ```
//! # use memtier::{Bundle, DrainError, Engine, Loading, Serving};
//! # fn show<B: Bundle>(engine: Engine<Serving<B>>) -> Result<(Engine<Loading>, B::Kept), DrainError<B>> {
//! Ok(engine.drain()?.end_model())
//! # }
//! ```
//!
//! ## `{Self}` is not a bundle
//!
//! Steps, graphs and `serve` work on a struct with `#[graph_captured]`, once its lines are carved. `Uncarved` in the message: carve
//! first. A storage is not a bundle: make it a field of one.
//!
//! ```
//! # use memtier::{BlockPool, GlobalKv, graph_captured, tier};
//! # #[derive(Clone, Copy)] struct Dims { hidden: usize }
//! #[tier(ModelResident, dims = Dims)]
//! struct Weights { #[shape(hidden)] scale: f32 }
//!
//! #[graph_captured]
//! struct Model { weights: Weights, kv: BlockPool<GlobalKv<f32>> }
//! ```
//!
//! ## `{Self}` is not what a bundle is carved from
//!
//! `declare_bundle` returns one struct with a line for each part, and `carve` takes all of it. The lines of streams and pinned
//! buffers are not among them: `engine.open_stream(line)` and `engine.pin(line)` take those.
//!
//! ## `{Self}` cannot implement this trait: memtier closed it
//!
//! What a phase, a space, a tier, a place, an element or a pool kind is decides what safe code may do with memory, so these traits
//! are implemented here and nowhere else. An engine's own element format is a [`Packed`](crate::Packed) tensor with a
//! [`PackedFormat`](crate::PackedFormat), which is open.
//!
//! # Tiers and swaps
//!
//! ## `{Self}` storage does not survive a model swap
//!
//! Something wants storage that is there for ever, and this one goes with its model. Declare it again for the next model, or give
//! it `#[tier(EnginePersistent, ..)]` if its contents do not depend on the model.
//!
//! ## `{Self}` did not survive the model swap
//!
//! `end_model` returns, for each part, what its tier lets survive: itself, or a [`Gone`](crate::Gone). There is nothing to keep in a
//! `Gone`; declare the part anew.
//!
//! ```
//! # use memtier::{Declare, Engine, KeepError, Line, Loading, Storage, Survives};
//! # fn show<W: Storage, K: Survives>(mut engine: Engine<Loading>, work: K, old: K::Spec, new: W::Dims) -> Result<(), KeepError<K>> {
//! let weights: Line<W> = engine.declare(new); // the next model's
//! let work = engine.keep(work, &old)?; // where it was
//! # let _ = (weights, work); Ok(()) }
//! ```
//!
//! ## `{Self}` storage inside `{Other}` storage
//!
//! A struct is carved from one arena. A nested struct of another tier would be freed with the wrong one: give both the same tier,
//! or make them two fields of the bundle.
//!
//! ## `{Self}` cannot be a field of `{T}` storage with dims `{D}`
//!
//! A field without `#[shape(..)]` is a nested storage, of the same tier and with the same dims.
//!
//! * It is a number or an array of numbers: say how many, `#[shape(rows, columns)] query: f32`.
//! * It is a struct of yours: annotate it with the same tier.
//! * Its dims are others: `#[dims(expression)]` says which.
//!
//! ## `{Self}` cannot be a field of `{T}` storage
//!
//! The same, for a field that says `#[dims(..)]`.
//!
//! ## `{Self}` is not `{D}`, the dims of this storage
//!
//! What `#[dims(..)]` names must be the dims of the nested storage, or a reference to them: a field or a method of the outer dims.
//!
//! ```
//! # use memtier::tier;
//! #[derive(Clone, Copy)]
//! struct Expert { hidden: usize }
//! #[derive(Clone, Copy)]
//! struct Dims { experts: usize, expert: Expert }
//!
//! #[tier(ModelResident, dims = Expert)]
//! struct ExpertWeights { #[shape(hidden, hidden)] up: f32 }
//!
//! #[tier(ModelResident, dims = Dims)]
//! struct Layer {
//!     #[dims(expert)]
//!     experts: [ExpertWeights; experts],
//! }
//! ```
//!
//! ## `{Self}` is neither a storage nor another part of a bundle
//!
//! A bundle is all that a graph may bake, and all that the plan pays for, so it holds storages, pools and page tables, and
//! `Option`, `Vec` and arrays of them. Host memory lives in the engine's own struct.
//!
//! ## a part in `{Self}` memory, in a bundle whose first part is in `{Other}` memory
//!
//! The first part of a bundle says where its stream launches, and the other parts are there too. The one exception is `Host` memory
//! beside a device's: the device's stream copies to and from it. So put the device's part first; or give all parts the same space, best
//! as a parameter.
//!
//! ```
//! # use memtier::{BlockPool, GlobalKv, Host, Space, graph_captured, tier};
//! # #[derive(Clone, Copy)] struct Dims { hidden: usize }
//! # #[tier(ModelResident, dims = Dims)] struct Weights { #[shape(hidden)] scale: f32 }
//! #[graph_captured]
//! struct Model<S: Space = Host> {
//!     weights: Weights<S>,
//!     kv: BlockPool<GlobalKv<f32>, S>,
//! }
//! ```
//!
//! # Elements and shapes
//!
//! ## `{Self}` is not an element type that device memory can hold
//!
//! Device memory starts out with whatever was there, so every bit pattern of an element must be a value: numbers, packed 4-bit
//! pairs, GGUF blocks. `bool`, `usize`, references and structs are none.
//!
//! ## `{Self}` is not an element that has a size of its own
//!
//! Scratch, plain shaped fields and pinned buffers need a fixed size for each element. A [`Packed`](crate::Packed) tensor has one that
//! its format knows; a [`BlockId`](crate::BlockId) is written by page tables only, and what scratch holds would be taken for some.
//!
//! ## `{Self}` has its own size
//!
//! `#[format(..)]` is for `Packed<..>` fields.
//!
//! ## a shape cannot calculate with `{Self}`
//!
//! Shapes are made of plain numbers of one type. Calculate with anything else in a method of the dims, and name the method.
//!
//! ```
//! # use memtier::tier;
//! #[derive(Clone, Copy)]
//! struct Dims { hidden: usize, ratio: f64 }
//! impl Dims {
//!     fn inner(&self) -> usize { (self.hidden as f64 * self.ratio) as usize }
//! }
//!
//! #[tier(ModelResident, dims = Dims)]
//! struct Mlp { #[shape(inner(), hidden)] up: f32 }
//! ```
//!
//! ## a shape cannot calculate this with `{Self}`
//!
//! Shifts and rounding work on integers without a sign; see the message before.
//!
//! ## this many bytes leave the range of 64 bits
//!
//! A constant like `Bytes::gib(1 << 40)` does not exist. A number that comes from outside is multiplied with
//! [`times`](crate::Bytes::times), which is checked.
//!
//! ## `{Unit}` is calculated with methods, not with operators
//!
//! `needed - held` is negative when a request holds more than it needs, and then wraps: that is how block counters of other engines
//! broke. [`beyond`](crate::Blocks::beyond) is never negative, [`minus`](crate::Blocks::minus), [`plus`](crate::Blocks::plus) and
//! [`times`](crate::Blocks::times) are checked, and one unit becomes another by a function that says how.
//!
//! ```
//! # use memtier::{Blocks, Overflow, Tokens};
//! # fn show(tokens: Tokens, per_block: Tokens, held: Blocks) -> Result<(), Overflow> {
//! let needed = tokens.in_blocks_of(per_block);
//! let missing = needed.beyond(held);
//! let spare = held.plus(Blocks::new(1))?.beyond(needed);
//! # let _ = (missing, spare); Ok(()) }
//! ```
//!
//! # Launches
//!
//! ## a kernel cannot read `{Self}`
//!
//! A launch runs after the call has returned, and a captured one runs again at every replay. Only a
//! [`StableSpan`](crate::StableSpan) promises that the address is good for that long. A slice or a `Vec` is copied in with
//! [`write`](crate::Recorder::write) first; a [`DeviceSpan`](crate::DeviceSpan) is for bookkeeping.
//!
//! ```
//! # use memtier::{Eager, Host, LaunchError, Recorder, StableSpanMut};
//! # fn launch(_: &Recorder<Eager<Host>>, _: &mut StableSpanMut<'_, f32, Eager<Host>>, _: &StableSpanMut<'_, f32, Eager<Host>>) {}
//! # fn show(on: &Recorder<Eager<Host>>, out: &mut StableSpanMut<'_, f32, Eager<Host>>, bias: &mut StableSpanMut<'_, f32, Eager<Host>>) -> Result<(), LaunchError> {
//! on.write(bias, &[0.5; 64])?; // not `launch(on, out, &[0.5; 64])`
//! launch(on, out, bias);
//! # Ok(()) }
//! ```
//!
//! ## a product cannot read `{Self}`
//!
//! Of `memtier-cuda`. `Matrix::new`, `TiledMatrix::new`, `Inputs::plain` and `Inputs::normed` keep an address for a launch, so they take what
//! a kernel reads: a `StableSpan`, or `&` of a write view, of the element that is named. `widen` is not undone: take the span from
//! `step.buffers` or from scratch again. Weights of few bits are bytes that `tile` has made, and a `TiledMatrix`.
//!
//! ## the attention kernels have no cache of `{Self}`
//!
//! Of `memtier-cuda`. Attention has kernels for pools of `bf16`, `f16` and `F8E4M3`. Layers of Q8_0 and NVFP4 lie in a pool of `f16`, and
//! `PagedKv::packed` says so by layer.
//!
//! ## a kernel cannot write `{Self}`
//!
//! Kernels write a `StableSpanMut`: `&mut` of a field of `step.buffers`, of a pool's block or of scratch. A read view stays one:
//! weights are read-only from `serve` on. Host values go in with `write` first, as for *a kernel cannot read*. A span in a `Box` or
//! behind another reference is named itself: `&mut *span`.
//!
//! ```
//! # use memtier::{LaunchError, Output, Place, Recorder, StableSpan, StableSpanMut};
//! fn launch<P: Place>(on: &Recorder<P>, out: &mut impl Output<f32, P>) -> Result<(), LaunchError> {
//!     let out: StableSpanMut<'_, f32, P> = out.span(); // of the launch's own element and place
//! #     let _ = (on, out); Ok(())
//! }
//! # fn show<P: Place>(on: &Recorder<P>, hidden: &mut StableSpanMut<'_, f32, P>, weight: StableSpan<'_, f32, P>) -> Result<(), LaunchError> {
//! launch(on, hidden)?; // not `launch(on, &mut weight)`
//! # let _ = weight; Ok(()) }
//! ```
//!
//! ## the kernel takes `{Other}` elements, this span holds `{Self}`
//!
//! Spans are never reinterpreted. Convert with a kernel, or give the field the element that the kernel takes. Block ids count as
//! elements of their pool's kind, so a page table of another kind is refused here, too.
//!
//! ## `{Self}` memory where `{Other}` memory is needed
//!
//! A kernel, the recorder it is launched on and every span it takes are in one memory space. Copy across with `write` and `read`, or
//! keep the storage where the kernel runs.
//!
//! ## a span of one step, capture or load is used by a launch of another
//!
//! A view belongs to the step, load or capture that handed it out: take it from there, and launch on the same one's `on`.
//!
//! ## `{Self}` is no argument of a CPU operation
//!
//! Each span of a CPU operation says how it is used, so that two outputs cannot be one buffer: `output`, `input`, `packed` and `table`
//! say it, a pool's slab says it by `&` or `&mut`. Numbers are moved into the body.
//!
//! ## `{Self}` is no list of arguments of a CPU operation
//!
//! The arguments are a tuple, of one to eleven, and the body takes the tuple of their slices.
//!
//! ```
//! # use memtier::{Eager, Host, LaunchError, Recorder, StableSpanMut, input, output};
//! # fn show(on: &Recorder<Eager<Host>>, out: &mut StableSpanMut<'_, f32, Eager<Host>>, x: &StableSpanMut<'_, f32, Eager<Host>>) -> Result<(), LaunchError> {
//! on.host_op((output::<f32, _, _>(out),), |(out,)| {
//!     out.fill(0.0);
//!     Ok(())
//! })?;
//! let factor = 2.0;
//! on.host_op((output::<f32, _, _>(out), input::<f32, _, _>(x)), move |(out, x)| {
//!     out.iter_mut().zip(x).for_each(|(out, x)| *out += factor * x);
//!     Ok(())
//! })
//! # }
//! ```
//!
//! ## the host does not look into a span
//!
//! A span is an address of the device, where launches may be in flight. What the host wants to see is copied, in stream order, and
//! so is what it wants to have there. On the CPU the body of an operation gets slices.
//!
//! ```
//! # use memtier::{Eager, Host, LaunchError, Recorder, StableSpanMut};
//! # fn show(on: &Recorder<Eager<Host>>, tokens: &mut StableSpanMut<'_, u32, Eager<Host>>, logits: &StableSpanMut<'_, f32, Eager<Host>>) -> Result<(), LaunchError> {
//! on.write(tokens, &[17, 4])?; // not `tokens[0] = 17`
//! let mut seen = vec![0.0; logits.len()];
//! on.read::<f32>(logits, &mut seen)?; // waits for what runs; `read_back` does not
//! # Ok(()) }
//! ```
//!
//! ## one of an array of storages is taken with `at`
//!
//! Views of nested storages are made when somebody asks for them: `layers.at(3)`, an `Option`; `layers.iter()` over read views,
//! `layers.iter_mut()` over write views; `layers.pair(0, 1)` writes two at once.
//!
//! ## host memory beside the device's is used by a launch
//!
//! A part in `Host` memory of a bundle whose first part is a device's is reached by copies of the device's stream, which order it with
//! the launches. A CPU operation, on whatever stream, would not be ordered with those copies. Bring over what is computed with, or give
//! CPU operations a bundle in `Host` memory.
//!
//! ```
//! # use memtier::{Beside, Cuda, Eager, LaunchError, Recorder, StableSpan, StableSpanMut};
//! # type P = Eager<Cuda>;
//! # fn launch(_: &Recorder<P>, _: &mut StableSpanMut<'_, f32, P>) -> Result<(), LaunchError> { Ok(()) }
//! # fn show(on: &Recorder<P>, layer: &mut StableSpanMut<'_, f32, P>, cold: StableSpan<'_, f32, Beside<P>>) -> Result<(), LaunchError> {
//! on.copy_across(layer, cold)?; // not `launch(on, cold)`
//! launch(on, layer)
//! # }
//! ```
//!
//! ## a launch at `{Launch}` cannot use a span taken at `{Self}`
//!
//! In code that is generic over the place `P`: spans and recorder have the same `P`. A span of `Beside<P>` is copied over first. No
//! `where` clause helps: whoever calls could not satisfy it.
//!
//! ## copies of this recorder do not reach `{Self}`
//!
//! [`copy_across`](crate::Recorder::copy_across) takes spans of one step: of its stream's memory, and of host memory beside it in the
//! same bundle. Memory of another engine is ordered by that engine's steps; go through the host with `read` and `write`.
//!
//! ## a page table is beside the device that reads it: give it `Cuda` memory
//!
//! Kernels read block ids from the table, and `set` writes them in the stream's order. Found where code is generated (E0080), since
//! only then the spaces are known.
//!
//! # Captures
//!
//! ## this buffer is not owned by the bundle being captured
//!
//! A graph keeps addresses for as long as it lives, so it lives in the engine that owns them, and only the views of the step that
//! the closure receives can be baked. A buffer of another engine, of an eager step or of a load could be gone at the next replay. To
//! capture another buffer, make its storage a field of the bundle.
//!
//! ```
//! # use memtier::{Bundle, Engine, Host, LaunchError, RecordError, Serving, Stream};
//! # fn show<B: Bundle<Space = Host>>(engine: &mut Engine<Serving<B>>, stream: &mut Stream<Host>) -> Result<(), RecordError> {
//! engine.record(stream, |step| {
//!     let mut rows = step.scratch.take::<f32>(64)?; // the capture's own
//!     let other = step.scratch.take::<f32>(64)?;
//!     step.on.copy::<f32>(&mut rows, &other)
//! })?;
//! # Ok(()) }
//! ```
//!
//! ## this cannot be done inside a graph capture or a load
//!
//! While recording, nothing runs: a value that the host writes or reads, a block of one request, a row of a page table or a nested
//! replay would be frozen into the graph. Do it in the step around the replay, in stream order. While loading, host memory goes in
//! through staging, which is gone before serving.
//!
//! ```
//! # use memtier::{Bundle, Eager, Engine, Graph, Serving, Step, Stream};
//! # fn inputs<B: Bundle>(_: &mut Step<'_, B, Eager<B::Space>>) {}
//! # fn show<B: Bundle>(engine: &mut Engine<Serving<B>>, stream: &mut Stream<B::Space>, graph: Graph<B>) -> Result<(), Box<dyn std::error::Error>> {
//! let mut step = engine.step(stream)?;
//! inputs(&mut step); // `on.write(&mut work.tokens, ..)`, `table.set(on, row, &request)`
//! step.replay(graph)?; // sees them
//! let fence = step.finish()?;
//! # let _ = fence; Ok(()) }
//! ```
//!
//! # Requests and blocks
//!
//! ## `{Self}` is no kind of pool
//!
//! A pool says what its blocks hold and how they are used: `BlockPool<GlobalKv<f16>>` grows with the context and shares prefixes,
//! `SwaKv` is a window, `RecurrentState` and `ResidualKv` are one block a sequence.
//!
//! ## `{Self}` blocks must stay unshared
//!
//! The blocks of a sliding window are overwritten in place when positions leave the window: a second referent would see another
//! position's values. Only append-only kinds share a prefix.
//!
//! ## a request's tokens are published with proof that they are in memory
//!
//! A prefix that is published before its launches are done gives other requests garbage. Waiting for the fence of the step that
//! wrote the tokens gives the proof.
//!
//! ```
//! # use memtier::{Fence, GlobalKv, Prefix, Ticket};
//! # fn show(request: &Ticket<GlobalKv<f32>>, fence: Fence) -> Result<Prefix<GlobalKv<f32>>, Box<dyn std::error::Error>> {
//! let settled = fence.wait()?;
//! let prefix = request.written(&settled)?.publish();
//! # Ok(prefix) }
//! ```
//!
//! # Messages of the macros
//!
//! `#[tier(..)]` and `#[graph_captured]` mark the token that is wrong and say what to write instead; all mistakes of a declaration are
//! reported at once, and the declaration is still there for everybody who uses it. They need no entry here.
