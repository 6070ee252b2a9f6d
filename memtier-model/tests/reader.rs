//! What the reader reads, and what it says about files that are wrong in one particular way.

use std::io::Cursor;

use memtier_model::gguf::{Limits, Value, ValueType};
use memtier_model::write::GgufWriter;
use memtier_model::{Gguf, GgufError, Header, MetadataError, SplitError, TensorType};

fn sample() -> GgufWriter {
    let mut file = GgufWriter::new();
    file.string("general.architecture", "llama")
        .u32("a.u32", 7)
        .u64("a.u64", 1 << 40)
        .f32("a.f32", 0.5)
        .bool("a.bool", true)
        .u32s("a.u32s", &[1, 2, 3])
        .bools("a.bools", &[true, false])
        .strings("a.strings", &["x", "", "Zoë"]);
    file.tensor("first", &[32, 2], TensorType::Q4_0, vec![1; 36]).unwrap();
    file.tensor_f32("second", &[3], &[1.0, 2.0, 3.0]).unwrap();
    file
}

fn error(bytes: &[u8]) -> GgufError {
    Gguf::from_bytes(bytes).expect_err("the file is wrong")
}

/// Replaces the only occurrence of `from`.
fn patch(bytes: &mut [u8], from: &[u8], to: &[u8]) {
    let places: Vec<usize> =
        bytes.windows(from.len()).enumerate().filter(|(_, w)| *w == from).map(|(i, _)| i).collect();
    let [at] = places[..] else { panic!("{} occurrences of {from:?}", places.len()) };
    bytes[at..at + to.len()].copy_from_slice(to);
}

#[test]
fn metadata_and_tensors_read_back_as_written() {
    for version in [2, 3] {
        let bytes = sample().version(version).to_bytes();
        let model = Gguf::from_bytes(&bytes).unwrap();
        let metadata = model.metadata();
        assert_eq!(model.parts()[0].version(), version);
        assert_eq!(metadata.len(), 8);
        assert_eq!(metadata.iter().next(), Some(("general.architecture", Value::String(b"llama"))));
        assert_eq!(metadata.u32("a.u32"), Ok(7));
        assert_eq!(metadata.u64("a.u32"), Ok(7));
        assert_eq!(metadata.u64("a.u64"), Ok(1 << 40));
        assert_eq!(metadata.f32("a.f32"), Ok(0.5));
        assert_eq!(metadata.bool("a.bool"), Ok(true));
        let strings: Vec<_> = metadata.array("a.strings").unwrap().strings().unwrap().collect();
        assert_eq!(strings, ["x".as_bytes(), b"", "Zoë".as_bytes()]);
        assert!(metadata.array("a.u32s").unwrap().strings().is_none());

        let [first, second] = model.tensors() else { panic!("two tensors") };
        assert_eq!((first.name.as_str(), first.tensor_type, first.byte_len), ("first", TensorType::Q4_0, 36));
        assert_eq!((first.row_bytes(), first.shape.dims()), (18, &[32, 2][..]));
        assert_eq!((second.offset - first.offset, second.byte_len), (64, 12));
        assert_eq!(bytes[second.offset as usize..][..4], 1f32.to_le_bytes());
        assert_eq!(model.tensor("second"), Some(second));
        assert_eq!(model.tensor("third"), None);
        assert_eq!(model.tensor_bytes(), 48);
    }
}

#[test]
fn a_wrong_type_names_key_and_types() {
    let bytes = sample().to_bytes();
    let model = Gguf::from_bytes(&bytes).unwrap();
    let metadata = model.metadata();
    let wrong = |wanted, found| MetadataError::WrongType { key: "a.f32".into(), wanted, found };
    assert_eq!(metadata.u32("a.f32"), Err(wrong("an integer", ValueType::F32)));
    assert_eq!(metadata.str("a.f32"), Err(wrong("a string", ValueType::F32)));
    assert!(matches!(metadata.u32("a.u64"), Err(MetadataError::OutOfRange { key, .. }) if key == "a.u64"));
    assert_eq!(metadata.u32("b"), Err(MetadataError::Missing { key: "b".into() }));
    assert_eq!(metadata.optional::<u32>("b"), Ok(None));
}

#[test]
fn a_value_per_layer_is_an_array_or_one_for_all() {
    let bytes = sample().to_bytes();
    let model = Gguf::from_bytes(&bytes).unwrap();
    let metadata = model.metadata();
    assert_eq!(metadata.per_layer::<u32>("a.u32s", 3), Ok(Some(vec![1, 2, 3])));
    assert_eq!(metadata.per_layer::<u32>("a.u32", 2), Ok(Some(vec![7, 7])));
    assert_eq!(metadata.per_layer::<u32>("b", 2), Ok(None));
    let short = MetadataError::NotPerLayer { key: "a.u32s".into(), found: 3, layers: 4 };
    assert_eq!(metadata.per_layer::<u32>("a.u32s", 4), Err(short));
}

