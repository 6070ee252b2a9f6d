//! `cargo xtask gpu`: the CUDA tests as a folder that runs anywhere with a driver, and runs here if there is a GPU.

use std::fs;
use std::path::Path;

use crate::cli::{Check, Command, Flag, Parsed};
use crate::failure::Failure;
use crate::{build, emulated, paths, process};

/// The command's face.
pub const COMMAND: Command = Command {
    name: "gpu",
    about: "stages CUDA tests, examples, engine and kernels under target/gpu, and runs them where there is an NVIDIA GPU",
    flags: &[
        Flag {
            name: "bench",
            value: "",
            check: Check::Any,
            help: "take times, beside other libraries where Python has torch",
        },
        Flag {
            name: "sanitize",
            value: "",
            check: Check::Any,
            help: "run the tests under compute-sanitizer's memcheck and racecheck",
        },
        Flag {
            name: "emulated",
            value: "",
            check: Check::Any,
            help: "on a GPU that this machine emulates (`emulator/`): results, no times; needs Linux",
        },
        Flag { name: "stage-only", value: "", check: Check::Any, help: "do not run, even if there is a GPU" },
    ],
    words: Some(("-- ARGS…", "passed to every test program, such as a filter")),
    examples: &[
        ("cargo xtask gpu", "build, stage, and run if this machine has a GPU"),
        ("cargo xtask gpu --bench", "the programs that take times, and the same by other libraries"),
        ("cargo xtask gpu --emulated -- rope", "the tests whose name holds `rope`, without a GPU"),
        ("cargo xtask gpu --stage-only", "then copy target/gpu to a machine that has one and start run.sh there"),
    ],
};

/// What runs in the folder.
const SCRIPT: &str = include_str!("gpu-run.sh");
/// Sources of kernels that are not the crate's own: an example's and a test's.
pub const ALSO: [&str; 2] = ["memtier-cuda/examples/kernels/softplus.cu", "memtier-cuda/tests/kernels/own.cu"];

/// Runs the command.
///
/// # Errors
/// The build fails, the folder cannot be written, or a test fails on the GPU.
pub fn run(parsed: Parsed) -> Result<(), Failure> {
    let emulated = parsed.has("emulated");
    let folder = paths::target().join(if emulated { "gpu-emulated" } else { "gpu" });
    let names = stage(&build()?, &folder)?;
    if emulated {
        emulated::stage(&folder, &ALSO)?;
    } else {
        compile_kernels(&folder.join("kernels"), &ALSO)?;
    }
    files("benches/gpu", &folder.join("peers"))?;
    files("examples/engine/tests/fixtures", &folder.join("fixtures"))?;
    println!("staged in {}:", folder.display());
    names.iter().for_each(|name| println!("  {name}"));
    println!("  kernels/\n  peers/\n  fixtures/\n  run.sh");
    if parsed.has("stage-only") {
        return Ok(());
    }
    if !emulated && !Path::new("/dev/nvidia0").exists() {
        println!("no NVIDIA GPU here (/dev/nvidia0): nothing was run");
        println!("to run: copy {} to a machine with a GPU and start run.sh there", folder.display());
        return Ok(());
    }
    let mode =
        ["emulated", "bench", "sanitize"].into_iter().filter(|mode| parsed.has(mode)).map(|mode| format!("--{mode}"));
    let mut script = std::process::Command::new("sh");
    script.arg(folder.join("run.sh")).args(mode.take(1)).arg("--").args(parsed.words);
    match process::run(&mut script)? {
        status if status.success() => Ok(()),
        status => Err(Failure::child(status)),
    }
}

/// Tests, examples, and the engine with CUDA, optimised: some of them hold times to bars.
fn build() -> Result<Vec<build::Artifact>, Failure> {
    let cuda = ["--package", "memtier-cuda", "--lib", "--tests"];
    let mut built = build::artifacts(["test", "--release", "--no-run"].into_iter().chain(cuda))?;
    // Programs of the crate are built along with its tests, and tested elsewhere, as is what happens without CUDA.
    built.retain(|artifact| artifact.kind != "bin" && artifact.name != "no_cuda");
    built.extend(build::artifacts(["build", "--release", "--package", "memtier-cuda", "--examples"])?);
    let engine = ["--package", "memtier-engine", "--features", "cuda"];
    let tests = build::artifacts(["test", "--release", "--no-run", "--test", "gpu*"].into_iter().chain(engine))?;
    built.extend(tests.into_iter().filter(|artifact| artifact.kind == "test").map(|artifact| build::Artifact {
        // The crate's own tests have names of this kind, too.
        name: format!("engine-{}", artifact.name),
        ..artifact
    }));
    let binary = build::artifacts(["build", "--release", "--bin", "memtier-engine"].into_iter().chain(engine))?;
    built.extend(binary.into_iter().filter(|artifact| artifact.kind == "bin"));
    Ok(built)
}

