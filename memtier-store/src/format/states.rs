//! States: what is overwritten in place (sliding windows, recurrent layers), as it was at the end of cached prefixes.
//!
//! A save may have several lists, each of one kind of blocks and with a name of its own. They have segments like the blocks'.
//!
//! # Segment
//!
//! A header of 64 bytes, then records. A segment ends with its last whole record; everything up to a tear is good by itself.
//!
//! | at | bytes | what |
//! |---:|---:|---|
//! | 0 | 8 | `MTPFXSTA` |
//! | 8 | 4 | version: 2 |
//! | 12 | 4 | number of the segment, from 0 |
//! | 16 | 8 | tokens in a block |
//! | 24 | 8 | bytes of a block, *b* |
//! | 32 | 16 | id of the save |
//! | 48 | 4 | records |
//! | 52 | 8 | zero |
//! | 60 | 4 | checksum |
//!
//! # Record
//!
//! One state, 84 + *n* *b* bytes. The block that it is behind is one of the save.
//!
//! | at | bytes | what |
//! |---:|---:|---|
//! | 0 | 32 | digest of the block that it is behind |
//! | 32 | 32 | digest of the root |
//! | 64 | 8 | tokens of the prefix |
//! | 72 | 4 | position of its first block: what is before has left the window |
//! | 76 | 4 | blocks, *n* |
//! | 80 | *n* *b* | the blocks |
//! | 80 + *n* *b* | 4 | checksum |

use std::ops::Range;

use memtier::Digest;

use super::{Damage, Fields, SEGMENT_HEADER, SaveId, VERSION, checked, end_header, seal, segment_header};

const SEGMENT: &[u8; 8] = b"MTPFXSTA";
/// Bytes of a record besides blocks.
pub const RECORD: usize = 84;

/// The name of a list: at most 32 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ListName([u8; 32]);

impl ListName {
    /// Of letters, digits and `-`, at most 32 of them. `None` for others.
    pub fn new(name: &str) -> Option<Self> {
        let is_good = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        if name.is_empty() || name.len() > 32 || !name.bytes().all(is_good) {
            return None;
        }
        let mut bytes = [0; 32];
        bytes[..name.len()].copy_from_slice(name.as_bytes());
        Some(ListName(bytes))
    }
}

impl std::fmt::Display for ListName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = self.0.split(|byte| *byte == 0).next().unwrap_or_default();
        f.write_str(std::str::from_utf8(name).unwrap_or("?"))
    }
}

/// What every segment of a list says of its blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StateShape {
    /// Tokens in a block.
    pub tokens: u64,
    /// Bytes of a block.
    pub bytes: u64,
}

/// A list, in the manifest.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StateList {
    /// Its name.
    pub name: ListName,
    /// Of its blocks.
    pub shape: StateShape,
    /// In all segments.
    pub states: u64,
    /// Length and checksum of each.
    pub segments: Vec<(u64, u32)>,
}

impl StateList {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.extend(self.name.0);
        for number in [self.shape.tokens, self.shape.bytes, self.states] {
            out.extend(number.to_le_bytes());
        }
        out.extend((self.segments.len() as u32).to_le_bytes());
        for (length, sum) in &self.segments {
            out.extend(length.to_le_bytes());
            out.extend(sum.to_le_bytes());
        }
    }

    pub(super) fn decode(fields: &mut Fields<'_>) -> Option<Self> {
        let name = fields.array::<32>()?;
        let end = name.iter().position(|byte| *byte == 0).unwrap_or(32);
        let name = std::str::from_utf8(&name[..end]).ok().and_then(ListName::new)?;
        let shape = StateShape { tokens: fields.u64()?, bytes: fields.u64()? };
        let states = fields.u64()?;
        let count = fields.u32()?;
        // Before anything is allocated for them.
        if (fields.0.len() as u64) < u64::from(count) * 12 {
            return None;
        }
        let segments = (0..count).map_while(|_| Some((fields.u64()?, fields.u32()?))).collect();
        Some(StateList { name, shape, states, segments })
    }
}

/// A state, its place, and its bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StateRecord {
    /// The block that it is behind.
    pub digest: Digest,
    /// What that is behind.
    pub root: Digest,
    /// Tokens of the prefix.
    pub tokens: u64,
    /// Position of its first block.
    pub first: u32,
    /// How many there are.
    pub blocks: u32,
    /// Where their bytes are in the segment.
    pub bytes: Range<usize>,
}

