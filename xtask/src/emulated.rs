//! The emulated GPU: its driver as a library, and the kernels as it takes them.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::failure::Failure;
use crate::{build, gpu, paths, process};

/// What programs look for.
const LIBRARY: &str = "libcuda.so";
/// What cargo calls it: under the other name, programs that cargo starts would find it in cargo's own folders, asked for or not.
const BUILT: &str = "libmemtier_emulator.so";

/// The build of the driver, as a command.
pub fn driver() -> Command {
    build::cargo(["build", "--release", "--package", "memtier-emulator"])
}

/// What that leaves.
fn built() -> PathBuf {
    paths::target().join("release").join(BUILT)
}

/// The copy into `folder` under the name that programs look for, as a command.
pub fn install(folder: &Path) -> Command {
    let mut command = Command::new("install");
    command.arg("-D").arg(built()).arg(folder.join(LIBRARY));
    command
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
    process::output(&mut install(&folder.join("driver")))?;
    let mut compiler = gpu::compiler(&["--release"], &folder.join("kernels"), also);
    process::output(compiler.arg("--emulated").envs(gpu::nvrtc()?)).map(drop)
}
