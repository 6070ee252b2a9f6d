//! Forward scratch from the sequence of operations: which buffer is born when, and which are still needed.
//!
//! Scratch is a stack: a buffer goes when it is dead and nothing above it lives. [`Tape`] plays a pass through and
//! keeps the high-water mark, so the figure is what a stack that runs this sequence is asked for, not the sum of all
//! buffers and not a share of the weights.

use memtier::{Bytes, Overflow};

use crate::layout::{Experts, LayerMemory, Vision};

/// Bytes of an activation: 32-bit floats.
const ELEMENT: u64 = 4;
/// What a buffer begins at a multiple of.
const ALIGN: u64 = 256;

/// A buffer of the pass.
#[derive(Clone, Copy)]
struct Buffer(usize);

/// A pass being played.
#[derive(Default)]
struct Tape {
    /// Bytes and whether still needed, bottom first.
    stack: Vec<(u64, bool)>,
    height: u64,
    peak: u64,
}

impl Tape {
    fn take(&mut self, elements: Option<u64>) -> Result<Buffer, Overflow> {
        let bytes = elements.and_then(|count| count.checked_mul(ELEMENT)).ok_or(Overflow)?;
        let bytes = bytes.checked_next_multiple_of(ALIGN).ok_or(Overflow)?;
        self.height = self.height.checked_add(bytes).ok_or(Overflow)?;
        self.peak = self.peak.max(self.height);
        self.stack.push((bytes, true));
        Ok(Buffer(self.stack.len() - 1))
    }

    /// The last uses of these buffers are over.
    fn all_done(&mut self, buffers: &[Buffer]) {
        for buffer in buffers {
            if let Some(entry) = self.stack.get_mut(buffer.0) {
                entry.1 = false;
            }
        }
        while let Some(&(bytes, false)) = self.stack.last() {
            self.height -= bytes;
            self.stack.pop();
        }
    }
}

/// What one device computes of a layer: everything, or one of `parts` in a tensor split.
#[derive(Clone, Copy)]
pub(super) struct Pass {
    /// Tokens in flight.
    pub(super) tokens: u64,
    pub(super) hidden: u64,
    pub(super) parts: u64,
}

impl Pass {
    fn rows(&self, elements: u64) -> Option<u64> {
        self.tokens.checked_mul(elements)
    }

    fn part(&self, elements: u64) -> u64 {
        elements.div_ceil(self.parts.max(1))
    }

    /// The high-water mark of one layer, the residual stream among it.
    pub(super) fn layer(&self, layer: &LayerMemory, experts: &Experts) -> Result<Bytes, Overflow> {
        let mut tape = Tape::default();
        let residual = tape.take(self.rows(self.hidden))?;
        if layer.cache.is_some() {
            self.attention(&mut tape, layer)?;
        }
        if layer.state.is_some() {
            self.recurrence(&mut tape, layer)?;
        }
        self.feed_forward(&mut tape, layer, experts)?;
        tape.all_done(&[residual]);
        Ok(Bytes::new(tape.peak))
    }

    fn attention(&self, tape: &mut Tape, layer: &LayerMemory) -> Result<(), Overflow> {
        let Some(cache) = layer.cache else { return Ok(()) };
        let (heads, kv_heads) = (self.part(layer.heads), self.part(cache.kv_heads));
        // Values that are read out of the keys come back in the size of a key.
        let value = if cache.value_dim == 0 { cache.key_dim } else { cache.value_dim };
        let output = tape.take(self.rows(self.hidden))?;
        let attended = tape.take(heads.checked_mul(value).and_then(|row| self.rows(row)))?;
        let queries = tape.take(heads.checked_mul(cache.key_dim).and_then(|row| self.rows(row)))?;
        // Keys and values on their way into the cache.
        let kv = kv_heads.checked_mul(cache.key_dim.checked_add(cache.value_dim).ok_or(Overflow)?);
        let kv = tape.take(kv.and_then(|row| self.rows(row)))?;
        let normed = tape.take(self.rows(self.hidden))?;
        tape.all_done(&[normed, kv, queries, attended, output]);
        Ok(())
    }

