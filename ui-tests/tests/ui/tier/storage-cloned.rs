//! row: e
//! error: E0599
//! says: no method named `clone` found for struct `DecodeWorkspace<__MtS>`
//! A second owner of the same device memory.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (engine, _stream) = serving();
    let (_engine, kept) = engine.drain()?.end_model();
    #[cfg(crime)]
    let _twin: DecodeWorkspace = kept.work.clone();
    let _work: DecodeWorkspace = kept.work;
    Ok(())
}
