//! Requests: taken in, stopped, ended.

use memtier::{GlobalKv, ResidualKv, Step, Ticket, Tokens, f16};

use super::{Llm, Row, prefixes::Opened};
use crate::{
    EngineError,
    compute::Compute,
    model::ModelView,
    sequence::{Sampling, Sequence},
};

impl<S: Compute> Llm<S> {
    /// What no request may have.
    pub(super) fn check_request(&self, prompt: &[u32], sampling: Sampling) -> Result<(), EngineError> {
        sampling.check()?;
        let most = self.settings.most_tokens();
        if prompt.is_empty() {
            return Err(EngineError::EmptyPrompt);
        }
        if prompt.len() > most {
            let (tokens, trained) = (prompt.len(), self.arch.trained_context);
            return Err(EngineError::PromptTooLong { tokens, most, trained });
        }
        if let Some(token) = prompt.iter().find(|token| **token as usize >= self.arch.vocab()) {
            let remedy = format!("the vocabulary has {} tokens", self.arch.vocab());
            return Err(EngineError::Setting { name: "token", value: token.to_string(), remedy });
        }
        Ok(())
    }

    /// Takes a request in, with all the blocks that prompt and answer can need.
    ///
    /// # Errors
    /// [`EngineError::BatchFull`] or [`EngineError::Capacity`] when it must wait, [`EngineError::PromptTooLong`] when it can
    /// never fit. Nothing is taken.
    pub fn admit(&mut self, prompt: &[u32], answer: usize, sampling: Sampling) -> Result<Row, EngineError> {
        self.admit_with(prompt, answer, sampling, true)
    }

    /// The same; what is cached of the prompt is used with `reuse` only.
    pub(super) fn admit_with(
        &mut self,
        prompt: &[u32],
        answer: usize,
        sampling: Sampling,
        reuse: bool,
    ) -> Result<Row, EngineError> {
        self.check_request(prompt, sampling)?;
        let rows = self.sequences.len();
        let row = self.sequences.iter().position(Option::is_none).ok_or(EngineError::BatchFull { rows })?;
        let most = prompt.len().saturating_add(answer).min(self.settings.most_tokens());
        let room = Tokens::new(most as u64);
        let low = self.open_low(room)?;
        let Opened { kv, window, front } = match low {
            None => self.open_blocks(prompt, room, reuse)?,
            // What is cached is in the other type, so nothing of it is of use.
            Some(_) => {
                let bundle = self.engine.bundle();
                let window = bundle.window.as_ref().map(|pool| pool.open(room));
                Opened { kv: bundle.kv.open(room), window, front: None }
            }
        };
        let mut sequence = Sequence::new(kv, window, prompt, most, sampling);
        sequence.snapshot = if low.is_none() { self.open_snapshot(room) } else { None };
        sequence.front = front;
        sequence.low = low;
        sequence.ring = self.open_ring(room)?;
        self.sequences[row] = Some(sequence);
        Ok(row)
    }

    /// Blocks of smaller elements, where the limits that hold want them and there is a pool of them.
    fn open_low(&self, room: Tokens) -> Result<Option<Ticket<GlobalKv<u16>>>, EngineError> {
        let limits = self.governor.latch().current().limits;
        let bundle = self.engine.bundle();
        let Some(pool) = bundle.low.as_ref().filter(|_| Some(limits.kv) == self.settings.kv_low) else {
            return Ok(None);
        };
        let mut low = pool.open(room);
        while let Err(full) = low.extend(room) {
            let Some(commit) = pool.planned_commit() else { return Err(full.into()) };
            pool.grow(commit).map_err(|error| EngineError::Busy(error.to_string()))?;
        }
        Ok(Some(low))
    }

    /// A ring for a request's latest tokens, where there are rings.
    pub(super) fn open_ring(&self, room: Tokens) -> Result<Option<Ticket<ResidualKv<f16>>>, EngineError> {
        let Some(pool) = &self.engine.bundle().ring else { return Ok(None) };
        let mut ring = pool.open(room);
        ring.extend(room)?;
        Ok(Some(ring))
    }

    /// Lets a request answer no more. It keeps its blocks until [`end`](Llm::end).
    ///
    /// # Errors
    /// [`EngineError::NoSequence`].
    pub fn stop(&mut self, row: Row) -> Result<(), EngineError> {
        let sequence = self.sequences.get_mut(row).and_then(Option::as_mut).ok_or(EngineError::NoSequence { row })?;
        sequence.done = sequence.tokens.len();
        Ok(())
    }

    /// Ends a request in whatever state it is: its blocks go back, and its rows are cleared.
    ///
    /// # Errors
    /// [`EngineError::NoSequence`].
    pub fn end(&mut self, row: Row) -> Result<(), EngineError> {
        self.keep_ended(row)?;
        self.clear(row)
    }

    /// The same; nothing more is kept of it.
    pub(super) fn clear(&mut self, row: Row) -> Result<(), EngineError> {
        let sequence = self.sequences.get_mut(row).and_then(Option::take);
        let sequence = sequence.ok_or(EngineError::NoSequence { row })?;
        if let Some(front) = &mut self.front {
            front.end(row)?;
        }
        let mut step = self.engine.step(&mut self.stream)?;
        let Step { buffers: ModelView { table, low_table, ring_table, window_table, .. }, on, .. } = &mut step;
        table.clear(on, row)?;
        if let Some(low_table) = low_table {
            low_table.clear(on, row)?;
        }
        if let Some(window_table) = window_table {
            window_table.clear(on, row)?;
        }
        if let Some(ring_table) = ring_table {
            ring_table.clear(on, row)?;
        }
        self.batch.lengths[row] = 0;
        drop((sequence, step));
        Ok(())
    }

    /// Tokens of a request so far, prompt and answer.
    pub fn tokens(&self, row: Row) -> Option<&[u32]> {
        self.sequences.get(row)?.as_ref().map(|sequence| &*sequence.tokens)
    }
}
