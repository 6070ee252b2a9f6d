//! The limits that hold for a step.

use std::sync::Arc;

use memtier::{
    Blocks, Bytes, Tokens,
    admission::{self, Admission, Backpressure},
    pressure::{Ladder, LimitLatch, ServeLimits, Snapshot, SnapshotReader, StepLimits, Watcher},
};

use super::{CachedBlocks, Decision, Decisions, computed_costs};
use crate::{EngineError, arch::Arch, config::Settings};

/// Looks at the snapshot once a step, latches what the ladder leaves, and keeps what was decided.
pub(crate) struct Governor {
    /// `None`: nobody watches, and everything that could ever run is admitted.
    reader: Option<SnapshotReader>,
    ladder: Ladder,
    configured: ServeLimits,
    latch: LimitLatch,
    admission: Admission,
    chunk: usize,
    pub(crate) cached: Option<Box<dyn CachedBlocks>>,
    pub(crate) decisions: Decisions,
}

impl Governor {
    pub(crate) fn new(
        arch: &Arch,
        settings: &Settings,
        capacity: Tokens,
        watcher: Option<&Arc<Watcher>>,
    ) -> Result<Self, EngineError> {
        let configured = ServeLimits {
            slots: settings.slots(),
            prefill_window: Tokens::new(settings.max_seq_len as u64),
            kv: settings.kv_types.rest,
            evict_cached: false,
        };
        let cost = match &settings.costs {
            Some(costs) => costs.clone(),
            None => computed_costs(arch, settings)?,
        };
        let ladder = settings.ladder()?;
        let mut governor = Governor {
            reader: watcher.map(|watcher| watcher.reader()),
            latch: LimitLatch::new(ladder.limits(memtier::pressure::Level::Ok, &configured)),
            ladder,
            configured,
            admission: settings.pressure.admission(cost, capacity),
            chunk: settings.prefill_chunk,
            cached: None,
            decisions: Decisions::new(),
        };
        // Whoever sets thresholds must hear which of them nothing is measured against.
        if settings.pressure != admission::Settings::default() {
            let faults = watcher.map(|watcher| watcher.faults()).unwrap_or_default();
            faults.into_iter().for_each(|fault| governor.decisions.push(Decision::Fault(fault)));
        }
        governor.look();
        Ok(governor)
    }

    /// Whether the host survives the load. The engine's memory is the host's, so what it takes is the plan's total, unless
    /// the operator has measured it (`load.spike`).
    pub(crate) fn check_load(&mut self, settings: &Settings, planned: Bytes) -> Result<(), EngineError> {
        let snapshot = self.look();
        let measured = settings.pressure.load_spike;
        let unset = measured == admission::Settings::default().load_spike;
        let mut config = self.admission.config().clone();
        config.load_spike = if unset { planned } else { measured };
        Ok(Admission::new(config).load_spike(&snapshot)?)
    }

    pub(crate) fn admission(&self) -> &Admission {
        &self.admission
    }

    pub(crate) fn configured(&self) -> &ServeLimits {
        &self.configured
    }

    pub(crate) fn latch(&self) -> &LimitLatch {
        &self.latch
    }

    pub(crate) fn backpressure(settings: &Settings) -> Result<Backpressure, EngineError> {
        settings.pressure.backpressure().map_err(|error| EngineError::Busy(error.to_string()))
    }

    /// The snapshot now, after what follows from it was proposed. Takes no lock and nothing from the heap.
    pub(crate) fn look(&mut self) -> Snapshot {
        let snapshot = match &mut self.reader {
            Some(reader) => *reader.latest(),
            None => Snapshot::default(),
        };
        let before = *self.latch.current();
        let limits = self.ladder.limits(snapshot.level, &self.configured);
        if self.latch.propose(limits) && before.limits != limits.limits {
            self.decisions.push(Decision::Limits(limits));
            let (was, now) = (self.chunk_under(&before.limits), self.chunk_under(&limits.limits));
            if was != now && now != self.chunk {
                self.decisions.push(Decision::Chunk { configured: self.chunk, now });
            }
        }
        snapshot
    }

    /// A step starts: what holds for all of it. Cached blocks go here, before anything of the step is in flight.
    pub(crate) fn begin(&mut self) -> StepLimits {
        let level = self.look().level;
        let step = self.latch.begin();
        if step.limits().limits.evict_cached
            && let Some(cached) = &mut self.cached
        {
            let blocks = cached.evict_to(Blocks::ZERO);
            if !blocks.is_zero() {
                self.decisions.push(Decision::Evicted { blocks, level });
            }
        }
        step
    }

    /// A request of `wanted` blocks found the pool full. Whether a cache gave up any.
    pub(crate) fn make_room(&mut self, wanted: Blocks) -> bool {
        let Some(cached) = &mut self.cached else { return false };
        let blocks = cached.evict_to(cached.held().beyond(wanted));
        if !blocks.is_zero() {
            self.decisions.push(Decision::MadeRoom { blocks });
        }
        !blocks.is_zero()
    }

    /// The step has ended, its fence passed.
    pub(crate) fn end(&mut self, step: StepLimits) {
        self.latch.end(step);
    }

    /// Prompt tokens of one pass: the configured chunk, in the share that the ladder leaves of the window.
    pub(crate) fn chunk_under(&self, limits: &ServeLimits) -> usize {
        let (now, all) = (limits.prefill_window.count(), self.configured.prefill_window.count().max(1));
        let share = self.chunk as u128 * u128::from(now) / u128::from(all);
        usize::try_from(share).unwrap_or(self.chunk).clamp(1, self.chunk)
    }
}
