//! Writes what fuzzing starts from, headers of published models: `cargo run -p memtier-model --example corpus -- fuzz/corpus`.

#[path = "../tests/zoo/mod.rs"]
mod zoo;

use std::error::Error;
use std::fs;
use std::path::PathBuf;

use memtier_model::ModelLayout;
use serde_json::{Map, Value, json};

fn main() -> Result<(), Box<dyn Error>> {
    let folder = PathBuf::from(std::env::args_os().nth(1).ok_or("usage: corpus FOLDER")?);
    let (gguf, safetensors) = (folder.join("gguf"), folder.join("safetensors"));
    fs::create_dir_all(&gguf)?;
    fs::create_dir_all(&safetensors)?;
    for (name, model) in zoo::ALL {
        let file = model().file;
        fs::write(gguf.join(name), [&file.file_size().to_le_bytes()[..], &file.header_bytes()].concat())?;
    }
    let configured = [zoo::attending(), zoo::windowed(), zoo::recurrent()];
    for (name, config, model) in configured.iter().flatten() {
        // A few of its tensors are enough: a longer input is a slower one.
        let header = table(&model.layout());
        fs::write(safetensors.join(name), format!("{config}\0{header}"))?;
    }
    Ok(())
}

fn table(layout: &ModelLayout) -> Value {
    let (mut at, mut tensors) = (0, Map::new());
    for weight in layout.weights.iter().take(12) {
        let even = weight.bytes - weight.bytes % 2;
        let entry = json!({"dtype": "BF16", "shape": [even / 2], "data_offsets": [at, at + even]});
        tensors.insert(weight.name.clone(), entry);
        at += even;
    }
    tensors.insert(
        "visual.patch_embed.weight".into(),
        json!({"dtype": "F8_E4M3", "shape": [2, 4], "data_offsets": [at, at + 8]}),
    );
    Value::Object(tensors)
}
