//! A graph makes room for another one, as a cache of batch sizes needs it.

#![forbid(unsafe_code)]

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = serving();
    let mut record = |engine: &mut Engine<Serving<Llama>>| engine.record(&mut stream, |step| forward(step));
    let (one, _two) = (record(&mut engine)?, record(&mut engine)?);
    assert_eq!(record(&mut engine).err(), Some(RecordError::BudgetExhausted { planned: 2 }));
    engine.forget(one)?;
    let three = record(&mut engine)?;
    let mut step = engine.step(&mut stream)?;
    assert_eq!(step.replay(one), Err(ReplayError::StaleGraph));
    step.replay(three)?;
    Ok(())
}
