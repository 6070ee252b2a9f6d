//! Weights of 4 to 8 bits in the order in which the tensor cores' lanes take them: packed on the host, when a model is loaded.

use memtier::{Bytes, Element, F8E4M3, PackedFormat, Q4_0, Q4_1, Q4_K, Q5_0, Q6_K, Q8_0, f16};

/// Outputs of a tile.
pub(super) const TILE_ROWS: usize = 16;
/// Elements of a row in a tile.
pub(super) const TILE_COLUMNS: usize = 64;

/// How a matrix of few bits lies in device memory: tiles of 16 rows by 64 columns, those of 16 rows one behind the other.
///
/// Rows and columns that are missing from the last tiles are zeros, and are paid for.
///
/// ```
/// use memtier::{Bytes, PackedFormat};
/// use memtier_cuda::kernels::Tiling;
///
/// // 4 bits and, for every 32 of them, two f16: 5 bits a weight.
/// assert_eq!(Tiling::Q4.bytes(&[576, 1536]), Some(Bytes::new(576 * 1536 * 5 / 8)));
/// // 8 bits and an f16: as many as GGUF's Q8_0.
/// assert_eq!(Tiling::Q8.bytes(&[16, 64]), Some(Bytes::new(16 * 2 * 34)));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Tiling {
    /// 4 bits, with a scale and an offset in f16 for every 32: 5 bits a weight. From `Q4_0`, `Q4_1`, `Q4_K`.
    Q4,
    /// 5 bits, with a scale in f16 for every 32: 5.5 bits a weight. From `Q5_0`.
    Q5,
    /// 6 bits, with a scale in f16 for every 16: 7 bits a weight. From `Q6_K`.
    Q6,
    /// 8 bits, with a scale in f16 for every 32: 8.5 bits a weight. From `Q8_0`.
    Q8,
    /// e4m3, with a scale in f16 for every 32: 8.5 bits a weight. By [`tile_fp8`].
    F8,
}

impl Tiling {
    /// Bytes of a tile.
    pub(super) const fn tile_bytes(self) -> usize {
        match self {
            Tiling::Q4 => 512 + 128,
            Tiling::Q5 => 512 + 128 + 64,
            Tiling::Q6 => 512 + 256 + 128,
            Tiling::Q8 | Tiling::F8 => 1024 + 64,
        }
    }

    /// Elements that share a scale.
    const fn block(self) -> usize {
        if matches!(self, Tiling::Q6) { 16 } else { 32 }
    }

    /// What is added to a weight so that its bits are no negative number.
    const fn bias(self) -> i16 {
        match self {
            Tiling::Q4 | Tiling::Q8 | Tiling::F8 => 0,
            Tiling::Q5 => 16,
            Tiling::Q6 => 32,
        }
    }
}

impl PackedFormat for Tiling {
    fn bytes(&self, shape: &[usize]) -> Option<Bytes> {
        let (columns, rows) = shape.split_last()?;
        let rows = rows.iter().try_fold(1usize, |rows, dim| rows.checked_mul(*dim))?;
        let tiles = rows.div_ceil(TILE_ROWS).checked_mul(columns.div_ceil(TILE_COLUMNS))?;
        tiles.checked_mul(self.tile_bytes()).map(|bytes| Bytes::new(bytes as u64))
    }
}

/// A format of [`Packed`](memtier::Packed) tensors that [`project_tiled`](super::project_tiled) can read.
pub trait TiledFormat: PackedFormat {
    /// How a tensor of it is tiled, or `None` when it is something else.
    fn tiling(&self) -> Option<Tiling>;
}

impl TiledFormat for Tiling {
    fn tiling(&self) -> Option<Tiling> {
        Some(*self)
    }
}

/// A GGUF block that can be tiled.
pub trait Tileable: Element<Repr = Self> {
    /// What it becomes.
    const TILING: Tiling;
    /// Its weights: `weights[i] * scale + offset`, with a scale and an offset for as many as [`Tiling`] says, in order.
    #[doc(hidden)]
    fn weights(&self, weights: &mut [i16], scales: &mut [(f32, f32)]);
}

