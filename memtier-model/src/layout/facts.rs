//! What an architecture asks of a file: hyperparameters by GGUF's names, and whether a tensor is there.

use std::collections::BTreeMap;

use super::error::LayoutError;
use super::weights::Weight;
use crate::gguf::{Array, Gguf, MetadataError, Value};

/// A bound on counts and sizes, far above any model: with it a product of three stays within 64 bits.
const MAX: u64 = 1 << 20;
const MAX_TOKENS: u64 = 1 << 40;
/// A bound on layers, so that per-layer tables stay small.
const MAX_LAYERS: u64 = 4096;

/// Hyperparameters of a `config.json`, under GGUF's names.
#[derive(Clone, Debug, Default)]
pub(crate) struct Canon {
    pub(crate) values: BTreeMap<&'static str, Canonical>,
}

/// One of them.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Canonical {
    One(u64),
    Each(Vec<u64>),
}

fn sorted(weights: &[Weight]) -> Vec<&str> {
    let mut names: Vec<&str> = weights.iter().map(|weight| weight.name.as_str()).collect();
    names.sort_unstable();
    names
}

enum Source<'a> {
    Gguf(&'a Gguf<'a>),
    Config(&'a Canon),
}

/// Reads the hyperparameters of one architecture and checks their ranges.
pub(crate) struct Facts<'a> {
    pub(crate) architecture: &'a str,
    /// Names of all tensors, sorted.
    names: Vec<&'a str>,
    source: Source<'a>,
}

impl<'a> Facts<'a> {
    pub(crate) fn of_gguf(architecture: &'a str, model: &'a Gguf<'a>, weights: &'a [Weight]) -> Self {
        Facts { architecture, names: sorted(weights), source: Source::Gguf(model) }
    }

    pub(crate) fn of_config(architecture: &'a str, canon: &'a Canon, weights: &'a [Weight]) -> Self {
        Facts { architecture, names: sorted(weights), source: Source::Config(canon) }
    }

    fn key(&self, name: &str) -> String {
        match self.source {
            Source::Gguf(_) => format!("{}.{name}", self.architecture),
            Source::Config(_) => name.to_owned(),
        }
    }

    pub(crate) fn missing(&self, name: &str) -> LayoutError {
        MetadataError::Missing { key: self.key(name) }.into()
    }

    pub(crate) fn inconsistent(&self, what: String) -> LayoutError {
        LayoutError::Inconsistent { architecture: self.architecture.to_owned(), what }
    }

    fn bounded(&self, name: &str, value: u64, max: u64) -> Result<u64, LayoutError> {
        if value <= max {
            return Ok(value);
        }
        let (key, found) = (self.key(name), value.to_string());
        Err(MetadataError::OutOfRange { key, found, range: format!("0 to {max}") }.into())
    }

    /// A number that all layers share.
    pub(crate) fn number(&self, name: &str) -> Result<Option<u64>, LayoutError> {
        self.any_number(name)?.map(|value| self.bounded(name, value, MAX)).transpose()
    }

    /// Tokens: contexts and windows go further than other sizes.
    pub(crate) fn tokens(&self, name: &str) -> Result<Option<u64>, LayoutError> {
        self.any_number(name)?.map(|value| self.bounded(name, value, MAX_TOKENS)).transpose()
    }

    fn any_number(&self, name: &str) -> Result<Option<u64>, LayoutError> {
        let value = match self.source {
            Source::Gguf(model) => model.metadata().optional::<u64>(&self.key(name))?,
            Source::Config(canon) => match canon.values.get(name) {
                None => None,
                Some(Canonical::One(value)) => Some(*value),
                Some(Canonical::Each(_)) => {
                    return Err(self.inconsistent(format!("{name} is a list where one number belongs")));
                }
            },
        };
        Ok(value)
    }

    /// A required number of at least 1.
    pub(crate) fn size(&self, name: &str) -> Result<u64, LayoutError> {
        let value = self.number(name)?.ok_or_else(|| self.missing(name))?;
        if value == 0 {
            let range = format!("1 to {MAX}");
            return Err(MetadataError::OutOfRange { key: self.key(name), found: "0".into(), range }.into());
        }
        Ok(value)
    }

