//! The model's own error in a capture's body.

#![forbid(unsafe_code)]

use memtier::*;
use ui_tests::*;

#[derive(Debug, PartialEq)]
enum ModelError {
    NoLayer(usize),
    Launch(LaunchError),
}

impl From<LaunchError> for ModelError {
    fn from(error: LaunchError) -> Self {
        ModelError::Launch(error)
    }
}

pub fn main() {
    let (mut engine, mut stream) = serving();
    let recorded = engine.record(&mut stream, |step: &mut Step<'_, Llama, _>| {
        forward(step)?;
        step.buffers.weights.layers.at(7).ok_or(ModelError::NoLayer(7))?;
        Ok(())
    });
    assert_eq!(recorded.err(), Some(RecordError::Body(ModelError::NoLayer(7))));
}
