//! Passes until nothing is pending, with their times and allocations.

use std::{
    thread,
    time::{Duration, Instant},
};

use memtier_engine::{EngineError, Llm, Outcome, RequestId, Token, compute::Compute};

use crate::alloc;

/// How long requests may wait for memory while nothing runs.
const PATIENCE: Duration = Duration::from_secs(60);
/// Between two looks at the level meanwhile.
const NAP: Duration = Duration::from_millis(20);

/// Passes and heap allocations of a stretch of serving.
#[derive(Default)]
pub(crate) struct Tally {
    pub(crate) prefill: (u64, Duration),
    pub(crate) decode: (u64, Duration),
    pub(crate) heap: u64,
}

impl Tally {
    pub(crate) fn speed((tokens, time): (u64, Duration)) -> f64 {
        if tokens == 0 { 0.0 } else { tokens as f64 / time.as_secs_f64() }
    }
}

/// Who is told what happens.
pub(crate) trait Listener<S: Compute> {
    /// A request that waited has started, or was told no.
    fn started(&mut self, request: RequestId, outcome: Outcome);
    /// A pass chose these tokens.
    fn tokens(&mut self, llm: &mut Llm<S>, fresh: &[Token]) -> Result<(), EngineError>;
    /// A pass handled so many.
    fn pass(&mut self, tokens: usize);
}

/// For whom only the time counts.
pub(crate) struct Nobody;

impl<S: Compute> Listener<S> for Nobody {
    fn started(&mut self, _request: RequestId, _outcome: Outcome) {}

    fn tokens(&mut self, _llm: &mut Llm<S>, _fresh: &[Token]) -> Result<(), EngineError> {
        Ok(())
    }

    fn pass(&mut self, _tokens: usize) {}
}

/// Runs passes until nothing is pending and nobody waits. The heap is counted over whole passes, from their first
/// instruction to their last.
pub(crate) fn drive<S: Compute>(
    llm: &mut Llm<S>,
    tally: &mut Tally,
    listener: &mut dyn Listener<S>,
) -> Result<(), EngineError> {
    let guesses = llm.settings().draft;
    let mut fresh = Vec::with_capacity(llm.settings().max_batch * (1 + guesses));
    let mut idle_since = None;
    loop {
        llm.start_waiting(|request, outcome| listener.started(request, outcome));
        fresh.clear();
        let (heap, start) = (alloc::count(), Instant::now());
        let tokens = llm.step(|token| fresh.push(token))?;
        let (time, heap) = (start.elapsed(), alloc::count() - heap);
        if tokens == 0 {
            if llm.waiting() == 0 {
                return Ok(());
            }
            if idle_since.get_or_insert(start).elapsed() > PATIENCE {
                let waited = PATIENCE.as_secs();
                return Err(EngineError::Busy(format!("memory stayed short for {waited} s, and requests still wait")));
            }
            thread::sleep(NAP);
            continue;
        }
        idle_since = None;
        tally.heap += heap;
        // A pass with more tokens than answers and their wrong guesses has prompt in it.
        let (part, count) = match tokens > fresh.len() * (1 + guesses) {
            true => (&mut tally.prefill, tokens),
            false => (&mut tally.decode, fresh.len()),
        };
        part.0 += count as u64;
        part.1 += time;
        listener.pass(tokens);
        listener.tokens(llm, &fresh)?;
    }
}
