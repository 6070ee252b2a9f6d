//! A pass on a CUDA device: norms happen on the way into the projections that read them, where rows are few; keys and values are
//! written by the launch that rotates them.

use engine_kernels::{Activation, AttentionParams, KvFormat, KvShape, RopeStyle};
use memtier::{
    BlockId, Cuda, LaunchError, Place, Plain, PoolKind, ScratchFrame, ScratchFull, Slab, SlabMut, StableSpan,
    StableSpanMut, bf16, f16,
};
use memtier_cuda::{
    Kernels,
    kernels::{self as k, DecodeShape, DecodeWork, HeadNorms, Inputs, PackedKv, PagedKv, PrefillShape, RopeShape},
};

use super::{
    library::{ByLibrary, by_library, pays},
    scratch::{Units, shares},
    weights::{Matrices, matrices},
};
use crate::{
    arch::LayerArch,
    forward::Pass,
    operations::{Attention, Beside, Block, Cache, Launch, MatrixSpan, Operations, PassRows, head, part},
    ops::Rope,
    streaming::Streaming,
};

/// The buffers of one pass, taken from the stream's scratch.
struct Buffers<'p, P: Place> {
    x: StableSpanMut<'p, f32, P>,
    normed: StableSpanMut<'p, bf16, P>,
    delta: StableSpanMut<'p, f32, P>,
    qkv: StableSpanMut<'p, bf16, P>,
    q: StableSpanMut<'p, f16, P>,
    attn: StableSpanMut<'p, bf16, P>,
    ffn: StableSpanMut<'p, bf16, P>,
    gate_up: StableSpanMut<'p, bf16, P>,
    picked: StableSpanMut<'p, f32, P>,
    picked_normed: StableSpanMut<'p, bf16, P>,
    partial: StableSpanMut<'p, f32, P>,
    arrived: StableSpanMut<'p, u32, P>,
    sees: StableSpanMut<'p, u32, P>,
    wide: StableSpanMut<'p, bf16, P>,
}

impl<'p, P: Place> Buffers<'p, P> {
    fn take(scratch: &mut ScratchFrame<'p, P>, units: &Units) -> Result<Self, ScratchFull> {
        Ok(Buffers {
            x: scratch.take(units.hidden)?,
            normed: scratch.take(units.hidden)?,
            delta: scratch.take(units.delta)?,
            qkv: scratch.take(units.qkv)?,
            q: scratch.take(units.q)?,
            attn: scratch.take(units.q)?,
            ffn: scratch.take(units.ffn)?,
            gate_up: scratch.take(units.gate_up)?,
            picked: scratch.take(units.picked)?,
            picked_normed: scratch.take(units.picked)?,
            partial: scratch.take(units.partial)?,
            arrived: scratch.take(units.arrived)?,
            sees: scratch.take(units.tokens)?,
            wide: scratch.take(units.unpacked)?,
        })
    }
}

/// A pass under way on a CUDA device.
pub struct CudaRun<'p, P: Place<Space = Cuda>> {
    device: Device<'p, P>,
    rows: PassRows<'p, P>,
    buffers: Buffers<'p, P>,
    library: Option<ByLibrary<'p, P>>,
}

/// What launches of a pass take, and how they read the residual stream.
pub(super) struct Device<'p, P: Place<Space = Cuda>> {
    pub(super) launch: Launch<'p, Cuda, P>,
    pub(super) kernels: Kernels,
    /// The norm through which the residual stream is read next.
    norm: Option<StableSpan<'p, f32, P>>,
}

