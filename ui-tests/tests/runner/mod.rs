//! What the tests of the crimes are made of.

pub(crate) mod case;
pub(crate) mod compiler;
pub(crate) mod documents;
pub(crate) mod sentences;
pub(crate) mod snapshot;

use std::{
    path::{Path, PathBuf},
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

/// The folder that holds the workspace.
pub(crate) fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("ui-tests lies in the workspace").to_owned()
}

/// Whether snapshots and tables are to be written again instead of compared.
pub(crate) fn blessing() -> bool {
    std::env::var_os("MEMTIER_BLESS").is_some_and(|value| value == "1")
}

/// Does `work` for each item, on as many threads as there are cores, and keeps the order.
pub(crate) fn in_parallel<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let (next, results) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let threads = thread::available_parallelism().map_or(2, usize::from).min(items.len().max(1));
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(item) = items.get(index) else { return };
                    let result = work(item);
                    results.lock().expect("no worker panicked").push((index, result));
                }
            });
        }
    });
    let mut results = results.into_inner().expect("no worker panicked");
    results.sort_by_key(|(index, _)| *index);
    results.into_iter().map(|(_, result)| result).collect()
}
