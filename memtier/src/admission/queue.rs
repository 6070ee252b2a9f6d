//! Who waits, who is sent away, and when they may go on.

use std::{collections::VecDeque, fmt};

use super::{
    decide::{Admission, Request, Verdict},
    refusal::{Reason, Refusal},
};
use crate::{
    pressure::{Degradation, Level, ServeLimits, Snapshot},
    units::Tokens,
};

/// Whether new work may start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Gate {
    /// It may.
    Open,
    /// It waits.
    Holding,
    /// It is sent away, and who waits as well.
    Shedding,
}

/// Backpressure: engaged by a refusal, and released by the level alone.
///
/// A level by itself holds nobody: a machine can be TIGHT at rest and serve well. It takes a request that was refused. From
/// then on new work waits while the level is at least `hold_at`, and is sent away at `shed_at`; when the level falls below,
/// the gate opens, with nobody having to say so.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Backpressure {
    hold_at: Level,
    shed_at: Level,
    engaged: bool,
}

impl Default for Backpressure {
    /// Holding from TIGHT, shedding at CRITICAL.
    fn default() -> Self {
        Backpressure { hold_at: Level::Tight, shed_at: Level::Critical, engaged: false }
    }
}

/// Levels that are no backpressure.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BadBackpressure {
    /// Holding at OK would never end.
    #[error("hold_at is ok: what waits would wait for ever")]
    HoldsForEver,
    /// Sent away before waiting.
    #[error("shed_at is below hold_at")]
    ShedsFirst,
}

impl Backpressure {
    /// Holding from `hold_at`, shedding from `shed_at`.
    ///
    /// # Errors
    /// [`BadBackpressure`].
    pub fn new(hold_at: Level, shed_at: Level) -> Result<Self, BadBackpressure> {
        match (hold_at, shed_at) {
            (Level::Ok, _) => Err(BadBackpressure::HoldsForEver),
            (hold_at, shed_at) if shed_at < hold_at => Err(BadBackpressure::ShedsFirst),
            _ => Ok(Backpressure { hold_at, shed_at, engaged: false }),
        }
    }

    /// A request was refused at `level`.
    pub fn refused(&mut self, level: Level) {
        self.engaged |= level >= self.hold_at;
    }

    /// Where the gate is at `level`.
    pub fn gate(&mut self, level: Level) -> Gate {
        self.engaged &= level >= self.hold_at;
        match self.engaged {
            false => Gate::Open,
            true if level >= self.shed_at => Gate::Shedding,
            true => Gate::Holding,
        }
    }
}

/// What to do next.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Next<T> {
    /// Start this one, with so much of its prompt.
    Run(T, Tokens),
    /// Tell this one no, and ask again at once.
    Refused(T, Refusal),
    /// Memory is short: wait for the level to change.
    Held,
    /// Every slot is taken: wait for a request to end.
    SlotsTaken,
    /// Nobody waits.
    Empty,
}

/// Requests in order, with [`Backpressure`]. `T` is whatever the engine starts a request from.
///
/// A request that could never run is refused when it comes and does not wait: at the head of a queue it would block every
/// request behind it, for ever.
pub struct AdmissionQueue<T> {
    waiting: VecDeque<(Request, T)>,
    most: usize,
    backpressure: Backpressure,
}

impl<T> AdmissionQueue<T> {
    /// A queue in which at most `most` wait.
    pub fn new(most: usize, backpressure: Backpressure) -> Self {
        AdmissionQueue { waiting: VecDeque::new(), most, backpressure }
    }

    /// Lets a request wait.
    ///
    /// # Errors
    /// The item and why: it could never run, or too many wait.
    pub fn push(
        &mut self,
        request: Request,
        item: T,
        admission: &Admission,
        configured: &ServeLimits,
        snapshot: &Snapshot,
    ) -> Result<(), (T, Refusal)> {
        if let Err(refusal) = admission.could_ever_run(&request, configured, snapshot) {
            return Err((item, refusal));
        }
        if self.waiting.len() >= self.most {
            let reason = Reason::QueueFull(self.waiting.len());
            return Err((item, Refusal { reason, retry_after: Some(admission.config().retry_memory) }));
        }
        self.waiting.push_back((request, item));
        Ok(())
    }

    /// Decides over the request that has waited longest. Call it until it says that there is nothing to do now.
    pub fn next(&mut self, admission: &Admission, limits: &Degradation, running: u32, snapshot: &Snapshot) -> Next<T> {
        let gate = self.backpressure.gate(snapshot.level);
        if self.waiting.is_empty() {
            return Next::Empty;
        }
        match gate {
            Gate::Holding => return Next::Held,
            Gate::Shedding => {
                let retry_after = Some(admission.config().retry_stall);
                return self
                    .pop(|item| Next::Refused(item, Refusal { reason: Reason::Shed(snapshot.level), retry_after }));
            }
            Gate::Open if running >= limits.limits.slots => return Next::SlotsTaken,
            Gate::Open => {}
        }
        let Some((request, _)) = self.waiting.front() else { return Next::Empty };
        let prompt = request.prompt;
        match admission.decide(request, limits, snapshot) {
            Verdict::Refuse(refusal) => {
                self.backpressure.refused(snapshot.level);
                self.pop(|item| Next::Refused(item, refusal))
            }
            verdict => self.pop(|item| Next::Run(item, verdict.window(prompt))),
        }
    }

    /// Who has waited longest.
    pub fn front(&self) -> Option<(&Request, &T)> {
        self.waiting.front().map(|(request, item)| (request, item))
    }

    /// How many wait.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Takes out who matches: a request that was cancelled while it waited.
    pub fn cancel(&mut self, mut is: impl FnMut(&T) -> bool) -> Option<T> {
        let index = self.waiting.iter().position(|(_, item)| is(item))?;
        self.waiting.remove(index).map(|(_, item)| item)
    }

    fn pop(&mut self, next: impl FnOnce(T) -> Next<T>) -> Next<T> {
        self.waiting.pop_front().map_or(Next::Empty, |(_, item)| next(item))
    }
}

impl<T> fmt::Debug for AdmissionQueue<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} waiting, {:?}", self.waiting.len(), self.most, self.backpressure)
    }
}
