//! From a person's words to the model's tokens.

use memtier_engine::{
    EngineError,
    tokenizer::{Message, Special, Tokenizer},
};

/// The tokens of a prompt: through the model's chat template, or as it is.
pub(crate) fn tokens(tokenizer: &Tokenizer, prompt: &str, raw: bool) -> Result<Vec<u32>, EngineError> {
    if prompt.is_empty() {
        return Err(EngineError::EmptyPrompt);
    }
    match tokenizer.chat_template().filter(|_| !raw) {
        None => Ok(tokenizer.encode_prompt(prompt)),
        Some(template) => {
            let messages = [Message { role: "user", content: prompt }];
            let text = template.render(&messages, true).map_err(|error| EngineError::Unsupported {
                what: format!("this chat template ({error})"),
                why: "use --raw to give the prompt as it is",
            })?;
            // The template writes the beginning of the text itself.
            Ok(tokenizer.encode(&text, Special::Parse, false))
        }
    }
}
