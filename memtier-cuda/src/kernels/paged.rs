//! Keys and values in pages: where a layer's are, what they can be, and what every kernel over them is told.

use memtier::{F8E4M3, LaunchError, Plain, TableShape, bf16, f16};

use super::{narrow, product, require};
use crate::launch::Arg;

/// What a cache can hold.
#[diagnostic::on_unimplemented(
    message = "the attention kernels have no cache of `{Self}`",
    label = "a pool of elements that attention has no kernel for",
    note = "keys and values are `bf16`, `f16` or `F8E4M3`: `BlockPool<GlobalKv<bf16>, Cuda>`; layers of fewer bits are in pools of `f16`, as \
            `PagedKv::packed` says"
)]
pub trait KvElement: Plain {
    /// The element of queries that attend to such a cache.
    type Query: Plain;
    /// The element of the weights of head norms in front of it.
    type Norm: Plain;
    #[doc(hidden)]
    const CACHE: Cache;
}
impl KvElement for bf16 {
    type Query = bf16;
    type Norm = bf16;
    const CACHE: Cache = Cache::Bf16;
}
impl KvElement for f16 {
    type Query = f16;
    type Norm = f32;
    const CACHE: Cache = Cache::F16;
}
/// A byte an element, and for every key and every value of a head a scale, an f32, that its elements are multiplied with.
impl KvElement for F8E4M3 {
    type Query = f16;
    type Norm = f32;
    const CACHE: Cache = Cache::F8;
}

/// What the keys and values of one layer are packed as, in a pool of f16.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum PackedKv {
    /// A byte an element, and an f32 for each vector: what a pool of [`F8E4M3`] has.
    E4M3,
    /// Eight-bit integers, and for 32 of them an f16: GGUF's Q8_0, with the scales of a layer behind its integers. Elements are rounded once
    /// to f16 when they are read, as an f16 cache has them.
    Int8,
    /// e2m1, for 16 of them a ue4m3, and for each vector an f32. Elements times the ue4m3 are f16 exactly; prefill rounds keys times the f32
    /// to f16, and so it does with e4m3.
    Nvfp4,
}

/// The kinds of cache, as kernels are chosen by them.
#[doc(hidden)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cache {
    Bf16,
    F16,
    F8,
    I8,
    F4,
}

impl From<PackedKv> for Cache {
    fn from(packed: PackedKv) -> Cache {
        match packed {
            PackedKv::E4M3 => Cache::F8,
            PackedKv::Int8 => Cache::I8,
            PackedKv::Nvfp4 => Cache::F4,
        }
    }
}

impl Cache {
    /// Whether elements have fewer bits than 16: kernels are told bytes then.
    pub(super) fn is_narrow(self) -> bool {
        matches!(self, Cache::F8 | Cache::I8 | Cache::F4)
    }

    /// Elements that share a scale.
    fn granule(self) -> usize {
        match self {
            Cache::I8 => 32,
            Cache::F4 => 16,
            _ => 1,
        }
    }

    /// Bytes of a vector of `head_dim` elements, with its scales.
    fn bytes(self, head_dim: usize) -> Option<usize> {
        match self {
            Cache::Bf16 | Cache::F16 => head_dim.checked_mul(2),
            Cache::F8 => head_dim.checked_add(4),
            Cache::I8 => head_dim.checked_add(head_dim / 16),
            Cache::F4 => (head_dim / 2 + head_dim / 16).checked_add(4),
        }
    }

    /// Units of the pool in 16 bytes: what kernels read at once.
    fn per_16_bytes(self) -> usize {
        match self {
            Cache::Bf16 | Cache::F16 => 8,
            Cache::F8 | Cache::I8 | Cache::F4 => 16,
        }
    }
}

/// What a page's tokens are a multiple of: a tile of tokens lies in whole pages.
const PAGE: usize = 16;

/// Where one layer's keys and values are in a block: from element `layer_base` on, keys as kv_heads x block tokens x
/// head_dim, then values alike; where vectors have scales, the keys' behind that as kv_heads x block tokens f32, then the values'.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PagedKv {
    /// Where the layer begins in a block, in units of the pool.
    pub layer_base: usize,
    /// Key/value heads.
    pub kv_heads: usize,
    /// Elements of a head.
    pub head_dim: usize,
    /// What the layer is packed as in a pool of f16; `None`: it is what the pool holds. Layers of one pool may differ.
    pub packed: Option<PackedKv>,
}

