//! The library reserve: what a process takes for itself beside what was planned, measured at one start and planned at the
//! next.
//!
//! Drivers and vendor libraries claim memory on first use, and no formula says how much. A machine that was never seen is
//! planned with an assumption. Across a start, from before the first device is opened until after the first passes, [`StartUp`]
//! measures what the memory in use grew by and what of that is the engine's own; the rest is the reserve. A [`ReserveFile`]
//! keeps it for the next start of the same device, driver, libraries and way of running ([`ReserveKey`]).
//!
//! On CUDA the memory in use is `cuMemGetInfo`'s total less what it says is free, on a device that nobody else uses meanwhile.
//! On the host it is the process's anonymous resident memory, [`process_resident`], from zero, and the engine's own part what
//! [`Device::resident`](crate::Device::resident) says: what is left is thread stacks, heaps and tables that no plan line
//! names.
//!
//! ```
//! use memtier::reserve::{ReserveFile, ReserveKey, StartUp};
//! use memtier::{Bytes, Limits, plan::ReserveSource};
//!
//! # let folder = tempfile::tempdir()?;
//! # let folder = folder.path();
//! let path = folder.join("reserve");
//! let key = ReserveKey::new("H200", "580.159", "cuBLAS 13.1", "graphs");
//! let (mut file, warning) = ReserveFile::open(&path);
//! assert!(warning.is_none() && file.remembered(&key).is_none());
//!
//! let start = StartUp::new(Bytes::mib(500), Bytes::ZERO);
//! let measured = start.reserve(Bytes::mib(5000), Bytes::mib(4000));
//! file.record(&key, measured)?;
//!
//! let (file, _) = ReserveFile::open(&path);
//! let limits = file.limits(&key, Limits::new("cuda", Bytes::gib(141)));
//! assert_eq!((limits.library_reserve, limits.library_source), (Bytes::mib(500), ReserveSource::Remembered));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs, io,
    io::Write as _,
    path::{Path, PathBuf},
};

use crate::{
    Bytes,
    plan::{Limits, ReserveSource},
};

/// What a reserve was measured for. Another driver, library or way of running has another reserve.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct ReserveKey {
    fields: [String; 4],
}

impl ReserveKey {
    /// A device by its name, its driver's version, the libraries' names and versions, and how the model is run (with graphs, with
    /// so many threads). Tabs and line ends become spaces.
    pub fn new(device: &str, driver: &str, libraries: &str, path: &str) -> Self {
        let plain = |text: &str| text.split(|c: char| c == '\t' || c.is_control()).collect::<Vec<_>>().join(" ");
        ReserveKey { fields: [device, driver, libraries, path].map(plain) }
    }
}

/// Why a file was not used. The start goes on with what is assumed, and the next record writes the file anew.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReserveWarning {
    /// It could not be read.
    #[error("reserve file {}: cannot be read ({source}); the reserve is assumed", path.display())]
    Unreadable {
        /// Which.
        path: PathBuf,
        /// The system's words.
        source: io::Error,
    },
    /// It is not what was written.
    #[error("reserve file {}: {why}; it is ignored and written anew", path.display())]
    Damaged {
        /// Which.
        path: PathBuf,
        /// What is wrong.
        why: &'static str,
    },
    /// It is of another version of the format.
    #[error("reserve file {}: its format is \"{found}\" and this is \"{FORMAT}\"; it is ignored and written anew", path.display())]
    OtherFormat {
        /// Which.
        path: PathBuf,
        /// Its first line.
        found: String,
    },
}

/// A measurement was not kept. The file is as it was.
#[derive(Debug, thiserror::Error)]
#[error("reserve file {}: cannot be written ({source}); name a file in a folder that can be written", path.display())]
pub struct ReserveError {
    /// Which.
    pub path: PathBuf,
    /// The system's words.
    #[source]
    pub source: io::Error,
}

/// Measured reserves by key, in a small text file.
#[derive(Debug)]
pub struct ReserveFile {
    path: PathBuf,
    entries: BTreeMap<ReserveKey, Bytes>,
}

const FORMAT: &str = "memtier reserve 1";
/// Longer than any file of reserves.
const MOST: u64 = 1 << 20;

