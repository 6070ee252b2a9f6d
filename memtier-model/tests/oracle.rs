//! What llama.cpp measured for the models of the zoo, against what is computed from their headers.
//!
//! `oracle/record.py` made the record; every line of it is one context of one model, to the printed digit.

mod zoo;

use std::collections::HashMap;

use memtier::plan::KvDtype;
use memtier::{Bytes, Tokens};
use memtier_model::demands::{LlamaCpp, LlamaCppBytes};
use memtier_model::write::GgufWriter;
use memtier_model::{Gguf, ModelLayout, TensorType};
use serde_json::Value;

const RECORD: &str = include_str!("oracle/recorded.tsv");

fn settings(json: &str) -> LlamaCpp {
    let value: Value = serde_json::from_str(json).expect("settings are JSON");
    let number = |key: &str| value.get(key).and_then(Value::as_u64);
    let on = |key: &str| value.get(key).and_then(Value::as_bool).unwrap_or(false);
    let dtype = |key: &str| -> KvDtype {
        let name = value.get(key).and_then(Value::as_str).unwrap_or("f16").to_lowercase();
        name.parse().expect("an element type")
    };
    let mut settings = LlamaCpp::new(Tokens::new(number("n_ctx").expect("a context")));
    settings.n_seq = number("n_parallel").unwrap_or(1);
    settings.ubatch = number("n_ubatch").map_or(settings.ubatch, Tokens::new);
    settings.unified = on("kv_unified");
    settings.swa_full = on("swa_full");
    (settings.keys, settings.values) = (dtype("cache_type_k"), dtype("cache_type_v"));
    settings
}

/// The sizes in the order in which llama.cpp prints them.
fn printed(bytes: &LlamaCppBytes) -> String {
    let mib = |bytes: Bytes| format!("{:.2}", bytes.count() as f64 / f64::from(1 << 20));
    let mut parts = Vec::new();
    for part in [bytes.global, bytes.windowed] {
        if !(part.k.is_zero() && part.v.is_zero()) {
            parts.extend([format!("K={}", mib(part.k)), format!("V={}", mib(part.v))]);
        }
    }
    if !bytes.conv.is_zero() {
        parts.extend([format!("R={}", mib(bytes.conv)), format!("S={}", mib(bytes.state))]);
    }
    parts.join(" ")
}

#[test]
fn every_recorded_context_is_computed_to_the_printed_digit() {
    let (mut checked, mut wrong) = (0, Vec::new());
    let mut layouts: HashMap<&str, ModelLayout> = HashMap::new();
    for line in RECORD.lines() {
        let [name, json, expected] = line.split('\t').collect::<Vec<_>>()[..] else { panic!("three columns: {line}") };
        let layout = layouts.entry(name).or_insert_with(|| {
            let model = zoo::ALL.iter().find(|entry| entry.0 == name).unwrap_or_else(|| panic!("{name} is in the zoo"));
            (model.1)().layout()
        });
        let bytes = settings(json).bytes(layout).expect("in range");
        let computed = printed(&bytes);
        if computed != expected {
            wrong.push(format!("{name} {json}: printed {expected}, computed {computed}"));
        }
        checked += 1;
    }
    assert!(wrong.is_empty(), "{} of {checked}:\n{}", wrong.len(), wrong.join("\n"));
    assert!(checked > 400, "only {checked} lines");
}

const SHAPES: &str = include_str!("oracle/shapes.jsonl");