#[test]
fn a_reader_gives_what_a_slice_gives_and_a_short_prefix_says_how_much_more() {
    let bytes = sample().to_bytes();
    let whole = Header::parse(&bytes).unwrap();
    let read = Header::read(Cursor::new(&bytes)).unwrap();
    assert_eq!(read.tensors(), whole.tensors());
    assert_eq!((read.data_offset(), read.header_len()), (whole.data_offset(), whole.header_len()));

    // Following the errors leads to the header without ever asking for tensor data.
    let mut given = 0;
    let header = loop {
        match Header::parse_prefix(&bytes[..given], bytes.len() as u64, &Limits::default()) {
            Ok(header) => break header,
            Err(GgufError::PrefixTooShort { needed, .. }) => {
                assert!(needed > given as u64 && needed <= whole.header_len());
                given = needed as usize;
            }
            Err(other) => panic!("{other}"),
        }
    };
    assert_eq!(header.tensors(), whole.tensors());
    assert_eq!(given as u64, whole.header_len());
}

#[test]
fn no_tensor_data_is_read_of_a_file_of_100_gb() {
    let bytes = sample().to_bytes();
    let size = 100 << 30;
    let header = Header::parse_prefix(&bytes[..bytes.len() - 32], size, &Limits::default()).unwrap();
    assert_eq!(header.tensors().len(), 2);
    assert_eq!(header.file_size(), size);
}

#[test]
fn what_is_no_gguf_file_is_named() {
    assert!(matches!(error(b"<htm"), GgufError::WrongMagic { found } if &found == b"<htm"));
    assert!(matches!(error(b"GG"), GgufError::Truncated { offset: 0, needed: 4, available: 2, .. }));
    let mut bytes = sample().to_bytes();
    bytes[4..8].copy_from_slice(&3u32.to_be_bytes());
    assert!(matches!(error(&bytes), GgufError::BigEndian { version: 3 }));
    bytes[4..8].copy_from_slice(&1u32.to_le_bytes());
    assert!(matches!(error(&bytes), GgufError::UnsupportedVersion { version: 1 }));
}

#[test]
fn a_count_beyond_the_file_is_refused_before_anything_is_allocated() {
    for at in [8, 16] {
        let mut bytes = sample().to_bytes();
        bytes[at..at + 8].copy_from_slice(&u64::MAX.to_le_bytes());
        assert!(matches!(error(&bytes), GgufError::Limit { offset, .. } if offset == at as u64));
        bytes[at..at + 8].copy_from_slice(&60_000u64.to_le_bytes());
        assert!(matches!(error(&bytes), GgufError::Truncated { offset, .. } if offset == at as u64 + 8));
    }
    let mut bytes = sample().to_bytes();
    let array = |len: u64| [&b"a.u32s\x09\0\0\0\x04\0\0\0"[..], &len.to_le_bytes()].concat();
    patch(&mut bytes, &array(3), &array(1 << 61));
    assert!(matches!(error(&bytes), GgufError::Truncated { what: "an array", .. }));
}

#[test]
fn a_tensor_past_the_end_names_needed_and_found_bytes() {
    let mut bytes = sample().to_bytes();
    bytes.truncate(bytes.len() - 21);
    let (tensor, needed, found) = match error(&bytes) {
        GgufError::TensorPastEnd { tensor, needed, found } => (tensor, needed, found),
        other => panic!("{other}"),
    };
    assert_eq!((tensor.as_str(), needed - found), ("second", 1));
}

#[test]
fn tensors_that_cannot_be_are_named() {
    let table = |name: &[u8], dims: &[u64], id: u32, offset: u64| {
        let dims_bytes = dims.iter().flat_map(|dim| dim.to_le_bytes()).collect::<Vec<_>>();
        [name, &(dims.len() as u32).to_le_bytes(), &dims_bytes, &id.to_le_bytes(), &offset.to_le_bytes()].concat()
    };
    let patched = |dims: [u64; 2], id: u32, offset: u64| {
        let mut bytes = sample().to_bytes();
        patch(&mut bytes, &table(b"first", &[32, 2], 2, 0), &table(b"first", &dims, id, offset));
        error(&bytes)
    };
    assert!(matches!(patched([32, 2], 99, 0), GgufError::UnknownTensorType { found: 99, .. }));
    assert!(matches!(patched([32, 2], 4, 0), GgufError::RemovedTensorType { name: "Q4_2", .. }));
    assert!(matches!(patched([31, 2], 2, 0), GgufError::RowNotWholeBlocks { row: 31, block: 32, .. }));
    assert!(matches!(patched([32, 0], 2, 0), GgufError::ZeroDimension { .. }));
    assert!(matches!(patched([1 << 40, 1 << 40], 2, 0), GgufError::TensorTooLarge { .. }));
    assert!(matches!(patched([32, 2], 2, 4), GgufError::MisalignedTensor { offset: 4, alignment: 32, .. }));
    assert!(matches!(patched([32, 2], 2, 1 << 63), GgufError::TensorPastEnd { .. }));
    let overlap = patched([32, 2], 2, 32);
    assert!(matches!(&overlap, GgufError::OverlappingTensors { first, .. } if first == "first"), "{overlap}");
    assert!(patched([31, 2], 2, 0).to_string().contains("\"first\""));
}