impl<P: Place<Space = Cuda>> Device<'_, P> {
    /// Whether projections of so many rows normalise their inputs on the way. They do always or never where rows must not depend
    /// on those beside them.
    fn few(&self, rows: usize, columns: usize) -> bool {
        !self.launch.arch.batch_invariant && k::is_few(rows, columns)
    }

    /// `rows` rows of the residual stream, normalised: on the way into the projection for few of them, else in `normed`.
    fn inputs<'x>(
        &'x self,
        x: &'x StableSpanMut<'_, f32, P>,
        normed: &'x mut StableSpanMut<'_, bf16, P>,
        rows: usize,
    ) -> Result<Inputs<'x, P>, LaunchError> {
        let weight = self.weight()?;
        if self.few(rows, weight.len()) {
            return Ok(Inputs::Normed { x: x.read(), weight, epsilon: self.launch.arch.epsilon });
        }
        self.normed(x, normed, rows).map(Inputs::Plain)
    }

    /// The same for a product with tiles.
    fn inputs_of_tiles<'x>(
        &'x self,
        x: &'x StableSpanMut<'_, f32, P>,
        normed: &'x mut StableSpanMut<'_, bf16, P>,
        rows: usize,
    ) -> Result<Inputs<'x, P>, LaunchError> {
        let weight = self.weight()?;
        if !self.launch.arch.batch_invariant && k::is_few_tiled(rows, weight.len()) {
            return Ok(Inputs::Normed { x: x.read(), weight, epsilon: self.launch.arch.epsilon });
        }
        self.normed(x, normed, rows).map(Inputs::Plain)
    }

    /// The same in `normed`, however few they are.
    fn normed<'x>(
        &self,
        x: &StableSpanMut<'_, f32, P>,
        normed: &'x mut StableSpanMut<'_, bf16, P>,
        rows: usize,
    ) -> Result<StableSpan<'x, bf16, P>, LaunchError> {
        let Launch { on, arch, .. } = self.launch;
        k::rms_norm_wide(on, &self.kernels, normed, x, self.weight()?, (rows, arch.epsilon))?;
        Ok(normed.read())
    }

    fn weight(&self) -> Result<StableSpan<'_, f32, P>, LaunchError> {
        self.norm.ok_or(LaunchError::Unsupported { what: "residual stream", why: "no norm was named" })
    }
}

