//! What to change: every lever is tried by planning again, so a lever that is printed as enough is enough.

use std::fmt;

use super::input::{Config, Limits, Locks, PlanInput};
use super::kv::KvDtype;
use super::solve::{Least, least};
use crate::units::{Bytes, Layers, Tokens};

/// A setting the operator can change.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub enum Knob {
    /// [`Config::vision`]
    Vision,
    /// [`Config::weight_caches`]
    WeightCaches,
    /// [`Config::kv_dtype`]
    KvDtype,
    /// [`Config::speculative_depth`]
    SpeculativeDepth,
    /// [`Config::prefill_chunk`]
    PrefillChunk,
    /// [`Config::gpu_layers`]
    GpuLayers,
    /// [`Config::max_batch`]
    MaxBatch,
    /// [`Config::max_seq_len`]
    MaxSeqLen,
    /// [`Limits::budget`]
    Budget,
    /// [`Limits::host_budget`]
    HostBudget,
}

/// The knobs of a configuration. In a pair the first is turned coarsely and the second exactly, so the fine ones are last.
const CONFIG_KNOBS: [Knob; 8] = [
    Knob::Vision,
    Knob::WeightCaches,
    Knob::KvDtype,
    Knob::SpeculativeDepth,
    Knob::PrefillChunk,
    Knob::GpuLayers,
    Knob::MaxBatch,
    Knob::MaxSeqLen,
];

/// The smallest prompt chunk a lever suggests, in tokens: one tile of the usual attention kernels.
const SMALLEST_CHUNK: u64 = 16;

