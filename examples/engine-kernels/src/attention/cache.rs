//! The layout of the cache, and writing to it.

use super::format::KvFormat;
use super::lanes::Lanes;
use super::pack::{self, Heads};
use crate::error::{KernelError, expect, multiple, product};
use crate::isa::{Isa, Level};
use crate::threads::{Shares, Threads, spread};

/// A block number that stands for no block: positions in it are skipped when read, and dropped when written.
pub const HOLE: u32 = u32::MAX;

/// The dimensions of a layer's cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct KvShape {
    /// Key/value heads.
    pub kv_heads: usize,
    /// Elements of a head, a multiple of the format's [`granule`](KvFormat::granule).
    pub head_dim: usize,
    /// Tokens of a block, a multiple of 16.
    pub block_tokens: usize,
    /// What the cells are.
    pub format: KvFormat,
}

impl KvShape {
    /// Units of 16 bits of one block of one layer, keys and values with their scales, or `None` on overflow.
    pub const fn block_units(&self) -> Option<usize> {
        let Some(row) = self.format.row_bytes(self.head_dim) else { return None };
        match row.checked_mul(self.kv_heads) {
            // Keys and values, two bytes a unit.
            Some(token) => token.checked_mul(self.block_tokens),
            None => None,
        }
    }

    pub(super) fn check(&self) -> Result<usize, KernelError> {
        multiple("key/value heads", 1, self.kv_heads)?;
        multiple("head dimension", self.format.granule(), self.head_dim)?;
        multiple("tokens of a block", 16, self.block_tokens)?;
        if self.head_dim > self.format.most() {
            let (expected, found) = (self.format.most() as u64, self.head_dim as u64);
            return Err(KernelError::Shape { what: "head dimension (at most)", expected, found });
        }
        self.block_units().ok_or(KernelError::Overflow { what: "a block" })
    }

    /// Units of one head's keys, or its values, in a block.
    pub(super) fn head_units(&self) -> usize {
        self.format.row_bytes(self.head_dim).unwrap_or(0) * self.block_tokens / 2
    }

    /// Where the keys of a head begin in a block, in units.
    pub(super) fn keys(&self, kv_head: usize) -> usize {
        kv_head * self.head_units()
    }

    /// Where the values of a head begin in a block, in units.
    pub(super) fn values(&self, kv_head: usize) -> usize {
        (self.kv_heads + kv_head) * self.head_units()
    }
}

/// One layer's blocks inside of a slab: block b begins at unit `base + b * stride`. A slab laid out
/// `[layer][block][unit]` has the layer's offset as base and the block's units as stride.
#[derive(Debug, Clone, Copy)]
pub struct KvCache<'a> {
    /// The slab, in units of 16 bits. Cells that were never written may hold any bits.
    pub slab: &'a [u16],
    /// Unit where the layer's block 0 begins.
    pub base: usize,
    /// Units from one block to the next, at least a block's.
    pub stride: usize,
    /// The layer's dimensions.
    pub shape: KvShape,
}

/// The number of blocks that fit into the slab.
pub(super) fn blocks_in_slab(len: usize, base: usize, stride: usize, elements: usize) -> Result<usize, KernelError> {
    if stride < elements {
        let (expected, found) = (elements as u64, stride as u64);
        return Err(KernelError::Shape { what: "stride of blocks (at least a block)", expected, found });
    }
    let room = len.saturating_sub(base);
    Ok(if room < elements { 0 } else { (room - elements) / stride + 1 })
}

/// Where one token's key and value go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct KvCell {
    /// The block, or [`HOLE`] to drop the token.
    pub block: u32,
    /// The token's place in the block.
    pub slot: u32,
}