    /// Layers in the file: those of the model and those that only draft.
    pub(crate) fn blocks(&self) -> Result<u64, LayoutError> {
        let blocks = self.size("block_count")?;
        self.bounded("block_count", blocks, MAX_LAYERS)
    }

    /// Layers at the end that only draft.
    pub(crate) fn draft_blocks(&self) -> Result<u64, LayoutError> {
        Ok(self.number("nextn_predict_layers")?.unwrap_or(0))
    }

    fn gguf_value(&self, name: &str) -> Option<Value<'a>> {
        match self.source {
            Source::Gguf(model) => model.metadata().get(&self.key(name)),
            Source::Config(_) => None,
        }
    }

    /// One number a layer, from an array or from one value. Booleans count as 0 and 1, because converters write
    /// patterns as either. An array may cover the layers without those that draft, which then get `filler`.
    pub(crate) fn per_layer(&self, name: &str, filler: u64) -> Result<Option<Vec<u64>>, LayoutError> {
        let layers = usize::try_from(self.blocks()?).unwrap_or(usize::MAX);
        let mut values = match self.source {
            Source::Gguf(_) => match self.gguf_value(name) {
                None => return Ok(None),
                Some(Value::Array(array)) => self.elements(name, array, layers)?,
                Some(value) => vec![self.integer(name, value)?; layers],
            },
            Source::Config(canon) => match canon.values.get(name) {
                None => return Ok(None),
                Some(Canonical::One(value)) => vec![*value; layers],
                Some(Canonical::Each(values)) => values.clone(),
            },
        };
        let without_drafts = layers - usize::try_from(self.draft_blocks()?).unwrap_or(0).min(layers);
        if values.len() != layers && values.len() != without_drafts {
            let (key, found) = (self.key(name), values.len());
            return Err(MetadataError::NotPerLayer { key, found, layers: layers as u32 }.into());
        }
        values.resize(layers, filler);
        for &value in &values {
            self.bounded(name, value, MAX)?;
        }
        Ok(Some(values))
    }

    fn elements(&self, name: &str, array: Array<'_>, layers: usize) -> Result<Vec<u64>, LayoutError> {
        // The array is within the file, but one much longer than the layers is not worth walking.
        if array.len() > layers {
            let (key, found) = (self.key(name), array.len());
            return Err(MetadataError::NotPerLayer { key, found, layers: layers as u32 }.into());
        }
        array.iter().map(|value| self.integer(name, value)).collect()
    }

    fn integer(&self, name: &str, value: Value<'_>) -> Result<u64, LayoutError> {
        let found = match value {
            Value::Bool(on) => return Ok(on.into()),
            other => other.as_integer(),
        };
        let key = || self.key(name);
        let found = found.ok_or_else(|| MetadataError::WrongType {
            key: key(),
            wanted: "an integer",
            found: value.value_type(),
        })?;
        u64::try_from(found).map_err(|_| {
            MetadataError::OutOfRange { key: key(), found: found.to_string(), range: format!("0 to {MAX}") }.into()
        })
    }

    /// Whether the value is an array: a pattern may be a period instead.
    pub(crate) fn is_list(&self, name: &str) -> bool {
        match self.source {
            Source::Gguf(_) => matches!(self.gguf_value(name), Some(Value::Array(_))),
            Source::Config(canon) => matches!(canon.values.get(name), Some(Canonical::Each(_))),
        }
    }

    /// Whether layer `layer` has a tensor whose name (after `blk.N.`) begins with `stem`. Files of safetensors name
    /// theirs otherwise, so that architectures must not rest on this alone.
    pub(crate) fn has_tensor(&self, layer: u64, stem: &str) -> bool {
        let prefix = format!("blk.{layer}.{stem}");
        let at = self.names.partition_point(|name| *name < prefix.as_str());
        self.names.get(at).is_some_and(|name| name.starts_with(&prefix))
    }

    /// Whether tensors follow GGUF's names.
    pub(crate) fn is_gguf(&self) -> bool {
        matches!(self.source, Source::Gguf(_))
    }
}
