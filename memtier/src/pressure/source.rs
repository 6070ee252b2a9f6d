//! Where host readings come from.

use std::{
    fmt,
    fs::File,
    io::{self, ErrorKind, Read},
    path::{Component, Path, PathBuf},
};

use super::{
    parse,
    reading::{CgroupReading, HostReading, Psi},
};
use crate::units::Bytes;

/// No file of the kernel that is read here is longer; the rest of one that is does not count.
const MOST_BYTES: usize = 64 << 10;
/// A cgroup path deeper than this is cut off at the leaf's end. The kernel has no limit; people stay below ten.
const MOST_GROUPS: usize = 64;

/// One reading of the host.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Sample {
    /// Its memory.
    pub host: Option<HostReading>,
    /// Stalls on memory.
    pub psi: Option<Psi>,
    /// The tightest cgroup.
    pub cgroup: Option<CgroupReading>,
    /// What could not be read, and what is done instead.
    pub faults: Vec<Fault>,
}

/// Something that could not be read. Never fatal: what is not known is no pressure, and is said.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fault {
    /// Which file or value.
    pub what: String,
    /// Why.
    pub why: String,
    /// What is done instead.
    pub instead: &'static str,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}; {}", self.what, self.why, self.instead)
    }
}

/// Reads the host. The watcher's own thread calls it, a few times a second.
pub trait Source: Send + 'static {
    /// What is there now.
    fn sample(&mut self) -> Sample;
}

/// The host this program runs on: the kernel's files on Linux; elsewhere [`NoHost`], which says so.
pub fn this_host() -> Box<dyn Source> {
    if cfg!(target_os = "linux") { Box::new(ProcFiles::under("/")) } else { Box::new(NoHost) }
}

/// A platform whose host memory this crate cannot read. Devices are fed as everywhere, so their levels, the ladder and the
/// device-resident path work; an engine that has a crate for such things implements [`Source`] with it.
#[derive(Clone, Copy, Default, Debug)]
pub struct NoHost;

impl Source for NoHost {
    fn sample(&mut self) -> Sample {
        let fault = Fault {
            what: format!("host memory on {}", std::env::consts::OS),
            why: "this crate reads it on Linux only".into(),
            instead: "only fed devices make pressure",
        };
        Sample { faults: vec![fault], ..Sample::default() }
    }
}

/// How many readings share one look at which cgroup this process is in: four seconds at the usual interval. Processes are
/// put into their group before they start; the rare one that is moved is noticed then.
const SAME_GROUP: u32 = 16;

/// Linux: `/proc/meminfo`, `/proc/pressure/memory`, and cgroup v2 from the own group up to the root.
#[derive(Clone, Debug)]
pub struct ProcFiles {
    root: PathBuf,
    buffer: Vec<u8>,
    /// The own group and those above it, what was wrong with finding them, and for how many readings that holds.
    groups: (Vec<PathBuf>, Vec<Fault>, u32),
}

impl ProcFiles {
    /// Reads the files below `root`: `/` for the real ones, a directory of a test otherwise.
    pub fn under(root: impl Into<PathBuf>) -> Self {
        ProcFiles { root: root.into(), buffer: vec![0; MOST_BYTES], groups: (Vec::new(), Vec::new(), 0) }
    }

    /// The directory of the unified hierarchy: the usual place, or beside the old controllers.
    fn unified(&self) -> Option<PathBuf> {
        let usual = self.root.join("sys/fs/cgroup");
        let mixed = usual.join("unified");
        [usual, mixed].into_iter().find(|mount| mount.join("cgroup.controllers").exists())
    }

