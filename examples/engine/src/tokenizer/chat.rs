//! Chat templates: the file's own, run by `minijinja`, or a built-in one.

use memtier_model::Metadata;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::Value;
use minijinja::{Environment, Error, ErrorKind, context};
use thiserror::Error as ThisError;

use super::error::TokenizerError;
use super::vocab::Vocab;

/// One message of a chat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'m> {
    /// `system`, `user` or `assistant`.
    pub role: &'m str,
    /// What is said.
    pub content: &'m str,
}

/// Why a chat template failed.
#[derive(Debug, ThisError)]
#[non_exhaustive]
pub enum ChatError {
    /// It does not parse, uses something unknown, or refused the messages (roles that do not alternate, say).
    #[error("the template failed: {0:#}")]
    Template(Error),
}

/// A chat template.
#[derive(Clone, Debug)]
pub struct ChatTemplate {
    source: String,
    bos: String,
    eos: String,
    /// BOS is not rendered when the tokenizer adds it anyway.
    strip_bos: bool,
}

/// What one rendering may cost, in minijinja's units (about an instruction or 64 bytes each): a template comes with the
/// file, and must not be able to hang a server. A chat of a hundred thousand words takes a hundredth of this.
const FUEL: u64 = 10_000_000;

/// For vocabularies with `<|im_start|>`.
const CHATML: &str = "\
{% for message in messages %}{{ '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}{% endfor %}\
{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

/// For vocabularies with `<start_of_turn>`. Gemma has no system role: what it would say begins the first user's turn.
const GEMMA: &str = "\
{% set turn = namespace(system='') %}\
{% for message in messages %}\
{% if message.role == 'system' %}{% set turn.system = turn.system + (message.content | trim) + '\n\n' %}\
{% else %}{{ '<start_of_turn>' + ('model' if message.role == 'assistant' else message.role) + '\n' }}\
{% if message.role != 'assistant' %}{{ turn.system }}{% set turn.system = '' %}{% endif %}\
{{ (message.content | trim) + '<end_of_turn>\n' }}{% endif %}{% endfor %}\
{% if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %}";

impl ChatTemplate {
    /// The template of a file; without one, that of the turn tokens in its vocabulary.
    pub(super) fn of(metadata: Metadata<'_>, vocab: &Vocab) -> Result<Option<ChatTemplate>, TokenizerError> {
        let built_in = || {
            let has = |text: &str| vocab.find(text.as_bytes()).is_some();
            match (has("<start_of_turn>"), has("<|im_start|>")) {
                (true, _) => Some(GEMMA),
                (_, true) => Some(CHATML),
                _ => None,
            }
        };
        let Some(source) = metadata.optional::<&str>("tokenizer.chat_template")?.or_else(built_in) else {
            return Ok(None);
        };
        let text = |id: Option<u32>| {
            let text = id.and_then(|id| vocab.token(id)).map(|token| token.0);
            String::from_utf8_lossy(text.unwrap_or_default()).into_owned()
        };
        let strip_bos = vocab.add_bos && vocab.bos.is_some();
        let template =
            ChatTemplate { source: source.to_owned(), bos: text(vocab.bos), eos: text(vocab.eos), strip_bos };
        template
            .environment()
            .and_then(|environment| environment.template_from_str(&template.source).map(drop))
            .map_err(ChatError::Template)?;
        Ok(Some(template))
    }

    /// The settings under which Hugging Face's templates are written.
    fn environment(&self) -> Result<Environment<'static>, Error> {
        let mut environment = Environment::new();
        environment.set_syntax(SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?);
        environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        environment.set_fuel(Some(FUEL));
        environment.add_function("raise_exception", |message: String| -> Result<Value, Error> {
            Err(Error::new(ErrorKind::InvalidOperation, message))
        });
        Ok(environment)
    }

    /// Renders a chat as the text of a prompt: encode it with control tokens parsed. `add_generation_prompt` opens
    /// the assistant's turn at the end. Text of control tokens within a message is not escaped, as in every other
    /// engine: whoever passes on what strangers write must look for it.
    ///
    /// # Errors
    /// [`ChatError`] when the template refuses the messages or fails.
    pub fn render(&self, messages: &[Message<'_>], add_generation_prompt: bool) -> Result<String, ChatError> {
        let messages: Value =
            messages.iter().map(|message| context! { role => message.role, content => message.content }).collect();
        let variables = context! {
            messages,
            add_generation_prompt,
            bos_token => self.bos.as_str(),
            eos_token => self.eos.as_str(),
        };
        let environment = self.environment().map_err(ChatError::Template)?;
        let text = environment.render_str(&self.source, variables).map_err(ChatError::Template)?;
        Ok(match text.strip_prefix(&self.bos) {
            Some(rest) if self.strip_bos => rest.to_owned(),
            _ => text,
        })
    }

    /// The template's source.
    pub fn source(&self) -> &str {
        &self.source
    }
}
