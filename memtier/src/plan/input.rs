//! What the planner is told: the operator's configuration, the limits of the machine, and what wants memory.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use super::kv::KvDtype;
use crate::units::{Blocks, Bytes, Layers, Overflow, Tokens};

/// The name of a plan line. Cloning never copies the text.
///
/// ```
/// use memtier::plan::Name;
/// assert_eq!(&*Name::from("model weights"), "model weights");
/// assert_eq!(Name::from("a"), Name::from(String::from("a")));
/// ```
#[derive(Clone)]
pub struct Name(Text);

#[derive(Clone)]
enum Text {
    Static(&'static str),
    Shared(Arc<str>),
}

impl Name {
    /// A name known at compile time.
    pub const fn fixed(name: &'static str) -> Self {
        Self(Text::Static(name))
    }
}

impl Deref for Name {
    type Target = str;

    fn deref(&self) -> &str {
        match &self.0 {
            Text::Static(text) => text,
            Text::Shared(text) => text,
        }
    }
}

impl From<&'static str> for Name {
    fn from(text: &'static str) -> Self {
        Self::fixed(text)
    }
}

impl From<String> for Name {
    fn from(text: String) -> Self {
        Self(Text::Shared(text.into()))
    }
}

impl From<Arc<str>> for Name {
    fn from(text: Arc<str>) -> Self {
        Self(Text::Shared(text))
    }
}

impl PartialEq for Name {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Name {}

impl std::hash::Hash for Name {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self)
    }
}

/// How long a demand lives, and with it who hands its memory out. Declared in the order in which grants are made.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub enum Tier {
    /// Nobody's arena: context, library reserve, graphs, what others hold. Subtracted before anything is distributed.
    Reserve,
    /// The process; survives a model swap.
    EnginePersistent,
    /// Model load to unload.
    ModelResident,
    /// One forward pass.
    ForwardScratch,
    /// One request, from a pool of equal blocks.
    Pooled,
    /// Host memory of the load only. Listed, never charged against the device budget.
    HostStaging,
    /// Pinned host memory of the process. Listed, never charged against the device budget.
    HostPinned,
}

impl Tier {
    /// Every tier, in the order in which grants are made.
    pub const ALL: [Tier; 7] = [
        Tier::Reserve,
        Tier::EnginePersistent,
        Tier::ModelResident,
        Tier::ForwardScratch,
        Tier::Pooled,
        Tier::HostStaging,
        Tier::HostPinned,
    ];

    /// The name in reports and in the machine form.
    pub const fn name(self) -> &'static str {
        match self {
            Tier::Reserve => "reserve",
            Tier::EnginePersistent => "engine-persistent",
            Tier::ModelResident => "model-resident",
            Tier::ForwardScratch => "forward-scratch",
            Tier::Pooled => "pooled",
            Tier::HostStaging => "host-staging",
            Tier::HostPinned => "host-pinned",
        }
    }

    /// Whether this is host memory whatever space a demand names.
    pub const fn is_host(self) -> bool {
        matches!(self, Tier::HostStaging | Tier::HostPinned)
    }
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// What happens when a demand cannot be met.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Need {
    /// The configuration is refused.
    Mandatory,
    /// It is left out, or cut down when it is made of blocks: a weight cache is speed, not correctness.
    OptionalCache,
    /// It must fit while the model loads, in memory that later belongs to pools and optional caches, and is charged to
    /// nobody afterwards.
    Transient,
}

impl Need {
    /// The name in reports and in the machine form.
    pub const fn name(self) -> &'static str {
        match self {
            Need::Mandatory => "mandatory",
            Need::OptionalCache => "optional",
            Need::Transient => "transient",
        }
    }
}

/// How much a demand asks for.
///
/// ```
/// use memtier::plan::Amount;
/// use memtier::{Blocks, Bytes, Tokens};
///
/// // Blocks of 16 tokens in 1152 KiB: one sequence of 4096 tokens at least, eight at most.
/// let pool = Amount::elastic_pool(Bytes::kib(1152), Tokens::new(16), Blocks::new(256), Blocks::new(2048));
/// assert_eq!(pool.least()?, Bytes::mib(288));
/// # Ok::<(), memtier::Overflow>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Amount {
    /// All of it or nothing.
    Bytes(Bytes),
    /// Equal blocks: at least `floor`, at best `most`.
    Blocks {
        /// Size of one block, over all the layers it spans.
        block: Bytes,
        /// Tokens in one block; zero when its blocks are not made of tokens (state slabs, expert slots).
        tokens: Tokens,
        /// Fewer than this is a refusal (for a KV pool: one sequence of the advertised length), or, for an optional
        /// cache, no cache at all. A floor above `most` raises `most`.
        floor: Blocks,
        /// More than this the configuration cannot use.
        most: Blocks,
        /// A grant between `floor` and `most` is a multiple of this: the commit chunk of a growable pool, in blocks.
        /// Zero counts as one.
        step: Blocks,
    },
}

