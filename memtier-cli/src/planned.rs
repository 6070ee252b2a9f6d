//! From options to a plan on every device.

use memtier::plan::offload::{DeviceMemory, OffloadPlan};
use memtier::plan::{Config, Demand, Knob, KvDtype, Limits, MemoryPlan, PlanFailure, PlanInput, Tier, plan_memory};
use memtier::{Bytes, Layers, Overflow};
use memtier_model::ModelLayout;
use memtier_model::demands::{Portion, Pricing, SplitKind, split};

use crate::args::{Fit, GpuLayers, Options};
use crate::device::{self, Device};
use crate::open;

/// A model, a configuration, and what each device makes of it.
#[derive(Debug)]
pub struct Planned<'l> {
    /// Prices of the model.
    pub pricing: Pricing<'l>,
    /// What was planned.
    pub config: Config,
    /// Each device's part and verdict.
    pub devices: Vec<OnDevice>,
    /// Said beside the plan.
    pub notes: Vec<String>,
}

/// One device of a plan.
#[derive(Debug)]
pub struct OnDevice {
    /// The device.
    pub device: Device,
    /// Its part of the model; `None` when it is alone, and then the host may have some layers.
    pub portion: Option<Portion>,
    /// Its limits.
    pub limits: Limits,
    /// Whether the operator stated what is gone before the first allocation.
    pub reserve_stated: bool,
    /// The verdict.
    pub result: Result<MemoryPlan, PlanFailure>,
}

impl Planned<'_> {
    /// Whether every device can hold its part.
    pub fn fits(&self) -> bool {
        self.devices.iter().all(|on| on.result.is_ok())
    }
}

/// Reads the model of the options, with its projector and adapters.
///
/// # Errors
/// One line.
pub fn read(options: &Options, model: &std::path::Path) -> Result<ModelLayout, String> {
    let mut layout = open::layout(model)?;
    // A file that does not name its model is called by its own name.
    layout.name = layout.name.take().or_else(|| model.file_stem().map(|stem| stem.to_string_lossy().into_owned()));
    if let Some(path) = &options.mmproj {
        layout.add_vision(&open::gguf(path)?).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    for path in &options.loras {
        layout.add_adapter(&open::gguf(path)?).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok(layout)
}

/// The bench on which configurations are tried: devices and options stay, the configuration changes.
struct Bench<'o, 'l> {
    options: &'o Options,
    pricing: Pricing<'l>,
    devices: Vec<Device>,
}

/// Plans.
///
/// # Errors
/// One line: devices that are not there, options that contradict each other, a search that finds nothing.
pub fn plan<'l>(options: &Options, layout: &'l ModelLayout) -> Result<Planned<'l>, String> {
    let values = options.kv_dtype.and_then(|(_, values)| values);
    let pricing = Pricing::new(layout, device::SPACE).value_dtype(values).host_cache(options.host_cache);
    let mut notes = Vec::new();
    let mut config = configure(options, &pricing, &mut notes)?;
    let devices = devices(options)?;
    let mut bench = Bench { options, pricing, devices };
    if bench.devices.is_empty() {
        // Nobody said what there is: the plan is for exactly what the configuration takes.
        let budget = bench.whole(&config).map_err(overflow)?;
        bench.devices.push(Device::budget(budget, options.platform));
        notes.push("no --vram-budget and no --device: this is what the configuration takes".to_owned());
    }
    if options.gpu_layers == Some(GpuLayers::Auto) {
        config.gpu_layers = Some(bench.auto_layers(&config)?);
    }
    if let Some(fit) = options.fit {
        config = bench.fit(fit, config, &mut notes)?;
    }
    let devices = bench.plan(&config).map_err(overflow)?;
    Ok(Planned { pricing: bench.pricing, config, devices, notes })
}

fn overflow(Overflow: Overflow) -> String {
    "a size leaves the range of 64 bits; check --max-batch, --max-seq-len and --prefill-chunk".to_owned()
}

fn configure(options: &Options, pricing: &Pricing<'_>, notes: &mut Vec<String>) -> Result<Config, String> {
    let mut config = pricing.config();
    config.kv_dtypes = &CACHED;
    config.max_batch = options.max_batch.unwrap_or(config.max_batch);
    config.max_seq_len = options.max_seq_len.unwrap_or(config.max_seq_len);
    config.block_tokens = options.block_size.unwrap_or(config.block_tokens);
    config.prefill_chunk = options.prefill_chunk.unwrap_or(config.prefill_chunk);
    config.kv_dtype = options.kv_dtype.map_or(config.kv_dtype, |(keys, _)| keys);
    config.vision &= !options.no_vision;
    config.speculative_depth = options.speculative_depth;
    if let Some(GpuLayers::Count(layers)) = options.gpu_layers {
        config.gpu_layers = Some(layers);
        if layers > config.layers {
            notes.push(format!(
                "--gpu-layers {}: the model has {} layers, all of them",
                layers.count(),
                config.layers.count()
            ));
        }
    }
    if let Some(trained) = pricing.layout().context_length
        && config.max_seq_len.count() > trained
    {
        notes.push(format!("--max-seq-len {}: the model was trained on {trained} tokens", config.max_seq_len.count()));
    }
    if options.speculative_depth > 0 && pricing.layout().draft_layers.is_empty() {
        notes.push(
            "--speculative-depth: the model has no draft layers of its own; a draft model is not charged".to_owned(),
        );
    }
    Ok(config)
}

