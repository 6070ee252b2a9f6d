//! Objects that somebody changed: nothing panics, nothing is allocated for what they say, and no wrong block is loaded.

use memtier::Digest;
use memtier_store::format::{
    Damage, Manifest, SEGMENT_HEADER, SaveId, Shape, begin_segment, decode_segment, end_segment, push_record,
    states::{self, ListName, StateList, StateShape},
};
use object_store::path::Path;
use proptest::prelude::*;

use crate::{change, empty, hits, place, segments, served};

const SHAPE: Shape = Shape { tokens: 4, bytes: 32 };
const ID: SaveId = SaveId([7; 16]);

/// What is done to an object.
#[derive(Clone, Debug)]
enum Harm {
    Bit(prop::sample::Index, u8),
    Cut(prop::sample::Index),
    Grow(Vec<u8>),
    Splice(prop::sample::Index, Vec<u8>),
    Move(prop::sample::Index, prop::sample::Index, usize),
}

fn harm() -> impl Strategy<Value = Harm> {
    let index = any::<prop::sample::Index>;
    let bytes = || proptest::collection::vec(any::<u8>(), 1..40);
    prop_oneof![
        (index(), 0..8u8).prop_map(|(at, bit)| Harm::Bit(at, bit)),
        index().prop_map(Harm::Cut),
        bytes().prop_map(Harm::Grow),
        (index(), bytes()).prop_map(|(at, bytes)| Harm::Splice(at, bytes)),
        (index(), index(), 1..200usize).prop_map(|(from, to, length)| Harm::Move(from, to, length)),
    ]
}

impl Harm {
    fn apply(&self, bytes: &mut Vec<u8>) {
        if bytes.is_empty() {
            return;
        }
        match self {
            Harm::Bit(at, bit) => *at.get_mut(bytes) ^= 1 << bit,
            Harm::Cut(at) => bytes.truncate(at.index(bytes.len())),
            Harm::Grow(more) => bytes.extend(more),
            Harm::Splice(at, other) => {
                let at = at.index(bytes.len());
                let end = bytes.len().min(at + other.len());
                bytes[at..end].copy_from_slice(&other[..end - at]);
            }
            Harm::Move(from, to, length) => {
                let (from, to) = (from.index(bytes.len()), to.index(bytes.len()));
                let length = (*length).min(bytes.len() - from.max(to));
                bytes.copy_within(from..from + length, to);
            }
        }
    }
}

