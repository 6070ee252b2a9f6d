//! Pins: what an owner wants to stay cached, within a budget of its own.
//!
//! A pin is policy, not ownership: it keeps a path from eviction and gives nobody a block. Budgets are granted out of a part of the cache, so
//! pins alone can never fill it.

use std::sync::Arc;

use super::{
    lease::At,
    tree::{State, Tree},
};
use crate::units::Blocks;

/// Whoever pins: a tenant, a system prompt, a router. Any number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PinOwner(pub u64);

pub(super) struct Account {
    owner: PinOwner,
    budget: u64,
    used: u64,
}

/// Keeps a cached prefix from eviction. Dropping it ends that.
#[must_use = "dropping a pin lets the prefix be evicted"]
pub struct Pin {
    tree: Arc<Tree>,
    at: At,
    owner: PinOwner,
}

/// Nothing was pinned, or no budget granted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PinError {
    /// The owner has no room for it.
    #[error(
        "{owner:?} pins {used} of its {budget} and {needed} more are asked: drop a pin, or grant it more with `set_pin_budget`"
    )]
    OverBudget {
        /// Who.
        owner: PinOwner,
        /// Blocks of the path.
        needed: Blocks,
        /// Blocks it pins.
        used: Blocks,
        /// What it was granted.
        budget: Blocks,
    },
    /// More was granted than may be pinned.
    #[error(
        "{granted} are granted and {asked} more are asked, of {most} that may be pinned: raise `PrefixCacheSpec::pinned`"
    )]
    Granted {
        /// To others.
        granted: Blocks,
        /// For this one.
        asked: Blocks,
        /// Of the cache.
        most: Blocks,
    },
}

impl Pin {
    pub(super) fn new(tree: &Arc<Tree>, at: At, owner: PinOwner) -> Result<Self, PinError> {
        let mut state = tree.lock();
        let needed = u64::from(at.depth);
        // A path is charged whole to everyone who pins it: each can rely on all of it, whatever the others drop.
        let account = state.owners.iter_mut().find(|account| account.owner == owner);
        let (used, budget) = account.as_ref().map_or((0, 0), |account| (account.used, account.budget));
        match account {
            Some(account) if used + needed <= budget => account.used += needed,
            _ => {
                let [needed, used, budget] = [needed, used, budget].map(Blocks::new);
                return Err(PinError::OverBudget { owner, needed, used, budget });
            }
        }
        state.begin(at.run);
        drop(state);
        Ok(Pin { tree: tree.clone(), at, owner })
    }

    /// Blocks it keeps.
    pub fn blocks(&self) -> Blocks {
        Blocks::new(u64::from(self.at.depth))
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        let mut state = self.tree.lock();
        if let Some(account) = state.owners.iter_mut().find(|account| account.owner == self.owner) {
            account.used -= u64::from(self.at.depth);
        }
        state.end(self.at.run);
    }
}

impl std::fmt::Debug for Pin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "pin of {} by {:?}", self.blocks(), self.owner)
    }
}

/// Grants `owner` a budget, within `most` for all. What it pins already stays pinned.
pub(super) fn grant(state: &mut State, owner: PinOwner, budget: Blocks, most: u64) -> Result<(), PinError> {
    let others: u64 = state.owners.iter().filter(|account| account.owner != owner).map(|account| account.budget).sum();
    if others.saturating_add(budget.count()) > most {
        return Err(PinError::Granted { granted: Blocks::new(others), asked: budget, most: Blocks::new(most) });
    }
    match state.owners.iter_mut().find(|account| account.owner == owner) {
        Some(account) => account.budget = budget.count(),
        None => state.owners.push(Account { owner, budget: budget.count(), used: 0 }),
    }
    Ok(())
}