fn half(bytes: [u8; 2]) -> f32 {
    f16::from_le_bytes(bytes).to_f32()
}

/// 4-bit numbers: the low halves of all bytes, then the high ones.
fn nibbles(bytes: &[u8], to: &mut [i16]) {
    let (low, high) = to.split_at_mut(bytes.len());
    for ((byte, low), high) in bytes.iter().zip(low).zip(high) {
        (*low, *high) = (i16::from(byte & 15), i16::from(byte >> 4));
    }
}

impl Tileable for Q8_0 {
    const TILING: Tiling = Tiling::Q8;
    fn weights(&self, weights: &mut [i16], scales: &mut [(f32, f32)]) {
        let Q8_0([d0, d1, bytes @ ..]) = self;
        scales[0] = (half([*d0, *d1]), 0.0);
        bytes.iter().zip(weights).for_each(|(byte, weight)| *weight = i16::from(byte.cast_signed()));
    }
}

impl Tileable for Q4_0 {
    const TILING: Tiling = Tiling::Q4;
    fn weights(&self, weights: &mut [i16], scales: &mut [(f32, f32)]) {
        let Q4_0([d0, d1, bytes @ ..]) = self;
        let scale = half([*d0, *d1]);
        scales[0] = (scale, -8.0 * scale);
        nibbles(bytes, weights);
    }
}

impl Tileable for Q4_1 {
    const TILING: Tiling = Tiling::Q4;
    fn weights(&self, weights: &mut [i16], scales: &mut [(f32, f32)]) {
        let Q4_1([d0, d1, m0, m1, bytes @ ..]) = self;
        scales[0] = (half([*d0, *d1]), half([*m0, *m1]));
        nibbles(bytes, weights);
    }
}

impl Tileable for Q5_0 {
    const TILING: Tiling = Tiling::Q5;
    fn weights(&self, weights: &mut [i16], scales: &mut [(f32, f32)]) {
        let Q5_0([d0, d1, h0, h1, h2, h3, bytes @ ..]) = self;
        scales[0] = (half([*d0, *d1]), 0.0);
        nibbles(bytes, weights);
        let fifth = u32::from_le_bytes([*h0, *h1, *h2, *h3]);
        for (index, weight) in weights.iter_mut().enumerate() {
            *weight += (fifth >> index & 1) as i16 * 16 - 16;
        }
    }
}

impl Tileable for Q4_K {
    const TILING: Tiling = Tiling::Q4;
    fn weights(&self, weights: &mut [i16], scales: &mut [(f32, f32)]) {
        let bytes = &self.0;
        let (scale, offset) = (half([bytes[0], bytes[1]]), half([bytes[2], bytes[3]]));
        // Eight scales and eight offsets of six bits: the first four whole, and over them the upper two bits of the others.
        let six = &bytes[4..16];
        for (index, to) in scales.iter_mut().enumerate() {
            let (s, m) = match index {
                0..4 => (six[index] & 63, six[index + 4] & 63),
                _ => (six[index + 4] & 15 | six[index - 4] >> 6 << 4, six[index + 4] >> 4 | six[index] >> 6 << 4),
            };
            *to = (scale * f32::from(s), -offset * f32::from(m));
        }
        bytes[16..].chunks(32).zip(weights.chunks_mut(64)).for_each(|(bytes, weights)| nibbles(bytes, weights));
    }
}

impl Tileable for Q6_K {
    const TILING: Tiling = Tiling::Q6;
    fn weights(&self, weights: &mut [i16], scales: &mut [(f32, f32)]) {
        let bytes = &self.0;
        let scale = half([bytes[208], bytes[209]]);
        for (to, byte) in scales.iter_mut().zip(&bytes[192..208]) {
            *to = (scale * f32::from(byte.cast_signed()), 0.0);
        }
        for (part, weights) in weights.chunks_mut(128).enumerate() {
            let (low, high) = (&bytes[part * 64..][..64], &bytes[128 + part * 32..][..32]);
            for (index, weight) in weights.iter_mut().enumerate() {
                let (quarter, at) = (index / 32, index % 32);
                let four = low[index % 64] >> (index / 64 * 4) & 15;
                *weight = i16::from(four | (high[at] >> (2 * quarter) & 3) << 4) - 32;
            }
        }
    }
}

