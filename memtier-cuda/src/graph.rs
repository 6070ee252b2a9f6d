//! CUDA graphs: the launches of a recorded tape, captured once and replayed with one call.

use std::{ptr, sync::Arc};

use cudarc::driver::sys;
use memtier::{Baked, LaunchError, Queue, QueueError};

use crate::{
    driver::{Context, check},
    error::DriverError,
    queue::{CudaStream, while_doing},
};

/// An instantiated graph. The engine keeps the memory and the modules that its nodes use.
struct Exec {
    context: Arc<Context>,
    raw: sys::CUgraphExec,
}

// SAFETY: the handle is only passed to the driver, which takes it from any thread; launches are serialised by the engine,
// which replays under `&mut`.
unsafe impl Send for Exec {}
// SAFETY: as above.
unsafe impl Sync for Exec {}

/// A graph that is not instantiated yet.
struct Template(sys::CUgraph);

impl Drop for Template {
    fn drop(&mut self) {
        if !self.0.is_null() {
            // SAFETY: made by one capture, destroyed once.
            let _ = unsafe { sys::cuGraphDestroy(self.0) };
        }
    }
}

/// Captures what `launches` queues on `stream`. The capture is closed whatever `launches` returns.
pub(crate) fn bake(
    stream: &CudaStream,
    launches: &mut dyn FnMut() -> Result<(), LaunchError>,
) -> Result<Box<dyn Baked>, LaunchError> {
    let device = |error: DriverError| LaunchError::Device(while_doing("recording a graph")(error));
    stream.context().bind().map_err(device)?;
    // Other threads may go on loading and allocating: only this one is held to what a capture allows.
    let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
    // SAFETY: a live stream, which the engine lends to one step or capture at a time.
    check("cuStreamBeginCapture", unsafe { sys::cuStreamBeginCapture_v2(stream.raw(), mode) }).map_err(device)?;
    let launched = launches();
    let mut template = Template(ptr::null_mut());
    // SAFETY: the capture was begun above on this stream; writes a handle, or null when the capture was invalidated.
    let ended = check("cuStreamEndCapture", unsafe { sys::cuStreamEndCapture(stream.raw(), &mut template.0) });
    // What the body says is the cause; a broken capture is its consequence.
    launched?;
    ended.map_err(device)?;
    let mut exec = Exec { context: stream.context().clone(), raw: ptr::null_mut() };
    let instantiated = stream.context().acquire("cuGraphInstantiate", || {
        // SAFETY: a complete graph; writes a handle, destroyed in `drop`.
        unsafe { sys::cuGraphInstantiateWithFlags(&mut exec.raw, template.0, 0) }
    });
    instantiated.map_err(device)?;
    // So that the first replay takes no memory.
    let upload = |stream| {
        exec.context.acquire("cuGraphUpload", || {
            // SAFETY: live handles.
            unsafe { sys::cuGraphUpload(exec.raw, stream) }
        })
    };
    stream.enqueue(upload).map_err(device)?;
    Ok(Box::new(exec))
}

// SAFETY: the graph was captured from the launches themselves, on the queue's stream, and is launched on it.
unsafe impl Baked for Exec {
    unsafe fn launch(&self, on: &dyn Queue) -> Result<(), QueueError> {
        let Some(stream) = on.native().downcast_ref::<CudaStream>() else {
            let reason = "it was recorded on a CUDA queue".into();
            return Err(QueueError { operation: "replaying a graph", reason, lost: false });
        };
        let launched = stream.enqueue_or_bind(|stream| {
            // SAFETY: live handles; by the caller the memory of its nodes is there.
            check("cuGraphLaunch", unsafe { sys::cuGraphLaunch(self.raw, stream) })
        });
        launched.map_err(while_doing("replaying a graph"))
    }
}

impl Drop for Exec {
    fn drop(&mut self) {
        if !self.raw.is_null() && self.context.bind().is_ok() {
            // SAFETY: instantiated once, destroyed once; the engine drains its streams before it drops graphs.
            let _ = unsafe { sys::cuGraphExecDestroy(self.raw) };
        }
    }
}
