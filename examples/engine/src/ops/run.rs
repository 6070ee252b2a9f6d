//! A pass on the CPU: rows are quantised once for all matrices that read them, as they come out of a norm or of attention.

use std::ops::Range;

use engine_kernels::{Activation, AttentionParams, KvShape, QuantRows};
use memtier::{
    Host, LaunchError, Place, Plain, PoolKind, Recorder, ScratchFrame, ScratchFull, StableSpan, StableSpanMut, f16,
};

use super::{self as ops, Activations, Cpu, KvLayer, Look, Rope};
use crate::{
    arch::{RING_TILE, RingArch},
    forward::Pass,
    model::ScratchUnits,
    operations::{Attention, Beside, Block, Cache, Launch, MatrixSpan, Operations, PassRows, Sinks, head, part},
    streaming::Streaming,
};

/// The buffers of one pass, taken from the stream's scratch.
struct Buffers<'p, P: Place> {
    x: StableSpanMut<'p, f32, P>,
    delta: StableSpanMut<'p, f32, P>,
    float: StableSpanMut<'p, f32, P>,
    quantized: StableSpanMut<'p, u8, P>,
    q: StableSpanMut<'p, f32, P>,
    attn: StableSpanMut<'p, f32, P>,
    k: StableSpanMut<'p, f32, P>,
    v: StableSpanMut<'p, f32, P>,
    ffn: StableSpanMut<'p, f32, P>,
    picked: StableSpanMut<'p, u8, P>,
    picked_float: StableSpanMut<'p, f32, P>,
    q_sinks: Option<StableSpanMut<'p, f32, P>>,
}

impl<'p, P: Place> Buffers<'p, P> {
    fn take(scratch: &mut ScratchFrame<'p, P>, units: &ScratchUnits) -> Result<Self, ScratchFull> {
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
            q_sinks: match units.sinks {
                0 => None,
                units => Some(scratch.take(units)?),
            },
        })
    }
}

/// A pass under way on the CPU.
pub struct CpuRun<'p, P: Place<Space = Host>> {
    launch: Launch<'p, Host, P>,
    rows: PassRows<'p, P>,
    buffers: Buffers<'p, P>,
}

