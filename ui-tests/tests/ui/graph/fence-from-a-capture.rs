//! row: r
//! error: E0277
//! says: this cannot be done inside a graph capture or a load
//! A fence behind launches that were only written down.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = serving();
    engine.record(&mut stream, |step: &mut Step<'_, Llama, _>| -> Result<(), LaunchError> {
        forward(step)?;
        #[cfg(crime)]
        let _fence = { *step }.finish()?;
        Ok(())
    })?;
    let _fence = engine.step::<Llama>(&mut stream)?.finish()?;
    Ok(())
}
