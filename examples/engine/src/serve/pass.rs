//! One forward pass over whatever is pending.

use std::ops::ControlFlow;

use memtier::{Fence, GlobalKv, LaunchError, Step, StepError, SwaKv, Ticket, f16};

use super::{
    Llm, Probe, Token,
    batch::{Batch, Share},
    draft,
    front::Front,
};
use crate::{
    EngineError,
    compute::Compute,
    forward::{Pass, forward},
    model::{Model, ModelView},
    sequence::Sequence,
};

impl<S: Compute> Llm<S> {
    /// Runs one pass: one token of every request that decodes, then as much prompt as fits. Tells through `on_token` what
    /// was chosen. Returns the tokens it processed; 0 when nothing is pending.
    ///
    /// # Errors
    /// [`EngineError`]; requests are as they were before the pass.
    pub fn step(&mut self, mut on_token: impl FnMut(Token)) -> Result<usize, EngineError> {
        self.step_while(|token| {
            on_token(token);
            ControlFlow::Continue(())
        })
    }

    /// The same for whoever learns that a request is not wanted any more when its token is told: `Break` ends it there, and nothing of this pass is
    /// published of it.
    ///
    /// # Errors
    /// As [`step`](Self::step).
    pub fn step_while(&mut self, on_token: impl FnMut(Token) -> ControlFlow<()>) -> Result<usize, EngineError> {
        let limits = self.governor.begin();
        let chunk = self.governor.chunk_under(&limits.limits().limits);
        let tokens = self.spilled().and_then(|()| self.step_of(chunk, on_token));
        let tokens = tokens.and_then(|tokens| self.spill_ahead().map(|()| tokens));
        self.governor.end(limits);
        tokens
    }

    /// One pass with at most `chunk` tokens of prompts.
    fn step_of(
        &mut self,
        chunk: usize,
        mut on_token: impl FnMut(Token) -> ControlFlow<()>,
    ) -> Result<usize, EngineError> {
        self.release(chunk)?;
        self.batch.clear();
        let Llm { sequences, batch, settings, .. } = self;
        let mut waits = None;
        let mut left = chunk.max(settings.max_batch * (1 + settings.draft));
        for decoding in [true, false] {
            if !decoding {
                batch.decodes = batch.tokens.len();
            }
            for (row, sequence) in sequences.iter_mut().enumerate() {
                let Some(sequence) = sequence else { continue };
                let pending = sequence.pending();
                // What has one token left is a query for itself. Where answers must not depend on what runs beside them, only the answer
                // goes by that: how a prompt is cut depends on the others.
                let answers = if settings.batch_invariant { sequence.answers() } else { pending == 1 };
                if pending == 0 || answers != decoding || sequence.tokens.len() > sequence.most || left == 0 {
                    continue;
                }
                let room = left.min(sequence.room());
                if room == 0 {
                    // Others have the blocks it goes on with: it waits for one of them to end.
                    waits = Some(sequence.kv.blocks());
                    continue;
                }
                let guesses = match decoding {
                    // Each is a token of the answer if it is what its position's logits and random number choose.
                    true => settings.draft.min(sequence.most - sequence.tokens.len()).min(room - 1),
                    false => 0,
                };
                let before = batch.tokens.len();
                match draft::lookup(&sequence.tokens, guesses) {
                    guesses if guesses.is_empty() => batch.add(row, sequence, pending.min(room)),
                    guesses => batch.add_drafted(row, sequence, guesses),
                }
                left -= batch.tokens.len() - before;
            }
        }
        let tokens = self.batch.tokens.len();
        if tokens == 0 {
            // Nobody is left who could end.
            return waits.map_or(Ok(0), |blocks| Err(EngineError::Stalled { blocks }));
        }
        let fence = self.pass(None, None)?;
        let settled = fence.wait()?;
        let Llm { sequences, batch, front, .. } = self;
        let (mut pick, mut first) = (0, 0);
        for Share { row, count, drafts, complete, gone } in &mut batch.shares {
            let (row, count, drafts, complete) = (*row, *count, *drafts, *complete);
            let Some(sequence) = &mut sequences[row] else { continue };
            let chosen = &batch.sampled[pick..pick + usize::from(complete) * (1 + drafts)];
            let guessed = &batch.tokens[first + count - drafts..first + count];
            // What follows a wrong guess was computed from it: the next pass writes over it.
            let right = chosen.iter().zip(guessed).take_while(|(chosen, guessed)| chosen == guessed).count();
            advance(front.as_ref(), sequence, count - drafts + right, &fence)?;
            for token in chosen.iter().take(1 + right).copied() {
                let last = sequence.tokens.len() + 1 >= sequence.most;
                if sequence.tokens.len() < sequence.most {
                    sequence.tokens.push(token);
                }
                if last {
                    // Its last token is nobody's input.
                    sequence.done = sequence.tokens.len();
                }
                *gone = on_token(Token { row, token, last }).is_break();
                if last || *gone {
                    break;
                }
            }
            (pick, first) = (pick + chosen.len(), first + count);
        }
        for index in 0..self.batch.shares.len() {
            let Share { row, gone, .. } = self.batch.shares[index];
            if gone {
                self.clear(row)?;
            }
        }
        self.publish(&settled)?;
        Ok(tokens)
    }

