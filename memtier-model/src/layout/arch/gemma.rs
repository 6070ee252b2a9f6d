//! Gemma 2, 3, 3n and 4: windows on all but every second, sixth or fifth layer, which many files do not say.

use super::common::{Common, window};
use crate::layout::LayerMemory;
use crate::layout::error::LayoutError;
use crate::layout::facts::Facts;

/// Gemma 2's files state no window.
const WINDOW_OF_2: u64 = 4096;
const PERIOD_OF_2: u64 = 2;
const PERIOD_OF_3: u64 = 6;
const PERIOD_OF_3N: u64 = 5;
/// Gemma 3n computes keys and values in its first layers only; the others read theirs.
const KV_LAYERS_OF_3N: usize = 20;

pub(super) fn gemma2(facts: &Facts<'_>, common: &Common) -> Result<Vec<LayerMemory>, LayoutError> {
    let window = facts.tokens("attention.sliding_window")?.unwrap_or(WINDOW_OF_2);
    Ok(match window {
        0 => common.all_attending(),
        window => common.with_windows(window, &common.pattern(facts, PERIOD_OF_2)?),
    })
}

pub(super) fn gemma3(facts: &Facts<'_>, common: &Common) -> Result<Vec<LayerMemory>, LayoutError> {
    Ok(match window(facts)? {
        Some(window) => common.with_windows(window, &common.pattern(facts, PERIOD_OF_3)?),
        None => common.all_attending(),
    })
}

pub(super) fn gemma3n(facts: &Facts<'_>, common: &Common) -> Result<Vec<LayerMemory>, LayoutError> {
    let mut layers = match window(facts)? {
        Some(window) => common.with_windows(window, &common.pattern(facts, PERIOD_OF_3N)?),
        None => common.all_attending(),
    };
    let own = shared(facts, common)?.unwrap_or(KV_LAYERS_OF_3N);
    share_after(&mut layers, own);
    Ok(layers)
}

pub(super) fn gemma4(facts: &Facts<'_>, common: &Common) -> Result<Vec<LayerMemory>, LayoutError> {
    let mut layers = match window(facts)? {
        Some(window) => common.with_windows(window, &common.pattern(facts, PERIOD_OF_3)?),
        None => common.all_attending(),
    };
    // Windowed layers have heads of their own size.
    let key = facts.number("attention.key_length_swa")?;
    let value = facts.number("attention.value_length_swa")?;
    for cache in layers.iter_mut().filter_map(|layer| layer.cache.as_mut()).filter(|cache| cache.window.is_some()) {
        cache.key_dim = key.unwrap_or(cache.key_dim);
        cache.value_dim = value.unwrap_or(cache.value_dim);
    }
    if let Some(own) = shared(facts, common)? {
        share_after(&mut layers, own);
    }
    Ok(layers)
}

/// Layers with keys and values of their own, when the file says how many at the end have none.
fn shared(facts: &Facts<'_>, common: &Common) -> Result<Option<usize>, LayoutError> {
    let shared = facts.number("attention.shared_kv_layers")?;
    Ok(shared.map(|shared| common.blocks.saturating_sub(usize::try_from(shared).unwrap_or(usize::MAX))))
}

fn share_after(layers: &mut [LayerMemory], own: usize) {
    for layer in layers.iter_mut().skip(own) {
        layer.cache = None;
    }
}
