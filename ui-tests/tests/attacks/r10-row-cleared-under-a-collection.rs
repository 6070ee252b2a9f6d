//! Row r: admission collects free blocks on one thread, while the decode thread launches over a cancelled request's row and
//! clears it. What the collection knew about the stream is older than the launch.

#![forbid(unsafe_code)]

use memtier::*;
use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};
use ui_tests::*;

#[graph_captured]
pub struct Large {
    pub work: DecodeWorkspace,
    pub kv: BlockPool<GlobalKv<f32>>,
    pub table: PageTable<GlobalKv<f32>>,
}

/// Enough for a collection to take milliseconds.
const BLOCKS: Blocks = Blocks::new(400_000);

pub fn main() -> Result<(), Error> {
    let device = Device::new(FakeBackend::<Host>::asynchronous(), Bytes::mib(64));
    let mut engine = Engine::open(&device);
    let kv = PoolSpec::fixed(Tokens::new(1), 8, BLOCKS);
    let lines = engine.declare_bundle::<Large>(LargeSpec { work: DIMS, kv, table: TABLE });
    let stream = engine.declare(STREAM);
    let mut engine = engine.plan(Limits::new(Host::NAME, Bytes::mib(64)))?.carve(lines)?;
    let mut stream = engine.open_stream(stream)?;
    let mut engine = engine.serve::<Large>()?;
    let pool = engine.bundle().kv.handle();
    for _ in 0..3 {
        let mut cancelled = pool.open(Tokens::new(1));
        cancelled.extend(Tokens::new(1))?;
        let mut step = engine.step::<Large>(&mut stream)?;
        step.buffers.table.set(step.on, 0, &cancelled)?;
        step.finish()?.wait()?;
        drop(cancelled);
        let collecting = AtomicBool::new(false);
        thread::scope(|scope| -> Result<(), Error> {
            scope.spawn(|| {
                collecting.store(true, Ordering::Release);
                pool.free()
            });
            while !collecting.load(Ordering::Acquire) {
                std::hint::spin_loop();
            }
            thread::sleep(Duration::from_millis(1));
            let mut step = engine.step::<Large>(&mut stream)?;
            let LargeView { work, kv, table } = &mut step.buffers;
            host::write_kv(step.on, &mut kv.slab_mut(), table.ids(), &work.hidden)?;
            table.clear(step.on, 0)?;
            let fence = step.finish()?;
            let free = pool.free();
            assert!(fence.poll().is_some() || free < BLOCKS, "the block is free, and its launch in flight");
            fence.wait()?;
            Ok(())
        })?;
    }
    assert_eq!(pool.free(), BLOCKS);
    Ok(())
}
