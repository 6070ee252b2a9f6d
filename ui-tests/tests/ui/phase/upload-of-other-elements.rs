//! row: k
//! error: E0308
//! says: expected `&mut StableSpanMut<'_, u32, _>`
//! A staged tensor of one element uploaded into a field of another.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = carved();
    let mut load = engine.load(&mut stream)?;
    #[cfg(crime)]
    let tensor = load.staging.take::<u32>(256)?;
    #[cfg(not(crime))]
    let tensor = load.staging.take::<f32>(256)?;
    tensor.upload(load.on, &mut load.buffers.weights.embed)?;
    Ok(())
}
