//! The refusal: the arithmetic and what to change.

use super::accepted::PlanLine;
use super::input::{Config, Limits, Locks, Name};
use super::levers::{Combination, Lever, Levers, Pair};
use crate::units::Bytes;

/// Why a configuration was refused.
#[derive(Clone, PartialEq, Eq, Debug, Hash)]
pub enum Refusal {
    /// What must stay resident is more than the device budget.
    Device,
    /// The load needs more than the device budget, and more than what stays resident afterwards.
    Load,
    /// The host lines are more than the host budget.
    Host,
    /// The size of this line, or the sum up to it, is past `u64::MAX` bytes: a factor of it is absurd.
    Overflow(Name),
}

impl Refusal {
    /// The name in the machine form.
    pub const fn name(&self) -> &'static str {
        match self {
            Refusal::Device => "device",
            Refusal::Load => "load",
            Refusal::Host => "host",
            Refusal::Overflow(_) => "overflow",
        }
    }
}

/// A configuration that does not fit: all of the arithmetic, and what to change.
///
/// Its `Display` is one sentence; [`report`](PlanFailure::report) is the text for the operator.
#[derive(PartialEq, Eq, Debug, thiserror::Error)]
#[error("{}", self.sentence())]
pub struct PlanFailure(pub(super) Box<Details>);

#[derive(PartialEq, Eq, Debug)]
pub(super) struct Details {
    pub(super) refusal: Refusal,
    pub(super) limits: Limits,
    pub(super) config: Config,
    pub(super) locks: Locks,
    pub(super) budget: Bytes,
    pub(super) requested: Bytes,
    pub(super) lines: Vec<PlanLine>,
    pub(super) levers: Levers,
}

impl PlanFailure {
    /// Why.
    pub fn refusal(&self) -> &Refusal {
        &self.0.refusal
    }

    /// The budget that was too small: of the host for [`Refusal::Host`], of the device otherwise.
    pub fn budget(&self) -> Bytes {
        self.0.budget
    }

    /// The least that would have been enough; `u64::MAX` bytes when the sum left the range.
    pub fn requested(&self) -> Bytes {
        self.0.requested
    }

    /// By how much it does not fit.
    pub fn shortfall(&self) -> Bytes {
        self.0.requested.beyond(self.0.budget)
    }

    /// Every line, in the order of the demands, then the reserve lines. Empty when the sum left the range.
    pub fn lines(&self) -> &[PlanLine] {
        &self.0.lines
    }

    /// Pools that could have had some blocks, but fewer than their floor: they "fit", and could not serve.
    pub fn below_floor(&self) -> impl Iterator<Item = &PlanLine> {
        self.0.lines.iter().filter(|line| line.blocks.is_some_and(|b| b.granted < b.floor && !b.granted.is_zero()))
    }

    /// What each single change would do: by what it frees, the largest first, budgets last. Locked ones among them.
    pub fn levers(&self) -> &[Lever] {
        &self.0.levers.single
    }

    /// Two changes that are enough, when no single free lever is.
    pub fn pair(&self) -> Option<&Pair> {
        self.0.levers.pair.as_ref()
    }

    /// Three or more changes that are enough, when no two free levers are.
    pub fn combination(&self) -> Option<&Combination> {
        self.0.levers.combination.as_ref()
    }

    /// The request with every free lever at its end, when not even that is enough.
    pub fn bottom(&self) -> Option<Bytes> {
        self.0.levers.bottom
    }

    /// The limits that were too narrow.
    pub fn limits(&self) -> &Limits {
        &self.0.limits
    }

    /// The configuration that was refused.
    pub fn config(&self) -> &Config {
        &self.0.config
    }

    /// What the user insisted on.
    pub fn locks(&self) -> &Locks {
        &self.0.locks
    }
}
