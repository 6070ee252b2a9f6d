//! What a backend holds, in one place.

use std::fmt;

use super::{Budget, mib};
use crate::units::Bytes;

/// The books of one backend of a [`ClassPool`](super::ClassPool). `Display` prints them in MiB, on one line.
///
/// Backend-internal scratch is not in them: it is the library reserve's, see the planner.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct AccountReport {
    /// The backend's name.
    pub backend: Box<str>,
    /// What the pool has created and not given back, idle buffers and staging included. A buffer that is reused is not
    /// charged again.
    pub pool: Bytes,
    /// What of that is handed out now, at its class.
    pub live: Bytes,
    /// The most that was handed out at a time.
    pub peak: Bytes,
    /// What the weights take.
    pub weights: Bytes,
    /// The budget.
    pub budget: Budget,
    /// What is left of it beside weights and pool; `None` when nothing limits it.
    pub headroom: Option<Bytes>,
    /// Released buffers that wait for the next build.
    pub idle_slots: u64,
    /// Size classes that have such a buffer.
    pub reserved_classes: u64,
    /// Staging between backends that is handed out now; part of `pool` and `live`.
    pub staging: Bytes,
}

impl fmt::Display for AccountReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let AccountReport {
            backend,
            pool,
            live,
            peak,
            weights,
            budget,
            headroom,
            idle_slots,
            reserved_classes,
            staging,
        } = self;
        write!(f, "{backend}: weights {} MiB, pool {} MiB (", mib(*weights), mib(*pool))?;
        write!(f, "live {}, peak {}, staging {}, ", mib(*live), mib(*peak), mib(*staging))?;
        write!(f, "{idle_slots} idle in {reserved_classes} classes), ")?;
        match (budget, headroom) {
            (Budget::Limited(budget), Some(left)) => {
                write!(f, "budget {} MiB, headroom {} MiB", mib(*budget), mib(*left))
            }
            (Budget::Unknown, _) => f.write_str("budget unknown"),
            _ => f.write_str("no budget"),
        }
    }
}
