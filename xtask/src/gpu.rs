//! `cargo xtask gpu`: the CUDA tests as a folder that runs anywhere with a driver, and runs here if there is a GPU.

use std::fs;
use std::path::{Path, PathBuf};

use crate::cli::{Check, Command, Flag, Parsed};
use crate::failure::Failure;
use crate::{build, paths, process};

/// The command's face.
pub const COMMAND: Command = Command {
    name: "gpu",
    about: "stages the CUDA tests and compiled kernels under target/gpu, and runs them where there is an NVIDIA GPU",
    flags: &[Flag { name: "stage-only", value: "", check: Check::Any, help: "do not run, even if there is a GPU" }],
    words: Some(("-- ARGS…", "passed to every test program, such as a filter")),
    examples: &[
        ("cargo xtask gpu", "build, stage, and run if this machine has a GPU"),
        ("cargo xtask gpu --stage-only", "then copy target/gpu to a machine that has one and start run.sh there"),
    ],
};

/// Runs the command.
///
/// # Errors
/// The build fails, the folder cannot be written, or a test fails on the GPU.
pub fn run(parsed: Parsed) -> Result<(), Failure> {
    let arguments = ["test", "--release", "--package", "memtier-cuda", "--no-run", "--lib", "--tests", "--benches"];
    let mut built = build::artifacts(arguments)?;
    let engine =
        ["test", "--release", "--package", "memtier-engine", "--features", "cuda", "--no-run", "--test", "gpu"];
    built.extend(build::artifacts(engine)?.into_iter().filter(|artifact| artifact.kind == "test"));
    // Programs of the crate are built along with its tests, and tested elsewhere.
    built.retain(|artifact| artifact.kind != "bin");
    let folder = paths::target().join("gpu");
    let names = stage(&built, &folder)?;
    compile_kernels(&folder.join("kernels"))?;
    println!("staged in {}:", folder.display());
    names.iter().for_each(|name| println!("  {name}"));
    println!("  kernels/");
    if !Path::new("/dev/nvidia0").exists() {
        println!("no NVIDIA GPU here (/dev/nvidia0): nothing was run");
        println!("to run: copy {} to a machine with a GPU and start run.sh there", folder.display());
        return Ok(());
    }
    if parsed.has("stage-only") {
        return Ok(());
    }
    let script = folder.join("run.sh");
    match process::run(std::process::Command::new("sh").arg(script).args(parsed.words))? {
        status if status.success() => Ok(()),
        status => Err(Failure::child(status)),
    }
}

/// Compiles the CUDA kernels into `folder`. Needs neither a GPU nor a toolkit, only NVRTC: the libraries that
/// `MEMTIER_NVRTC` and `MEMTIER_PTX_NVRTC` name, or those that `kernels/fetch-nvrtc.sh` puts into the cache.
///
/// # Errors
/// NVRTC cannot be fetched, or a kernel does not compile.
pub fn compile_kernels(folder: &Path) -> Result<(), Failure> {
    let mut variables = Vec::new();
    if std::env::var_os("MEMTIER_NVRTC").is_none() {
        let mut script = std::process::Command::new("sh");
        script.current_dir(paths::root()).arg("kernels/fetch-nvrtc.sh").env("MEMTIER_CACHE", paths::cache()?);
        let said = process::output(&mut script).map_err(|_| {
            Failure::new("cannot fetch NVRTC (see above); set MEMTIER_NVRTC to a libnvrtc.so of CUDA 13.1 or newer")
        })?;
        variables.extend(said.lines().filter_map(exported));
    }
    let mut compiler =
        build::cargo(["run", "--quiet", "--release", "--package", "memtier-cuda", "--bin", "compile-kernels", "--"]);
    compiler.arg("--out").arg(folder).envs(variables);
    process::output(&mut compiler).map(drop)
}

/// `("NAME", "value")` of a shell's `export NAME=value`.
fn exported(line: &str) -> Option<(String, String)> {
    let (name, value) = line.strip_prefix("export ")?.split_once('=')?;
    Some((name.to_owned(), value.to_owned()))
}

/// Copies the programs into a fresh folder beside a script that runs them; returns their names.
fn stage(built: &[build::Artifact], folder: &Path) -> Result<Vec<String>, Failure> {
    if folder.exists() {
        fs::remove_dir_all(folder).map_err(|error| Failure::io("empty the folder", folder, &error))?;
    }
    paths::create(folder)?;
    let mut names = Vec::new();
    for artifact in built {
        let name = format!("{}-{}", artifact.kind, artifact.name);
        let program = folder.join(&name);
        copy(&artifact.executable, &program)?;
        // The folder travels. Not through cargo's profile: that would build everything once more. A machine without
        // `strip` sends larger files.
        let _ = std::process::Command::new("strip").arg(&program).output();
        names.push(name);
    }
    let path = folder.join("run.sh");
    fs::write(&path, script(&names)).map_err(|error| Failure::io("write", &path, &error))?;
    executable(&path).map_err(|error| Failure::io("make executable", &path, &error))?;
    Ok(names)
}

#[cfg(unix)]
fn executable(path: &Path) -> std::io::Result<()> {
    fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o755))
}

#[cfg(not(unix))]
fn executable(_: &Path) -> std::io::Result<()> {
    Ok(())
}

fn copy(from: &PathBuf, to: &Path) -> Result<(), Failure> {
    fs::copy(from, to).map(drop).map_err(|error| Failure::io("copy a test program to", to, &error))
}

/// Runs every program, then fails if one failed. Each is named before it runs, so a hang names itself.
fn script(names: &[String]) -> String {
    let mut text = String::from("#!/bin/sh\n# Runs the staged CUDA tests; arguments go to each of them.\n");
    text += "cd \"$(dirname \"$0\")\" || exit 1\n";
    // Without a device these tests say so and pass; here that would be a wrong answer.
    text += "export MEMTIER_REQUIRE_GPU=1 MEMTIER_KERNELS=\"$PWD/kernels\"\nfailed=0\n";
    for name in names {
        text += &format!("echo '== {name}'\n./{name} \"$@\" || failed=1\n");
    }
    text + "exit $failed\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fetch_scripts_words_become_variables() {
        assert_eq!(exported("export A=/x/lib.so"), Some(("A".into(), "/x/lib.so".into())));
        assert_eq!(exported("fetching"), None);
    }

    #[cfg(unix)]
    #[test]
    fn the_script_runs_all_and_fails_if_one_fails() {
        let folder = std::env::temp_dir().join(format!("xtask-gpu-{}", std::process::id()));
        let program = |name: &str, program: &str| build::Artifact {
            name: name.into(),
            kind: "test".into(),
            executable: program.into(),
        };
        let good = [program("a", "/bin/true"), program("b", "/bin/true")];
        let run = |built: &[build::Artifact]| {
            stage(built, &folder).unwrap();
            std::process::Command::new("sh").arg(folder.join("run.sh")).output().unwrap()
        };
        let output = run(&good);
        assert!(output.status.success());
        assert_eq!(String::from_utf8_lossy(&output.stdout), "== test-a\n== test-b\n");
        let output = run(&[program("c", "/bin/false"), program("d", "/bin/true")]);
        assert_eq!(output.status.code(), Some(1));
        assert_eq!(String::from_utf8_lossy(&output.stdout), "== test-c\n== test-d\n");
        fs::remove_dir_all(&folder).unwrap();
    }
}
