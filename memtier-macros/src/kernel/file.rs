//! Finding the source.

use std::{fs, path::Path};

use syn::LitStr;

use crate::report::{Errors, did_you_mean, list};

/// The text of a source, and where it is.
pub(super) struct File {
    pub(super) absolute: String,
    pub(super) text: String,
}

pub(super) fn read(folder: &Path, name: &LitStr, errors: &mut Errors) -> Option<File> {
    let written = name.value();
    let path = folder.join(&written);
    let problem = match (fs::read(&path), path.to_str()) {
        (Ok(_), None) => "its path is no Unicode, and `include_str!` needs it to be".to_owned(),
        (Ok(bytes), Some(absolute)) => match String::from_utf8(bytes) {
            Ok(text) => return Some(File { absolute: absolute.to_owned(), text }),
            Err(error) => format!("it is no UTF-8 from byte {} on", error.utf8_error().valid_up_to()),
        },
        (Err(error), _) if error.kind() != std::io::ErrorKind::NotFound => error.to_string(),
        (Err(_), _) => {
            errors.at(name.span(), missing(folder, &written));
            return None;
        }
    };
    errors.at(name.span(), format!("`{written}` could not be read: {problem}"));
    None
}

/// What is in the nearest folder that exists.
fn missing(folder: &Path, written: &str) -> String {
    let path = folder.join(written);
    let near = path.ancestors().skip(1).find(|near| near.is_dir()).unwrap_or(folder);
    let mut names: Vec<String> = fs::read_dir(near)
        .map(|entries| entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect())
        .unwrap_or_default();
    names.sort();
    let whole = path.parent() == Some(near);
    let sources: Vec<&str> = names.iter().map(String::as_str).filter(|name| !whole || name.ends_with(".cu")).collect();
    let wanted = path.strip_prefix(near).ok().and_then(|rest| rest.iter().next()).and_then(|name| name.to_str());
    let guess = did_you_mean(wanted.unwrap_or_default(), &sources);
    let shown = near.strip_prefix(folder).ok().and_then(Path::to_str).filter(|shown| !shown.is_empty());
    let shown = shown.map_or_else(|| near.display().to_string(), |shown| format!("`{shown}`"));
    let sources: Vec<&str> = sources.into_iter().filter(|name| name.ends_with(".cu")).collect();
    let there = match sources.as_slice() {
        [] => "no `.cu` file".to_owned(),
        sources => list(sources),
    };
    format!("no file `{written}` beside this crate's Cargo.toml{guess} (in {shown} there is {there})")
}
