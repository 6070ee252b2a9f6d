//! The library reserve of the engine: what the process takes beside its plan, measured at one start and planned at the next.
//!
//! The engine serves from host memory, which starts empty with the process: the reserve is all its anonymous memory after the
//! warm-up, less what memtier's own reservations have resident. That is stacks of the threads and the heap, the tokenizer
//! among it. Growth since some later moment would be less than that: what was freed meanwhile, of the reader of the model
//! file, say, is used again. It is charged to the part that is on the host. The model file is mapped, and is not among it.

use memtier::{
    Bytes, Device,
    reserve::{ReserveFile, ReserveKey, StartUp, is_apart, process_resident},
};

use crate::{EngineError, arch::Arch, config::Settings};

/// What an engine of these settings is remembered by.
fn key(arch: &Arch, settings: &Settings) -> ReserveKey {
    let libraries = concat!("memtier-engine ", env!("CARGO_PKG_VERSION"));
    let weights = &arch.weights;
    let path = format!(
        "{} layers of {}, vocabulary {}, {} threads, batch {}, chunk {}, {} tokens",
        arch.layers.len(),
        weights.hidden,
        weights.vocab,
        settings.threads,
        settings.max_batch,
        settings.prefill_chunk,
        settings.max_seq_len
    );
    // No driver stands between a process and its own memory; the system decides what a stack or a heap takes.
    let system = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    ReserveKey::new("host", system.trim(), libraries, &path)
}

/// What the file remembers for these settings, and what is wrong with the file.
pub(crate) fn remembered(arch: &Arch, settings: &Settings) -> (Option<Bytes>, Option<String>) {
    let Some(path) = &settings.reserve_file else { return (None, None) };
    let (file, warning) = ReserveFile::open(path);
    (file.remembered(&key(arch, settings)), warning.map(|warning| warning.to_string()))
}

/// A start that is being measured.
pub(crate) struct Measuring {
    start: StartUp,
    planned: Option<Bytes>,
    warning: Option<String>,
}

impl Measuring {
    /// Begins, before a device is opened. `None` when nobody asked.
    pub(crate) fn begin(arch: &Arch, settings: &Settings) -> Option<Self> {
        settings.reserve_file.as_ref()?;
        let (planned, warning) = remembered(arch, settings);
        Some(Measuring { start: StartUp::new(Bytes::ZERO, Bytes::ZERO), planned, warning })
    }

    /// Ends, and keeps what was measured.
    pub(crate) fn end<'d>(
        self,
        arch: &Arch,
        settings: &Settings,
        devices: impl Iterator<Item = &'d Device>,
    ) -> Result<Option<Reserve>, EngineError> {
        let ours = devices.map(Device::resident).map(|bytes| bytes.map(Bytes::count)).sum::<Option<u64>>();
        let (Some(used), Some(ours), Some(path)) = (process_resident(), ours, &settings.reserve_file) else {
            return Ok(None);
        };
        let measured = self.start.reserve(used, Bytes::new(ours));
        ReserveFile::open(path).0.record(&key(arch, settings), measured)?;
        let Measuring { planned, warning, .. } = self;
        Ok(Some(Reserve { planned, measured, warning }))
    }
}

/// What a start measured of its library reserve.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reserve {
    /// What was planned with: what an earlier start measured.
    pub planned: Option<Bytes>,
    /// What this one measured, and kept.
    pub measured: Bytes,
    /// Why the file was not used.
    pub warning: Option<String>,
}

impl Reserve {
    /// Whether the plan was made with a figure more than a tenth off.
    pub fn is_apart(&self) -> bool {
        self.planned.is_some_and(|planned| is_apart(planned, self.measured))
    }
}

impl std::fmt::Display for Reserve {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some(warning) = &self.warning {
            writeln!(f, "warning: {warning}")?;
        }
        match self.planned {
            None => write!(f, "library reserve: {} measured, kept for the next start", self.measured),
            Some(planned) if self.is_apart() => {
                write!(
                    f,
                    "warning: library reserve: {} measured, {planned} planned: more than a tenth apart",
                    self.measured
                )
            }
            Some(planned) => write!(f, "library reserve: {} measured, {planned} planned", self.measured),
        }
    }
}