#[test]
fn duplicate_names_are_refused() {
    assert!(
        matches!(error(&sample().u32("a.u32", 1).to_bytes()), GgufError::DuplicateKey { key, .. } if key == "a.u32")
    );
    let mut file = sample();
    file.tensor_f32("second", &[1], &[0.0]).unwrap();
    assert!(matches!(error(&file.to_bytes()), GgufError::DuplicateTensor { tensor, .. } if tensor == "second"));
}

#[test]
fn alignment_is_the_files_own_and_a_power_of_two() {
    let bytes = sample().alignment(256).to_bytes();
    let model = Gguf::from_bytes(&bytes).unwrap();
    assert!(model.tensors().iter().all(|tensor| tensor.offset % 256 == 0));
    for wrong in [0, 24, 1 << 31] {
        let mut file = sample();
        file.u32("general.alignment", wrong);
        assert!(matches!(error(&file.to_bytes()), GgufError::BadAlignment { found } if found == u64::from(wrong)));
    }
    let text = error(&sample().string("general.alignment", "x").to_bytes()).to_string();
    assert!(text.contains("general.alignment") && text.contains("string"), "{text}");
}

#[test]
fn values_that_cannot_be_are_named() {
    let raw = |value_type, bytes: &[u8]| error(&sample().raw("odd", value_type, bytes.to_vec()).to_bytes());
    assert!(matches!(raw(ValueType::Bool, &[2]), GgufError::BadBool { key, found: 2, .. } if key == "odd"));
    let nested = [&9u32.to_le_bytes()[..], &1u64.to_le_bytes()].concat();
    assert!(matches!(raw(ValueType::Array, &nested), GgufError::NestedArray { .. }));
    let unknown = [&77u32.to_le_bytes()[..], &1u64.to_le_bytes()].concat();
    assert!(matches!(raw(ValueType::Array, &unknown), GgufError::UnknownValueType { found: 77, .. }));
}

/// A part with one tensor of its own.
fn part(number: u32, count: u32) -> GgufWriter {
    let mut file = GgufWriter::new();
    file.u32("split.no", number).u32("split.count", count).u32("split.tensors.count", count);
    file.tensor_f32(&format!("t{number}"), &[2], &[0.0, 1.0]).unwrap();
    file
}

#[test]
fn a_split_model_opens_by_the_path_of_any_part() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let path = |number: u32| folder.join(format!("m-{number:05}-of-00003.gguf"));
    for number in 0..3 {
        std::fs::write(path(number + 1), part(number, 3).to_bytes()).unwrap();
    }
    for number in 1..=3 {
        let model = Gguf::open(path(number)).unwrap();
        assert_eq!(model.paths(), [path(1), path(2), path(3)]);
        assert_eq!(model.tensors().iter().map(|tensor| tensor.part).collect::<Vec<_>>(), [0, 1, 2]);
    }
    let odd = folder.join("odd.gguf");
    std::fs::write(&odd, part(0, 3).to_bytes()).unwrap();
    let text = Gguf::open(&odd).unwrap_err().to_string();
    assert!(text.contains("-00001-of-00003.gguf"), "{text}");
    std::fs::remove_file(path(2)).unwrap();
    let text = Gguf::open(path(1)).unwrap_err().to_string();
    assert!(text.contains("m-00002-of-00003.gguf"), "{text}");
}

#[test]
fn parts_that_are_not_of_one_model_are_refused() {
    let bytes: Vec<_> = [part(0, 2), part(1, 2), part(0, 1)].iter().map(GgufWriter::to_bytes).collect();
    let header = |index: usize| Header::parse(&bytes[index]).unwrap();
    let refused = |parts| match Gguf::from_headers(parts) {
        Err(GgufError::Split(error)) => error,
        other => panic!("{other:?}"),
    };
    assert!(Gguf::from_headers(vec![header(0), header(1)]).is_ok());
    assert!(Gguf::from_headers(vec![header(2)]).is_ok());
    assert_eq!(refused(vec![]), SplitError::Empty);
    assert_eq!(refused(vec![header(0)]), SplitError::WrongCount { expected: 2, found: 1 });
    assert_eq!(refused(vec![header(0), header(0)]), SplitError::WrongPlace { place: 2, found: 1 });
}
