//! row: l
//! error: E0277
//! says: a part in `Host` memory, in a bundle whose first part is in `Cuda` memory
//! A pool in host memory as part of a bundle in CUDA memory.

use memtier::*;
use ui_tests::*;

#[cfg(crime)]
#[graph_captured]
pub struct Mixed {
    pub work: DecodeWorkspace<Cuda>,
    pub spill: BlockPool<GlobalKv<f32>, Host>,
}

#[cfg(not(crime))]
#[graph_captured]
pub struct Mixed {
    pub work: DecodeWorkspace<Cuda>,
    pub spill: BlockPool<GlobalKv<f32>, Cuda>,
}

pub fn main() {
    #[cfg(not(crime))]
    assert!(Mixed::demands(&MixedSpec { work: DIMS, spill: POOL }).is_ok());
}
