//! row: i
//! error: E0277
//! says: nothing can be declared or planned in phase
//! A pool of one's own, while requests run.

use memtier::*;
use ui_tests::*;

pub fn main() {
    #[cfg(crime)]
    let (mut engine, _stream) = serving();
    #[cfg(not(crime))]
    let mut engine = loading();
    let _pool: Line<BlockPool<GlobalKv<f32>>> = engine.declare(POOL);
}
