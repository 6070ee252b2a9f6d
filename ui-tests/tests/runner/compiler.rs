//! One `rustc` call for each crime, against the library that cargo built for this test.
//!
//! `trybuild` would do the snapshots, but a case there is one program that fails: the legal twin would be a second file that
//! drifts. And it asks cargo to build a package of all cases, where the first that fails hides what comes after borrow checking.
//! A direct call takes a third of a second, uses every core, and says exactly what `rustc` says to a user.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use super::{case::Case, workspace};

/// The toolchain whose words the snapshots hold. Pinned in `rust-toolchain.toml`.
const PINNED: &str = "rustc 1.95.0 ";

pub(crate) struct Compiler {
    rustc: String,
    externs: Vec<String>,
    out: PathBuf,
}

/// What became of a crime.
pub(crate) struct Verdict {
    pub(crate) refused: bool,
    /// As `rustc` wrote it.
    pub(crate) stderr: String,
}

impl Compiler {
    /// Finds the libraries of the profile that this test was built with.
    pub(crate) fn find() -> Self {
        let rustc = env::var("RUSTC").unwrap_or_else(|_| "rustc".into());
        let version = Command::new(&rustc).arg("--version").output().expect("rustc can be started").stdout;
        let version = String::from_utf8_lossy(&version).into_owned();
        assert!(version.starts_with(PINNED), "the snapshots hold the words of {PINNED}; this is {version}");
        let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join("crimes");
        fs::create_dir_all(&out).expect("the target folder can be written");
        Compiler { rustc, externs: libraries(), out }
    }

    /// Compiles the crime.
    pub(crate) fn crime(&self, case: &Case) -> Verdict {
        let crate_name = case.name.replace(['/', '-'], "_");
        // Where there is a profile that generates code, the program must come that far.
        let emit = if case.build { "obj" } else { "metadata" };
        let path = case.path.strip_prefix(workspace()).expect("cases lie in the workspace");
        let output = Command::new(&self.rustc)
            .current_dir(workspace())
            .args(["--edition", "2024", "--crate-type", "lib", "--crate-name", &crate_name, "--emit", emit])
            // `#[kernel]` finds CUDA sources from here.
            .env("CARGO_MANIFEST_DIR", env!("CARGO_MANIFEST_DIR"))
            .args(["--cfg", "crime", "--check-cfg", "cfg(crime)", "-A", "warnings"])
            .args(["--color", "never", "--diagnostic-width", "140", "--out-dir"])
            .arg(&self.out)
            .args(&self.externs)
            .arg(path)
            .stdin(Stdio::null())
            .output()
            .expect("rustc can be started");
        Verdict { refused: !output.status.success(), stderr: String::from_utf8_lossy(&output.stderr).into_owned() }
    }
}

/// `--extern` and `-L` for the library that cases use. Cargo knows where it is; everything was built before this test ran.
fn libraries() -> Vec<String> {
    let test = env::current_exe().expect("this test has a path");
    let deps = test.parent().expect("tests lie in `deps`");
    let profile = deps.parent().expect("`deps` lies in the folder of the profile");
    let target = profile.parent().expect("profiles lie in the target folder");
    let name = profile.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let name = if name == "debug" { "dev".to_owned() } else { name };
    let output = Command::new(env::var("CARGO").unwrap_or_else(|_| "cargo".into()))
        .current_dir(workspace())
        .args([
            "build",
            "--package",
            "ui-tests",
            "--lib",
            "--profile",
            &name,
            "--message-format",
            "json",
            "--target-dir",
        ])
        .arg(target)
        .stderr(Stdio::inherit())
        .output()
        .expect("cargo can be started");
    assert!(output.status.success(), "the library that cases use does not build");
    let json = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut arguments = vec!["-L".to_owned(), format!("dependency={}", deps.display())];
    for krate in ["ui_tests", "memtier", "memtier_cuda"] {
        let path = rlib(&json, krate).unwrap_or_else(|| panic!("cargo says nothing about {krate}"));
        arguments.extend(["--extern".to_owned(), format!("{krate}={path}")]);
    }
    arguments
}

/// The library of `krate` among cargo's messages.
fn rlib<'j>(json: &'j str, krate: &str) -> Option<&'j str> {
    let name = format!("\"name\":\"{krate}\"");
    let line = json.lines().find(|line| line.contains("\"compiler-artifact\"") && line.contains(&name))?;
    line.split('"').find(|text| text.ends_with(".rlib"))
}
