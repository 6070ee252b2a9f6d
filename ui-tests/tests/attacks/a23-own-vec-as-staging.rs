//! row: f
//! error: E0277
//! says: this cannot be done inside a graph capture or a load
//! Uploading weights from a vector that no plan knows and that lives on while serving.

#![forbid(unsafe_code)]

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = carved();
    let mine = vec![1.0f32; 256];
    let mut load = engine.load(&mut stream)?;
    #[cfg(crime)]
    load.on.write(&mut load.buffers.weights.embed, &mine)?;
    #[cfg(not(crime))]
    load.staging.take::<f32>(256)?.upload(load.on, &mut load.buffers.weights.embed)?;
    drop(load);
    let _engine = engine.serve()?;
    drop(mine);
    Ok(())
}
