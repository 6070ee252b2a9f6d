//! Checkpoints of safetensors: a folder with a `config.json`, and one file of tensors or several with an index.
//!
//! Only headers are read: the length of the JSON, the JSON, and nothing of the tensors' data. Like GGUF's reader this
//! one takes untrusted bytes: every length and offset is checked against the file and a limit before it is used.

mod config;
mod error;
mod header;
mod names;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

pub use error::SafetensorsError;
pub use header::{Dtype, Tensor, parse_header, read_header};

use crate::layout::facts::Facts;
use crate::layout::{LayoutError, LayoutWarning, ModelLayout, Place, Vision, Weight, lay_out};

/// A folder's headers and configuration.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Checkpoint {
    /// The folder.
    pub path: PathBuf,
    /// All tensors, by name.
    pub tensors: Vec<Tensor>,
    /// `config.json`.
    config: serde_json::Map<String, serde_json::Value>,
}

/// A configuration or an index above this is no model's.
const MAX_JSON: u64 = 64 << 20;

impl Checkpoint {
    /// Opens a folder: `config.json`, and `model.safetensors.index.json` with its parts or the one `.safetensors` file.
    ///
    /// # Errors
    /// [`SafetensorsError`] naming the file, and the tensor or the offset at fault.
    pub fn open(folder: &Path) -> Result<Checkpoint, SafetensorsError> {
        let config = object(&folder.join("config.json"))?;
        let index = folder.join("model.safetensors.index.json");
        let tensors = if index.exists() { sharded(folder, &index)? } else { read_file(&only_file(folder)?)? };
        Checkpoint::of(folder, config, tensors)
    }

    /// A checkpoint that is in memory: the text of its `config.json` and the tensors of its headers.
    ///
    /// ```
    /// use memtier_model::safetensors::{Checkpoint, parse_header};
    /// let header = br#"{"model.norm.weight":{"dtype":"BF16","shape":[8],"data_offsets":[0,16]}}"#;
    /// let config = br#"{"model_type":"llama","num_hidden_layers":2,"hidden_size":8,"num_attention_heads":2}"#;
    /// let layout = Checkpoint::from_json(config, parse_header(header, 16)?)?.layout()?;
    /// assert_eq!(layout.layers.len(), 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`SafetensorsError::TooLong`], [`SafetensorsError::Json`] and [`SafetensorsError::DuplicateTensor`].
    pub fn from_json(config: &[u8], tensors: Vec<Tensor>) -> Result<Checkpoint, SafetensorsError> {
        let path = Path::new("config.json");
        Checkpoint::of(Path::new(""), json(path, config)?, tensors)
    }

    fn of(
        folder: &Path,
        config: serde_json::Map<String, serde_json::Value>,
        mut tensors: Vec<Tensor>,
    ) -> Result<Checkpoint, SafetensorsError> {
        tensors.sort_by(|a, b| a.name.cmp(&b.name));
        if let Some(pair) = tensors.windows(2).find(|pair| pair[0].name == pair[1].name) {
            return Err(SafetensorsError::DuplicateTensor { tensor: pair[1].name.clone() });
        }
        Ok(Checkpoint { path: folder.to_owned(), tensors, config })
    }

    /// Lays out the model.
    ///
    /// # Errors
    /// As [`ModelLayout::from_gguf`].
    pub fn layout(&self) -> Result<ModelLayout, LayoutError> {
        let translated = config::translate(&self.config)?;
        let mut warnings = translated.warnings;
        let mut weights: Vec<Weight> = self
            .tensors
            .iter()
            .map(|tensor| Weight::new(tensor.name.clone(), tensor.bytes, translated.layers))
            .collect();
        if translated.tied {
            // Stored by some converters, loaded by nobody.
            weights.retain(|weight| {
                let copy = weight.name.ends_with("lm_head.weight");
                if copy {
                    let (tensor, bytes) = (weight.name.clone(), weight.bytes);
                    warnings.push(LayoutWarning::TiedOutput { tensor, bytes });
                }
                !copy
            });
        }
        let facts = Facts::of_config(translated.architecture, &translated.canon, &weights);
        let stack = lay_out(&facts)?;
        let hidden = facts.size("embedding_length")?;
        let context = facts.tokens("context_length")?;
        let name = self.path.file_name().map(|name| name.to_string_lossy().into_owned());
        let mut layout = stack.into_layout(translated.architecture, name, translated.vocab, hidden, context, weights);
        layout.warnings.extend(warnings);
        if layout.vision.is_some() {
            let bytes = layout.weight_bytes(|weight| weight.place == Place::Vision);
            let vision = Vision { bytes, projection: hidden, ..translated.vision.unwrap_or_default() };
            if vision.patches() == 0 || vision.hidden == 0 {
                layout.warnings.push(LayoutWarning::VisionGeometry);
            }
            layout.vision = Some(vision);
        }
        Ok(layout)
    }
}

