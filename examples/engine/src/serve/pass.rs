//! One forward pass over whatever is pending.

use memtier::{Fence, LaunchError, Step, StepError};

use super::{Llm, Probe, Token, batch::Batch};
use crate::{
    EngineError,
    forward::{Pass, forward},
    model::{Model, ModelView},
    sequence::Sequence,
};

impl Llm {
    /// Runs one pass: one token of every request that decodes, then as much prompt as fits. Tells through `on_token` what
    /// was chosen. Returns the tokens it processed; 0 when nothing is pending.
    ///
    /// # Errors
    /// [`EngineError`]; requests are as they were before the pass.
    pub fn step(&mut self, on_token: impl FnMut(Token)) -> Result<usize, EngineError> {
        let limits = self.governor.begin();
        let chunk = self.governor.chunk_under(&limits.limits().limits);
        let tokens = self.step_of(chunk, on_token);
        self.governor.end(limits);
        tokens
    }

    /// One pass with at most `chunk` tokens of prompts.
    fn step_of(&mut self, chunk: usize, mut on_token: impl FnMut(Token)) -> Result<usize, EngineError> {
        self.batch.clear();
        let room = chunk.max(self.settings.max_batch);
        let mut left = room;
        for decoding in [true, false] {
            for (row, sequence) in self.sequences.iter_mut().enumerate() {
                let Some(sequence) = sequence else { continue };
                let pending = sequence.pending();
                if pending == 0 || (pending == 1) != decoding || sequence.tokens.len() > sequence.most {
                    continue;
                }
                let count = pending.min(left);
                if count > 0 {
                    self.batch.add(row, sequence, count);
                    left -= count;
                }
            }
        }
        let tokens = self.batch.tokens.len();
        if tokens == 0 {
            return Ok(0);
        }
        let fence = self.pass(None, None)?;
        fence.wait()?;
        let mut pick = 0;
        for index in 0..self.batch.shares.len() {
            let (row, count, complete) = self.batch.shares[index];
            let Some(sequence) = &mut self.sequences[row] else { continue };
            sequence.advance(count, &fence)?;
            if complete {
                let token = self.batch.sampled[pick];
                pick += 1;
                let last = sequence.tokens.len() + 1 >= sequence.most;
                if sequence.tokens.len() < sequence.most {
                    sequence.tokens.push(token);
                }
                if last {
                    // Its last token is nobody's input.
                    sequence.done = sequence.tokens.len();
                }
                on_token(Token { row, token, last });
            }
        }
        Ok(tokens)
    }

    /// One forward pass over `self.batch`. With `logits` they are copied out (picks x vocabulary).
    pub(super) fn pass(&mut self, logits: Option<&mut [f32]>, probe: Option<Probe<'_>>) -> Result<Fence, EngineError> {
        let Llm { sequences, engine, stream, cpu, arch, batch, .. } = self;
        for (row, count, _) in &batch.shares {
            if let Some(sequence) = &mut sequences[*row] {
                sequence.slide(arch.window, *count)?;
            }
        }
        let mut step = engine.step(stream)?;
        write_inputs(&mut step, batch, sequences)?;
        let pass = Pass { tokens: batch.tokens.len(), picks: batch.picks.len() };
        {
            let Step { buffers, on, scratch, .. } = &mut step;
            let on = *on;
            let mut frame = scratch.nested();
            let mut span = frame.take(pass.picks * arch.vocab())?;
            let mut copy = Vec::new();
            let mut probe = probe;
            let mut see = |layer: usize, x: memtier::StableSpan<'_, f32, _>| -> Result<(), LaunchError> {
                let Some(probe) = &mut probe else { return Ok(()) };
                copy.resize(x.len(), 0.0);
                on.read::<f32>(x, &mut copy)?;
                probe(layer, &copy);
                Ok(())
            };
            forward(cpu, arch, pass, buffers, on, frame.nested(), &mut span, &mut see)?;
            if let Some(logits) = logits {
                on.read::<f32>(&span, logits)?;
            }
            on.read(buffers.work.sampled.read(), &mut batch.sampled)?;
        }
        Ok(step.finish()?)
    }
}

/// Writes what the pass reads, and the page table rows of its requests.
fn write_inputs(
    step: &mut Step<'_, Model, memtier::Eager<memtier::Host>>,
    batch: &Batch,
    sequences: &[Option<Sequence>],
) -> Result<(), EngineError> {
    let Step { buffers: ModelView { work, table, window_table, .. }, on, .. } = step;
    for (row, ..) in &batch.shares {
        let Some(sequence) = &sequences[*row] else { continue };
        table.set(on, *row, &sequence.kv)?;
        if let (Some(table), Some(ticket)) = (window_table.as_mut(), &sequence.window) {
            table.set(on, *row, ticket)?;
        }
    }
    on.write(&mut work.tokens, &batch.tokens)?;
    on.write(&mut work.rows, &batch.rows)?;
    on.write(&mut work.positions, &batch.positions)?;
    on.write(&mut work.lengths, &batch.lengths)?;
    on.write(&mut work.picks, &batch.picks)?;
    on.write(&mut work.sampling, &batch.sampling)?;
    on.write(&mut work.random, &batch.random)?;
    Ok(())
}

#[allow(dead_code, reason = "documents which error a step has")]
fn step_error(error: StepError) -> EngineError {
    error.into()
}