    /// One forward pass over `self.batch`. With `logits` they are copied out (picks x vocabulary).
    pub(super) fn pass(&mut self, logits: Option<&mut [f32]>, probe: Option<Probe<'_>>) -> Result<Fence, EngineError> {
        let Llm { sequences, engine, stream, ops, main, front, batch, graphs, .. } = self;
        let arch = &main.arch;
        for Share { row, count, .. } in &batch.shares {
            if let Some(sequence) = &mut sequences[*row] {
                sequence.slide(arch.window, *count)?;
                if let (Some(front), Some(cached)) = (&front, &mut sequence.front) {
                    front.slide(cached, sequence.done, *count)?;
                }
            }
        }
        let pass = Pass { tokens: batch.tokens.len(), picks: batch.picks.len(), decodes: batch.decodes };
        let replayed = logits.is_none() && probe.is_none() && front.is_none();
        let graph = if replayed { graphs.of(pass, (&*ops, arch), engine, stream)? } else { None };
        let mut step = engine.step(stream)?;
        for Share { row, .. } in &batch.shares {
            // After a fork, the last block is somebody else's, too.
            if let Some(sequence) = &mut sequences[*row]
                && sequence.low.is_none()
            {
                step.buffers.kv.own(step.on, &mut sequence.kv, sequence.done / arch.block_tokens)?;
            }
        }
        write_inputs(&mut step, batch, sequences, |sequence| Some((&sequence.kv, sequence.window.as_ref())))?;
        if !batch.is_sampling_there {
            step.on.write(&mut step.buffers.work.sampling, &batch.sampling)?;
            step.on.write(&mut step.buffers.work.seeds, &batch.seeds)?;
        }
        if let Some(graph) = graph {
            step.replay(graph)?;
            step.on.read(step.buffers.work.sampled.read(), &mut batch.sampled)?;
            let fence = step.finish()?;
            batch.is_sampling_there = true;
            return Ok(fence);
        }
        {
            let Step { buffers, on, scratch, .. } = &mut step;
            let on = *on;
            let mut frame = scratch.nested();
            let mut span = frame.take(pass.picks * arch.vocab())?;
            let mut copy = Vec::new();
            // Two closures see it, one after the other.
            let probe = std::cell::RefCell::new(probe);
            let mut failed = None;
            let mut enter = |x: &mut memtier::StableSpanMut<'_, f32, _>| -> Result<(), LaunchError> {
                let Some(front) = front else { return Ok(()) };
                let mut probe = probe.borrow_mut();
                let probe = probe.as_mut().map(|probe| &mut **probe as Probe<'_>);
                match front.pass(S::cpu(ops), (batch, sequences), |host| on.read::<f32>(&*x, host), probe) {
                    Ok(host) => on.write(x, host),
                    Err(error) => {
                        failed = Some(error);
                        Err(LaunchError::Unsupported { what: "the layers on the device", why: "they failed" })
                    }
                }
            };
            let mut see = |layer: usize, x: memtier::StableSpan<'_, f32, _>| -> Result<(), LaunchError> {
                let Some(probe) = &mut *probe.borrow_mut() else { return Ok(()) };
                copy.resize(x.len(), 0.0);
                on.read::<f32>(x, &mut copy)?;
                probe(layer, &copy);
                Ok(())
            };
            let ran = forward(ops, arch, pass, buffers, on, frame.nested(), &mut span, &mut enter, &mut see);
            if let Some(failed) = failed {
                return Err(failed);
            }
            ran?;
            if let Some(logits) = logits {
                on.read::<f32>(&span, logits)?;
            }
            on.read(buffers.work.sampled.read(), &mut batch.sampled)?;
        }
        let fence = step.finish()?;
        batch.is_sampling_there = true;
        Ok(fence)
    }
}

/// `count` tokens of a request were written, in every part.
pub(super) fn advance(
    front: Option<&Front>,
    sequence: &mut Sequence,
    count: usize,
    fence: &Fence,
) -> Result<(), EngineError> {
    if let (Some(front), Some(cached)) = (front, &mut sequence.front) {
        front.advance(cached, count)?;
    }
    sequence.advance(count, fence)
}

/// Where a part finds a request's keys and values.
type Blocks<'s> = (&'s Ticket<GlobalKv<f16>>, Option<&'s Ticket<SwaKv<f16>>>);

/// Writes what the pass reads, and the page table rows of its requests.
pub(super) fn write_inputs<S: Compute>(
    step: &mut Step<'_, Model<S>, memtier::Eager<S>>,
    batch: &Batch,
    sequences: &[Option<Sequence>],
    blocks: impl Fn(&Sequence) -> Option<Blocks<'_>>,
) -> Result<(), EngineError> {
    let Step { buffers: ModelView { work, table, low_table, ring_table, window_table, .. }, on, .. } = step;
    for Share { row, .. } in &batch.shares {
        let Some((kv, window)) = sequences[*row].as_ref().and_then(&blocks) else { continue };
        match (low_table.as_mut(), sequences[*row].as_ref().and_then(|sequence| sequence.low.as_ref())) {
            (Some(table), Some(low)) => table.set(on, *row, low)?,
            _ => table.set(on, *row, kv)?,
        }
        if let (Some(table), Some(ticket)) = (window_table.as_mut(), window) {
            table.set(on, *row, ticket)?;
        }
        let ring = sequences[*row].as_ref().and_then(|sequence| sequence.ring.as_ref());
        if let (Some(table), Some(ticket)) = (ring_table.as_mut(), ring) {
            table.set(on, *row, ticket)?;
        }
    }
    on.write(&mut work.tokens, &batch.tokens)?;
    on.write(&mut work.rows, &batch.rows)?;
    on.write(&mut work.positions, &batch.positions)?;
    on.write(&mut work.lengths, &batch.lengths)?;
    on.write(&mut work.starts, &batch.starts)?;
    on.write(&mut work.picks, &batch.picks)?;
    Ok(())
}

#[allow(dead_code, reason = "documents which error a step has")]
fn step_error(error: StepError) -> EngineError {
    error.into()
}
