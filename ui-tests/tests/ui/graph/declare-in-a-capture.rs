//! row: h
//! error: E0277
//! says: nothing can be declared or planned in phase
//! Declaring memory while recording.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = serving();
    engine.record(&mut stream, |step: &mut Step<'_, Llama, _>| -> Result<(), LaunchError> {
        #[cfg(crime)]
        let _line: Line<DecodeWorkspace> = engine.declare(DIMS);
        step.scratch.take::<f32>(64)?;
        Ok(())
    })?;
    Ok(())
}
