//! Text from tokens that arrive one at a time.

use super::Tokenizer;

/// Turns tokens into text as they arrive, and never gives out half a character: bytes that may still become one are
/// held back until they do or cannot.
///
/// ```no_run
/// # fn next() -> Option<u32> { None }
/// # let model = memtier_model::Gguf::open("model.gguf")?;
/// # let tokenizer = memtier_engine::tokenizer::Tokenizer::from_metadata(model.metadata())?;
/// let mut decoder = tokenizer.decoder();
/// while let Some(id) = next() {
///     print!("{}", decoder.push(id));
/// }
/// print!("{}", decoder.finish());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Decoder<'t> {
    tokenizer: &'t Tokenizer,
    show_control: bool,
    pending: Vec<u8>,
}

impl<'t> Decoder<'t> {
    pub(super) fn new(tokenizer: &'t Tokenizer) -> Decoder<'t> {
        Decoder { tokenizer, show_control: false, pending: Vec::new() }
    }

    /// Shows the text of control tokens too.
    pub fn show_control(mut self, show: bool) -> Self {
        self.show_control = show;
        self
    }

    /// The text that is complete with this token; often its piece, sometimes empty.
    pub fn push(&mut self, id: u32) -> String {
        self.pending.extend(self.tokenizer.piece(id, self.show_control));
        take_complete(&mut self.pending)
    }

    /// The end: bytes that no character came of are replaced by U+FFFD.
    pub fn finish(&mut self) -> String {
        let text = String::from_utf8_lossy(&self.pending).into_owned();
        self.pending.clear();
        text
    }
}

/// Takes the characters off the front of `pending`, with U+FFFD for what cannot become one; leaves an unfinished
/// character (at most three bytes) behind.
fn take_complete(pending: &mut Vec<u8>) -> String {
    let mut text = String::new();
    let mut done = 0;
    for chunk in pending.utf8_chunks() {
        text += chunk.valid();
        done += chunk.valid().len();
        let invalid = chunk.invalid();
        let at_end = done + invalid.len() == pending.len();
        if at_end && std::str::from_utf8(invalid).is_err_and(|error| error.error_len().is_none()) {
            break;
        }
        if !invalid.is_empty() {
            text.push(char::REPLACEMENT_CHARACTER);
        }
        done += invalid.len();
    }
    pending.drain(..done);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_character_is_given_out_in_halves_whatever_the_cuts() {
        let text = "a\u{e9}\u{4e2d}\u{1f600}z";
        for cut in 1..text.len() {
            let mut pending = Vec::new();
            let mut out = String::new();
            for chunk in text.as_bytes().chunks(cut) {
                pending.extend_from_slice(chunk);
                out += &take_complete(&mut pending);
                assert!(text.starts_with(&out));
                assert!(pending.len() < 4);
            }
            assert_eq!(out, text);
        }
    }

    #[test]
    fn what_cannot_become_a_character_is_replaced_at_once() {
        let mut pending = b"a\xffb\xe4\xb8".to_vec();
        assert_eq!(take_complete(&mut pending), "a\u{fffd}b");
        assert_eq!(pending, b"\xe4\xb8");
        pending.push(b'c');
        assert_eq!(take_complete(&mut pending), "\u{fffd}c");
        assert_eq!(pending, b"");
    }
}
