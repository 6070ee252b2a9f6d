//! What a source of host readings is.

use std::{
    fmt::{self, Display, Write},
    ops::Deref,
};

use super::{
    proc_files::ProcFiles,
    reading::{CgroupReading, HostReading, Psi},
};

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
    pub faults: Faults,
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

/// The faults of one reading. The same faults a quarter of a second later are written over them, without the heap: a serve
/// loop counts what is allocated while it serves, by any thread.
#[derive(Default)]
pub struct Faults {
    list: Vec<Fault>,
    used: usize,
}

impl Faults {
    /// None, keeping the room of those that were.
    pub fn clear(&mut self) {
        self.used = 0;
    }

    /// One more.
    pub fn push(&mut self, what: impl Display, why: impl Display, instead: &'static str) {
        if self.used == self.list.len() {
            self.list.push(Fault { what: String::new(), why: String::new(), instead });
        }
        let fault = &mut self.list[self.used];
        fault.what.clear();
        fault.why.clear();
        fault.instead = instead;
        // Strings take whatever is written to them.
        let _ = (write!(fault.what, "{what}"), write!(fault.why, "{why}"));
        self.used += 1;
    }
}

impl Deref for Faults {
    type Target = [Fault];

    fn deref(&self) -> &[Fault] {
        &self.list[..self.used]
    }
}

impl Clone for Faults {
    fn clone(&self) -> Self {
        Faults { list: self.to_vec(), used: self.used }
    }

    fn clone_from(&mut self, from: &Self) {
        self.clear();
        from.iter().for_each(|fault| self.push(&fault.what, &fault.why, fault.instead));
    }
}

impl PartialEq for Faults {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Faults {}

impl fmt::Debug for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

/// Reads the host. The watcher's own thread calls it, a few times a second.
pub trait Source: Send + 'static {
    /// Replaces what `sample` says by what is there now. It holds the reading before, whose room can be used again.
    fn sample(&mut self, sample: &mut Sample);
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
    fn sample(&mut self, sample: &mut Sample) {
        sample.faults.clear();
        let what = format_args!("host memory on {}", std::env::consts::OS);
        sample.faults.push(what, "this crate reads it on Linux only", "only fed devices make pressure");
    }
}