fn object(path: &Path) -> Result<serde_json::Map<String, serde_json::Value>, SafetensorsError> {
    let open = |source| SafetensorsError::Open { path: path.to_owned(), source };
    let size = fs::metadata(path).map_err(open)?.len();
    if size > MAX_JSON {
        return Err(SafetensorsError::TooLong { path: path.to_owned(), found: size, limit: MAX_JSON });
    }
    json(path, &fs::read(path).map_err(open)?)
}

fn json(path: &Path, text: &[u8]) -> Result<serde_json::Map<String, serde_json::Value>, SafetensorsError> {
    let size = text.len() as u64;
    if size > MAX_JSON {
        return Err(SafetensorsError::TooLong { path: path.to_owned(), found: size, limit: MAX_JSON });
    }
    serde_json::from_slice(text)
        .map_err(|error| SafetensorsError::Json { path: path.to_owned(), reason: error.to_string() })
}

fn read_file(path: &Path) -> Result<Vec<Tensor>, SafetensorsError> {
    let open = |source| SafetensorsError::Open { path: path.to_owned(), source };
    let file = File::open(path).map_err(open)?;
    let size = file.metadata().map_err(open)?.len();
    read_header(file, size).map_err(|error| error.in_file(path))
}

/// The only `.safetensors` file of a folder.
fn only_file(folder: &Path) -> Result<PathBuf, SafetensorsError> {
    let named = folder.join("model.safetensors");
    if named.exists() {
        return Ok(named);
    }
    let open = |source| SafetensorsError::Open { path: folder.to_owned(), source };
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).map_err(open)? {
        let path = entry.map_err(open)?.path();
        if path.extension().is_some_and(|extension| extension == "safetensors") {
            files.push(path);
        }
    }
    match files.len() {
        1 => Ok(files.swap_remove(0)),
        found => Err(SafetensorsError::WhichFile { folder: folder.to_owned(), found }),
    }
}

/// The tensors of all parts, each where the index says.
fn sharded(folder: &Path, index: &Path) -> Result<Vec<Tensor>, SafetensorsError> {
    let json = object(index)?;
    let bad = |reason: String| SafetensorsError::Json { path: index.to_owned(), reason };
    let map = json.get("weight_map").and_then(|map| map.as_object()).ok_or_else(|| bad("no \"weight_map\"".into()))?;
    let mut parts: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (tensor, file) in map {
        let file = file.as_str().ok_or_else(|| bad(format!("the file of \"{tensor}\" is no text")))?;
        // An index comes from a stranger: it names files beside it, never a path.
        if file.contains(['/', '\\', ':']) || file == ".." {
            return Err(bad(format!("\"{tensor}\" is in \"{file}\", which is not a name in the folder")));
        }
        parts.entry(file).or_default().push(tensor);
    }
    let mut tensors = Vec::new();
    for (file, names) in parts {
        let path = folder.join(file);
        let found: BTreeMap<String, Tensor> =
            read_file(&path)?.into_iter().map(|tensor| (tensor.name.clone(), tensor)).collect();
        for name in names {
            let tensor = found
                .get(name)
                .ok_or_else(|| SafetensorsError::MissingTensor { tensor: name.to_owned(), path: path.clone() })?;
            tensors.push(tensor.clone());
        }
    }
    Ok(tensors)
}