impl Knob {
    /// The name in reports and in the machine form.
    pub const fn name(self) -> &'static str {
        match self {
            Knob::Vision => "vision",
            Knob::WeightCaches => "weight_caches",
            Knob::KvDtype => "kv_dtype",
            Knob::SpeculativeDepth => "speculative_depth",
            Knob::PrefillChunk => "prefill_chunk",
            Knob::GpuLayers => "gpu_layers",
            Knob::MaxBatch => "max_batch",
            Knob::MaxSeqLen => "max_seq_len",
            Knob::Budget => "budget",
            Knob::HostBudget => "host_budget",
        }
    }

    const fn locked(self, locks: &Locks) -> bool {
        match self {
            Knob::Vision => locks.vision,
            Knob::WeightCaches => locks.weight_caches,
            Knob::KvDtype => locks.kv_dtype,
            Knob::SpeculativeDepth => locks.speculative_depth,
            Knob::PrefillChunk => locks.prefill_chunk,
            Knob::GpuLayers => locks.gpu_layers,
            Knob::MaxBatch => locks.max_batch,
            Knob::MaxSeqLen => locks.max_seq_len,
            Knob::Budget | Knob::HostBudget => locks.budget,
        }
    }

    /// How many notches it can be turned down; none when there is nothing to turn.
    fn notches(self, config: &Config) -> u64 {
        match self {
            Knob::Vision => config.vision.into(),
            Knob::WeightCaches => config.weight_caches.into(),
            Knob::KvDtype => smaller_dtypes(config).count() as u64,
            Knob::SpeculativeDepth => config.speculative_depth,
            Knob::PrefillChunk => {
                config.prefill_chunk.count().max(SMALLEST_CHUNK).ilog2().saturating_sub(SMALLEST_CHUNK.ilog2()).into()
            }
            Knob::GpuLayers => layers_on_device(config),
            Knob::MaxBatch => config.max_batch.saturating_sub(1),
            Knob::MaxSeqLen => config.max_seq_len.in_blocks_of(config.block_tokens).count().saturating_sub(1),
            Knob::Budget | Knob::HostBudget => 0,
        }
    }

    /// The value of this knob turned down by `notch`.
    fn lowered(self, config: &Config, notch: u64) -> Value {
        match self {
            _ if notch == 0 => self.value(config),
            Knob::Vision | Knob::WeightCaches => Value::Switch(false),
            Knob::KvDtype => {
                let index = usize::try_from(notch - 1).unwrap_or(usize::MAX);
                Value::Dtype(smaller_dtypes(config).nth(index).unwrap_or(config.kv_dtype))
            }
            Knob::SpeculativeDepth => Value::Count(config.speculative_depth.saturating_sub(notch)),
            Knob::PrefillChunk => Value::Count((config.prefill_chunk.count() >> notch.min(63)).max(SMALLEST_CHUNK)),
            Knob::GpuLayers => Value::Count(layers_on_device(config).saturating_sub(notch)),
            Knob::MaxBatch => Value::Count(config.max_batch.saturating_sub(notch).max(1)),
            Knob::MaxSeqLen => {
                let blocks = config.max_seq_len.in_blocks_of(config.block_tokens).count().saturating_sub(notch);
                // At most the current length, which did not overflow.
                Value::Count(blocks.max(1).saturating_mul(config.block_tokens.count().max(1)))
            }
            Knob::Budget | Knob::HostBudget => self.value(config),
        }
    }

    /// The configuration with this knob turned down by `notch`.
    fn turned(self, config: &Config, notch: u64) -> Config {
        let mut turned = *config;
        if notch > 0 {
            self.set(&mut turned, self.lowered(config, notch));
        }
        turned
    }

    fn set(self, config: &mut Config, value: Value) {
        match (self, value) {
            (Knob::Vision, Value::Switch(on)) => config.vision = on,
            (Knob::WeightCaches, Value::Switch(on)) => config.weight_caches = on,
            (Knob::KvDtype, Value::Dtype(dtype)) => config.kv_dtype = dtype,
            (Knob::SpeculativeDepth, Value::Count(count)) => config.speculative_depth = count,
            (Knob::PrefillChunk, Value::Count(count)) => config.prefill_chunk = Tokens::new(count),
            (Knob::GpuLayers, Value::Count(count)) => config.gpu_layers = Some(Layers::new(count)),
            (Knob::MaxBatch, Value::Count(count)) => config.max_batch = count,
            (Knob::MaxSeqLen, Value::Count(count)) => config.max_seq_len = Tokens::new(count),
            _ => {}
        }
    }

    /// A notch a little further down that reads better: a context length with few significant bits, at most an eighth
    /// shorter.
    fn rounded(self, config: &Config, notch: u64) -> u64 {
        if self != Knob::MaxSeqLen {
            return notch;
        }
        let per_block = config.block_tokens.count().max(1);
        let tokens = self.turned(config, notch).max_seq_len.count();
        let step = ((1 << tokens.max(1).ilog2()) / 8).max(per_block);
        let blocks = (tokens - tokens % step) / per_block;
        (config.max_seq_len.in_blocks_of(config.block_tokens).count()).saturating_sub(blocks.max(1)).max(notch)
    }

    fn value(self, config: &Config) -> Value {
        match self {
            Knob::Vision => Value::Switch(config.vision),
            Knob::WeightCaches => Value::Switch(config.weight_caches),
            Knob::KvDtype => Value::Dtype(config.kv_dtype),
            Knob::SpeculativeDepth => Value::Count(config.speculative_depth),
            Knob::PrefillChunk => Value::Count(config.prefill_chunk.count()),
            Knob::GpuLayers => Value::Count(layers_on_device(config)),
            Knob::MaxBatch => Value::Count(config.max_batch),
            Knob::MaxSeqLen => Value::Count(config.max_seq_len.count()),
            Knob::Budget | Knob::HostBudget => Value::Bytes(Bytes::ZERO),
        }
    }

    /// What the operator loses, in thousandths of what was asked for; a switch counts as half.
    fn loss(self, from: &Config, to: &Config) -> u64 {
        let cut = |from: u64, to: u64| {
            u64::try_from(u128::from(from.saturating_sub(to)) * 1000 / u128::from(from.max(1))).unwrap_or(1000)
        };
        match (self.value(from), self.value(to)) {
            (Value::Count(from), Value::Count(to)) => cut(from, to),
            (Value::Dtype(from), Value::Dtype(to)) => cut(from.bytes_of_32(), to.bytes_of_32()),
            _ => 500,
        }
    }
}

