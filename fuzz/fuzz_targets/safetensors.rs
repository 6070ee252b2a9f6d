//! A checkpoint: `config.json`, a zero byte, the JSON of a header of safetensors.
#![no_main]

#[path = "../../memtier-model/tests/price/mod.rs"]
mod price;

use libfuzzer_sys::fuzz_target;
use memtier_model::safetensors::{Checkpoint, parse_header, read_header};

/// Bytes of the file after its header: more than any real one's.
const DATA: u64 = 1 << 42;

fuzz_target!(|input: &[u8]| {
    let mut parts = input.splitn(2, |&byte| byte == 0);
    let (config, header) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    // The length of eight bytes before the JSON.
    let _ = read_header(header, DATA);
    let Ok(tensors) = parse_header(header, DATA) else { return };
    assert!(tensors.iter().all(|tensor| tensor.offset + tensor.bytes <= DATA));
    let Ok(checkpoint) = Checkpoint::from_json(config, tensors) else { return };
    let Ok(layout) = checkpoint.layout() else { return };
    let mut choices = input.iter().rev().copied();
    price::price(&layout, &mut |below| usize::from(choices.next().unwrap_or(0)) % below);
});
