//! Row r: an operation of one side panics on its thread. The other side ends as usual, and the engine serves on.

#![forbid(unsafe_code)]

use memtier::*;
use std::thread;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let mut engine = Engine::open(&Device::new(FakeBackend::<Host>::asynchronous(), Bytes::mib(1)));
    let lines = declare::<Host>(&mut engine);
    let (one, two) = (engine.declare(STREAM), engine.declare(STREAM));
    let mut engine = engine.plan(limits::<Host>())?.carve(lines)?;
    let (mut one, mut two) = (engine.open_stream(one)?, engine.open_stream(two)?);
    let mut engine = engine.serve::<Llama>()?;
    for _ in 0..3 {
        let Overlap { parts, first, second } = engine.overlap::<Llama>(&mut one, &mut two)?;
        let (mut work, weights) = (parts.work.on(&first)?, parts.weights.on(&second)?);
        let panicked = thread::scope(|scope| {
            scope
                .spawn(move || {
                    // It is expected: nobody has to read about it.
                    std::panic::set_hook(Box::new(|_| {}));
                    first.on.host_op((output::<f32, _, _>(&mut work.hidden),), |_| panic!("in an operation"))
                })
                .join()
                .is_err()
        });
        let _ = std::panic::take_hook();
        assert!(panicked);
        let mut embed = [0.0; 8];
        second.on.read::<f32>(weights.embed, &mut embed)?;
        second.finish()?.wait()?;
    }
    forward(&mut engine.step(&mut one)?)?;
    engine.drain()?.end_model();
    Ok(())
}
