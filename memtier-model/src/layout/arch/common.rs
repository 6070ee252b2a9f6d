//! What architectures have in common: heads, dimensions, windows, states.

use crate::layout::error::LayoutError;
use crate::layout::facts::Facts;
use crate::layout::{Experts, LayerCache, LayerMemory, LayerState};

/// The hyperparameters of attention and feed-forward, resolved layer by layer.
pub(crate) struct Common {
    /// Layers in the file, drafts among them.
    pub(crate) blocks: usize,
    /// How many of them, at the end, only draft.
    pub(crate) drafts: usize,
    pub(crate) hidden: u64,
    /// Query heads of each layer.
    pub(crate) heads: Vec<u64>,
    /// Key and value heads of each layer; zero where a layer does not attend.
    pub(crate) kv_heads: Vec<u64>,
    pub(crate) key_dim: u64,
    pub(crate) value_dim: u64,
    /// Elements between the feed-forward projections of each layer.
    pub(crate) feed_forward: Vec<u64>,
    pub(crate) experts: Experts,
}

impl Common {
    pub(crate) fn read(facts: &Facts<'_>) -> Result<Common, LayoutError> {
        let blocks = usize::try_from(facts.blocks()?).unwrap_or(usize::MAX);
        let drafts = usize::try_from(facts.draft_blocks()?).unwrap_or(usize::MAX);
        if drafts >= blocks {
            return Err(facts.inconsistent(format!("{drafts} of {blocks} layers only draft, so none are the model")));
        }
        let hidden = facts.size("embedding_length")?;
        let heads = facts.per_layer("attention.head_count", 0)?.unwrap_or_else(|| vec![0; blocks]);
        // Files without key-value heads have as many as query heads; drafts attend like the last layer that does.
        let filler = |values: &[u64]| values.iter().rev().copied().find(|&value| value > 0).unwrap_or(0);
        let kv_heads = match facts.per_layer("attention.head_count_kv", 0)? {
            Some(mut values) => {
                let last = filler(&values);
                values[blocks - drafts..].iter_mut().filter(|value| **value == 0).for_each(|value| *value = last);
                values
            }
            None => heads.clone(),
        };
        let first = heads.iter().copied().find(|&heads| heads > 0);
        let derived = || match first {
            Some(heads) if hidden.is_multiple_of(heads) => Ok(hidden / heads),
            Some(heads) => Err(facts.inconsistent(format!(
                "no attention.key_length, and {hidden} elements cannot be shared out over {heads} heads"
            ))),
            None => Ok(0),
        };
        let key_dim = facts.number("attention.key_length")?.map_or_else(derived, Ok)?;
        let value_dim = facts.number("attention.value_length")?.map_or_else(derived, Ok)?;
        let feed_forward = facts.per_layer("feed_forward_length", 0)?.unwrap_or_else(|| vec![0; blocks]);
        let widest = feed_forward.iter().copied().max().unwrap_or(0);
        let experts = Experts {
            count: facts.number("expert_count")?.unwrap_or(0),
            used: facts.number("expert_used_count")?.unwrap_or(0),
            // Mixtral's files state the size of an expert as if it were dense.
            size: match facts.per_layer("expert_feed_forward_length", 0) {
                Ok(sizes) => sizes.and_then(|sizes| sizes.into_iter().max()).unwrap_or(widest),
                Err(error) => return Err(error),
            },
        };
        Ok(Common { blocks, drafts, hidden, heads, kv_heads, key_dim, value_dim, feed_forward, experts })
    }

    /// Layer `layer` as one that attends to everything, if it has key-value heads.
    pub(crate) fn attending(&self, layer: usize) -> LayerMemory {
        let kv_heads = self.kv_heads[layer];
        let cache = (kv_heads > 0).then_some(LayerCache {
            kv_heads,
            key_dim: self.key_dim,
            value_dim: self.value_dim,
            window: None,
            indexer: 0,
        });
        let heads = if cache.is_some() { self.heads[layer] } else { 0 };
        LayerMemory { heads, feed_forward: self.feed_forward[layer], cache, state: None }
    }

    /// Layer `layer` as one that recurs and does not attend.
    pub(crate) fn recurring(&self, layer: usize, state: LayerState) -> LayerMemory {
        LayerMemory { heads: 0, feed_forward: self.feed_forward[layer], cache: None, state: Some(state) }
    }

    /// All layers attending to everything.
    pub(crate) fn all_attending(&self) -> Vec<LayerMemory> {
        (0..self.blocks).map(|layer| self.attending(layer)).collect()
    }

    /// All layers attending, those of `windowed` to the last `window` tokens.
    pub(crate) fn with_windows(&self, window: u64, windowed: &[bool]) -> Vec<LayerMemory> {
        let mut layers = self.all_attending();
        for (layer, _) in layers.iter_mut().zip(windowed).filter(|(_, windowed)| **windowed) {
            if let Some(cache) = &mut layer.cache {
                cache.window = Some(window);
            }
        }
        layers
    }

    /// Of every `period` layers all but the last have a window; none for a period of zero or one.
    pub(crate) fn every(&self, period: u64) -> Vec<bool> {
        let full = |layer: u64| (layer + 1).checked_rem(period).is_none_or(|rest| rest == 0);
        (0..self.blocks as u64).map(|layer| !full(layer)).collect()
    }

    /// Which layers have a window: one flag a layer, or a period, or `default_period` where the file says neither.
    pub(crate) fn pattern(&self, facts: &Facts<'_>, default_period: u64) -> Result<Vec<bool>, LayoutError> {
        const PATTERN: &str = "attention.sliding_window_pattern";
        if facts.is_list(PATTERN) {
            let flags = facts.per_layer(PATTERN, 0)?.unwrap_or_default();
            return Ok(flags.into_iter().map(|flag| flag != 0).collect());
        }
        Ok(self.every(facts.number(PATTERN)?.unwrap_or(default_period)))
    }
}

/// The window in tokens; zero in a file is none.
pub(crate) fn window(facts: &Facts<'_>) -> Result<Option<u64>, LayoutError> {
    Ok(facts.tokens("attention.sliding_window")?.filter(|&window| window > 0))
}

/// The state of Mamba 1 and 2, and of gated delta nets, which keep theirs in the same shapes: the convolution's last
/// inputs (the inner activation, and with groups their two projections), and `state` elements an inner element.
pub(crate) fn mamba_state(facts: &Facts<'_>) -> Result<LayerState, LayoutError> {
    let (inner, state) = (facts.size("ssm.inner_size")?, facts.size("ssm.state_size")?);
    let taps = facts.size("ssm.conv_kernel")?;
    let groups = facts.number("ssm.group_count")?.unwrap_or(0);
    let channels = inner + 2 * groups * state;
    let conv = (taps - 1).checked_mul(channels).ok_or_else(|| {
        facts.inconsistent(format!("{taps} taps of {channels} channels are more than a state can hold"))
    })?;
    Ok(LayerState { conv, state: state * inner, channels, inner })
}
