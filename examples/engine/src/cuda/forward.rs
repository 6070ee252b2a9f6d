//! The forward pass over CUDA kernels, for prefill and decode, eager and captured.

use engine_kernels::{Activation, RopeStyle};
use memtier::{
    Cuda, LaunchError, PageTableView, Place, PoolKind, PoolView, Recorder, ScratchFrame, ScratchFull, StableSpan,
    StableSpanMut, bf16, f16,
};
use memtier_cuda::{
    Kernels,
    kernels::{self as k, DecodeShape, DecodeWork, HeadNorms, Inputs, Matrix, PagedKv, PrefillShape, RopeShape},
};

use super::scratch::{Units, shares};
use crate::{
    arch::{Arch, Group, LayerArch},
    compute::See,
    forward::{Enter, Pass},
    model::ModelView,
};

/// The buffers of one pass, taken from the stream's scratch.
struct Buffers<'f, P: Place> {
    x: StableSpanMut<'f, f32, P>,
    normed: StableSpanMut<'f, bf16, P>,
    delta: StableSpanMut<'f, f32, P>,
    qkv: StableSpanMut<'f, bf16, P>,
    q: StableSpanMut<'f, f16, P>,
    attn: StableSpanMut<'f, bf16, P>,
    ffn: StableSpanMut<'f, bf16, P>,
    picked: StableSpanMut<'f, f32, P>,
    picked_normed: StableSpanMut<'f, bf16, P>,
    partial: StableSpanMut<'f, f32, P>,
    arrived: StableSpanMut<'f, u32, P>,
    sees: StableSpanMut<'f, u32, P>,
}

impl<'f, P: Place> Buffers<'f, P> {
    fn take(scratch: &mut ScratchFrame<'f, P>, units: &Units) -> Result<Self, ScratchFull> {
        Ok(Buffers {
            x: scratch.take(units.hidden)?,
            normed: scratch.take(units.hidden)?,
            delta: scratch.take(units.delta)?,
            qkv: scratch.take(units.qkv)?,
            q: scratch.take(units.q)?,
            attn: scratch.take(units.q)?,
            ffn: scratch.take(units.ffn)?,
            picked: scratch.take(units.picked)?,
            picked_normed: scratch.take(units.picked)?,
            partial: scratch.take(units.partial)?,
            arrived: scratch.take(units.arrived)?,
            sees: scratch.take(units.tokens)?,
        })
    }
}

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

/// What comes behind the first `units`.
fn rest<'x, T: memtier::Plain, P>(
    span: &'x mut StableSpanMut<'_, T, P>,
    units: usize,
) -> Result<StableSpanMut<'x, T, P>, LaunchError> {
    let found = span.len();
    span.range(units..found).ok_or(LaunchError::Shape { what: "scratch buffer", expected: units, found })
}

fn rest_of<'x, T: memtier::Plain, P: Place>(
    span: StableSpan<'x, T, P>,
    units: usize,
) -> Result<StableSpan<'x, T, P>, LaunchError> {
    let found = span.len();
    span.range(units..found).ok_or(LaunchError::Shape { what: "workspace", expected: units, found })
}

/// Kernels, a recorder, and the numbers of all norms: what every launch of a pass takes.
struct Launch<'l, P: Place> {
    on: &'l Recorder<P>,
    kernels: &'l Kernels,
    arch: &'l Arch,
    tokens: usize,
    /// The first tokens, of which each is a query for itself.
    decodes: usize,
}

impl<P: Place<Space = Cuda>> Launch<'_, P> {
    /// Whether projections of so many rows normalise their inputs on the way. They do always or never where rows must not depend
    /// on those beside them.
    fn few(&self, rows: usize, columns: usize) -> bool {
        !self.arch.batch_invariant && k::is_few(rows, columns)
    }

    /// `rows` rows of the residual stream, normalised: on the way into the projection for few of them, else in `normed`.
    fn inputs<'x>(
        &self,
        x: &'x StableSpanMut<'_, f32, P>,
        normed: &'x mut StableSpanMut<'_, bf16, P>,
        weight: StableSpan<'x, f32, P>,
        rows: usize,
    ) -> Result<Inputs<'x, P>, LaunchError> {
        let Launch { on, kernels, arch, .. } = *self;
        let epsilon = arch.epsilon;
        if self.few(rows, weight.len()) {
            return Ok(Inputs::Normed { x: x.read(), weight, epsilon });
        }
        k::rms_norm_wide(on, kernels, normed, x, weight, (rows, epsilon))?;
        Ok(Inputs::Plain(normed.read()))
    }

    /// `x += matrix input`, behind a norm of its own where the model has one.
    fn back(
        &self,
        x: &mut StableSpanMut<'_, f32, P>,
        delta: &mut StableSpanMut<'_, f32, P>,
        matrix: Matrix<'_, P>,
        input: StableSpan<'_, bf16, P>,
        post_norm: Option<StableSpan<'_, f32, P>>,
    ) -> Result<(), LaunchError> {
        let Launch { on, kernels, arch, tokens, .. } = *self;
        let Some(weight) = post_norm else {
            return k::project_add(on, kernels, x, matrix, Inputs::Plain(input), tokens);
        };
        k::project_f32(on, kernels, delta, &[matrix], Inputs::Plain(input), tokens)?;
        k::add_rms_norm(on, kernels, x, &*delta, weight, (tokens, arch.epsilon))
    }
}

