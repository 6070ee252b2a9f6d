//! What one of several devices holds.

use std::ops::Range;

use memtier::plan::{Config, Demand, Tier};
use memtier::{Bytes, Overflow};

use super::{HOST, LayerBytes, Pricing, caches, scratch, slabs};
use crate::layout::{LayerCache, LayerMemory};

/// A device's part of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Portion {
    /// Its layers, from 0.
    pub layers: Range<u64>,
    /// Whether it looks tokens up.
    pub embedding: bool,
    /// Whether it has the final norm and the output projection.
    pub output: bool,
    /// Into how many parts heads, columns, experts and vocabulary are divided, of which it has one.
    pub parts: u64,
}

/// How several devices share a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SplitKind {
    /// Each has some of the layers, whole.
    Layer,
    /// Each has a part of every layer: heads, columns, experts; norms, routers and latents are on all.
    Tensor,
}

/// Divides a model over devices with these budgets.
///
/// A layer split hands out runs of layers so that each device's weights are to all weights as its budget is to all
/// budgets; the first device also looks tokens up, the last one projects the output. A tensor split is even: the
/// slowest part is what everybody waits for.
pub fn split(pricing: &Pricing<'_>, kind: SplitKind, budgets: &[Bytes]) -> Vec<Portion> {
    let (count, layers) = (budgets.len() as u64, pricing.layer_bytes());
    let all = 0..layers.len() as u64;
    if kind == SplitKind::Tensor {
        return vec![Portion { layers: all, embedding: true, output: true, parts: count.max(1) }; budgets.len()];
    }
    let total: u128 = layers.iter().map(|&bytes| u128::from(bytes)).sum();
    let room: u128 = budgets.iter().map(|budget| u128::from(budget.count())).sum();
    let (mut portions, mut from, mut placed, mut share) = (Vec::with_capacity(budgets.len()), 0, 0_u128, 0_u128);
    for (device, budget) in budgets.iter().enumerate() {
        share += u128::from(budget.count());
        let last = device + 1 == budgets.len();
        let mut to = from;
        while to < layers.len() && (last || placed_to(placed, layers[to], room) <= scaled(total, share)) {
            placed += u128::from(layers[to]);
            to += 1;
        }
        portions.push(Portion { layers: from as u64..to as u64, embedding: device == 0, output: last, parts: 1 });
        from = to;
    }
    portions
}

/// `(placed + half of next) * room`: a layer goes to the device that holds its middle.
fn placed_to(placed: u128, next: u64, room: u128) -> u128 {
    (placed + u128::from(next / 2)).saturating_mul(room)
}

fn scaled(total: u128, share: u128) -> u128 {
    total.saturating_mul(share)
}

