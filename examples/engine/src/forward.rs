//! The forward pass: one function, over spans, for prefill and decode, eager and captured.

use memtier::{
    Fits, Host, LaunchError, PageTableView, Place, PoolKind, PoolView, Recorder, ScratchFrame, ScratchFull, StableSpan,
    StableSpanMut, f16,
};

use crate::{
    arch::{Arch, Group, LayerArch, RING_TILE, RingArch},
    model::{ModelView, ScratchUnits},
    ops::{self, Activations, Cpu},
    streaming::Streaming,
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

/// The buffers of one pass, taken from the stream's scratch.
struct Buffers<'f, P: Place> {
    x: StableSpanMut<'f, f32, P>,
    delta: StableSpanMut<'f, f32, P>,
    float: StableSpanMut<'f, f32, P>,
    quantized: StableSpanMut<'f, u8, P>,
    q: StableSpanMut<'f, f32, P>,
    attn: StableSpanMut<'f, f32, P>,
    k: StableSpanMut<'f, f32, P>,
    v: StableSpanMut<'f, f32, P>,
    ffn: StableSpanMut<'f, f32, P>,
    picked: StableSpanMut<'f, u8, P>,
    picked_float: StableSpanMut<'f, f32, P>,
}

impl<'f, P: Place> Buffers<'f, P> {
    fn take(scratch: &mut ScratchFrame<'f, P>, units: &ScratchUnits) -> Result<Self, ScratchFull> {
        Ok(Buffers {
            x: scratch.take(units.hidden)?,
            delta: scratch.take(units.hidden)?,
            float: scratch.take(units.float)?,
            quantized: scratch.take(units.quantized)?,
            q: scratch.take(units.q)?,
            attn: scratch.take(units.q)?,
            k: scratch.take(units.kv)?,
            v: scratch.take(units.kv)?,
            ffn: scratch.take(units.ffn)?,
            picked: scratch.take(units.picked)?,
            picked_float: scratch.take(units.picked_float)?,
        })
    }
}

/// The first `units` of a span that is large enough by construction.
fn head<'x, T: memtier::Plain, P>(
    span: &'x mut StableSpanMut<'_, T, P>,
    units: usize,
) -> Result<StableSpanMut<'x, T, P>, LaunchError> {
    let expected = span.len();
    span.range(0..units).ok_or(LaunchError::Shape { what: "scratch buffer", expected, found: units })
}

fn part<'x, T: memtier::Plain, P: Place>(
    span: StableSpan<'x, T, P>,
    units: usize,
) -> Result<StableSpan<'x, T, P>, LaunchError> {
    span.range(0..units).ok_or(LaunchError::Shape { what: "workspace", expected: span.len(), found: units })
}