/// As [`forward`](crate::forward::forward).
#[allow(clippy::too_many_arguments, reason = "a step's parts, the model, and what comes out")]
pub(super) fn forward<P: Place<Space = Cuda>>(
    kernels: &Kernels,
    arch: &Arch,
    (pass, units): (Pass, Units),
    view: &mut ModelView<'_, P>,
    on: &Recorder<P>,
    mut scratch: ScratchFrame<'_, P>,
    logits: &mut StableSpanMut<'_, f32, P>,
    enter: Enter<'_, P>,
    see: See<'_, P>,
) -> Result<(), LaunchError> {
    let Pass { tokens, picks, decodes } = pass;
    let launch = Launch { on, kernels, arch, tokens, decodes };
    let ModelView { weights, work, kv, table, window, window_table, .. } = view;
    let hidden = arch.weights.hidden;
    let positions = part(work.positions.read(), tokens)?;
    let rows = part(work.rows.read(), tokens)?;
    let mut angles: [Option<StableSpan<'_, f32, P>>; 4] = [None; 4];
    if arch.ropes.len() > angles.len() {
        return Err(LaunchError::Unsupported { what: "forward pass", why: "more than four rotary embeddings" });
    }
    for (slot, rope) in angles.iter_mut().zip(&arch.ropes) {
        let mut span = scratch.take(tokens * rope.dims)?;
        k::rope_angles_of(on, kernels, &mut span, positions, (rope.dims / 2, rope.base, rope.scale))?;
        *slot = Some(span.into_read());
    }
    let mut buffers = Buffers::take(&mut scratch, &units)?;
    k::begin_pass(on, kernels, &mut buffers.sees, &mut buffers.arrived, positions)?;
    if arch.weights.ends {
        let ids = part(work.tokens.read(), tokens)?;
        k::embed(on, kernels, &mut buffers.x, Matrix::packed(weights.embed)?, ids, arch.embed_scale)?;
    }
    enter(&mut buffers.x)?;
    for (index, layer) in arch.layers.iter().enumerate() {
        let no_layer = LaunchError::Unsupported { what: "forward pass", why: "a layer without weights" };
        let weight = weights.layers.at(index).ok_or(no_layer)?;
        let no_rope = LaunchError::Unsupported { what: "rotary embedding", why: "it is not listed" };
        let angles = angles[layer.rope].ok_or(no_rope)?;
        let rope = &arch.ropes[layer.rope];
        let style = match rope.style {
            RopeStyle::Interleaved => k::RopeStyle::Interleaved,
            _ => k::RopeStyle::Halves,
        };
        let shape = RopeShape { heads: layer.kv.params.heads, pairs: rope.dims / 2, style };
        let dims = &arch.weights.layers[index];
        let Buffers { x, normed, delta, qkv, q, attn, ffn, partial, arrived, sees, .. } = &mut buffers;
        let mut qkv = head(qkv, tokens * (dims.q_rows + 2 * dims.kv_rows))?;
        let (mut q, mut attn) = (head(q, tokens * dims.q_rows)?, head(attn, tokens * dims.q_rows)?);

        let matrices = [Matrix::packed(weight.q)?, Matrix::packed(weight.k)?, Matrix::packed(weight.v)?];
        let norms = HeadNorms { q: weight.q_norm, k: weight.k_norm, epsilon: arch.epsilon };
        let norms = layer.qk_norm.then_some(norms);
        let mut attention = Attention {
            q: &mut q,
            out: &mut attn,
            work: DecodeWork { partial: &mut *partial, arrived: &mut *arrived },
        };
        // One token and no norms of heads: straight from the residual stream. Otherwise through the projected rows.
        let straight = tokens == 1 && norms.is_none() && launch.few(1, hidden);
        let input = launch.inputs(x, normed, weight.attn_norm, tokens)?;
        if !straight {
            k::project(on, kernels, &mut qkv, &matrices, input, tokens)?;
        }
        let projected = match straight {
            true => Projected::Straight(matrices, input),
            false => Projected::Rows(qkv.read(), norms),
        };
        let at = [rows, positions, sees.read()];
        let inputs = (projected, angles, shape);
        match (layer.group, window.as_mut(), window_table.as_ref()) {
            (Group::Window, Some(pool), Some(table)) => {
                launch.cached(layer, pool, table, at, inputs, &mut attention)?;
            }
            _ => launch.cached(layer, kv, table, at, inputs, &mut attention)?,
        }
        let post = |norm| arch.post_norms.then_some(norm);
        launch.back(x, delta, Matrix::packed(weight.o)?, attn.read(), post(weight.post_attn_norm))?;

        let [gate, up] = [Matrix::packed(weight.gate)?, Matrix::packed(weight.up)?];
        let activation = match layer.activation {
            Activation::Silu => k::Activation::Silu,
            _ => k::Activation::GeluTanh,
        };
        let mut ffn = head(ffn, tokens * dims.ffn)?;
        let input = launch.inputs(x, normed, weight.ffn_norm, tokens)?;
        k::project_gated(on, kernels, &mut ffn, [gate, up], input, (tokens, activation))?;
        launch.back(x, delta, Matrix::packed(weight.down)?, ffn.read(), post(weight.post_ffn_norm))?;
        see(arch.first + index, x.read())?;
    }
    if picks == 0 {
        return Ok(());
    }
    let Buffers { x, picked, picked_normed, .. } = &mut buffers;
    k::gather_rows(on, kernels, picked, x.read(), part(work.picks.read(), picks)?, hidden)?;
    let input = launch.inputs(picked, picked_normed, weights.norm, picks)?;
    let matrix = if arch.weights.head.is_some() { weights.head } else { weights.embed };
    k::project_f32(on, kernels, logits, &[Matrix::packed(matrix)?], input, picks)?;
    if let Some(cap) = arch.softcap {
        k::softcap(on, kernels, logits, cap)?;
    }
    let mut sampled = head(&mut work.sampled, picks)?;
    let how = part(work.sampling.read(), picks * 2)?;
    let random = part(work.random.read(), picks * 3)?;
    k::sample(on, kernels, &mut sampled, &*logits, how, random, arch.vocab())
}

/// What attention writes.
struct Attention<'x, 's, 'w, P: Place> {
    q: &'x mut StableSpanMut<'s, f16, P>,
    out: &'x mut StableSpanMut<'s, bf16, P>,
    work: DecodeWork<'x, 'w, P>,
}

