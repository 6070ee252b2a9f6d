//! Row a: the body of a replayed operation sets a row of a table that left its step. The copy is refused, since a replay runs
//! alone: then the row must still pin what the device still reads in it.

#![forbid(unsafe_code)]

use memtier::*;
use std::sync::{Arc, Mutex};
use ui_tests::*;

#[graph_captured]
pub struct Groups {
    pub work: DecodeWorkspace,
    pub kv: BlockPool<GlobalKv<f32>>,
    pub tables: Vec<PageTable<GlobalKv<f32>>>,
}

type Stolen = (&'static Recorder<Eager<Host>>, Vec<PageTableView<'static, GlobalKv<f32>, Eager<Host>>>);

pub fn main() -> Result<(), Error> {
    let mut engine = loading();
    let lines = engine.declare_bundle::<Groups>(GroupsSpec { work: DIMS, kv: POOL, tables: vec![TABLE] });
    let stream = engine.declare(STREAM);
    let mut engine = engine.plan(limits::<Host>())?.carve(lines)?;
    let stream: &'static mut _ = Box::leak(Box::new(engine.open_stream(stream)?));
    let mut engine = engine.serve::<Groups>()?;
    let pool = engine.bundle().kv.handle();
    let open = || {
        let mut ticket = pool.open(Tokens::new(1));
        ticket.extend(Tokens::new(1)).map(|()| ticket)
    };
    let (first, second) = (open()?, open()?);
    let slot: Arc<Mutex<Option<Stolen>>> = Arc::default();
    let (stolen, refused) = (slot.clone(), Arc::new(Mutex::new(None)));
    let told = refused.clone();
    let graph = engine.record(stream, move |step: &mut Step<'_, Groups, _>| {
        step.on.host_op((output::<f32, _, _>(&mut step.buffers.work.hidden),), move |_| {
            if let Some((on, tables)) = stolen.lock().unwrap().as_mut() {
                *told.lock().unwrap() = Some(tables[0].set(on, 0, &second));
            }
            Ok(())
        })
    })?;
    let engine: &'static mut _ = Box::leak(Box::new(engine));
    let mut step: Step<'static, Groups, Eager<Host>> = engine.step(stream)?;
    let on = step.on;
    step.buffers.tables[0].set(on, 0, &first)?;
    let held = pool.free();
    *slot.lock().unwrap() = Some((on, std::mem::take(&mut step.buffers.tables)));
    step.replay(graph)?;
    assert!(matches!(*refused.lock().unwrap(), Some(Err(_))));
    // The device still reads the first request's block in row 0: it must not go to somebody else.
    drop(first);
    drop(step);
    assert_eq!(pool.free(), held, "a block that the table names is free");
    Ok(())
}
