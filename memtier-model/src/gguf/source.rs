//! Where header bytes come from: a slice that is there, or a reader that is read as far as the header goes.

use std::borrow::Cow;
use std::io::{Read, Seek, SeekFrom};

use super::error::GgufError;

/// Bytes from the beginning of a file, as many as asked for.
pub(crate) trait Source {
    /// Size of the whole file in bytes.
    fn file_size(&self) -> u64;

    /// At least the first `end` bytes. The caller has checked `end` against the file's size.
    fn prefix(&mut self, end: u64) -> Result<&[u8], GgufError>;
}

/// A prefix that the caller holds.
pub(crate) struct Prefix<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) file_size: u64,
}

impl Source for Prefix<'_> {
    fn file_size(&self) -> u64 {
        self.file_size
    }

    fn prefix(&mut self, end: u64) -> Result<&[u8], GgufError> {
        if end > self.bytes.len() as u64 {
            return Err(GgufError::PrefixTooShort { needed: end, given: self.bytes.len() as u64 });
        }
        Ok(self.bytes)
    }
}

/// A file that is read in growing steps, so that a header of megabytes takes a few reads and one of kilobytes does
/// not drag in weights.
pub(crate) struct Growing<R> {
    reader: R,
    bytes: Vec<u8>,
    file_size: u64,
}

/// The first step. Headers with a vocabulary are megabytes, those without are far below this.
const FIRST_READ: u64 = 256 << 10;

impl<R: Read + Seek> Growing<R> {
    /// Takes the reader's size and goes back to its beginning.
    pub(crate) fn new(mut reader: R) -> Result<Self, GgufError> {
        let failed = |source| GgufError::Read { offset: 0, source };
        let file_size = reader.seek(SeekFrom::End(0)).map_err(failed)?;
        reader.seek(SeekFrom::Start(0)).map_err(failed)?;
        Ok(Growing { reader, bytes: Vec::new(), file_size })
    }

    /// The first `len` bytes, which have been read already.
    pub(crate) fn into_prefix(mut self, len: usize) -> Cow<'static, [u8]> {
        self.bytes.truncate(len);
        self.bytes.shrink_to_fit();
        Cow::Owned(self.bytes)
    }
}

impl<R: Read> Source for Growing<R> {
    fn file_size(&self) -> u64 {
        self.file_size
    }

    fn prefix(&mut self, end: u64) -> Result<&[u8], GgufError> {
        let have = self.bytes.len() as u64;
        if end > have {
            // Doubling bounds both the number of reads and what is read beyond the header.
            let target = end.max(have.saturating_mul(2)).max(FIRST_READ).min(self.file_size);
            let read = (&mut self.reader)
                .take(target - have)
                .read_to_end(&mut self.bytes)
                .map_err(|source| GgufError::Read { offset: have, source })?;
            if have + (read as u64) < end {
                // The file shrank since its size was taken.
                let available = have + read as u64;
                return Err(GgufError::Truncated { offset: have, what: "the header", needed: end, available });
            }
        }
        Ok(&self.bytes)
    }
}
