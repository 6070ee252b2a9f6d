//! An expert cache in real memory: its slots are one buffer, and the prompt path may borrow their end.
//!
//! [`ExpertCache`] joins the bookkeeping of [`plan::loan`](crate::plan::loan) to the spans of a step. The buffer is a field
//! of a bundle ([`EnginePersistent`](crate::EnginePersistent): it is written while serving), `slots` times an expert long. An expert is
//! read through [`find`](ExpertCache::find), which knows no expert whose bytes are being changed or were lent, so stale bytes
//! are never taken for weights; a span of an expert borrows the buffer, so it ends before the buffer is lent or written.
//!
//! ```text
//! find    -> the expert's slot, or nothing: load it
//! load    -> forgets what was in the slot, writes, and only then is the expert there
//! lend    -> holds the use against the accepted plan; the last slots are forgotten and become the prompt path's
//! refill  -> writes the experts back, each there as soon as it is written
//! ```

use std::ops::Range;

use crate::{
    element::Plain,
    place::{Fits, OutsideCapture, Place},
    plan::loan::{Accepted, Departure, Lent, Mode, Refill, Residency, Use},
    record::{LaunchError, Recorder},
    span::{StableSpan, StableSpanMut},
};

/// What happens when a prompt wants what the accepted plan does not cover.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contract {
    /// It is refused.
    Strict,
    /// It is served where the slots are there, and counted: see [`ExpertCache::departures`].
    Advisory,
}

/// The end of the cache was not lent. Nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LendError {
    /// The accepted plan does not cover it, and the contract is strict.
    #[error("{0}; the plan decides: plan again, or make the contract advisory")]
    Departure(#[from] Departure),
    /// The prompt path owns its buffers; there is nothing to lend for it.
    #[error("a prompt path of its own borrows no slots: use its buffers")]
    Owned,
    /// There are not so many slots, or some are lent already.
    #[error(
        "{asked} slots cannot be lent of {slots}, of which {lent} are lent already: refill or reclaim that loan first"
    )]
    Slots {
        /// Asked for.
        asked: u64,
        /// In the cache.
        slots: u64,
        /// Lent now.
        lent: u64,
    },
}

/// An expert was not loaded. It is not resident, and neither is what was in the slot.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The slot is lent, or not there.
    #[error("slot {slot} takes no expert: the cache has {slots}, of which the last {lent} are lent")]
    Slot {
        /// Asked for.
        slot: u64,
        /// In the cache.
        slots: u64,
        /// Lent now.
        lent: u64,
    },
    /// The bytes are not an expert's, the buffer not this cache's, or the device failed.
    #[error(transparent)]
    Launch(#[from] LaunchError),
}

/// Which experts are where in a buffer of slots, and what the prompt path may take of it.
#[derive(Debug)]
pub struct ExpertCache {
    residency: Residency,
    /// Elements of a slot.
    expert: usize,
    accepted: Accepted,
    contract: Contract,
    departures: u64,
}

impl ExpertCache {
    /// A cache of empty slots of `expert` elements each, held to `accepted`.
    pub fn new(slots: u32, expert: usize, accepted: Accepted, contract: Contract) -> Self {
        ExpertCache { residency: Residency::new(slots), expert, accepted, contract, departures: 0 }
    }

    /// Which expert is in which slot.
    pub fn residency(&self) -> &Residency {
        &self.residency
    }

    /// What run time is held to.
    pub fn accepted(&self) -> &Accepted {
        &self.accepted
    }

    /// Uses that the accepted plan did not cover and an advisory contract let pass.
    pub fn departures(&self) -> u64 {
        self.departures
    }

