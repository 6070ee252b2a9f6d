//! A crate outside of the workspace, with memtier under another name, builds without a warning and serves, in either edition.

use std::{env, fs, path::Path, process::Command};

#[test]
fn a_crate_of_edition_2021_serves() {
    serves("2021");
}

#[test]
fn a_crate_of_edition_2024_serves() {
    serves("2024");
}

fn serves(edition: &str) {
    let memtier = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("downstream");
    let here = folder.join(edition);
    fs::create_dir_all(&here).expect("the target folder can be written");
    let source = memtier.join("tests/downstream/lib.rs");
    let manifest = format!(
        "[package]\nname = \"downstream-{edition}\"\nversion = \"0.0.0\"\nedition = \"{edition}\"\n\n[lib]\npath = {source:?}\n\n\
         [dependencies]\nmt = {{ package = \"memtier\", path = {memtier:?} }}\n\n[workspace]\n"
    );
    fs::write(here.join("Cargo.toml"), manifest).expect("the manifest can be written");
    // The same versions, which are there already.
    fs::copy(memtier.join("../Cargo.lock"), here.join("Cargo.lock")).expect("the workspace has a lock file");
    let output = Command::new(env::var("CARGO").unwrap_or_else(|_| "cargo".into()))
        .current_dir(&here)
        .args(["test", "--offline", "--lib"])
        .env("CARGO_TARGET_DIR", folder.join("target"))
        .env_remove("RUSTFLAGS")
        .output()
        .expect("cargo can be started");
    let said = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
    // `deny(warnings)` does not reach what cargo itself would say.
    assert!(!said.contains("warning"), "{said}");
}
