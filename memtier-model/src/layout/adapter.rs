//! LoRA adapters.

use super::error::LayoutError;
use crate::gguf::Gguf;

/// A LoRA adapter, loaded beside the model it changes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Adapter {
    /// Its name, when it has one.
    pub name: Option<String>,
    /// The architecture it was made for.
    pub architecture: String,
    /// Bytes of its tensors.
    pub bytes: u64,
    /// The largest rank of its pairs of tensors.
    pub rank: u64,
}

impl Adapter {
    /// Reads the header of a GGUF adapter (`general.type` is `adapter`).
    ///
    /// # Errors
    /// [`LayoutError::NotAModel`] when the file is not one, or is one of another kind than LoRA.
    pub fn from_gguf(file: &Gguf<'_>) -> Result<Adapter, LayoutError> {
        let metadata = file.metadata();
        let kind = metadata.optional::<&str>("general.type")?.unwrap_or("model");
        let form = metadata.optional::<&str>("adapter.type")?.unwrap_or("");
        if kind != "adapter" || form != "lora" {
            let what = format!("a file of type \"{kind}\" and adapter type \"{form}\"");
            return Err(LayoutError::NotAModel { what, remedy: "--lora takes a GGUF adapter of type \"lora\"" });
        }
        // Of a pair `x.lora_a` and `x.lora_b`, the former's rows are the rank.
        let pairs = file.tensors().iter().filter(|tensor| tensor.name.ends_with(".lora_a"));
        let rank = pairs.filter_map(|tensor| tensor.shape.rows()).max().unwrap_or(0);
        Ok(Adapter {
            name: metadata.optional::<&str>("general.name").ok().flatten().map(str::to_owned),
            architecture: metadata.str("general.architecture")?.to_owned(),
            bytes: file.tensor_bytes(),
            rank,
        })
    }
}