    /// An expert's weights in the buffer, or `None` when it is not resident: load it.
    pub fn find<'x, T: Plain, P: Place>(
        &self,
        slots: StableSpan<'x, T, P>,
        expert: u64,
    ) -> Option<StableSpan<'x, T, P>> {
        let slot = self.residency.slot_of(expert)?;
        slots.range(self.elements(slot, slot + 1)?)
    }

    /// Writes an expert into a slot. What was there is forgotten first, and the expert is found only once it is written.
    ///
    /// # Errors
    /// [`LoadError`]; the slot is empty then, unless it is lent.
    pub fn load<T: Plain, P: OutsideCapture>(
        &mut self,
        on: &Recorder<P>,
        slots: &mut StableSpanMut<'_, T, impl Fits<P>>,
        slot: u64,
        (expert, weights): (u64, &[T::Repr]),
    ) -> Result<(), LoadError> {
        let (all, lent) = (self.residency.slots(), self.residency.lent());
        if slot >= all - lent {
            return Err(LoadError::Slot { slot, slots: all, lent });
        }
        self.residency.vacate(slot);
        write(on, slots, self.expert, slot, weights)?;
        self.residency.place(slot, expert);
        Ok(())
    }

    /// Forgets an expert: its weights have changed where they come from.
    pub fn forget(&mut self, expert: u64) {
        if let Some(slot) = self.residency.slot_of(expert) {
            self.residency.vacate(slot);
        }
    }

    /// Lends the last slots to the prompt path, after holding the use against the accepted plan.
    ///
    /// # Errors
    /// [`LendError`].
    pub fn lend(&mut self, used: &Use) -> Result<Lent, LendError> {
        if let Err(departure) = self.accepted.check(used) {
            match self.contract {
                Contract::Strict => return Err(departure.into()),
                Contract::Advisory => self.departures += 1,
            }
        }
        let Mode::Borrowed { slots: asked, .. } = used.mode else { return Err(LendError::Owned) };
        let (slots, lent) = (self.residency.slots(), self.residency.lent());
        self.residency.lend(asked).ok_or(LendError::Slots { asked, slots, lent })
    }

    /// The prompt path's buffer for the time of a loan: the lent slots. `None` for a loan of another cache, or one that was
    /// reclaimed.
    pub fn lent<'x, T: Plain, P: Place>(
        &self,
        loan: &Lent,
        slots: &'x mut StableSpanMut<'_, T, P>,
    ) -> Option<StableSpanMut<'x, T, P>> {
        let range = self.elements(loan.first_slot(), self.residency.slots())?;
        if self.residency.is_lent_as(loan) { slots.range(range) } else { None }
    }

    /// Ends a loan: every expert that was there is written back. `weights` gives an expert's.
    ///
    /// # Errors
    /// The first failure, with what is still to be refilled: those slots stay empty until it is tried again.
    pub fn refill<T: Plain, P: OutsideCapture, E: From<LaunchError>>(
        &mut self,
        on: &Recorder<P>,
        slots: &mut StableSpanMut<'_, T, impl Fits<P>>,
        loan: Lent,
        mut weights: impl FnMut(u64, &mut dyn FnMut(&[T::Repr]) -> Result<(), LaunchError>) -> Result<(), E>,
    ) -> Result<(), (E, Lent)> {
        let expert = self.expert;
        self.residency.refill(loan, |refill: Refill| {
            weights(refill.expert, &mut |bytes| write(on, slots, expert, refill.slot, bytes))
        })
    }

    /// Takes the slots of a lost loan back, empty. Returns how many.
    pub fn reclaim(&mut self) -> u64 {
        self.residency.reclaim()
    }

    fn elements(&self, first: u64, end: u64) -> Option<Range<usize>> {
        elements(self.expert, first, end)
    }
}

/// The elements of slots `first..end`, each of `expert` elements.
fn elements(expert: usize, first: u64, end: u64) -> Option<Range<usize>> {
    let at = |slot: u64| usize::try_from(slot).ok()?.checked_mul(expert);
    Some(at(first)?..at(end)?)
}

fn write<T: Plain, P: OutsideCapture>(
    on: &Recorder<P>,
    slots: &mut StableSpanMut<'_, T, impl Fits<P>>,
    expert: usize,
    slot: u64,
    weights: &[T::Repr],
) -> Result<(), LaunchError> {
    let (expected, found) = (expert, weights.len());
    if found != expected {
        return Err(LaunchError::Shape { what: "expert", expected, found });
    }
    let limit = slots.len();
    let range = elements(expert, slot, slot + 1);
    let range = range.ok_or(LaunchError::Unsupported { what: "expert cache", why: "its size overflows" })?;
    let end = range.end;
    let mut to = slots.range(range).ok_or(LaunchError::Shape { what: "expert cache", expected: limit, found: end })?;
    on.write(&mut to, weights)
}
