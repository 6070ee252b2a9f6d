//! A scheduler that is generic over the bundle.

#![forbid(unsafe_code)]

use memtier::*;
use ui_tests::*;

fn tick<B: Bundle>(
    engine: &mut Engine<Serving<B>>,
    stream: &mut Stream<B::Space>,
    graph: Graph<B>,
    inputs: impl FnOnce(&mut Step<'_, B, Eager<B::Space>>) -> Result<(), LaunchError>,
) -> Result<Fence, Error> {
    let mut step = engine.step(stream)?;
    inputs(&mut step)?;
    step.replay(graph)?;
    Ok(step.finish()?)
}

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = serving();
    let graph = engine.record(&mut stream, |step| forward(step))?;
    tick(&mut engine, &mut stream, graph, |step| step.on.write(&mut step.buffers.work.tokens, &[1; 8]))?.wait()?;
    let (mut engine, mut stream) = serving_cuda();
    let graph = engine.record(&mut stream, |step| forward_cuda(step))?;
    tick(&mut engine, &mut stream, graph, |step| step.on.write(&mut step.buffers.work.tokens, &[1; 8]))?.wait()?;
    Ok(())
}
