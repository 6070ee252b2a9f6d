//! One request: its tokens, its blocks, and how its answer is sampled.

use std::sync::Arc;

use memtier::{Fence, GlobalKv, ResidualKv, SwaKv, Ticket, Tokens, f16};

use crate::{EngineError, serve::Cached};

/// How tokens are chosen.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Sampling {
    /// 0 takes the likeliest token; another divides the logits: larger values flatten the distribution.
    pub temperature: f32,
    /// Only the likeliest tokens that make up this share, at this temperature and of the `top_k`, are candidates: above 0, at most 1.
    pub top_p: f32,
    /// Only this many of the likeliest tokens are candidates; 0 is 256, the most.
    pub top_k: u32,
    /// The random number of a token is a function of this and of the token's position: requests of equal prompts and seeds have equal answers,
    /// whatever runs beside them. Answers to one prompt that should differ need seeds that differ, any two.
    pub seed: u64,
}

impl Sampling {
    /// The likeliest token, always.
    pub const GREEDY: Sampling = Sampling { temperature: 0.0, top_p: 1.0, top_k: 0, seed: 0 };

    /// Refuses what cannot be sampled with.
    ///
    /// # Errors
    /// [`EngineError::Setting`].
    pub fn check(&self) -> Result<(), EngineError> {
        let refuse = |name, value: f32, remedy: &str| {
            Err(EngineError::Setting { name, value: value.to_string(), remedy: remedy.to_owned() })
        };
        if !self.temperature.is_finite() || self.temperature < 0.0 {
            return refuse("temperature", self.temperature, "use 0 for greedy, or a positive number");
        }
        if !(self.top_p > 0.0 && self.top_p <= 1.0) {
            return refuse("top-p", self.top_p, "use a number above 0, at most 1");
        }
        Ok(())
    }
}

/// One request. Dropping it frees its blocks.
pub(crate) struct Sequence {
    pub(crate) kv: Ticket<GlobalKv<f16>>,
    /// Its blocks of smaller elements; those of `kv` are none then.
    pub(crate) low: Option<Ticket<GlobalKv<u16>>>,
    pub(crate) window: Option<Ticket<SwaKv<f16>>>,
    /// Its latest tokens unrounded, where there are rings.
    pub(crate) ring: Option<Ticket<ResidualKv<f16>>>,
    /// The first token that is in it.
    pub(crate) ring_start: usize,
    /// Its blocks on the device that runs the first layers, where there is one.
    pub(crate) front: Option<Cached>,
    /// Prompt and answer; the room for all of it is there from the start.
    pub(crate) tokens: Vec<u32>,
    /// Tokens whose keys and values are written.
    pub(crate) done: usize,
    /// Tokens of the prompt.
    prompt: usize,
    /// Tokens of prompt and answer together at which it ends.
    pub(crate) most: usize,
    pub(crate) sampling: Sampling,
    /// Takes the copy of the window when the prompt is in: there from the start, so that no pass asks the heap for it.
    pub(crate) snapshot: Option<Arc<Ticket<SwaKv<f16>>>>,
}

impl Sequence {
    pub(crate) fn new(
        kv: Ticket<GlobalKv<f16>>,
        window: Option<Ticket<SwaKv<f16>>>,
        prompt: &[u32],
        most: usize,
        sampling: Sampling,
    ) -> Self {
        let mut tokens = Vec::with_capacity(most);
        tokens.extend_from_slice(prompt);
        let done = kv.tokens().count() as usize;
        Sequence {
            kv,
            low: None,
            window,
            tokens,
            done,
            prompt: prompt.len(),
            most,
            sampling,
            ring: None,
            ring_start: done,
            front: None,
            snapshot: None,
        }
    }

    /// Another with the same tokens so far, in blocks that both have until one writes.
    pub(crate) fn fork(
        &self,
        kv: Ticket<GlobalKv<f16>>,
        window: Option<Ticket<SwaKv<f16>>>,
        sampling: Sampling,
    ) -> Self {
        let mut tokens = Vec::with_capacity(self.most);
        tokens.extend_from_slice(&self.tokens);
        let (done, most) = (self.done, self.most);
        Sequence {
            kv,
            low: None,
            window,
            tokens,
            done,
            prompt: self.prompt,
            most,
            sampling,
            ring: None,
            ring_start: self.ring_start,
            front: None,
            snapshot: None,
        }
    }

    /// Tokens that no pass has seen.
    pub(crate) fn pending(&self) -> usize {
        self.tokens.len() - self.done
    }

    /// Tokens that fit behind those it has, into the blocks it has.
    pub(crate) fn room(&self) -> usize {
        match &self.low {
            Some(low) => low.capacity().count() as usize - self.done,
            None => (self.kv.capacity().count() as usize).saturating_sub(self.done),
        }
    }

    /// Whether all of its prompt was seen.
    pub(crate) fn answers(&self) -> bool {
        self.done >= self.prompt
    }

    /// Makes room in the window for the next `count` tokens, and gives up the blocks that no later token sees.
    pub(crate) fn slide(&mut self, window: usize, count: usize) -> Result<(), EngineError> {
        let Some(ticket) = &mut self.window else { return Ok(()) };
        ticket.evict_before(Tokens::new((self.done + 1).saturating_sub(window) as u64));
        ticket.extend(Tokens::new(count as u64))?;
        Ok(())
    }

    /// `count` tokens were written by the step behind `fence`.
    pub(crate) fn advance(&mut self, count: usize, fence: &Fence) -> Result<(), EngineError> {
        let count_tokens = Tokens::new(count as u64);
        match &mut self.low {
            Some(low) => low.advance(count_tokens, fence)?,
            None => self.kv.advance(count_tokens, fence)?,
        }
        if let Some(window) = &mut self.window {
            window.advance(count_tokens, fence)?;
        }
        if let Some(ring) = &mut self.ring {
            ring.advance(count_tokens, fence)?;
        }
        self.done += count;
        Ok(())
    }
}
