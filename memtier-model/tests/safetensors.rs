//! Checkpoints: layouts from `config.json`, headers that lie, and that both readers make the same of one model.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use memtier_model::ModelLayout;
use memtier_model::layout::{LayoutWarning, Place};
use memtier_model::safetensors::{Checkpoint, Dtype, SafetensorsError, parse_header, read_header};
use serde_json::{Value, json};
use tempfile::TempDir;

mod zoo;

/// A folder of its own for one test, removed at the end.
struct Folder(TempDir);

impl Folder {
    fn new() -> Folder {
        Folder(tempfile::tempdir().expect("a temporary folder"))
    }

    fn json(&self, name: &str, value: &Value) {
        fs::write(self.path().join(name), value.to_string()).expect("a file");
    }

    /// A file of tensors without data, sparse.
    fn tensors(&self, name: &str, tensors: &[(&str, &str, &[u64])]) {
        let (mut at, mut table) = (0, serde_json::Map::new());
        for (tensor, dtype, shape) in tensors {
            let bytes =
                Dtype::from_name(dtype).and_then(|dtype| dtype.bytes(shape.iter().product())).expect("whole bytes");
            table.insert(
                (*tensor).to_owned(),
                json!({"dtype": dtype, "shape": shape, "data_offsets": [at, at + bytes]}),
            );
            at += bytes;
        }
        let header = Value::Object(table).to_string();
        let mut file = File::create(self.path().join(name)).expect("a file");
        file.write_all(&(header.len() as u64).to_le_bytes())
            .and_then(|()| file.write_all(header.as_bytes()))
            .expect("written");
        file.set_len(8 + header.len() as u64 + at).expect("a sparse file");
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}

/// The layout of a configuration with one tensor.
fn layout(name: &str, config: &Value) -> ModelLayout {
    let folder = Folder::new();
    folder.json("config.json", config);
    folder.tensors("model.safetensors", &[("model.norm.weight", "BF16", &[8])]);
    Checkpoint::open(folder.path()).expect("sound").layout().unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Both readers make the same caches and states of one model.
fn same((name, config, model): &zoo::Configured) {
    let (here, there) = (layout(name, config), model.layout());
    let memory = |layout: &ModelLayout| {
        layout
            .layers
            .iter()
            .map(|layer| (layer.cache, layer.state.map(|state| (state.conv, state.state))))
            .collect::<Vec<_>>()
    };
    assert_eq!(memory(&here), memory(&there), "{name}");
    assert_eq!((here.hidden_size, &here.architecture), (there.hidden_size, &there.architecture), "{name}");
    assert_eq!(here.draft_layers.len(), there.draft_layers.len(), "{name}");
}

#[test]
fn both_readers_agree_on_models_that_attend() {
    zoo::attending().iter().for_each(same);
}

#[test]
fn both_readers_agree_on_windows() {
    zoo::windowed().iter().for_each(same);
}

#[test]
fn both_readers_agree_on_states() {
    zoo::recurrent().iter().for_each(same);
}

#[test]
fn shards_are_read_where_the_index_says_and_quantised_tensors_by_their_bytes() {
    let folder = Folder::new();
    folder.json(
        "config.json",
        &json!({"model_type": "gpt_oss", "num_hidden_layers": 2, "hidden_size": 64,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "sliding_window": 8, "vocab_size": 100,
        "num_local_experts": 4, "num_experts_per_tok": 2, "intermediate_size": 64, "tie_word_embeddings": true}),
    );
    // Packed four-bit values and their scales; fp8; what a tied head would be.
    let expert = "model.layers.0.mlp.experts.gate_up_proj";
    let (blocks, scales) = (format!("{expert}_blocks"), format!("{expert}_scales"));
    folder.tensors("a.safetensors", &[(&blocks, "U8", &[4, 128, 2, 16]), (&scales, "F8_E8M0", &[4, 128, 2])]);
    folder.tensors(
        "b.safetensors",
        &[
            ("lm_head.weight", "BF16", &[100, 64]),
            ("model.embed_tokens.weight", "BF16", &[100, 64]),
            ("model.layers.1.self_attn.q_proj.weight", "F8_E4M3", &[64, 64]),
        ],
    );
    let map = |pairs: &[(&str, &str)]| {
        json!({"weight_map": pairs.iter().copied().map(|(t, f)| (t.to_owned(), f.into()))
        .collect::<serde_json::Map<String, Value>>()})
    };
    let index = [
        (blocks.as_str(), "a.safetensors"),
        (&scales, "a.safetensors"),
        ("lm_head.weight", "b.safetensors"),
        ("model.embed_tokens.weight", "b.safetensors"),
        ("model.layers.1.self_attn.q_proj.weight", "b.safetensors"),
    ];
    folder.json("model.safetensors.index.json", &map(&index));
    let layout = Checkpoint::open(folder.path()).expect("sound").layout().expect("known");
    let of = |place| layout.weight_bytes(|weight| weight.place == place);
    assert_eq!((of(Place::Layer(0)), of(Place::Layer(1))), (4 * 128 * 2 * 16 + 4 * 128 * 2, 64 * 64));
    assert_eq!((of(Place::Embedding), of(Place::Output)), (12_800, 0));
    assert_eq!(layout.warnings, [LayoutWarning::TiedOutput { tensor: "lm_head.weight".into(), bytes: 12_800 }]);

    let broken = |pairs: &[(&str, &str)]| {
        folder.json("model.safetensors.index.json", &map(pairs));
        Checkpoint::open(folder.path()).expect_err("refused").to_string()
    };
    assert!(broken(&[("nobody", "a.safetensors")]).contains("\"nobody\""));
    assert!(broken(&[("w", "../../etc/passwd")]).contains("not a name in the folder"));
    assert!(broken(&[("w", "c.safetensors")]).contains("c.safetensors"));
    fs::remove_file(folder.path().join("model.safetensors.index.json")).expect("there");
    let error = Checkpoint::open(folder.path()).expect_err("two files, no index").to_string();
    assert!(error.contains("2 .safetensors files"), "{error}");
}

#[test]
fn a_window_that_engines_disagree_on_is_a_warning_and_a_full_cache() {
    let config = json!({"model_type": "mistral", "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4,
        "num_key_value_heads": 2, "sliding_window": 4096});
    let layout = layout("mistral", &config);
    assert_eq!(layout.warnings, [LayoutWarning::WindowIgnored { window: 4096 }]);
    assert!(layout.layers.iter().all(|layer| layer.cache.is_some_and(|cache| cache.window.is_none())));
}

#[test]
fn headers_that_lie_are_refused_by_name() {
    let parse = |text: &str, data: u64| parse_header(text.as_bytes(), data).expect_err(text);
    let entry = |shape: &str, begin: u64, end: u64| {
        format!(r#"{{"dtype":"F32","shape":{shape},"data_offsets":[{begin},{end}]}}"#)
    };
    let one = |shape: &str, begin, end| format!(r#"{{"w":{}}}"#, entry(shape, begin, end));
    assert!(matches!(parse(&one("[4]", 0, 16), 15), SafetensorsError::Place { end: 16, data: 15, .. }));
    assert!(matches!(parse(&one("[4]", 16, 0), 99), SafetensorsError::Place { begin: 16, .. }));
    assert!(matches!(parse(&one("[5]", 0, 16), 99), SafetensorsError::Size { needed: Some(20), .. }));
    assert!(matches!(parse(&one("[4294967296,4294967296]", 0, 16), 99), SafetensorsError::Size { needed: None, .. }));
    assert!(matches!(parse(&one("[18446744073709551615]", 0, 16), 99), SafetensorsError::Size { needed: None, .. }));
    let two = |second: &str| format!(r#"{{"w":{},"{second}":{}}}"#, entry("[4]", 0, 16), entry("[4]", 8, 24));
    assert!(matches!(parse(&two("v"), 99), SafetensorsError::Place { why: "where another tensor is", .. }));
    let twice = format!(r#"{{"w":{},"w":{}}}"#, entry("[4]", 0, 16), entry("[4]", 16, 32));
    assert!(matches!(parse(&twice, 99), SafetensorsError::DuplicateTensor { .. }));
    assert!(matches!(
        parse(r#"{"w":{"dtype":"F3","shape":[],"data_offsets":[0,1]}}"#, 9),
        SafetensorsError::UnknownDtype { .. }
    ));
    for text in [
        "",
        "[]",
        "{",
        "{\"w\":3}",
        "{\"w\":{\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]}}",
        &"[".repeat(100_000),
    ] {
        assert!(matches!(parse(text, 99), SafetensorsError::Header(_)), "{text:.40}");
    }
}

#[test]
fn lengths_are_checked_before_anything_is_read() {
    let read = |length: u64, size: u64| read_header(&length.to_le_bytes()[..], size).expect_err("refused");
    assert!(matches!(read(u64::MAX, 1 << 40), SafetensorsError::HeaderLength { .. }));
    assert!(matches!(read(1 << 30, 1 << 40), SafetensorsError::HeaderLimit { .. }));
    // The file says that it is longer than it is.
    assert!(matches!(read(100, 200), SafetensorsError::HeaderLength { found: 100, file: 8 }));
    assert!(matches!(read(0, 7), SafetensorsError::HeaderLength { .. }));
}

#[test]
fn configurations_that_make_no_sense_are_errors() {
    let folder = Folder::new();
    folder.tensors("model.safetensors", &[("w", "F32", &[1])]);
    for (config, part) in [
        (json!({}), "model_type"),
        (json!({"model_type": "llama"}), "num_hidden_layers"),
        (json!({"model_type": "llama", "num_hidden_layers": 4}), "embedding_length"),
        (json!({"model_type": "llama", "num_hidden_layers": 99_999_999, "hidden_size": 64}), "block_count"),
        (json!({"model_type": "llama", "num_hidden_layers": u64::MAX, "hidden_size": 64}), "block_count"),
        (json!({"model_type": "llama", "num_hidden_layers": 4, "hidden_size": 64}), "head_count"),
        (json!({"model_type": "whisper9", "num_hidden_layers": 4, "hidden_size": 64}), "whisper9"),
        (
            json!({"model_type": "gemma3", "num_hidden_layers": 4, "hidden_size": 64, "num_attention_heads": 4,
            "sliding_window": 8, "layer_types": ["sliding_attention"]}),
            "sliding_window_pattern",
        ),
        (
            json!({"model_type": "jamba", "num_hidden_layers": 4, "hidden_size": 64, "num_attention_heads": 4,
            "attn_layer_period": 0, "attn_layer_offset": 0}),
            "ssm",
        ),
    ] {
        folder.json("config.json", &config);
        let error =
            Checkpoint::open(folder.path()).expect("the files are sound").layout().expect_err("refused").to_string();
        assert!(error.contains(part), "{config}: {error}");
    }
    fs::write(folder.path().join("config.json"), "<html>").expect("a file");
    assert!(Checkpoint::open(folder.path()).expect_err("no JSON").to_string().contains("config.json"));
}
