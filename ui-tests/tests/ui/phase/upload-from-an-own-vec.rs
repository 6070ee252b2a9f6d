//! row: f
//! error: E0277
//! says: this cannot be done inside a graph capture or a load
//! Uploading from host memory of one's own: it is in no plan, and nothing ends it when serving starts.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = carved();
    let mut load = engine.load(&mut stream)?;
    let weights = vec![1.0; 256];
    #[cfg(crime)]
    load.on.write(&mut load.buffers.weights.embed, &weights)?;
    #[cfg(not(crime))]
    {
        let mut tensor = load.staging.take::<f32>(256)?;
        tensor.copy_from_slice(&weights);
        tensor.upload(load.on, &mut load.buffers.weights.embed)?;
    }
    Ok(())
}
