//! What it takes to know that two prompts are one: their tokens compared, or a hash in place of one of them.
//!
//! A hash that an adversary cannot find collisions of has a secret key, and is one of these or dearer.

use std::error::Error;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::hint::black_box;

use crate::timing::Bench;

/// Tokens of a prompt.
const TOKENS: u32 = 4096;

/// All in the processor's caches.
pub(crate) fn prompt() -> Result<Bench, Box<dyn Error>> {
    let tokens: Vec<u32> = (0..TOKENS).map(|token| token.wrapping_mul(2_654_435_761) >> 15).collect();
    let bytes: Vec<u8> = tokens.iter().flat_map(|token| token.to_le_bytes()).collect();
    let (stored, keys, secret) = (tokens.clone(), RandomState::new(), *blake3::hash(b"a secret").as_bytes());
    let same = bytes.clone();
    Ok(Bench::new("4,096 tokens: one prompt or another")
        .with("compared, as memtier does", move |n| {
            for _ in 0..n {
                black_box(black_box(&tokens) == black_box(&stored));
            }
        })
        .with("SipHash-1-3, keyed, 64 bits", move |n| {
            for _ in 0..n {
                let mut hasher = keys.build_hasher();
                hasher.write(black_box(&same));
                black_box(hasher.finish());
            }
        })
        .with("BLAKE3, keyed, 256 bits", move |n| {
            for _ in 0..n {
                black_box(blake3::keyed_hash(&secret, black_box(&bytes)));
            }
        }))
}
