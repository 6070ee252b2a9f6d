//! Loading: every tensor is packed into a staging buffer, piece by piece, and uploaded.

use engine_kernels::{Format, GROUP_ROWS, dequantize_raw_row, group_bytes, groups, pack_parallel};
use memtier::{Fits, Host, Load, Packed, Recorder, StableSpanMut, Staging, Uploading};

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

struct Loader<'l, 'p> {
    file: &'l ModelFile,
    cpu: &'l Cpu,
    on: &'l Recorder<Uploading<Host>>,
    staging: &'l Staging<'p>,
    done: u64,
    total: u64,
    report: &'l mut dyn FnMut(Progress),
}

type To<'x> = StableSpanMut<'x, Packed<WeightFormat>, Uploading<Host>>;

/// Fills the weights of a carved bundle. `done` counts bytes over all devices.
///
/// # Errors
/// [`EngineError`] of the tensor that failed.
pub(crate) fn upload(
    file: &ModelFile,
    arch: &Arch,
    cpu: &Cpu,
    load: Load<'_, Model>,
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
    *done = loader.done;
    Ok(())
}

impl Loader<'_, '_> {
    fn layer(
        &mut self,
        index: usize,
        arch: &Arch,
        to: &mut LayerWeightsMut<'_, Uploading<Host>>,
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

    fn matrix(&mut self, name: &str, to: &mut To<'_>) -> Result<(), EngineError> {
        let (tensor, bytes, format) = matrix(self.file, name)?;
        let (rows, columns) = (to.meta().rows, to.meta().columns);
        let row_bytes = tensor.row_bytes() as usize;
        let overflow = || EngineError::Unsupported { what: format!("`{name}`"), why: "its packed size overflows" };
        let group = group_bytes(format.0, columns).ok_or_else(overflow)?;
        let at_once = (PIECE / group).clamp(1, groups(rows).max(1));
        let mut piece = self.staging.take::<Packed<WeightFormat>>(at_once * group)?;
        let mut at = 0;
        for (bytes, first_row) in
            bytes.chunks(at_once * GROUP_ROWS * row_bytes).zip((0..rows).step_by(at_once * GROUP_ROWS))
        {
            let count = (rows - first_row).min(at_once * GROUP_ROWS);
            let packed = groups(count) * group;
            pack_parallel(self.cpu.pool(), format.0, count, columns, bytes, &mut piece[..packed])?;
            piece.upload_part(self.on, to, at, packed)?;
            at += packed;
            self.advance(bytes.len() as u64);
        }
        Ok(())
    }

    fn vector(
        &mut self,
        name: &str,
        to: &mut StableSpanMut<'_, f32, impl Fits<Uploading<Host>>>,
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
