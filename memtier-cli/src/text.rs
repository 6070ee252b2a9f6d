//! What people read.

use std::fmt::Write as _;

use memtier::Bytes;
use memtier_model::{ModelLayout, layout::LayerMemory};

use crate::planned::{OnDevice, Planned};

/// Escape sequences, or nothing.
#[derive(Clone, Copy, Debug)]
pub struct Paint(pub bool);

impl Paint {
    fn around(self, code: &str, text: &str) -> String {
        if self.0 { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }

    /// Good news.
    pub fn good(self, text: &str) -> String {
        self.around("1;32", text)
    }

    /// Bad news.
    pub fn bad(self, text: &str) -> String {
        self.around("1;31", text)
    }

    /// What is beside the point.
    pub fn faint(self, text: &str) -> String {
        self.around("2", text)
    }
}

/// MiB with two decimals, as engines print them.
pub fn mib(bytes: Bytes) -> String {
    format!("{:.2}", bytes.count() as f64 / f64::from(1 << 20))
}

/// One line that says what the model is.
pub fn headline(layout: &ModelLayout) -> String {
    let mut text = layout.name.clone().unwrap_or_else(|| "unnamed".to_owned());
    let _ = write!(text, ": {}, {} layers", layout.architecture, layout.layers.len());
    let attending = layout.layers.iter().filter(|layer| layer.cache.is_some()).count();
    let windowed = layout.layers.iter().filter(|layer| layer.cache.is_some_and(|cache| cache.window.is_some())).count();
    let recurring = layout.layers.iter().filter(|layer| layer.state.is_some()).count();
    for (count, what) in [(windowed, "with a window"), (recurring, "recurrent")] {
        if count > 0 {
            let _ = write!(text, ", {count} {what}");
        }
    }
    if attending < layout.layers.len() {
        let _ = write!(text, ", {attending} with a KV cache");
    }
    if layout.experts.count > 0 {
        let _ = write!(text, ", {} of {} experts", layout.experts.used, layout.experts.count);
    }
    if !layout.draft_layers.is_empty() {
        let _ = write!(text, ", {} draft layers", layout.draft_layers.len());
    }
    if layout.vision.is_some() {
        text.push_str(", a vision tower");
    }
    let _ = write!(
        text,
        ", {} MiB of weights in {} tensors",
        mib(Bytes::new(layout.weight_bytes(|_| true))),
        layout.weights.len()
    );
    text
}

/// The text of a plan.
pub fn plan(planned: &Planned<'_>, paint: Paint) -> String {
    let layout = planned.pricing.layout();
    let mut text = format!("{}\n", headline(layout));
    for warning in &layout.warnings {
        let _ = writeln!(text, "{}", paint.bad(&format!("warning: {warning}")));
    }
    for note in &planned.notes {
        let _ = writeln!(text, "{}", paint.faint(&format!("note: {note}")));
    }
    let mut seen: Vec<String> = Vec::new();
    for on in &planned.devices {
        let verdict = match &on.result {
            Ok(plan) => first_line(&plan.to_string(), |line| paint.good(line)),
            Err(failure) => first_line(&failure.report(), |line| paint.bad(line)),
        };
        // Devices of a tensor split are alike: their text is printed once.
        let heading = if planned.devices.len() > 1 { format!("{}\n", part(on)) } else { String::new() };
        let whole = format!("{heading}{verdict}{}\n", paint.faint(&source(on)));
        if seen.contains(&whole) {
            continue;
        }
        let alike = planned.devices.iter().filter(|other| part(other) == part(on)).count();
        text.push('\n');
        if alike > 1 {
            let _ = writeln!(text, "{alike} devices, each");
        }
        text.push_str(&whole);
        seen.push(whole);
    }
    text
}

fn first_line(text: &str, change: impl Fn(&str) -> String) -> String {
    match text.split_once('\n') {
        Some((first, rest)) => format!("{}\n{rest}", change(first)),
        None => change(text),
    }
}

/// Which part of the model a device has.
pub fn part(on: &OnDevice) -> String {
    let Some(portion) = &on.portion else { return on.device.name.clone() };
    if portion.parts > 1 {
        return format!("{}: 1 of {} parts of every layer", on.device.name, portion.parts);
    }
    let ends = match (portion.embedding, portion.output) {
        (true, true) => ", embedding and output",
        (true, false) => ", embedding",
        (false, true) => ", output",
        (false, false) => "",
    };
    let range = if portion.layers.is_empty() {
        "no layers".to_owned()
    } else {
        format!("layers {} to {}", portion.layers.start, portion.layers.end - 1)
    };
    format!("{}: {range}{ends}", on.device.name)
}

fn source(on: &OnDevice) -> String {
    if on.reserve_stated {
        return "\n  context and library reserve: as stated".to_owned();
    }
    match on.device.taken.measured {
        Some(measured) => format!("\n  context and library reserve: measured on {measured}"),
        None => "\n  context and library reserve: assumed; a first start measures them (--context-reserve, --library-reserve)".to_owned(),
    }
}

/// The weights, tensor by tensor.
pub fn weights(layout: &ModelLayout) -> String {
    let width = layout.weights.iter().map(|weight| weight.name.chars().count()).max().unwrap_or(0);
    let mut text = format!("\n  {:<width$} {:>14}  place\n", "tensor", "bytes");
    for weight in &layout.weights {
        let _ = writeln!(text, "  {:<width$} {:>14}  {:?}", weight.name, weight.bytes, weight.place);
    }
    text
}

/// The layers, runs of equal ones together.
pub fn layers(layout: &ModelLayout) -> String {
    let mut text = String::from("\n  layers         what a token and a sequence leave behind\n");
    let mut from = 0;
    while from < layout.layers.len() {
        let same = layout.layers[from..].iter().take_while(|layer| **layer == layout.layers[from]).count();
        let range = if same == 1 { format!("{from}") } else { format!("{from}-{}", from + same - 1) };
        let _ = writeln!(text, "  {range:<14} {}", one(&layout.layers[from]));
        from += same;
    }
    text
}

fn one(layer: &LayerMemory) -> String {
    let mut parts = Vec::new();
    if let Some(cache) = layer.cache {
        let mut text = match cache.value_dim {
            0 => format!("a latent of {} elements", cache.key_dim),
            value => format!("{} heads, keys of {} and values of {value}", cache.kv_heads, cache.key_dim),
        };
        if let Some(window) = cache.window {
            let _ = write!(text, ", window of {window}");
        }
        if cache.indexer > 0 {
            let _ = write!(text, ", an index key of {}", cache.indexer);
        }
        parts.push(text);
    }
    if let Some(state) = layer.state {
        parts.push(format!("a state of {} + {} elements", state.conv, state.state));
    }
    if parts.is_empty() { "nothing".to_owned() } else { parts.join("; ") }
}
