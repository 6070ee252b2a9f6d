//! The bytes of a save.
//!
//! All numbers are little endian; so are the elements in a block, which are stored as the device has them. A digest is the 32 bytes of
//! a [`Digest`]. A checksum is CRC-32C (Castagnoli) of all bytes before it in the same header, record or manifest.
//!
//! # Objects
//!
//! `manifest` names the save that counts; `saves/<id>/00000000`, `saves/<id>/00000001`, … are its segments, where `<id>` is the save's
//! 16 bytes in hexadecimal. Ids grow with time. `saves/<id>/states/<name>/00000000`, … are the segments of a list of states, see [`states`].
//!
//! Version 1 had no lists of states. Its saves are read; version 2 is written.
//!
//! # Manifest
//!
//! | at | bytes | what |
//! |---:|---:|---|
//! | 0 | 8 | `MTPFXMAN` |
//! | 8 | 4 | version: 2 |
//! | 12 | 4 | tokens in a block |
//! | 16 | 8 | bytes of a block |
//! | 24 | 16 | id of the save |
//! | 40 | 4 | roots, *r* |
//! | 44 | 4 | segments, *s* |
//! | 48 | 8 | blocks, all segments together |
//! | 56 | 32 *r* | the roots' digests |
//! | 56 + 32 *r* | 12 *s* | of each segment its length (8) and the CRC-32C of all of it (4) |
//! | 56 + 32 *r* + 12 *s* | 4 | lists of states (not in version 1) |
//! | | | of each list: its name (32, zeros behind it), tokens in a block (8), bytes of a block (8), states (8), segments (4), and of each of those its length (8) and the CRC-32C of all of it (4) |
//! | at the end | 4 | checksum |
//!
//! # Segment
//!
//! A header of 64 bytes, then records. A segment ends with its last whole record; everything up to a tear is good by itself.
//!
//! | at | bytes | what |
//! |---:|---:|---|
//! | 0 | 8 | `MTPFXSEG` |
//! | 8 | 4 | version: 2, or 1 |
//! | 12 | 4 | tokens in a block, *t* |
//! | 16 | 8 | bytes of a block, *b* |
//! | 24 | 16 | id of the save |
//! | 40 | 4 | number of the segment, from 0 |
//! | 44 | 4 | records |
//! | 48 | 12 | zero |
//! | 60 | 4 | checksum |
//!
//! # Record
//!
//! One block, 116 + 4 *t* + *b* bytes. Its parent is a root, or a record before it in the save.
//!
//! | at | bytes | what |
//! |---:|---:|---|
//! | 0 | 32 | digest: `parent.child(extra, tokens)`, see [`Digest::child`] |
//! | 32 | 32 | digest of the parent |
//! | 64 | 32 | digest of the root |
//! | 96 | 16 | what is in the block besides tokens; zero for nothing |
//! | 112 | 4 *t* | tokens |
//! | 112 + 4 *t* | *b* | the block |
//! | 112 + 4 *t* + *b* | 4 | checksum |

pub mod states;

use memtier::Digest;

use states::StateList;

/// The version that is written.
pub const VERSION: u32 = 2;
/// The oldest version that is read.
pub const OLDEST: u32 = 1;
/// Bytes of a segment's header.
pub const SEGMENT_HEADER: usize = 64;

const MANIFEST: &[u8; 8] = b"MTPFXMAN";
const SEGMENT: &[u8; 8] = b"MTPFXSEG";
/// Bytes of a record besides tokens and block.
const RECORD: usize = 116;
const MANIFEST_HEADER: usize = 56;

/// The name of a save. Later ones are greater.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct SaveId(pub [u8; 16]);

impl std::fmt::Display for SaveId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl SaveId {
    /// From its hexadecimal name.
    pub fn parse(name: &str) -> Option<Self> {
        let mut id = [0; 16];
        if name.len() != 32 || !name.is_ascii() {
            return None;
        }
        for (index, byte) in id.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&name[2 * index..2 * index + 2], 16).ok()?;
        }
        Some(SaveId(id))
    }
}

