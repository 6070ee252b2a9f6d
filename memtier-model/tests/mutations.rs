//! Headers of real shapes, damaged at random: whatever comes out, nothing panics, and what is accepted can be priced.
//!
//! A few seconds here; `MEMTIER_MUTATE_SECONDS=1200 cargo test -p memtier-model --features plan --test mutations` for a
//! night. The numbers come from a fixed seed, so that a finding comes again; it is printed.

mod price;
mod zoo;

use std::time::{Duration, Instant};

use memtier_model::gguf::Limits as HeaderLimits;
use memtier_model::safetensors::parse_header;
use memtier_model::{Gguf, Header, ModelLayout};

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    fn below(&mut self, most: usize) -> usize {
        (self.next() % most.max(1) as u64) as usize
    }
}

fn seconds() -> Duration {
    let stated = std::env::var("MEMTIER_MUTATE_SECONDS").ok().and_then(|text| text.parse().ok());
    Duration::from_secs(stated.unwrap_or(2))
}

/// Damages a few places: a bit, a byte, a word of extremes, a piece that goes, comes twice or moves.
fn damage(bytes: &mut Vec<u8>, random: &mut Random) {
    for _ in 0..1 + random.below(4) {
        let at = random.below(bytes.len());
        match random.below(7) {
            0 => bytes[at] ^= 1 << random.below(8),
            1 => bytes[at] = random.next() as u8,
            2 => {
                let extreme = [0, 1, u64::MAX, 1 << 31, 1 << 32, 1 << 63, 0x7fff_ffff, 4096, 255][random.below(9)];
                let width = [4, 8][random.below(2)];
                for (offset, byte) in extreme.to_le_bytes().into_iter().take(width).enumerate() {
                    if let Some(place) = bytes.get_mut(at + offset) {
                        *place = byte;
                    }
                }
            }
            3 => bytes.truncate(at.max(1)),
            4 => {
                let end = (at + random.below(64)).min(bytes.len());
                bytes.drain(at..end);
            }
            5 => {
                let end = (at + random.below(64)).min(bytes.len());
                let piece = bytes[at..end].to_vec();
                let to = random.below(bytes.len());
                bytes.splice(to..to, piece);
            }
            _ => {
                let end = (at + 1 + random.below(16)).min(bytes.len());
                bytes[at..end].reverse();
            }
        }
        if bytes.is_empty() {
            bytes.push(0);
        }
    }
}

#[test]
fn damaged_headers_are_errors_or_models_and_never_a_panic() {
    let whole: Vec<(&str, Vec<u8>, u64)> = zoo::ALL
        .iter()
        .map(|(name, model)| (*name, model().file))
        .map(|(name, file)| (name, file.header_bytes(), file.file_size()))
        .collect();
    let (start, mut random, mut tried, mut accepted) = (Instant::now(), Random(1), 0_u64, 0_u64);
    while start.elapsed() < seconds() {
        let (name, header, size) = &whole[random.below(whole.len())];
        let seed = random.0;
        let mut bytes = header.clone();
        // The keys are the first kilobyte, and what a layout is made of.
        if random.below(2) == 0 {
            let mut keys: Vec<u8> = bytes.drain(..1500.min(header.len())).collect();
            damage(&mut keys, &mut random);
            bytes.splice(..0, keys);
        } else {
            damage(&mut bytes, &mut random);
        }
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let parsed = Header::parse_prefix(&bytes, *size, &HeaderLimits::default()).ok()?;
            let model = Gguf::from_headers(vec![parsed]).ok()?;
            let layout = ModelLayout::from_gguf(&model).ok()?;
            price::price(&layout, &mut |below| random.below(below));
            Some(())
        }));
        tried += 1;
        match result {
            Ok(found) => accepted += u64::from(found.is_some()),
            Err(_) => panic!("{name} damaged with seed {seed}"),
        }
    }
    println!("{tried} headers, {accepted} accepted");
    assert!(accepted > 0 && accepted < tried, "{accepted} of {tried}");
}

#[test]
fn damaged_tables_of_safetensors_are_errors_or_tensors_and_never_a_panic() {
    let sound = br#"{"__metadata__":{"format":"pt"},"a.weight":{"dtype":"BF16","shape":[4,8],"data_offsets":[0,64]},"b":{"dtype":"F8_E4M3","shape":[],"data_offsets":[64,65]},"c":{"dtype":"F4","shape":[2,2,2],"data_offsets":[65,69]}}"#;
    assert_eq!(parse_header(sound, 69).expect("sound").len(), 3);
    let (start, mut random, mut tried, mut accepted) = (Instant::now(), Random(2), 0_u64, 0_u64);
    while start.elapsed() < seconds() {
        let mut bytes = sound.to_vec();
        damage(&mut bytes, &mut random);
        if let Ok(tensors) = parse_header(&bytes, 69) {
            accepted += 1;
            assert!(tensors.iter().all(|tensor| tensor.offset + tensor.bytes <= 69));
        }
        tried += 1;
    }
    println!("{tried} tables, {accepted} accepted");
    assert!(accepted > 0 && accepted < tried);
}