/// How heads attend, whatever the phase.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Attending {
    pub(super) heads: usize,
    pub(super) scale: f32,
    pub(super) window: Option<usize>,
    pub(super) softcap: Option<f32>,
}

impl PagedKv {
    /// Units of the pool that one layer takes in a block of `block_tokens` tokens, or `None` on overflow.
    ///
    /// ```
    /// use memtier::{F8E4M3, bf16, f16};
    /// use memtier_cuda::kernels::PagedKv;
    ///
    /// let kv = PagedKv { layer_base: 0, kv_heads: 8, head_dim: 128, packed: None };
    /// assert_eq!(kv.block_units::<bf16>(64), Some(2 * 8 * 64 * 128));
    /// assert_eq!(kv.block_units::<F8E4M3>(64), Some(2 * 8 * 64 * (128 + 4)));
    /// // Units of two bytes.
    /// use memtier_cuda::kernels::PackedKv;
    /// assert_eq!(PagedKv { packed: Some(PackedKv::E4M3), ..kv }.block_units::<f16>(64), Some(8 * 64 * (128 + 4)));
    /// ```
    pub fn block_units<E: KvElement>(&self, block_tokens: usize) -> Option<usize> {
        let vectors = self.kv_heads.checked_mul(block_tokens)?.checked_mul(2)?;
        let cache = self.packed.map_or(E::CACHE, Cache::from);
        Some(vectors.checked_mul(cache.bytes(self.head_dim)?)? / size_of::<E>())
    }

    /// What the layer's vectors are.
    pub(super) fn cache<E: KvElement>(&self, what: &'static str) -> Result<Cache, LaunchError> {
        match (self.packed.map(Cache::from), E::CACHE) {
            (None, pool) => Ok(pool),
            (Some(packed), pool) if packed == pool => Ok(packed),
            (Some(packed), Cache::F16) => Ok(packed),
            // Queries to packed layers are f16.
            _ => Err(LaunchError::Unsupported {
                what,
                why: "packed layers are in pools of f16, e4m3 in pools of e4m3 too",
            }),
        }
    }

    /// Checks a layer against its slab (units and tokens of a block, pool) and its table. Gives the arguments that say where keys
    /// and values are.
    pub(super) fn pages<E: KvElement>(
        &self,
        what: &'static str,
        (block_units, block_tokens, pool): (usize, usize, u64),
        table: TableShape,
    ) -> Result<[u64; 6], LaunchError> {
        let PagedKv { layer_base, kv_heads, head_dim, .. } = *self;
        // Elements of the kernel that are a unit of the pool.
        let cache = self.cache::<E>(what)?;
        let per_unit = if cache.is_narrow() { size_of::<E>() as u64 } else { 1 };
        // A table whose first row is not set yet names no pool; kernels look again when they run.
        let ours = table.pool == 0 || table.pool == pool;
        require(ours, what, "the page table holds ids of another pool than the slab")?;
        require(head_dim > 0 && head_dim.is_multiple_of(8), what, "a head must have a multiple of 8 elements")?;
        let whole = head_dim.is_multiple_of(cache.granule());
        require(
            whole,
            what,
            "a head must have a multiple of the elements that share a scale: 32 of int8, 16 of NVFP4",
        )?;
        require(kv_heads > 0, what, "there must be a key/value head")?;
        let chunk = E::CACHE.per_16_bytes();
        let aligned = layer_base.is_multiple_of(chunk) && block_units.is_multiple_of(chunk);
        require(aligned, what, "blocks, and layers in them, must begin on multiples of 16 bytes")?;
        let end = self.block_units::<E>(block_tokens).and_then(|units| units.checked_add(layer_base));
        require(end.is_some_and(|end| end <= block_units), what, "the layer ends behind its block")?;
        product(what, &[table.columns, block_tokens]).and_then(|tokens| narrow(what, tokens))?;
        product(what, &[kv_heads, block_tokens]).and_then(|slots| narrow(what, slots))?;
        Ok([
            pool,
            block_units as u64 * per_unit,
            layer_base as u64 * per_unit,
            narrow(what, block_tokens)?.word(),
            narrow(what, table.rows)?.word(),
            narrow(what, table.columns)?.word(),
        ])
    }

