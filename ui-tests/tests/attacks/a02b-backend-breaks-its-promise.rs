//! Row n: a backend whose author wrote `unsafe` and repeats addresses all the same, or returns one that is none. Caught
//! before anything is built on it.

use memtier::*;
use std::sync::Mutex;
use ui_tests::*;

struct Evil(HostBackend, Mutex<Vec<u64>>, bool);

// SAFETY: none, that is the attack: the device must notice before it uses an address.
unsafe impl Backend for Evil {
    fn space(&self) -> &'static str {
        Host::NAME
    }
    fn granule(&self) -> Bytes {
        Bytes::kib(4)
    }
    fn open_queue(&self, tag: Tag) -> Result<Box<dyn Queue>, AcquireError> {
        self.0.open_queue(tag)
    }
    fn reserve(&self, tag: Tag, reserved: Bytes, committed: Bytes) -> Result<u64, AcquireError> {
        if self.2 {
            return Ok(16);
        }
        let mut known = self.1.lock().unwrap();
        if let Some(base) = known.first() {
            return Ok(*base);
        }
        let base = self.0.reserve(tag, Bytes::mib(1), Bytes::mib(1))?;
        known.push(base);
        let _ = (reserved, committed);
        Ok(base)
    }
    unsafe fn commit(&self, _: Tag, _: u64, _: Bytes, _: Bytes) -> Result<(), AcquireError> {
        Ok(())
    }
    unsafe fn decommit(&self, _: Tag, _: u64, _: Bytes, _: Bytes) -> Result<(), AcquireError> {
        Ok(())
    }
    unsafe fn release(&self, _: Tag, _: u64, _: Bytes, _: Bytes) -> Result<(), AcquireError> {
        Ok(())
    }
}

pub fn main() {
    for forges in [false, true] {
        let device = Device::new(Evil(HostBackend::new(), Mutex::default(), forges), Bytes::mib(1));
        let mut engine = Engine::open(&device);
        let _lines = declare::<Host>(&mut engine);
        let refused = engine.plan(limits::<Host>()).err().expect("the second region overlaps the first").report;
        assert!(matches!(refused, PlanError::Acquire(AcquireError::Overlap { .. })), "{refused}");
    }
}
