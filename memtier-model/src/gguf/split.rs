//! Split models: `NAME-00001-of-00004.gguf` and its siblings.

use std::path::{Path, PathBuf};

use thiserror::Error;

use super::error::GgufError;
use super::header::Header;

/// Why the parts of a split model do not fit together. Parts are counted from 1, as in their names.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum SplitError {
    /// No parts at all.
    #[error("a model has at least one file, and none was given")]
    Empty,
    /// The file says that it is a part, and its name does not say of what.
    #[error(
        "{path} is part {part} of {count} of a split model, but its name does not end in \"-{part:05}-of-{count:05}.\
         gguf\", so the other parts cannot be found: give the parts their names back"
    )]
    NotNamedAsPart {
        /// The file.
        path: PathBuf,
        /// Its part, from 1.
        part: u64,
        /// The number of parts.
        count: u64,
    },
    /// Another number of files than the first part says.
    #[error("the first part says that the model has {expected} parts, and {found} were given: fetch the missing ones")]
    WrongCount {
        /// Parts by the first part's metadata.
        expected: u64,
        /// Parts given.
        found: usize,
    },
    /// A file that says it is another part than its place.
    #[error("the file in place {place} says that it is part {found}: a part is misnamed or given out of order")]
    WrongPlace {
        /// The place, from 1.
        place: usize,
        /// The part it says to be, from 1.
        found: u64,
    },
    /// The tensors of all parts are not as many as the first says.
    #[error("the first part says that the model has {expected} tensors, and its parts have {found}: fetch it again")]
    WrongTensorCount {
        /// Tensors by the first part's metadata.
        expected: u64,
        /// Tensors found.
        found: usize,
    },
}

/// A model has at most this many parts; the names have five digits.
const MAX_PARTS: u64 = 99_999;

/// The part number (from 0) and the number of parts that a file's metadata state; `(0, 1)` where it states none.
pub(crate) fn stated(header: &Header<'_>) -> Result<(u64, u64), GgufError> {
    let metadata = header.metadata();
    let count = metadata.optional::<u64>("split.count")?.unwrap_or(1);
    let number = metadata.optional::<u64>("split.no")?.unwrap_or(0);
    if count > MAX_PARTS || number >= count.max(1) {
        let (expected, found) = (count, usize::try_from(number).unwrap_or(usize::MAX));
        return Err(SplitError::WrongCount { expected, found }.into());
    }
    Ok((number, count.max(1)))
}

/// The paths of all parts of a model of `count` parts, from the path of part `number` (from 0), or `None` when that
/// path is not named as a part.
///
/// ```
/// use memtier_model::gguf::split_paths;
/// let paths = split_paths("m-00002-of-00003.gguf".as_ref(), 1, 3).unwrap();
/// assert_eq!(paths[2], std::path::Path::new("m-00003-of-00003.gguf"));
/// assert_eq!(split_paths("m.gguf".as_ref(), 1, 3), None);
/// ```
pub fn split_paths(path: &Path, number: u64, count: u64) -> Option<Vec<PathBuf>> {
    if count > MAX_PARTS || number >= count {
        return None;
    }
    let name = path.file_name()?.to_str()?;
    let stem = name.strip_suffix(&part_suffix(number, count))?;
    Some((0..count).map(|part| path.with_file_name(format!("{stem}{}", part_suffix(part, count)))).collect())
}

fn part_suffix(number: u64, count: u64) -> String {
    format!("-{:05}-of-{count:05}.gguf", number + 1)
}

/// Checks that headers are the parts of one model, in order.
pub(crate) fn check_parts(parts: &[Header<'_>]) -> Result<(), GgufError> {
    let first = parts.first().ok_or(SplitError::Empty)?;
    let (_, count) = stated(first)?;
    if count != parts.len() as u64 {
        return Err(SplitError::WrongCount { expected: count, found: parts.len() }.into());
    }
    for (place, header) in parts.iter().enumerate() {
        let (number, _) = stated(header)?;
        if number != place as u64 {
            return Err(SplitError::WrongPlace { place: place + 1, found: number + 1 }.into());
        }
    }
    let found = parts.iter().map(|part| part.tensors().len()).sum::<usize>();
    if let Some(expected) = first.metadata().optional::<u64>("split.tensors.count")?
        && expected != found as u64
    {
        return Err(SplitError::WrongTensorCount { expected, found }.into());
    }
    Ok(())
}
