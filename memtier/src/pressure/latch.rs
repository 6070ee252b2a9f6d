//! One set of limits for everything between two step boundaries.

use super::ladder::Degradation;

/// Holds the limits that steps in flight were started under, and takes over new ones when the last of them has ended.
///
/// A server once read its slot ceiling when it was made and again when it bound a slot; the level had changed in between,
/// and requests failed that the first reading had promised to serve. And a ceiling that falls under a running step must not
/// make anybody resize what the step is reading. Here there is one reading, and it is latched: [`propose`](Self::propose)
/// as often as the level changes, [`begin`](Self::begin) gives each step what holds for all of it.
///
/// ```
/// use memtier::Tokens;
/// use memtier::plan::KvDtype;
/// use memtier::pressure::{Ladder, LimitLatch, Level, ServeLimits};
///
/// let config = ServeLimits { slots: 8, prefill_window: Tokens::new(4096), kv: KvDtype::F16, evict_cached: false };
/// let at = |level| Ladder::default().limits(level, &config);
/// let mut latch = LimitLatch::new(at(Level::Ok));
///
/// let step = latch.begin();
/// latch.propose(at(Level::Critical)); // the level rises while the step is in flight
/// assert_eq!(step.limits().limits.slots, 8);
/// assert_eq!(latch.admissible(6), 2); // so do the slots that may still be bound
/// latch.end(step);
/// assert_eq!(latch.current().limits.slots, 1);
/// assert_eq!(latch.admissible(8), 0); // the eight that run go on until they end; none joins them
/// ```
#[derive(Debug)]
pub struct LimitLatch {
    id: u64,
    current: Degradation,
    pending: Option<Degradation>,
    in_flight: u64,
}

/// A step in flight, and the limits it was started under. Affine: it goes back through [`LimitLatch::end`].
#[derive(Debug)]
#[must_use = "a step that never ends keeps the limits from changing: give it back with `end`"]
pub struct StepLimits {
    latch: u64,
    limits: Degradation,
}

impl StepLimits {
    /// What holds for this step.
    pub fn limits(&self) -> &Degradation {
        &self.limits
    }
}

impl LimitLatch {
    /// Starts with `limits`.
    pub fn new(limits: Degradation) -> Self {
        LimitLatch { id: crate::next_id(), current: limits, pending: None, in_flight: 0 }
    }

    /// New limits: at once when no step is in flight, else when the last one has ended. Returns whether they hold already.
    pub fn propose(&mut self, limits: Degradation) -> bool {
        if self.in_flight == 0 {
            self.current = limits;
            return true;
        }
        self.pending = Some(limits).filter(|limits| *limits != self.current);
        self.pending.is_none()
    }

    /// A step starts.
    pub fn begin(&mut self) -> StepLimits {
        self.in_flight += 1;
        StepLimits { latch: self.id, limits: self.current }
    }

    /// A step has ended, its fence passed. Returns what holds from now on, if it changed. A step of another latch changes
    /// nothing here.
    pub fn end(&mut self, step: StepLimits) -> Option<&Degradation> {
        if step.latch != self.id {
            return None;
        }
        self.in_flight = self.in_flight.saturating_sub(1);
        let pending = self.pending.take_if(|_| self.in_flight == 0)?;
        self.current = pending;
        Some(&self.current)
    }

    /// What holds.
    pub fn current(&self) -> &Degradation {
        &self.current
    }

    /// How many more requests may start beside `running`. A ceiling below what runs stops nobody: it lets none follow.
    pub fn admissible(&self, running: u32) -> u32 {
        self.current.limits.slots.saturating_sub(running)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        plan::KvDtype,
        pressure::{Ladder, Level, ServeLimits},
        units::Tokens,
    };

    fn at(level: Level) -> Degradation {
        let config = ServeLimits { slots: 8, prefill_window: Tokens::new(4096), kv: KvDtype::F16, evict_cached: false };
        Ladder::default().limits(level, &config)
    }

    #[test]
    fn nothing_changes_under_a_step_in_flight() {
        let mut latch = LimitLatch::new(at(Level::Ok));
        let (one, two) = (latch.begin(), latch.begin());
        assert!(!latch.propose(at(Level::Critical)));
        assert_eq!(latch.end(one), None, "the other one is still in flight");
        let three = latch.begin();
        assert_eq!(three.limits(), &at(Level::Ok), "one limit for all that overlap");
        assert_eq!(latch.end(two), None);
        assert_eq!(latch.end(three), Some(&at(Level::Critical)));
        assert!(latch.propose(at(Level::Ok)), "at once when nothing is in flight");
        assert_eq!(latch.current(), &at(Level::Ok));
    }

    #[test]
    fn only_the_latest_proposal_counts() {
        let mut latch = LimitLatch::new(at(Level::Ok));
        let step = latch.begin();
        latch.propose(at(Level::Critical));
        assert!(latch.propose(at(Level::Ok)), "the level went back: nothing is pending");
        assert_eq!(latch.end(step), None);
        assert_eq!(latch.admissible(3), 5);
    }

    #[test]
    fn a_foreign_step_ends_nothing() {
        let (mut one, mut two) = (LimitLatch::new(at(Level::Ok)), LimitLatch::new(at(Level::Ok)));
        let (step, foreign) = (one.begin(), two.begin());
        one.propose(at(Level::Tight));
        assert_eq!(one.end(foreign), None);
        assert_eq!(one.end(step), Some(&at(Level::Tight)));
    }
}
