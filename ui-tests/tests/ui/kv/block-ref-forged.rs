//! row: o
//! error: E0451
//! says: of struct `BlockRef` are private
//! A referent made from an id that the logs print.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (engine, _stream) = serving();
    let block = engine.bundle().kv.acquire()?;
    #[cfg(crime)]
    let block: BlockRef<GlobalKv<f32>> = BlockRef { core: todo!(), id: 7, kind: Default::default() };
    assert_eq!(block.referents(), 1);
    Ok(())
}
