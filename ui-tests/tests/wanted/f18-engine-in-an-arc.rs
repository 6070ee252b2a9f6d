//! The engine in an `Arc` that request tasks share; when the last of them is gone it is drained by value.

#![forbid(unsafe_code)]

use memtier::*;
use std::sync::Arc;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (engine, _stream) = serving();
    let engine = Arc::new(engine);
    let task = {
        let engine = engine.clone();
        std::thread::spawn(move || ticket(&engine).capacity())
    };
    assert_eq!(task.join().map_err(|_| "the task panicked")?, Tokens::new(1));
    let engine = Arc::into_inner(engine).ok_or("somebody still has the engine")?;
    engine.drain()?.end_model();
    Ok(())
}