impl ReserveFile {
    /// Reads a file. One that is not there is empty; one that cannot be used is empty too, with a warning.
    pub fn open(path: impl Into<PathBuf>) -> (Self, Option<ReserveWarning>) {
        let path = path.into();
        let (entries, warning) = match read(&path) {
            Ok(entries) => (entries, None),
            Err(warning) => (BTreeMap::new(), Some(warning)),
        };
        (ReserveFile { path, entries }, warning)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What an earlier start measured.
    pub fn remembered(&self, key: &ReserveKey) -> Option<Bytes> {
        self.entries.get(key).copied()
    }

    /// The limits with what is remembered, or as they are.
    #[must_use]
    pub fn limits(&self, key: &ReserveKey, limits: Limits) -> Limits {
        match self.remembered(key) {
            Some(library_reserve) => Limits { library_reserve, library_source: ReserveSource::Remembered, ..limits },
            None => limits,
        }
    }

    /// Keeps a measurement. The file is replaced at once or not at all; what others recorded meanwhile stays.
    ///
    /// # Errors
    /// [`ReserveError`]; the file is as it was.
    pub fn record(&mut self, key: &ReserveKey, measured: Bytes) -> Result<(), ReserveError> {
        if let Ok(entries) = read(&self.path) {
            self.entries.extend(entries);
        }
        self.entries.insert(key.clone(), measured);
        let failed = |source| ReserveError { path: self.path.clone(), source };
        let mut name = self.path.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{}.new", std::process::id()));
        let beside = self.path.with_file_name(name);
        let written = fs::File::create(&beside).and_then(|mut file| {
            file.write_all(self.text().as_bytes())?;
            file.sync_all()
        });
        written.and_then(|()| fs::rename(&beside, &self.path)).map_err(|source| {
            // Whether it was made or not, it is of no use to anybody.
            let _ = fs::remove_file(&beside);
            failed(source)
        })
    }

    fn text(&self) -> String {
        let mut text = format!("{FORMAT}\n");
        for (ReserveKey { fields }, bytes) in &self.entries {
            let _ = writeln!(text, "{}\t{}", fields.join("\t"), bytes.count());
        }
        let sum = blake3::hash(text.as_bytes()).to_hex();
        let _ = writeln!(text, "{sum}");
        text
    }
}

fn read(path: &Path) -> Result<BTreeMap<ReserveKey, Bytes>, ReserveWarning> {
    let unreadable = |source| ReserveWarning::Unreadable { path: path.to_owned(), source };
    let damaged = |why| ReserveWarning::Damaged { path: path.to_owned(), why };
    match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        Err(error) => return Err(unreadable(error)),
        Ok(about) if about.len() > MOST => return Err(damaged("it is longer than any reserve file")),
        Ok(_) => {}
    }
    let text = fs::read(path).map_err(unreadable)?;
    let text = String::from_utf8(text).map_err(|_| damaged("it is not text"))?;
    let first = text.lines().next().unwrap_or_default();
    if first != FORMAT {
        return Err(match first.starts_with("memtier reserve ") {
            true => ReserveWarning::OtherFormat { path: path.to_owned(), found: first.chars().take(80).collect() },
            false => damaged("it is not a reserve file"),
        });
    }
    let body = text.trim_end_matches('\n');
    let (body, sum) = body.rsplit_once('\n').ok_or_else(|| damaged("it is cut short"))?;
    if blake3::hash(format!("{body}\n").as_bytes()).to_hex().as_str() != sum {
        return Err(damaged("its checksum is another one"));
    }
    let entry = |line: &str| {
        let mut fields = line.split('\t');
        let key = [fields.next()?, fields.next()?, fields.next()?, fields.next()?];
        let bytes = fields.next()?.parse().ok()?;
        fields.next().is_none().then(|| (ReserveKey { fields: key.map(str::to_owned) }, Bytes::new(bytes)))
    };
    body.lines().skip(1).map(entry).collect::<Option<_>>().ok_or_else(|| damaged("an entry is no entry"))
}

/// A start that is being measured: the memory in use, and what of it was the engine's, when it began.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StartUp {
    used: Bytes,
    ours: Bytes,
}

impl StartUp {
    /// Begins. `used` is all memory in use, `ours` what of it the engine's devices hold.
    pub const fn new(used: Bytes, ours: Bytes) -> Self {
        StartUp { used, ours }
    }

    /// What the memory in use has grown by that is not the engine's. Zero when it shrank.
    pub const fn reserve(&self, used: Bytes, ours: Bytes) -> Bytes {
        used.beyond(self.used).beyond(ours.beyond(self.ours))
    }
}

/// Whether a measurement is far from what was planned with: more than a tenth of it, and more than a MiB.
pub const fn is_apart(planned: Bytes, measured: Bytes) -> bool {
    let apart = planned.beyond(measured).count() + measured.beyond(planned).count();
    apart > planned.count() / 10 && apart > 1 << 20
}

/// Anonymous memory of this process that is resident: heap, stacks, and the host backend's pages, without mapped files. `None` where
/// the system does not say.
pub fn process_resident() -> Option<Bytes> {
    anonymous(&fs::read_to_string("/proc/self/status").ok()?)
}

