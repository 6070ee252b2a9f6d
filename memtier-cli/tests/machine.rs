//! What programs read: the JSON against its schema, and pictures that are well-formed.

mod support;

use memtier_model::TensorType::Q8_0;
use serde_json::Value;
use support::zoo::*;
use support::{Folder, fits, memtier, refused};

/// As much of JSON Schema as ours uses; a keyword it does not know fails.
fn check(schema: &Value, value: &Value, at: &str) {
    for (keyword, rule) in schema.as_object().expect("a schema is an object") {
        match keyword.as_str() {
            "$schema" | "title" | "description" => {}
            "type" => {
                let kinds: Vec<&str> = match rule {
                    Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).collect(),
                    kind => kind.as_str().into_iter().collect(),
                };
                assert!(kinds.iter().any(|kind| is(kind, value)), "{at} is {value}, no {kinds:?}");
            }
            "enum" => assert!(rule.as_array().expect("a list").contains(value), "{at} is {value}"),
            "minimum" => assert!(value.as_f64() >= rule.as_f64(), "{at} is {value}"),
            "minItems" => {
                assert!(value.as_array().is_none_or(|items| items.len() as u64 >= rule.as_u64().unwrap_or(0)), "{at}")
            }
            "required" => {
                let Some(fields) = value.as_object() else { continue };
                for field in rule.as_array().expect("a list").iter().filter_map(Value::as_str) {
                    assert!(fields.contains_key(field), "{at} lacks {field}");
                }
            }
            "properties" => {
                let Some(fields) = value.as_object() else { continue };
                for (name, schema) in rule.as_object().expect("properties") {
                    if let Some(field) = fields.get(name) {
                        check(schema, field, &format!("{at}.{name}"));
                    }
                }
            }
            "additionalProperties" => {
                let (Some(fields), Some(known)) = (value.as_object(), schema["properties"].as_object()) else {
                    continue;
                };
                for name in fields.keys() {
                    assert!(
                        *rule != Value::Bool(false) || known.contains_key(name),
                        "{at} has {name}, which the schema has not"
                    );
                }
            }
            "items" => {
                for (index, item) in value.as_array().into_iter().flatten().enumerate() {
                    check(rule, item, &format!("{at}[{index}]"));
                }
            }
            other => panic!("the schema uses {other}, which this test does not know"),
        }
    }
}

fn is(kind: &str, value: &Value) -> bool {
    match kind {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        "integer" => value.is_u64() || value.is_i64(),
        _ => false,
    }
}

fn schema() -> Value {
    serde_json::from_str(&fits(memtier("schema", &[]))).expect("the schema is JSON")
}

#[test]
fn json_keeps_to_its_schema_fit_or_not_one_device_or_many() {
    let folder = Folder::new();
    let models = [
        folder.model("dense", &qwen3(QWEN3_4B, Q8_0)),
        folder.model("windows", &gemma_4_12b()),
        folder.model("hybrid", &qwen3_next_80b()),
        folder.model("index", &glm_dsa()),
    ];
    for model in &models {
        for words in [
            "plan @ --json",
            "plan @ --json --vram-budget 1GiB --lock kv-dtype",
            "plan @ --json --device 4xH200",
            "plan @ --json --device 2xH200 --split tensor",
            "plan @ --json --vram-budget 8GiB --gpu-layers 3",
        ] {
            let text = match memtier(words, &[model]) {
                memtier_cli::command::Outcome::Fits(text) | memtier_cli::command::Outcome::Refused(text) => text,
                memtier_cli::command::Outcome::Error(error) => panic!("{words}: {error}"),
            };
            let json: Value = serde_json::from_str(&text).expect("JSON");
            check(&schema(), &json, "$");
            // Written and read again it is the same.
            assert_eq!(serde_json::from_str::<Value>(&json.to_string()).expect("JSON"), json);
        }
    }
}

#[test]
#[should_panic(expected = "lacks devices")]
fn the_schema_notices_what_is_missing() {
    let mut json: Value =
        serde_json::json!({"schema_version": 1, "fits": true, "split": null, "warnings": [], "notes": []});
    json["model"] = Value::Null;
    let mut schema = schema();
    schema["properties"] = serde_json::json!({});
    schema.as_object_mut().expect("an object").remove("additionalProperties");
    check(&schema, &json, "$");
}

/// Tags that open are closed in order, attributes are quoted, and no raw `&` or `<` is in text.
fn well_formed(text: &str) {
    let mut open: Vec<&str> = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find('<') {
        let between = &rest[..at];
        assert!(!between.contains('>'), "{between}");
        for (index, _) in between.match_indices('&') {
            assert!(
                ["&amp;", "&lt;", "&gt;", "&quot;"].iter().any(|entity| between[index..].starts_with(entity)),
                "{between}"
            );
        }
        let end = rest[at..].find('>').expect("a tag ends") + at;
        let tag = &rest[at + 1..end];
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name));
        } else if !tag.starts_with('!') && !tag.ends_with('/') {
            let name = tag.split([' ', '\n']).next().expect("a name");
            if name != "meta" {
                open.push(name);
            }
        }
        rest = &rest[end + 1..];
    }
    assert_eq!(open, Vec::<&str>::new());
}

#[test]
fn pictures_are_well_formed_and_escape_what_models_are_called() {
    let folder = Folder::new();
    let mut model = gemma("gemma3", GEMMA_3_4B);
    model.file.string("general.name", "<script>&\"evil\"\u{1}");
    let model = folder.model("m", &model);
    let (svg, html) = (folder.join("p.svg"), folder.join("p.html"));
    fits(memtier("plan @ --vram-budget 12GiB --max-batch 4 --svg @", &[&model, &svg]));
    refused(memtier("plan @ --vram-budget 4GiB --max-batch 4 --html @", &[&model, &html]));
    for path in [&svg, &html] {
        let text = std::fs::read_to_string(path).expect("written");
        assert!(!text.contains("<script>") && !text.contains('\u{1}'));
        assert!(text.contains("KV, window of 1024") && text.contains("budget"), "{text}");
        well_formed(&text);
    }
    let text = std::fs::read_to_string(&svg).expect("written");
    assert!(text.contains("fits up to"), "the curve says where it ends");
    let unwritable = folder.join("no/such/folder.svg");
    assert!(support::error(memtier("plan @ --svg @", &[&model, &unwritable])).contains("cannot write"));
}

#[test]
fn equal_questions_get_equal_bytes() {
    let folder = Folder::new();
    let model = folder.model("m", &qwen3_next_80b());
    for words in ["plan @ --vram-budget 24GiB --json", "plan @ --vram-budget 24GiB", "plan @ --device 4xH100~80GB"] {
        assert_eq!(memtier(words, &[&model]), memtier(words, &[&model]));
    }
}
