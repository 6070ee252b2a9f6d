//! Memory pressure: one watcher, four levels, and a ladder of what is given up at which.
//!
//! A [`Watcher`] reads host memory, stalls and cgroup limits on a thread of its own, takes what devices are fed, and
//! publishes a [`Snapshot`]: a value, copied without a lock. The [`Ladder`] turns its [`Level`] and the configuration into
//! absolute limits, purely, and a [`LimitLatch`] keeps them still while a step is in flight. Whether a request may start is
//! the business of [`admission`](crate::admission), which shows them all together.
//!
//! | | OK | WATCH | TIGHT | CRITICAL |
//! |---|---|---|---|---|
//! | host memory above the reserve (15 %, at least 1 GiB) | | less than the reserve | less than a quarter of it | none |
//! | below a cgroup's limit, above its reserve (15 %, at least 64 MiB) | | less than the reserve | less than a quarter | none |
//! | time in which some task stalls | | above 0 | from 10 % | |
//! | time in which all tasks stall | | | above 0 | from 15 % |
//! | free on a device | | below 1/8 of its budget | below 1/16 | none |
//! | new KV state | configured | Q4 | Q4 | Q4 |
//! | slots | configured | configured | half | one |
//! | prefill window | configured | configured | half | a quarter |
//! | cached blocks | kept | kept | evicted | evicted |
//!
//! Nothing here moves or frees memory: a rung acts where new state is created, and what a step in flight reads stays.
#![forbid(unsafe_code)]

mod groups;
mod ladder;
mod latch;
mod level;
#[cfg(all(test, loom))]
mod model;
mod parse;
mod proc_files;
mod reading;
mod seqlock;
mod snapshot;
mod source;
#[cfg(test)]
mod tests;
mod thresholds;
mod watcher;

pub use ladder::{BadRungs, Degradation, Ladder, Rungs, ServeLimits};
pub use latch::{LimitLatch, StepLimits};
pub use level::{Level, UnknownLevel, cgroup_level, derive_level, device_level, host_level, is_stalled, psi_level};
pub use proc_files::ProcFiles;
pub use reading::{
    BadPercent, CgroupReading, DEVICES, DeviceReading, Devices, HostReading, NoSuchDevice, Percent, Psi,
};
pub use snapshot::Snapshot;
pub use source::{Fault, Faults, NoHost, Sample, Source, this_host};
pub use thresholds::{BadThresholds, Thresholds};
pub use watcher::{BadWatcher, INTERVAL, SnapshotReader, Watcher};

/// What the seqlock is made of. The tests put loom's in its place.
mod sync {
    pub(super) use std::sync::atomic::{AtomicU64, Ordering, fence};

    /// Waits a moment; with `long`, lets somebody else run.
    pub(super) fn relax(long: bool) {
        if long {
            std::thread::yield_now();
        } else {
            std::hint::spin_loop();
        }
    }
}