/// Shapes that nobody published: layers, heads, windows and intervals drawn to be odd, each loaded into llama.cpp as a file of
/// zeros with the tensors that it asked for (xllamacpp 2026.10.11549, 29 November 2026). A line has the keys of the header
/// and what was printed for each context.
#[test]
fn odd_shapes_are_computed_to_the_printed_digit() {
    let (mut checked, mut wrong) = (0, Vec::new());
    for line in SHAPES.lines() {
        let shape: Value = serde_json::from_str(line).expect("a line is JSON");
        let (name, arch) = (shape["name"].as_str().expect("a name"), shape["architecture"].as_str().expect("a name"));
        let mut file = GgufWriter::new();
        file.string("general.architecture", arch).string("tokenizer.ggml.model", "no_vocab");
        file.u32(&format!("{arch}.block_count"), shape["layers"].as_u64().expect("a number") as u32);
        file.u32(&format!("{arch}.vocab_size"), 512).u32(&format!("{arch}.context_length"), 32_768);
        for (key, value) in shape["keys"].as_object().expect("keys") {
            add(&mut file, &format!("{arch}.{key}"), value);
        }
        file.hole("token_embd.weight", &[512, 512], TensorType::F16).expect("a tensor");
        let bytes = file.to_bytes();
        let gguf = Gguf::from_bytes(&bytes).expect("sound");
        let layout = ModelLayout::from_gguf(&gguf).unwrap_or_else(|error| panic!("{name}: {error}"));
        for check in shape["checks"].as_array().expect("checks") {
            let expected = check[1].as_str().expect("what was printed");
            let computed = printed(&settings(&check[0].to_string()).bytes(&layout).expect("in range"));
            // llama.cpp prints a part that is empty now and then.
            let computed: Vec<&str> = computed.split(' ').filter(|part| !part.ends_with("=0.00")).collect();
            if computed.join(" ") != expected {
                wrong.push(format!("{name} {}: printed {expected}, computed {}", check[0], computed.join(" ")));
            }
            checked += 1;
        }
    }
    assert!(wrong.is_empty(), "{} of {checked}:\n{}", wrong.len(), wrong.join("\n"));
    assert!(checked > 200, "only {checked} contexts");
}

fn add(file: &mut GgufWriter, key: &str, value: &Value) {
    match value {
        Value::Bool(on) => file.bool(key, *on),
        Value::String(text) => file.string(key, text),
        Value::Number(number) => match number.as_u64() {
            Some(number) => file.u32(key, number as u32),
            None => file.f32(key, number.as_f64().expect("a number") as f32),
        },
        Value::Array(list) if list[0].is_boolean() => {
            file.bools(key, &list.iter().filter_map(Value::as_bool).collect::<Vec<_>>())
        }
        Value::Array(list) => {
            file.u32s(key, &list.iter().filter_map(Value::as_u64).map(|number| number as u32).collect::<Vec<_>>())
        }
        _ => panic!("{key}: {value}"),
    };
}

/// The two models of the demo, where they are at hand: their own headers, and weights to the byte.
#[test]
fn real_files_are_computed_from_their_own_headers() {
    // Name in the record, file, bytes of weights.
    for (name, file, weights) in [
        ("smollm2-135m", "smollm2-135m-instruct-q4_1.gguf", SMOLLM2_BYTES),
        ("gemma-3-270m", "gemma-3-270m-q4_k_m.gguf", GEMMA_3_BYTES),
    ] {
        let home = || Some(std::path::PathBuf::from(std::env::var_os("HOME")?).join(".cache/memtier"));
        let Some(folder) = std::env::var_os("MEMTIER_CACHE").map(Into::into).or_else(home) else { return };
        let path = folder.join(file);
        if !path.exists() {
            println!("skipped: {} is not there (cargo xtask demo fetches it)", path.display());
            continue;
        }
        let layout = ModelLayout::from_gguf(&Gguf::open(&path).expect("a model")).expect("a known architecture");
        assert_eq!(layout.weight_bytes(|_| true), weights, "{name}");
        let lines: Vec<&str> = RECORD.lines().filter(|line| line.starts_with(&format!("{name}\t"))).collect();
        assert_eq!(lines.len(), 12, "{name}");
        for line in lines {
            let [_, json, expected] = line.split('\t').collect::<Vec<_>>()[..] else { panic!("three columns: {line}") };
            assert_eq!(printed(&settings(json).bytes(&layout).expect("in range")), expected, "{name} {json}");
        }
    }
}

/// Of the files' tensor tables.
const SMOLLM2_BYTES: u64 = 96_576_768;
const GEMMA_3_BYTES: u64 = 246_587_904;