/// Begins a segment: the header of an empty one.
pub fn begin_segment(shape: StateShape, id: SaveId, ordinal: u32) -> Vec<u8> {
    let mut out = Vec::with_capacity(SEGMENT_HEADER);
    out.extend(SEGMENT);
    out.extend(VERSION.to_le_bytes());
    out.extend(ordinal.to_le_bytes());
    out.extend(shape.tokens.to_le_bytes());
    out.extend(shape.bytes.to_le_bytes());
    out.extend(id.0);
    out.resize(SEGMENT_HEADER, 0);
    out
}

/// Ends a segment of so many records.
pub fn end_segment(out: &mut [u8], records: u32) {
    end_header(out, 48, records);
}

/// Adds a record; `fill` writes each of its `blocks`, whose bytes it is given.
///
/// # Errors
/// What `fill` says; nothing was added.
pub fn push_record<E>(
    out: &mut Vec<u8>,
    shape: StateShape,
    [digest, root]: [Digest; 2],
    tokens: u64,
    blocks: Range<u32>,
    mut fill: impl FnMut(u32, &mut [u8]) -> Result<(), E>,
) -> Result<(), E> {
    let from = out.len();
    out.extend(digest.as_bytes());
    out.extend(root.as_bytes());
    out.extend(tokens.to_le_bytes());
    out.extend(blocks.start.to_le_bytes());
    out.extend((blocks.len() as u32).to_le_bytes());
    for block in blocks {
        let at = out.len();
        out.resize(at + shape.bytes as usize, 0);
        if let Err(error) = fill(block, &mut out[at..]) {
            out.truncate(from);
            return Err(error);
        }
    }
    seal(out, from);
    Ok(())
}

/// What is good in a segment: records up to the first that is not, and why it ends there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Decoded {
    /// In their order.
    pub records: Vec<StateRecord>,
    /// `None`: it is whole.
    pub damage: Option<Damage>,
}

/// Reads segment `ordinal` of a list.
///
/// # Errors
/// [`Damage`] when it is not that segment, or its header is damaged.
pub fn decode_segment(bytes: &[u8], shape: StateShape, id: SaveId, ordinal: u32) -> Result<Decoded, Damage> {
    let mut fields = segment_header(bytes, SEGMENT)?;
    let short = Damage::Short(bytes.len() as u64);
    let found = fields.u32().ok_or(short)?;
    let of = StateShape { tokens: fields.u64().ok_or(short)?, bytes: fields.u64().ok_or(short)? };
    if found != ordinal || of != shape || fields.array() != Some(id.0) {
        return Err(Damage::Place);
    }
    let count = fields.u32().ok_or(short)?;
    let (mut records, mut at) = (Vec::new(), SEGMENT_HEADER);
    for _ in 0..count {
        match decode_record(bytes, at, shape) {
            Ok(record) => {
                at = record.bytes.end + 4;
                records.push(record);
            }
            Err(damage) => return Ok(Decoded { records, damage: Some(damage) }),
        }
    }
    let more = bytes.len() - at;
    Ok(Decoded { records, damage: (more > 0).then_some(Damage::Long(more as u64)) })
}

fn decode_record(bytes: &[u8], at: usize, shape: StateShape) -> Result<StateRecord, Damage> {
    let short = Damage::Short(bytes.len() as u64);
    let mut fields = Fields(&bytes[at..]);
    let (digest, root) = (fields.digest().ok_or(short)?, fields.digest().ok_or(short)?);
    let tokens = fields.u64().ok_or(short)?;
    let (first, blocks) = (fields.u32().ok_or(short)?, fields.u32().ok_or(short)?);
    // Of a number that may say anything.
    let length = usize::try_from(u128::from(blocks) * u128::from(shape.bytes)).map_err(|_| short)?;
    let from = bytes.len() - fields.0.len();
    fields.take(length).ok_or(short)?;
    fields.take(4).ok_or(short)?;
    checked(&bytes[at..from + length + 4])?;
    Ok(StateRecord { digest, root, tokens, first, blocks, bytes: from..from + length })
}

/// What a segment's header says of its blocks.
pub(crate) fn shape_of(bytes: &[u8]) -> Option<StateShape> {
    let mut fields = Fields(bytes.get(16..)?);
    Some(StateShape { tokens: fields.u64()?, bytes: fields.u64()? })
}
