//! row: f
//! error: E0505
//! says: cannot move out of `engine` because it is borrowed
//! Write access to weights, taken while loading and used while serving.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = carved();
    let mut load = engine.load(&mut stream)?;
    let tensor = load.staging.take::<f32>(256)?;
    #[cfg(crime)]
    let _engine = engine.serve()?;
    tensor.upload(load.on, &mut load.buffers.weights.embed)?;
    Ok(())
}