/// Copies the files of a folder of the repository: what measures other libraries in the same run, and texts that tests read.
fn files(from: &str, to: &Path) -> Result<(), Failure> {
    paths::create(to)?;
    let from = paths::root().join(from);
    for entry in fs::read_dir(&from).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_file() {
            copy(&path, &to.join(entry.file_name()))?;
        }
    }
    Ok(())
}

/// Compiles the CUDA kernels into `folder`. Needs neither a GPU nor a toolkit, only [NVRTC](nvrtc). `also`: sources beside the crate's own.
///
/// # Errors
/// NVRTC cannot be fetched, or a kernel does not compile.
pub fn compile_kernels(folder: &Path, also: &[&str]) -> Result<(), Failure> {
    process::output(compiler(&["--release"], folder, also).envs(nvrtc()?)).map(drop)
}

/// The compiler of kernels, as a command; it wants to know where NVRTC is.
pub fn compiler(profile: &[&str], folder: &Path, also: &[&str]) -> std::process::Command {
    let mut compiler = build::cargo(["run", "--quiet", "--package", "memtier-cuda", "--bin", "compile-kernels"]);
    compiler.args(profile).arg("--").arg("--out").arg(folder);
    for source in also {
        compiler.arg("--also").arg(paths::root().join(source));
    }
    compiler
}

/// Where NVRTC is, as variables for the compiler: none where `MEMTIER_NVRTC` and `MEMTIER_PTX_NVRTC` say so already, else those of
/// `kernels/fetch-nvrtc.sh`, which puts it into the cache.
///
/// # Errors
/// It cannot be fetched.
pub fn nvrtc() -> Result<Vec<(String, String)>, Failure> {
    if std::env::var_os("MEMTIER_NVRTC").is_some() {
        return Ok(Vec::new());
    }
    let mut script = std::process::Command::new("sh");
    script.current_dir(paths::root()).arg("kernels/fetch-nvrtc.sh").env("MEMTIER_CACHE", paths::cache()?);
    let said = process::output(&mut script).map_err(|_| {
        Failure::new("cannot fetch NVRTC (see above); set MEMTIER_NVRTC to a libnvrtc.so of CUDA 13.1 or newer")
    })?;
    Ok(said.lines().filter_map(exported).collect())
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
        let name = match artifact.kind.as_str() {
            "bin" => artifact.name.clone(),
            kind => format!("{kind}-{}", artifact.name),
        };
        let program = folder.join(&name);
        copy(&artifact.executable, &program)?;
        // The folder travels. Not through cargo's profile: that would build everything once more. A machine without
        // `strip` sends larger files.
        let _ = std::process::Command::new("strip").arg(&program).output();
        names.push(name);
    }
    let path = folder.join("run.sh");
    fs::write(&path, SCRIPT).map_err(|error| Failure::io("write", &path, &error))?;
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

