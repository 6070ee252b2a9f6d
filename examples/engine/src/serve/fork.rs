//! Several answers to one prompt: requests that share what they have in common.

use memtier::{Blocks, Step, Tokens, f16};

use super::{Llm, Row, prefixes::copy_window};
use crate::{EngineError, compute::Compute, model::ModelView, sequence::Sampling};

impl<S: Compute> Llm<S> {
    /// Another request that goes on from where `row` is, with a sampling of its own: best of several answers, or a beam. Both have the same
    /// blocks; whoever writes the last one first copies it. What a sliding window holds is copied at once: its blocks are written in
    /// place.
    ///
    /// # Errors
    /// [`EngineError::NoSequence`], [`EngineError::BatchFull`] or [`EngineError::Capacity`]. Nothing is taken.
    pub fn fork(&mut self, row: Row, sampling: Sampling) -> Result<Row, EngineError> {
        let forked = self.fork_parts(row, sampling);
        self.caches_in_step();
        forked
    }

    fn fork_parts(&mut self, row: Row, sampling: Sampling) -> Result<Row, EngineError> {
        sampling.check()?;
        let rows = self.sequences.len();
        let free = self.sequences.iter().position(Option::is_none).ok_or(EngineError::BatchFull { rows })?;
        let source = self.sequences.get(row).and_then(Option::as_ref).ok_or(EngineError::NoSequence { row })?;
        if source.low.is_some() {
            let what = "a fork of a request with keys and values of --kv-low".to_owned();
            return Err(EngineError::Unsupported { what, why: "fork what started while memory was not short" });
        }
        let written = source.kv.tokens();
        let room = Tokens::new(source.most as u64);
        let mut kv = source.kv.fork(room);
        // The blocks that nothing was written to stay the other's.
        kv.truncate(Blocks::new(written.count().div_ceil(self.settings.block_tokens as u64)));
        self.extend_to(&mut kv, room)?;
        let source = self.sequences[row].as_ref().ok_or(EngineError::NoSequence { row })?;
        let mut window = None;
        if let (Some(pool), Some(from)) = (&self.engine.bundle().window, &source.window) {
            let mut to = pool.open(room);
            if !written.is_zero() {
                let tokens = written.count() as usize;
                copy_window(&mut self.engine, &mut self.stream, self.arch.window, (from, &mut to), tokens)?;
            }
            window = Some(to);
        }
        let mut ring = self.open_ring(room)?;
        let source = self.sequences[row].as_ref().ok_or(EngineError::NoSequence { row })?;
        if let (Some(from), Some(to)) = (&source.ring, &mut ring)
            && !written.is_zero()
        {
            let mut step = self.engine.step(&mut self.stream)?;
            if let Step { buffers: ModelView { ring: Some(pool), .. }, on, .. } = &mut step {
                let (from, mut to) = pool.copy_pair((from, 0), (&mut *to, 0))?;
                on.copy::<f16>(&mut to, from)?;
            }
            to.advance(written, &step.finish()?)?;
        }
        let mut fork = source.fork(kv, window, sampling);
        fork.ring = ring;
        if let (Some(front), Some(cached)) = (&mut self.front, &source.front) {
            fork.front = Some(front.fork(cached, room)?);
        }
        self.sequences[free] = Some(fork);
        Ok(free)
    }
}