impl fmt::Display for Knob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

fn smaller_dtypes(config: &Config) -> impl Iterator<Item = KvDtype> {
    let (current, choices) = (config.kv_dtype.bytes_of_32(), config.kv_dtypes);
    // `ALL` goes from large to small, whatever order the choices come in.
    KvDtype::ALL.into_iter().filter(move |dtype| dtype.bytes_of_32() < current && choices.contains(dtype))
}

fn layers_on_device(config: &Config) -> u64 {
    config.gpu_layers.unwrap_or(config.layers).min(config.layers).count()
}

/// A value of a knob.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Value {
    /// On or off.
    Switch(bool),
    /// Sequences, tokens or layers.
    Count(u64),
    /// An element type.
    Dtype(KvDtype),
    /// A budget, printed in MiB rounded up.
    Bytes(Bytes),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Switch(true) => f.write_str("on"),
            Value::Switch(false) => f.write_str("off"),
            Value::Count(count) => write!(f, "{count}"),
            Value::Dtype(dtype) => write!(f, "{dtype}"),
            Value::Bytes(bytes) => write!(f, "{} MiB", bytes.in_mib()),
        }
    }
}

/// One change and what it does.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Lever {
    /// What is changed.
    pub knob: Knob,
    /// The value that was refused.
    pub from: Value,
    /// The mildest value found that fits, or the furthest it goes.
    pub to: Value,
    /// By how much the request shrinks; for a budget, what is added.
    pub frees: Bytes,
    /// Whether this alone makes the configuration fit.
    pub fits: bool,
    /// Whether the user insists on the refused value. A locked lever is named, never part of a suggestion.
    pub locked: bool,
}

impl Lever {
    /// Changes what the lever says. A lever that [`fits`](Lever::fits) makes a configuration that is accepted.
    ///
    /// ```
    /// use memtier::plan::{Config, Demand, Limits, PlanInput, Tier, plan_memory};
    /// use memtier::Bytes;
    ///
    /// let (mut limits, mut config) = (Limits::new("cuda", Bytes::mib(3000)), Config::default());
    /// let demands = [Demand::bytes("model weights", Tier::ModelResident, "cuda", Bytes::mib(4076))];
    /// let refused = plan_memory(&PlanInput::new(limits, config, &demands)).expect_err("1076 MiB short");
    ///
    /// refused.levers()[0].apply(&mut limits, &mut config);
    /// assert_eq!(limits.budget, Bytes::mib(4076));
    /// assert!(plan_memory(&PlanInput::new(limits, config, &demands)).is_ok());
    /// ```
    pub fn apply(&self, limits: &mut Limits, config: &mut Config) {
        match (self.knob, self.to) {
            (Knob::Budget, Value::Bytes(bytes)) => limits.budget = bytes,
            (Knob::HostBudget, Value::Bytes(bytes)) => limits.host_budget = Some(bytes),
            (knob, value) => knob.set(config, value),
        }
    }
}

/// Two changes that fit together where no single one does.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Pair {
    /// Both, each with what it frees alone.
    pub levers: [Lever; 2],
    /// What both free together.
    pub frees: Bytes,
    /// The configuration with both applied.
    pub config: Config,
}

/// Three or more changes that fit together where no two do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Combination {
    /// All of them, each with what it frees alone.
    pub levers: Vec<Lever>,
    /// What they free together.
    pub frees: Bytes,
    /// The configuration with all applied.
    pub config: Config,
}

/// What can be done about a refusal.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Levers {
    /// By what they free, the largest first; budgets last.
    pub(super) single: Vec<Lever>,
    pub(super) pair: Option<Pair>,
    /// When not even two are enough.
    pub(super) combination: Option<Combination>,
    /// The request with every free lever at its end, when not even that is enough.
    pub(super) bottom: Option<Bytes>,
}