/// Writes one key row and one value row (`kv_heads` x `head_dim` f32 each) into each of `cells`, rounded to the cells' format. Of
/// two rows for the same cell the later one stays.
///
/// `base` and `stride` are those of [`KvCache`].
///
/// # Errors
///
/// [`KernelError`] where a length is wrong or a cell lies outside of the slab; nothing is then written.
#[allow(clippy::too_many_arguments, reason = "the cache's fields, with the slab mutable")]
pub fn kv_write(
    threads: &Threads,
    isa: Isa,
    slab: &mut [u16],
    base: usize,
    stride: usize,
    shape: KvShape,
    cells: &[KvCell],
    keys: &[f32],
    values: &[f32],
) -> Result<(), KernelError> {
    let elements = shape.check()?;
    let blocks = blocks_in_slab(slab.len(), base, stride, elements)?;
    let row = shape.kv_heads * shape.head_dim;
    let expected = product("key rows", cells.len(), row)?;
    expect("key rows", expected, keys.len())?;
    expect("value rows", expected, values.len())?;
    for cell in cells {
        if cell.block != HOLE && cell.block as usize >= blocks {
            return Err(KernelError::Index { what: "block", limit: blocks as u64, found: u64::from(cell.block) });
        }
        if cell.block != HOLE && cell.slot as usize >= shape.block_tokens {
            let (limit, found) = (shape.block_tokens as u64, u64::from(cell.slot));
            return Err(KernelError::Index { what: "slot", limit, found });
        }
    }
    let worthwhile = keys.len() >= crate::quant::PARALLEL_ELEMENTS;
    let shares = Shares::new(slab);
    if shape.format != KvFormat::F16 {
        // The same by heads: a row's scale is that of all its dimensions.
        let heads = Heads { base, stride, shape, cells, keys, values, slab: shares };
        spread(threads, shape.kv_heads, 1, worthwhile, &|range| {
            range.for_each(|head| pack::write_head(isa, &heads, head))
        });
        return Ok(());
    }
    let columns = row / COLUMN;
    // Threads share out the columns, not the tokens: two tokens may go to the same cell.
    spread(threads, columns, columns.div_ceil(2 * threads.count()), worthwhile, &|range| {
        let columns = Columns { base, stride, shape, cells, keys, values, slab: shares };
        range.for_each(|column| write_column(isa, &columns, column * COLUMN));
    });
    Ok(())
}

/// Dimensions that are written together; they belong to one head.
const COLUMN: usize = 16;

/// The checked arguments of [`kv_write`].
struct Columns<'a> {
    base: usize,
    stride: usize,
    shape: KvShape,
    cells: &'a [KvCell],
    keys: &'a [f32],
    values: &'a [f32],
    slab: Shares<'a, u16>,
}

/// Writes dimensions `column..column + 16` of all tokens.
fn write_column(isa: Isa, columns: &Columns<'_>, column: usize) {
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
    fn avx512(columns: &Columns<'_>, column: usize) {
        // SAFETY: this function has the features of the type.
        unsafe { write::<super::lanes::Avx512>(columns, column) }
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,fma,f16c")]
    fn avx2(columns: &Columns<'_>, column: usize) {
        // SAFETY: this function has the features of the type.
        unsafe { write::<super::lanes::Avx2>(columns, column) }
    }

    match isa.level() {
        // SAFETY: an `Isa` of this level exists only where its features were detected.
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => unsafe { avx512(columns, column) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => unsafe { avx2(columns, column) },
        // SAFETY: plain Rust needs no features.
        _ => unsafe { write::<super::lanes::Portable>(columns, column) },
    }
}

/// # Safety
///
/// The processor has the features of `V`, and nobody else writes these dimensions.
#[inline(always)]
unsafe fn write<V: Lanes>(columns: &Columns<'_>, column: usize) {
    let Columns { base, stride, shape, cells, keys, values, slab } = columns;
    let (head, dim) = (column / shape.head_dim, column % shape.head_dim);
    let row = shape.kv_heads * shape.head_dim;
    for (index, cell) in cells.iter().enumerate() {
        if cell.block == HOLE {
            continue;
        }
        let block = base + cell.block as usize * stride;
        let slot = cell.slot as usize;
        let (key, value) = (&keys[index * row + column..][..COLUMN], &values[index * row + column..][..COLUMN]);
        let mut halves = [0u16; COLUMN];
        let at = block + shape.keys(head) + dim * shape.block_tokens;
        // SAFETY: these are 16 dimensions of one head's keys in one block, which the caller leaves to this function; no
        // two parts are alive at a time.
        let part = unsafe { slab.part(at, COLUMN * shape.block_tokens) };
        // SAFETY: both have 16 elements.
        unsafe { V::load(key.as_ptr()).store_half(halves.as_mut_ptr()) };
        for (cell, half) in part[slot..].iter_mut().step_by(shape.block_tokens).zip(halves) {
            *cell = half;
        }
        let at = block + shape.values(head) + slot * shape.head_dim + dim;
        // SAFETY: as for the keys.
        let part = unsafe { slab.part(at, COLUMN) };
        // SAFETY: both have 16 elements.
        unsafe { V::load(value.as_ptr()).store_half(part.as_mut_ptr()) };
    }
}
