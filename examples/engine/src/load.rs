//! Loading: every tensor is packed into a staging buffer, piece by piece, and uploaded.

use engine_kernels::{Format, GROUP_ROWS, dequantize_raw_row, f32_to_bf16, group_bytes, groups, pack_parallel};
#[cfg(feature = "cuda")]
use memtier::PackedFormat;
use memtier::{Fits, Load, Packed, Recorder, Space, StableSpanMut, Staging, Uploading};

#[cfg(feature = "cuda")]
use crate::cuda::tile_rows;
use crate::{
    EngineError, ModelFile,
    arch::{Arch, MATRICES, matrix},
    model::{Model, ModelLoadView},
    ops::Cpu,
    weights::{LayerWeightsMut, WeightFormat},
};

/// A piece of a matrix that is staged at a time, in bytes.
const PIECE: usize = 8 << 20;

/// How far a load has come, in bytes of the model file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Progress {
    /// Bytes packed.
    pub done: u64,
    /// Bytes there are.
    pub total: u64,
}

struct Loader<'l, 'p, S: Space> {
    file: &'l ModelFile,
    cpu: &'l Cpu,
    on: &'l Recorder<Uploading<S>>,
    staging: &'l Staging<'p>,
    done: u64,
    total: u64,
    report: &'l mut dyn FnMut(Progress),
}

type To<'x, S> = StableSpanMut<'x, Packed<WeightFormat>, Uploading<S>>;

/// Fills the weights of a carved bundle. `done` counts bytes over all devices.
///
/// # Errors
/// [`EngineError`] of the tensor that failed.
pub(crate) fn upload<S: Space>(
    file: &ModelFile,
    arch: &Arch,
    cpu: &Cpu,
    load: Load<'_, Model<S>>,
    done: &mut u64,
    report: &mut dyn FnMut(Progress),
) -> Result<(), EngineError> {
    let Load { buffers: ModelLoadView { mut weights, .. }, on, staging, .. } = load;
    let total = file.gguf().tensor_bytes();
    let mut loader = Loader { file, cpu, on, staging: &staging, done: *done, total, report };
    if arch.weights.ends {
        loader.matrix("token_embd.weight", &mut weights.embed)?;
        if arch.weights.head.is_some() {
            loader.matrix("output.weight", &mut weights.head)?;
        }
        loader.vector("output_norm.weight", &mut weights.norm)?;
    }
    for (index, mut layer) in weights.layers.iter_mut().enumerate() {
        loader.layer(index, arch, &mut layer)?;
    }
    for (rope, mut to) in arch.ropes.iter().zip(weights.ropes.iter_mut()) {
        if let Some(factors) = &rope.factors {
            let mut values = loader.staging.take::<f32>(factors.len())?;
            values.copy_from_slice(factors);
            values.upload(loader.on, &mut to.factors)?;
        }
    }
    *done = loader.done;
    Ok(())
}

impl<S: Space> Loader<'_, '_, S> {
    fn layer(
        &mut self,
        index: usize,
        arch: &Arch,
        to: &mut LayerWeightsMut<'_, Uploading<S>>,
    ) -> Result<(), EngineError> {
        let name = |tensor: &str| format!("blk.{}.{tensor}.weight", arch.first + index);
        let LayerWeightsMut { q, k, v, o, gate, up, down, .. } = to;
        for (matrix, to) in MATRICES.into_iter().zip([q, k, v, o, gate, up, down]) {
            self.matrix(&name(matrix), to)?;
        }
        self.vector(&name("attn_norm"), &mut to.attn_norm)?;
        self.vector(&name("ffn_norm"), &mut to.ffn_norm)?;
        if arch.layers[index].qk_norm {
            self.vector(&name("attn_q_norm"), &mut to.q_norm)?;
            self.vector(&name("attn_k_norm"), &mut to.k_norm)?;
        }
        if arch.post_norms {
            self.vector(&name("post_attention_norm"), &mut to.post_attn_norm)?;
            self.vector(&name("post_ffw_norm"), &mut to.post_ffn_norm)?;
        }
        Ok(())
    }

