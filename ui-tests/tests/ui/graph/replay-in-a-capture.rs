//! row: h
//! error: E0277
//! says: this cannot be done inside a graph capture or a load
//! Replaying one graph while recording another.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = serving();
    let graph: Graph<Llama> = engine.record(&mut stream, |step| forward(step))?;
    engine.record(&mut stream, |step| -> Result<(), Error> {
        #[cfg(crime)]
        step.replay(graph)?;
        Ok(forward(step)?)
    })?;
    engine.step(&mut stream)?.replay(graph)?;
    Ok(())
}
