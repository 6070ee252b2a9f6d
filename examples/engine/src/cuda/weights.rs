//! Weight matrices on a CUDA device: as many bits as in the file where there are tiles for them, else bf16. There is one copy of each.

use std::sync::Mutex;

use engine_kernels::{Format, Threads};
use memtier::{Cuda, Element, LaunchError, Place, Q4_0, Q4_1, Q4_K, Q5_0, Q6_K, Q8_0, StableSpanMut, bf16};
use memtier_cuda::kernels::{
    self as k, Matrix, MatrixFormat, TileError, Tileable, TiledFormat, TiledMatrix, Tiling, tile,
};

use super::run::Device;
use crate::{
    operations::MatrixSpan,
    weights::{WeightDims, WeightFormat},
};

/// The most rows of a pass that are multiplied with tiles, which read them once for every 8 to 64 rows. For more, the matrices of one
/// product at a time are unpacked into scratch.
const MOST_ROWS: usize = 64;
/// Rows of a tile.
pub(crate) const STRIP: usize = 16;

impl MatrixFormat for WeightFormat {
    fn is_bf16(&self) -> bool {
        *self == WeightFormat::Bf16
    }
}

impl TiledFormat for WeightFormat {
    fn tiling(&self) -> Option<Tiling> {
        match self {
            WeightFormat::Tiled(tiling) => Some(*tiling),
            _ => None,
        }
    }
}

/// What a matrix of a file becomes.
fn tiled(format: WeightFormat) -> WeightFormat {
    let WeightFormat::Packed(format) = format else { return format };
    match format {
        Format::Q4_0 | Format::Q4_1 | Format::Q4_K => WeightFormat::Tiled(Tiling::Q4),
        Format::Q5_0 => WeightFormat::Tiled(Tiling::Q5),
        Format::Q6_K => WeightFormat::Tiled(Tiling::Q6),
        Format::Q8_0 => WeightFormat::Tiled(Tiling::Q8),
        _ => WeightFormat::Bf16,
    }
}

/// The same model in tiles. Matrices that are multiplied in one launch are all tiled or all bf16, a gate and what it gates alike.
pub(super) fn in_tiles(mut dims: WeightDims) -> WeightDims {
    dims.embed = tiled(dims.embed);
    dims.head = dims.head.map(tiled);
    for layer in &mut dims.layers {
        layer.formats = layer.formats.map(tiled);
        let [q, k, v, _, gate, up, _] = &mut layer.formats;
        if [&q, &k, &v].into_iter().any(|format| format.is_bf16()) {
            (*q, *k, *v) = (WeightFormat::Bf16, WeightFormat::Bf16, WeightFormat::Bf16);
        }
        if gate != up {
            (*gate, *up) = (WeightFormat::Bf16, WeightFormat::Bf16);
        }
    }
    dims
}

/// Elements of the matrices that a product of `tokens` rows takes unpacked at a time: the most of any. `None` when they overflow.
pub(super) fn unpacked(dims: &WeightDims, tokens: usize, batch_invariant: bool) -> Option<usize> {
    let mut most = 1usize;
    if !unpacks(tokens, batch_invariant) {
        return Some(most);
    }
    for layer in &dims.layers {
        let [q, _, _, o, gate, _, down] = layer.formats;
        let heads = layer.kv_rows.checked_mul(2)?.checked_add(layer.q_rows)?;
        let products = [(q, heads, layer.hidden), (o, layer.hidden, layer.q_rows)];
        let products = products.into_iter().chain([(gate, layer.ffn.checked_mul(2)?, layer.hidden)]);
        for (_, rows, columns) in products.chain([(down, layer.hidden, layer.ffn)]).filter(|(it, ..)| !it.is_bf16()) {
            most = most.max(rows.checked_mul(columns)?);
        }
    }
    Some(most)
}

fn unpacks(tokens: usize, batch_invariant: bool) -> bool {
    // A row has other bits by the other kernel.
    tokens > MOST_ROWS && !batch_invariant
}