    /// The own group's directory and those above it, the mount last.
    fn find_groups(&mut self, faults: &mut Vec<Fault>) -> Vec<PathBuf> {
        let file = self.root.join("proc/self/cgroup");
        let mut fault =
            |what: &Path, why: String, instead| faults.push(Fault { what: what.display().to_string(), why, instead });
        let Some(mount) = self.unified() else {
            fault(&self.root.join("sys/fs/cgroup"), "no cgroup v2 here".into(), "the machine's memory is the limit");
            return Vec::new();
        };
        let content = read(&file, &mut self.buffer).unwrap_or_default();
        let own = match parse::own_cgroup(content) {
            Ok(own) => PathBuf::from(String::from_utf8_lossy(own).into_owned()),
            Err(error) => {
                fault(&file, error.to_string(), "the root group's limits count");
                PathBuf::new()
            }
        };
        // In a container the path may be one of the host's, which is not mounted here; `..` leads out of the mount.
        let inside = own.components().all(|part| matches!(part, Component::Normal(_)));
        if !inside || !mount.join(&own).is_dir() {
            let why = format!("`{}` is not below {}", own.display(), mount.display());
            fault(&file, why, "the root group's limits count");
            return vec![mount];
        }
        let mut groups: Vec<_> = own.ancestors().map(|group| mount.join(group)).collect();
        let extra = groups.len().saturating_sub(MOST_GROUPS);
        groups.drain(..extra);
        groups
    }
}

impl Source for ProcFiles {
    fn sample(&mut self) -> Sample {
        if self.groups.2 == 0 {
            let mut faults = Vec::new();
            let groups = self.find_groups(&mut faults);
            self.groups = (groups, faults, SAME_GROUP);
        }
        self.groups.2 -= 1;
        let (groups, faults, _) = &self.groups;
        let mut files = Files { buffer: &mut self.buffer, faults: faults.clone() };
        let host = files.must(&self.root.join("proc/meminfo"), parse::meminfo, "host memory makes no pressure");
        let stalls = self.root.join("proc/pressure/memory");
        let machine = files.must(&stalls, parse::psi, "the machine's stalls make no pressure");
        let own = groups.first().map(|own| own.join("memory.pressure"));
        let own = own.and_then(|own| files.may(&own, parse::psi, "the own group's stalls make no pressure"));
        let psi = match (machine, own) {
            (Some(one), Some(two)) => Some(Psi { some: one.some.max(two.some), full: one.full.max(two.full) }),
            (one, two) => one.or(two),
        };
        let depths = (0..groups.len() as u32).rev();
        let readings = groups.iter().zip(depths).filter_map(|(group, depth)| files.group(group, depth));
        let cgroup = readings.min_by_key(CgroupReading::available);
        Sample { host, psi, cgroup, faults: files.faults }
    }
}

/// The files of one reading.
struct Files<'s> {
    buffer: &'s mut [u8],
    faults: Vec<Fault>,
}

type Parse<T> = fn(&[u8]) -> Result<T, parse::ParseError>;

impl Files<'_> {
    /// One group's reading, if it has a limit. The root has no such files, and a kernel may lack some.
    fn group(&mut self, group: &Path, depth: u32) -> Option<CgroupReading> {
        let no_limit = "it counts as no limit";
        let high = self.may(&group.join("memory.high"), |file| parse::limit("memory.high", file), no_limit).flatten();
        let max = self.may(&group.join("memory.max"), |file| parse::limit("memory.max", file), no_limit).flatten();
        if high.is_none() && max.is_none() {
            return None;
        }
        let current: Parse<Bytes> = |file| parse::bytes("memory.current", file);
        let current = self.must(&group.join("memory.current"), current, "this group makes no pressure")?;
        let cache = self.may(&group.join("memory.stat"), parse::inactive_file, "file cache counts as used");
        Some(CgroupReading { current, reclaimable: cache.unwrap_or(Bytes::ZERO), high, max, depth })
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
        let why = match read(file, self.buffer) {
            Ok(content) => match parse(content) {
                Ok(value) => return Some(value),
                Err(error) => error.to_string(),
            },
            Err(error) if error.kind() == ErrorKind::NotFound && !must => return None,
            Err(error) if error.kind() == ErrorKind::NotFound => "is not there".into(),
            Err(error) => error.to_string(),
        };
        self.faults.push(Fault { what: file.display().to_string(), why, instead });
        None
    }
}

/// The file's content, in the buffer. One read: the kernel writes these files in one piece, and asking again for their end
/// would double what a reading costs.
fn read<'b>(file: &Path, buffer: &'b mut [u8]) -> io::Result<&'b [u8]> {
    let length = File::open(file)?.read(buffer)?;
    Ok(&buffer[..length])
}