/// What a cache may be stored as: not as 32-bit floats.
const CACHED: [KvDtype; 11] = [
    KvDtype::F16,
    KvDtype::Bf16,
    KvDtype::Q8_0,
    KvDtype::Fp8Head32,
    KvDtype::Fp8Head,
    KvDtype::Fp8,
    KvDtype::Q5_1,
    KvDtype::Q5_0,
    KvDtype::Q4_1,
    KvDtype::Nvfp4,
    KvDtype::Q4_0,
];

/// Cards with their budgets, or budgets alone.
fn devices(options: &Options) -> Result<Vec<Device>, String> {
    let mut devices = Vec::new();
    for name in &options.devices {
        devices.extend(device::parse(name, options.platform)?);
    }
    match (devices.len(), options.budgets.as_slice()) {
        (_, []) => {}
        (0, budgets) => devices = budgets.iter().map(|&budget| Device::budget(budget, options.platform)).collect(),
        (_, [budget]) => devices.iter_mut().for_each(|device| device.budget = *budget),
        (count, budgets) if count == budgets.len() => {
            devices.iter_mut().zip(budgets).for_each(|(device, &budget)| device.budget = budget);
        }
        (count, budgets) => {
            return Err(format!(
                "{count} devices and {} budgets; give one budget a device, or one for all",
                budgets.len()
            ));
        }
    }
    if devices.len() > 1 && options.gpu_layers.is_some() {
        return Err("--gpu-layers is for one device; several share all layers".to_owned());
    }
    Ok(devices)
}

impl Bench<'_, '_> {
    fn limits(&self, device: &Device) -> Limits {
        let mut limits = device.limits();
        limits.context = self.options.context_reserve.unwrap_or(limits.context);
        if let Some(reserve) = self.options.library_reserve {
            limits.library_reserve = reserve;
            limits.library_source = memtier::plan::ReserveSource::Remembered;
        }
        limits.held = self.options.held;
        limits.host_budget = self.options.host_budget;
        limits
    }

    /// All that one device would take for everything the configuration can use.
    fn whole(&self, config: &Config) -> Result<Bytes, Overflow> {
        let demands = self.pricing.demands(config)?;
        let device = Device::budget(Bytes::new(u64::MAX >> 1), self.options.platform);
        match plan_memory(&PlanInput::new(self.limits(&device), *config, &demands)) {
            Ok(plan) => Ok(plan.total()),
            Err(_) => Err(Overflow),
        }
    }

    fn portions(&self) -> Vec<Option<Portion>> {
        if self.devices.len() == 1 {
            return vec![None];
        }
        let room = |device: &Device| {
            let limits = self.limits(device);
            device.budget.beyond(limits.context).beyond(limits.library_reserve)
        };
        let budgets: Vec<Bytes> = self.devices.iter().map(room).collect();
        split(&self.pricing, self.options.split, &budgets).into_iter().map(Some).collect()
    }

    fn plan(&self, config: &Config) -> Result<Vec<OnDevice>, Overflow> {
        let place = |(device, portion): (&Device, Option<Portion>)| {
            let price = |config: &Config| -> Result<Vec<Demand>, Overflow> {
                match &portion {
                    Some(portion) => self.pricing.demands_of(portion, config),
                    None => self.pricing.demands(config),
                }
            };
            let (demands, limits) = (price(config)?, self.limits(device));
            let locks = self.options.locks;
            let input = PlanInput { locks, reprice: Some(&price), ..PlanInput::new(limits, *config, &demands) };
            let result = plan_memory(&input);
            let reserve_stated = self.options.context_reserve.is_some() && self.options.library_reserve.is_some();
            Ok(OnDevice { device: device.clone(), portion, limits, reserve_stated, result })
        };
        self.devices.iter().zip(self.portions()).map(place).collect()
    }

