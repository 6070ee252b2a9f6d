//! The oracle: a real llama.cpp in a Python environment of its own, inside the cache folder.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::failure::Failure;
use crate::fetch::{Workspace, pip};
use crate::{paths, process, progress};

/// llama.cpp as a Python wheel, pinned: numbers and tokens are compared with exactly this build.
pub const PACKAGE: &str = "xllamacpp==2026.10.11549";

/// The environment's Python, set up on first use.
///
/// # Errors
/// No Python with `venv`, no network, disk full: one line with the remedy.
pub fn python() -> Result<PathBuf, Failure> {
    let cache = paths::cache()?;
    let folder = cache.join("oracle");
    let python = folder.join(if cfg!(windows) { "Scripts/python.exe" } else { "bin/python3" });
    let stamp = folder.join("ready");
    // The stamp is written last and names what was installed, so a half-built or outdated environment is made anew.
    if std::fs::read_to_string(&stamp).is_ok_and(|ready| ready == PACKAGE) && works(&python) {
        return Ok(python);
    }
    // One at a time, like the models; who waited may find it ready.
    let work = Workspace::claim(&cache)?;
    if std::fs::read_to_string(&stamp).is_ok_and(|ready| ready == PACKAGE) && works(&python) {
        return Ok(python);
    }
    paths::create(&folder)?;
    progress::status("setting up the oracle (llama.cpp as a Python wheel)");
    let result = set_up(&folder, &python, work.folder());
    progress::clear_status();
    result?;
    std::fs::write(&stamp, PACKAGE).map_err(|error| Failure::io("write", &stamp, &error))?;
    Ok(python)
}

fn works(python: &Path) -> bool {
    let import = Command::new(python).args(["-c", "import xllamacpp"]).output();
    import.is_ok_and(|output| output.status.success())
}

fn set_up(folder: &Path, python: &Path, temporary: &Path) -> Result<(), Failure> {
    let base = pip::python();
    let said = talk(Command::new(&base).args(["-m", "venv", "--clear"]).arg(folder))?;
    if let Err(said) = said {
        return Err(match said.contains("ensurepip") || said.contains("No module named venv") {
            true => Failure::new("Python cannot make an environment; install its venv module (python3-venv)"),
            false => pip::explain(&base.to_string_lossy(), &said),
        });
    }
    let install = ["-m", "pip", "install", "--quiet", "--no-deps", "--no-cache-dir", "--retries", "2", PACKAGE];
    let mut pip = Command::new(python);
    pip.args(install).env("PIP_DISABLE_PIP_VERSION_CHECK", "1").env("TMPDIR", temporary);
    if let Err(said) = talk(&mut pip)? {
        return Err(pip::explain(&python.to_string_lossy(), &said));
    }
    match works(python) {
        true => Ok(()),
        false => Err(Failure::new(format!("{PACKAGE} is installed but does not load on this machine"))),
    }
}

/// Runs a program and keeps what it says: `Ok(Ok(()))` when it succeeds, its words when it fails.
fn talk(command: &mut Command) -> Result<Result<(), String>, Failure> {
    let mut said = String::new();
    let status = process::run_lines(command, &mut |line| {
        said += line;
        said.push('\n');
    })?;
    Ok(if status.success() { Ok(()) } else { Err(said) })
}