impl Amount {
    /// A pool of exactly `count` blocks.
    pub const fn fixed_pool(block: Bytes, tokens: Tokens, count: Blocks) -> Self {
        Amount::Blocks { block, tokens, floor: count, most: count, step: Blocks::new(1) }
    }

    /// A pool that may get anything from `floor` to `most` blocks.
    pub const fn elastic_pool(block: Bytes, tokens: Tokens, floor: Blocks, most: Blocks) -> Self {
        Amount::Blocks { block, tokens, floor, most, step: Blocks::new(1) }
    }

    /// The least that satisfies the demand.
    ///
    /// # Errors
    /// [`Overflow`] when that is past `u64::MAX` bytes.
    pub const fn least(self) -> Result<Bytes, Overflow> {
        match self {
            Amount::Bytes(bytes) => Ok(bytes),
            Amount::Blocks { block, floor, .. } => block.times(floor.count()),
        }
    }
}

/// One thing that wants memory.
///
/// ```
/// use memtier::plan::{Demand, Tier};
/// use memtier::Bytes;
///
/// let weights = Demand::bytes("model weights", Tier::ModelResident, "cuda", Bytes::mib(4076));
/// let cache = Demand::bytes("decode cache", Tier::ModelResident, "cuda", Bytes::mib(2158)).optional();
/// assert_ne!(weights.need, cache.need);
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Hash)]
pub struct Demand {
    /// What it is, in the operator's words.
    pub name: Name,
    /// How long it lives.
    pub tier: Tier,
    /// Which memory it wants. Charged against the device budget when this is [`Limits::space`].
    pub space: &'static str,
    /// How much.
    pub amount: Amount,
    /// What happens when there is not enough.
    pub need: Need,
}

impl Demand {
    /// A mandatory demand for some bytes.
    pub fn bytes(name: impl Into<Name>, tier: Tier, space: &'static str, bytes: Bytes) -> Self {
        Self { name: name.into(), tier, space, amount: Amount::Bytes(bytes), need: Need::Mandatory }
    }

    /// A mandatory pool.
    pub fn pool(name: impl Into<Name>, space: &'static str, amount: Amount) -> Self {
        Self { name: name.into(), tier: Tier::Pooled, space, amount, need: Need::Mandatory }
    }

    /// The same demand as an optional cache.
    #[must_use]
    pub fn optional(mut self) -> Self {
        self.need = Need::OptionalCache;
        self
    }

    /// The same demand for the time of the load only.
    #[must_use]
    pub fn transient(mut self) -> Self {
        self.need = Need::Transient;
        self
    }
}

/// What the operator asks for. The levers of a refusal are changes of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Config {
    /// Sequences served at once.
    pub max_batch: u64,
    /// The advertised context of one sequence.
    pub max_seq_len: Tokens,
    /// Tokens in one KV block.
    pub block_tokens: Tokens,
    /// Prompt tokens in one forward pass.
    pub prefill_chunk: Tokens,
    /// Element type of the KV cache.
    pub kv_dtype: KvDtype,
    /// The element types the engine can store KV in: what the KV lever may suggest.
    pub kv_dtypes: &'static [KvDtype],
    /// Whether weight caches are built.
    pub weight_caches: bool,
    /// Whether the vision tower is loaded.
    pub vision: bool,
    /// Draft tokens in one speculative step; zero is off.
    pub speculative_depth: u64,
    /// Blocks of the model on the device, a prefix; `None` is all of them.
    pub gpu_layers: Option<Layers>,
    /// Blocks the model has. Zero when unknown: then layers are no lever.
    pub layers: Layers,
}

impl Default for Config {
    /// One sequence of 4096 tokens, blocks of 16, chunks of 512, `f16` KV, weight caches, no extras.
    fn default() -> Self {
        Self {
            max_batch: 1,
            max_seq_len: Tokens::new(4096),
            block_tokens: Tokens::new(16),
            prefill_chunk: Tokens::new(512),
            kv_dtype: KvDtype::F16,
            kv_dtypes: &KvDtype::ALL,
            weight_caches: true,
            vision: false,
            speculative_depth: 0,
            gpu_layers: None,
            layers: Layers::ZERO,
        }
    }
}

/// Which levers the user set by hand. They are named in a refusal and never suggested.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub struct Locks {
    /// [`Config::max_batch`] stays.
    pub max_batch: bool,
    /// [`Config::max_seq_len`] stays.
    pub max_seq_len: bool,
    /// [`Config::prefill_chunk`] stays.
    pub prefill_chunk: bool,
    /// [`Config::kv_dtype`] stays.
    pub kv_dtype: bool,
    /// [`Config::weight_caches`] stays.
    pub weight_caches: bool,
    /// [`Config::vision`] stays.
    pub vision: bool,
    /// [`Config::speculative_depth`] stays.
    pub speculative_depth: bool,
    /// [`Config::gpu_layers`] stays.
    pub gpu_layers: bool,
    /// [`Limits::budget`] stays.
    pub budget: bool,
}

