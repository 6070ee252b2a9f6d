//! The model: one function for every device, for prefill and decode, eager and captured.
//!
//! It says what a transformer of our kinds is made of. How a device does each of these operations is in its
//! [`Operations`]: `ops/run.rs` for the CPU, `cuda/run.rs` for CUDA devices.

use memtier::{
    GlobalKv, LaunchError, NestedRef, PageTableView, Place, PoolView, Recorder, ResidualKv, ScratchFrame, StableSpan,
    StableSpanMut, SwaKv, f16,
};

use crate::{
    arch::{Arch, Group, LayerArch},
    compute::Compute,
    model::ModelView,
    operations::{Attention, Beside, Block, Cache, Launch, Operations, PassRows, Sinks, head, part},
    streaming::Streaming,
    weights::RopeWeights,
};

/// How many tokens one pass has, and how many of them want logits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pass {
    /// Tokens, over all sequences.
    pub tokens: usize,
    /// Tokens that want logits.
    pub picks: usize,
    /// Tokens, the first ones, of which each is a query for itself: an answer that goes on, and not a prompt. Attention may have another
    /// kernel for them.
    pub decodes: usize,
}

impl Pass {
    /// A pass of answers that go on, a token each.
    pub fn decode(tokens: usize) -> Self {
        Pass { tokens, picks: tokens, decodes: tokens }
    }
}

