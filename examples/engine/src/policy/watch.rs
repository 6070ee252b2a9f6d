//! One watcher for the process, and the operator's file for it.

use std::{
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

use memtier::{
    admission,
    pressure::{Watcher, this_host},
};

use crate::EngineError;

/// Reads a pressure file: lines `key = value`, see [`admission::Settings`].
///
/// # Errors
/// [`EngineError::Policy`], with everything that is wrong in one line.
pub fn read_pressure_config(path: &Path) -> Result<admission::Settings, EngineError> {
    let wrong = |what: String| EngineError::Policy { path: path.to_path_buf(), what };
    let text = std::fs::read_to_string(path).map_err(|error| wrong(format!("cannot read: {error}")))?;
    admission::Settings::parse(&text).map_err(|errors| {
        let errors: Vec<_> = errors.iter().map(ToString::to_string).collect();
        wrong(errors.join("; "))
    })
}

static PROCESS: Mutex<Option<Arc<Watcher>>> = Mutex::new(None);

/// The watcher of this process, started at the first call and kept for as long as the process runs. Thresholds and interval
/// are those of the first call: two engines in a process see the same levels.
///
/// # Errors
/// [`EngineError::Busy`] when the settings contradict each other, or when the system has no thread for it.
pub fn process_watcher(settings: &admission::Settings) -> Result<Arc<Watcher>, EngineError> {
    let mut process = PROCESS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(watcher) = &*process {
        return Ok(watcher.clone());
    }
    let watcher = Watcher::new(this_host(), settings.thresholds, settings.poll)
        .map_err(|error| EngineError::Busy(error.to_string()))?;
    watcher.start().map_err(|error| EngineError::Busy(format!("no thread for the memory watcher: {error}")))?;
    Ok(process.insert(Arc::new(watcher)).clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_has_one_watcher() {
        let settings = admission::Settings::default();
        let (one, two) = (process_watcher(&settings).unwrap(), process_watcher(&settings).unwrap());
        assert!(Arc::ptr_eq(&one, &two) && one.running());
        assert!(one.snapshot().seq >= 1, "read before the first call returned");
    }
}
