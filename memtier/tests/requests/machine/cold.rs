//! What histories do with the second tier.

use memtier::{Blocks, Root, Ticket};

use super::{COLD, Kv, Machine, MemoryView, PER_BLOCK, Prompt};

impl Machine {
    /// What the first tier would give up next goes to the second as well; that changes nothing in the first.
    pub(super) fn spill(&mut self, count: usize) {
        self.spill_failing(count, None);
    }

    /// The same, where the device fails at call `nth` of it, if there is one.
    pub(super) fn spill_failing(&mut self, count: usize, nth: Option<u64>) {
        let mut step = self.engine.step(&mut self.stream).unwrap();
        let MemoryView { kv, cold, .. } = &mut step.buffers;
        self.fake.fail_queue_at(nth.unwrap_or(u64::MAX));
        let spilled = self.tiers.spill(step.on, kv, cold, Blocks::new(count as u64));
        self.fake.fail_queue_at(u64::MAX);
        self.tally.failed_spills += u64::from(spilled.is_err());
        match spilled {
            Ok(blocks) => assert!(blocks.count() as usize <= count),
            Err(error) => assert!(nth.is_some(), "{error}"),
        }
        let fence = step.finish().unwrap();
        self.tiers.sent(&fence).unwrap();
        self.settled = fence.wait().unwrap();
    }

    pub(super) fn settle(&mut self) {
        self.tally.spilled += self.tiers.settle(&self.settled).unwrap().count();
        assert_eq!(self.tiers.stats().moving, Blocks::ZERO);
    }

    /// What the second tier has of a prompt comes back. Returns how many blocks.
    pub(super) fn restore(&mut self, root: Root, ticket: &mut Ticket<Kv>, tokens: &[u32]) -> usize {
        self.restore_failing(root, ticket, tokens, None)
    }

    /// The same, where the device fails at call `nth` of it, if there is one.
    pub(super) fn restore_failing(
        &mut self,
        root: Root,
        ticket: &mut Ticket<Kv>,
        tokens: &[u32],
        nth: Option<u64>,
    ) -> usize {
        let prompt = Prompt::new(tokens);
        let content = prompt.content(root);
        let found = self.tiers.found_cold(&content).unwrap().count().saturating_sub(ticket.blocks().count());
        let (before, cached) = ((ticket.blocks(), ticket.tokens()), self.cache.stats().cached.count());
        let mut step = self.engine.step(&mut self.stream).unwrap();
        let MemoryView { kv, cold, .. } = &mut step.buffers;
        self.fake.fail_queue_at(nth.unwrap_or(u64::MAX));
        let restored = self.tiers.restore(step.on, kv, cold, ticket, &content);
        self.fake.fail_queue_at(u64::MAX);
        let fence = step.finish().unwrap();
        (self.cache.stats().cached.count()..cached).for_each(|_| drop(self.reference.evict().unwrap()));
        self.tally.failed_restores += u64::from(nth.is_some() && restored.is_err());
        match restored {
            Ok(tokens) => {
                assert_eq!(tokens.count(), found * PER_BLOCK as u64, "blocks restored");
                self.tally.restored += found;
                ticket.advance(tokens, &fence).unwrap();
            }
            Err(_) => assert_eq!((ticket.blocks(), ticket.tokens()), before, "nothing was taken"),
        }
        self.settled = fence.wait().unwrap();
        ticket.tokens().count() as usize / PER_BLOCK - before.0.count() as usize
    }

    /// Conservation in the second tier: every block is free, cached, or on its way there.
    pub(super) fn check_cold(&self) {
        let stats = self.tiers.stats();
        let free = self.engine.bundle().cold.free();
        assert_eq!(free.count() + stats.cold.cached.count() + stats.moving.count(), COLD, "{stats:?}");
    }
}