/// Where queries, keys and values come from.
enum Projected<'x, P: Place> {
    /// One token's residual stream and its norm, through these matrices.
    Straight([Matrix<'x, P>; 3], Inputs<'x, P>),
    /// Rows that are projected already, and the norms of heads.
    Rows(StableSpan<'x, bf16, P>, Option<HeadNorms<'x, P, f32>>),
}

impl<P: Place<Space = Cuda>> Launch<'_, P> {
    /// Writes this pass's keys and values, and attends.
    fn cached<K: PoolKind<Element = f16>>(
        &self,
        layer: &LayerArch,
        pool: &mut PoolView<'_, K, P>,
        table: &PageTableView<'_, K, P>,
        [rows, positions, sees]: [StableSpan<'_, u32, P>; 3],
        (projected, angles, rope): (Projected<'_, P>, StableSpan<'_, f32, P>, RopeShape),
        attention: &mut Attention<'_, '_, '_, P>,
    ) -> Result<(), LaunchError> {
        let Launch { on, kernels, arch, tokens, decodes } = *self;
        let Attention { q, out, work } = attention;
        let params = layer.kv.params;
        let (kv_heads, head_dim) = (layer.kv.shape.kv_heads, layer.kv.shape.head_dim);
        let kv = PagedKv { layer_base: layer.kv.base, kv_heads, head_dim };
        let at = [rows, positions];
        let shapes = (kv, rope);
        let (slab, ids) = (&mut pool.slab_mut(), table.ids());
        match projected {
            Projected::Straight(matrices, x) => {
                k::project_rope_kv_write(on, kernels, q, slab, ids, matrices, x, angles, at, shapes)?;
            }
            Projected::Rows(qkv, norms) => {
                k::rope_kv_write(on, kernels, q, slab, ids, qkv, angles, at, norms, shapes)?;
            }
        }
        let window = params.window.map(|window| window as usize);
        let (heads, scale, softcap) = (params.heads, params.scale, params.softcap);
        let (slab, ids, width) = (&pool.slab(), table.ids(), heads * head_dim);
        if decodes > 0 {
            let (mut out, q) = (head(out, decodes * width)?, part(q.read(), decodes * width)?);
            let at = [part(rows, decodes)?, part(sees, decodes)?];
            let shape = DecodeShape { heads, scale, window, softcap, shares: shares(arch, layer, decodes) };
            let work = DecodeWork { partial: &mut *work.partial, arrived: &mut *work.arrived };
            k::paged_decode(on, kernels, &mut out, work, q, slab, ids, at, (kv, shape))?;
        }
        if decodes < tokens {
            let (mut out, q) = (rest(out, decodes * width)?, rest_of(q.read(), decodes * width)?);
            let at = [rest_of(rows, decodes)?, rest_of(positions, decodes)?];
            let shape = PrefillShape { heads, scale, window, softcap };
            k::paged_prefill(on, kernels, &mut out, q, slab, ids, at, (kv, shape))?;
        }
        Ok(())
    }
}
