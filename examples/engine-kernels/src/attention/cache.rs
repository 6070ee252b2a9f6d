//! The layout of the cache, and writing to it.

use crate::error::{KernelError, expect, multiple, product};
use crate::half::f32_to_f16;
use crate::isa::{Isa, multiversion};
use crate::threads::{Shares, Threads, spread};

/// A block number that stands for no block: positions in it are skipped when read, and dropped when written.
pub const HOLE: u32 = u32::MAX;

/// The dimensions of a layer's cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct KvShape {
    /// Key/value heads.
    pub kv_heads: usize,
    /// Elements of a head, a multiple of 16.
    pub head_dim: usize,
    /// Tokens of a block, a multiple of 16.
    pub block_tokens: usize,
}

impl KvShape {
    /// f16 elements of one block of one layer, keys and values, or `None` on overflow.
    pub const fn block_elements(&self) -> Option<usize> {
        kv_block_elements(self.kv_heads, self.head_dim, self.block_tokens)
    }

    pub(super) fn check(&self) -> Result<usize, KernelError> {
        multiple("key/value heads", 1, self.kv_heads)?;
        multiple("head dimension", 16, self.head_dim)?;
        multiple("tokens of a block", 16, self.block_tokens)?;
        self.block_elements().ok_or(KernelError::Overflow { what: "elements of a block" })
    }

    /// Where the keys of a head begin in a block.
    pub(super) fn keys(&self, kv_head: usize) -> usize {
        kv_head * self.head_dim * self.block_tokens
    }

    /// Where the values of a head begin in a block.
    pub(super) fn values(&self, kv_head: usize) -> usize {
        (self.kv_heads + kv_head) * self.head_dim * self.block_tokens
    }
}

/// f16 elements of one block of one layer, keys and values, or `None` on overflow.
pub const fn kv_block_elements(kv_heads: usize, head_dim: usize, block_tokens: usize) -> Option<usize> {
    match kv_heads.checked_mul(head_dim) {
        Some(row) => match row.checked_mul(block_tokens) {
            Some(half) => half.checked_mul(2),
            None => None,
        },
        None => None,
    }
}

/// One layer's blocks inside of a slab: block b begins at element `base + b * stride`. A slab laid out
/// `[layer][block][element]` has the layer's offset as base and the block's elements as stride.
#[derive(Debug, Clone, Copy)]
pub struct KvCache<'a> {
    /// The slab, f16 bits. Cells that were never written may hold any bits.
    pub slab: &'a [u16],
    /// Element where the layer's block 0 begins.
    pub base: usize,
    /// Elements from one block to the next, at least a block's.
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

/// Writes one key row and one value row (`kv_heads` x `head_dim` f32 each) into each of `cells`, rounded to f16. Of two
/// rows for the same cell the later one stays.
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
    // Threads share out the columns, not the tokens: two tokens may go to the same cell.
    spread(threads, row / 16, (row / 16).div_ceil(2 * threads.count()), worthwhile, &|range| {
        for column in range.map(|index| 16 * index) {
            let (head, dim) = (column / shape.head_dim, column % shape.head_dim);
            for (index, cell) in cells.iter().enumerate().filter(|(_, cell)| cell.block != HOLE) {
                let block = base + cell.block as usize * stride;
                let slot = cell.slot as usize;
                let (key, _) = keys[index * row + column..].split_at(16);
                let (value, _) = values[index * row + column..].split_at(16);
                let at = block + shape.keys(head) + dim * shape.block_tokens;
                // SAFETY: these are 16 dimensions of one head's keys and of its values in one block; columns are
                // handed out once, and no two parts of one column are alive at a time.
                let part = unsafe { shares.part(at, 16 * shape.block_tokens) };
                write_strided(isa, part, slot, shape.block_tokens, key);
                let at = block + shape.values(head) + slot * shape.head_dim + dim;
                // SAFETY: as above.
                write_strided(isa, unsafe { shares.part(at, 16) }, 0, 1, value);
            }
        }
    });
    Ok(())
}

multiversion! {
    fn write_strided(part: &mut [u16], first: usize, stride: usize, values: &[f32]) {
        for (cell, value) in part[first..].iter_mut().step_by(stride).zip(values) {
            *cell = f32_to_f16(*value);
        }
    }
}
