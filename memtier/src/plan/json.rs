//! The machine form. Keys stay in this order, sizes are bytes, and equal plans give equal text.

use super::accepted::{MemoryPlan, PlanLine};
use super::failure::PlanFailure;
use super::input::Config;
use super::levers::{Lever, Value};

/// A JSON text under construction: values are pushed, commas follow from what is there.
struct Json(String);

impl Json {
    fn comma(&mut self) {
        if !self.0.is_empty() && !self.0.ends_with(['{', '[', ':']) {
            self.0.push(',');
        }
    }

    fn text(&mut self, text: &str) {
        self.comma();
        self.0.push('"');
        for letter in text.chars() {
            match letter {
                '"' | '\\' => self.0.extend(['\\', letter]),
                control if control < ' ' => self.0.push_str(&format!("\\u{:04x}", u32::from(control))),
                other => self.0.push(other),
            }
        }
        self.0.push('"');
    }

    fn raw(&mut self, value: impl std::fmt::Display) {
        self.comma();
        self.0.push_str(&value.to_string());
    }

    fn key(&mut self, key: &str) -> &mut Self {
        self.text(key);
        self.0.push(':');
        self
    }

    fn inside(&mut self, brackets: [char; 2], fill: impl FnOnce(&mut Self)) {
        self.comma();
        self.0.push(brackets[0]);
        fill(self);
        self.0.push(brackets[1]);
    }

    fn numbers(&mut self, fields: &[(&str, u64)]) {
        for (key, value) in fields {
            self.key(key).raw(value);
        }
    }
}

const OBJECT: [char; 2] = ['{', '}'];
const ARRAY: [char; 2] = ['[', ']'];

fn configuration(json: &mut Json, config: &Config) {
    json.key("config").inside(OBJECT, |json| {
        json.numbers(&[
            ("max_batch", config.max_batch),
            ("max_seq_len", config.max_seq_len.count()),
            ("block_tokens", config.block_tokens.count()),
            ("prefill_chunk", config.prefill_chunk.count()),
            ("speculative_depth", config.speculative_depth),
            ("layers", config.layers.count()),
            ("gpu_layers", config.gpu_layers.unwrap_or(config.layers).count()),
        ]);
        json.key("kv_dtype").text(config.kv_dtype.name());
        json.key("weight_caches").raw(config.weight_caches);
        json.key("vision").raw(config.vision);
    });
}

fn lines(json: &mut Json, lines: &[PlanLine]) {
    json.key("lines").inside(ARRAY, |json| lines.iter().for_each(|line| json.inside(OBJECT, |json| one(json, line))));
}

fn one(json: &mut Json, line: &PlanLine) {
    json.key("name").text(&line.name);
    json.key("tier").text(line.tier.name());
    json.key("space").text(line.space);
    json.key("need").text(line.need.name());
    json.key("charge").text(line.charge.name());
    json.numbers(&[("asked", line.asked.count()), ("granted", line.granted.count())]);
    if let Some(blocks) = &line.blocks {
        json.numbers(&[
            ("block_bytes", blocks.block.count()),
            ("block_tokens", blocks.tokens.count()),
            ("floor_blocks", blocks.floor.count()),
            ("most_blocks", blocks.most.count()),
            ("granted_blocks", blocks.granted.count()),
            ("step_blocks", blocks.step.count()),
        ]);
    }
}

fn value(json: &mut Json, value: &Value) {
    match value {
        Value::Switch(on) => json.raw(on),
        Value::Count(count) => json.raw(count),
        Value::Dtype(dtype) => json.text(dtype.name()),
        Value::Bytes(bytes) => json.raw(bytes.count()),
    }
}

fn lever(json: &mut Json, lever: &Lever) {
    json.inside(OBJECT, |json| {
        json.key("knob").text(lever.knob.name());
        value(json.key("from"), &lever.from);
        value(json.key("to"), &lever.to);
        json.key("frees").raw(lever.frees.count());
        json.key("fits").raw(lever.fits);
        json.key("locked").raw(lever.locked);
    });
}

impl MemoryPlan {
    /// The machine form: one JSON object, sizes in bytes.
    pub fn to_json(&self) -> String {
        let mut json = Json(String::new());
        json.inside(OBJECT, |json| {
            json.key("fits").raw(true);
            json.numbers(&[
                ("budget", self.budget().count()),
                ("total", self.total().count()),
                ("left", self.left().count()),
                ("transient", self.transient().count()),
                ("load_peak", self.load_peak().count()),
                ("host", self.host().count()),
            ]);
            configuration(json, self.config());
            lines(json, self.lines());
        });
        json.0
    }
}

impl PlanFailure {
    /// The machine form: one JSON object, sizes in bytes.
    pub fn to_json(&self) -> String {
        let mut json = Json(String::new());
        json.inside(OBJECT, |json| {
            json.key("fits").raw(false);
            json.key("refusal").text(self.refusal().name());
            json.numbers(&[
                ("budget", self.budget().count()),
                ("requested", self.requested().count()),
                ("shortfall", self.shortfall().count()),
            ]);
            configuration(json, self.config());
            lines(json, self.lines());
            json.key("levers").inside(ARRAY, |json| self.levers().iter().for_each(|one| lever(json, one)));
            if let Some(pair) = self.pair() {
                json.key("pair").inside(ARRAY, |json| pair.levers.iter().for_each(|one| lever(json, one)));
            }
            if let Some(all) = self.combination() {
                json.key("combination").inside(ARRAY, |json| all.levers.iter().for_each(|one| lever(json, one)));
            }
            if let Some(bottom) = self.bottom() {
                json.key("bottom").raw(bottom.count());
            }
        });
        json.0
    }
}