/// Where the figure for the library reserve comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub enum ReserveSource {
    /// A constant for a machine never seen.
    #[default]
    Assumed,
    /// Measured on an earlier start of this machine.
    Remembered,
    /// Measured on this start.
    Measured,
}

impl ReserveSource {
    /// The name in reports and in the machine form.
    pub const fn name(self) -> &'static str {
        match self {
            ReserveSource::Assumed => "assumed",
            ReserveSource::Remembered => "remembered",
            ReserveSource::Measured => "measured",
        }
    }
}

/// What the machine offers and what is gone before the engine asks for anything.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Limits {
    /// The memory the budget counts. Demands for another space, and the host tiers, are listed but not charged.
    pub space: &'static str,
    /// What context, reserve and all demands may take together.
    pub budget: Bytes,
    /// What the rest may take; `None` is unlimited.
    pub host_budget: Option<Bytes>,
    /// Driver and primary context.
    pub context: Bytes,
    /// What the vendor's libraries claim on first use.
    pub library_reserve: Bytes,
    /// Where that figure comes from.
    pub library_source: ReserveSource,
    /// Other live bytes: what survives a model swap, streams, other processes.
    pub held: Bytes,
    /// Graphs that may exist at once.
    pub graphs: u32,
    /// Measured cost of one graph.
    pub graph_bytes: Bytes,
    /// Measured cost of the first graph beyond that: the pool that all share.
    pub graph_shared: Bytes,
}

impl Limits {
    /// A budget of `budget` bytes of `space`, nothing taken from it.
    pub const fn new(space: &'static str, budget: Bytes) -> Self {
        Self {
            space,
            budget,
            host_budget: None,
            context: Bytes::ZERO,
            library_reserve: Bytes::ZERO,
            library_source: ReserveSource::Assumed,
            held: Bytes::ZERO,
            graphs: 0,
            graph_bytes: Bytes::ZERO,
            graph_shared: Bytes::ZERO,
        }
    }
}

/// The demands under another configuration. Pure: equal configurations give equal demands.
pub type Reprice<'a> = &'a dyn Fn(&Config) -> Result<Vec<Demand>, Overflow>;

/// All that [`plan_memory`](super::plan_memory) looks at.
///
/// ```
/// use memtier::plan::{Amount, Config, Demand, Knob, Limits, PlanInput, Value, plan_memory};
/// use memtier::{Bytes, Overflow, Tokens};
///
/// // What the engine wants, as a function of the configuration: the planner calls it to find levers.
/// let price = |config: &Config| -> Result<Vec<Demand>, Overflow> {
///     let blocks = config.max_seq_len.in_blocks_of(config.block_tokens);
///     Ok(vec![Demand::pool("KV", "cuda", Amount::fixed_pool(Bytes::mib(1), config.block_tokens, blocks))])
/// };
/// let config = Config { max_seq_len: Tokens::new(16_384), ..Config::default() };
/// let demands = price(&config)?;
/// let limits = Limits::new("cuda", Bytes::mib(700));
/// let input = PlanInput { reprice: Some(&price), ..PlanInput::new(limits, config, &demands) };
///
/// let refused = plan_memory(&input).expect_err("1024 blocks of 1 MiB");
/// let lever = refused.levers()[0];
/// assert_eq!((lever.knob, lever.to, lever.fits), (Knob::MaxSeqLen, Value::Count(10_240), true));
/// # Ok::<(), Overflow>(())
/// ```
#[derive(Clone, Copy)]
pub struct PlanInput<'a> {
    /// The machine.
    pub limits: Limits,
    /// What the operator asks for.
    pub config: Config,
    /// What the operator insists on.
    pub locks: Locks,
    /// What wants memory under `config`.
    pub demands: &'a [Demand],
    /// The demands under another configuration, to compute levers. Called on a refusal only.
    pub reprice: Option<Reprice<'a>>,
}

impl<'a> PlanInput<'a> {
    /// An input without locks or levers.
    pub const fn new(limits: Limits, config: Config, demands: &'a [Demand]) -> Self {
        const FREE: Locks = Locks {
            max_batch: false,
            max_seq_len: false,
            prefill_chunk: false,
            kv_dtype: false,
            weight_caches: false,
            vision: false,
            speculative_depth: false,
            gpu_layers: false,
            budget: false,
        };
        Self { limits, config, locks: FREE, demands, reprice: None }
    }
}

impl fmt::Debug for PlanInput<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PlanInput")
            .field("limits", &self.limits)
            .field("config", &self.config)
            .field("locks", &self.locks)
            .field("demands", &self.demands)
            .field("reprice", &self.reprice.is_some())
            .finish()
    }
}
