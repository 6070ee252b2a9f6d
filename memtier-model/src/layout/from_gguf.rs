//! A layout from a GGUF header.

use super::adapter::Adapter;
use super::error::{LayoutError, LayoutWarning};
use super::facts::Facts;
use super::vision::Vision;
use super::weights::Weight;
use super::{ModelLayout, lay_out};
use crate::gguf::Gguf;

impl ModelLayout {
    /// Lays out a GGUF model.
    ///
    /// # Errors
    /// [`LayoutError`]: a file that is no language model, an architecture that is not known and does not explain
    /// itself, a key that is missing, of the wrong type or out of range, or values that contradict each other.
    pub fn from_gguf(model: &Gguf<'_>) -> Result<ModelLayout, LayoutError> {
        let metadata = model.metadata();
        let architecture = metadata.str("general.architecture")?;
        no_model(architecture, metadata.optional::<&str>("general.type")?)?;

        let drafts = {
            let facts = Facts::of_gguf(architecture, model, &[]);
            facts.draft_blocks()?.min(facts.blocks()?)
        };
        let layers = Facts::of_gguf(architecture, model, &[]).blocks()? - drafts;
        let weights: Vec<Weight> =
            model.tensors().iter().map(|tensor| Weight::new(tensor.name.clone(), tensor.byte_len, layers)).collect();
        let facts = Facts::of_gguf(architecture, model, &weights);
        let stack = lay_out(&facts)?;

        // The embedding's rows decide, as in ggml; a model cut down to its layers has neither rows nor tokens.
        let rows = model.tensor("token_embd.weight").and_then(|tensor| tensor.shape.rows());
        let tokens = metadata.optional::<crate::gguf::Array<'_>>("tokenizer.ggml.tokens").ok().flatten();
        let vocab_size = rows.or(tokens.map(|array| array.len() as u64)).unwrap_or(0);
        let hidden_size = facts.size("embedding_length")?;
        let context_length = facts.tokens("context_length")?;
        let name = metadata.optional::<&str>("general.name").ok().flatten().map(str::to_owned);
        Ok(stack.into_layout(architecture, name, vocab_size, hidden_size, context_length, weights))
    }

    /// Adds a vision tower from its `mmproj` file.
    ///
    /// # Errors
    /// As [`Vision::from_gguf`].
    pub fn add_vision(&mut self, file: &Gguf<'_>) -> Result<(), LayoutError> {
        let (vision, weights) = Vision::from_gguf(file)?;
        if vision.patches() == 0 || vision.hidden == 0 {
            self.warnings.push(LayoutWarning::VisionGeometry);
        }
        self.weights.extend(weights);
        self.vision = Some(vision);
        Ok(())
    }

    /// Adds a LoRA adapter from its file.
    ///
    /// # Errors
    /// As [`Adapter::from_gguf`], and when the adapter was made for another architecture.
    pub fn add_adapter(&mut self, file: &Gguf<'_>) -> Result<(), LayoutError> {
        let adapter = Adapter::from_gguf(file)?;
        if adapter.architecture != self.architecture {
            let what =
                format!("a LoRA adapter for \"{}\", and the model is \"{}\"", adapter.architecture, self.architecture);
            return Err(LayoutError::NotAModel { what, remedy: "use an adapter that was trained for this model" });
        }
        self.adapters.push(adapter);
        Ok(())
    }
}

/// Files that are GGUF and no language model, with what to do instead.
fn no_model(architecture: &str, kind: Option<&str>) -> Result<(), LayoutError> {
    let not = |what: &str, remedy| Err(LayoutError::NotAModel { what: what.to_owned(), remedy });
    match (architecture, kind) {
        ("clip", _) | (_, Some("mmproj")) => {
            not("a vision projector", "give the model itself, and this file with --mmproj")
        }
        (_, Some("adapter")) => not("a LoRA adapter", "give the model itself, and this file with --lora"),
        (_, Some("imatrix")) => not("an importance matrix", "give the model itself"),
        _ => Ok(()),
    }
}
