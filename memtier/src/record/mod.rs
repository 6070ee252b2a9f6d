//! Where launches go: streams, captures, scratch, fences and graphs.

mod across;
mod bytes;
mod fence;
mod graph;
mod host_op;
mod lane;
mod read_back;
mod recorder;
mod scratch;

pub use fence::{Fence, Settled};
pub use graph::{Graph, RecordError, ReplayError};
pub use host_op::{HostArg, HostArgs, PackedTensor, input, output, packed};
pub use read_back::{ReadBack, ReadBackError};
pub use recorder::{LaunchError, NativeQueue, Recorder, Stream, StreamSpec};
pub use scratch::{ScratchFrame, ScratchFull, ScratchStack};

pub(crate) use graph::{GraphExec, GraphStore};
pub(crate) use lane::{Lane, Running};
pub(crate) use recorder::bytes_of;
