//! The refusal: the arithmetic and what to change.

use std::fmt;

use super::accepted::PlanLine;
use super::input::Name;
use crate::units::Bytes;

/// Why a configuration was refused.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// What must stay resident is more than the device budget.
    Device,
    /// What stays resident fits, but the load needs more than the device budget beside it.
    Load,
    /// The host lines are more than the host budget.
    Host,
    /// The size of this line, or the sum up to it, is past `u64::MAX` bytes.
    Overflow(Name),
}

/// A configuration that does not fit.
#[derive(PartialEq, Eq, Debug)]
pub struct PlanFailure(pub(super) Box<Details>);

#[derive(PartialEq, Eq, Debug)]
pub(super) struct Details {
    pub(super) refusal: Refusal,
    pub(super) budget: Bytes,
    pub(super) requested: Bytes,
    pub(super) lines: Vec<PlanLine>,
}

impl PlanFailure {
    /// Why.
    pub fn refusal(&self) -> &Refusal {
        &self.0.refusal
    }

    /// The budget that was too small.
    pub fn budget(&self) -> Bytes {
        self.0.budget
    }

    /// The least that would have been enough.
    pub fn requested(&self) -> Bytes {
        self.0.requested
    }

    /// By how much it does not fit.
    pub fn shortfall(&self) -> Bytes {
        self.0.requested.beyond(self.0.budget)
    }

    /// Every line.
    pub fn lines(&self) -> &[PlanLine] {
        &self.0.lines
    }
}

impl fmt::Display for PlanFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot fit {} in the {} budget", self.requested(), self.budget())
    }
}

impl std::error::Error for PlanFailure {}