impl<'p, P: Place<Space = Cuda>> Operations<'p, Cuda, P> for CudaRun<'p, P> {
    fn angles(
        Launch { on, ops, .. }: Launch<'_, Cuda, P>,
        out: &mut StableSpanMut<'_, f32, P>,
        positions: StableSpan<'_, u32, P>,
        rope: &Rope,
        factors: Option<StableSpan<'_, f32, P>>,
        sinks: Option<Streaming>,
    ) -> Result<(), LaunchError> {
        if sinks.is_some() {
            return Err(only_whole_sequences());
        }
        k::rope_angles_of(on, &ops.kernels, out, positions, (rope.dims / 2, rope.base, rope.scale), factors)
    }

    fn begin(
        launch: Launch<'p, Cuda, P>,
        rows: PassRows<'p, P>,
        library: Option<StableSpanMut<'p, u8, P>>,
        scratch: &mut ScratchFrame<'p, P>,
    ) -> Result<Self, LaunchError> {
        let units = Units::new(launch.arch, launch.pass);
        let units = units.ok_or(LaunchError::Unsupported { what: "forward pass", why: "its scratch overflows" })?;
        let kernels = launch.ops.kernels.clone().batch_invariant(launch.arch.batch_invariant);
        let mut buffers = Buffers::take(scratch, &units)?;
        k::begin_pass(launch.on, &kernels, &mut buffers.sees, &mut buffers.arrived, rows.positions)?;
        let library = launch.ops.library.within(library);
        Ok(CudaRun { device: Device { launch, kernels, norm: None }, rows, buffers, library })
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
        let Device { launch, kernels, .. } = &self.device;
        let x = &mut self.buffers.x;
        match matrices([table])? {
            Matrices::Wide([table]) => k::embed(launch.on, kernels, x, table, tokens, factor),
            Matrices::Tiled([table]) => k::embed_tiled(launch.on, kernels, x, table, tokens, factor),
        }
    }

    fn norm(&mut self, weight: StableSpan<'p, f32, P>) -> Result<(), LaunchError> {
        self.device.norm = Some(weight);
        Ok(())
    }

    fn attend<K: PoolKind<Element = f16>>(
        &mut self,
        attention: &Attention<'_, P>,
        cache: Cache<'_, '_, K, P>,
        beside: Beside<'_, '_, P>,
    ) -> Result<(), LaunchError> {
        if beside.rings.is_some() || beside.low.is_some() {
            return Err(LaunchError::Unsupported {
                what: "keys and values on a GPU",
                why: "all tokens of a layer are alike, in one pool",
            });
        }
        if attention.sinks.is_some() {
            return Err(only_whole_sequences());
        }
        self.write(attention, &mut cache.pool.slab_mut(), cache.table.ids())?;
        self.look(attention.layer, &cache.pool.slab(), cache.table.ids())
    }

    fn gate(&mut self, of: [MatrixSpan<'_, P>; 2], activation: Activation) -> Result<(), LaunchError> {
        let Device { launch: Launch { on, pass: Pass { tokens, .. }, .. }, kernels, .. } = &self.device;
        let Buffers { x, normed, ffn, gate_up, wide, .. } = &mut self.buffers;
        let matrices = self.device.matrices(of, wide)?;
        let activation = match activation {
            Activation::Silu => k::Activation::Silu,
            _ => k::Activation::GeluTanh,
        };
        let columns = matrices.rows() / 2;
        let (mut ffn, how) = (head(ffn, tokens * columns)?, (*tokens, activation));
        match matrices {
            Matrices::Wide(pair) => {
                let input = self.device.inputs(x, normed, *tokens)?;
                let shape = [*tokens, self.device.launch.arch.weights.hidden, 2 * columns];
                if self.library.is_some() && pays(shape[0], shape[1], shape[2]) {
                    let mut gate_up = head(gate_up, 2 * tokens * columns)?;
                    let launched = by_library(&mut self.library, input, shape, |plans, x, workspace| {
                        plans.project(on, &mut gate_up, &pair, (x, *tokens), workspace)
                    })?;
                    if launched {
                        return k::gate(on, kernels, &mut ffn, &gate_up, columns, activation);
                    }
                }
                k::project_gated(on, kernels, &mut ffn, pair, input, how)
            }
            Matrices::Tiled(pair) => {
                let input = self.device.inputs_of_tiles(x, normed, *tokens)?;
                k::project_tiled_gated(on, kernels, &mut ffn, pair, input, how)
            }
        }
    }

    fn add(
        &mut self,
        block: Block,
        matrix: MatrixSpan<'_, P>,
        post: Option<StableSpan<'_, f32, P>>,
        next: StableSpan<'p, f32, P>,
    ) -> Result<(), LaunchError> {
        self.device.norm = Some(next);
        let Device { launch: Launch { on, arch, pass: Pass { tokens, .. }, .. }, kernels, .. } = &self.device;
        let Buffers { x, delta, attn, ffn, wide, .. } = &mut self.buffers;
        let matrix = self.device.matrices([matrix], wide)?;
        let left = match block {
            Block::Attention => attn,
            Block::FeedForward => ffn,
        };
        let (left, rows) = (part(left.read(), *tokens * matrix.columns())?, *tokens);
        let shape = [rows, matrix.columns(), matrix.rows()];
        let inputs = Inputs::Plain(left);
        let Some(weight) = post else {
            let launched = match &matrix {
                Matrices::Wide([matrix]) => by_library(&mut self.library, inputs, shape, |plans, left, workspace| {
                    plans.project_add(on, x, *matrix, (left, rows), workspace)
                })?,
                Matrices::Tiled(_) => false,
            };
            return match matrix {
                _ if launched => Ok(()),
                Matrices::Wide([matrix]) => k::project_add(on, kernels, x, matrix, inputs, rows),
                Matrices::Tiled([matrix]) => k::project_tiled_add(on, kernels, x, matrix, left, rows),
            };
        };
        match matrix {
            Matrices::Wide([matrix]) => {
                let launched = by_library(&mut self.library, inputs, shape, |plans, left, workspace| {
                    plans.project_f32(on, delta, matrix, (left, rows), workspace)
                })?;
                if !launched {
                    k::project_f32(on, kernels, delta, &[matrix], inputs, rows)?;
                }
            }
            Matrices::Tiled(matrix) => k::project_tiled_f32(on, kernels, delta, &matrix, left, rows)?,
        }
        k::add_rms_norm(on, kernels, x, &*delta, weight, (*tokens, arch.epsilon))
    }

    fn logits(
        &mut self,
        out: &mut StableSpanMut<'_, f32, P>,
        matrix: MatrixSpan<'_, P>,
        picks: StableSpan<'_, u32, P>,
    ) -> Result<(), LaunchError> {
        let Device { launch: Launch { on, arch, .. }, kernels, .. } = &self.device;
        let Buffers { x, picked, picked_normed, .. } = &mut self.buffers;
        k::gather_rows(on, kernels, picked, x.read(), picks, arch.weights.hidden)?;
        match matrices([matrix])? {
            Matrices::Wide(matrix) => {
                let input = self.device.inputs(picked, picked_normed, picks.len())?;
                k::project_f32(on, kernels, out, &matrix, input, picks.len())
            }
            // However many rows they are: unpacked, the largest of all matrices would take more room than all others.
            Matrices::Tiled(matrix) => {
                let input = self.device.inputs_of_tiles(picked, picked_normed, picks.len())?;
                k::project_tiled_f32(on, kernels, out, &matrix, input, picks.len())
            }
        }
    }

    fn softcap(&self, logits: &mut StableSpanMut<'_, f32, P>, cap: f32) -> Result<(), LaunchError> {
        k::softcap(self.device.launch.on, &self.device.kernels, logits, cap)
    }

    fn sample(
        &self,
        sampled: &mut StableSpanMut<'_, u32, P>,
        logits: &StableSpanMut<'_, f32, P>,
        picks: StableSpan<'_, u32, P>,
        how: (StableSpan<'_, f32, P>, StableSpan<'_, u32, P>),
    ) -> Result<(), LaunchError> {
        let Device { launch: Launch { on, arch, .. }, kernels, .. } = &self.device;
        let PassRows { rows, positions, .. } = self.rows;
        k::sample(on, kernels, sampled, logits, how, [picks, rows, positions], arch.vocab())
    }
}