/// Matrices of one launch, as kernels take them.
pub(super) enum Matrices<'x, P, const N: usize> {
    Wide([Matrix<'x, P>; N]),
    Tiled([TiledMatrix<'x, P>; N]),
}

impl<P: Place, const N: usize> Matrices<'_, P, N> {
    /// The rows of all of them.
    pub(super) fn rows(&self) -> usize {
        match self {
            Matrices::Wide(all) => all.iter().map(Matrix::rows).sum(),
            Matrices::Tiled(all) => all.iter().map(TiledMatrix::rows).sum(),
        }
    }

    /// Elements of a row.
    pub(super) fn columns(&self) -> usize {
        match self {
            Matrices::Wide(all) => all[0].columns(),
            Matrices::Tiled(all) => all[0].columns(),
        }
    }
}

/// Tensors of the model as matrices: there is at least one.
pub(super) fn matrices<'x, P: Place, const N: usize>(
    spans: [MatrixSpan<'x, P>; N],
) -> Result<Matrices<'x, P, N>, LaunchError> {
    if spans[0].meta().format.is_bf16() {
        let mut all = [Matrix::packed(spans[0])?; N];
        for (matrix, span) in all.iter_mut().zip(spans) {
            *matrix = Matrix::packed(span)?;
        }
        return Ok(Matrices::Wide(all));
    }
    let mut all = [TiledMatrix::packed(spans[0])?; N];
    for (matrix, span) in all.iter_mut().zip(spans) {
        *matrix = TiledMatrix::packed(span)?;
    }
    Ok(Matrices::Tiled(all))
}

impl<P: Place<Space = Cuda>> Device<'_, P> {
    /// The same for products of all rows of the pass: unpacked into `wide` where they are many.
    pub(super) fn matrices<'x, const N: usize>(
        &self,
        spans: [MatrixSpan<'x, P>; N],
        wide: &'x mut StableSpanMut<'_, bf16, P>,
    ) -> Result<Matrices<'x, P, N>, LaunchError> {
        let (on, tokens) = (self.launch.on, self.launch.pass.tokens);
        let tiled = match matrices(spans)? {
            Matrices::Tiled(all) if unpacks(tokens, self.launch.arch.batch_invariant) => all,
            others => return Ok(others),
        };
        let room = wide.len();
        let full = || LaunchError::Shape { what: "unpacked matrices", expected: room, found: usize::MAX };
        let all = tiled.iter().map(|it| it.rows() * it.columns()).sum();
        k::unpack_tiled(on, &self.kernels, &mut wide.range(0..all).ok_or_else(full)?, &tiled)?;
        let wide = wide.read();
        let mut at = 0;
        let mut next = |it: &TiledMatrix<'_, P>| {
            let first = at;
            at += it.rows() * it.columns();
            let span = wide.range(first..at).ok_or_else(full)?;
            Matrix::new(span, it.rows(), it.columns())
        };
        let mut all = [next(&tiled[0])?; N];
        for (matrix, tiled) in all.iter_mut().zip(&tiled).skip(1) {
            *matrix = next(tiled)?;
        }
        Ok(Matrices::Wide(all))
    }
}

/// Packs rows of a file's blocks into tiles, on all threads. `rows` is a multiple of [`STRIP`], or ends the matrix.
pub(crate) fn tile_rows(
    threads: &Threads,
    format: Format,
    bytes: &[u8],
    (rows, columns): (usize, usize),
    to: &mut [u8],
) -> Result<(), TileError> {
    let pack = match format {
        Format::Q4_0 => pack::<Q4_0>,
        Format::Q4_1 => pack::<Q4_1>,
        Format::Q4_K => pack::<Q4_K>,
        Format::Q5_0 => pack::<Q5_0>,
        Format::Q6_K => pack::<Q6_K>,
        // Nothing else was given a tiling.
        _ => pack::<Q8_0>,
    };
    let strips = rows.div_ceil(STRIP).max(1);
    let (of_bytes, of_tiles) = (bytes.len() / rows.max(1) * STRIP, to.len() / strips);
    let work = bytes.chunks(of_bytes.max(1)).zip(to.chunks_mut(of_tiles.max(1))).enumerate();
    let (work, failed) = (Mutex::new(work), Mutex::new(None));
    threads.pieces(strips, &|_| {
        let next = work.lock().ok().and_then(|mut work| work.next());
        let Some((strip, (bytes, to))) = next else { return };
        let rows = (rows - strip * STRIP).min(STRIP);
        if let (Err(error), Ok(mut failed)) = (pack(bytes, rows, columns, to), failed.lock()) {
            *failed = Some(error);
        }
    });
    failed.into_inner().ok().flatten().map_or(Ok(()), Err)
}

fn pack<B: Block>(bytes: &[u8], rows: usize, columns: usize, to: &mut [u8]) -> Result<(), TileError> {
    let blocks: Vec<B> = bytes.chunks_exact(B::BYTES).map(B::of).collect();
    tile(&blocks, rows, columns, to)
}

/// A block of a file by its bytes.
trait Block: Tileable + Element<Repr = Self> {
    const BYTES: usize = size_of::<Self>();
    /// Of as many bytes; zeros otherwise.
    fn of(bytes: &[u8]) -> Self;
}

macro_rules! blocks {
    ($($block:ident)*) => { $(
        impl Block for $block {
            fn of(bytes: &[u8]) -> Self {
                $block(bytes.try_into().unwrap_or([0; size_of::<$block>()]))
            }
        }
    )* };
}
blocks!(Q4_0 Q4_1 Q4_K Q5_0 Q6_K Q8_0);