impl<'p, P: Place<Space = Host>> Operations<'p, Host, P> for CpuRun<'p, P> {
    fn angles(
        Launch { on, ops: cpu, .. }: Launch<'_, Host, P>,
        out: &mut StableSpanMut<'_, f32, P>,
        positions: StableSpan<'_, u32, P>,
        rope: &Rope,
        _: Option<StableSpan<'_, f32, P>>,
        sinks: Option<Streaming>,
    ) -> Result<(), LaunchError> {
        match sinks {
            None => ops::angles(on, cpu, out, positions, rope),
            Some(streaming) => ops::angles_for_sinks(on, cpu, out, positions, rope, streaming),
        }
    }

    fn begin(
        launch: Launch<'p, Host, P>,
        rows: PassRows<'p, P>,
        _library: Option<StableSpanMut<'p, u8, P>>,
        scratch: &mut ScratchFrame<'p, P>,
    ) -> Result<Self, LaunchError> {
        let units = ScratchUnits::new(launch.arch, launch.pass.tokens, launch.pass.picks)
            .map_err(|_| LaunchError::Unsupported { what: "forward pass", why: "its scratch overflows" })?;
        Ok(CpuRun { launch, rows, buffers: Buffers::take(scratch, &units)? })
    }

    fn residual(&mut self) -> &mut StableSpanMut<'p, f32, P> {
        &mut self.buffers.x
    }

    fn embed(
        &mut self,
        table: MatrixSpan<'_, P>,
        tokens: StableSpan<'_, u32, P>,
        factor: f32,
    ) -> Result<(), LaunchError> {
        let Launch { on, ops: cpu, .. } = self.launch;
        ops::embed(on, cpu, &mut self.buffers.x, table, tokens, factor)
    }

    fn norm(&mut self, weight: StableSpan<'p, f32, P>) -> Result<(), LaunchError> {
        let Launch { on, ops: cpu, arch, pass } = self.launch;
        let Buffers { x, quantized, float, .. } = &mut self.buffers;
        let (mut quantized, mut float) = normed(quantized, float, self.launch)?;
        ops::norm(on, cpu, &mut quantized, &mut float, &*x, weight, (pass.tokens, arch.epsilon), arch.floats)
    }

    fn attend<K: PoolKind<Element = f16>>(
        &mut self,
        attention: &Attention<'_, P>,
        cache: Cache<'_, '_, K, P>,
        beside: Beside<'_, '_, P>,
    ) -> Result<(), LaunchError> {
        let Launch { on, ops: cpu, arch, pass: Pass { tokens, .. } } = self.launch;
        let Attention { layer, matrices, head_norms, rope, angles, sinks } = attention;
        let KvLayer { shape: KvShape { kv_heads, head_dim, .. }, params: AttentionParams { heads, .. }, .. } = layer.kv;
        let (q_units, kv_units) = (tokens * heads * head_dim, tokens * kv_heads * head_dim);
        let Buffers { float, quantized, q, attn, k, v, q_sinks, .. } = &mut self.buffers;
        let [mut q, mut attn] = [head(q, q_units)?, head(attn, q_units)?];
        let [mut k, mut v] = [head(k, kv_units)?, head(v, kv_units)?];

        let input = activations(&*quantized, &*float, tokens, arch.weights.hidden)?;
        ops::project_qkv(on, cpu, [&mut q, &mut k, &mut v], *matrices, input)?;
        if let Some([q_norm, k_norm]) = *head_norms {
            ops::head_norm(on, cpu, &mut q, q_norm, tokens * heads, arch.epsilon)?;
            ops::head_norm(on, cpu, &mut k, k_norm, tokens * kv_heads, arch.epsilon)?;
        }
        let (of_queries, of_keys) = ((tokens, heads, head_dim), (tokens, kv_heads, head_dim));
        let mut look = None;
        if let (Some(q_sinks), Some(Sinks { streaming, angles })) = (q_sinks, sinks) {
            let mut q_sinks = head(q_sinks, q_units)?;
            ops::copy(on, &mut q_sinks, &q)?;
            ops::rotate(on, cpu, &mut q_sinks, *angles, rope, of_queries)?;
            look = Some((q_sinks, *streaming));
        }
        ops::rotate(on, cpu, &mut q, *angles, rope, of_queries)?;
        ops::rotate(on, cpu, &mut k, *angles, rope, of_keys)?;
        let attending = Attending {
            on,
            cpu,
            rows: self.rows,
            layer: layer.kv,
            q: q.read(),
            look: look.as_ref().map(|(q_sinks, streaming)| (q_sinks.read(), *streaming)),
            new: [k.read(), v.read()],
        };
        let Beside { rings, low } = beside;
        match rings {
            Some((rings, ring)) => attending.ringed(cache, rings, ring, &mut attn)?,
            None => attending.cached(cache, &mut attn)?,
        }
        match low {
            Some(low) => attending.low_cached(low, &mut attn),
            None => Ok(()),
        }
    }

    fn gate(&mut self, matrices: [MatrixSpan<'_, P>; 2], activation: Activation) -> Result<(), LaunchError> {
        let Launch { on, ops: cpu, arch, pass } = self.launch;
        let Buffers { quantized, float, ffn, .. } = &mut self.buffers;
        let mut ffn = head(ffn, pass.tokens * matrices[0].meta().rows)?;
        let input = activations(&*quantized, &*float, pass.tokens, arch.weights.hidden)?;
        ops::project_gated(on, cpu, &mut ffn, matrices, activation, input)
    }

    fn add(
        &mut self,
        block: Block,
        matrix: MatrixSpan<'_, P>,
        post: Option<StableSpan<'_, f32, P>>,
        next: StableSpan<'p, f32, P>,
    ) -> Result<(), LaunchError> {
        let Launch { on, ops: cpu, arch, pass: Pass { tokens, .. } } = self.launch;
        let Buffers { x, delta, float, quantized, attn, ffn, .. } = &mut self.buffers;
        let columns = matrix.meta().columns;
        {
            let left = match block {
                Block::Attention => attn,
                Block::FeedForward => ffn,
            };
            let left = part(left.read(), tokens * columns)?;
            let mut quantized = head(quantized, quant_bytes(tokens, columns))?;
            ops::quantize(on, cpu, &mut quantized, left, (tokens, columns))?;
            let input = Activations { quantized: quantized.read(), float: left, rows: tokens, columns };
            ops::project(on, cpu, delta, matrix, input)?;
        }
        let (mut quantized, mut float) = normed(quantized, float, self.launch)?;
        let (norms, modes) = ([post.unwrap_or(next), next], (post.is_some(), arch.floats));
        ops::residual_norm(on, cpu, x, &mut quantized, &mut float, &*delta, norms, (tokens, arch.epsilon), modes)
    }

    fn logits(
        &mut self,
        out: &mut StableSpanMut<'_, f32, P>,
        matrix: MatrixSpan<'_, P>,
        picks: StableSpan<'_, u32, P>,
    ) -> Result<(), LaunchError> {
        let Launch { on, ops: cpu, arch, pass: Pass { tokens, .. } } = self.launch;
        let Buffers { float, quantized, picked, picked_float, .. } = &mut self.buffers;
        let (hidden, rows) = (arch.weights.hidden, picks.len());
        let row_bytes = quant_bytes(1, hidden);
        ops::gather(on, picked, part(quantized.read(), tokens * row_bytes)?, picks, row_bytes)?;
        if arch.floats {
            ops::gather(on, picked_float, part(float.read(), tokens * hidden)?, picks, hidden)?;
        }
        let input = Activations { quantized: picked.read(), float: picked_float.read(), rows, columns: hidden };
        ops::project(on, cpu, out, matrix, input)
    }

    fn softcap(&self, logits: &mut StableSpanMut<'_, f32, P>, cap: f32) -> Result<(), LaunchError> {
        ops::softcap(self.launch.on, self.launch.ops, logits, cap)
    }

    fn sample(
        &self,
        sampled: &mut StableSpanMut<'_, u32, P>,
        logits: &StableSpanMut<'_, f32, P>,
        picks: StableSpan<'_, u32, P>,
        how: (StableSpan<'_, f32, P>, StableSpan<'_, u32, P>),
    ) -> Result<(), LaunchError> {
        let Launch { on, ops: cpu, arch, .. } = self.launch;
        let PassRows { rows, positions, .. } = self.rows;
        ops::sample(on, cpu, sampled, logits, how, [picks, rows, positions], arch.vocab())
    }
}

