//! Row m: a leaked engine's step is `'static`, so the body of an operation can own it and replay a graph over the buffer that
//! it holds as `&mut`. A replay runs alone.

#![forbid(unsafe_code)]

use memtier::*;
use std::sync::{Arc, Mutex};
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, stream) = serving();
    let stream: &'static mut _ = Box::leak(Box::new(stream));
    let graph = engine.record(stream, |step: &mut Step<'_, Llama, _>| {
        let work = &mut step.buffers.work;
        step.on.host_op((output::<f32, _, _>(&mut work.hidden),), |(hidden,)| {
            hidden.fill(7.0);
            Ok(())
        })
    })?;
    let engine: &'static mut _ = Box::leak(Box::new(engine));
    let mut step = engine.step(stream)?;
    let on = step.on;
    let mut stolen = step.scratch.nested().take::<f32>(64).map(|_| ()).and_then(|()| step.scratch.take::<f32>(64))?;
    std::mem::swap(&mut stolen, &mut step.buffers.work.hidden);
    let (step, seen) = (Arc::new(Mutex::new(step)), Arc::new(Mutex::new(None)));
    let told = seen.clone();
    on.host_op((output::<f32, _, _>(&mut stolen),), move |(hidden,)| {
        hidden[0] = 1.0;
        *told.lock().unwrap() = Some(step.lock().unwrap().replay(graph));
        assert_eq!(hidden[0], 1.0, "written through another `&mut`");
        Ok(())
    })?;
    assert!(matches!(*seen.lock().unwrap(), Some(Err(_))));
    Ok(())
}
