//! Writes headers of published models as sparse files, to plan them or to load them where zeros will do:
//! `cargo run -p memtier-model --example zoo -- FOLDER [NAME]`.

#[path = "../tests/zoo/mod.rs"]
mod zoo;

use std::error::Error;
use std::fs::File;
use std::path::PathBuf;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args_os().skip(1);
    let folder = PathBuf::from(arguments.next().ok_or("usage: zoo FOLDER [NAME]")?);
    let only = arguments.next();
    std::fs::create_dir_all(&folder)?;
    for (name, model) in zoo::ALL.iter().filter(|entry| only.as_ref().is_none_or(|only| only == entry.0)) {
        let path = folder.join(format!("{name}.gguf"));
        model().file.write_sparse(&File::create(&path)?)?;
        println!("{}", path.display());
    }
    Ok(())
}