fn quant_bytes(rows: usize, columns: usize) -> usize {
    QuantRows::bytes(rows, columns).unwrap_or(usize::MAX)
}

/// Where the normalised residual stream goes: quantised, and as it is where float weights read it.
fn normed<'x, P: Place<Space = Host>>(
    quantized: &'x mut StableSpanMut<'_, u8, P>,
    float: &'x mut StableSpanMut<'_, f32, P>,
    Launch { arch, pass, .. }: Launch<'_, Host, P>,
) -> Result<(StableSpanMut<'x, u8, P>, StableSpanMut<'x, f32, P>), LaunchError> {
    let (tokens, hidden) = (pass.tokens, arch.weights.hidden);
    let floats = if arch.floats { tokens * hidden } else { 1 };
    Ok((head(quantized, quant_bytes(tokens, hidden))?, head(float, floats)?))
}

fn activations<'x, P: Place>(
    quantized: &'x StableSpanMut<'_, u8, P>,
    float: &'x StableSpanMut<'_, f32, P>,
    rows: usize,
    columns: usize,
) -> Result<Activations<StableSpan<'x, u8, P>, StableSpan<'x, f32, P>>, LaunchError> {
    let quantized = part(quantized.read(), quant_bytes(rows, columns))?;
    Ok(Activations { quantized, float: float.read(), rows, columns })
}