/// What every object of a save says of its blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shape {
    /// Tokens in a block.
    pub tokens: u32,
    /// Bytes of a block.
    pub bytes: u64,
}

impl Shape {
    /// Bytes of a record. `None`: more than fit into memory.
    pub fn record(self) -> Option<usize> {
        let bytes = usize::try_from(self.bytes).ok()?;
        usize::try_from(self.tokens).ok()?.checked_mul(4)?.checked_add(bytes)?.checked_add(RECORD)
    }
}

/// Why an object, or what is left of it, is not used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Damage {
    /// It is not there.
    #[error("it is not there")]
    Missing,
    /// It does not start like one.
    #[error("it does not start like one")]
    Magic,
    /// It is another version.
    #[error("it is version {0}, and this library reads versions {OLDEST} to {VERSION}")]
    Version(u32),
    /// It ends too early.
    #[error("it ends after {0} bytes")]
    Short(u64),
    /// It is longer than what it holds.
    #[error("it has {0} bytes more than it says")]
    Long(u64),
    /// Its checksum is another one.
    #[error("its checksum is another one")]
    Checksum,
    /// Its blocks have another shape.
    #[error("its blocks have {0} tokens and {1} bytes")]
    Shape(u32, u64),
    /// It is of another save, or in another place of it.
    #[error("it is another save's, or another one of this save")]
    Place,
    /// A block's parent is neither a root nor before it.
    #[error("a block comes before its parent")]
    Parent,
    /// A block's digest is not that of its parent and tokens.
    #[error("a block's name is not that of its content")]
    Name,
    /// A state has more blocks than the prefix that it is behind has room for.
    #[error("a state is larger than what it is the state behind")]
    State,
}

/// The manifest.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Manifest {
    /// Of the save.
    pub id: SaveId,
    /// Of its blocks.
    pub shape: Shape,
    /// In all segments.
    pub blocks: u64,
    /// Models and adapters.
    pub roots: Vec<Digest>,
    /// Length and checksum of each.
    pub segments: Vec<(u64, u32)>,
    /// What is overwritten in place, as it was at the end of prefixes.
    pub states: Vec<StateList>,
}

/// A reader of fields, which ends where the bytes end.
struct Fields<'b>(&'b [u8]);

impl<'b> Fields<'b> {
    fn take(&mut self, bytes: usize) -> Option<&'b [u8]> {
        let (head, tail) = self.0.split_at_checked(bytes)?;
        self.0 = tail;
        Some(head)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    fn digest(&mut self) -> Option<Digest> {
        self.array().map(Digest::from_bytes)
    }
}

/// Splits the checksum off, and looks at it.
fn checked(bytes: &[u8]) -> Result<&[u8], Damage> {
    let (body, sum) = bytes.split_last_chunk::<4>().ok_or(Damage::Short(bytes.len() as u64))?;
    if crc32c::crc32c(body) == u32::from_le_bytes(*sum) { Ok(body) } else { Err(Damage::Checksum) }
}

fn seal(out: &mut Vec<u8>, from: usize) {
    let sum = crc32c::crc32c(&out[from..]);
    out.extend(sum.to_le_bytes());
}

fn begin(out: &mut Vec<u8>, magic: &[u8; 8], shape: Shape, id: SaveId) {
    out.extend(magic);
    out.extend(VERSION.to_le_bytes());
    out.extend(shape.tokens.to_le_bytes());
    out.extend(shape.bytes.to_le_bytes());
    out.extend(id.0);
}

/// Magic and version, which say whether the rest can be read at all.
fn opening(bytes: &[u8], magic: &[u8; 8]) -> Result<u32, Damage> {
    let short = Damage::Short(bytes.len() as u64);
    let mut fields = Fields(bytes);
    if fields.array::<8>().ok_or(short)? != *magic {
        return Err(Damage::Magic);
    }
    let version = fields.u32().ok_or(short)?;
    if (OLDEST..=VERSION).contains(&version) { Ok(version) } else { Err(Damage::Version(version)) }
}

