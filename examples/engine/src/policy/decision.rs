//! What was decided, for the report: one line each.

use std::fmt;

use memtier::{
    Blocks, Bytes, Tokens,
    admission::Refusal,
    pressure::{Degradation, Fault, Level},
};

use crate::serve::RequestId;

/// How many decisions are kept. A level that goes up and down all day must not fill the heap.
const MOST: usize = 256;

/// One decision. `Display` is its line.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub enum Decision {
    /// The device's budget bounds the plan.
    Budget {
        /// It.
        device: Bytes,
    },
    /// Something of the host cannot be read.
    Fault(Fault),
    /// The level changed what holds.
    Limits(Degradation),
    /// The rung of the prefill window bounds the chunk of a pass.
    Chunk {
        /// What is configured.
        configured: usize,
        /// What holds.
        now: usize,
    },
    /// A cache gave up blocks.
    Evicted {
        /// How many.
        blocks: Blocks,
        /// At which level.
        level: Level,
    },
    /// A cache gave up blocks because a request found the pool full.
    MadeRoom {
        /// How many.
        blocks: Blocks,
    },
    /// A request waits: every slot is taken.
    Waits {
        /// Which.
        request: RequestId,
        /// Slots there are now.
        slots: u32,
    },
    /// A request waits: memory is short.
    Held {
        /// Which.
        request: RequestId,
        /// At which level.
        level: Level,
    },
    /// A request starts with less of its prompt.
    Capped {
        /// Which.
        request: RequestId,
        /// Tokens of the prompt that are left, its last ones.
        window: Tokens,
        /// Tokens it had.
        prompt: Tokens,
    },
    /// A request was refused.
    Refused {
        /// Which.
        request: RequestId,
        /// Why, and when to ask again.
        refusal: Refusal,
    },
}

impl Decision {
    fn is_of_one_request(&self) -> bool {
        use Decision::{Capped, Held, Refused, Waits};
        matches!(self, Waits { .. } | Held { .. } | Capped { .. } | Refused { .. })
    }
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Decision::Budget { device } => write!(f, "budget: {} MiB, by --vram-budget", device.in_mib()),
            Decision::Fault(fault) => write!(f, "watcher: {fault}"),
            Decision::Limits(limits) => write!(f, "limits: {limits}"),
            Decision::Chunk { configured, now } => write!(f, "prefill chunk: {configured} -> {now} tokens"),
            Decision::Evicted { blocks, level } => write!(f, "cache: {blocks} given up at {level}"),
            Decision::MadeRoom { blocks } => {
                write!(f, "cache: {blocks} given up for a request that found the pool full")
            }
            Decision::Waits { request, slots } => write!(f, "request {request}: waits, all {slots} slots are taken"),
            Decision::Held { request, level } => write!(f, "request {request}: held while memory is {level}"),
            Decision::Capped { request, window, prompt } => {
                write!(f, "request {request}: starts with the last {window} of {}", prompt.count())
            }
            Decision::Refused { request, refusal } => write!(f, "request {request}: refused: {refusal}"),
        }
    }
}

/// The decisions so far, oldest first. `Display` prints a line each, and nothing where there was nothing to decide.
#[derive(Debug)]
pub struct Decisions {
    list: Vec<Decision>,
    omitted: u64,
}

impl Decisions {
    pub(crate) fn new() -> Self {
        Decisions { list: Vec::with_capacity(MOST), omitted: 0 }
    }

    /// Keeps a decision, unless it is the last one again. Takes nothing from the heap: the room is there.
    pub(crate) fn push(&mut self, decision: Decision) {
        if self.list.last() == Some(&decision) {
            return;
        }
        if self.list.len() == MOST {
            // One request more or less matters least; then what is longest ago.
            let least = self.list.iter().position(Decision::is_of_one_request);
            self.list.remove(least.unwrap_or(0));
            self.omitted += 1;
        }
        self.list.push(decision);
    }

    /// Those that are kept.
    pub fn list(&self) -> &[Decision] {
        &self.list
    }

    /// How many made room for later ones.
    pub fn omitted(&self) -> u64 {
        self.omitted
    }

    /// Whether nothing had to be decided.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }
}

impl fmt::Display for Decisions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.list.iter().enumerate().try_for_each(|(index, decision)| {
            let end = if index == 0 { "" } else { "\n" };
            write!(f, "{end}  {decision}")
        })?;
        if self.omitted > 0 { write!(f, "\n  and {} earlier ones", self.omitted) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_bounded_and_says_what_it_left_out() {
        let mut decisions = Decisions::new();
        let room = decisions.list.capacity();
        decisions.push(Decision::Budget { device: Bytes::mib(1) });
        for request in 0..1000 {
            decisions.push(Decision::Waits { request, slots: 2 });
            decisions.push(Decision::Waits { request, slots: 2 });
        }
        assert_eq!((decisions.list().len(), decisions.omitted() > 700, decisions.list.capacity()), (MOST, true, room));
        let text = decisions.to_string();
        assert!(
            text.starts_with("  budget: 1 MiB, by --vram-budget\n  request 745: waits, all 2 slots are taken\n"),
            "{text}"
        );
        assert!(
            text.ends_with("  request 999: waits, all 2 slots are taken\n  and 745 earlier ones")
                && Decisions::new().to_string().is_empty()
        );
    }
}