/// Sees the residual stream (tokens x hidden) before the first layer, and may change it.
pub type Enter<'e, P> = &'e mut dyn FnMut(&mut StableSpanMut<'_, f32, P>) -> Result<(), LaunchError>;

/// Runs `pass`: reads the workspace, writes keys and values, leaves logits in `logits` (picks x vocabulary) and the chosen
/// tokens in `work.sampled`. `enter` gets the embedded tokens, or what is to become the residual stream where the part has no
/// embedding, before the first layer: layers on another device run there. `probe` sees the residual stream after every layer (nothing, in a capture).
///
/// # Errors
/// [`LaunchError`]; scratch unwinds with its frame.
#[allow(clippy::too_many_arguments, reason = "a step's parts, the model, and what comes out")]
pub fn forward<P: Place<Space = Host>>(
    cpu: &Cpu,
    arch: &Arch,
    pass: Pass,
    view: &mut ModelView<'_, P>,
    on: &Recorder<P>,
    mut scratch: ScratchFrame<'_, P>,
    logits: &mut StableSpanMut<'_, f32, P>,
    enter: Enter<'_, P>,
    probe: &mut dyn FnMut(usize, StableSpan<'_, f32, P>) -> Result<(), LaunchError>,
) -> Result<(), LaunchError> {
    let Pass { tokens, picks, .. } = pass;
    let units = ScratchUnits::new(arch, tokens, picks)
        .map_err(|_| LaunchError::Unsupported { what: "forward pass", why: "its scratch overflows" })?;
    let ModelView { weights, work, kv, table, low, low_table, ring, ring_table, window, window_table, .. } = view;
    let hidden = arch.weights.hidden;
    let numbers = (tokens, arch.epsilon);

    let positions = part(work.positions.read(), tokens)?;
    let rows = part(work.rows.read(), tokens)?;
    let mut angles: [Option<StableSpan<'_, f32, P>>; 4] = [None; 4];
    if arch.ropes.len() > angles.len() {
        return Err(LaunchError::Unsupported { what: "forward pass", why: "more than four rotary embeddings" });
    }
    for (slot, rope) in angles.iter_mut().zip(&arch.ropes) {
        let mut span = scratch.take(tokens * rope.dims)?;
        ops::angles(on, cpu, &mut span, positions, rope)?;
        *slot = Some(span.into_read());
    }
    let mut sinks: [Option<StableSpan<'_, f32, P>>; 4] = [None; 4];
    if let Some(streaming) = arch.streaming {
        for (slot, rope) in sinks.iter_mut().zip(&arch.ropes) {
            let mut span = scratch.take(tokens * rope.dims)?;
            ops::angles_for_sinks(on, cpu, &mut span, positions, rope, streaming)?;
            *slot = Some(span.into_read());
        }
    }
    let mut buffers = Buffers::take(&mut scratch, &units)?;
    let mut q_sinks = match units.sinks {
        0 => None,
        units => Some(scratch.take(units)?),
    };

    if arch.weights.ends {
        ops::embed(on, cpu, &mut buffers.x, weights.embed, part(work.tokens.read(), tokens)?, arch.embed_scale)?;
    }
    enter(&mut buffers.x)?;
    let first =
        weights.layers.at(0).ok_or(LaunchError::Unsupported { what: "forward pass", why: "a model of no layers" })?;
    {
        let Buffers { x, quantized, float, .. } = &mut buffers;
        let mut quantized = head(quantized, quant_bytes(tokens, hidden))?;
        let mut float = head(float, if arch.floats { tokens * hidden } else { 1 })?;
        ops::norm(on, cpu, &mut quantized, &mut float, &*x, first.attn_norm, numbers, arch.floats)?;
    }
    for (index, layer) in arch.layers.iter().enumerate() {
        let weight = weights.layers.at(index).unwrap_or(first);
        let next = weights.layers.at(index + 1).map_or(weights.norm, |next| next.attn_norm);
        let LayerArch { kv: place, rope, .. } = layer;
        let (q_rows, kv_rows) =
            (place.params.heads * place.shape.head_dim, place.shape.kv_heads * place.shape.head_dim);
        let ffn_rows = arch.weights.layers[index].ffn;
        let Buffers { x, delta, float, quantized, q, attn, k, v, ffn, .. } = &mut buffers;
        let [mut q, mut attn] = [head(q, tokens * q_rows)?, head(attn, tokens * q_rows)?];
        let [mut k, mut v] = [head(k, tokens * kv_rows)?, head(v, tokens * kv_rows)?];
        let mut ffn = head(ffn, tokens * ffn_rows)?;

        let input = activations(&*quantized, &*float, tokens, hidden)?;
        ops::project_qkv(on, cpu, [&mut q, &mut k, &mut v], [weight.q, weight.k, weight.v], input)?;
        if layer.qk_norm {
            ops::head_norm(on, cpu, &mut q, weight.q_norm, tokens * place.params.heads, arch.epsilon)?;
            ops::head_norm(on, cpu, &mut k, weight.k_norm, tokens * place.shape.kv_heads, arch.epsilon)?;
        }
        let angles =
            angles[*rope].ok_or(LaunchError::Unsupported { what: "rotary embedding", why: "it is not listed" })?;
        let (rope, sinks) = (&arch.ropes[*rope], sinks[*rope]);
        let q_sinks = match (&mut q_sinks, sinks) {
            (Some(q_sinks), Some(angles)) if layer.group == Group::Global => {
                let mut q_sinks = head(q_sinks, tokens * q_rows)?;
                ops::copy(on, &mut q_sinks, &q)?;
                ops::rotate(on, cpu, &mut q_sinks, angles, rope, (tokens, place.params.heads, place.shape.head_dim))?;
                Some(q_sinks)
            }
            _ => None,
        };
        ops::rotate(on, cpu, &mut q, angles, rope, (tokens, place.params.heads, place.shape.head_dim))?;
        ops::rotate(on, cpu, &mut k, angles, rope, (tokens, place.shape.kv_heads, place.shape.head_dim))?;
        let lengths = work.lengths.read();
        let at = (rows, positions, lengths);
        match (layer.group, window.as_mut(), window_table.as_ref()) {
            (Group::Window, Some(pool), Some(table)) => {
                cached(on, cpu, layer, pool, table, at, (&q, &k, &v), &mut attn)?;
            }
            _ => {
                let rings = match (ring.as_mut(), ring_table.as_ref(), arch.ring) {
                    (Some(pool), Some(table), Some(ring)) if layer.has_ring() => Some((pool, table, ring)),
                    _ => None,
                };
                let looks = (&q, q_sinks.as_ref().unwrap_or(&q), arch.streaming.filter(|_| q_sinks.is_some()));
                match (rings, looks) {
                    (Some(rings), looks) => {
                        let at = (rows, positions, lengths, work.starts.read());
                        ringed(on, cpu, layer, (&mut *kv, table), rings, at, looks, (&k, &v), &mut attn)?;
                    }
                    (None, (q, q_sinks, Some(streaming))) => {
                        let (at, how) = ([rows, positions, lengths], (streaming, layer.kv));
                        ops::kv_write(on, cpu, &mut kv.slab_mut(), table.ids(), rows, positions, [&k, &v], layer.kv)?;
                        ops::attend_streaming(on, cpu, &mut attn, &kv.slab(), table.ids(), at, [q, q_sinks], how)?;
                    }
                    (None, _) => cached(on, cpu, layer, kv, table, at, (&q, &k, &v), &mut attn)?,
                }
                if let (Some(pool), Some(table)) = (low.as_mut(), low_table.as_ref()) {
                    low_cached(on, cpu, layer, pool, table, at, (&q, &k, &v), &mut attn)?;
                }
            }
        }
        {
            let mut quantized = head(quantized, quant_bytes(tokens, q_rows))?;
            ops::quantize(on, cpu, &mut quantized, &attn, (tokens, q_rows))?;
            let input = Activations { quantized: quantized.read(), float: attn.read(), rows: tokens, columns: q_rows };
            ops::project(on, cpu, delta, weight.o, input)?;
        }
        let modes = (arch.post_norms, arch.floats);
        {
            let mut quantized = head(quantized, quant_bytes(tokens, hidden))?;
            let mut float = head(float, if arch.floats { tokens * hidden } else { 1 })?;
            let norms = [weight.post_attn_norm, weight.ffn_norm];
            ops::residual_norm(on, cpu, x, &mut quantized, &mut float, &*delta, norms, numbers, modes)?;
        }
        let input = activations(&*quantized, &*float, tokens, hidden)?;
        ops::project_gated(on, cpu, &mut ffn, [weight.gate, weight.up], layer.activation, input)?;
        {
            let mut quantized = head(quantized, quant_bytes(tokens, ffn_rows))?;
            ops::quantize(on, cpu, &mut quantized, &ffn, (tokens, ffn_rows))?;
            let input = Activations { quantized: quantized.read(), float: ffn.read(), rows: tokens, columns: ffn_rows };
            ops::project(on, cpu, delta, weight.down, input)?;
        }
        let mut quantized = head(quantized, quant_bytes(tokens, hidden))?;
        let mut float = head(float, if arch.floats { tokens * hidden } else { 1 })?;
        let norms = [weight.post_ffn_norm, next];
        ops::residual_norm(on, cpu, x, &mut quantized, &mut float, &*delta, norms, numbers, modes)?;
        probe(arch.first + index, x.read())?;
    }
    if picks == 0 {
        return Ok(());
    }
    let Buffers { float, quantized, picked, picked_float, .. } = &mut buffers;
    let chosen = part(work.picks.read(), picks)?;
    let row_bytes = quant_bytes(1, hidden);
    ops::gather(on, picked, part(quantized.read(), tokens * row_bytes)?, chosen, row_bytes)?;
    if arch.floats {
        ops::gather(on, picked_float, part(float.read(), tokens * hidden)?, chosen, hidden)?;
    }
    let input = Activations { quantized: picked.read(), float: picked_float.read(), rows: picks, columns: hidden };
    let matrix = if arch.weights.head.is_some() { weights.head } else { weights.embed };
    ops::project(on, cpu, logits, matrix, input)?;
    if let Some(cap) = arch.softcap {
        ops::softcap(on, cpu, logits, cap)?;
    }
    let mut sampled = head(&mut work.sampled, picks)?;
    let how = part(work.sampling.read(), picks * 2)?;
    let random = part(work.random.read(), picks * 3)?;
    ops::sample(on, cpu, &mut sampled, &*logits, how, random, arch.vocab())
}

fn quant_bytes(rows: usize, columns: usize) -> usize {
    engine_kernels::QuantRows::bytes(rows, columns).unwrap_or(usize::MAX)
}

fn activations<'x, P: Place>(
    quantized: &'x StableSpanMut<'_, u8, P>,
    float: &'x StableSpanMut<'_, f32, P>,
    rows: usize,
    columns: usize,
) -> Result<Activations<StableSpan<'x, u8, P>, StableSpan<'x, f32, P>>, LaunchError> {
    Ok(Activations {
        quantized: part(quantized.read(), quant_bytes(rows, columns))?,
        float: float.read(),
        rows,
        columns,
    })
}

/// Writes this pass's keys and values, and attends.
#[allow(clippy::too_many_arguments, reason = "a layer's pool, its table, and four rows of inputs")]
fn cached<K: PoolKind<Element = f16>, P: Place<Space = Host> + Fits<P>>(
    on: &Recorder<P>,
    cpu: &Cpu,
    layer: &LayerArch,
    pool: &mut PoolView<'_, K, P>,
    table: &PageTableView<'_, K, P>,
    (rows, positions, lengths): (StableSpan<'_, u32, P>, StableSpan<'_, u32, P>, StableSpan<'_, u32, P>),
    (q, k, v): (&StableSpanMut<'_, f32, P>, &StableSpanMut<'_, f32, P>, &StableSpanMut<'_, f32, P>),
    out: &mut StableSpanMut<'_, f32, P>,
) -> Result<(), LaunchError> {
    ops::kv_write(on, cpu, &mut pool.slab_mut(), table.ids(), rows, positions, [k, v], layer.kv)?;
    ops::attend(on, cpu, out, &pool.slab(), table.ids(), [rows, positions, lengths], q, layer.kv)
}

/// A pool with its page table.
type Paged<'x, 'v, K, P> = (&'x mut PoolView<'v, K, P>, &'x PageTableView<'v, K, P>);

/// The same with the latest tokens in rings: tile after tile, since a ring has room for the latest tokens and those of a tile.
#[allow(clippy::too_many_arguments, reason = "a layer's pools, their tables, and six rows of inputs")]
fn ringed<K: PoolKind<Element = f16>, R: PoolKind<Element = f16>, P: Place<Space = Host> + Fits<P>>(
    on: &Recorder<P>,
    cpu: &Cpu,
    layer: &LayerArch,
    (pool, table): Paged<'_, '_, K, P>,
    (rings, ring_table, ring): (&mut PoolView<'_, R, P>, &PageTableView<'_, R, P>, RingArch),
    (rows, positions, lengths, starts): (
        StableSpan<'_, u32, P>,
        StableSpan<'_, u32, P>,
        StableSpan<'_, u32, P>,
        StableSpan<'_, u32, P>,
    ),
    (q, q_sinks, streaming): (&StableSpanMut<'_, f32, P>, &StableSpanMut<'_, f32, P>, Option<Streaming>),
    (k, v): (&StableSpanMut<'_, f32, P>, &StableSpanMut<'_, f32, P>),
    out: &mut StableSpanMut<'_, f32, P>,
) -> Result<(), LaunchError> {
    // Everything is rounded as it is written: what leaves a ring is there already.
    ops::kv_write(on, cpu, &mut pool.slab_mut(), table.ids(), rows, positions, [k, v], layer.kv)?;
    let tokens = rows.len();
    let (q_row, kv_row) = (q.len() / tokens, k.len() / tokens);
    for first in (0..tokens).step_by(RING_TILE) {
        let tile = first..(first + RING_TILE).min(tokens);
        let (cells, heads) = (tile.start * kv_row..tile.end * kv_row, tile.start * q_row..tile.end * q_row);
        let (rows, positions) = (slice(rows, tile.clone())?, slice(positions, tile.clone())?);
        let new = [slice(k.read(), cells.clone())?, slice(v.read(), cells)?];
        ops::ring_write(on, cpu, &mut rings.slab_mut(), ring_table.ids(), rows, positions, new, (ring, layer.kv))?;
        let looks = [slice(q.read(), heads.clone())?, slice(q_sinks.read(), heads.clone())?];
        let wrong = LaunchError::Shape { what: "attention output", expected: out.len(), found: heads.end };
        let mut out = out.range(heads).ok_or(wrong)?;
        let (at, how) = ([rows, positions, lengths, starts], (ring, streaming, layer.kv));
        let (slab, ids) = (pool.slab(), table.ids());
        ops::ring_attend(on, cpu, &mut out, &slab, ids, &rings.slab(), ring_table.ids(), at, looks, how)?;
    }
    Ok(())
}

/// A part of a span that is large enough by construction.
fn slice<T: memtier::Plain, P: Place>(
    span: StableSpan<'_, T, P>,
    range: std::ops::Range<usize>,
) -> Result<StableSpan<'_, T, P>, LaunchError> {
    let (expected, found) = (span.len(), range.end);
    span.range(range).ok_or(LaunchError::Shape { what: "tile of a pass", expected, found })
}

/// The same for the requests whose blocks are in the pool of smaller elements: the others' rows are holes here, and stay as they are.
#[allow(clippy::too_many_arguments, reason = "as above")]
fn low_cached<K: PoolKind<Element = u16>, P: Place<Space = Host> + Fits<P>>(
    on: &Recorder<P>,
    cpu: &Cpu,
    layer: &LayerArch,
    pool: &mut PoolView<'_, K, P>,
    table: &PageTableView<'_, K, P>,
    (rows, positions, lengths): (StableSpan<'_, u32, P>, StableSpan<'_, u32, P>, StableSpan<'_, u32, P>),
    (q, k, v): (&StableSpanMut<'_, f32, P>, &StableSpanMut<'_, f32, P>, &StableSpanMut<'_, f32, P>),
    out: &mut StableSpanMut<'_, f32, P>,
) -> Result<(), LaunchError> {
    ops::low_write(on, cpu, &mut pool.slab_mut(), table.ids(), rows, positions, [k, v], layer.kv)?;
    ops::low_attend(on, cpu, out, &pool.slab(), table.ids(), [rows, positions, lengths], q, layer.kv)
}
