//! Page tables: which block holds which tokens of which sequence, in device memory, where kernels and graphs read it.
//!
//! A row *pins* the blocks that it names: a request that is cancelled while its row is still there leaves its blocks
//! unavailable until the row is set or cleared, so no replay can write into somebody else's block.

use std::{
    marker::PhantomData,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use super::{
    PoolGate, StepStream, Ticket,
    core::{HOLE, SharedCore},
    kind::PoolKind,
};
use crate::{
    backend::{QueueError, Region},
    element::Element,
    layout::SizeError,
    line::{Ground, paged},
    owned::Keep,
    part::{Declare, Part, Survives},
    place::{Cx, Fits, Mark, OutsideCapture, Place},
    plan::{self, Demand},
    record::{HostArg, LaunchError, Recorder, Running, bytes_of},
    sealed::Sealed,
    space::{Host, Space},
    span::{Input, RawSpan, StableSpan},
    units::Bytes,
};

/// The element of a page table: the id of a block of a `K` pool, or a hole. Ids come from tickets, through
/// [`PageTableView::set`], and from nowhere else.
pub struct BlockId<K>(PhantomData<fn() -> K>);

impl<K> Clone for BlockId<K> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<K> Copy for BlockId<K> {}
impl<K> Sealed for BlockId<K> {}
// Not `Plain`: scratch and shaped fields cannot hold ids, since whatever was there before would be taken for some.
impl<K: PoolKind> Element for BlockId<K> {
    type Repr = u32;
    type Meta = TableShape;
    const NAME: &'static str = "block id";
    const PER: usize = 1;
}

/// The shape of a page table, and the pool its ids belong to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TableShape {
    /// Sequences.
    pub rows: usize,
    /// Blocks of one sequence.
    pub columns: usize,
    /// The pool whose ids it holds; 0 while no row was ever set, and then every id is a hole.
    pub pool: u64,
}

/// The size of a page table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TableSpec {
    /// Sequences served at once.
    pub rows: usize,
    /// Blocks that one sequence can have: `max_seq_len` in blocks.
    pub columns: usize,
}

/// A page table for blocks of a `K` pool: `rows` x `columns` ids, row-major, holes where there is no block.
pub struct PageTable<K, S = Host> {
    region: Arc<Region>,
    addr: u64,
    spec: TableSpec,
    /// What the rows hold, and keep from being reused.
    mirror: Mirror,
    marker: PhantomData<fn() -> (K, S)>,
}

struct Mirror {
    ids: Box<[u32]>,
    /// The pool that every row's ids belong to, from the first row that is set.
    core: Option<SharedCore>,
    /// Whether the device holds what the mirror says. Not before the first step.
    written: AtomicBool,
}

/// Words behind the ids that say whose they are: the pool's id, low half first. A graph reads them when it runs, since it may
/// have been recorded before the first row was set.
const FOOTER: usize = 2;

fn footer(core: Option<&SharedCore>) -> [u32; FOOTER] {
    let id = core.map_or(0, |core| core.id);
    [id as u32, (id >> 32) as u32]
}

impl Mirror {
    fn unpin(&mut self, range: std::ops::Range<usize>, step: u64) {
        let Some(core) = &self.core else { return };
        for id in self.ids[range].iter_mut().filter(|id| **id != HOLE) {
            core.unpin(std::mem::replace(id, HOLE), step);
        }
    }
}

// SAFETY: the demand is the ids' own size.
unsafe impl<K: PoolKind, S: Space> Declare for PageTable<K, S> {
    type Spec = TableSpec;
    type Priced = TableSpec;
    const LABEL: &'static str = "page table";

    fn price(spec: &TableSpec, add: &mut dyn FnMut(Demand)) -> Result<TableSpec, SizeError> {
        let field = "page table";
        let TableSpec { rows, columns } = *spec;
        if rows == 0 || columns == 0 {
            return Err(SizeError::Zero { field });
        }
        let bytes = Bytes::new(4).times(rows as u64).and_then(|row| row.times(columns as u64));
        let bytes = bytes.and_then(|ids| ids.plus(Bytes::new(4 * FOOTER as u64))).and_then(paged);
        let bytes = bytes.map_err(|_| SizeError::Overflow { field })?;
        add(Demand::bytes(format!("page table, {}", K::NAME), plan::Tier::EnginePersistent, S::NAME, bytes));
        Ok(*spec)
    }
}