/// The refused input, planned again and again.
struct Bench<'a> {
    input: &'a PlanInput<'a>,
    limits: Limits,
    refused: Least,
    host: bool,
}

impl Bench<'_> {
    fn least(&self, config: &Config) -> Option<Least> {
        let demands = self.input.reprice?(config).ok()?;
        least(&self.limits, &demands).ok()
    }

    fn fits(&self, config: &Config) -> bool {
        self.least(config).is_some_and(|least| least.fits(&self.limits))
    }

    fn request(&self, least: &Least) -> Bytes {
        if self.host { least.host } else { least.device() }
    }

    fn frees(&self, config: &Config) -> Bytes {
        self.least(config).map_or(Bytes::ZERO, |least| self.request(&self.refused).beyond(self.request(&least)))
    }

    /// The mildest notch that fits on top of `config`, found by bisection and tried as it is returned.
    fn mildest(&self, knob: Knob, config: &Config) -> Option<u64> {
        let furthest = knob.notches(config);
        if furthest == 0 || !self.fits(&knob.turned(config, furthest)) {
            return None;
        }
        let (mut short, mut enough) = (0, furthest);
        while short + 1 < enough {
            let middle = short + (enough - short) / 2;
            if self.fits(&knob.turned(config, middle)) { enough = middle } else { short = middle }
        }
        let round = knob.rounded(config, enough);
        Some(if self.fits(&knob.turned(config, round)) { round } else { enough })
    }

    fn lever(&self, knob: Knob, config: &Config, notch: u64, fits: bool) -> Lever {
        let turned = knob.turned(config, notch);
        Lever {
            knob,
            from: knob.value(config),
            to: knob.value(&turned),
            frees: self.frees(&turned),
            fits,
            locked: knob.locked(&self.input.locks),
        }
    }

    fn single(&self, knob: Knob) -> Option<Lever> {
        let config = &self.input.config;
        let lever = match self.mildest(knob, config) {
            Some(notch) => self.lever(knob, config, notch, true),
            None => self.lever(knob, config, knob.notches(config), false),
        };
        // Without prices nothing is known of a lever, but that it is locked.
        let named = lever.locked && self.input.reprice.is_none() && knob.notches(config) > 0;
        (lever.fits || !lever.frees.is_zero() || named).then_some(lever)
    }

    /// The pair that costs the operator least: the first lever in eighths of its way, the second exactly.
    fn pair(&self) -> Option<Pair> {
        let config = &self.input.config;
        let free: Vec<Knob> = CONFIG_KNOBS
            .into_iter()
            .filter(|knob| !knob.locked(&self.input.locks) && knob.notches(config) > 0)
            .collect();
        let mut best: Option<(u64, Knob, u64, Knob, u64)> = None;
        for (index, &first) in free.iter().enumerate() {
            for notch in eighths(first.notches(config)) {
                let halfway = first.turned(config, notch);
                for &second in &free[index + 1..] {
                    let Some(exact) = self.mildest(second, &halfway) else { continue };
                    let loss = first.loss(config, &halfway) + second.loss(config, &second.turned(config, exact));
                    if best.is_none_or(|(least, ..)| loss < least) {
                        best = Some((loss, first, notch, second, exact));
                    }
                }
            }
        }
        let (_, first, notch, second, exact) = best?;
        let both = second.turned(&first.turned(config, notch), exact);
        let levers = [self.lever(first, config, notch, false), self.lever(second, config, exact, false)];
        Some(Pair { levers, frees: self.frees(&both), config: both })
    }

    /// As many changes as it takes: all free levers at their end, each then turned back as far as the others allow, what the
    /// operator loses most by first.
    fn combination(&self) -> Option<Combination> {
        let config = &self.input.config;
        let mut free: Vec<(Knob, u64)> = CONFIG_KNOBS
            .into_iter()
            .filter(|knob| !knob.locked(&self.input.locks))
            .map(|knob| (knob, knob.notches(config)))
            .filter(|(_, notches)| *notches > 0)
            .collect();
        let all = |free: &[(Knob, u64)], but: Option<Knob>| {
            let turned = free.iter().filter(|(knob, _)| but != Some(*knob));
            turned.fold(*config, |config, (knob, notch)| knob.turned(&config, *notch))
        };
        if !self.fits(&all(&free, None)) {
            return None;
        }
        free.sort_by_key(|(knob, notch)| std::cmp::Reverse(knob.loss(config, &knob.turned(config, *notch))));
        for index in 0..free.len() {
            let (knob, notch) = free[index];
            let others = all(&free, Some(knob));
            free[index].1 = if self.fits(&others) { 0 } else { self.mildest(knob, &others).unwrap_or(notch) };
        }
        free.retain(|(_, notch)| *notch > 0);
        let config_of_all = all(&free, None);
        let levers = free.iter().map(|(knob, notch)| self.lever(*knob, config, *notch, false)).collect();
        // Tried as it is returned: levers that are not independent could have undone each other.
        self.fits(&config_of_all).then(|| Combination {
            levers,
            frees: self.frees(&config_of_all),
            config: config_of_all,
        })
    }

    /// Every free lever at its end.
    fn bottom(&self) -> Option<Bytes> {
        let free = CONFIG_KNOBS.into_iter().filter(|knob| !knob.locked(&self.input.locks));
        let end = free.fold(self.input.config, |config, knob| knob.turned(&config, knob.notches(&config)));
        self.least(&end).map(|least| self.request(&least))
    }

    /// The budget that would do, always exact.
    fn budgets(&self) -> impl Iterator<Item = Lever> {
        let locked = self.input.locks.budget;
        let lever = move |knob, from: Bytes, to: Bytes, fits| Lever {
            knob,
            from: Value::Bytes(from),
            to: Value::Bytes(to),
            frees: to.beyond(from),
            fits,
            locked,
        };
        let (device, host) = (self.refused.device(), self.refused.host);
        let (device_fits, host_fits) =
            (device <= self.limits.budget, self.limits.host_budget.is_none_or(|budget| host <= budget));
        let on_device = (!device_fits).then(|| lever(Knob::Budget, self.limits.budget, device, host_fits));
        let on_host = self.limits.host_budget.filter(|_| !host_fits);
        on_device.into_iter().chain(on_host.map(|budget| lever(Knob::HostBudget, budget, host, device_fits)))
    }
}

