//! No bytes make the reader panic, hang or allocate without bound: files cut at every offset, files with every byte
//! changed, and files with random damage.

use std::io::Cursor;

use memtier_model::write::{GgufWriter, TinyModel};
use memtier_model::{Gguf, GgufError, Header, ModelDescription};

/// Reads whatever can be read of a file, as an engine and a planner would.
fn exercise(bytes: &[u8]) -> Result<(), String> {
    let model = Gguf::from_bytes(bytes).map_err(|error| error.to_string())?;
    for (key, value) in model.metadata().iter() {
        let _ = (key.len(), value);
        if let memtier_model::gguf::Value::Array(array) = value {
            assert_eq!(array.iter().count(), array.len(), "{key}");
        }
    }
    for tensor in model.tensors() {
        let end = tensor.offset + tensor.byte_len;
        assert!(end <= bytes.len() as u64, "{} is outside the file", tensor.name);
    }
    let _ = model.tensor_bytes();
    ModelDescription::from_gguf(&model).map(drop).map_err(|error| error.to_string())
}

fn small() -> TinyModel {
    TinyModel {
        layers: 1,
        hidden: 4,
        heads: 2,
        kv_heads: 1,
        head_dim: 2,
        feed_forward: 3,
        vocab: 5,
        ..TinyModel::llama(1)
    }
}

fn files() -> Vec<Vec<u8>> {
    let mut arrays = GgufWriter::new();
    arrays.string("general.architecture", "gemma3").strings("s", &["a", "bc"]).bools("b", &[true]).u64("u", 3);
    let gemma = TinyModel { layers: 2, ..small() };
    vec![
        small().to_gguf().unwrap().to_bytes(),
        TinyModel { architecture: memtier_model::Architecture::Gemma3, ..gemma }.to_gguf().unwrap().to_bytes(),
        arrays.to_bytes(),
    ]
}

#[test]
fn a_file_cut_anywhere_is_truncated_and_says_so() {
    for bytes in files() {
        let header_len = Header::parse(&bytes).unwrap().header_len();
        for len in 0..bytes.len() {
            let result = Header::parse(&bytes[..len]);
            match result {
                Err(GgufError::Truncated { needed, available, .. }) => {
                    assert!(len as u64 <= header_len && needed > available && available == len as u64);
                }
                Err(GgufError::TensorPastEnd { needed, found, .. }) => {
                    assert!(needed > found && found == len as u64);
                }
                Err(other) => panic!("cut at {len}: {other}"),
                // Only the padding after the last tensor can go.
                Ok(header) => {
                    assert!(header.tensors().iter().all(|tensor| tensor.offset + tensor.byte_len <= len as u64))
                }
            }
            let from_reader = Header::read(Cursor::new(&bytes[..len])).map(|header| header.header_len());
            assert_eq!(from_reader.ok(), Header::parse(&bytes[..len]).ok().map(|header| header.header_len()));
        }
    }
}

#[test]
fn every_byte_of_a_header_can_take_odd_values() {
    for bytes in files() {
        let header_len = Header::parse(&bytes).unwrap().header_len() as usize;
        for at in 0..header_len {
            for change in [0x00, 0x01, 0x7f, 0x80, 0xff, bytes[at] ^ 1, bytes[at].wrapping_add(1)] {
                let mut damaged = bytes.clone();
                damaged[at] = change;
                let _ = exercise(&damaged);
            }
        }
    }
}

#[test]
fn random_damage_of_many_kinds_is_survived() {
    let files = files();
    let mut random = Random(0x5eed);
    let mut refusals = 0;
    for round in 0..30_000 {
        let mut bytes = files[round % files.len()].clone();
        for _ in 0..1 + random.below(4) {
            let at = random.below(bytes.len().min(1500));
            match random.below(5) {
                0 => bytes[at] = random.next() as u8,
                // Eight bytes at once hit counts, lengths, dimensions and offsets.
                1 => {
                    let number = [u64::MAX, 1 << 63, 1 << 32, random.next(), random.next() % 100][random.below(5)];
                    let end = bytes.len().min(at + 8);
                    bytes[at..end].copy_from_slice(&number.to_le_bytes()[..end - at]);
                }
                2 => bytes.truncate(at.max(1)),
                3 => drop(bytes.drain(at..(at + random.below(9)).min(bytes.len()))),
                _ => {
                    let slice = bytes[at..(at + random.below(40)).min(bytes.len())].to_vec();
                    let to = random.below(bytes.len());
                    bytes.splice(to..to, slice);
                }
            }
            // An empty file leaves no place for the next round's damage.
            if bytes.is_empty() {
                break;
            }
        }
        refusals += usize::from(exercise(&bytes).is_err());
    }
    // Damage is mostly noticed; what is not (a changed letter of a name, say) must be harmless.
    assert!(refusals > 20_000, "{refusals}");
}

#[test]
fn noise_is_refused() {
    let mut random = Random(3);
    for _ in 0..20_000 {
        let len = random.below(200);
        let mut bytes: Vec<u8> = (0..len).map(|_| random.next() as u8).collect();
        if random.below(2) == 0 {
            bytes.splice(0..0, *b"GGUF\x03\0\0\0");
        }
        assert!(exercise(&bytes).is_err());
    }
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }
}
