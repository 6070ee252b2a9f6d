//! Charging before creating, and buffers that come back under the same number.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    ops::Range,
};

use super::{
    budget::{Budget, BudgetDecision},
    class::SizeClass,
    report::AccountReport,
};
use crate::units::{Bytes, Overflow};

/// A backend of a [`ClassPool`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct BackendId {
    pool: u64,
    index: u32,
}

/// The number of a buffer. It stays with the memory for as long as the memory is there, over any number of owners.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SlotId(u64);

impl SlotId {
    /// The bare number, for printing.
    pub const fn number(self) -> u64 {
        self.0
    }
}

/// How much of a buffer was asked for: what may be read and written. The class behind it is larger, and holds whatever an
/// earlier owner left there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Length(Bytes);

impl Length {
    /// A buffer of `len` bytes.
    pub const fn new(len: Bytes) -> Self {
        Length(len)
    }

    /// The logical length in bytes.
    pub const fn bytes(self) -> Bytes {
        self.0
    }

    /// The byte range `offset..offset + len`, if it lies inside.
    ///
    /// # Errors
    /// [`OutsideLength`], also where the class would have had room.
    pub fn window(self, offset: Bytes, len: Bytes) -> Result<Range<u64>, OutsideLength> {
        let outside = OutsideLength { offset, len, logical: self.0 };
        let end = offset.plus(len).map_err(|_| outside)?;
        if end > self.0 { Err(outside) } else { Ok(offset.count()..end.count()) }
    }

    /// The range that `data` of so many bytes fills, which must be all of it: an input that is filled by half computes with
    /// the rest of an earlier one.
    ///
    /// # Errors
    /// [`OutsideLength`] when `data` is shorter or longer.
    pub fn filled_by(self, data: Bytes) -> Result<Range<u64>, OutsideLength> {
        match data == self.0 {
            true => Ok(0..data.count()),
            false => Err(OutsideLength { offset: Bytes::ZERO, len: data, logical: self.0 }),
        }
    }
}

/// A read or a write that is not what the buffer's logical length allows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{len} at {offset} do not match a buffer whose logical length is {logical}: the rest of its class is not data")]
pub struct OutsideLength {
    /// Where the access starts.
    pub offset: Bytes,
    /// How long it is.
    pub len: Bytes,
    /// The buffer's logical length.
    pub logical: Bytes,
}

/// A buffer that was taken from a [`ClassPool`]. Affine: it goes back through [`ClassPool::release`], once. Dropping it
/// instead leaves its memory charged.
#[derive(PartialEq, Eq, Debug)]
#[must_use = "a buffer that is dropped stays charged: give it back with `release`"]
pub struct Buf {
    pool: u64,
    slot: SlotId,
    length: Length,
}

impl Buf {
    /// Its number.
    pub fn slot(&self) -> SlotId {
        self.slot
    }

    /// What may be read and written of it.
    pub fn length(&self) -> Length {
        self.length
    }
}

/// Why a buffer was not handed out. Nothing was charged and nothing created.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TakeError<E> {
    /// It does not fit the budget, and the backend was not asked.
    #[error(transparent)]
    OverBudget(#[from] OverBudget),
    /// The backend was asked and refused.
    #[error("the backend refused {bytes}: {error}")]
    Backend {
        /// What it was asked for.
        bytes: Bytes,
        /// Its answer.
        error: E,
    },
    /// The size class leaves 64 bits.
    #[error(transparent)]
    Overflow(#[from] Overflow),
    /// The backend belongs to another pool.
    #[error("the backend was added to another pool")]
    ForeignBackend,
}

/// A request that does not fit, with the four numbers that say why.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OverBudget {
    /// The backend's name.
    pub backend: Box<str>,
    /// What its weights take.
    pub weights: Bytes,
    /// What its pool holds.
    pub pooled: Bytes,
    /// The request, at its class.
    pub request: Bytes,
    /// The budget.
    pub budget: Bytes,
}

impl std::error::Error for OverBudget {}

impl fmt::Display for OverBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mib = super::mib;
        write!(
            f,
            "{}: weights {} MiB + pooled {} MiB + request {} MiB exceed the budget of {} MiB: use a smaller context or \
             batch, offload fewer layers, or raise the budget",
            self.backend,
            mib(self.weights),
            mib(self.pooled),
            mib(self.request),
            mib(self.budget)
        )
    }
}

/// What a slot is made of.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Class(SizeClass),
    /// Staging between backends: charged to the pool, but as long as it is and never kept.
    Exact(Bytes),
}

struct Slot<M> {
    backend: BackendId,
    kind: Kind,
    memory: M,
}

struct Account {
    name: Box<str>,
    budget: Budget,
    warning: Option<String>,
    weights: Bytes,
    pooled: Bytes,
    live: Bytes,
    peak: Bytes,
    staging: Bytes,
}

