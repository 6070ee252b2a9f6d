//! The kernel's files on Linux.

use std::{
    fmt::Display,
    fs::File,
    io::{self, ErrorKind, Read},
    path::{Path, PathBuf},
};

use super::{
    groups::{Group, find_groups},
    parse,
    reading::{CgroupReading, Psi},
    source::{Faults, Sample, Source},
};
use crate::units::Bytes;

/// No file of the kernel that is read here is longer; the rest of one that is does not count.
const MOST_BYTES: usize = 64 << 10;
/// How many readings share one look at which cgroup this process is in: four seconds at the usual interval. Processes are
/// put into their group before they start; the rare one that is moved is noticed then.
const SAME_GROUP: u32 = 16;

/// Linux: `/proc/meminfo`, `/proc/pressure/memory`, and the memory limits of cgroups from the own group up to the root, in
/// the unified hierarchy and in the old one's memory controller.
///
/// A reading that finds what the one before found takes nothing from the heap.
#[derive(Clone, Debug)]
pub struct ProcFiles {
    root: PathBuf,
    meminfo: PathBuf,
    stalls: PathBuf,
    own: PathBuf,
    buffer: Vec<u8>,
    known: Known,
}

/// Which groups this process is in.
#[derive(Clone, Default, Debug)]
struct Known {
    /// What `/proc/self/cgroup` said.
    said: Option<Vec<u8>>,
    groups: Vec<Group>,
    /// What was wrong with finding them.
    faults: Faults,
    /// For how many readings this holds.
    left: u32,
}

impl ProcFiles {
    /// Reads the files below `root`: `/` for the real ones, a directory of a test otherwise.
    pub fn under(root: impl Into<PathBuf>) -> Self {
        let root = root.into();
        ProcFiles {
            meminfo: root.join("proc/meminfo"),
            stalls: root.join("proc/pressure/memory"),
            own: root.join("proc/self/cgroup"),
            root,
            buffer: vec![0; MOST_BYTES],
            known: Known::default(),
        }
    }

    fn look_for_groups(&mut self) {
        if self.known.left > 0 {
            self.known.left -= 1;
            return;
        }
        self.known.left = SAME_GROUP - 1;
        let content = read(&self.own, &mut self.buffer).unwrap_or_default();
        if self.known.said.as_deref() == Some(content) {
            return;
        }
        self.known.said = Some(content.to_vec());
        self.known.faults.clear();
        self.known.groups = find_groups(&self.root, &self.own, content, &mut self.known.faults);
    }
}

impl Source for ProcFiles {
    fn sample(&mut self, sample: &mut Sample) {
        self.look_for_groups();
        let Known { groups, faults, .. } = &self.known;
        sample.faults.clone_from(faults);
        let mut files = Files { buffer: &mut self.buffer, faults: &mut sample.faults };
        sample.host = files.must(&self.meminfo, parse::meminfo, "host memory makes no pressure");
        let machine = files.must(&self.stalls, parse::psi, "the machine's stalls make no pressure");
        let own = groups.iter().find_map(|group| group.pressure.as_ref());
        let own = own.and_then(|own| files.may(own, parse::psi, "the own group's stalls make no pressure"));
        sample.psi = match (machine, own) {
            (Some(one), Some(two)) => Some(Psi { some: one.some.max(two.some), full: one.full.max(two.full) }),
            (one, two) => one.or(two),
        };
        let readings = groups.iter().filter_map(|group| files.group(group));
        sample.cgroup = readings.min_by_key(CgroupReading::available);
    }
}

/// The files of one reading.
struct Files<'s> {
    buffer: &'s mut [u8],
    faults: &'s mut Faults,
}

type Parse<T> = fn(&[u8]) -> Result<T, parse::ParseError>;

impl Files<'_> {
    /// One group's reading, if it has a limit. The root has no such files, and a kernel may lack some.
    fn group(&mut self, group: &Group) -> Option<CgroupReading> {
        let no_limit = "it counts as no limit";
        let high = group.high.as_ref().and_then(|file| self.may(file, parse::high, no_limit).flatten());
        let max = self.may(&group.max, if group.old { parse::old_max } else { parse::max }, no_limit).flatten();
        if high.is_none() && max.is_none() {
            return None;
        }
        let current = self.must(&group.current, parse::current, "this group makes no pressure")?;
        let inactive = if group.old { parse::total_inactive_file } else { parse::inactive_file };
        let cache = self.may(&group.stat, inactive, "file cache counts as used");
        Some(CgroupReading { current, reclaimable: cache.unwrap_or(Bytes::ZERO), high, max, depth: group.depth })
    }

    /// A file that has to be there.
    fn must<T>(&mut self, file: &Path, parse: Parse<T>, instead: &'static str) -> Option<T> {
        self.parsed(file, parse, instead, true)
    }

    /// A file that need not be there.
    fn may<T>(&mut self, file: &Path, parse: Parse<T>, instead: &'static str) -> Option<T> {
        self.parsed(file, parse, instead, false)
    }

    fn parsed<T>(&mut self, file: &Path, parse: Parse<T>, instead: &'static str, must: bool) -> Option<T> {
        let mut fault = |why: &dyn Display| self.faults.push(file.display(), why, instead);
        match read(file, self.buffer) {
            Ok(content) => match parse(content) {
                Ok(value) => return Some(value),
                Err(error) => fault(&error),
            },
            Err(error) if error.kind() == ErrorKind::NotFound && !must => {}
            Err(error) if error.kind() == ErrorKind::NotFound => fault(&"is not there"),
            Err(error) => fault(&error),
        }
        None
    }
}

/// The file's content, in the buffer. One read: the kernel writes these files in one piece, and asking again for their end
/// would double what a reading costs.
fn read<'b>(file: &Path, buffer: &'b mut [u8]) -> io::Result<&'b [u8]> {
    let length = File::open(file)?.read(buffer)?;
    Ok(&buffer[..length])
}
