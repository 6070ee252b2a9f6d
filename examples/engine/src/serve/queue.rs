//! Requests that wait until the memory policy lets them start.

use memtier::{
    Bytes, Tokens,
    admission::{Next, Refusal, Request},
};

use super::{Llm, Row};
use crate::{EngineError, arch::Arch, compute::Compute, policy::Decision, sequence::Sampling};

/// The name of a request that was submitted, in the order in which they were.
pub type RequestId = u64;

/// A request that has not started.
pub(super) struct Waiting {
    id: RequestId,
    prompt: Vec<u32>,
    answer: usize,
    sampling: Sampling,
}

/// What came of a request that waited.
#[derive(Debug)]
pub enum Outcome {
    /// It runs in this row.
    Started(Row),
    /// It was told no, and when to ask again.
    Refused(Refusal),
    /// It could not be taken in.
    Failed(EngineError),
}

impl<S: Compute> Llm<S> {
    /// Lets a request wait for its start. With `least`, a prompt of its last `least` tokens is better than a refusal when
    /// memory is short; without, it is served whole or not at all.
    ///
    /// # Errors
    /// As [`admit`](Self::admit) for what can never run; [`EngineError::Refused`] when it costs more than the machine has, or
    /// when too many wait. It does not wait then.
    pub fn submit(
        &mut self,
        prompt: Vec<u32>,
        answer: usize,
        sampling: Sampling,
        least: Option<usize>,
    ) -> Result<RequestId, EngineError> {
        self.check_request(&prompt, sampling)?;
        let id = self.requests;
        self.requests += 1;
        let tokens = |count: usize| Tokens::new(count as u64);
        // However long it gets, it never holds more than this.
        let held = prompt.len().min(self.settings.max_seq_len);
        let generates = answer.min(self.settings.max_seq_len - held);
        let request = Request::on_host(tokens(held), tokens(generates), self.kv_per_token());
        let request = least.map_or(request, |least| request.cut_to(tokens(least)));
        let snapshot = self.governor.look();
        let (admission, configured) = (self.governor.admission(), self.governor.configured());
        let waiting = Waiting { id, prompt, answer, sampling };
        self.queue.push(request, waiting, admission, configured, &snapshot).map_err(|(waiting, refusal)| {
            self.governor.decisions.push(Decision::Refused { request: waiting.id, refusal: refusal.clone() });
            EngineError::Refused(refusal)
        })?;
        Ok(id)
    }

    /// Starts what may start now, in order, and tells what came of each. To be called between passes.
    pub fn start_waiting(&mut self, mut tell: impl FnMut(RequestId, Outcome)) {
        loop {
            let snapshot = self.governor.look();
            let front = self.queue.front().map(|(_, waiting)| waiting.id);
            let running = self.sequences.iter().flatten().count() as u32;
            let limits = *self.governor.latch().current();
            match (self.queue.next(self.governor.admission(), &limits, running, &snapshot), front) {
                (Next::Run(waiting, window), _) => {
                    let outcome = self.start(&waiting, window);
                    tell(waiting.id, outcome.map_or_else(Outcome::Failed, Outcome::Started));
                }
                (Next::Refused(waiting, refusal), _) => {
                    self.governor.decisions.push(Decision::Refused { request: waiting.id, refusal: refusal.clone() });
                    tell(waiting.id, Outcome::Refused(refusal));
                }
                (Next::Held, Some(request)) => {
                    return self.governor.decisions.push(Decision::Held { request, level: snapshot.level });
                }
                (Next::SlotsTaken, Some(request)) => {
                    return self.governor.decisions.push(Decision::Waits { request, slots: limits.limits.slots });
                }
                _ => return,
            }
        }
    }

    fn start(&mut self, waiting: &Waiting, window: Tokens) -> Result<Row, EngineError> {
        let Waiting { id, prompt, answer, sampling } = waiting;
        // What was said last matters most to what is said next.
        let kept = &prompt[prompt.len().saturating_sub(window.count() as usize)..];
        if kept.len() < prompt.len() {
            let prompt = Tokens::new(prompt.len() as u64);
            self.governor.decisions.push(Decision::Capped { request: *id, window, prompt });
        }
        self.admit(kept, *answer, *sampling)
    }

    /// Requests that wait.
    pub fn waiting(&self) -> usize {
        self.queue.waiting()
    }

    /// Takes a request out that waits. Returns whether it did.
    pub fn cancel(&mut self, request: RequestId) -> bool {
        self.queue.cancel(|waiting| waiting.id == request).is_some()
    }
}

/// KV state of one token in all layers, those with a window included.
pub(super) fn kv_per_token(arch: &Arch, is_low: bool) -> Bytes {
    let units = if is_low { arch.low_units } else { arch.global_units };
    let units = units.saturating_add(arch.window_units) as u64;
    Bytes::new(units.saturating_mul(2) / arch.block_tokens.max(1) as u64)
}