fn anonymous(status: &str) -> Option<Bytes> {
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
    Bytes::new(1024).times(line.trim().strip_suffix("kB")?.trim().parse().ok()?).ok()
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    /// A folder of its own for one test, removed at the end.
    struct Folder(TempDir);

    impl Folder {
        fn new() -> Folder {
            Folder(tempfile::tempdir().unwrap())
        }

        fn file(&self) -> PathBuf {
            self.0.path().join("reserve")
        }
    }

    fn key(driver: &str) -> ReserveKey {
        ReserveKey::new("H200", driver, "cuBLAS 13.1", "graphs")
    }

    #[test]
    fn each_key_is_remembered_and_nothing_is_left_beside_the_file() {
        let folder = Folder::new();
        let mut file = ReserveFile::open(folder.file()).0;
        file.record(&key("1"), Bytes::mib(3)).unwrap();
        // Another process records meanwhile.
        ReserveFile::open(folder.file()).0.record(&key("2"), Bytes::mib(5)).unwrap();
        file.record(&key("odd\tname\n"), Bytes::new(u64::MAX)).unwrap();
        let (file, warning) = ReserveFile::open(folder.file());
        assert!(warning.is_none());
        let remembered = ["1", "2", "odd name ", "3"].map(|driver| file.remembered(&key(driver)).map(Bytes::count));
        assert_eq!(remembered, [Some(3 << 20), Some(5 << 20), Some(u64::MAX), None]);
        assert_eq!(fs::read_dir(folder.0.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_damaged_file_is_a_named_warning_and_written_anew() {
        let folder = Folder::new();
        let good = {
            let mut file = ReserveFile::open(folder.file()).0;
            file.record(&key("1"), Bytes::mib(3)).unwrap();
            fs::read(folder.file()).unwrap()
        };
        // Every byte that is changed, and every cut, is seen: never another figure.
        let changed = (0..good.len()).map(|at| {
            let mut bytes = good.clone();
            bytes[at] ^= 1;
            bytes
        });
        for bytes in changed.chain((0..good.len() - 1).map(|cut| good[..cut].to_vec())) {
            fs::write(folder.file(), &bytes).unwrap();
            let (file, warning) = ReserveFile::open(folder.file());
            let warning =
                warning.unwrap_or_else(|| panic!("{:?} was read", String::from_utf8_lossy(&bytes))).to_string();
            assert!(warning.contains("reserve file") && !warning.contains('\n'), "{warning}");
            assert_eq!(file.remembered(&key("1")), None);
        }
        ReserveFile::open(folder.file()).0.record(&key("1"), Bytes::mib(4)).unwrap();
        assert_eq!(ReserveFile::open(folder.file()).0.remembered(&key("1")), Some(Bytes::mib(4)));
    }

    #[test]
    fn another_format_or_a_folder_is_said_and_a_place_that_cannot_be_written_is_an_error() {
        let folder = Folder::new();
        fs::write(folder.file(), "memtier reserve 2\nwhatever\n").unwrap();
        let warning = ReserveFile::open(folder.file()).1.expect("another format").to_string();
        assert!(warning.contains("memtier reserve 2") && warning.contains("memtier reserve 1"), "{warning}");
        assert!(matches!(ReserveFile::open(folder.0.path()), (_, Some(ReserveWarning::Unreadable { .. }))));
        let error = ReserveFile::open("/nowhere/at/all/reserve").0.record(&key("1"), Bytes::mib(1)).unwrap_err();
        assert!(error.to_string().contains("/nowhere/at/all/reserve"), "{error}");
    }

    #[test]
    fn a_reserve_is_what_grew_and_is_not_ours() {
        let start = StartUp::new(Bytes::mib(100), Bytes::mib(10));
        assert_eq!(start.reserve(Bytes::mib(160), Bytes::mib(60)), Bytes::mib(10));
        assert_eq!(start.reserve(Bytes::mib(90), Bytes::mib(60)), Bytes::ZERO);
        for (planned, measured, apart) in
            [(100, 109, false), (100, 111, true), (0, 1, false), (0, 2, true), (9, 8, false)]
        {
            assert_eq!(is_apart(Bytes::mib(planned), Bytes::mib(measured)), apart, "{planned} {measured}");
        }
    }

    #[test]
    fn the_process_grows_by_what_is_touched_and_the_device_says_what_of_it_is_its_own() {
        use crate::{Device, HostBackend};
        assert_eq!(anonymous("VmRSS:\t 9 kB\nRssAnon:\t    4096 kB\n"), Some(Bytes::mib(4)));
        let (Some(before), device) = (process_resident(), Device::new(HostBackend::new(), Bytes::mib(64))) else {
            return println!("skipped: the system does not say what is resident");
        };
        assert_eq!(device.resident(), Some(Bytes::ZERO), "it has handed out nothing");
        let start = StartUp::new(before, device.resident().unwrap_or_default());
        let heap = vec![1_u8; 24 << 20];
        let measured =
            start.reserve(process_resident().expect("it said so before"), device.resident().unwrap_or_default());
        // Tests of other threads allocate too; what is measured is at least what was touched here.
        assert!(measured >= Bytes::mib(20), "{measured} for {} bytes", heap.len());
    }
}