    /// The same for attention, with the arguments that say how heads attend.
    pub(super) fn attention<E: KvElement>(
        &self,
        what: &'static str,
        slab: (usize, usize, u64),
        table: TableShape,
        Attending { heads, scale, window, softcap }: Attending,
    ) -> Result<[u64; 11], LaunchError> {
        let [pool, stride, base, tokens, rows, columns] = self.pages::<E>(what, slab, table)?;
        let PagedKv { kv_heads, .. } = *self;
        require(
            heads > 0 && heads.is_multiple_of(kv_heads),
            what,
            "query heads must be a multiple of key/value heads",
        )?;
        require(window != Some(0), what, "a window of no tokens sees nothing: use `None` for no window")?;
        require(slab.1.is_multiple_of(PAGE), what, "a block must hold a multiple of 16 tokens")?;
        // Kernels work with powers of two.
        let log2e = std::f32::consts::LOG2_E;
        let group = narrow(what, heads / kv_heads)?.word();
        let (kv_heads, window) = (narrow(what, kv_heads)?.word(), narrow(what, window.unwrap_or(0))?.word());
        let (scale, softcap) = ((scale * log2e).word(), (softcap.unwrap_or(0.0) * log2e).word());
        Ok([pool, stride, base, tokens, rows, columns, kv_heads, group, window, scale, softcap])
    }
}

/// One array of arguments out of two.
pub(super) fn join<const A: usize, const B: usize, const N: usize>(first: [u64; A], then: [u64; B]) -> [u64; N] {
    const { assert!(A + B == N) }
    std::array::from_fn(|i| if i < A { first[i] } else { then[i - A] })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layer_that_ends_behind_its_block_is_refused() {
        let kv = PagedKv { layer_base: 16, kv_heads: 2, head_dim: 64, packed: None };
        let table = TableShape { rows: 1, columns: 4, pool: 3 };
        let units = kv.block_units::<bf16>(16).unwrap();
        let pages = |slab, table| kv.pages::<bf16>("test", slab, table);
        assert!(pages((units + 8, 16, 3), table).is_err());
        assert_eq!(pages((units + 16, 16, 3), table), Ok([3, units as u64 + 16, 16, 16, 1, 4]));
        assert!(pages((units + 16, 16, 4), table).is_err());
        assert!(pages((units + 16, 16, 4), TableShape { pool: 0, ..table }).is_ok());
    }

    #[test]
    fn scales_take_their_place_in_a_block() {
        let kv = PagedKv { layer_base: 0, kv_heads: 2, head_dim: 64, packed: None };
        let table = TableShape { rows: 1, columns: 4, pool: 3 };
        let pages = |units| kv.pages::<F8E4M3>("test", (units, 16, 3), table);
        assert!(pages(2 * 2 * 16 * 68).is_ok());
        assert!(pages(2 * 2 * 16 * 68 - 16).is_err());
        assert!(pages(2 * 2 * 16 * 68 + 8).is_err());
        // In a pool of f16, half as many units, of which the kernel is told the bytes.
        let kv = PagedKv { layer_base: 24, packed: Some(PackedKv::E4M3), ..kv };
        let pages = |units| kv.pages::<f16>("test", (units, 16, 3), table);
        assert_eq!(pages(2 * 16 * 68 + 24), Ok([3, 2 * (2 * 16 * 68 + 24), 48, 16, 1, 4]));
        assert!(pages(2 * 16 * 68 + 16).is_err());
        assert!(kv.pages::<bf16>("test", (1 << 20, 16, 3), table).is_err());
        // Of a vector of 64: 64 and two f16; 32, four bytes and an f32.
        let units = |packed| PagedKv { packed: Some(packed), ..kv }.block_units::<f16>(16);
        assert_eq!([units(PackedKv::Int8), units(PackedKv::Nvfp4)], [Some(2 * 16 * 68), Some(2 * 16 * 40)]);
        let odd = PagedKv { layer_base: 0, head_dim: 80, packed: Some(PackedKv::Int8), ..kv };
        assert!(odd.pages::<f16>("test", (1 << 20, 16, 3), table).is_err());
    }
}
