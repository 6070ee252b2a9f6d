//! What histories do with the second tier.

use memtier::{Blocks, Content, Root, Ticket};

use super::{COLD, Kv, Machine, MemoryView, PER_BLOCK};

impl Machine {
    /// What the first tier would give up next goes to the second as well; that changes nothing in the first.
    pub(super) fn spill(&mut self, count: usize) {
        let mut step = self.engine.step(&mut self.stream).unwrap();
        let MemoryView { kv, cold, .. } = &mut step.buffers;
        let blocks = self.tiers.spill(step.on, kv, cold, Blocks::new(count as u64)).unwrap();
        assert!(blocks.count() as usize <= count);
        let fence = step.finish().unwrap();
        self.tiers.sent(&fence).unwrap();
        self.settled = fence.wait().unwrap();
    }

    pub(super) fn settle(&mut self) {
        self.tiers.settle(&self.settled).unwrap();
        assert_eq!(self.tiers.stats().moving, Blocks::ZERO);
    }

    /// What the second tier has of a prompt comes back. Returns how many blocks.
    pub(super) fn restore(&mut self, root: Root, ticket: &mut Ticket<Kv>, tokens: &[u32]) -> usize {
        let content = Content::new(root, tokens);
        let found = self.tiers.found_cold(&content).unwrap().count().saturating_sub(ticket.blocks().count());
        let (before, cached) = ((ticket.blocks(), ticket.tokens()), self.cache.stats().cached.count());
        let mut step = self.engine.step(&mut self.stream).unwrap();
        let MemoryView { kv, cold, .. } = &mut step.buffers;
        let restored = self.tiers.restore(step.on, kv, cold, ticket, &content);
        let fence = step.finish().unwrap();
        (self.cache.stats().cached.count()..cached).for_each(|_| drop(self.reference.evict().unwrap()));
        match restored {
            Ok(tokens) => {
                assert_eq!(tokens.count(), found * PER_BLOCK as u64, "blocks restored");
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