/// Buffers by size class, charged against a budget before a backend is asked, and reserved for the next build when they are
/// released.
///
/// `M` is what a backend hands out: an address, a handle, an owned region. The pool never looks at it.
///
/// Released buffers stay reserved under (backend, class), and [`take`](Self::take) hands out the smallest idle number. A
/// graph that is rebuilt with the same topology therefore gets the same buffers at the same addresses, and what was
/// captured against them stays valid. A stack of free buffers would shuffle them.
pub struct ClassPool<M> {
    id: u64,
    accounts: Vec<Account>,
    slots: BTreeMap<SlotId, Slot<M>>,
    idle: BTreeMap<(BackendId, SizeClass), BTreeSet<SlotId>>,
    next: u64,
    created: u64,
}

impl<M> ClassPool<M> {
    /// A pool without backends.
    pub fn new() -> Self {
        let (accounts, slots, idle) = (Vec::new(), BTreeMap::new(), BTreeMap::new());
        ClassPool { id: crate::next_id(), accounts, slots, idle, next: 0, created: 0 }
    }

    /// Adds a backend with its budget, see [`decide_budget`](super::decide_budget).
    pub fn add_backend(&mut self, name: &str, decision: BudgetDecision) -> BackendId {
        let zero = Bytes::ZERO;
        self.accounts.push(Account {
            name: name.into(),
            budget: decision.budget,
            warning: decision.warning,
            weights: zero,
            pooled: zero,
            live: zero,
            peak: zero,
            staging: zero,
        });
        BackendId { pool: self.id, index: self.accounts.len() as u32 - 1 }
    }

    /// Says what the weights of a backend take: all that is registered there, mapped files that the device reads included.
    /// A backend of another pool is ignored.
    pub fn set_weights(&mut self, backend: BackendId, weights: Bytes) {
        if let Some(account) = self.account_mut(backend) {
            account.weights = weights;
        }
    }

    /// The warning of the backend's budget, the first time it is asked for: a device that does not answer is reported once.
    pub fn take_warning(&mut self, backend: BackendId) -> Option<String> {
        self.account_mut(backend)?.warning.take()
    }

    /// A buffer of `len` bytes: the idle one of its class with the smallest number, or a new one if weights, pool and its
    /// class together stay within the budget. `create` is asked for the class's bytes, and only after that check.
    ///
    /// # Errors
    /// [`TakeError`]; the books are as before, also when `create` failed.
    pub fn take<E>(
        &mut self,
        backend: BackendId,
        len: Bytes,
        create: impl FnOnce(Bytes) -> Result<M, E>,
    ) -> Result<Buf, TakeError<E>> {
        let class = SizeClass::of(len)?;
        let slot = match self.idle.get_mut(&(backend, class)).and_then(BTreeSet::pop_first) {
            Some(slot) => slot,
            None => self.create(backend, Kind::Class(class), create)?,
        };
        self.account_mut(backend).ok_or(TakeError::ForeignBackend)?.live(class.bytes());
        Ok(Buf { pool: self.id, slot, length: Length(len) })
    }

    /// Staging between two backends: charged like any buffer, but exactly as long as asked for, and not kept for reuse.
    ///
    /// # Errors
    /// As [`take`](Self::take).
    pub fn stage<E>(
        &mut self,
        backend: BackendId,
        len: Bytes,
        create: impl FnOnce(Bytes) -> Result<M, E>,
    ) -> Result<Buf, TakeError<E>> {
        let slot = self.create(backend, Kind::Exact(len), create)?;
        let account = self.account_mut(backend).ok_or(TakeError::ForeignBackend)?;
        account.live(len);
        account.staging = account.staging.plus(len).unwrap_or(Bytes::MAX);
        Ok(Buf { pool: self.id, slot, length: Length(len) })
    }

    /// Takes a buffer back. A class buffer stays reserved; staging is uncharged and its memory returned, to be freed.
    ///
    /// # Errors
    /// The buffer, when it is of another pool.
    pub fn release(&mut self, buf: Buf) -> Result<Option<M>, Buf> {
        let known = self.slots.get(&buf.slot).filter(|_| buf.pool == self.id).map(|slot| (slot.backend, slot.kind));
        let Some((backend, kind)) = known else { return Err(buf) };
        let Some(account) = self.account_mut(backend) else { return Err(buf) };
        match kind {
            Kind::Class(class) => {
                account.live = account.live.beyond(class.bytes());
                self.idle.entry((backend, class)).or_default().insert(buf.slot);
                Ok(None)
            }
            Kind::Exact(len) => {
                account.live = account.live.beyond(len);
                account.pooled = account.pooled.beyond(len);
                account.staging = account.staging.beyond(len);
                Ok(self.slots.remove(&buf.slot).map(|slot| slot.memory))
            }
        }
    }

