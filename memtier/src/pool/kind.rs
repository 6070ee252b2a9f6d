//! Kinds of pools: what their blocks hold, and whether they may be shared.

use std::marker::PhantomData;

use crate::{element::Plain, sealed::Sealed};

/// A kind of pool. Ids, tickets and page tables of two kinds are different types (row g).
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no kind of pool",
    label = "not a kind",
    note = "a kind says what blocks hold and how they are used: `GlobalKv<f16>`, `SwaKv<f16>`, `RecurrentState<f32>` or `ResidualKv<f16>`, of \
            any element with a size of its own"
)]
pub trait PoolKind: Sealed + Send + Sync + 'static {
    /// What its blocks hold.
    type Element: Plain;
    /// The name in plans and reports.
    const NAME: &'static str;
}

/// Append-only KV over the whole context.
pub struct GlobalKv<E>(PhantomData<fn() -> E>);

/// Sliding-window KV: blocks that left the window are used again.
pub struct SwaKv<E>(PhantomData<fn() -> E>);

/// The state of recurrent layers (Mamba, linear attention): one block is all of it, for one sequence, overwritten with every
/// token. See [`PoolSpec::states`](super::PoolSpec::states).
///
/// A prefix in the cache needs the state as it was there: [`Snapshots`](super::Snapshots) keeps copies. A request that guesses
/// ahead copies its state first, and copies it back when a guess was wrong.
pub struct RecurrentState<E>(PhantomData<fn() -> E>);

/// The latest tokens of a sequence, unrounded, in a ring: one block is all of it, for one sequence, overwritten as the sequence goes
/// on. Beside a [`GlobalKv`] of smaller elements, which has these tokens, too: whoever reads takes the latest from here, and the
/// others as they were rounded. So what leaves the ring needs no copy, and what is in the other pool is complete at any time: it
/// can be published, shared and rewound. See [`PoolSpec::states`](super::PoolSpec::states).
///
/// A fork copies it. A prefix in the cache has none: the request that continues it begins a ring behind it.
pub struct ResidualKv<E>(PhantomData<fn() -> E>);

impl<E> Sealed for ResidualKv<E> {}
impl<E: Plain> PoolKind for ResidualKv<E> {
    type Element = E;
    const NAME: &'static str = "residual KV";
}

impl<E> Sealed for RecurrentState<E> {}
impl<E: Plain> PoolKind for RecurrentState<E> {
    type Element = E;
    const NAME: &'static str = "recurrent state";
}

impl<E> Sealed for GlobalKv<E> {}
impl<E: Plain> PoolKind for GlobalKv<E> {
    type Element = E;
    const NAME: &'static str = "global KV";
}
impl<E> Sealed for SwaKv<E> {}
impl<E: Plain> PoolKind for SwaKv<E> {
    type Element = E;
    const NAME: &'static str = "SWA KV";
}

/// A kind whose blocks may have several referents (row g).
#[diagnostic::on_unimplemented(
    message = "`{Self}` blocks must stay unshared",
    label = "its blocks are overwritten in place",
    note = "a second referent would see another position's values; only append-only kinds (`GlobalKv`) share a prefix",
    note = "for a second request give it a ticket of its own and copy the blocks (`PoolView::copy_pair`); for a prefix keep a copy with `Snapshots`"
)]
pub trait Shareable: PoolKind {}
impl<E: Plain> Shareable for GlobalKv<E> {}
