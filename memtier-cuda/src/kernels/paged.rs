//! Keys and values in pages: where a layer's are, and what they can be.

use memtier::{LaunchError, Plain, TableShape, bf16, f16};

use super::{narrow, product, require};

/// What a cache can hold. Queries that attend to it are of the same element.
#[diagnostic::on_unimplemented(
    message = "the attention kernels have no cache of `{Self}`",
    note = "keys and values are `bf16` or `f16`: `BlockPool<GlobalKv<bf16>, Cuda>`"
)]
pub trait KvElement: Plain {
    /// The element of the weights of head norms in front of such a cache.
    type Norm: Plain;
    #[doc(hidden)]
    const F16: bool;
}
impl KvElement for bf16 {
    type Norm = bf16;
    const F16: bool = false;
}
impl KvElement for f16 {
    type Norm = f32;
    const F16: bool = true;
}

/// What a page's tokens are a multiple of: a tile of tokens lies in whole pages.
const PAGE: usize = 16;

/// Refuses pages that tiles of the attention kernels do not fit into.
pub(super) fn whole_pages(what: &'static str, block_tokens: usize) -> Result<(), LaunchError> {
    require(block_tokens.is_multiple_of(PAGE), what, "a block must hold a multiple of 16 tokens")
}

/// Where one layer's keys and values are in a block: from element `layer_base` on, keys as kv_heads x block tokens x
/// head_dim, then values alike.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PagedKv {
    /// Where the layer begins in a block, in elements.
    pub layer_base: usize,
    /// Key/value heads.
    pub kv_heads: usize,
    /// Elements of a head.
    pub head_dim: usize,
}

impl PagedKv {
    /// Elements of one layer in a block of `block_tokens` tokens, or `None` on overflow.
    pub fn block_elements(&self, block_tokens: usize) -> Option<usize> {
        self.kv_heads.checked_mul(self.head_dim)?.checked_mul(block_tokens)?.checked_mul(2)
    }

    /// Checks a layer against its slab (units and tokens of a block, pool) and its table; gives the table's rows and columns.
    pub(super) fn check(
        &self,
        what: &'static str,
        (block_units, block_tokens, pool): (usize, usize, u64),
        table: TableShape,
    ) -> Result<(u32, u32), LaunchError> {
        let PagedKv { layer_base, kv_heads, head_dim } = *self;
        // A table whose first row is not set yet names no pool; kernels look again when they run.
        let ours = table.pool == 0 || table.pool == pool;
        require(ours, what, "the page table holds ids of another pool than the slab")?;
        require(head_dim > 0 && head_dim.is_multiple_of(8), what, "a head must have a multiple of 8 elements")?;
        require(kv_heads > 0, what, "there must be a key/value head")?;
        let aligned = layer_base.is_multiple_of(8) && block_units.is_multiple_of(8);
        require(aligned, what, "blocks, and layers in them, must begin on multiples of 8 elements")?;
        let end = self.block_elements(block_tokens).and_then(|elements| elements.checked_add(layer_base));
        require(end.is_some_and(|end| end <= block_units), what, "the layer ends behind its block")?;
        product(what, &[table.columns, block_tokens]).and_then(|tokens| narrow(what, tokens))?;
        Ok((narrow(what, table.rows)?, narrow(what, table.columns)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layer_that_ends_behind_its_block_is_refused() {
        let kv = PagedKv { layer_base: 8, kv_heads: 2, head_dim: 64 };
        let table = TableShape { rows: 1, columns: 4, pool: 3 };
        let units = kv.block_elements(16).unwrap();
        assert!(kv.check("test", (units, 16, 3), table).is_err());
        assert_eq!(kv.check("test", (units + 8, 16, 3), table), Ok((1, 4)));
        assert!(kv.check("test", (units + 8, 16, 4), table).is_err());
        assert_eq!(kv.check("test", (units + 8, 16, 4), TableShape { pool: 0, ..table }), Ok((1, 4)));
    }
}
