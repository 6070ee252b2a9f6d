//! The memory layer of a GPU inference engine: tiers, phases, spans, pools and a planner, checked at compile time.
//!
//! An engine that is built on it cannot allocate while serving, cannot bake a movable address into a graph, cannot let a
//! request keep a block, and cannot load a configuration that will not fit. The first three do not compile; the fourth is
//! refused at load, with the arithmetic and what to change.
//!
//! * **Tiers.** [`#[tier(..)]`](macro@tier) says how long a struct of buffers lives: with the model
//!   ([`ModelResident`]) or with the process ([`EnginePersistent`]). Blocks live with requests ([`BlockPool`], [`Ticket`]),
//!   scratch with a step ([`ScratchFrame`]), staging with the load.
//! * **Phases.** [`Engine<Loading>`](Engine) declares and plans, [`Engine<Planning<B>>`](Planning) carves, loads and records,
//!   [`Engine<Serving<B>>`](Serving) serves. Each transition takes the engine.
//! * **Spans.** A [`StableSpan`] is a borrowed address that will not change while the borrow lasts. Kernels take nothing else.
//! * **The planner.** [`plan_memory`] is arithmetic; the lines of its plan are what a carve uses up.
//! * **Accounting.** Every acquisition is counted by phase ([`Device`]); [`Engine::memory_report`] says where memory is.
//!
//! Start with a guide: for [library authors](manual::library_author), [engine authors](manual::engine_author), or
//! [operators](manual::operator). [The design](manual::design) says what carries which guarantee.

// Lets the expansions of our own macros name `::memtier` inside this crate, in tests and documentation.
#[allow(unused_extern_crates, reason = "used by what the macros generate")]
extern crate self as memtier;

pub mod account;
pub mod admission;
mod backend;
mod bundle;
pub mod cache;
mod checked;
mod element;
mod engine;
pub mod experts;
mod generated;
mod layout;
mod line;
pub mod manual;
mod owned;
mod part;
mod place;
pub mod plan;
mod pool;
pub mod pressure;
mod record;
pub mod reserve;
mod space;
mod span;
mod storage;
mod tier;
mod units;

pub use backend::{
    AcquireError, Backend, Baked, Device, DeviceReport, Event, FakeBackend, HostBackend, Op, PhaseName, Queue,
    QueueError, Tag,
};
pub use bundle::{Bundle, Lines};
pub use element::{
    E2M1x2, Element, F8E4M3, F8E5M2, I4x2, Packed, PackedFormat, PackedMeta, Plain, Q2_K, Q3_K, Q4_0, Q4_1, Q4_K, Q5_0,
    Q5_1, Q5_K, Q6_K, Q8_0, SameElement, bf16, f16,
};
pub use engine::{
    Busy, CarveFailed, CarvesStorage, DrainError, Drained, EndsModel, Engine, KeepCause, KeepError, Lent, Load,
    Loading, MakesDeclarations, MemoryReport, OpensMemory, Overlap, OwnsBuffers, Phase, Pinned, PinnedSpec, PlanError,
    PlanRequest, Planning, PoolReport, Refused, Serves, Serving, Shared, Side, StagesUploads, Staging, StagingBuf,
    StagingError, StartsServing, Step, StepError, TierReport, Uncarved,
};
pub use layout::{FieldInfo, SizeError};
pub use line::{CarveError, Line};
pub use owned::Owned;
pub use part::{Declare, Gone, Part, Survives};
pub use place::{Beside, Captured, Eager, Fits, OutsideCapture, Place, Reached, SameMode, Uploading};
pub use plan::{Limits, MemoryPlan, PlanFailure, PlanInput, plan_memory};
pub use pool::{
    AcquireBlocksError, AdvanceError, BlockContent, BlockError, BlockId, BlockPool, BlockRef, CacheEvent, CachedBlock,
    Content, Contents, Digest, Export, Extra, FoundState, GlobalKv, GrowError, InFlight, KeptState, OwnError,
    PageTable, PageTableView, Pin, PinError, PinOwner, PlannedCommit, PoolHandle, PoolKind, PoolSpec, PoolView, Prefix,
    PrefixCache, PrefixCacheError, PrefixCacheSpec, PrefixCacheStats, PrefixLease, RecurrentState, ResidualKv,
    RewindError, Root, RootKey, RowError, Shareable, Slab, SlabMut, SlabSlice, SlabSliceMut, SnapshotSpec,
    SnapshotStats, Snapshots, SwaKv, TableShape, TableSlice, TableSpec, Ticket, TierError, TierSpec, TierStats,
    TieredCache, TieredSnapshots, Written, table,
};
pub use record::{
    Fence, Graph, HostArg, HostArgs, LaunchError, NativeQueue, PackedTensor, ReadBack, ReadBackError, RecordError,
    Recorder, ReplayError, ScratchFrame, ScratchFull, ScratchStack, Settled, Stream, StreamSpec, input, output, packed,
};
pub use space::{Cuda, Host, Is, Space};
pub use span::{DeviceSpan, Input, Output, StableSpan, StableSpanMut};
pub use storage::{NestedMut, NestedRef, SpaceOf, Storage};
pub use tier::{EnginePersistent, ModelResident, OutlivesModel, SameTier, Tier};
pub use units::{Blocks, Bytes, Layers, Overflow, Tokens};

pub use memtier_macros::{graph_captured, tier};

/// What generated code needs and nobody should write by hand. Nothing is sound because it is found here: see `generated`.
#[doc(hidden)]
pub mod __private {
    pub use core;
    pub use std::vec::Vec;

    pub use memtier_macros::{__MtBundle, __MtStorage};

    pub use crate::{
        bundle::{Bundle, Lines, LoadViewOf, PartOf, ViewOf},
        checked::{Math, constant, has_size, has_whole_rows, value},
        element::{Element, Formatted, Plain},
        engine::{Lend, Lent},
        generated::{Gates, Prices, Swap},
        layout::{Base, FieldInfo, SizeError, Slot, Walk},
        line::{CarveError, Carver, Check, Declarer, Line},
        owned::{Keep, Owned},
        part::{Declare, Gone, Part, Survives},
        place::{Cx, Place},
        space::{Host, Space},
        span::{StableSpan, StableSpanMut},
        storage::{Nested, NestedMut, NestedRef, Nests, NestsOther, SpaceOf, Storage},
        tier::{EnginePersistent, ModelResident, Tier},
        units::Bytes,
    };
}

/// Closes our marker traits: their meaning is part of the soundness argument.
mod sealed {
    #[diagnostic::on_unimplemented(
        message = "`{Self}` cannot implement this trait: memtier closed it",
        label = "not one of memtier's own types",
        note = "phases, spaces, tiers, places, elements and pool kinds are memtier's own: what safe code may do with memory \
                follows from them, so use one of those that are there"
    )]
    pub trait Sealed {}
}

/// A number for each engine, plan and pool, so that names of another one are recognised.
fn next_id() -> u64 {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}
