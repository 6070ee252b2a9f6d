//! Events: whether a stream has come as far as it was when the event was recorded.

use std::{collections::BTreeMap, ffi::c_uint, sync::Arc};

use cudarc::driver::sys::{CUevent, CUresult as R, CUstream};

use super::{
    calls::{in_context, pointer, put},
    error::{Failure, Outcome, ensure},
    work::{Mark, Work},
};

/// When an event happens.
#[derive(Clone)]
enum When {
    /// It was never recorded, or recorded behind nothing: it is done.
    Now,
    /// When this is done.
    Behind(Arc<Mark>),
    /// It was recorded in the capture of this stream.
    Captured(u64),
}

/// Every event.
#[derive(Default)]
pub(super) struct Events(BTreeMap<u64, When>);

impl Events {
    fn when(&self, event: CUevent) -> Outcome<When> {
        self.0.get(&(event.addr() as u64)).cloned().ok_or(R::CUDA_ERROR_INVALID_HANDLE.into())
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

/// # Safety
/// `event` is null, or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventCreate(event: *mut CUevent, flags: c_uint) -> u32 {
    in_context("cuEventCreate", |inside| {
        ensure(!event.is_null() && flags < 8, R::CUDA_ERROR_INVALID_VALUE)?;
        let handle = inside.handle();
        inside.events.0.insert(handle, When::Now);
        // SAFETY: by the caller.
        unsafe { put(event, pointer(handle)) }
    })
}

/// # Safety
/// The event is not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventDestroy_v2(event: CUevent) -> u32 {
    in_context("cuEventDestroy", |inside| {
        let found = inside.events.0.remove(&(event.addr() as u64));
        found.map(drop).ok_or(R::CUDA_ERROR_INVALID_HANDLE.into())
    })
}

/// # Safety
/// None is needed: what is no event or stream is refused.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventRecord(event: CUevent, stream: CUstream) -> u32 {
    in_context("cuEventRecord", |inside| {
        let handle = inside.stream(stream)?;
        inside.events.when(event)?;
        let when = match inside.captures.is_captured(handle) {
            true => {
                inside.captures.intact(handle)?;
                When::Captured(handle)
            }
            false => inside.streams.tail(handle).map_or(When::Now, When::Behind),
        };
        inside.events.0.insert(event.addr() as u64, when);
        Ok(())
    })
}

/// # Safety
/// None is needed: what is no event is refused.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventQuery(event: CUevent) -> u32 {
    in_context("cuEventQuery", |inside| {
        inside.unless_capturing()?;
        match inside.events.when(event)? {
            When::Now => Ok(()),
            When::Behind(mark) => ensure(mark.is_done(), R::CUDA_ERROR_NOT_READY),
            When::Captured(_) => Err(R::CUDA_ERROR_CAPTURED_EVENT.into()),
        }
    })
}

/// # Safety
/// None is needed: what is no event is refused.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventSynchronize(event: CUevent) -> u32 {
    in_context("cuEventSynchronize", |inside| {
        inside.unless_capturing()?;
        match inside.events.when(event)? {
            When::Now => Ok(()),
            When::Behind(mark) => {
                inside.wait_for(&mark);
                inside.alive()
            }
            When::Captured(_) => Err(R::CUDA_ERROR_CAPTURED_EVENT.into()),
        }
    })
}

/// # Safety
/// None is needed: what is no event or stream is refused.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamWaitEvent(stream: CUstream, event: CUevent, flags: c_uint) -> u32 {
    in_context("cuStreamWaitEvent", |inside| {
        ensure(flags == 0, R::CUDA_ERROR_INVALID_VALUE)?;
        let handle = inside.stream(stream)?;
        let captured = inside.captures.is_captured(handle);
        match inside.events.when(event)? {
            When::Now if !captured => Ok(()),
            When::Behind(mark) if !captured => inside.push(handle, Work::Nothing, vec![mark]).map(drop),
            // What is in order already.
            When::Captured(of) if of == handle && captured => inside.captures.intact(handle),
            // A second stream in one capture.
            When::Captured(_) => Err(R::CUDA_ERROR_NOT_SUPPORTED.into()),
            _ => {
                inside.captures.spoil(handle);
                Err(Failure::from(R::CUDA_ERROR_STREAM_CAPTURE_ISOLATION))
            }
        }
    })
}
