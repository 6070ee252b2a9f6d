//! Teacher-forced logits.

use super::{Llm, Probe, pass::advance};
use crate::{EngineError, compute::Compute, sequence::Sampling};

impl<S: Compute> Llm<S> {
    /// Teacher-forced logits: calls `see(position, logits)` for every token of `tokens`, in order, where the logits are those
    /// of the token after it. `probe` sees the residual stream of each piece.
    ///
    /// # Errors
    /// As [`Llm::admit`].
    pub fn score(
        &mut self,
        tokens: &[u32],
        see: &mut dyn FnMut(usize, &[f32]),
        mut probe: Option<Probe<'_>>,
    ) -> Result<(), EngineError> {
        let row = self.admit_with(tokens, 0, Sampling::GREEDY, false)?;
        let vocab = self.arch.vocab();
        let piece = self.settings.max_batch.min(self.settings.prefill_chunk);
        let mut logits = vec![0.0; piece * vocab];
        let mut at = 0;
        let result = loop {
            if at == tokens.len() {
                break Ok(());
            }
            if let Err(error) = self.release(piece) {
                break Err(error);
            }
            self.batch.clear();
            let Some(sequence) = &mut self.sequences[row] else { break Err(EngineError::NoSequence { row }) };
            let count = piece.min(tokens.len() - at).min(sequence.room());
            if count == 0 {
                break Err(EngineError::Stalled { blocks: sequence.kv.blocks() });
            }
            self.batch.add(row, sequence, count);
            self.batch.picks.clear();
            self.batch.picks.extend(0..count as u32);
            self.batch.decodes = count;
            let logits = &mut logits[..count * vocab];
            let probe: Option<Probe<'_>> = match &mut probe {
                Some(probe) => Some(&mut **probe),
                None => None,
            };
            match self.pass(Some(logits), probe) {
                Err(error) => break Err(error),
                Ok(fence) => {
                    if let Some(sequence) = &mut self.sequences[row]
                        && let Err(error) = advance(self.front.as_ref(), sequence, count, &fence)
                    {
                        break Err(error);
                    }
                }
            }
            logits.chunks_exact(vocab).enumerate().for_each(|(index, logits)| see(at + index, logits));
            at += count;
        };
        self.end(row)?;
        result
    }
}
