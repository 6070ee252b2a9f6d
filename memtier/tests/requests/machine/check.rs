//! What must hold after every operation, and at the end.

use memtier::Blocks;

use super::{BLOCKS, COLD, MOST, Machine, PER_BLOCK, Request, Tally, values};

impl Machine {
    pub(super) fn verify(&mut self, request: &Request) {
        let values = values(request.root, &request.tokens);
        let step = self.engine.step(&mut self.stream).unwrap();
        for index in 0..request.tokens.len().div_ceil(PER_BLOCK) {
            if request.holes.contains(&index) {
                assert!(step.buffers.kv.block(&request.ticket, index).is_err());
                continue;
            }
            let mut block = [0; PER_BLOCK];
            step.on.read(step.buffers.kv.block(&request.ticket, index).unwrap(), &mut block).unwrap();
            let expected = &values[index * PER_BLOCK..values.len().min((index + 1) * PER_BLOCK)];
            assert_eq!(&block[..expected.len()], expected, "block {index}");
        }
        self.settled = step.finish().unwrap().wait().unwrap();
    }

    pub(super) fn check_all(&mut self) {
        let requests = std::mem::take(&mut self.requests);
        requests.iter().for_each(|request| self.verify(request));
        self.requests = requests;
    }

    /// Conservation: every block is free, cached, or a request's.
    pub(super) fn check(&self) {
        let stats = self.cache.stats();
        assert_eq!(stats.cached.count() as usize, self.reference.cached(), "cached");
        assert_eq!(stats.reclaimable.count() as usize, self.reference.idle(), "reclaimable");
        // What requests hold beside the cache.
        let own = |request: &Request| {
            let first = request.lease.1.len() / PER_BLOCK;
            (first..MOST / PER_BLOCK).filter_map(|index| Some(request.ticket.share(index)?.id())).collect::<Vec<_>>()
        };
        let mut own: Vec<_> = self.requests.iter().flat_map(own).collect();
        let all = own.len();
        own.sort_unstable();
        own.dedup();
        let (own, cached) = (own.len() as u64, stats.cached.count());
        let by_hand = self.held.len() as u64;
        let held = BLOCKS - self.engine.bundle().kv.free().count();
        self.check_cold();
        match self.forks {
            // Each block has one owner.
            false => assert_eq!((held, all as u64), (cached + own + by_hand, own), "blocks held"),
            // A fork may hold what another published.
            true => {
                let most = cached + own + by_hand;
                assert!((cached.max(own)..=most).contains(&held), "{held} held, {cached} cached, {own} own, {by_hand}");
            }
        }
    }

    pub(crate) fn finish(mut self) -> Tally {
        self.check_all();
        self.settle();
        while !self.requests.is_empty() {
            self.cancel(0);
            self.check();
        }
        self.held.clear();
        while !self.pins.is_empty() {
            self.unpin(0);
        }
        self.evict(usize::from(u16::MAX));
        assert_eq!(self.engine.bundle().kv.free(), Blocks::new(BLOCKS), "all blocks are back");
        self.tiers.cold().evict(Blocks::new(COLD));
        assert_eq!(self.engine.bundle().cold.free(), Blocks::new(COLD), "all blocks of the second tier are back");
        self.tally
    }
}