// SAFETY: views are borrowed from the table, and its region is kept.
unsafe impl<K: PoolKind, S: Space> Part for PageTable<K, S> {
    type Space = S;
    type View<'a, P: Place<Space = S>> = PageTableView<'a, K, P>;
    type LoadView<'a, P: Place<Space = S>> = PageTableView<'a, K, P>;
    type Kept = Self;
    const STEERS: bool = true;

    fn carve(spec: TableSpec, ground: &mut Ground) -> Self {
        let lot = ground.take();
        let ids = vec![HOLE; spec.rows * spec.columns].into();
        let mirror = Mirror { ids, core: None, written: AtomicBool::new(false) };
        PageTable { region: lot.region, addr: lot.addr, spec, mirror, marker: PhantomData }
    }

    fn view<P: Place<Space = S>>(&mut self, cx: &Cx<P>) -> PageTableView<'_, K, P> {
        PageTableView { table: self, mark: cx.mark() }
    }

    fn load_view<P: Place<Space = S>>(&mut self, cx: &Cx<P>) -> PageTableView<'_, K, P> {
        PageTableView { table: self, mark: cx.mark() }
    }

    fn kept(mut self) -> Self {
        // The engine was drained: nothing in flight reads the rows.
        let all = 0..self.mirror.ids.len();
        self.mirror.unpin(all, 0);
        self.mirror.core = None;
        *self.mirror.written.get_mut() = false;
        self
    }

    fn keep(&self, keep: &mut Keep) {
        keep.region(&self.region);
    }

    fn gates(&self, visit: &mut dyn FnMut(&dyn PoolGate)) {
        visit(self);
    }
}

impl<K, S> PoolGate for PageTable<K, S> {
    fn prepare(&self, StepStream(lane): StepStream<'_>) -> Result<(), QueueError> {
        if self.mirror.written.load(Ordering::Acquire) {
            return Ok(());
        }
        // The memory holds whatever was there; from here on it holds what the mirror says.
        for (at, words) in [(0, &*self.mirror.ids), (self.mirror.ids.len(), &footer(self.mirror.core.as_ref()))] {
            // SAFETY: the words lie in this table's own memory, and the step that begins has handed out no view of it yet.
            unsafe { lane.queue().write(self.addr + 4 * at as u64, bytes_of(words))? };
        }
        self.mirror.written.store(true, Ordering::Release);
        Ok(())
    }
}

impl<K: PoolKind, S: Space> Survives for PageTable<K, S> {
    fn is_what_was_priced(&self, priced: &TableSpec) -> bool {
        self.spec == *priced
    }
}

impl<K, S> Drop for PageTable<K, S> {
    fn drop(&mut self) {
        let all = 0..self.mirror.ids.len();
        self.mirror.unpin(all, 0);
    }
}

/// What a step gets of a page table.
pub struct PageTableView<'a, K: PoolKind, P: Place> {
    table: &'a mut PageTable<K, P::Space>,
    mark: Mark<P>,
}