    /// The memory behind a buffer; `None` for one of another pool.
    pub fn memory(&self, buf: &Buf) -> Option<&M> {
        self.slots.get(&buf.slot).filter(|_| buf.pool == self.id).map(|slot| &slot.memory)
    }

    /// Gives idle memory of `backend` back, except what `keep` wants kept (an address that a captured graph has baked in).
    /// The charge ends here: free what is returned.
    pub fn trim(&mut self, backend: BackendId, mut keep: impl FnMut(&M) -> bool) -> Vec<M> {
        let mut freed = Vec::new();
        for ((owner, class), idle) in &mut self.idle {
            if *owner != backend {
                continue;
            }
            let slots = &mut self.slots;
            idle.retain(|slot| {
                if slots.get(slot).is_some_and(|slot| keep(&slot.memory)) {
                    return true;
                }
                if let (Some(slot), Some(account)) = (slots.remove(slot), self.accounts.get_mut(owner.index as usize)) {
                    account.pooled = account.pooled.beyond(class.bytes());
                    freed.push(slot.memory);
                }
                false
            });
        }
        self.idle.retain(|_, idle| !idle.is_empty());
        freed
    }

    /// The backend's books.
    pub fn report(&self, backend: BackendId) -> Option<AccountReport> {
        let account = self.accounts.get(backend.index as usize).filter(|_| backend.pool == self.id)?;
        let idle = || self.idle.iter().filter(|((owner, _), idle)| *owner == backend && !idle.is_empty());
        Some(AccountReport {
            backend: account.name.clone(),
            pool: account.pooled,
            live: account.live,
            peak: account.peak,
            weights: account.weights,
            budget: account.budget,
            headroom: account.budget.headroom(account.weights.plus(account.pooled).unwrap_or(Bytes::MAX)),
            idle_slots: idle().map(|(_, idle)| idle.len() as u64).sum(),
            reserved_classes: idle().count() as u64,
            staging: account.staging,
        })
    }

    /// How often a backend was asked for memory and gave it. What a captured graph's validity hangs on: while this number
    /// stands still, no buffer has been created.
    pub fn created(&self) -> u64 {
        self.created
    }

    /// The smallest idle number of the class that `len` is in.
    pub(super) fn smallest_idle(&self, backend: BackendId, class: SizeClass) -> Option<SlotId> {
        self.idle.get(&(backend, class))?.first().copied()
    }

    fn create<E>(
        &mut self,
        backend: BackendId,
        kind: Kind,
        create: impl FnOnce(Bytes) -> Result<M, E>,
    ) -> Result<SlotId, TakeError<E>> {
        let bytes = match kind {
            Kind::Class(class) => class.bytes(),
            Kind::Exact(len) => len,
        };
        let account = self.account_mut(backend).ok_or(TakeError::ForeignBackend)?;
        let pooled = account.room_for(bytes)?;
        let memory = create(bytes).map_err(|error| TakeError::Backend { bytes, error })?;
        account.pooled = pooled;
        self.created += 1;
        let slot = SlotId(self.next);
        self.next += 1;
        self.slots.insert(slot, Slot { backend, kind, memory });
        Ok(slot)
    }

    fn account_mut(&mut self, backend: BackendId) -> Option<&mut Account> {
        self.accounts.get_mut(backend.index as usize).filter(|_| backend.pool == self.id)
    }
}

impl<M> Default for ClassPool<M> {
    fn default() -> Self {
        Self::new()
    }
}

impl<M> fmt::Debug for ClassPool<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reports: Vec<_> = (0..self.accounts.len() as u32)
            .filter_map(|index| self.report(BackendId { pool: self.id, index }))
            .collect();
        f.debug_struct("ClassPool").field("backends", &reports).field("created", &self.created).finish()
    }
}

impl Account {
    /// What the pool holds with `bytes` more, if that is allowed.
    fn room_for(&self, bytes: Bytes) -> Result<Bytes, OverBudget> {
        let pooled = self.pooled.plus(bytes);
        let total = pooled.and_then(|pooled| pooled.plus(self.weights));
        let allowed = match self.budget {
            Budget::Limited(budget) => total.is_ok_and(|total| total <= budget),
            Budget::Unknown | Budget::Unbounded => total.is_ok(),
        };
        pooled.ok().filter(|_| allowed).ok_or_else(|| OverBudget {
            backend: self.name.clone(),
            weights: self.weights,
            pooled: self.pooled,
            request: bytes,
            budget: match self.budget {
                Budget::Limited(budget) => budget,
                Budget::Unknown | Budget::Unbounded => Bytes::MAX,
            },
        })
    }

    fn live(&mut self, bytes: Bytes) {
        self.live = self.live.plus(bytes).unwrap_or(Bytes::MAX);
        self.peak = self.peak.max(self.live);
    }
}