    /// Whether every pool gets all that the configuration can use.
    fn full(&self, config: &Config) -> bool {
        let all_blocks = |plan: &MemoryPlan| {
            plan.lines()
                .iter()
                .filter(|line| line.tier == Tier::Pooled)
                .all(|line| line.blocks.is_none_or(|blocks| blocks.granted >= blocks.most))
        };
        self.plan(config).is_ok_and(|devices| devices.iter().all(|on| on.result.as_ref().is_ok_and(all_blocks)))
    }

    /// The prefix that the rule of the offload plan chooses, or less where the rest of the plan would not fit with it.
    fn auto_layers(&self, config: &Config) -> Result<Layers, String> {
        let layers: Vec<Bytes> = self.pricing.layer_bytes().into_iter().map(Bytes::new).collect();
        let outside = self.pricing.bytes_outside().map_err(overflow)?;
        let memory = DeviceMemory::Reported(self.devices[0].budget);
        let rule = OffloadPlan::auto(&layers, outside, &memory, None).map_err(|error| error.to_string())?;
        let fits = |count: u64| {
            let config = Config { gpu_layers: Some(Layers::new(count)), ..*config };
            self.plan(&config).is_ok_and(|devices| devices.iter().all(|on| on.result.is_ok()))
        };
        Ok(Layers::new(largest(rule.gpu_layers().count(), fits)))
    }

    fn fit(&self, fit: Fit, config: Config, notes: &mut Vec<String>) -> Result<Config, String> {
        let locks = &self.options.locks;
        let locked = match fit {
            Fit::Batch => locks.max_batch.then_some(Knob::MaxBatch),
            Fit::Context => locks.max_seq_len.then_some(Knob::MaxSeqLen),
            Fit::Kv => locks.kv_dtype.then_some(Knob::KvDtype),
        };
        if let Some(knob) = locked {
            return Err(format!("--fit would change {knob}, which --lock holds; drop one of them"));
        }
        let with = |value: u64| match fit {
            Fit::Batch => Config { max_batch: value, ..config },
            _ => Config { max_seq_len: memtier::Tokens::new(value), ..config },
        };
        let nothing = |what: &str| Err(format!("--fit: not even {what} fits; plan without --fit to see why"));
        match fit {
            Fit::Batch => {
                let found = largest(MOST_SEQUENCES, |value| value == 0 || self.full(&with(value)));
                if found == 0 {
                    return nothing("one sequence");
                }
                notes.push(format!("the largest batch that fits is {found}"));
                Ok(with(found))
            }
            Fit::Context => {
                let block = config.block_tokens.count().max(1);
                let most = self.pricing.layout().context_length.unwrap_or(MOST_TOKENS).div_ceil(block);
                let blocks = largest(most, |blocks| blocks == 0 || self.full(&with(blocks * block)));
                if blocks == 0 {
                    return nothing("one block of tokens");
                }
                let trained = self.pricing.layout().context_length.unwrap_or(u64::MAX);
                let tokens = (blocks * block).min(trained);
                let why = if tokens == trained { ", all that the model was trained on" } else { "" };
                notes.push(format!("the largest context that fits is {tokens} tokens{why}"));
                Ok(with(tokens))
            }
            Fit::Kv => {
                let fitting =
                    CACHED.into_iter().map(|kv_dtype| Config { kv_dtype, ..config }).find(|with| self.full(with));
                let Some(config) = fitting else { return nothing("the smallest element type") };
                notes.push(format!("the most precise KV that fits is {}", config.kv_dtype));
                Ok(config)
            }
        }
    }
}

/// Beyond these nobody asks, and sizes stay within 64 bits.
const MOST_SEQUENCES: u64 = 1 << 16;
const MOST_TOKENS: u64 = 1 << 24;

/// The largest number up to `most` for which `holds`, given that it holds for zero and for all below one it holds for.
/// Doubles first: what fits is usually small.
fn largest(most: u64, holds: impl Fn(u64) -> bool) -> u64 {
    let (mut good, mut bad) = (0, 1);
    while bad <= most && holds(bad) {
        good = bad;
        bad = bad.saturating_mul(2);
    }
    bad = bad.min(most.saturating_add(1));
    while good + 1 < bad {
        let middle = good + (bad - good) / 2;
        if holds(middle) { good = middle } else { bad = middle }
    }
    good
}

/// The name of a split.
pub const fn split_name(kind: SplitKind) -> &'static str {
    match kind {
        SplitKind::Layer => "layer",
        SplitKind::Tensor => "tensor",
    }
}

#[cfg(test)]
mod tests {
    use super::largest;

    #[test]
    fn the_largest_is_found_wherever_it_is() {
        for most in [0, 1, 2, 3, 100, 65_536] {
            for edge in [0, 1, 2, 3, 7, 8, 99, 100, 65_535, 65_536] {
                assert_eq!(largest(most, |value| value <= edge), most.min(edge));
            }
        }
    }
}
