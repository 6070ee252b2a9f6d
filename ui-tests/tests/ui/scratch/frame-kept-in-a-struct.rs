//! row: c
//! error: E0106
//! says: missing lifetime specifier
//! Scratch in a struct that lives longer than a step.

use memtier::*;
use ui_tests::*;

pub struct Decoder {
    pub engine: Engine<Serving<Llama>>,
    #[cfg(crime)]
    pub scratch: ScratchFrame<Eager<Host>>,
    #[cfg(not(crime))]
    pub stream: Stream<Host>,
}

pub fn main() {}
