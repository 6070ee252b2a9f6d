//! The legal base that the misuse programs start from: a small model with every tier, in host memory and in (simulated) CUDA
//! memory.

pub mod cuda;
pub mod host;

use memtier::*;

/// What programs return.
pub type Error = Box<dyn std::error::Error + Send + Sync>;

/// The numbers that the shapes are made of.
#[derive(Clone, Copy, Debug)]
pub struct Dims {
    /// Elements of a row.
    pub hidden: usize,
    /// Layers.
    pub layers: usize,
    /// Rows of the embedding.
    pub vocab: usize,
    /// Sequences.
    pub max_batch: usize,
}

/// One layer.
#[tier(ModelResident, dims = Dims)]
pub struct LayerWeights {
    /// Query projection.
    #[shape(hidden, hidden)]
    pub query: f32,
    /// Output projection.
    #[shape(hidden, hidden)]
    pub output: f32,
}

/// The weights: gone with the model.
#[tier(ModelResident, dims = Dims)]
pub struct LlamaWeights {
    /// Embedding, also the head.
    #[shape(vocab, hidden)]
    pub embed: f32,
    /// Layers.
    pub layers: [LayerWeights; layers],
}

/// What every step writes: survives a model swap.
#[tier(EnginePersistent, dims = Dims)]
pub struct DecodeWorkspace {
    /// One token a sequence.
    #[shape(max_batch)]
    pub tokens: u32,
    /// One row a sequence.
    #[shape(max_batch, hidden)]
    pub hidden: f32,
    /// One row a sequence.
    #[shape(max_batch, hidden)]
    pub attn: f32,
    /// One row a sequence.
    #[shape(max_batch, vocab)]
    pub logits: f32,
}

/// Everything the engine owns for one model.
#[graph_captured]
pub struct Llama<S: Space = Host> {
    /// Weights.
    pub weights: LlamaWeights<S>,
    /// Workspace.
    pub work: DecodeWorkspace<S>,
    /// KV over the whole context.
    pub kv: BlockPool<GlobalKv<f32>, S>,
    /// Sliding-window KV.
    pub window: BlockPool<SwaKv<f32>, S>,
    /// Blocks of `kv` that each sequence has.
    pub table: PageTable<GlobalKv<f32>, S>,
    /// Blocks of `window` that each sequence has.
    pub recent: PageTable<SwaKv<f32>, S>,
}

/// Eight elements a row, two layers, eight sequences.
pub const DIMS: Dims = Dims { hidden: 8, layers: 2, vocab: 32, max_batch: 8 };
/// One token a block; 64 blocks from the start, 96 in the end.
pub const POOL: PoolSpec = PoolSpec {
    per_block: Tokens::new(1),
    block_elements: 8,
    floor: Blocks::new(64),
    initial: Blocks::new(64),
    most: Blocks::new(96),
    step: Blocks::new(16),
};
/// A row for each sequence, four blocks long.
pub const TABLE: TableSpec = TableSpec { rows: 8, columns: 4 };
/// One stream's scratch.
pub const STREAM: StreamSpec = StreamSpec { scratch: Bytes::kib(16) };

/// A megabyte of `S` memory and two graphs.
pub fn limits<S: Space>() -> Limits {
    Limits { graphs: 2, graph_bytes: Bytes::kib(4), ..Limits::new(S::NAME, Bytes::mib(1)) }
}

/// The same, as a request.
pub fn request<S: Space>() -> PlanRequest<'static> {
    limits::<S>().into()
}

/// The size of each part.
pub fn spec<S: Space>() -> LlamaSpec<S> {
    LlamaSpec { weights: DIMS, work: DIMS, kv: POOL, window: POOL, table: TABLE, recent: TABLE }
}

/// A device of `S` memory whose launches are done when they return.
pub fn device<S: Space>() -> Device {
    Device::new(FakeBackend::<S>::new(), Bytes::mib(1))
}

/// A device is open.
pub fn loading() -> Engine<Loading> {
    Engine::open(&Device::new(HostBackend::new(), Bytes::mib(1)))
}

/// One line for each part of the bundle.
pub fn declare<S: Space>(engine: &mut Engine<Loading>) -> LlamaLines<S> {
    engine.declare_bundle::<Llama<S>>(spec())
}

/// A plan was accepted.
pub fn planning() -> (Engine<Planning>, LlamaLines, Line<Stream<Host>>) {
    planning_on(&Device::new(HostBackend::new(), Bytes::mib(1)))
}

/// The same on a device of one's own.
pub fn planning_on<S: Space>(device: &Device) -> (Engine<Planning>, LlamaLines<S>, Line<Stream<S>>) {
    let mut engine = Engine::open(device);
    let (lines, stream) = (declare(&mut engine), engine.declare(STREAM));
    (engine.plan(limits::<S>()).expect("the plan fits"), lines, stream)
}

/// The bundle is carved.
pub fn carved() -> (Engine<Planning<Llama>>, Stream<Host>) {
    carved_on(&Device::new(HostBackend::new(), Bytes::mib(1)))
}

