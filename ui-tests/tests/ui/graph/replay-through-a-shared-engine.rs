//! row: m
//! error: E0596
//! says: cannot borrow `*engine` as mutable
//! Replaying from where requests are admitted: two replays could run at a time.

use memtier::*;
use ui_tests::*;

#[cfg(crime)]
pub fn tick(engine: &Engine<Serving<Llama>>, stream: &mut Stream<Host>, graph: Graph<Llama>) -> Result<(), Error> {
    Ok(engine.step(stream)?.replay(graph)?)
}

#[cfg(not(crime))]
pub fn tick(engine: &mut Engine<Serving<Llama>>, stream: &mut Stream<Host>, graph: Graph<Llama>) -> Result<(), Error> {
    Ok(engine.step(stream)?.replay(graph)?)
}

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = serving();
    let graph = engine.record(&mut stream, |step| forward(step))?;
    tick(&mut engine, &mut stream, graph)
}
