//! row: l
//! error: E0277
//! says: a part in `Cuda` memory, in a bundle whose first part is in `Host` memory
//! A pool in CUDA memory as part of a bundle whose stream is the host's: nothing launched there reaches it.

use memtier::*;
use ui_tests::*;

#[cfg(crime)]
#[graph_captured]
pub struct Mixed {
    pub work: DecodeWorkspace<Host>,
    pub kv: BlockPool<GlobalKv<f32>, Cuda>,
}

#[cfg(not(crime))]
#[graph_captured]
pub struct Mixed {
    pub kv: BlockPool<GlobalKv<f32>, Cuda>,
    pub work: DecodeWorkspace<Host>,
}

pub fn main() {
    #[cfg(not(crime))]
    assert!(Mixed::demands(&MixedSpec { work: DIMS, kv: POOL }).is_ok());
}
