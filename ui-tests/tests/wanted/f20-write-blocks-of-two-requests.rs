//! One launch that writes a block of each of two requests.

#![forbid(unsafe_code)]

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = serving();
    let (mut a, mut b) = (ticket(&engine), ticket(&engine));
    let mut step = engine.step(&mut stream)?;
    let [mut one, mut two] = step.buffers.kv.blocks_mut([(&mut a, 0), (&mut b, 0)])?;
    step.on.host_op((output::<f32, _, _>(&mut one), output::<f32, _, _>(&mut two)), |(one, two)| {
        one.fill(1.0);
        two.fill(2.0);
        Ok(())
    })?;
    let mut values = [0.0; 8];
    step.on.read(step.buffers.kv.block(&a, 0)?, &mut values)?;
    assert_eq!(values, [1.0; 8]);
    Ok(())
}
