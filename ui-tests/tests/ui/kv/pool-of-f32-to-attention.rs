//! row: k
//! error: E0277
//! says: the attention kernels have no cache of `f32`
//! Keys and values of an element that attention has no kernel for.

use memtier::*;
use memtier_cuda::{Kernels, kernels};

#[cfg(crime)]
type Kv = GlobalKv<f32>;
#[cfg(not(crime))]
type Kv = GlobalKv<bf16>;
type Rows<'a, T> = StableSpan<'a, T, Eager<Cuda>>;

pub fn attend(
    (on, compiled): (&Recorder<Eager<Cuda>>, &Kernels),
    out: &mut StableSpanMut<'_, bf16, Eager<Cuda>>,
    (slab, ids): (&Slab<'_, Kv, Eager<Cuda>>, Rows<'_, BlockId<Kv>>),
    (queries, rows, positions): (Rows<'_, bf16>, Rows<'_, u32>, Rows<'_, u32>),
    how: (kernels::PagedKv, kernels::PrefillShape),
) -> Result<(), LaunchError> {
    kernels::paged_prefill(on, compiled, out, queries, slab, ids, [rows, positions], how)
}

pub fn main() {}