/// What a segment's header says behind its version. It is whole.
fn segment_header<'b>(bytes: &'b [u8], magic: &[u8; 8]) -> Result<Fields<'b>, Damage> {
    opening(bytes, magic)?;
    let header = bytes.get(..SEGMENT_HEADER).ok_or(Damage::Short(bytes.len() as u64))?;
    Ok(Fields(&checked(header)?[12..]))
}

/// Ends a segment: how many records it has, which its header says at `at`.
fn end_header(out: &mut [u8], at: usize, records: u32) {
    out[at..at + 4].copy_from_slice(&records.to_le_bytes());
    let sum = crc32c::crc32c(&out[..SEGMENT_HEADER - 4]);
    out[SEGMENT_HEADER - 4..SEGMENT_HEADER].copy_from_slice(&sum.to_le_bytes());
}

impl Manifest {
    /// The bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(MANIFEST_HEADER + 32 * self.roots.len() + 12 * self.segments.len() + 4);
        begin(&mut out, MANIFEST, self.shape, self.id);
        out.extend((self.roots.len() as u32).to_le_bytes());
        out.extend((self.segments.len() as u32).to_le_bytes());
        out.extend(self.blocks.to_le_bytes());
        self.roots.iter().for_each(|root| out.extend(root.as_bytes()));
        for (length, sum) in &self.segments {
            out.extend(length.to_le_bytes());
            out.extend(sum.to_le_bytes());
        }
        out.extend((self.states.len() as u32).to_le_bytes());
        self.states.iter().for_each(|list| list.encode(&mut out));
        seal(&mut out, 0);
        out
    }

    /// From its bytes.
    ///
    /// # Errors
    /// [`Damage`].
    pub fn decode(bytes: &[u8]) -> Result<Self, Damage> {
        let version = opening(bytes, MANIFEST)?;
        let body = checked(bytes)?;
        let short = || Damage::Short(bytes.len() as u64);
        let mut fields = Fields(&body[12..]);
        let tokens = fields.u32().ok_or_else(short)?;
        let shape = Shape { tokens, bytes: fields.u64().ok_or_else(short)? };
        let id = SaveId(fields.array().ok_or_else(short)?);
        let roots = fields.u32().ok_or_else(short)?;
        let segments = fields.u32().ok_or_else(short)?;
        let blocks = fields.u64().ok_or_else(short)?;
        // Before anything is allocated for them.
        let needed = u64::from(roots) * 32 + u64::from(segments) * 12;
        let there = fields.0.len() as u64;
        if there < needed {
            return Err(short());
        }
        let roots = (0..roots).map_while(|_| fields.digest()).collect();
        let segments = (0..segments).map_while(|_| Some((fields.u64()?, fields.u32()?))).collect();
        let mut states = Vec::new();
        if version > 1 {
            for _ in 0..fields.u32().ok_or_else(short)? {
                states.push(StateList::decode(&mut fields).ok_or_else(short)?);
            }
        }
        match fields.0.len() as u64 {
            0 => Ok(Manifest { id, shape, blocks, roots, segments, states }),
            more => Err(Damage::Long(more)),
        }
    }
}

/// A block, its name, and its bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record {
    /// Its name.
    pub digest: Digest,
    /// What is before it.
    pub parent: Digest,
    /// What it is behind.
    pub root: Digest,
    /// What is in it besides tokens.
    pub extra: u128,
    /// Its tokens.
    pub tokens: Vec<u32>,
    /// Where its bytes are in the segment.
    pub bytes: std::ops::Range<usize>,
}

/// Begins a segment: the header of an empty one.
pub fn begin_segment(shape: Shape, id: SaveId, ordinal: u32) -> Vec<u8> {
    let mut out = Vec::with_capacity(SEGMENT_HEADER);
    begin(&mut out, SEGMENT, shape, id);
    out.extend(ordinal.to_le_bytes());
    out.resize(SEGMENT_HEADER, 0);
    out
}