fn only_whole_sequences() -> LaunchError {
    LaunchError::Unsupported { what: "a look at the sinks", why: "sequences on a GPU keep all their tokens" }
}

/// Where a layer's heads lie in a block.
fn paged(layer: &LayerArch) -> PagedKv {
    let KvShape { kv_heads, head_dim, format, .. } = layer.kv.shape;
    PagedKv { layer_base: layer.kv.base, kv_heads, head_dim, packed: packed(format) }
}

/// What a layer of this format is packed as, beside f16.
pub(super) fn packed(format: KvFormat) -> Option<PackedKv> {
    match format {
        KvFormat::Fp8 => Some(PackedKv::E4M3),
        KvFormat::Q8_0 => Some(PackedKv::Int8),
        KvFormat::Nvfp4 => Some(PackedKv::Nvfp4),
        _ => None,
    }
}

impl<P: Place<Space = Cuda>> CudaRun<'_, P> {
    /// Projects the residual stream, and writes queries, keys and values where attention finds them.
    fn write<K: PoolKind<Element = f16>>(
        &mut self,
        attention: &Attention<'_, P>,
        slab: &mut SlabMut<'_, K, P>,
        ids: StableSpan<'_, BlockId<K>, P>,
    ) -> Result<(), LaunchError> {
        let Device { launch: Launch { on, arch, pass: Pass { tokens, .. }, .. }, kernels, .. } = &self.device;
        let PassRows { rows, positions, .. } = self.rows;
        let Attention { layer, matrices, head_norms, rope, angles, .. } = attention;
        let Buffers { x, normed, qkv, q, wide, .. } = &mut self.buffers;
        let mut q = head(q, tokens * matrices[0].meta().rows)?;
        let matrices = self.device.matrices(*matrices, wide)?;
        let mut qkv = head(qkv, tokens * matrices.rows())?;
        let style = match rope.style {
            RopeStyle::Interleaved => k::RopeStyle::Interleaved,
            _ => k::RopeStyle::Halves,
        };
        let shapes = (paged(layer), RopeShape { heads: layer.kv.params.heads, pairs: rope.dims / 2, style });
        let at = [rows, positions];
        match matrices {
            Matrices::Wide(matrices) => {
                let input = self.device.inputs(x, normed, *tokens)?;
                // One token, no norms of heads and nothing to scale: straight from the residual stream. Otherwise through the projected
                // rows.
                let straight = head_norms.is_none() && shapes.0.packed.is_none();
                if *tokens == 1 && straight && self.device.few(1, arch.weights.hidden) {
                    let (q, angles) = (&mut q, *angles);
                    return k::project_rope_kv_write(on, kernels, q, slab, ids, matrices, input, angles, at, shapes);
                }
                let outputs = matrices.iter().map(k::Matrix::rows).sum();
                let shape = [*tokens, arch.weights.hidden, outputs];
                let launched = by_library(&mut self.library, input, shape, |plans, x, workspace| {
                    plans.project(on, &mut qkv, &matrices, (x, *tokens), workspace)
                })?;
                if !launched {
                    k::project(on, kernels, &mut qkv, &matrices, input, *tokens)?;
                }
            }
            Matrices::Tiled(matrices) => {
                let input = self.device.inputs_of_tiles(x, normed, *tokens)?;
                k::project_tiled(on, kernels, &mut qkv, &matrices, input, *tokens)?;
            }
        }
        let norms = head_norms.map(|[q, k]| HeadNorms { q, k, epsilon: arch.epsilon });
        k::rope_kv_write(on, kernels, &mut q, slab, ids, qkv.read(), *angles, at, norms, shapes)
    }

    /// Attends: the first tokens each for itself, the others as prompts.
    fn look<K: PoolKind<Element = f16>>(
        &mut self,
        layer: &LayerArch,
        slab: &Slab<'_, K, P>,
        ids: StableSpan<'_, BlockId<K>, P>,
    ) -> Result<(), LaunchError> {
        let Device { launch: Launch { on, arch, pass: Pass { tokens, decodes, .. }, .. }, kernels, .. } = &self.device;
        let PassRows { rows, positions, .. } = self.rows;
        let Buffers { q, attn, partial, arrived, sees, .. } = &mut self.buffers;
        let AttentionParams { heads, scale, window, softcap } = layer.kv.params;
        let (kv, window) = (paged(layer), window.map(|window| window as usize));
        let (width, tokens, decodes) = (heads * layer.kv.shape.head_dim, *tokens, *decodes);
        let (mut out, q) = (head(attn, tokens * width)?, part(q.read(), tokens * width)?);
        if decodes > 0 {
            let (mut out, q) = (head(&mut out, decodes * width)?, part(q, decodes * width)?);
            let at = [part(rows, decodes)?, part(sees.read(), decodes)?];
            let shape = DecodeShape { heads, scale, window, softcap, shares: shares(arch, layer, decodes) };
            k::paged_decode(on, kernels, &mut out, DecodeWork { partial, arrived }, q, slab, ids, at, (kv, shape))?;
        }
        if decodes < tokens {
            let (mut out, q) = (rest(&mut out, decodes * width)?, rest_of(q, decodes * width)?);
            let at = [rest_of(rows, decodes)?, rest_of(positions, decodes)?];
            let shape = PrefillShape { heads, scale, window, softcap };
            k::paged_prefill(on, kernels, &mut out, q, slab, ids, at, (kv, shape))?;
        }
        Ok(())
    }
}

/// What comes behind the first `units`.
fn rest<'x, T: Plain, P>(
    span: &'x mut StableSpanMut<'_, T, P>,
    units: usize,
) -> Result<StableSpanMut<'x, T, P>, LaunchError> {
    let found = span.len();
    span.range(units..found).ok_or(LaunchError::Shape { what: "scratch buffer", expected: units, found })
}

fn rest_of<'x, T: Plain, P: Place>(
    span: StableSpan<'x, T, P>,
    units: usize,
) -> Result<StableSpan<'x, T, P>, LaunchError> {
    let found = span.len();
    span.range(units..found).ok_or(LaunchError::Shape { what: "workspace", expected: units, found })
}
