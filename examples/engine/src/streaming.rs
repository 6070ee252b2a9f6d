//! Sequences that run past their planned length: the first tokens and the latest stay, what lies between goes.
//!
//! StreamingLLM (Xiao et al., 2023): a model puts much of its attention on the first tokens whatever they say, so a window that
//! keeps those sinks goes on for ever where a window alone falls apart. Positions are those within what is kept: between
//! the sinks and the window there is no gap. Rotary scores depend on distances only, and those within the window are what they
//! were; so keys stay as they were written, and only the queries are rotated anew, once more, for the look at the sinks.

use crate::EngineError;

/// How sequences run past [`max_seq_len`](crate::Settings::max_seq_len).
///
/// A token at position p sees positions below `sinks` and the latest `window`, its own included. What it sees depends on
/// nothing else: not on the chunks of a prompt, nor on when blocks are released.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Streaming {
    /// Tokens at the beginning that stay: whole blocks. None at all is a window alone, with which answers fall apart.
    pub sinks: usize,
    /// The latest tokens, which stay.
    pub window: usize,
    /// Tokens of one sequence, prompt and answer: the length of its block table.
    pub most: usize,
}

impl Streaming {
    /// Refuses what leaves no room in a sequence's blocks.
    ///
    /// # Errors
    /// [`EngineError::Setting`].
    pub(crate) fn check(&self, max_seq_len: usize, block_tokens: usize) -> Result<(), EngineError> {
        let refuse =
            |name, value: usize, remedy: String| Err(EngineError::Setting { name, value: value.to_string(), remedy });
        if !self.sinks.is_multiple_of(block_tokens.max(1)) {
            return refuse("stream-sinks", self.sinks, format!("use a multiple of --block-tokens, {block_tokens}"));
        }
        if self.window == 0 {
            return refuse("stream-window", self.window, "keep at least one token".to_owned());
        }
        // A window can begin anywhere in a block, and the next tokens need one.
        let needed = self.sinks.saturating_add(self.window).saturating_add(2 * block_tokens);
        let context = max_seq_len / block_tokens.max(1) * block_tokens;
        if needed > context {
            let remedy = format!(
                "sinks, window and two blocks are {needed} tokens and --max-seq-len holds {context}: use a window of at most {}",
                context.saturating_sub(self.sinks + 2 * block_tokens)
            );
            return refuse("stream-window", self.window, remedy);
        }
        if self.most <= max_seq_len {
            let remedy = format!("without --stream-window a sequence has {max_seq_len} tokens: use more");
            return refuse("stream-len", self.most, remedy);
        }
        Ok(())
    }

    /// The first position of the window of a token at `position`.
    pub(crate) fn first(&self, position: usize) -> usize {
        (position + 1).saturating_sub(self.window)
    }

    /// Where a token at `position` is among those that are kept.
    pub(crate) fn place(&self, position: u32) -> u32 {
        let gap = (position as usize + 1).saturating_sub(self.window + self.sinks);
        position - gap as u32
    }

    /// Tokens at the beginning of a sequence that saw all before them: what is the same without streaming.
    pub(crate) fn whole(&self) -> usize {
        self.sinks + self.window
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_have_no_gap() {
        let streaming = Streaming { sinks: 16, window: 40, most: 1000 };
        for position in 0..300u32 {
            let at = position as usize;
            let seen: Vec<usize> = (0..=at).filter(|other| *other < 16 || *other >= streaming.first(at)).collect();
            assert_eq!(streaming.place(position) as usize, seen.len() - 1, "{position}");
            assert_eq!(seen.len(), (at + 1).min(56));
        }
    }

    #[test]
    fn what_leaves_no_room_is_refused() {
        let fine = Streaming { sinks: 16, window: 64, most: 10_000 };
        assert!(fine.check(112, 16).is_ok());
        let said = |streaming: Streaming, context| streaming.check(context, 16).unwrap_err().to_string();
        assert!(said(fine, 111).contains("use a window of at most 48"));
        assert!(
            said(Streaming { sinks: 4, ..fine }, 256)
                .contains("stream-sinks is 4: use a multiple of --block-tokens, 16")
        );
        assert!(said(Streaming { window: 0, ..fine }, 256).contains("stream-window is 0"));
        assert!(said(Streaming { most: 256, ..fine }, 256).contains("stream-len is 256"));
    }
}
