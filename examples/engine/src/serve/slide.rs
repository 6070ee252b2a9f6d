//! What requests give up before a pass: blocks that no later token sees.

use memtier::{Step, SwaKv, Ticket, Tokens, f16};

use super::Llm;
use crate::{EngineError, compute::Compute, model::ModelView};

impl<S: Compute> Llm<S> {
    /// Gives up the blocks between the sinks and the window of sequences that have no room for their next tokens, at most
    /// `chunk`, and takes as many behind the last; and what left the windows of prompts. A row pins what it names until it is set again, so
    /// that happens in a step of its own: behind it these blocks are free.
    pub(super) fn release(&mut self, chunk: usize) -> Result<(), EngineError> {
        let Llm { sequences, settings, arch, .. } = self;
        let (mut released, mut short) = (false, false);
        for sequence in sequences.iter_mut().flatten() {
            let pending = sequence.pending();
            if let Some(streaming) = arch.streaming
                && sequence.room() < pending.min(chunk)
                && sequence.tokens.len() <= sequence.most
            {
                let sinks = streaming.sinks / settings.block_tokens;
                let first = streaming.first(sequence.done) / settings.block_tokens;
                released |= !sequence.kv.evict_range(sinks..first).is_zero();
                short = true;
            }
            // While a prompt goes on, a pass leaves as many blocks behind as it writes. An answer leaves one at a time.
            if let Some(window) = sequence.window.as_mut().filter(|_| pending > 1) {
                released |= leave(window, sequence.done, arch.window);
            }
        }
        if released {
            let mut step = self.engine.step(&mut self.stream)?;
            let Step { buffers: ModelView { table, window_table, .. }, on, .. } = &mut step;
            for (row, sequence) in self.sequences.iter().enumerate() {
                let Some(sequence) = sequence else { continue };
                if arch.streaming.is_some() {
                    table.set(on, row, &sequence.kv)?;
                }
                if let (Some(table), Some(ticket)) = (window_table.as_mut(), &sequence.window) {
                    table.set(on, row, ticket)?;
                }
            }
            step.finish()?.wait()?;
        }
        if let Some(front) = &mut self.front {
            front.release(&mut self.sequences)?;
        }
        if short { self.take_more() } else { Ok(()) }
    }

    /// Blocks behind the last for whom that gave some up. Where there are none it keeps what it has.
    fn take_more(&mut self) -> Result<(), EngineError> {
        for row in 0..self.sequences.len() {
            let Some(mut sequence) = self.sequences[row].take() else { continue };
            let more = self.extend_to(&mut sequence.kv, Tokens::new(sequence.most as u64));
            self.sequences[row] = Some(sequence);
            match more {
                Ok(()) | Err(EngineError::Capacity(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Gives up the blocks that no token from `done` on sees. Whether there were any.
pub(super) fn leave(ticket: &mut Ticket<SwaKv<f16>>, done: usize, window: usize) -> bool {
    let held = ticket.blocks();
    ticket.evict_before(Tokens::new((done + 1).saturating_sub(window) as u64));
    held != ticket.blocks()
}
