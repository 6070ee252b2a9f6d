//! row: d
//! error: E0106
//! says: missing lifetime specifier
//! A span in a struct that lives as long as the process: addresses are borrowed, names are kept.

use memtier::*;
use ui_tests::*;

pub struct Decoder {
    pub engine: Engine<Serving<Llama>>,
    #[cfg(crime)]
    pub hidden: StableSpanMut<f32, Eager<Host>>,
    #[cfg(not(crime))]
    pub graph: Option<Graph<Llama>>,
}

pub fn main() {}