/// Sees the residual stream (tokens x hidden) before the first layer, and may change it.
pub type Enter<'e, P> = &'e mut dyn FnMut(&mut StableSpanMut<'_, f32, P>) -> Result<(), LaunchError>;

/// Sees the residual stream behind a layer.
pub type See<'e, P> = &'e mut dyn FnMut(usize, StableSpan<'_, f32, P>) -> Result<(), LaunchError>;

/// Different rotary embeddings that a model may have.
const MOST_ROPES: usize = 4;

fn refused(what: &'static str, why: &'static str) -> LaunchError {
    LaunchError::Unsupported { what, why }
}

/// Runs `pass`: reads the workspace, writes keys and values, leaves logits in `logits` (picks x vocabulary) and the chosen
/// tokens in `work.sampled`. `enter` gets the embedded tokens, or what is to become the residual stream where the part has no
/// embedding, before the first layer: layers on another device run there. `see` sees the residual stream after every layer (nothing, in a capture).
///
/// # Errors
/// [`LaunchError`]; scratch unwinds with its frame.
#[allow(clippy::too_many_arguments, reason = "a step's parts, the model, and what comes out")]
pub fn forward<'p, C: Compute, P: Place<Space = C>>(
    ops: &'p C::Ops,
    arch: &'p Arch,
    pass: Pass,
    view: &'p mut ModelView<'_, P>,
    on: &'p Recorder<P>,
    mut scratch: ScratchFrame<'p, P>,
    logits: &mut StableSpanMut<'_, f32, P>,
    enter: Enter<'_, P>,
    see: See<'_, P>,
) -> Result<(), LaunchError> {
    let launch = Launch { ops, on, arch, pass };
    let Pass { tokens, picks, .. } = pass;
    let ModelView { weights, work, kv, table, low, low_table, ring, ring_table, window, window_table, .. } = view;
    let weights = *weights;
    let rows = PassRows {
        rows: part(work.rows.read(), tokens)?,
        positions: part(work.positions.read(), tokens)?,
        lengths: work.lengths.read(),
        starts: work.starts.read(),
    };
    let mut caches = Caches { kv, table, low, low_table, ring, ring_table, window, window_table };
    let angles = Angles::new::<C>(launch, rows, weights.ropes, &mut scratch)?;
    let library = work.library.as_mut().map(|span| head(span, arch.library)).transpose()?;
    let mut run = C::Run::begin(launch, rows, library, &mut scratch)?;
    if arch.weights.ends {
        run.embed(weights.embed, part(work.tokens.read(), tokens)?, arch.embed_scale)?;
    }
    enter(run.residual())?;

    let first = weights.layers.at(0).ok_or(refused("forward pass", "a model of no layers"))?;
    run.norm(first.attn_norm)?;
    let post = |norm| arch.post_norms.then_some(norm);
    for (index, layer) in arch.layers.iter().enumerate() {
        let weight = weights.layers.at(index).ok_or(refused("forward pass", "a layer without weights"))?;
        let next = weights.layers.at(index + 1).map_or(weights.norm, |next| next.attn_norm);
        let (angles, sinks) = angles.of(layer)?;
        let attention = Attention {
            layer,
            matrices: [weight.q, weight.k, weight.v],
            head_norms: layer.qk_norm.then_some([weight.q_norm, weight.k_norm]),
            rope: &arch.ropes[layer.rope],
            angles,
            sinks,
        };
        caches.attend::<C>(arch, &mut run, &attention)?;
        run.add(Block::Attention, weight.o, post(weight.post_attn_norm), weight.ffn_norm)?;
        run.gate([weight.gate, weight.up], layer.activation)?;
        run.add(Block::FeedForward, weight.down, post(weight.post_ffn_norm), next)?;
        see(arch.first + index, run.residual().read())?;
    }

    if picks == 0 {
        return Ok(());
    }
    let matrix = if arch.weights.head.is_some() { weights.head } else { weights.embed };
    let picks = part(work.picks.read(), picks)?;
    run.logits(logits, matrix, picks)?;
    if let Some(cap) = arch.softcap {
        run.softcap(logits, cap)?;
    }
    let mut sampled = head(&mut work.sampled, picks.len())?;
    run.sample(&mut sampled, logits, picks, (work.sampling.read(), work.seeds.read()))
}

/// Cosines and sines of a pass's tokens, by rotary embedding.
struct Angles<'p, P: Place> {
    of_positions: [Option<StableSpan<'p, f32, P>>; MOST_ROPES],
    /// Of their places in the look at the sinks.
    of_sinks: Option<(Streaming, [Option<StableSpan<'p, f32, P>>; MOST_ROPES])>,
}

impl<'p, P: Place> Angles<'p, P> {
    fn new<C: Compute>(
        launch: Launch<'_, C, P>,
        rows: PassRows<'_, P>,
        weights: NestedRef<'_, RopeWeights<C>, P>,
        scratch: &mut ScratchFrame<'p, P>,
    ) -> Result<Self, LaunchError>
    where
        P: Place<Space = C>,
    {
        let Launch { arch, pass, .. } = launch;
        if arch.ropes.len() > MOST_ROPES {
            return Err(refused("forward pass", "more than four rotary embeddings"));
        }
        let mut all = |sinks: Option<Streaming>| -> Result<_, LaunchError> {
            let mut angles = [None; MOST_ROPES];
            for (index, (slot, rope)) in angles.iter_mut().zip(&arch.ropes).enumerate() {
                let factors = weights.at(index).filter(|_| rope.factors.is_some()).map(|rope| rope.factors);
                let mut span = scratch.take(pass.tokens * rope.dims)?;
                C::Run::angles(launch, &mut span, rows.positions, rope, factors, sinks)?;
                *slot = Some(span.into_read());
            }
            Ok(angles)
        };
        let of_positions = all(None)?;
        let of_sinks = arch.streaming.map(|streaming| Ok::<_, LaunchError>((streaming, all(Some(streaming))?)));
        Ok(Angles { of_positions, of_sinks: of_sinks.transpose()? })
    }

    /// Those of a layer, and those of its look at the sinks.
    fn of(&self, layer: &LayerArch) -> Result<(StableSpan<'p, f32, P>, Option<Sinks<'p, P>>), LaunchError> {
        let missing = || refused("rotary embedding", "it is not listed");
        let angles = self.of_positions[layer.rope].ok_or_else(missing)?;
        let sinks = match &self.of_sinks {
            // A sliding window leaves the first tokens behind.
            Some((streaming, sinks)) if layer.group == Group::Global => {
                Some(Sinks { streaming: *streaming, angles: sinks[layer.rope].ok_or_else(missing)? })
            }
            _ => None,
        };
        Ok((angles, sinks))
    }
}

/// The keys and values of all layers.
struct Caches<'x, 'v, P: Place> {
    kv: &'x mut PoolView<'v, GlobalKv<f16>, P>,
    table: &'x PageTableView<'v, GlobalKv<f16>, P>,
    low: &'x mut Option<PoolView<'v, GlobalKv<u16>, P>>,
    low_table: &'x Option<PageTableView<'v, GlobalKv<u16>, P>>,
    ring: &'x mut Option<PoolView<'v, ResidualKv<f16>, P>>,
    ring_table: &'x Option<PageTableView<'v, ResidualKv<f16>, P>>,
    window: &'x mut Option<PoolView<'v, SwaKv<f16>, P>>,
    window_table: &'x Option<PageTableView<'v, SwaKv<f16>, P>>,
}

impl<P: Place> Caches<'_, '_, P> {
    /// Attends to the pools that a layer's keys and values are in.
    fn attend<'p, C: Compute>(
        &mut self,
        arch: &Arch,
        run: &mut C::Run<'p, P>,
        attention: &Attention<'_, P>,
    ) -> Result<(), LaunchError>
    where
        P: Place<Space = C> + 'p,
    {
        let layer = attention.layer;
        if let (Group::Window, Some(pool), Some(table)) = (layer.group, self.window.as_mut(), self.window_table) {
            return run.attend(attention, Cache { pool, table }, Beside::NONE);
        }
        let rings = match (self.ring.as_mut(), self.ring_table, arch.ring) {
            (Some(pool), Some(table), Some(ring)) if layer.has_ring() => Some((Cache { pool, table }, ring)),
            _ => None,
        };
        let low = match (self.low.as_mut(), self.low_table) {
            (Some(pool), Some(table)) => Some(Cache { pool, table }),
            _ => None,
        };
        run.attend(attention, Cache { pool: self.kv, table: self.table }, Beside { rings, low })
    }
}