/// A layer's queries, keys and values on their way into its caches and to what comes of them.
struct Attending<'x, P: Place> {
    on: &'x Recorder<P>,
    cpu: &'x Cpu,
    rows: PassRows<'x, P>,
    layer: KvLayer,
    q: StableSpan<'x, f32, P>,
    /// The same queries for the look at the sinks.
    look: Option<Look<'x, P>>,
    /// Keys and values.
    new: [StableSpan<'x, f32, P>; 2],
}

impl<P: Place<Space = Host>> Attending<'_, P> {
    /// Writes this pass's keys and values, and attends.
    fn cached<K: PoolKind<Element = f16>>(
        &self,
        mut cache: Cache<'_, '_, K, P>,
        out: &mut StableSpanMut<'_, f32, P>,
    ) -> Result<(), LaunchError> {
        let Attending { on, cpu, rows, layer, q, look, new } = *self;
        ops::kv_write(on, cpu, &mut cache, rows, new, layer)?;
        ops::attend(on, cpu, out, &cache, rows, q, look, layer)
    }

    /// The same with the latest tokens in rings: tile after tile, since a ring has room for the latest tokens and those of a tile.
    fn ringed<K: PoolKind<Element = f16>, R: PoolKind<Element = f16>>(
        &self,
        mut cache: Cache<'_, '_, K, P>,
        mut rings: Cache<'_, '_, R, P>,
        ring: RingArch,
        out: &mut StableSpanMut<'_, f32, P>,
    ) -> Result<(), LaunchError> {
        let Attending { on, cpu, rows, layer, q, look, new } = *self;
        // Everything is rounded as it is written: what leaves a ring is there already.
        ops::kv_write(on, cpu, &mut cache, rows, new, layer)?;
        let tokens = rows.rows.len();
        let (q_row, kv_row) = (q.len() / tokens, new[0].len() / tokens);
        for first in (0..tokens).step_by(RING_TILE) {
            let tile = first..(first + RING_TILE).min(tokens);
            let (cells, heads) = (tile.start * kv_row..tile.end * kv_row, tile.start * q_row..tile.end * q_row);
            let rows =
                PassRows { rows: slice(rows.rows, tile.clone())?, positions: slice(rows.positions, tile)?, ..rows };
            let new = [slice(new[0], cells.clone())?, slice(new[1], cells)?];
            ops::ring_write(on, cpu, &mut rings, rows, new, (ring, layer))?;
            let q = slice(q, heads.clone())?;
            let look = match look {
                Some((q_sinks, streaming)) => Some((slice(q_sinks, heads.clone())?, streaming)),
                None => None,
            };
            let wrong = LaunchError::Shape { what: "attention output", expected: out.len(), found: heads.end };
            let mut out = out.range(heads).ok_or(wrong)?;
            ops::ring_attend(on, cpu, &mut out, &cache, &rings, rows, q, look, (ring, layer))?;
        }
        Ok(())
    }

    /// The same for the requests whose blocks are in the pool of smaller elements: the others' rows are holes here, and stay as they are.
    fn low_cached<K: PoolKind<Element = u16>>(
        &self,
        mut cache: Cache<'_, '_, K, P>,
        out: &mut StableSpanMut<'_, f32, P>,
    ) -> Result<(), LaunchError> {
        let Attending { on, cpu, rows, layer, q, new, .. } = *self;
        ops::low_write(on, cpu, &mut cache, rows, new, layer)?;
        ops::low_attend(on, cpu, out, &cache, rows, q, layer)
    }
}

/// A part of a span that is large enough by construction.
fn slice<T: Plain, P: Place>(
    span: StableSpan<'_, T, P>,
    range: Range<usize>,
) -> Result<StableSpan<'_, T, P>, LaunchError> {
    let (expected, found) = (span.len(), range.end);
    span.range(range).ok_or(LaunchError::Shape { what: "tile of a pass", expected, found })
}