/// The same on a device of one's own.
pub fn carved_on<S: Space>(device: &Device) -> (Engine<Planning<Llama<S>>>, Stream<S>) {
    let (engine, lines, stream) = planning_on(device);
    carve(engine, lines, stream)
}

fn carve<L: Lines, S: Space>(
    engine: Engine<Planning>,
    lines: L,
    stream: Line<Stream<S>>,
) -> (Engine<Planning<L::Bundle>>, Stream<S>) {
    let mut engine = engine.carve(lines).expect("the lines are this plan's");
    let stream = engine.open_stream(stream).expect("the line is this plan's");
    (engine, stream)
}

/// A model is being served.
pub fn serving() -> (Engine<Serving<Llama>>, Stream<Host>) {
    serving_on(&Device::new(HostBackend::new(), Bytes::mib(1)))
}

/// The same on a device whose launches are done when, and only when, a fence behind them is waited for.
pub fn serving_late() -> (Engine<Serving<Llama>>, Stream<Host>) {
    serving_on(&Device::new(FakeBackend::<Host>::asynchronous(), Bytes::mib(1)))
}

/// The same in CUDA memory.
pub fn serving_cuda() -> (Engine<Serving<Llama<Cuda>>>, Stream<Cuda>) {
    serving_on(&device::<Cuda>())
}

/// The same on a device of one's own.
pub fn serving_on<S: Space>(device: &Device) -> (Engine<Serving<Llama<S>>>, Stream<S>) {
    let (engine, stream) = carved_on(device);
    (engine.serve().expect("nothing fails while loading"), stream)
}

/// A request that holds one block of the global pool.
pub fn ticket<S: Space>(engine: &Engine<Serving<Llama<S>>>) -> Ticket<GlobalKv<f32>> {
    let mut ticket = engine.bundle().kv.open(Tokens::new(4));
    ticket.extend(Tokens::new(1)).expect("a block is free");
    ticket
}

/// A request that holds one block of the sliding-window pool.
pub fn window_ticket<S: Space>(engine: &Engine<Serving<Llama<S>>>) -> Ticket<SwaKv<f32>> {
    let mut ticket = engine.bundle().window.open(Tokens::new(4));
    ticket.extend(Tokens::new(1)).expect("a block is free");
    ticket
}

/// A request whose only token is in memory, with the proof of it.
pub fn written(
    engine: &mut Engine<Serving<Llama>>,
    stream: &mut Stream<Host>,
) -> Result<(Ticket<GlobalKv<f32>>, memtier::Settled), Error> {
    let mut ticket = ticket(engine);
    let mut step = engine.step(stream)?;
    step.on.write(&mut step.buffers.kv.block_mut(&mut ticket, 0)?, &[1.0; 8])?;
    let fence = step.finish()?;
    ticket.advance(Tokens::new(1), &fence)?;
    Ok((ticket, fence.wait()?))
}

/// The forward pass of a small model, eager and captured.
pub fn forward<P: Place<Space = Host>>(step: &mut Step<'_, Llama, P>) -> Result<(), LaunchError> {
    let Step { buffers: LlamaView { weights, work, kv, table, .. }, on, scratch, .. } = step;
    let mut scratch = scratch.nested();
    let mut query = scratch.take::<f32>(DIMS.max_batch * DIMS.hidden)?;
    host::embed(on, &mut work.hidden, weights.embed, &work.tokens)?;
    for layer in weights.layers.iter() {
        host::matmul(on, DIMS.max_batch, &mut query, layer.query, &work.hidden)?;
        host::write_kv(on, &mut kv.slab_mut(), table.ids(), &query)?;
        host::attend(on, &mut work.attn, &query, &kv.slab(), table.ids())?;
        host::matmul(on, DIMS.max_batch, &mut query, layer.output, &work.attn)?;
        host::add_assign(on, &mut work.hidden, &query)?;
    }
    host::matmul(on, DIMS.max_batch, &mut work.logits, weights.embed, &work.hidden)
}

/// The same in CUDA memory: one launch is enough.
pub fn forward_cuda<P: Place<Space = Cuda>>(step: &mut Step<'_, Llama<Cuda>, P>) -> Result<(), LaunchError> {
    let Step { buffers: LlamaView { work, .. }, on, .. } = step;
    cuda::add_assign(on, &mut work.hidden, &work.attn)
}

/// A format that only a model file knows.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Format;

impl PackedFormat for Format {
    fn bytes(&self, shape: &[usize]) -> Option<Bytes> {
        shape.iter().try_fold(1u64, |product, dim| product.checked_mul(*dim as u64)).map(Bytes::new)
    }
}

/// How a program ended, for the runner of the twins.
pub trait Outcome {
    /// What went wrong.
    fn failure(self) -> Option<String>;
}

impl Outcome for () {
    fn failure(self) -> Option<String> {
        None
    }
}

impl<T, E: std::fmt::Debug> Outcome for Result<T, E> {
    fn failure(self) -> Option<String> {
        self.err().map(|error| format!("{error:?}"))
    }
}

/// The element of the global pool's page table.
pub type KvId = BlockId<GlobalKv<f32>>;
