//! row: k
//! error: E0271
//! says: type mismatch resolving `<f16 as KvElement>::Query == bf16`
//! Queries of bf16 to a cache whose queries are f16.

use memtier::*;
use memtier_cuda::{Kernels, kernels};

type Kv = GlobalKv<f16>;
type Rows<'a, T> = StableSpan<'a, T, Eager<Cuda>>;
#[cfg(crime)]
type Query = bf16;
#[cfg(not(crime))]
type Query = f16;

pub fn attend(
    (on, compiled): (&Recorder<Eager<Cuda>>, &Kernels),
    out: &mut StableSpanMut<'_, bf16, Eager<Cuda>>,
    (slab, ids): (&Slab<'_, Kv, Eager<Cuda>>, Rows<'_, BlockId<Kv>>),
    (queries, rows, positions): (Rows<'_, Query>, Rows<'_, u32>, Rows<'_, u32>),
    how: (kernels::PagedKv, kernels::PrefillShape),
) -> Result<(), LaunchError> {
    kernels::paged_prefill(on, compiled, out, queries, slab, ids, [rows, positions], how)
}

pub fn main() {}