/// Three blocks, each behind the one before.
fn segment() -> Vec<u8> {
    let root = Digest::from_bytes([3; 32]);
    let mut out = begin_segment(SHAPE, ID, 0);
    let mut parent = root;
    for index in 0..3u32 {
        let tokens = [index; 4];
        let digest = parent.child(u128::from(index), &tokens);
        push_record(&mut out, SHAPE, [digest, parent, root], u128::from(index), &tokens, |into| {
            into.fill(index as u8);
            Ok::<_, ()>(())
        })
        .unwrap();
        parent = digest;
    }
    end_segment(&mut out, 3);
    out
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn a_changed_segment_gives_its_first_records_or_none(harms in proptest::collection::vec(harm(), 1..4)) {
        let whole = segment();
        let good = decode_segment(&whole, SHAPE, ID, 0).unwrap();
        prop_assert_eq!((good.records.len(), good.damage), (3, None));
        let mut bytes = whole.clone();
        harms.iter().for_each(|harm| harm.apply(&mut bytes));
        if let Ok(decoded) = decode_segment(&bytes, SHAPE, ID, 0) {
            prop_assert!(bytes == whole || decoded.damage.is_some() || decoded.records.len() < 3);
            for (record, expected) in decoded.records.iter().zip(&good.records) {
                prop_assert_eq!(record, expected);
                prop_assert_eq!(&bytes[record.bytes.clone()], &whole[expected.bytes.clone()]);
            }
        }
    }

    #[test]
    fn no_bytes_make_a_reader_panic(
        mut bytes in proptest::collection::vec(any::<u8>(), 0..400),
        tokens in any::<u32>(),
        size in any::<u64>(),
        seal in any::<bool>(),
        version in any::<bool>(),
    ) {
        if seal && bytes.len() > 16 {
            // Past the checks of the beginning, and of the checksum.
            bytes[..12].copy_from_slice(&[&b"MTPFXMAN"[..], &(1 + u32::from(version)).to_le_bytes()].concat());
            let at = bytes.len() - 4;
            let sum = crc32c::crc32c(&bytes[..at]);
            bytes[at..].copy_from_slice(&sum.to_le_bytes());
        }
        let _ = Manifest::decode(&bytes);
        if seal && bytes.len() > SEGMENT_HEADER {
            bytes[..12].copy_from_slice(&begin_segment(SHAPE, ID, 0)[..12]);
            let records = u32::from_le_bytes(bytes[44..48].try_into().unwrap());
            bytes[12..44].copy_from_slice(&begin_segment(Shape { tokens, bytes: size }, ID, 0)[12..44]);
            end_segment(&mut bytes, records);
        }
        let _ = decode_segment(&bytes, Shape { tokens, bytes: size }, ID, 0);
        let shape = StateShape { tokens: u64::from(tokens), bytes: size };
        if seal && bytes.len() > SEGMENT_HEADER {
            let records = u32::from_le_bytes(bytes[48..52].try_into().unwrap());
            bytes[..48].copy_from_slice(&states::begin_segment(shape, ID, 0)[..48]);
            states::end_segment(&mut bytes, records);
        }
        let _ = states::decode_segment(&bytes, shape, ID, 0);
    }

    #[test]
    fn manifests_come_back_and_changed_ones_do_not(harm in harm(), roots in 0..3u8, segments in 0..5u32, lists in 0..3usize) {
        let roots = (0..roots).map(|root| Digest::from_bytes([root; 32])).collect();
        let segments: Vec<_> = (0..segments).map(|number| (u64::from(number), number)).collect();
        let list = |name| StateList {
            name: ListName::new(name).unwrap(),
            shape: StateShape { tokens: 4, bytes: 8 },
            states: 3,
            segments: segments.clone(),
        };
        let states = ["window", "state"].into_iter().take(lists).map(list).collect();
        let manifest = Manifest { id: ID, shape: SHAPE, blocks: 9, roots, segments, states };
        let whole = manifest.encode();
        let again = Manifest::decode(&whole).unwrap();
        prop_assert_eq!(&again, &manifest);
        let mut bytes = whole.clone();
        harm.apply(&mut bytes);
        if bytes != whole {
            prop_assert!(Manifest::decode(&bytes).is_err());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    /// End to end: whatever is loaded is right (`load` and `found` look), and the blocks are conserved.
    #[test]
    fn a_changed_save_loads_right_blocks_or_none(
        which in 0..4usize,
        harms in proptest::collection::vec(harm(), 1..3),
        with_manifest in any::<bool>(),
    ) {
        let (objects, store) = place();
        served(16).save(&store).unwrap();
        let mut all = segments(&objects);
        let manifest = Path::from("fleet/toy/manifest");
        if with_manifest {
            all.push(manifest);
        } else {
            futures_executor::block_on(object_store::ObjectStoreExt::delete(&*objects, &manifest)).unwrap();
        }
        let path = &all[which % all.len()];
        change(&objects, path, |bytes| harms.iter().for_each(|harm| harm.apply(bytes)));
        let mut toy = empty(16);
        // A manifest that was changed is an error; a segment is a tear.
        if toy.load(&store).is_ok() {
            hits(&mut toy);
        }
        toy.check();
    }
}

#[test]
fn nothing_is_allocated_for_what_a_header_says() {
    let mut huge = begin_segment(SHAPE, ID, 0);
    end_segment(&mut huge, u32::MAX);
    let decoded = decode_segment(&huge, SHAPE, ID, 0).unwrap();
    assert_eq!((decoded.records.capacity(), decoded.damage), (0, Some(Damage::Short(64))));
    let shape = Shape { tokens: u32::MAX, bytes: u64::MAX };
    assert_eq!(shape.record(), None);
    let mut bytes =
        Manifest { id: ID, shape, blocks: 0, roots: Vec::new(), segments: Vec::new(), states: Vec::new() }.encode();
    let at = bytes.len() - 4;
    bytes[40..48].fill(0xff);
    let sum = crc32c::crc32c(&bytes[..at]);
    bytes[at..].copy_from_slice(&sum.to_le_bytes());
    assert_eq!(Manifest::decode(&bytes), Err(Damage::Short(64)));
}

/// A block under the name of another: right checksums, so that only the name tells.
#[test]
fn a_block_whose_name_is_not_its_content_is_refused() {
    let root = Digest::from_bytes([3; 32]);
    let mut out = begin_segment(SHAPE, ID, 0);
    let name = root.child(0, &[1, 2, 3, 4]);
    push_record(&mut out, SHAPE, [name, root, root], 0, &[1, 2, 3, 5], |_| Ok::<_, ()>(())).unwrap();
    end_segment(&mut out, 1);
    let decoded = decode_segment(&out, SHAPE, ID, 0).unwrap();
    assert_eq!((decoded.records.len(), decoded.damage), (0, Some(Damage::Name)));
}