fn copy(from: &Path, to: &Path) -> Result<(), Failure> {
    fs::copy(from, to).map(drop).map_err(|error| Failure::io("copy a file to", to, &error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fetch_scripts_words_become_variables() {
        assert_eq!(exported("export A=/x/lib.so"), Some(("A".into(), "/x/lib.so".into())));
        assert_eq!(exported("fetching"), None);
    }
}

/// What `run.sh` does with programs that say what they are told to.
#[cfg(all(test, unix))]
mod script_tests {
    use std::path::PathBuf;

    use super::*;

    /// Programs of a test's own, and the folder that they are staged in.
    struct Bench {
        folder: PathBuf,
        programs: PathBuf,
        _both: tempfile::TempDir,
    }

    impl Bench {
        fn new() -> Self {
            let both = tempfile::tempdir().unwrap();
            let (folder, programs) = (both.path().join("staged"), both.path().join("programs"));
            paths::create(&programs).unwrap();
            Self { folder, programs, _both: both }
        }

        fn program(&self, kind: &str, name: &str, body: &str) -> build::Artifact {
            let path = self.programs.join(name);
            fs::write(&path, format!("#!/bin/sh\n{body}\n")).unwrap();
            executable(&path).unwrap();
            build::Artifact { name: name.into(), kind: kind.into(), executable: path }
        }

        /// The script's exit status and what it said. It finds the programs' folder among commands, and models there.
        fn run(&self, built: &[build::Artifact], words: &[&str]) -> (Option<i32>, String) {
            stage(built, &self.folder).unwrap();
            files("benches/gpu", &self.folder.join("peers")).unwrap();
            let path = format!("{}:{}", self.programs.display(), std::env::var("PATH").unwrap());
            let mut script = std::process::Command::new("sh");
            script.arg(self.folder.join("run.sh")).args(words).env("PATH", path).env("MEMTIER_CACHE", &self.programs);
            let output = script.output().unwrap();
            (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
        }
    }

    const PASSES: &str = "echo 'test a ... ok'; echo 'test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured'";

    #[test]
    fn the_script_runs_all_says_how_each_went_and_fails_if_one_fails() {
        let bench = Bench::new();
        let good = [
            bench.program("test", "a", PASSES),
            bench.program("test", "times", "echo launch: 3.25 us"),
            bench.program("example", "01-x", "echo $1"),
        ];
        let (code, said) = bench.run(&good, &[]);
        assert_eq!(code, Some(0), "{said}");
        let lines: Vec<_> = said.lines().collect();
        assert_eq!(lines[..2], ["== test-a", "test a ... ok"]);
        assert!(lines.contains(&"kernels"), "the example was not given the kernels: {said}");
        let table = &lines[lines.len() - 3..];
        assert!(table[0].starts_with("test-a ") && table[0].ends_with("3 passed, 0 failed, 1 ignored"), "{said}");
        assert!(table[2].starts_with("example-01-x ") && table[2].contains(" ok "), "{said}");
        let bad = [bench.program("test", "bad", "exit 3"), bench.program("test", "b", PASSES)];
        let (code, said) = bench.run(&bad, &["--", "filter"]);
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains("FAILED (3)") && said.contains("== test-b"), "{said}");
    }

    #[test]
    fn times_are_those_of_programs_that_take_them_and_of_the_engine_beside_the_bars() {
        let bench = Bench::new();
        let good = [bench.program("test", "a", PASSES), bench.program("test", "times", "echo launch: 3.25 us")];
        // Only what takes times, and its figures once more at the end.
        let (code, said) = bench.run(&good, &["--bench"]);
        assert_eq!(code, Some(0), "{said}");
        assert!(!said.contains("test-a") && said.matches("launch: 3.25 us").count() == 2, "{said}");
        assert!(said.contains("decode bf16 32x4096") && said.contains("| not measured |"), "the bars: {said}");
        assert!(said.contains("contexts of 20 to 120, tok/s |  |  |  | >= 1200 | >= 2000 | not measured |"), "{said}");
        // The engine with each model that is there, its rates beside their bar; a row that fails fails the run.
        fs::write(bench.programs.join("smollm2-x.gguf"), "").unwrap();
        let engine = |rate: &str| {
            let body = format!("echo '{{\"decode_tok_s\":{rate}}}'; [ {rate} != 0 ]");
            [bench.program("bin", "memtier-engine", &body)]
        };
        let (code, said) = bench.run(&engine("1300.5"), &["--bench"]);
        assert_eq!(code, Some(0), "{said}");
        assert!(said.contains("| 1300 |  | 1300 | >= 1200 | >= 2000 | pass |"), "{said}");
        let (code, said) = bench.run(&engine("0"), &["--bench"]);
        assert_eq!(code, Some(1), "a failed row must fail the run: {said}");
        assert!(said.contains("| MISSED |"), "{said}");
    }

    #[test]
    fn sanitizers_see_fewer_shapes_and_races_are_looked_for_where_there_are_kernels() {
        let bench = Bench::new();
        bench.program("tool", "compute-sanitizer", "echo $2 of $7, few: $MEMTIER_FEW_SHAPES");
        let tests = ["a", "gpu_decode", "times"].map(|name| bench.program("test", name, PASSES));
        let (code, said) = bench.run(&tests, &["--sanitize"]);
        assert_eq!(code, Some(0), "{said}");
        for (tool, program) in [("memcheck", "a"), ("memcheck", "gpu_decode"), ("racecheck", "gpu_decode")] {
            assert!(said.contains(&format!("{tool} of ./test-{program}, few: 1")), "{said}");
        }
        assert!(!said.contains("racecheck of ./test-a") && !said.contains("of ./test-times"), "{said}");
    }
}
