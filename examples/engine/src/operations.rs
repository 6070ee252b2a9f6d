//! The operations that a pass is made of: what a device brings along to run [`forward`](crate::forward::forward).
//!
//! An operation is as large as the largest piece that some device does in one go, and says what comes next where a device does
//! that on the way: [`add`](Operations::add) names the norm through which the residual stream is read next, so the CPU quantises
//! it while the rows are in its caches, and a GPU leaves it to the projection that reads them. Which operations there are, in which
//! order and with which weights is nobody's business here: that is the model's, and stands in `forward`.

use engine_kernels::Activation;
use memtier::{
    GlobalKv, LaunchError, Packed, PageTableView, Place, Plain, PoolKind, PoolView, Recorder, ResidualKv, ScratchFrame,
    StableSpan, StableSpanMut, f16,
};

use crate::{
    arch::{Arch, LayerArch, RingArch},
    compute::Compute,
    forward::Pass,
    ops::Rope,
    streaming::Streaming,
    weights::WeightFormat,
};

/// A weight matrix.
pub type MatrixSpan<'x, P> = StableSpan<'x, Packed<WeightFormat>, P>;

/// What all launches of a pass take.
pub struct Launch<'p, C: Compute, P: Place<Space = C>> {
    /// Threads, or compiled kernels.
    pub ops: &'p C::Ops,
    /// Where they are launched.
    pub on: &'p Recorder<P>,
    /// The model.
    pub arch: &'p Arch,
    /// The sizes.
    pub pass: Pass,
}

// Not derived: places are not `Copy`.
impl<C: Compute, P: Place<Space = C>> Clone for Launch<'_, C, P> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<C: Compute, P: Place<Space = C>> Copy for Launch<'_, C, P> {}

/// Where the tokens of a pass belong.
pub struct PassRows<'p, P: Place> {
    /// Of each token: its sequence, a row of the page tables.
    pub rows: StableSpan<'p, u32, P>,
    /// Of each token: its position in that sequence.
    pub positions: StableSpan<'p, u32, P>,
    /// Of each sequence: its tokens, those of this pass included.
    pub lengths: StableSpan<'p, u32, P>,
    /// Of each sequence: the first position in its ring, where there are rings.
    pub starts: StableSpan<'p, u32, P>,
}

// Not derived: places are not `Copy`.
impl<P: Place> Clone for PassRows<'_, P> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<P: Place> Copy for PassRows<'_, P> {}

/// A layer's attention, from the residual stream to what its heads give.
pub struct Attention<'x, P: Place> {
    /// Its heads, and where its keys and values lie.
    pub layer: &'x LayerArch,
    /// Query, key and value projection.
    pub matrices: [MatrixSpan<'x, P>; 3],
    /// The norms of each query head and each key head, before they rotate.
    pub head_norms: Option<[StableSpan<'x, f32, P>; 2]>,
    /// How they rotate.
    pub rope: &'x Rope,
    /// The cosines and sines of this pass's tokens.
    pub angles: StableSpan<'x, f32, P>,
    /// The look at the first tokens, of sequences that run past their planned length.
    pub sinks: Option<Sinks<'x, P>>,
}

/// The look at the first tokens.
pub struct Sinks<'x, P: Place> {
    /// Which they are.
    pub streaming: Streaming,
    /// The cosines and sines that queries have for it.
    pub angles: StableSpan<'x, f32, P>,
}

/// Keys and values, and which of their blocks each sequence has.
pub struct Cache<'x, 'v, K: PoolKind, P: Place> {
    /// The blocks.
    pub pool: &'x mut PoolView<'v, K, P>,
    /// Their ids.
    pub table: &'x PageTableView<'v, K, P>,
}

/// Caches that a layer has beside its own.
pub struct Beside<'x, 'v, P: Place> {
    /// The latest tokens of each sequence in f16.
    pub rings: Option<(Cache<'x, 'v, ResidualKv<f16>, P>, RingArch)>,
    /// Smaller elements, for requests that started while memory was short.
    pub low: Option<Cache<'x, 'v, GlobalKv<u16>, P>>,
}

impl<P: Place> Beside<'_, '_, P> {
    /// None.
    pub const NONE: Self = Beside { rings: None, low: None };
}

/// A block of a layer that ends with a projection back to the residual stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Block {
    /// What [`attend`](Operations::attend) left.
    Attention,
    /// What [`gate`](Operations::gate) left.
    FeedForward,
}

