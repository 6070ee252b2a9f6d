//! What a process takes of a device beside what it planned: the context, known when the device is open, and what libraries claim on first
//! use, which a start measures for the next one.

use std::fs;

use memtier::{
    Bytes,
    plan::{Limits, ReserveSource},
    reserve::{ReserveKey, StartUp},
};

use crate::{CudaBackend, error::DriverError};

/// For the [`ReserveFile`](memtier::reserve::ReserveFile) of an engine on CUDA: the limits of a plan with what the driver takes, and the
/// measurement across the start.
///
/// ```no_run
/// use memtier::reserve::ReserveFile;
/// use memtier::{Bytes, Device, Engine, Limits};
/// use memtier_cuda::CudaBackend;
///
/// let backend = CudaBackend::open(0)?;
/// let start = backend.start_up();
/// let key = backend.reserve_key("cuBLAS 13.1", "graphs");
/// let (mut file, _) = ReserveFile::open("reserve");
/// let limits = file.limits(&key, backend.with_context(Limits::new("cuda", Bytes::gib(100))));
/// let graphs = limits.graph_bytes;
/// let device = Device::new(backend.clone(), limits.budget);
/// // ... plan with `limits`, load, record, run the first passes ...
/// let ours = device.report().live.plus(graphs)?;
/// file.record(&key, start.reserve(backend.used()?, ours))?;
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
impl CudaBackend {
    /// Device memory that was in use when this process had opened the device and taken nothing yet: its context, and what others had.
    pub fn context_memory(&self) -> Bytes {
        Bytes::new(self.context().at_open)
    }

    /// Device memory that is in use now, by everybody.
    ///
    /// # Errors
    /// [`DriverError`].
    pub fn used(&self) -> Result<Bytes, DriverError> {
        let memory = self.memory()?;
        Ok(memory.total.beyond(memory.free))
    }

    /// What libraries are assumed to claim on a machine that was never measured. On an H200 this crate's kernels and a cuBLAS handle took
    /// 68 MiB, the reference engine 18.
    pub const ASSUMED_RESERVE: Bytes = Bytes::mib(128);

    /// The limits with the context charged, and the assumed reserve where nothing is remembered: what a budget of the whole device cannot
    /// give away.
    #[must_use]
    pub fn with_context(&self, limits: Limits) -> Limits {
        let reserve = if limits.library_source == ReserveSource::Assumed {
            Self::ASSUMED_RESERVE
        } else {
            limits.library_reserve
        };
        Limits { context: self.context_memory(), library_reserve: reserve, ..limits }
    }

    /// A start that is measured from when the device was opened. Nobody else may take of it meanwhile, or give back.
    pub fn start_up(&self) -> StartUp {
        StartUp::new(self.context_memory(), Bytes::ZERO)
    }

    /// What a reserve of this device and driver is remembered by. `libraries` with their versions, `path`: how the model is run.
    pub fn reserve_key(&self, libraries: &str, path: &str) -> ReserveKey {
        let info = self.info();
        ReserveKey::new(&info.name, &driver(info.cuda), libraries, path)
    }
}

/// The driver's version: the kernel module's own words where there are any, and the CUDA that it supports.
fn driver(cuda: i32) -> String {
    let module = fs::read_to_string("/proc/driver/nvidia/version").unwrap_or_default();
    format!("{} CUDA {}.{}", version(&module).unwrap_or("driver"), cuda / 1000, cuda % 1000 / 10)
}

/// The word like 580.159.04 of the module's first line.
fn version(text: &str) -> Option<&str> {
    let numbers = |word: &&str| word.contains('.') && word.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    text.lines().next()?.split_whitespace().find(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_drivers_version_is_found_in_what_the_module_says() {
        let text = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build  (x)  Tue Jan 6\nGCC version: 12.2";
        assert_eq!(version(text), Some("580.159.04"));
        assert_eq!(version(""), None);
        assert!(driver(13000).ends_with("CUDA 13.0"));
    }
}
