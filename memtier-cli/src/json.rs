//! What programs read. The planner's own form of each device is embedded as it is.

use memtier_model::ModelLayout;
use serde_json::{Map, Value, json};

use crate::planned::{OnDevice, Planned, split_name};

/// The version of the form; it changes when a field changes its meaning or goes.
pub const VERSION: u64 = 1;

/// The JSON schema that `--json` keeps to.
pub const SCHEMA: &str = include_str!("schema.json");

/// The machine form of a plan, with a newline.
pub fn plan(planned: &Planned<'_>) -> String {
    let split = planned.devices.iter().find_map(|on| on.portion.as_ref());
    let value = json!({
        "schema_version": VERSION,
        "fits": planned.fits(),
        "model": model(planned.pricing.layout()),
        "split": split.map(|portion| if portion.parts > 1 {
            split_name(memtier_model::demands::SplitKind::Tensor)
        } else {
            split_name(memtier_model::demands::SplitKind::Layer)
        }),
        "devices": planned.devices.iter().map(device).collect::<Vec<_>>(),
        "warnings": planned.pricing.layout().warnings.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "notes": planned.notes,
    });
    format!("{value}\n")
}

/// What a model is, in numbers.
pub fn model(layout: &ModelLayout) -> Value {
    let layer = |layer: &memtier_model::layout::LayerMemory| {
        let mut fields = Map::new();
        if let Some(cache) = layer.cache {
            let mut kv = json!({"kv_heads": cache.kv_heads, "key_dim": cache.key_dim, "value_dim": cache.value_dim});
            if let Some(window) = cache.window {
                kv["window"] = window.into();
            }
            if cache.indexer > 0 {
                kv["indexer"] = cache.indexer.into();
            }
            fields.insert("kv".to_owned(), kv);
        }
        if let Some(state) = layer.state {
            fields.insert("state".to_owned(), json!({"conv": state.conv, "state": state.state}));
        }
        Value::Object(fields)
    };
    json!({
        "architecture": layout.architecture,
        "name": layout.name,
        "weights": layout.weight_bytes(|_| true),
        "tensors": layout.weights.len(),
        "vocab_size": layout.vocab_size,
        "hidden_size": layout.hidden_size,
        "context_length": layout.context_length,
        "experts": layout.experts.count,
        "kv_elements_per_token": layout.kv_elements_per_token(),
        "layers": layout.layers.iter().map(layer).collect::<Vec<_>>(),
        "draft_layers": layout.draft_layers.len(),
        "vision": layout.vision.is_some(),
    })
}

fn device(on: &OnDevice) -> Value {
    let plan = match &on.result {
        Ok(plan) => plan.to_json(),
        Err(failure) => failure.to_json(),
    };
    json!({
        "name": on.device.name,
        "budget": on.device.budget.count(),
        "reserve_measured": on.device.taken.library_measured,
        "part": on.portion.as_ref().map(|portion| json!({
            "first_layer": portion.layers.start,
            "layers": portion.layers.end - portion.layers.start,
            "embedding": portion.embedding,
            "output": portion.output,
            "parts": portion.parts,
        })),
        // The planner writes valid JSON; were it not, its text would still be there to read.
        "plan": serde_json::from_str::<Value>(&plan).unwrap_or(Value::String(plan)),
    })
}
