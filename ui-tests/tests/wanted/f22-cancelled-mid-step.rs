//! A future is dropped at its `.await` in the middle of a step: the engine goes on.

#![forbid(unsafe_code)]

use memtier::*;
use std::{
    pin::pin,
    task::{Context, Waker},
};
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = serving_late();
    let mut ticket = ticket(&engine);
    {
        let mut future = pin!(async {
            let mut step = engine.step(&mut stream)?;
            step.on.write(&mut step.buffers.kv.block_mut(&mut ticket, 0)?, &[1.0; 8])?;
            std::future::pending::<()>().await;
            step.finish()?;
            Ok::<(), Error>(())
        });
        assert!(future.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    }
    drop(ticket);
    assert_eq!(engine.bundle().kv.free(), Blocks::new(63), "the write of the cancelled step is in flight");
    engine.step::<Llama>(&mut stream)?.finish()?.wait()?;
    assert_eq!(engine.bundle().kv.free(), Blocks::new(64));
    Ok(())
}