impl<K: PoolKind, P: Place> PageTableView<'_, K, P> {
    /// The ids, for kernels: `rows` x `columns`, row-major.
    pub fn ids(&self) -> StableSpan<'_, BlockId<K>, P> {
        let TableSpec { rows, columns } = self.table.spec;
        let pool = self.table.mirror.core.as_ref().map_or(0, |core| core.id);
        StableSpan::new(self.table.addr, rows * columns, TableShape { rows, columns, pool }, self.mark)
    }

    /// Makes row `row` name the blocks of a request, in stream order, and pins them. Only what changed is copied.
    ///
    /// Launches through the table may write the tokens after [`Ticket::tokens`], so the blocks of those must not be shared.
    ///
    /// # Errors
    /// [`RowError`]; the row is as it was.
    pub fn set(&mut self, on: &Recorder<P>, row: usize, ticket: &Ticket<K>) -> Result<(), RowError>
    where
        P: OutsideCapture,
    {
        let range = self.range(row)?;
        let _running = self.claim(on)?;
        let columns = range.len();
        let ids = ticket.ids();
        if ids.len() > columns {
            return Err(RowError::TooLong { blocks: ids.len(), columns });
        }
        let core = ticket.core();
        if self.table.mirror.core.as_ref().is_some_and(|known| !Arc::ptr_eq(known, core)) {
            return Err(RowError::ForeignTicket);
        }
        if ticket.epoch() != core.epoch() {
            return Err(RowError::ModelEnded);
        }
        let first_written = (ticket.tokens().count() / core.per_block.count().max(1)) as usize;
        let shared = (first_written..ids.len()).find(|index| ticket.is_shared(*index));
        if let Some(block) = shared {
            return Err(RowError::Shared { block });
        }
        if self.table.mirror.core.is_none() {
            self.table.mirror.core = Some(core.clone());
            self.words(on, self.table.mirror.ids.len(), &footer(Some(core)))?;
        }
        let wanted = ids.iter().copied().chain(std::iter::repeat(HOLE)).take(columns);
        self.update(on, range, wanted)
    }

    /// Makes row `row` all holes, in stream order, and lets go of its blocks when the step is over.
    ///
    /// # Errors
    /// [`RowError`]; the row is as it was.
    pub fn clear(&mut self, on: &Recorder<P>, row: usize) -> Result<(), RowError>
    where
        P: OutsideCapture,
    {
        let range = self.range(row)?;
        let _running = self.claim(on)?;
        self.update(on, range, std::iter::repeat(HOLE))
    }

    /// The right to change the row, before anything is changed: launches are open, and no replay runs or can begin.
    fn claim<'r>(&self, on: &'r Recorder<P>) -> Result<Running<'r>, RowError> {
        on.check(&[self.mark.stream]).map_err(RowError::Launch)?;
        on.lane().run().map_err(RowError::Launch)
    }

    fn range(&self, row: usize) -> Result<std::ops::Range<usize>, RowError> {
        let TableSpec { rows, columns } = self.table.spec;
        if row >= rows {
            return Err(RowError::NoRow { row, rows });
        }
        Ok(row * columns..(row + 1) * columns)
    }

    fn update(
        &mut self,
        on: &Recorder<P>,
        range: std::ops::Range<usize>,
        wanted: impl Iterator<Item = u32> + Clone,
    ) -> Result<(), RowError> {
        let mirror = &mut self.table.mirror;
        let start = range.start;
        let mut changed: Option<std::ops::Range<usize>> = None;
        let core = mirror.core.clone();
        for (index, wanted) in range.clone().zip(wanted) {
            let id = &mut mirror.ids[index];
            if *id == wanted {
                continue;
            }
            let (old, core) = (std::mem::replace(id, wanted), core.as_ref());
            if let Some(core) = core {
                if wanted != HOLE {
                    core.pin(wanted, self.mark.clock);
                }
                if old != HOLE {
                    core.unpin(old, self.mark.clock);
                }
            }
            changed = Some(changed.map_or(index, |changed| changed.start)..index + 1);
        }
        debug_assert!(changed.as_ref().is_none_or(|changed| changed.start >= start));
        changed.map_or(Ok(()), |changed| self.copy(on, changed))
    }

    fn copy(&self, on: &Recorder<P>, range: std::ops::Range<usize>) -> Result<(), RowError> {
        self.words(on, range.start, &self.table.mirror.ids[range])
    }

    /// Copies `words` to word `at` of the table, in stream order.
    fn words(&self, on: &Recorder<P>, at: usize, words: &[u32]) -> Result<(), RowError> {
        let meta = self.ids().meta();
        let addr = self.table.addr + 4 * at as u64;
        let to = RawSpan::<BlockId<K>> { addr, len: words.len(), stream: self.mark.stream, meta };
        on.copy_in(to, words).map_err(|error| {
            // The next step writes all of the mirror again.
            self.table.mirror.written.store(false, Ordering::Release);
            RowError::Launch(error)
        })
    }
}

