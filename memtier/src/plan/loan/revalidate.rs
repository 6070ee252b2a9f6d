//! After the cache has been opened and written: is what the plan wanted still there?
//!
//! Some drivers hand out memory that they do not have and page it behind one's back, so that an allocation that succeeded
//! proves nothing. The cache is touched, the driver is asked again, and the plan is held against the answer.

use super::policy::{largest, largest_owned, lend, loan_for};
use super::{Accepted, Chunk, Costs, LoanPlan, Mode, Policy, Room};
use crate::units::{Bytes, Tokens};

/// A cache that has been opened and written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opened {
    /// Its slots.
    pub slots: u64,
    /// What the driver reports free beside it.
    pub free: Bytes,
    /// How often it has been shrunk already.
    pub shrinks: u32,
}

/// What to do with an opened cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterTouch {
    /// It stays, and this is what run time is held to.
    Accept(Accepted),
    /// Open it again with so many slots, touch it, and ask again.
    Shrink {
        /// Slots of the smaller cache.
        slots: u64,
    },
    /// It may not be shrunk any further: by so much it does not do.
    Refuse {
        /// Bytes missing.
        short: Bytes,
    },
}

/// Holds the plan against what the driver reports with a touched cache open.
///
/// Every opened cache is validated, the last one too: the limit is on shrinking, not on looking.
pub fn after_touch(
    policy: &Policy,
    costs: &Costs<'_>,
    room: &Room,
    chunk: Chunk,
    plan: &LoanPlan,
    opened: Opened,
) -> AfterTouch {
    let Opened { slots, free, shrinks } = opened;
    let accepted = prompt_path(policy, costs, room, chunk, plan, opened);
    let need = match accepted {
        Some(accepted) => u128::from(room.after.count()) + u128::from(accepted.mode.beside().count()),
        // Nothing can be lent and nothing that fits can be owned: the smallest is what is missing.
        None => u128::from(room.after.count()) + u128::from(smallest(policy, costs).count()),
    };
    let short = need.saturating_sub(u128::from(free.count()));
    match (short, accepted) {
        (0, Some(accepted)) => return AfterTouch::Accept(accepted),
        _ if shrinks >= policy.shrinks => {}
        _ => {
            // Give up as many slots at the end as cover what is missing.
            let given = |fewer: u64| u128::from((costs.tail)(slots, fewer).count()) >= short;
            let fewer = slots - largest(slots, |kept| given(slots - kept));
            let smaller = slots.saturating_sub(fewer.max(1));
            if given(fewer) && smaller >= room.least_slots && room.slots.is_none() {
                return AfterTouch::Shrink { slots: smaller };
            }
        }
    }
    AfterTouch::Refuse { short: Bytes::new(u64::try_from(short).unwrap_or(u64::MAX)) }
}

fn smallest(policy: &Policy, costs: &Costs<'_>) -> Bytes {
    (costs.prompt)(policy.grid, costs.rings.iter().copied().min().unwrap_or(0))
}

/// The prompt path against the cache that is really there.
///
/// A fixed chunk lends exactly what was accepted or is owned at its size: run time would not halve it either. An automatic
/// one is chosen again, never above what was accepted.
fn prompt_path(
    policy: &Policy,
    costs: &Costs<'_>,
    room: &Room,
    chunk: Chunk,
    plan: &LoanPlan,
    Opened { slots, free, .. }: Opened,
) -> Option<Accepted> {
    let at_most = plan.accepted.chunk;
    let left = free.beyond(room.after);
    match (plan.accepted.mode, chunk) {
        (Mode::Borrowed { .. }, Chunk::Fixed(_)) => loan_for(policy, costs, slots, at_most)
            .filter(|_| room.borrow && slots >= policy.lend_floor)
            .or_else(|| {
                let bytes = (costs.prompt)(at_most, costs.rings.first().copied().unwrap_or(0));
                let ring = costs.rings.first().copied().unwrap_or(0);
                Some(Accepted { chunk: at_most, mode: Mode::Owned { bytes, ring } })
            }),
        (Mode::Borrowed { .. }, Chunk::Auto { .. }) => {
            lend(policy, costs, room, slots, Chunk::Auto { ceiling: at_most }).or_else(|| {
                let bound = at_most.min(policy.owned_ceiling);
                largest_owned(policy, costs, bound, left)
            })
        }
        // Its buffers are not allocated yet, so they are still to come out of what is free.
        (Mode::Owned { .. }, _) => Some(plan.accepted).filter(|_| at_most > Tokens::ZERO),
    }
}
