//! The hyperparameters that architectures have in common, read under the architecture's prefix.

use std::fmt::Display;
use std::ops::RangeInclusive;

use super::Architecture;
use super::error::DescribeError;
use super::layer::RopeScaling;
use crate::gguf::{FromValue, Gguf, Metadata, MetadataError};

/// Reads keys of one architecture and checks their ranges.
#[derive(Clone, Copy)]
pub(crate) struct Hparams<'m> {
    pub(crate) architecture: Architecture,
    model: &'m Gguf<'m>,
}

/// Upper bounds on hyperparameters, far above any model: they keep products within 64 bits and per-layer tables small.
const MAX_LAYERS: u32 = 4096;
const MAX_HEADS: u32 = 1 << 16;
const MAX_SIZE: u32 = 1 << 24;

impl<'m> Hparams<'m> {
    pub(crate) fn new(architecture: Architecture, model: &'m Gguf<'_>) -> Self {
        Hparams { architecture, model }
    }

    fn metadata(&self) -> Metadata<'m> {
        self.model.metadata()
    }

    pub(crate) fn key(&self, name: &str) -> String {
        format!("{}.{name}", self.architecture.name())
    }

    pub(crate) fn optional<T: FromValue<'m>>(&self, name: &str) -> Result<Option<T>, DescribeError> {
        Ok(self.metadata().optional(&self.key(name))?)
    }

    fn missing(&self, name: &str) -> DescribeError {
        MetadataError::Missing { key: self.key(name) }.into()
    }

    fn in_range<T: PartialOrd + Display>(
        &self,
        name: &str,
        value: T,
        range: RangeInclusive<T>,
    ) -> Result<T, DescribeError> {
        if range.contains(&value) {
            return Ok(value);
        }
        Err(MetadataError::OutOfRange {
            key: self.key(name),
            found: value.to_string(),
            range: format!("{} to {}", range.start(), range.end()),
        }
        .into())
    }

    /// An optional size: elements, tokens or the like, at least 1.
    pub(crate) fn optional_size(&self, name: &str) -> Result<Option<u32>, DescribeError> {
        self.optional::<u32>(name)?.map(|value| self.in_range(name, value, 1..=MAX_SIZE)).transpose()
    }

    /// A required size.
    pub(crate) fn size(&self, name: &str) -> Result<u32, DescribeError> {
        self.optional_size(name)?.ok_or_else(|| self.missing(name))
    }

    /// An optional number above 0.
    pub(crate) fn optional_positive(&self, name: &str) -> Result<Option<f32>, DescribeError> {
        self.optional::<f32>(name)?.map(|value| self.in_range(name, value, f32::MIN_POSITIVE..=f32::MAX)).transpose()
    }

    /// A required number above 0.
    pub(crate) fn positive(&self, name: &str) -> Result<f32, DescribeError> {
        self.optional_positive(name)?.ok_or_else(|| self.missing(name))
    }

    pub(crate) fn layers(&self) -> Result<u32, DescribeError> {
        let layers = self.size("block_count")?;
        self.in_range("block_count", layers, 1..=MAX_LAYERS)
    }

    /// A size for each layer, from an array or from one value.
    fn size_per_layer(&self, name: &str, layers: u32, max: u32) -> Result<Option<Vec<u32>>, DescribeError> {
        let values = self.metadata().per_layer::<u32>(&self.key(name), layers)?;
        for &value in values.iter().flatten() {
            self.in_range(name, value, 1..=max)?;
        }
        Ok(values)
    }

    /// Query heads and key-value heads of each layer; a file without the latter has as many as of the former.
    pub(crate) fn heads(&self, layers: u32) -> Result<Vec<(u32, u32)>, DescribeError> {
        const QUERY: &str = "attention.head_count";
        const KEY_VALUE: &str = "attention.head_count_kv";
        let heads = self.size_per_layer(QUERY, layers, MAX_HEADS)?.ok_or_else(|| self.missing(QUERY))?;
        let kv_heads = self.size_per_layer(KEY_VALUE, layers, MAX_HEADS)?.unwrap_or_else(|| heads.clone());
        let pairs: Vec<_> = heads.into_iter().zip(kv_heads).collect();
        for (layer, &(heads, kv_heads)) in pairs.iter().enumerate() {
            if !heads.is_multiple_of(kv_heads) {
                return Err(self.inconsistent(format!(
                    "{} {heads} of layer {layer} is no multiple of {} {kv_heads}",
                    self.key(QUERY),
                    self.key(KEY_VALUE)
                )));
            }
        }
        Ok(pairs)
    }

    pub(crate) fn feed_forward(&self, layers: u32) -> Result<Vec<u32>, DescribeError> {
        const NAME: &str = "feed_forward_length";
        self.size_per_layer(NAME, layers, MAX_SIZE)?.ok_or_else(|| self.missing(NAME))
    }

    /// Elements of a key head and of a value head. Older files state neither: then the hidden size is shared out
    /// over the query heads, which must be the same number in all layers.
    pub(crate) fn head_dims(&self, hidden: u32, heads: &[(u32, u32)]) -> Result<(u32, u32), DescribeError> {
        let derived = || match heads {
            [(first, _), rest @ ..]
                if rest.iter().all(|(heads, _)| heads == first) && hidden.is_multiple_of(*first) =>
            {
                Ok(hidden / first)
            }
            _ => Err(self.inconsistent(format!(
                "the file has no {}, and {} {hidden} cannot be shared out evenly over the heads",
                self.key("attention.key_length"),
                self.key("embedding_length")
            ))),
        };
        let key = self.optional_size("attention.key_length")?.map_or_else(derived, Ok)?;
        let value = self.optional_size("attention.value_length")?.map_or_else(derived, Ok)?;
        self.in_range("attention.key_length", key, 1..=MAX_HEADS)?;
        self.in_range("attention.value_length", value, 1..=MAX_HEADS)?;
        Ok((key, value))
    }

    /// Elements of a head that are rotated: stated, or all of a key head.
    pub(crate) fn rope_dims(&self, key_dim: u32) -> Result<u32, DescribeError> {
        const NAME: &str = "rope.dimension_count";
        let dims = self.optional_size(NAME)?.unwrap_or(key_dim);
        if dims > key_dim || !dims.is_multiple_of(2) {
            return Err(self.inconsistent(format!(
                "{} is {dims}, and must be even and at most the head's {key_dim} elements",
                self.key(NAME)
            )));
        }
        Ok(dims)
    }

    /// The stretching of positions; `rope.scale_linear` is how files of 2023 said it.
    pub(crate) fn rope_scaling(&self) -> Result<RopeScaling, DescribeError> {
        let stated = self.optional_positive("rope.scaling.factor")?;
        let factor = stated.map_or_else(|| self.optional_positive("rope.scale_linear"), |factor| Ok(Some(factor)))?;
        let kind = self.optional::<&str>("rope.scaling.type")?;
        match (kind, factor) {
            (Some("none"), _) | (_, None) => Ok(RopeScaling::None),
            // Llama 3's own stretching is baked into `rope_freqs.weight`, and its files state no type.
            (None | Some("linear"), Some(factor)) => Ok(RopeScaling::Linear { factor }),
            (Some("yarn"), Some(factor)) => {
                let original_context = self.size("rope.scaling.original_context_length")?;
                Ok(RopeScaling::Yarn { factor, original_context })
            }
            (Some(other), Some(_)) => Err(self.unsupported(format!("rope scaling \"{other}\""), "rope.scaling.type")),
        }
    }

    /// Tokens of the vocabulary. The embedding's rows decide, as in ggml; where the file also states a size or lists
    /// the tokens, all must agree.
    pub(crate) fn vocab_size(&self) -> Result<u32, DescribeError> {
        let tokens = self.metadata().optional::<crate::gguf::Array<'_>>("tokenizer.ggml.tokens")?;
        let tokens = tokens.map(|array| array.len() as u64);
        let rows = self.model.tensor("token_embd.weight").and_then(|tensor| tensor.shape.rows());
        let stated = self.optional::<u32>("vocab_size")?.map(u64::from);
        if let (Some(tokens), Some(rows)) = (tokens, rows)
            && tokens != rows
        {
            return Err(self.inconsistent(format!(
                "tokenizer.ggml.tokens has {tokens} tokens, and token_embd.weight has {rows} rows"
            )));
        }
        let size = rows.or(tokens).or(stated).ok_or_else(|| self.missing("vocab_size"))?;
        let size = u32::try_from(size).unwrap_or(u32::MAX);
        self.in_range("vocab_size", size, 1..=MAX_SIZE)
    }

    pub(crate) fn name(&self) -> Option<String> {
        // A name is decoration: one that is no text is left out rather than refused.
        self.metadata().optional::<&str>("general.name").ok().flatten().map(str::to_owned)
    }

    pub(crate) fn inconsistent(&self, what: String) -> DescribeError {
        DescribeError::Inconsistent { architecture: self.architecture.name(), what }
    }

    pub(crate) fn unsupported(&self, feature: impl Into<String>, key: &str) -> DescribeError {
        let (architecture, key) = (self.architecture.name(), self.key(key));
        DescribeError::Unsupported { architecture, feature: feature.into(), key }
    }
}