/// A row was not set. It is as it was, unless the device failed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RowError {
    /// There is no such row.
    #[error("row {row} of a page table with {rows} rows: plan a larger `TableSpec::rows`, it is the batch")]
    NoRow {
        /// What was asked.
        row: usize,
        /// What there is.
        rows: usize,
    },
    /// The request has more blocks than a row.
    #[error("{blocks} blocks in a row of {columns}: plan a larger `TableSpec::columns`, it is the context in blocks")]
    TooLong {
        /// Blocks of the request.
        blocks: usize,
        /// Blocks of a row.
        columns: usize,
    },
    /// The ticket is one of another pool than the rows set before.
    #[error("the ticket is one of another pool of this kind: a page table holds ids of one pool")]
    ForeignTicket,
    /// The request's model has ended.
    #[error("the request belongs to a model that has ended: open a new one")]
    ModelEnded,
    /// A block that launches would write has other referents.
    #[error("block {block} of the request would be written and is shared: copy it into a block of its own first")]
    Shared {
        /// Position in the ticket's table.
        block: usize,
    },
    /// The copy to the device failed.
    #[error(transparent)]
    Launch(#[from] LaunchError),
}

// ------------------------------------------------------------------------------------------------- CPU argument

/// A read argument of page table ids. See [`table`].
pub struct InTable<K, I>(I, PhantomData<fn() -> K>);

/// A page table as an input of a CPU operation: its body sees a [`TableSlice`].
pub fn table<K: PoolKind, P: Place, I: Input<BlockId<K>, P>>(ids: I) -> InTable<K, I> {
    InTable(ids, PhantomData)
}

/// What the body of a CPU operation sees of a page table.
#[derive(Clone, Copy, Debug)]
pub struct TableSlice<'x> {
    /// Rows, columns and the pool.
    pub shape: TableShape,
    /// Block ids, row-major; `u32::MAX` is a hole.
    pub ids: &'x [u32],
}

impl<'x> TableSlice<'x> {
    /// The ids of one row.
    pub fn row(self, row: usize) -> Option<&'x [u32]> {
        self.ids.get(row * self.shape.columns..)?.get(..self.shape.columns)
    }
}

impl<K, I> Sealed for InTable<K, I> {}
impl<P: Place, K: PoolKind, I: Input<BlockId<K>, P>> HostArg<P> for InTable<K, I> {
    type Raw = RawSpan<BlockId<K>>;
    type Slice<'x> = TableSlice<'x>;

    fn into_raw(self, _on: &Recorder<P>) -> RawSpan<BlockId<K>> {
        self.0.input()
    }

    fn stream(raw: &RawSpan<BlockId<K>>) -> u32 {
        raw.stream
    }

    unsafe fn slice<'x>(raw: &'x RawSpan<BlockId<K>>) -> TableSlice<'x> {
        let data = std::ptr::with_exposed_provenance(raw.addr as usize);
        // SAFETY: by the caller; ids are handed out whole, so the footer lies behind them.
        let words: &[u32] = unsafe { std::slice::from_raw_parts(data, raw.len + FOOTER) };
        let (ids, footer) = words.split_at(raw.len);
        // Whose they are now, which a graph that was recorded earlier cannot know.
        let pool = u64::from(footer[1]) << 32 | u64::from(footer[0]);
        TableSlice { shape: TableShape { pool, ..raw.meta }, ids }
    }
}

#[allow(dead_code, reason = "documents that a table's ids fit only launches of their own place")]
fn ids_fit_their_launch<K: PoolKind, P: Place, Q: Fits<P>>(ids: StableSpan<'_, BlockId<K>, Q>) -> RawSpan<BlockId<K>> {
    Input::<BlockId<K>, P>::input(ids)
}
