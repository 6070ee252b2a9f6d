//! row: n
//! error: E0200
//! says: the trait `Backend` requires an `unsafe impl` declaration
//! A backend that hands out one address twice, or any number as an address: it takes an `unsafe impl` that promises not to.

use memtier::*;
use ui_tests::*;

pub struct Evil;

#[cfg(crime)]
impl Backend for Evil {
    fn space(&self) -> &'static str {
        Host::NAME
    }
    fn granule(&self) -> Bytes {
        Bytes::kib(4)
    }
    fn open_queue(&self, tag: Tag) -> Result<Box<dyn Queue>, AcquireError> {
        HostBackend::new().open_queue(tag)
    }
    fn reserve(&self, _: Tag, _: Bytes, _: Bytes) -> Result<u64, AcquireError> {
        Ok(16)
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
    let Evil = Evil;
}
