//! A header of GGUF: eight bytes that say how long the file is, then its beginning.
#![no_main]

#[path = "../../memtier-model/tests/price/mod.rs"]
mod price;

use libfuzzer_sys::fuzz_target;
use memtier_model::gguf::Limits;
use memtier_model::{Gguf, Header, ModelDescription, ModelLayout};

fuzz_target!(|input: &[u8]| {
    let Some((size, prefix)) = input.split_first_chunk() else { return };
    // Both ways in: a prefix of a large file, and a whole small one.
    for header in [
        Header::parse_prefix(prefix, u64::from_le_bytes(*size), &Limits::default()),
        Header::read(std::io::Cursor::new(prefix)),
    ] {
        let Ok(header) = header else { continue };
        let Ok(model) = Gguf::from_headers(vec![header]) else { continue };
        let _ = ModelDescription::from_gguf(&model);
        let Ok(layout) = ModelLayout::from_gguf(&model) else { continue };
        // The settings come from the input's end, so that they are searched as well.
        let mut choices = prefix.iter().rev().copied();
        price::price(&layout, &mut |below| usize::from(choices.next().unwrap_or(0)) % below);
    }
});
