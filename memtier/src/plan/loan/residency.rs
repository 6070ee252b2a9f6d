//! Which expert is in which slot, and what a loan does to that.

use std::collections::HashMap;

/// A slot and the expert in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Refill {
    /// The slot.
    pub slot: u64,
    /// The expert that was there.
    pub expert: u64,
}

/// The slots of an expert cache. An expert that is not resident is never found, so nobody reads the prompt path's bytes as
/// weights.
///
/// ```
/// use memtier::plan::loan::Residency;
///
/// let mut cache = Residency::new(4);
/// for (slot, expert) in [(0, 10), (1, 11), (2, 12), (3, 13)] {
///     cache.place(slot, expert);
/// }
/// let lent = cache.lend(2).expect("two of four");
/// assert_eq!((cache.slot_of(11), cache.slot_of(12)), (Some(1), None));
/// // The bytes come back from the host; only then are the experts resident again.
/// let mut loaded = Vec::new();
/// cache.refill(lent, |refill| {
///     loaded.push(refill.expert);
///     Ok::<(), ()>(())
/// })
/// .expect("every expert was loaded");
/// assert_eq!((loaded, cache.slot_of(12)), (vec![12, 13], Some(2)));
/// ```
#[derive(Debug)]
pub struct Residency {
    experts: Vec<Option<u64>>,
    slots: HashMap<u64, u64>,
    /// The first slot that is lent.
    lent_from: u64,
    /// The loan that is out, or was last: unlike any other, of this cache or another.
    loan: u64,
}

/// A loan: the right to overwrite the last slots, and the duty to refill them. It cannot be copied.
#[derive(Debug)]
#[must_use = "the experts of a loan are gone until it is refilled"]
pub struct Lent {
    first: u64,
    evicted: Vec<Refill>,
    loan: u64,
}

impl Lent {
    /// The first slot of the loan; it goes to the last of the cache.
    pub fn first_slot(&self) -> u64 {
        self.first
    }

    /// Experts that are gone for the time of the loan.
    pub fn evicted(&self) -> &[Refill] {
        &self.evicted
    }
}

impl Residency {
    /// A cache of empty slots.
    pub fn new(slots: u32) -> Self {
        Self { experts: vec![None; slots as usize], slots: HashMap::new(), lent_from: slots.into(), loan: 0 }
    }

    /// Slots, lent ones among them.
    pub fn slots(&self) -> u64 {
        self.experts.len() as u64
    }

    /// Slots that are lent.
    pub fn lent(&self) -> u64 {
        self.slots() - self.lent_from
    }

    /// Where an expert is, if it is resident.
    pub fn slot_of(&self, expert: u64) -> Option<u64> {
        self.slots.get(&expert).copied()
    }

    /// Puts an expert into a slot and forgets what was there. Returns false for a slot that is lent or not there: nothing
    /// has changed then.
    pub fn place(&mut self, slot: u64, expert: u64) -> bool {
        if slot >= self.lent_from {
            return false;
        }
        if let Some(before) = self.slots.remove(&expert) {
            self.experts[before as usize] = None;
        }
        if let Some(evicted) = self.experts[slot as usize].replace(expert) {
            self.slots.remove(&evicted);
        }
        self.slots.insert(expert, slot);
        true
    }

    /// Forgets the expert of a slot, before its bytes change; returns it.
    pub fn vacate(&mut self, slot: u64) -> Option<u64> {
        let expert = self.experts.get_mut(usize::try_from(slot).ok()?)?.take()?;
        self.slots.remove(&expert);
        Some(expert)
    }

    /// Takes the slots of a loan back without its experts, which are no longer resident: the loan was lost. Its [`Lent`]
    /// refills nothing any more. Returns how many slots were lent.
    pub fn reclaim(&mut self) -> u64 {
        let lent = self.lent();
        self.lent_from = self.slots();
        self.loan = 0;
        lent
    }

    /// Whether this is the loan that is out.
    pub fn is_lent_as(&self, lent: &Lent) -> bool {
        self.lent() > 0 && self.loan == lent.loan
    }

    /// Lends the last `count` slots; `None` when there are not so many, or a loan is out already.
    pub fn lend(&mut self, count: u64) -> Option<Lent> {
        let first = self.slots().checked_sub(count)?;
        if self.lent() > 0 {
            return None;
        }
        let mut evicted = Vec::new();
        for slot in first..self.slots() {
            if let Some(expert) = self.experts[slot as usize].take() {
                self.slots.remove(&expert);
                evicted.push(Refill { slot, expert });
            }
        }
        self.lent_from = first;
        self.loan = crate::next_id();
        Some(Lent { first, evicted, loan: self.loan })
    }

