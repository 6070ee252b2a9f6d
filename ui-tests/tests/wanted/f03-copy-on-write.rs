//! A shared block is copied into an own one.

#![forbid(unsafe_code)]

use memtier::*;
use ui_tests::*;

fn copy_on_write(
    step: &mut Step<'_, Llama, Eager<Host>>,
    from: &Ticket<GlobalKv<f32>>,
    to: &mut Ticket<GlobalKv<f32>>,
) -> Result<(), Error> {
    let (from, mut to) = step.buffers.kv.copy_pair((from, 0), (to, 0))?;
    step.on.copy::<f32>(&mut to, from)?;
    Ok(())
}

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = serving();
    let (first, settled) = written(&mut engine, &mut stream)?;
    let shared = first.written(&settled)?.publish().open(Tokens::new(4));
    let mut own = ticket(&engine);
    let mut step = engine.step(&mut stream)?;
    copy_on_write(&mut step, &shared, &mut own)?;
    let mut values = [0.0; 8];
    step.on.read(step.buffers.kv.block(&own, 0)?, &mut values)?;
    assert_eq!(values, [1.0; 8]);
    Ok(())
}