/// Ends a segment of so many records.
pub fn end_segment(out: &mut [u8], records: u32) {
    end_header(out, 44, records);
}

/// Adds a record; `fill` writes the block.
///
/// # Errors
/// What `fill` says; nothing was added.
pub fn push_record<E>(
    out: &mut Vec<u8>,
    shape: Shape,
    [digest, parent, root]: [Digest; 3],
    extra: u128,
    tokens: &[u32],
    fill: impl FnOnce(&mut [u8]) -> Result<(), E>,
) -> Result<(), E> {
    let from = out.len();
    for name in [digest, parent, root] {
        out.extend(name.as_bytes());
    }
    out.extend(extra.to_le_bytes());
    tokens.iter().for_each(|token| out.extend(token.to_le_bytes()));
    let block = out.len();
    out.resize(block + shape.bytes as usize, 0);
    if let Err(error) = fill(&mut out[block..]) {
        out.truncate(from);
        return Err(error);
    }
    seal(out, from);
    Ok(())
}

/// What is good in a segment: records up to the first that is not, and why it ends there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Decoded {
    /// In their order.
    pub records: Vec<Record>,
    /// `None`: it is whole.
    pub damage: Option<Damage>,
}

/// Reads segment `ordinal` of a save.
///
/// # Errors
/// [`Damage`] when it is not that segment, or its header is damaged.
pub fn decode_segment(bytes: &[u8], shape: Shape, id: SaveId, ordinal: u32) -> Result<Decoded, Damage> {
    let mut fields = segment_header(bytes, SEGMENT)?;
    let short = Damage::Short(bytes.len() as u64);
    let found = Shape { tokens: fields.u32().ok_or(short)?, bytes: fields.u64().ok_or(short)? };
    if found != shape {
        return Err(Damage::Shape(found.tokens, found.bytes));
    }
    if fields.array() != Some(id.0) || fields.u32() != Some(ordinal) {
        return Err(Damage::Place);
    }
    let count = fields.u32().ok_or(short)? as usize;
    let each = shape.record().ok_or(Damage::Shape(found.tokens, found.bytes))?;
    let there = (bytes.len() - SEGMENT_HEADER) / each;
    // As many as there are, whatever the header says.
    let mut records = Vec::with_capacity(count.min(there));
    for (index, record) in bytes[SEGMENT_HEADER..].chunks_exact(each).take(count).enumerate() {
        match decode_record(record, shape, SEGMENT_HEADER + index * each) {
            Ok(record) => records.push(record),
            Err(damage) => return Ok(Decoded { records, damage: Some(damage) }),
        }
    }
    // Not in 64 bits: a header may say anything.
    let (whole, found) = (SEGMENT_HEADER as u128 + count as u128 * each as u128, bytes.len() as u128);
    let damage = match found.cmp(&whole) {
        std::cmp::Ordering::Less => Some(short),
        std::cmp::Ordering::Equal => None,
        std::cmp::Ordering::Greater => Some(Damage::Long((found - whole) as u64)),
    };
    Ok(Decoded { records, damage })
}

fn decode_record(bytes: &[u8], shape: Shape, at: usize) -> Result<Record, Damage> {
    let short = || Damage::Short(bytes.len() as u64);
    let body = checked(bytes)?;
    let mut fields = Fields(body);
    let [digest, parent, root] = [fields.digest(), fields.digest(), fields.digest()].map(|name| name.ok_or_else(short));
    let (digest, parent, root) = (digest?, parent?, root?);
    let extra = fields.array().map(u128::from_le_bytes).ok_or_else(short)?;
    let tokens = fields.take(shape.tokens as usize * 4).ok_or_else(short)?;
    let tokens: Vec<u32> = tokens.as_chunks().0.iter().map(|token| u32::from_le_bytes(*token)).collect();
    if parent.child(extra, &tokens) != digest {
        return Err(Damage::Name);
    }
    let from = at + body.len() - fields.0.len();
    Ok(Record { digest, parent, root, extra, tokens, bytes: from..at + body.len() })
}