    fn recurrence(&self, tape: &mut Tape, layer: &LayerMemory) -> Result<(), Overflow> {
        let Some(state) = layer.state else { return Ok(()) };
        let (inner, channels) = (self.part(state.inner), self.part(state.channels));
        let output = tape.take(self.rows(self.hidden))?;
        let gate = tape.take(self.rows(inner))?;
        let recurred = tape.take(self.rows(inner))?;
        let convolved = tape.take(self.rows(channels))?;
        let projected = tape.take(self.rows(channels))?;
        let normed = tape.take(self.rows(self.hidden))?;
        tape.all_done(&[normed, projected, convolved, recurred, gate, output]);
        Ok(())
    }

    fn feed_forward(&self, tape: &mut Tape, layer: &LayerMemory, experts: &Experts) -> Result<(), Overflow> {
        let output = tape.take(self.rows(self.hidden))?;
        let normed = tape.take(self.rows(self.hidden))?;
        if experts.count > 0 {
            let used = experts.used.max(1);
            let routes = tape.take(self.rows(experts.count))?;
            let down = tape.take(used.checked_mul(self.hidden).and_then(|row| self.rows(row)))?;
            // Gate and up side by side; the activation works in place.
            let up = used.checked_mul(self.part(experts.size)).and_then(|row| row.checked_mul(2));
            let up = tape.take(up.and_then(|row| self.rows(row)))?;
            tape.all_done(&[up, down, routes]);
        }
        let up = tape.take(self.part(layer.feed_forward).checked_mul(2).and_then(|row| self.rows(row)))?;
        tape.all_done(&[up, normed, output]);
        Ok(())
    }
}

/// The high-water mark of one image in a vision tower: its patches are the tokens.
pub(super) fn vision(vision: &Vision) -> Result<Bytes, Overflow> {
    let pass = Pass { tokens: vision.patches(), hidden: vision.hidden, parts: 1 };
    let dim = vision.hidden.checked_div(vision.heads).unwrap_or(0);
    let cache =
        crate::layout::LayerCache { kv_heads: vision.heads, key_dim: dim, value_dim: dim, window: None, indexer: 0 };
    let layer = LayerMemory { heads: vision.heads, feed_forward: vision.feed_forward, cache: Some(cache), state: None };
    // Three colours of 32-bit pixels in, one row of the language model a patch out.
    let pixels = vision.image.checked_mul(vision.image).and_then(|all| all.checked_mul(3 * ELEMENT)).ok_or(Overflow)?;
    let rows = vision.patches().checked_mul(vision.projection).and_then(|all| all.checked_mul(ELEMENT));
    let layer = pass.layer(&layer, &Experts::default())?;
    layer.plus(Bytes::new(pixels))?.plus(Bytes::new(rows.ok_or(Overflow)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::LayerCache;

    fn dense(heads: u64, kv_heads: u64, dim: u64, feed_forward: u64) -> LayerMemory {
        let cache = LayerCache { kv_heads, key_dim: dim, value_dim: dim, window: None, indexer: 0 };
        LayerMemory { heads, feed_forward, cache: Some(cache), state: None }
    }

    #[test]
    fn the_mark_is_the_larger_half_of_a_layer_not_the_sum() {
        // 512 tokens of Llama 3 8B. The feed-forward is the peak: residual, output and norm of 4096, twice 14336.
        let pass = Pass { tokens: 512, hidden: 4096, parts: 1 };
        let mark = pass.layer(&dense(32, 8, 128, 14_336), &Experts::default()).unwrap();
        assert_eq!(mark, Bytes::new(512 * 4 * (3 * 4096 + 2 * 14_336)));
        // With a narrow feed-forward attention is: residual, output, attended, queries, keys and values, norm.
        let mark = pass.layer(&dense(32, 8, 128, 64), &Experts::default()).unwrap();
        assert_eq!(mark, Bytes::new(512 * 4 * (2 * 4096 + 4096 + 4096 + 2048 + 4096)));
    }

    #[test]
    fn experts_are_charged_the_rows_that_are_routed_to_them() {
        let pass = Pass { tokens: 1, hidden: 2048, parts: 1 };
        let experts = Experts { count: 128, used: 8, size: 768 };
        let mark = pass.layer(&dense(32, 4, 128, 0), &experts).unwrap();
        assert_eq!(mark, Bytes::new(4 * (3 * 2048 + 128 + 8 * 2048 + 8 * 2 * 768)));
    }

    #[test]
    fn absurd_sizes_are_an_error() {
        let pass = Pass { tokens: u64::MAX, hidden: 4096, parts: 1 };
        assert_eq!(pass.layer(&dense(1, 1, 1, 1), &Experts::default()), Err(Overflow));
    }
}
