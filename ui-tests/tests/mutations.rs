//! Takes guarantees away, one at a time, and shows that the case which stands for it fails: a case that would pass without its
//! guarantee proves nothing.
//!
//! Each mutation edits a copy of the sources, builds it and runs one case there. That takes minutes, so it is not run by default:
//!
//! ```text
//! cargo test -p ui-tests --test mutations -- --ignored --nocapture
//! ```
//!
//! `MEMTIER_UI=words` runs only those of cases whose name holds the words.

#[path = "mutations/list.rs"]
mod list;

use std::{
    env, fs, io,
    path::{Path, PathBuf},
    process::Command,
};

/// A guarantee that is taken away.
struct Mutation {
    /// The case that must fail.
    case: &'static str,
    /// The source, in `memtier/src`.
    file: &'static str,
    /// What is replaced; at the end of the file when empty.
    from: &'static str,
    to: &'static str,
}

#[test]
#[ignore = "builds the workspace once for each mutation"]
fn a_case_fails_when_its_guarantee_is_taken_away() {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("ui-tests lies in the workspace");
    let copy = Path::new(env!("CARGO_TARGET_TMPDIR")).join("mutants");
    copy_workspace(workspace, &copy).expect("the sources can be copied");

    let words = env::var("MEMTIER_UI").unwrap_or_default();
    let mut survivors = Vec::new();
    for mutation in list::MUTATIONS.iter().filter(|mutation| mutation.case.contains(&words)) {
        let outcome = run(&copy, mutation).unwrap_or_else(|why| why);
        println!("{:<48} {outcome}", mutation.case);
        if outcome != "fails: the crime compiles" {
            survivors.push(format!("{} ({}): {outcome}", mutation.case, mutation.file));
        }
    }
    assert!(survivors.is_empty(), "guarantees that no case would miss:\n{}", survivors.join("\n"));
}

/// What the case does without its guarantee, or why that cannot be said.
fn run(copy: &Path, mutation: &Mutation) -> Result<String, String> {
    let path = copy.join("memtier/src").join(mutation.file);
    let source = fs::read_to_string(&path).map_err(|error| error.to_string())?;
    let mutated = match mutation.from {
        "" => source.clone() + mutation.to,
        from if source.matches(from).count() == 1 => source.replace(from, mutation.to),
        from => return Err(format!("the source has {} of what is to be replaced", source.matches(from).count())),
    };
    fs::write(&path, mutated).map_err(|error| error.to_string())?;
    let tested = test(copy, mutation.case);
    fs::write(&path, source).map_err(|error| error.to_string())?;
    let (passed, output) = tested.map_err(|error| error.to_string())?;
    Ok(match (passed, output.contains("1 crimes in"), output.contains("the crime compiles")) {
        (true, true, _) => "passes all the same".to_owned(),
        (false, true, true) => "fails: the crime compiles".to_owned(),
        (false, true, false) => "fails, with another message".to_owned(),
        _ => {
            format!(
                "does not build:\n{}",
                output.lines().filter(|line| line.starts_with("error")).collect::<Vec<_>>().join("\n")
            )
        }
    })
}

fn test(copy: &Path, case: &str) -> io::Result<(bool, String)> {
    let output = Command::new(env::var("CARGO").unwrap_or_else(|_| "cargo".into()))
        .current_dir(copy)
        .args(["test", "--offline", "-p", "ui-tests", "--test", "ui", "every_crime", "--", "--nocapture"])
        .env("MEMTIER_UI", case)
        .env("CARGO_TARGET_DIR", copy.join("target"))
        .output()?;
    let text = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    Ok((output.status.success(), text))
}

/// The three packages that the cases need, as a workspace of their own.
fn copy_workspace(from: &Path, to: &Path) -> io::Result<()> {
    for folder in ["memtier", "memtier-macros", "memtier-cuda", "kernels", "ui-tests", ".cargo"] {
        let _ = fs::remove_dir_all(to.join(folder));
        copy_folder(&from.join(folder), &to.join(folder))?;
    }
    for file in ["Cargo.toml", "Cargo.lock", "rust-toolchain.toml"] {
        fs::copy(from.join(file), to.join(file))?;
    }
    let manifest = fs::read_to_string(to.join("Cargo.toml"))?;
    let start = manifest.find("members = [").expect("the workspace lists its members");
    let end = start + manifest[start..].find(']').expect("the list ends");
    let members = "members = [\"memtier\", \"memtier-macros\", \"memtier-cuda\", \"ui-tests\"";
    // Profiles of packages that are not there would be warned about.
    let rest = manifest[end..].split("[profile.").next().unwrap_or_default();
    fs::write(to.join("Cargo.toml"), [&manifest[..start], members, rest].concat())?;
    // Their own tests are not run there, and need other packages.
    for package in ["memtier", "memtier-macros", "memtier-cuda"] {
        let path = to.join(package).join("Cargo.toml");
        let manifest = fs::read_to_string(&path)?;
        let own = |section: &&str| !section.split(']').next().unwrap_or_default().contains("dev-dependencies");
        let kept: Vec<_> = manifest.split("\n[").filter(own).collect();
        fs::write(&path, kept.join("\n["))?;
    }
    Ok(())
}

fn copy_folder(from: &PathBuf, to: &PathBuf) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let (path, name) = entry.map(|entry| (entry.path(), entry.file_name()))?;
        if path.is_dir() {
            copy_folder(&path, &to.join(name))?;
        } else {
            fs::copy(&path, to.join(name))?;
        }
    }
    Ok(())
}
