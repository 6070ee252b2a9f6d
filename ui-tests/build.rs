//! Makes one test binary of all legal programs: the twin of every crime, every attack that still compiles, every wanted program.
//!
//! Each file becomes a module, compiled without `--cfg crime`, and a test that runs its `main`. One build of 200 modules takes
//! seconds, where 200 builds take minutes.

use std::{env, error::Error, fmt::Write, fs, path::Path};

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rustc-check-cfg=cfg(crime)");
    println!("cargo::rerun-if-changed=build.rs");
    let tests = Path::new(&env::var("CARGO_MANIFEST_DIR")?).join("tests");
    let mut programs = String::new();
    for folder in ["ui", "attacks", "wanted"] {
        // A folder that changes is looked at again, with everything in it.
        println!("cargo::rerun-if-changed=tests/{folder}");
        if tests.join(folder).is_dir() {
            write_folder(&mut programs, &tests.join(folder))?;
        }
    }
    fs::write(Path::new(&env::var("OUT_DIR")?).join("programs.rs"), programs)?;
    Ok(())
}

fn write_folder(out: &mut String, folder: &Path) -> Result<(), Box<dyn Error>> {
    let mut entries: Vec<_> =
        fs::read_dir(folder)?.map(|entry| entry.map(|entry| entry.path())).collect::<Result<_, _>>()?;
    entries.sort();
    writeln!(out, "mod {} {{", name(folder))?;
    for path in entries {
        if path.is_dir() {
            write_folder(out, &path)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            write_program(out, &path)?;
        }
    }
    writeln!(out, "}}")?;
    Ok(())
}

fn write_program(out: &mut String, path: &Path) -> Result<(), Box<dyn Error>> {
    let (name, source) = (name(path), fs::read_to_string(path)?);
    let header =
        |key: &str| source.lines().find_map(|line| line.strip_prefix("//! ")?.strip_prefix(key).map(str::trim));
    let ignore = header("hole:").map(|why| format!("#[ignore = {why:?}] ")).unwrap_or_default();
    writeln!(out, "    #[path = {path:?}] mod {name}_program;")?;
    writeln!(out, "    #[test] {ignore}fn {name}() {{ crate::end_well({name}_program::main()); }}")?;
    Ok(())
}

/// `tests/ui/kv/block-ref-copied.rs` is module `block_ref_copied`.
fn name(path: &Path) -> String {
    path.file_stem().map(|stem| stem.to_string_lossy().replace('-', "_")).unwrap_or_default()
}
