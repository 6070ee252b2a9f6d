//! The library reserve of the engine: what the process takes beside its plan, measured at one start and planned at the next.
//!
//! On the host, which starts empty with the process, the reserve is all its anonymous memory after the warm-up, less what memtier's own
//! reservations have resident. That is stacks of the threads and the heap, the tokenizer among it. Growth since some later moment
//! would be less than that: what was freed meanwhile, of the reader of the model file, say, is used again. It is charged to the
//! part that is on the host. The model file is mapped, and is not among it.
//!
//! On a GPU it is what the driver says is in use, less what was when the device was open (the context, a line of its own) and less what
//! memtier has mapped: kernels, streams, graphs, libraries.

use memtier::{
    Bytes, Device,
    reserve::{ReserveFile, ReserveKey, StartUp, is_apart},
};

use crate::{EngineError, arch::Arch, compute::Compute, config::Settings};

/// What an engine of these settings is remembered by.
fn key<S: Compute>(ops: &S::Ops, arch: &Arch, settings: &Settings) -> ReserveKey {
    let mut libraries = concat!("memtier-engine ", env!("CARGO_PKG_VERSION")).to_owned();
    if let Some((others, _)) = S::libraries(ops).filter(|(others, _)| !others.is_empty()) {
        libraries = format!("{libraries}, {others}");
    }
    let weights = &arch.weights;
    let path = format!(
        "{} layers of {}, vocabulary {}, {} threads, batch {}, chunk {}, {} tokens, {} graphs",
        arch.layers.len(),
        weights.hidden,
        weights.vocab,
        settings.threads,
        settings.max_batch,
        settings.prefill_chunk,
        settings.max_seq_len,
        settings.graphs
    );
    S::reserve_key(ops, &libraries, &path)
}

/// What the file remembers for these settings, and what is wrong with the file.
pub(crate) fn remembered<S: Compute>(
    ops: &S::Ops,
    arch: &Arch,
    settings: &Settings,
) -> (Option<Bytes>, Option<String>) {
    let Some(path) = &settings.reserve_file else { return (None, None) };
    let (file, warning) = ReserveFile::open(path);
    (file.remembered(&key::<S>(ops, arch, settings)), warning.map(|warning| warning.to_string()))
}

/// A start that is being measured.
pub(crate) struct Measuring {
    start: StartUp,
    planned: Option<Bytes>,
    warning: Option<String>,
}

impl Measuring {
    /// Begins, before anything is taken. `None` when nobody asked.
    pub(crate) fn begin<S: Compute>(ops: &S::Ops, arch: &Arch, settings: &Settings) -> Option<Self> {
        settings.reserve_file.as_ref()?;
        let (planned, warning) = remembered::<S>(ops, arch, settings);
        Some(Measuring { start: S::start_up(ops), planned, warning })
    }

    /// Ends, and keeps what was measured.
    pub(crate) fn end<'d, S: Compute>(
        self,
        ops: &S::Ops,
        arch: &Arch,
        settings: &Settings,
        devices: impl Iterator<Item = &'d Device>,
    ) -> Result<Option<Reserve>, EngineError> {
        let ours = devices.map(Device::resident).map(|bytes| bytes.map(Bytes::count)).sum::<Option<u64>>();
        let (Some(used), Some(ours), Some(path)) = (S::used(ops), ours.map(Bytes::new), &settings.reserve_file) else {
            return Ok(None);
        };
        let measured = self.start.reserve(used, ours);
        ReserveFile::open(path).0.record(&key::<S>(ops, arch, settings), measured)?;
        let Measuring { planned, warning, .. } = self;
        Ok(Some(Reserve { planned, measured, used, ours, context: S::context(ops), warning }))
    }
}

/// What a start measured of its library reserve.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reserve {
    /// What was planned with: what an earlier start measured.
    pub planned: Option<Bytes>,
    /// What this one measured, and kept.
    pub measured: Bytes,
    /// All that is in use, by the account of the system or the driver.
    pub used: Bytes,
    /// What of that is in the engine's own reservations.
    pub ours: Bytes,
    /// What a driver had taken when the device was open.
    pub context: Bytes,
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
        if !self.context.is_zero() {
            let mib = |bytes: Bytes| bytes.count() as f64 / f64::from(1 << 20);
            let planned = self.planned.unwrap_or_default();
            let accounted = mib(self.context) + mib(planned) + mib(self.ours);
            let apart = (accounted - mib(self.used)).abs() / mib(self.used) * 100.0;
            writeln!(
                f,
                "in use by the driver's account: {:.2} MiB; {:.2} of context, {:.2} of planned reserve and {:.2} of the plan's memory \
                 are {apart:.3} % apart from it",
                mib(self.used),
                mib(self.context),
                mib(planned),
                mib(self.ours)
            )?;
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