/// A pass under way: its buffers, the residual stream among them, and the operations on them.
pub trait Operations<'p, C: Compute, P: Place<Space = C>>: Sized {
    /// The cosines and sines (tokens x `rope.dims`) of `positions`, or of their places in the look at the sinks. `factors` are the
    /// embedding's own, on a device that [keeps them](crate::weights::WeightDims::ropes) in its memory.
    ///
    /// # Errors
    /// [`LaunchError`], as with all of them.
    fn angles(
        launch: Launch<'_, C, P>,
        out: &mut StableSpanMut<'_, f32, P>,
        positions: StableSpan<'_, u32, P>,
        rope: &Rope,
        factors: Option<StableSpan<'_, f32, P>>,
        sinks: Option<Streaming>,
    ) -> Result<(), LaunchError>;

    /// Takes the buffers. `library` is what a vendor's library works in, where one is used.
    ///
    /// # Errors
    /// [`LaunchError`], of full scratch too.
    fn begin(
        launch: Launch<'p, C, P>,
        rows: PassRows<'p, P>,
        library: Option<StableSpanMut<'p, u8, P>>,
        scratch: &mut ScratchFrame<'p, P>,
    ) -> Result<Self, LaunchError>;

    /// The residual stream, tokens x hidden.
    fn residual(&mut self) -> &mut StableSpanMut<'p, f32, P>;

    /// The residual stream becomes `factor * table[token]`.
    ///
    /// # Errors
    /// [`LaunchError`].
    fn embed(
        &mut self,
        table: MatrixSpan<'_, P>,
        tokens: StableSpan<'_, u32, P>,
        factor: f32,
    ) -> Result<(), LaunchError>;

    /// What reads the residual stream next reads it through this norm.
    ///
    /// # Errors
    /// [`LaunchError`].
    fn norm(&mut self, weight: StableSpan<'p, f32, P>) -> Result<(), LaunchError>;

    /// Projects the residual stream to queries, keys and values, normalises and rotates heads, writes keys and values into `cache`
    /// and what is beside it, and looks at what is there.
    ///
    /// # Errors
    /// [`LaunchError`].
    fn attend<K: PoolKind<Element = f16>>(
        &mut self,
        attention: &Attention<'_, P>,
        cache: Cache<'_, '_, K, P>,
        beside: Beside<'_, '_, P>,
    ) -> Result<(), LaunchError>;

    /// `activation(gate x) * (up x)` of the residual stream.
    ///
    /// # Errors
    /// [`LaunchError`].
    fn gate(&mut self, matrices: [MatrixSpan<'_, P>; 2], activation: Activation) -> Result<(), LaunchError>;

    /// Adds `matrix` times what `block` left to the residual stream, through the norm `post` where there is one. What reads it next
    /// reads it through `next`.
    ///
    /// # Errors
    /// [`LaunchError`].
    fn add(
        &mut self,
        block: Block,
        matrix: MatrixSpan<'_, P>,
        post: Option<StableSpan<'_, f32, P>>,
        next: StableSpan<'p, f32, P>,
    ) -> Result<(), LaunchError>;

    /// `matrix` times the rows `picks` of the residual stream: picks x vocabulary.
    ///
    /// # Errors
    /// [`LaunchError`].
    fn logits(
        &mut self,
        out: &mut StableSpanMut<'_, f32, P>,
        matrix: MatrixSpan<'_, P>,
        picks: StableSpan<'_, u32, P>,
    ) -> Result<(), LaunchError>;

    /// `logits = cap * tanh(logits / cap)`.
    ///
    /// # Errors
    /// [`LaunchError`].
    fn softcap(&self, logits: &mut StableSpanMut<'_, f32, P>, cap: f32) -> Result<(), LaunchError>;

    /// Chooses a token for each row of `logits`, which are those of the tokens `picks`. `how` has temperature and top-p of each sequence, and
    /// top-k and the seed of each. A token is a function of its logits, its sequence's `how` and its position.
    ///
    /// # Errors
    /// [`LaunchError`].
    fn sample(
        &self,
        sampled: &mut StableSpanMut<'_, u32, P>,
        logits: &StableSpanMut<'_, f32, P>,
        picks: StableSpan<'_, u32, P>,
        how: (StableSpan<'_, f32, P>, StableSpan<'_, u32, P>),
    ) -> Result<(), LaunchError>;
}

/// The first `units` of a buffer that is large enough by construction.
pub(crate) fn head<'x, T: Plain, P>(
    span: &'x mut StableSpanMut<'_, T, P>,
    units: usize,
) -> Result<StableSpanMut<'x, T, P>, LaunchError> {
    let expected = span.len();
    span.range(0..units).ok_or(LaunchError::Shape { what: "scratch buffer", expected, found: units })
}

/// The same of a span that is read.
pub(crate) fn part<'x, T: Plain, P: Place>(
    span: StableSpan<'x, T, P>,
    units: usize,
) -> Result<StableSpan<'x, T, P>, LaunchError> {
    span.range(0..units).ok_or(LaunchError::Shape { what: "workspace", expected: span.len(), found: units })
}
