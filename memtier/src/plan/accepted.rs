//! The accepted plan: one line for everything that was asked for, and what it gets.

use super::input::{Config, Limits, Name, Need, Tier};
use crate::units::{Blocks, Bytes, Overflow, Tokens};

/// Which budget a line counts against.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Charge {
    /// The device budget, for as long as the plan is in force.
    Device,
    /// The device budget while the model loads, in memory that pools and optional caches get afterwards.
    LoadOnly,
    /// Host memory.
    Host,
}

impl Charge {
    /// The name in the machine form.
    pub const fn name(self) -> &'static str {
        match self {
            Charge::Device => "device",
            Charge::LoadOnly => "load",
            Charge::Host => "host",
        }
    }
}

/// What a demand made of blocks asked for and got.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct BlockGrant {
    /// Size of one block.
    pub block: Bytes,
    /// Tokens in one block, zero when blocks are not made of tokens.
    pub tokens: Tokens,
    /// The least it could run with.
    pub floor: Blocks,
    /// The most it could use.
    pub most: Blocks,
    /// What it gets.
    pub granted: Blocks,
    /// The granule in which a growable pool commits.
    pub step: Blocks,
}

impl BlockGrant {
    /// The address range a growable pool reserves so that every later commit stays in one region: all it could ever use.
    ///
    /// # Errors
    /// [`Overflow`] past `u64::MAX` bytes.
    pub const fn reservation(&self) -> Result<Bytes, Overflow> {
        self.block.times(self.most.count())
    }

    /// Tokens the granted blocks hold.
    ///
    /// # Errors
    /// [`Overflow`] past `u64::MAX` tokens.
    pub const fn capacity(&self) -> Result<Tokens, Overflow> {
        self.tokens.times(self.granted.count())
    }
}

/// One line of a plan or of a refusal.
#[derive(Clone, PartialEq, Eq, Debug, Hash)]
pub struct PlanLine {
    /// What it is.
    pub name: Name,
    /// How long it lives.
    pub tier: Tier,
    /// Which memory.
    pub space: &'static str,
    /// Whether it had to be met.
    pub need: Need,
    /// Which budget it counts against.
    pub charge: Charge,
    /// The least that would satisfy it.
    pub asked: Bytes,
    /// What it gets. In a refusal: what it would have got in its turn.
    pub granted: Bytes,
    /// The same in blocks, when it is made of blocks.
    pub blocks: Option<BlockGrant>,
}

impl PlanLine {
    /// What it takes from the device budget for as long as the plan is in force.
    pub const fn charged(&self) -> Bytes {
        match self.charge {
            Charge::Device => self.granted,
            Charge::LoadOnly | Charge::Host => Bytes::ZERO,
        }
    }
}

/// A configuration that fits, and who gets how much. Only [`plan_memory`](super::plan_memory) makes one, and it cannot be
/// cloned: what is carved from it is carved once.
#[derive(PartialEq, Eq, Debug)]
pub struct MemoryPlan {
    pub(super) limits: Limits,
    pub(super) config: Config,
    pub(super) lines: Vec<PlanLine>,
    pub(super) total: Bytes,
    pub(super) transient: Bytes,
    pub(super) load_peak: Bytes,
    pub(super) host: Bytes,
}

impl MemoryPlan {
    /// One line per demand, in the order of the demands, then the reserve lines.
    pub fn lines(&self) -> &[PlanLine] {
        &self.lines
    }

    /// The lines themselves, for whoever turns them into carving rights.
    pub fn into_lines(self) -> Vec<PlanLine> {
        self.lines
    }

    /// The first line of that name.
    pub fn line(&self, name: &str) -> Option<&PlanLine> {
        self.lines.iter().find(|line| &*line.name == name)
    }

    /// What all lines take from the device budget while serving.
    pub const fn total(&self) -> Bytes {
        self.total
    }

    /// What the lines of one tier take from the device budget while serving.
    pub fn tier_total(&self, tier: Tier) -> Bytes {
        // Part of `total`, so the sum cannot leave the range.
        Bytes::new(self.lines.iter().filter(|line| line.tier == tier).map(|line| line.charged().count()).sum())
    }

    /// The device budget.
    pub const fn budget(&self) -> Bytes {
        self.limits.budget
    }

    /// What no line takes.
    pub const fn left(&self) -> Bytes {
        self.limits.budget.beyond(self.total)
    }

    /// What the load needs on top of what stays, in memory that pools and optional caches get afterwards.
    pub const fn transient(&self) -> Bytes {
        self.transient
    }

    /// The most the device holds while the model loads, before pools and optional caches are opened.
    pub const fn load_peak(&self) -> Bytes {
        self.load_peak
    }

    /// What the host lines take.
    pub const fn host(&self) -> Bytes {
        self.host
    }

    /// The limits it was made for.
    pub const fn limits(&self) -> &Limits {
        &self.limits
    }

    /// The configuration it was made for.
    pub const fn config(&self) -> &Config {
        &self.config
    }
}