/// What cannot be tiled.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TileError {
    /// A row is not a whole number of blocks.
    #[error("rows of {columns} elements are no whole number of {name} blocks: they have {per} elements each")]
    Row {
        /// Elements of a row.
        columns: usize,
        /// The block.
        name: &'static str,
        /// Its elements.
        per: usize,
    },
    /// There are more or fewer blocks than the matrix has.
    #[error("{rows} rows of {columns} elements are {expected} blocks, {found} were given")]
    Blocks {
        /// Rows.
        rows: usize,
        /// Elements of a row.
        columns: usize,
        /// Blocks of such a matrix.
        expected: usize,
        /// Blocks that were given.
        found: usize,
    },
    /// There is more or less room than the tiles take.
    #[error("the tiles take {expected} bytes, there is room for {found}: ask `Tiling::bytes`")]
    Room {
        /// Bytes of the tiles.
        expected: u64,
        /// Bytes that are there.
        found: usize,
    },
}

/// Packs a matrix of GGUF blocks, row by row, into tiles. A part of a matrix that begins at a multiple of 16 rows can be packed on
/// its own.
///
/// Scales of `Q4_K` and `Q6_K` are products of two numbers in a file; here they are rounded to f16, by 2^-11 at most. Everything
/// else is kept to the bit.
///
/// # Errors
/// [`TileError`]; nothing is written.
///
/// # Example
/// ```
/// use memtier::{PackedFormat, Q8_0};
/// use memtier_cuda::kernels::{Tiling, tile};
///
/// let matrix = vec![Q8_0([1; 34]); 20 * 2]; // 20 rows of 64
/// let mut tiles = vec![0; Tiling::Q8.bytes(&[20, 64]).unwrap().count() as usize];
/// tile(&matrix, 20, 64, &mut tiles)?;
/// # Ok::<_, memtier_cuda::kernels::TileError>(())
/// ```
pub fn tile<B: Tileable>(blocks: &[B], rows: usize, columns: usize, to: &mut [u8]) -> Result<(), TileError> {
    let (tiling, found) = (B::TILING, blocks.len());
    if !columns.is_multiple_of(B::PER) || columns == 0 {
        return Err(TileError::Row { columns, name: B::NAME, per: B::PER });
    }
    let across = columns / B::PER;
    let expected = rows.saturating_mul(across);
    if expected != found {
        return Err(TileError::Blocks { rows, columns, expected, found });
    }
    let expected = tiling.bytes(&[rows, columns]).map_or(u64::MAX, |bytes| bytes.count());
    if expected != to.len() as u64 {
        return Err(TileError::Room { expected, found: to.len() });
    }
    to.fill(0);
    let strip_bytes = columns.div_ceil(TILE_COLUMNS) * tiling.tile_bytes();
    let (mut weights, mut scales) = (vec![0; B::PER], vec![(0.0, 0.0); B::PER / tiling.block()]);
    for (strip, rows) in to.chunks_mut(strip_bytes.max(1)).zip(blocks.chunks(TILE_ROWS * across)) {
        for (index, block) in rows.iter().enumerate() {
            let (row, first) = (index / across, index % across * B::PER);
            block.weights(&mut weights, &mut scales);
            for (at, weight) in weights.iter().enumerate() {
                let column = first + at;
                let tile = &mut strip[column / TILE_COLUMNS * tiling.tile_bytes()..][..tiling.tile_bytes()];
                put_weight(tiling, tile, row, column % TILE_COLUMNS, *weight);
            }
            for (at, (scale, offset)) in scales.iter().enumerate() {
                let column = first + at * tiling.block();
                let tile = &mut strip[column / TILE_COLUMNS * tiling.tile_bytes()..][..tiling.tile_bytes()];
                put_scale(tiling, tile, row, column % TILE_COLUMNS, *scale, *offset);
            }
        }
    }
    Ok(())
}

