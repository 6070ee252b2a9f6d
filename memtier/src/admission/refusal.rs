//! Why something was refused, and whether it is worth asking again.

use std::{fmt, time::Duration};

use crate::{
    account::mib,
    pressure::{Level, Percent},
    units::{Bytes, Tokens},
};

/// Where memory is short.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// The host's memory, or the cgroup's.
    Host,
    /// A device's.
    Device(usize),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Host => f.write_str("the host"),
            Place::Device(index) => write!(f, "device {index}"),
        }
    }
}

/// A request that was not admitted. A lack of capacity, and no cancel: nothing was started.
///
/// A server answers it with 503, and with `Retry-After` when [`retry_after`](Self::retry_after) says so.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// Why.
    pub reason: Reason,
    /// When it is worth asking again; `None`: never, whatever else ends.
    pub retry_after: Option<Duration>,
}

impl std::error::Error for Refusal {}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.retry_after {
            Some(after) => write!(f, "{}; try again in {} s", self.reason, after.as_secs_f32().ceil()),
            None => write!(f, "{}; trying again will not help", self.reason),
        }
    }
}

/// Why a request was not admitted.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Reason {
    /// It needs more KV than the engine has in all.
    #[error("the request needs KV for {needs}, and the engine has {capacity} in all: shorten it")]
    NeverFits {
        /// Prompt and what it may generate.
        needs: Tokens,
        /// What the whole pool holds.
        capacity: Tokens,
    },
    /// Its shortest window costs more than the machine has above its reserve.
    #[error("the request needs {} MiB on the host, which has {} MiB above its reserve when nothing runs", mib(*.needs), mib(*.capacity))]
    NeverFitsHost {
        /// The cost of the shortest window that it accepts.
        needs: Bytes,
        /// What there would be if nothing else ran.
        capacity: Bytes,
    },
    /// All tasks stall on memory: whatever starts now makes it worse.
    #[error("a sustained memory stall: {full} of the last ten seconds all tasks stood still, and {most} is the limit")]
    Stalled {
        /// The share of time.
        full: Percent,
        /// From where on nothing is admitted.
        most: Percent,
    },
    /// The host's memory is at its reserve.
    #[error("the host's memory is at its reserve")]
    AtReserve,
    /// Even the shortest window does not fit now.
    #[error("{place} has {} MiB for a request that needs {} MiB", mib(*.budget), mib(*.needs))]
    NoRoom {
        /// Where.
        place: Place,
        /// The cost of the shortest window that it accepts.
        needs: Bytes,
        /// What is there.
        budget: Bytes,
    },
    /// The prefill window that holds now is shorter than what the request accepts.
    #[error("the prefill window is {window} now, and the request needs {least}")]
    Window {
        /// The window.
        window: Tokens,
        /// The shortest that the request accepts.
        least: Tokens,
    },
    /// Who waited was sent away, because the level is where waiting is over.
    #[error("memory pressure is {0}, and waiting requests are sent away")]
    Shed(Level),
    /// Too many wait already.
    #[error("{0} requests wait already")]
    QueueFull(usize),
}

/// A model that is not loaded.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LoadRefusal {
    /// It does not fit the device.
    #[error(
        "device {device}: weights {} MiB + KV {} MiB + activations {} MiB exceed the {} MiB that are free{}",
        mib(*.weights), mib(*.kv), mib(*.activations), mib(*.available), if *.reserved { " above the reserve" } else { "" }
    )]
    Device {
        /// Which device.
        device: usize,
        /// Its share of the weights.
        weights: Bytes,
        /// Its share of the KV state.
        kv: Bytes,
        /// What a forward pass takes beside them.
        activations: Bytes,
        /// What there is.
        available: Bytes,
        /// Whether the reserve is taken off already.
        reserved: bool,
    },
    /// The burst of dequantisation and staging does not fit the host.
    #[error("loading takes {} MiB of the host for a while, and {} MiB are there above its reserve", mib(*.needs), mib(*.headroom))]
    Spike {
        /// The burst.
        needs: Bytes,
        /// What there is.
        headroom: Bytes,
    },
    /// Nobody said what a device has.
    #[error("device {0} was never fed: query it before loading")]
    UnknownDevice(usize),
}
