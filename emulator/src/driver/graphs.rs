//! Graphs: what a capture wrote down, and what can be launched of it.

use std::{collections::BTreeMap, ffi::c_ulonglong, sync::Arc};

use cudarc::driver::sys::{CUgraph, CUgraphExec, CUresult as R, CUstream};

use super::{
    calls::{Inside, in_context, pointer, put},
    error::{Outcome, ensure},
    work::{Mark, Work},
};

/// Device memory of an uploaded graph: so much for a node, in pieces of so much, in bytes.
const NODE_BYTES: u64 = 512;
const PIECE_BYTES: u64 = 64 << 10;

/// A graph that can be launched.
struct Exec {
    nodes: Arc<Vec<Work>>,
    /// Device memory that it has; none before it is uploaded.
    charged: u64,
    /// Its last launch: one at a time.
    last: Option<Arc<Mark>>,
}

/// Every graph.
#[derive(Default)]
pub(super) struct Graphs {
    templates: BTreeMap<u64, Arc<Vec<Work>>>,
    execs: BTreeMap<u64, Exec>,
}

impl Graphs {
    pub(super) fn add(&mut self, handle: u64, nodes: Vec<Work>) {
        self.templates.insert(handle, Arc::new(nodes));
    }

    pub(super) fn clear(&mut self) {
        *self = Graphs::default();
    }
}

/// # Safety
/// `exec` is null, or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphInstantiateWithFlags(
    exec: *mut CUgraphExec,
    graph: CUgraph,
    flags: c_ulonglong,
) -> u32 {
    in_context("cuGraphInstantiate", |inside| {
        ensure(!exec.is_null(), R::CUDA_ERROR_INVALID_VALUE)?;
        ensure(flags == 0, R::CUDA_ERROR_NOT_SUPPORTED)?;
        let template = inside.graphs.templates.get(&(graph.addr() as u64));
        let nodes = template.cloned().ok_or(R::CUDA_ERROR_INVALID_HANDLE)?;
        let handle = inside.handle();
        inside.graphs.execs.insert(handle, Exec { nodes, charged: 0, last: None });
        // SAFETY: by the caller.
        unsafe { put(exec, pointer(handle)) }
    })
}

/// Takes the memory of a graph, once.
fn upload(inside: &mut Inside, exec: CUgraphExec) -> Outcome<u64> {
    let handle = exec.addr() as u64;
    let found = inside.graphs.execs.get(&handle).ok_or(R::CUDA_ERROR_INVALID_HANDLE)?;
    if found.charged == 0 {
        let bytes = (found.nodes.len().max(1) as u64 * NODE_BYTES).next_multiple_of(PIECE_BYTES);
        inside.books.charge(bytes)?;
        if let Some(found) = inside.graphs.execs.get_mut(&handle) {
            found.charged = bytes;
        }
    }
    Ok(handle)
}

/// # Safety
/// None is needed: what is no graph or stream is refused.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphUpload(exec: CUgraphExec, stream: CUstream) -> u32 {
    in_context("cuGraphUpload", |inside| {
        let stream = inside.stream(stream)?;
        inside.unless_captured(stream)?;
        upload(inside, exec).map(drop)
    })
}

/// # Safety
/// What the nodes use is there when they run.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphLaunch(exec: CUgraphExec, stream: CUstream) -> u32 {
    in_context("cuGraphLaunch", |inside| {
        let stream = inside.stream(stream)?;
        let handle = upload(inside, exec)?;
        let found = inside.graphs.execs.get(&handle).ok_or(R::CUDA_ERROR_INVALID_HANDLE)?;
        let (work, after) = (Work::Graph(found.nodes.clone()), found.last.iter().cloned().collect());
        let mark = inside.queue(stream, work, after)?;
        if let (Some(found), Some(mark)) = (inside.graphs.execs.get_mut(&handle), mark) {
            found.last = Some(mark);
        }
        Ok(())
    })
}

/// # Safety
/// The graph is not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphDestroy(graph: CUgraph) -> u32 {
    in_context("cuGraphDestroy", |inside| {
        let found = inside.graphs.templates.remove(&(graph.addr() as u64));
        found.map(drop).ok_or(R::CUDA_ERROR_INVALID_HANDLE.into())
    })
}

/// # Safety
/// The graph is not launched any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphExecDestroy(exec: CUgraphExec) -> u32 {
    in_context("cuGraphExecDestroy", |inside| {
        let found = inside.graphs.execs.remove(&(exec.addr() as u64)).ok_or(R::CUDA_ERROR_INVALID_HANDLE)?;
        inside.books.refund(found.charged);
        Ok(())
    })
}