/// Packs a matrix of e4m3, row by row, into tiles. Every `per` elements of a row (a multiple of 32, or all of them) share a scale; scales
/// are rounded to f16, by 2^-11 at most where they are at least 2^-22.
///
/// # Errors
/// [`TileError`]; nothing is written.
///
/// # Example
/// ```
/// use memtier::{F8E4M3, PackedFormat};
/// use memtier_cuda::kernels::{Tiling, tile_fp8};
///
/// let mut tiles = vec![0; Tiling::F8.bytes(&[16, 64]).unwrap().count() as usize];
/// tile_fp8(&[F8E4M3(0x38); 16 * 64], &[0.5; 16], (16, 64, 64), &mut tiles)?; // ones, times a half
/// # Ok::<_, memtier_cuda::kernels::TileError>(())
/// ```
pub fn tile_fp8(
    values: &[F8E4M3],
    scales: &[f32],
    (rows, columns, per): (usize, usize, usize),
    to: &mut [u8],
) -> Result<(), TileError> {
    if columns == 0 || !columns.is_multiple_of(32) {
        return Err(TileError::Row { columns, name: "e4m3", per: 32 });
    }
    if per == 0 || !per.is_multiple_of(32) || !columns.is_multiple_of(per) {
        return Err(TileError::Row { columns, name: "scaled", per });
    }
    for (expected, found) in
        [(rows.saturating_mul(columns), values.len()), (rows.saturating_mul(columns / per), scales.len())]
    {
        if expected != found {
            return Err(TileError::Blocks { rows, columns, expected, found });
        }
    }
    let (tiling, across) = (Tiling::F8, columns.div_ceil(TILE_COLUMNS));
    let expected = tiling.bytes(&[rows, columns]).map_or(u64::MAX, |bytes| bytes.count());
    if expected != to.len() as u64 {
        return Err(TileError::Room { expected, found: to.len() });
    }
    to.fill(0);
    for (at, value) in values.iter().enumerate() {
        let (row, column) = (at / columns, at % columns);
        let tile = (row / TILE_ROWS * across + column / TILE_COLUMNS) * tiling.tile_bytes();
        let (tile, row) = (&mut to[tile..tile + tiling.tile_bytes()], row % TILE_ROWS);
        put_weight(tiling, tile, row, column % TILE_COLUMNS, i16::from(value.0));
        if column.is_multiple_of(32) {
            // As the kernel expects them.
            put_scale(tiling, tile, row, column % TILE_COLUMNS, scales[at / per] * 256.0, 0.0);
        }
    }
    Ok(())
}

/// Which lane has an element of a tile, and which of its eight of that row and block of 32 it is: elements 2p and 2p + 1 are the pair p.
fn lane_of(tiling: Tiling, row: usize, column: usize) -> (usize, usize) {
    let at = column % 32;
    // Six bits have a scale for every 16: a product has elements of one half only.
    let (t, index) = match tiling {
        Tiling::Q6 => (at % 16 / 4, at / 16 * 4 + at % 4),
        _ => (at / 8, at % 8),
    };
    (row % 8 * 4 + t, index)
}

fn put_weight(tiling: Tiling, tile: &mut [u8], row: usize, column: usize, weight: i16) {
    let (lane, index) = lane_of(tiling, row, column);
    let (half, block, pair, odd) = (row / 8, column / 32, index / 2, index % 2);
    let bits = weight + tiling.bias();
    if matches!(tiling, Tiling::Q8 | Tiling::F8) {
        // Bytes 0 and 2 of a word are a pair, 1 and 3 the next.
        tile[block * 512 + lane * 16 + half * 8 + pair / 2 * 4 + odd * 2 + pair % 2] = bits as u8;
        return;
    }
    // A word for each half and block: pair p has bits 4p of both halves of the word.
    let bit = pair * 4 + odd * 16;
    tile[lane * 16 + (block * 2 + half) * 4 + bit / 8] |= ((bits & 15) as u8) << (bit % 8);
    let upper = (bits >> 4) as u8;
    let (at, bit) = match tiling {
        Tiling::Q5 => (512 + lane * 4, (block * 2 + half) * 4 + pair + odd * 16),
        Tiling::Q6 => (512 + lane * 8 + block * 4, (half * 4 + pair) * 2 + odd * 16),
        Tiling::Q4 | Tiling::Q8 | Tiling::F8 => return,
    };
    tile[at + bit / 8] |= upper << (bit % 8);
}