/// At most eight notches, evenly spread, the last one among them.
fn eighths(notches: u64) -> impl Iterator<Item = u64> {
    let parts = notches.min(8);
    (1..=parts).map(move |part| {
        let notch = u128::from(notches) * u128::from(part) / u128::from(parts);
        u64::try_from(notch).unwrap_or(notches)
    })
}

/// Finds the levers for a refused input. `host` says that it was the host budget that did not do.
pub(super) fn find(input: &PlanInput<'_>, refused: Least, host: bool) -> Levers {
    let bench = Bench { input, limits: input.limits, refused, host };
    let mut single: Vec<Lever> = CONFIG_KNOBS.into_iter().filter_map(|knob| bench.single(knob)).collect();
    let enough = single.iter().any(|lever| lever.fits && !lever.locked);
    single.extend(bench.budgets());
    // What is enough by itself comes first: whoever applies the first lever is done. Then what frees most; the budget frees
    // nothing and comes last of its kind. Stable: levers that free the same stay in the order of the knobs.
    single.sort_by_key(|lever| {
        let adds = matches!(lever.knob, Knob::Budget | Knob::HostBudget);
        (!lever.fits || lever.locked, adds, std::cmp::Reverse(lever.frees))
    });
    if enough || input.reprice.is_none() {
        return Levers { single, ..Levers::default() };
    }
    let pair = bench.pair();
    let combination = if pair.is_none() { bench.combination() } else { None };
    let bottom = if pair.is_none() && combination.is_none() { bench.bottom() } else { None };
    Levers { single, pair, combination, bottom }
}
