//! row: l
//! error: E0080
//! says: a page table is beside the device that reads it
//! mode: build
//! Block ids in host memory, where no kernel of the bundle's stream could read them.

use memtier::*;
use ui_tests::*;

#[cfg(crime)]
#[graph_captured]
pub struct Mixed {
    pub kv: BlockPool<GlobalKv<f32>, Cuda>,
    pub table: PageTable<GlobalKv<f32>, Host>,
}

#[cfg(not(crime))]
#[graph_captured]
pub struct Mixed {
    pub kv: BlockPool<GlobalKv<f32>, Cuda>,
    pub table: PageTable<GlobalKv<f32>, Cuda>,
}

pub fn main() {
    let _: fn(&mut Engine<Serving<Mixed>>, &mut Stream<Cuda>) -> bool = |engine, stream| engine.step(stream).is_ok();
}