fn put_scale(tiling: Tiling, tile: &mut [u8], row: usize, column: usize, scale: f32, offset: f32) {
    let (g, half, block) = (row % 8, row / 8, column / 32);
    let mut put = |at: usize, value: f32| tile[at..at + 2].copy_from_slice(&f16::from_f32(value).to_le_bytes());
    match tiling {
        Tiling::Q4 => {
            let at = 512 + g * 16 + (block * 2 + half) * 4;
            put(at, scale);
            put(at + 2, offset);
        }
        Tiling::Q5 => put(640 + g * 8 + (block * 2 + half) * 2, scale),
        Tiling::Q8 | Tiling::F8 => put(1024 + g * 8 + (block * 2 + half) * 2, scale),
        // Rows g and g + 8 side by side, for every 16 elements.
        Tiling::Q6 => put(768 + g * 16 + column / 16 * 4 + half * 2, scale),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A weight as a lane of the kernel finds it, and the scale and offset of it.
    fn found(tiling: Tiling, tile: &[u8], row: usize, column: usize) -> f32 {
        let (lane, index) = lane_of(tiling, row, column);
        let (half, block, pair, odd) = (row / 8, column / 32, index / 2, index % 2);
        let word = |at: usize| u32::from_le_bytes(tile[at..at + 4].try_into().unwrap());
        let at = |at: usize| super::half(tile[at..at + 2].try_into().unwrap());
        let (g, four) = (row % 8, word(lane * 16 + (block * 2 + half) * 4) >> (pair * 4 + odd * 16) & 15);
        match tiling {
            Tiling::Q8 => {
                let byte = tile[block * 512 + lane * 16 + half * 8 + pair / 2 * 4 + odd * 2 + pair % 2];
                f32::from(byte.cast_signed()) * at(1024 + g * 8 + (block * 2 + half) * 2)
            }
            Tiling::Q4 => {
                let scale = 512 + g * 16 + (block * 2 + half) * 4;
                four as f32 * at(scale) + at(scale + 2)
            }
            Tiling::Q5 => {
                let fifth = word(512 + lane * 4) >> ((block * 2 + half) * 4 + pair + odd * 16) & 1;
                ((four | fifth << 4) as f32 - 16.0) * at(640 + g * 8 + (block * 2 + half) * 2)
            }
            Tiling::F8 => unreachable!("no GGUF block becomes it"),
            Tiling::Q6 => {
                let upper = word(512 + lane * 8 + block * 4) >> ((half * 4 + pair) * 2 + odd * 16) & 3;
                ((four | upper << 4) as f32 - 32.0) * at(768 + g * 16 + column / 16 * 4 + half * 2)
            }
        }
    }

    /// A number that no two bytes share.
    fn byte(at: usize) -> u8 {
        (at.wrapping_mul(0x9E37_79B1) >> 13) as u8
    }

    fn kept<B: Tileable>(make: impl Fn(usize) -> B, expected: impl Fn(&B, usize) -> [f32; 2]) {
        let (rows, columns) = (19, 256 * B::PER.div_ceil(256));
        let across = columns / B::PER;
        let blocks: Vec<B> = (0..rows * across).map(make).collect();
        let mut tiles = vec![0; B::TILING.bytes(&[rows, columns]).unwrap().count() as usize];
        tile(&blocks, rows, columns, &mut tiles).unwrap();
        for row in 0..32 {
            for column in 0..columns {
                let at = (row / 16 * (columns / 64) + column / 64) * B::TILING.tile_bytes();
                let found = found(B::TILING, &tiles[at..], row % 16, column % 64);
                let [expected, within] = match row < rows {
                    true => expected(&blocks[row * across + column / B::PER], column % B::PER),
                    false => continue,
                };
                assert!((found - expected).abs() <= within, "{} {row} {column}: {found}, {expected} expected", B::NAME);
            }
        }
    }

    // The formats as ggml's own code unpacks them: value `at` of a block, and how far off it may be.

    #[test]
    fn what_a_lane_finds_is_what_the_block_held() {
        let head = [0x66, 0x2e]; // about 0.1
        let scale = super::half(head);
        kept(
            |at| Q8_0(std::array::from_fn(|i| if i < 2 { head[i] } else { byte(at * 64 + i) })),
            |block, at| [scale * f32::from(block.0[2 + at].cast_signed()), 0.0],
        );
        kept(
            |at| Q4_1(std::array::from_fn(|i| if i < 4 { head[i % 2] } else { byte(at * 64 + i) })),
            |block, at| [scale * f32::from(block.0[4 + at % 16] >> (at / 16 * 4) & 15) + scale, 0.0],
        );
        kept(
            |at| Q4_0(std::array::from_fn(|i| if i < 2 { head[i] } else { byte(at * 64 + i) })),
            |block, at| [scale * (f32::from(block.0[2 + at % 16] >> (at / 16 * 4) & 15) - 8.0), 1e-6],
        );
        kept(
            |at| Q5_0(std::array::from_fn(|i| if i < 2 { head[i] } else { byte(at * 64 + i) })),
            |block, at| {
                let fifth = block.0[2 + at / 8] >> (at % 8) & 1;
                [scale * (f32::from(block.0[6 + at % 16] >> (at / 16 * 4) & 15 | fifth << 4) - 16.0), 0.0]
            },
        );
        kept(
            |at| Q4_K(std::array::from_fn(|i| if i < 4 { head[i % 2] } else { byte(at * 64 + i) })),
            |block, at| {
                let (six, j) = (&block.0[4..16], at / 32);
                let (s, m) = match j < 4 {
                    true => (six[j] & 63, six[j + 4] & 63),
                    false => (six[j + 4] & 15 | six[j - 4] >> 6 << 4, six[j + 4] >> 4 | six[j] >> 6 << 4),
                };
                let q = block.0[16 + at / 64 * 32 + at % 32] >> (at % 64 / 32 * 4) & 15;
                // Scale and offset are rounded to f16.
                let (y, offset) = (scale * f32::from(s) * f32::from(q), scale * f32::from(m));
                [y - offset, (y + offset) / 2000.0]
            },
        );
        kept(
            |at| Q6_K(std::array::from_fn(|i| if i >= 208 { head[i % 2] } else { byte(at * 64 + i) })),
            |block, at| {
                let (part, l, quarter) = (at / 128, at % 32, at % 128 / 32);
                let low = block.0[part * 64 + quarter % 2 * 32 + l] >> (quarter / 2 * 4) & 15;
                let high = block.0[128 + part * 32 + l] >> (quarter * 2) & 3;
                let of = block.0[192 + part * 8 + l / 16 + quarter * 2].cast_signed();
                let y = scale * f32::from(of) * (f32::from(low | high << 4) - 32.0);
                [y, y.abs() / 2000.0]
            },
        );
    }

    #[test]
    fn what_cannot_be_tiled_is_refused() {
        let blocks = [Q8_0([0; 34]); 4];
        let error = |rows, columns, bytes| tile(&blocks, rows, columns, &mut vec![0; bytes]).unwrap_err();
        assert!(matches!(error(2, 48, 0), TileError::Row { per: 32, .. }));
        assert!(matches!(error(3, 64, 0), TileError::Blocks { expected: 6, found: 4, .. }));
        assert!(matches!(error(2, 64, 7), TileError::Room { expected: 1088, found: 7 }));
        assert_eq!(Tiling::Q4.bytes(&[usize::MAX, usize::MAX]), None);
        let error = |rows, per| tile_fp8(&[F8E4M3(0); 64], &[1.0; 2], (rows, 64, per), &mut [0; 1088]).unwrap_err();
        assert!(matches!(error(usize::MAX, 32), TileError::Blocks { expected: usize::MAX, found: 64, .. }));
        assert!(matches!(error(1, 0), TileError::Row { per: 0, .. }));
    }
}
