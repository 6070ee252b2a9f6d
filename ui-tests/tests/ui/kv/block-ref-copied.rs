//! row: o
//! error: E0507
//! says: cannot move out of `*block`
//! A second referent that nobody counted.

use memtier::*;
use ui_tests::*;

pub fn second(block: &BlockRef<GlobalKv<f32>>) -> BlockRef<GlobalKv<f32>> {
    #[cfg(crime)]
    return *block;
    #[cfg(not(crime))]
    return block.share();
}

pub fn main() -> Result<(), Error> {
    let (engine, _stream) = serving();
    let block = engine.bundle().kv.acquire()?;
    assert_eq!(second(&block).referents(), 2);
    Ok(())
}
