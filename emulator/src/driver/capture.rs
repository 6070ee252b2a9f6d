//! Captures: what is queued on a stream is written down instead, and what a capture forbids breaks it.

use std::{
    collections::BTreeMap,
    ffi::c_uint,
    sync::Arc,
    thread::{self, ThreadId},
};

use cudarc::driver::sys::{CUgraph, CUresult as R, CUstream};

use super::{
    calls::{Inside, in_context, pointer, put},
    error::{Failure, Outcome, ensure},
    streams::DEFAULT,
    work::{Mark, Work},
};

/// Whom a capture forbids what it cannot hold.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Everybody,
    ThisThread,
    Nobody,
}

struct Capture {
    thread: ThreadId,
    mode: Mode,
    nodes: Vec<Work>,
    broken: bool,
}

/// Every capture, by its stream.
#[derive(Default)]
pub(super) struct Captures(BTreeMap<u64, Capture>);

impl Captures {
    pub(super) fn is_captured(&self, stream: u64) -> bool {
        self.0.contains_key(&stream)
    }

    /// An error where the capture of a stream is broken.
    pub(super) fn intact(&self, stream: u64) -> Outcome {
        let broken = self.0.get(&stream).is_some_and(|capture| capture.broken);
        ensure(!broken, R::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED)
    }

    /// Breaks the capture of a stream.
    pub(super) fn spoil(&mut self, stream: u64) {
        if let Some(capture) = self.0.get_mut(&stream) {
            capture.broken = true;
        }
    }

    pub(super) fn forget(&mut self, stream: u64) {
        self.0.remove(&stream);
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

impl Inside {
    /// For calls that may wait or take something: refused while a capture that minds is going on, which they break.
    pub(super) fn unless_capturing(&mut self) -> Outcome {
        let here = thread::current().id();
        let minds = |capture: &&mut Capture| match capture.mode {
            Mode::Everybody => true,
            Mode::ThisThread => capture.thread == here,
            Mode::Nobody => false,
        };
        let mut refused = Ok(());
        for capture in self.captures.0.values_mut().filter(minds) {
            capture.broken = true;
            refused = Err(Failure::from(R::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED));
        }
        refused
    }

    /// For calls that ask how far a stream is: one that is captured goes nowhere.
    pub(super) fn unless_captured(&mut self, stream: u64) -> Outcome {
        self.default_unless_captured(stream)?;
        let captured = self.captures.is_captured(stream);
        self.captures.spoil(stream);
        ensure(!captured, R::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
    }

    /// The default stream would wait for every stream that keeps its order, which one that is captured cannot let it.
    fn default_unless_captured(&mut self, stream: u64) -> Outcome {
        if stream != DEFAULT {
            return Ok(());
        }
        let captured: Vec<u64> = self.captures.0.keys().copied().filter(|of| self.streams.is_blocking(*of)).collect();
        captured.iter().for_each(|of| self.captures.spoil(*of));
        ensure(captured.is_empty(), R::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT)
    }

    /// Queues work on a stream, or writes it down where the stream is captured: then there is nothing to wait for.
    pub(super) fn queue(&mut self, stream: u64, work: Work, after: Vec<Arc<Mark>>) -> Outcome<Option<Arc<Mark>>> {
        self.default_unless_captured(stream)?;
        self.captures.intact(stream)?;
        if let Some(capture) = self.captures.0.get_mut(&stream) {
            capture.nodes.push(work);
            return Ok(None);
        }
        self.push(stream, work, after).map(Some)
    }
}

/// # Safety
/// None is needed: what is no stream is refused.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamBeginCapture_v2(stream: CUstream, mode: c_uint) -> u32 {
    in_context("cuStreamBeginCapture", |inside| {
        let mode = match mode {
            0 => Mode::Everybody,
            1 => Mode::ThisThread,
            2 => Mode::Nobody,
            _ => return Err(R::CUDA_ERROR_INVALID_VALUE.into()),
        };
        let handle = inside.stream(stream)?;
        ensure(handle != DEFAULT, R::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)?;
        ensure(!inside.captures.is_captured(handle), R::CUDA_ERROR_ILLEGAL_STATE)?;
        let capture = Capture { thread: thread::current().id(), mode, nodes: Vec::new(), broken: false };
        inside.captures.0.insert(handle, capture);
        Ok(())
    })
}

/// # Safety
/// `graph` is null, or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamEndCapture(stream: CUstream, graph: *mut CUgraph) -> u32 {
    in_context("cuStreamEndCapture", |inside| {
        ensure(!graph.is_null(), R::CUDA_ERROR_INVALID_VALUE)?;
        let handle = inside.stream(stream)?;
        let capture = inside.captures.0.get(&handle).ok_or(R::CUDA_ERROR_ILLEGAL_STATE)?;
        let foreign = capture.mode != Mode::Nobody && capture.thread != thread::current().id();
        ensure(!foreign, R::CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD)?;
        let whole = inside.captures.0.remove(&handle).filter(|capture| !capture.broken);
        let made = match whole {
            Some(capture) => {
                let made = inside.handle();
                inside.graphs.add(made, capture.nodes);
                made
            }
            None => 0,
        };
        // SAFETY: by the caller.
        unsafe { put(graph, pointer(made)) }?;
        ensure(made != 0, R::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED)
    })
}

/// # Safety
/// `status` is null, or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamIsCapturing(stream: CUstream, status: *mut c_uint) -> u32 {
    in_context("cuStreamIsCapturing", |inside| {
        let handle = inside.stream(stream)?;
        let found = inside.captures.0.get(&handle).map_or(0, |capture| 1 + u32::from(capture.broken));
        // SAFETY: by the caller.
        unsafe { put(status, found) }
    })
}