impl Pricing<'_> {
    /// The lines of one portion in `space`.
    pub(super) fn portion(
        &self,
        portion: &Portion,
        config: &Config,
        space: &'static str,
        demands: &mut Vec<Demand>,
    ) -> Result<(), Overflow> {
        let names = if space == HOST { &ON_HOST } else { &ON_DEVICE };
        let range = portion.layers.start as usize..portion.layers.end as usize;
        let layers = self.layout.layers.get(range.clone()).unwrap_or(&[]);
        self.weights(portion, self.layers.get(range).unwrap_or(&[]), space, names, demands)?;
        let drafts = portion.output && config.speculative_depth > 0;
        let drafts: &[LayerMemory] = if drafts { &self.layout.draft_layers } else { &[] };
        if !drafts.is_empty()
            || (portion.output && config.speculative_depth > 0 && self.drafts != LayerBytes::default())
        {
            let bytes = self.drafts.part(portion.parts)?;
            demands.push(Demand::bytes(names.drafts, Tier::ModelResident, space, bytes));
        }
        self.pools(portion, layers, drafts, config, space, names, demands)?;
        self.workspaces(portion, layers, drafts, config, space, names, demands)
    }

    fn weights(
        &self,
        portion: &Portion,
        layers: &[LayerBytes],
        space: &'static str,
        names: &Names,
        demands: &mut Vec<Demand>,
    ) -> Result<(), Overflow> {
        let mut push = |name: &'static str, bytes: Bytes| {
            if !bytes.is_zero() {
                demands.push(Demand::bytes(name, Tier::ModelResident, space, bytes));
            }
        };
        let sum = |of: &dyn Fn(&LayerBytes) -> Result<Bytes, Overflow>| {
            layers.iter().try_fold(Bytes::ZERO, |sum, layer| sum.plus(of(layer)?))
        };
        let experts = sum(&|layer| Ok(layer.experts_part(portion.parts)))?;
        let whole = sum(&|layer| layer.part(portion.parts))?;
        push(names.layers, whole.beyond(experts));
        push(names.experts, experts);
        if portion.embedding {
            push(names.embedding, self.embedding.part(portion.parts)?);
        }
        if portion.output {
            push(names.output, self.output.part(portion.parts)?);
            // With tied embeddings the last device of a layer split needs the table for its projection.
            if !portion.embedding && self.output.divided == 0 {
                push(names.tied, self.embedding.part(portion.parts)?);
            }
        }
        Ok(())
    }

    #[allow(clippy::too_many_arguments, reason = "one call; the pieces of a portion are cut once, by the caller")]
    fn pools(
        &self,
        portion: &Portion,
        layers: &[LayerMemory],
        drafts: &[LayerMemory],
        config: &Config,
        space: &'static str,
        names: &Names,
        demands: &mut Vec<Demand>,
    ) -> Result<(), Overflow> {
        let values = self.value_dtype.unwrap_or(config.kv_dtype);
        let groups = caches::groups(layers.iter().chain(drafts), config.kv_dtype, values, portion.parts);
        for group in &groups {
            let kv = group.kv(config);
            let demand = match group.window {
                None => kv.demand(names.kv, space, config.max_batch, config.max_seq_len)?,
                Some(window) => {
                    let name = format!("{}, window of {}", names.kv, window.count());
                    kv.demand(name, space, config.max_batch, config.max_seq_len)?
                }
            };
            demands.push(demand);
        }
        let slab = caches::slab(layers.iter(), portion.parts)?;
        if !slab.is_zero() {
            demands.push(slabs(names.state, space, slab, config.max_batch));
            if config.speculative_depth > 0 {
                // A rejected draft goes back to the state before it.
                demands.push(slabs(names.snapshots, space, slab, config.max_batch));
            }
        }
        Ok(())
    }

    #[allow(clippy::too_many_arguments, reason = "as pools")]
    fn workspaces(
        &self,
        portion: &Portion,
        layers: &[LayerMemory],
        drafts: &[LayerMemory],
        config: &Config,
        space: &'static str,
        names: &Names,
        demands: &mut Vec<Demand>,
    ) -> Result<(), Overflow> {
        if layers.is_empty() && !portion.output {
            return Ok(());
        }
        let tokens = Self::tokens_in_flight(config)?;
        let pass = scratch::Pass { tokens, hidden: self.layout.hidden_size, parts: portion.parts };
        let mut mark = Bytes::ZERO;
        let mut seen: Vec<LayerMemory> = Vec::new();
        for layer in layers.iter().chain(drafts) {
            // Windows differ and scratch does not; of each shape one is enough, and a model has few.
            let cache = layer.cache.map(|cache| LayerCache { window: None, ..cache });
            let shape = LayerMemory { cache, ..*layer };
            if !seen.contains(&shape) {
                mark = mark.max(pass.layer(&shape, &self.layout.experts)?);
                seen.push(shape);
            }
        }
        demands.push(Demand::bytes(names.scratch, Tier::ForwardScratch, space, mark));
        if portion.output {
            let logits = self.logits(config, portion.parts)?;
            demands.push(Demand::bytes(names.logits, Tier::EnginePersistent, space, logits));
        }
        // One 32-bit block id a block and sequence, and position, length, token and sampling word of each.
        let blocks = config.max_seq_len.in_blocks_of(config.block_tokens).count();
        let words = blocks.checked_add(4).and_then(|words| words.checked_mul(config.max_batch)).ok_or(Overflow)?;
        demands.push(Demand::bytes(names.tables, Tier::EnginePersistent, space, Bytes::new(4).times(words)?));
        if portion.parts > 1 {
            // What is summed over all devices after attention and after the feed-forward: sent and received.
            let rows = tokens.checked_mul(self.layout.hidden_size).and_then(|all| all.checked_mul(4));
            let bytes = Bytes::new(rows.ok_or(Overflow)?).times(2)?;
            demands.push(Demand::bytes("collective buffers", Tier::EnginePersistent, space, bytes));
        }
        Ok(())
    }
}

/// Names of the lines.
struct Names {
    layers: &'static str,
    experts: &'static str,
    embedding: &'static str,
    output: &'static str,
    tied: &'static str,
    drafts: &'static str,
    kv: &'static str,
    state: &'static str,
    snapshots: &'static str,
    scratch: &'static str,
    logits: &'static str,
    tables: &'static str,
}

const ON_DEVICE: Names = Names {
    layers: "weights, layers",
    experts: "weights, experts",
    embedding: "weights, embedding",
    output: "weights, output",
    tied: "weights, output (tied, a copy)",
    drafts: "weights, draft layers",
    kv: "KV",
    state: "recurrent state",
    snapshots: "recurrent state, before drafts",
    scratch: "forward scratch",
    logits: "logits",
    tables: "page tables and step parameters",
};

const ON_HOST: Names = Names {
    layers: "weights, layers on the CPU",
    experts: "weights, experts on the CPU",
    embedding: "weights, embedding on the CPU",
    output: "weights, output on the CPU",
    tied: "weights, output on the CPU (tied, a copy)",
    drafts: "weights, draft layers on the CPU",
    kv: "KV on the CPU",
    state: "recurrent state on the CPU",
    snapshots: "recurrent state on the CPU, before drafts",
    scratch: "forward scratch on the CPU",
    logits: "logits on the CPU",
    tables: "page tables on the CPU",
};