    fn matrix(&mut self, name: &str, to: &mut To<'_, S>) -> Result<(), EngineError> {
        let (tensor, bytes, format) = matrix(self.file, name)?;
        let (rows, columns) = (to.meta().rows, to.meta().columns);
        let row_bytes = tensor.row_bytes() as usize;
        let overflow = || EngineError::Unsupported { what: format!("`{name}`"), why: "its packed size overflows" };
        if to.meta().format == WeightFormat::Bf16 {
            return self.bf16(format, bytes, (rows, columns), row_bytes, to);
        }
        let group = match to.meta().format {
            #[cfg(feature = "cuda")]
            WeightFormat::Tiled(tiling) => {
                let strip = tiling.bytes(&[GROUP_ROWS, columns]).and_then(|bytes| usize::try_from(bytes.count()).ok());
                strip.ok_or_else(overflow)?
            }
            _ => group_bytes(format, columns).ok_or_else(overflow)?,
        };
        let at_once = (PIECE / group).clamp(1, groups(rows).max(1));
        let mut piece = self.staging.take::<Packed<WeightFormat>>(at_once * group)?;
        let mut at = 0;
        for (bytes, first_row) in
            bytes.chunks(at_once * GROUP_ROWS * row_bytes).zip((0..rows).step_by(at_once * GROUP_ROWS))
        {
            let count = (rows - first_row).min(at_once * GROUP_ROWS);
            let packed = groups(count) * group;
            let to_pack = &mut piece[..packed];
            match to.meta().format {
                #[cfg(feature = "cuda")]
                WeightFormat::Tiled(_) => tile_rows(self.cpu.pool(), format, bytes, (count, columns), to_pack)?,
                _ => pack_parallel(self.cpu.pool(), format, count, columns, bytes, to_pack)?,
            }
            piece.upload_part(self.on, to, at, packed)?;
            at += packed;
            self.advance(bytes.len() as u64);
        }
        Ok(())
    }

    /// A matrix as bf16, row by row.
    fn bf16(
        &mut self,
        format: Format,
        bytes: &[u8],
        (rows, columns): (usize, usize),
        row_bytes: usize,
        to: &mut To<'_, S>,
    ) -> Result<(), EngineError> {
        let at_once = (PIECE / (columns * 2).max(1)).clamp(1, rows.max(1));
        let mut piece = self.staging.take::<Packed<WeightFormat>>(at_once * columns * 2)?;
        let mut values = vec![0.0; columns];
        let mut at = 0;
        for bytes in bytes.chunks(at_once * row_bytes) {
            let mut used = 0;
            for (row, out) in bytes.chunks_exact(row_bytes).zip(piece.chunks_exact_mut(columns * 2)) {
                dequantize_raw_row(format, row, &mut values)?;
                for (out, value) in out.as_chunks_mut::<2>().0.iter_mut().zip(&values) {
                    *out = f32_to_bf16(*value).to_le_bytes();
                }
                used += columns * 2;
            }
            piece.upload_part(self.on, to, at, used)?;
            at += used;
            self.advance(bytes.len() as u64);
        }
        Ok(())
    }

    fn vector(
        &mut self,
        name: &str,
        to: &mut StableSpanMut<'_, f32, impl Fits<Uploading<S>>>,
    ) -> Result<(), EngineError> {
        let missing =
            || EngineError::Unsupported { what: format!("a model without `{name}`"), why: "the file is incomplete" };
        let (tensor, bytes) = self.file.tensor(name).ok_or_else(missing)?;
        let format = Format::from_ggml_type(tensor.tensor_type.id()).ok_or_else(missing)?;
        let mut values = self.staging.take::<f32>(to.len())?;
        dequantize_raw_row(format, bytes, &mut values)?;
        values.upload(self.on, to)?;
        self.advance(bytes.len() as u64);
        Ok(())
    }

    fn advance(&mut self, bytes: u64) {
        self.done += bytes;
        (self.report)(Progress { done: self.done, total: self.total });
    }
}