    /// Ends a loan: loads every expert back, each resident as soon as `load` has returned. An expert that was placed
    /// elsewhere meanwhile stays there. A loan of another cache, or one that was [reclaimed](Self::reclaim), fills nothing.
    ///
    /// # Errors
    /// The first error of `load`, with what is still to be refilled: those slots, from the one that failed to the last, stay
    /// lent and empty until it is tried again.
    pub fn refill<E>(&mut self, lent: Lent, mut load: impl FnMut(Refill) -> Result<(), E>) -> Result<(), (E, Lent)> {
        if !self.is_lent_as(&lent) {
            return Ok(());
        }
        self.lent_from = self.slots();
        for (index, &refill) in lent.evicted.iter().enumerate() {
            if self.slots.contains_key(&refill.expert) || self.experts[refill.slot as usize].is_some() {
                continue;
            }
            if let Err(error) = load(refill) {
                // What was loaded so far is no longer lent: the loan goes on from the slot that failed.
                self.lent_from = refill.slot;
                let evicted = lent.evicted[index..].to_vec();
                return Err((error, Lent { first: refill.slot, evicted, ..lent }));
            }
            self.experts[refill.slot as usize] = Some(refill.expert);
            self.slots.insert(refill.expert, refill.slot);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full(slots: u32) -> Residency {
        let mut cache = Residency::new(slots);
        (0..u64::from(slots)).for_each(|slot| assert!(cache.place(slot, 1000 + slot)));
        cache
    }

    #[test]
    fn every_lend_marks_and_every_refill_restores_the_same_experts() {
        let mut cache = full(5578);
        for _ in 0..2 {
            let lent = cache.lend(2489).expect("within the cache");
            assert_eq!((lent.first_slot(), lent.evicted().len(), cache.lent()), (5578 - 2489, 2489, 2489));
            assert!((3089..5578).all(|slot| cache.slot_of(1000 + slot).is_none()));
            let mut restored = 0;
            cache
                .refill(lent, |_| {
                    restored += 1;
                    Ok::<(), ()>(())
                })
                .expect("no load fails");
            assert_eq!((restored, cache.lent()), (2489, 0));
            assert!((0..5578).all(|slot| cache.slot_of(1000 + slot) == Some(slot)));
        }
    }

    #[test]
    fn a_lent_slot_takes_no_expert_and_a_second_loan_is_refused() {
        let mut cache = full(8);
        let lent = cache.lend(3).expect("three of eight");
        assert!(!cache.place(5, 7) && !cache.place(8, 7));
        assert!(cache.place(4, 7));
        assert!(cache.lend(1).is_none());
        drop(lent);
    }

    #[test]
    fn a_refill_that_fails_leaves_nothing_stale_and_goes_on_where_it_stopped() {
        let mut cache = full(8);
        let lent = cache.lend(4).expect("four of eight");
        let (error, rest) =
            cache.refill(lent, |refill| if refill.slot == 6 { Err("bus") } else { Ok(()) }).expect_err("slot 6");
        assert_eq!((error, rest.evicted().len()), ("bus", 2));
        assert_eq!((rest.first_slot(), cache.lent()), (6, 2), "what is back is no longer the prompt path's");
        assert_eq!((cache.slot_of(1005), cache.slot_of(1006), cache.slot_of(1007)), (Some(5), None, None));
        cache.refill(rest, |_| Ok::<(), ()>(())).expect("the bus is back");
        assert!((0..8).all(|slot| cache.slot_of(1000 + slot) == Some(slot)));
    }

    #[test]
    fn a_loan_of_another_cache_or_one_that_was_reclaimed_fills_nothing() {
        let (mut one, mut other) = (full(8), full(8));
        let (lent, theirs) = (one.lend(2).expect("two of eight"), other.lend(4).expect("four of eight"));
        one.refill(theirs, |refill| -> Result<(), ()> { panic!("{refill:?} is another cache's") }).expect("nothing");
        assert_eq!((one.lent(), other.lent()), (2, 4), "both loans are still out");
        assert_eq!((one.reclaim(), one.lent(), one.slot_of(1007)), (2, 0, None));
        one.refill(lent, |refill| -> Result<(), ()> { panic!("{refill:?} was given up") }).expect("nothing");
        assert!(one.place(7, 1007) && one.vacate(7) == Some(1007) && one.slot_of(1007).is_none());
        assert_eq!((one.vacate(7), one.vacate(99)), (None, None));
    }

    #[test]
    fn an_expert_that_moved_is_not_loaded_twice() {
        let mut cache = full(8);
        let lent = cache.lend(2).expect("two of eight");
        assert!(cache.place(0, 1007));
        let mut loaded = Vec::new();
        cache
            .refill(lent, |refill| {
                loaded.push(refill.expert);
                Ok::<(), ()>(())
            })
            .expect("no load fails");
        assert_eq!((loaded, cache.slot_of(1007)), (vec![1006], Some(0)));
    }
}
