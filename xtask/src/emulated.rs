//! The emulated GPU: its driver as a library, and the kernels as it takes them.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::failure::Failure;
use crate::{build, gpu, paths, process};

/// What programs look for.
const LIBRARY: &str = "libcuda.so";

/// The build of the driver, as a command.
pub fn driver() -> Command {
    build::cargo(["build", "--release", "--package", "memtier-emulator"])
}

/// The folder where that puts the library.
pub fn driver_folder() -> PathBuf {
    paths::target().join("release")
}

/// A value of `LD_LIBRARY_PATH` by which programs find the emulated driver in `folder` before any other.
pub fn library_path(folder: &Path) -> OsString {
    let mut path = folder.as_os_str().to_owned();
    if let Some(before) = std::env::var_os("LD_LIBRARY_PATH").filter(|before| !before.is_empty()) {
        path.push(":");
        path.push(before);
    }
    path
}

/// Puts the driver and the kernels into `folder`, as `driver/` and `kernels/`.
///
/// # Errors
/// Something does not build, or the folder cannot be written.
pub fn stage(folder: &Path, also: &[&str]) -> Result<(), Failure> {
    process::output(&mut driver())?;
    let place = folder.join("driver");
    paths::create(&place)?;
    let (from, to) = (driver_folder().join(LIBRARY), place.join(LIBRARY));
    fs::copy(&from, &to).map_err(|error| Failure::io("copy a file to", &to, &error))?;
    let mut compiler = gpu::compiler(&["--release"], &folder.join("kernels"), also);
    process::output(compiler.arg("--emulated").envs(gpu::nvrtc()?)).map(drop)
}
