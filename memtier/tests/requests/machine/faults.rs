//! What histories do when the device fails, and with single blocks.

use memtier::Tokens;

use super::{Kv, MOST, Machine, PER_BLOCK, Prompt, Request, prompt};

impl Machine {
    /// One of the device's next calls fails: while a request is written, or while something is on its way between the tiers.
    pub(super) fn fail(&mut self, a: usize, b: usize, bits: u64) {
        match a % 4 {
            0 => self.fail_write(a / 4, b, bits, bits % 12),
            1 => self.fail_spill(1 + b % 9, bits % 3),
            _ => self.fail_restore(a / 4, b, bits % 2),
        }
        self.fake.fail_queue_at(u64::MAX);
    }

    /// The request ends, or tries once more: what was written before is written again.
    fn fail_write(&mut self, a: usize, b: usize, bits: u64, nth: u64) {
        let (index, length) = (a % self.roots.len(), 1 + b % (MOST - 8));
        let (root, name) = (self.roots[index], self.names[index]);
        let tokens = prompt::random(length, bits);
        let mut ticket = self.cache.lookup(&Prompt::new(&tokens).content(root)).unwrap().open(Tokens::new(MOST as u64));
        let hit = ticket.tokens().count() as usize;
        let lease = Self::name(name, &tokens, hit / PER_BLOCK);
        self.reference.begin(&lease);
        let mut is_written = self.make_room(&mut ticket, (length - hit) as u64);
        if is_written {
            self.fake.fail_queue_at(nth);
            let result = self.try_write(name, &mut ticket, &tokens, hit);
            self.fake.fail_queue_at(u64::MAX);
            is_written = result.is_ok();
            self.tally.failed_writes += u64::from(!is_written);
            // Not after the tokens count as written, which nothing has proven.
            if !is_written && a.is_multiple_of(2) && ticket.tokens().count() as usize == hit {
                self.write(name, &mut ticket, &tokens, hit);
                is_written = true;
            }
        }
        match is_written && self.requests.len() < 12 {
            true => self.requests.push(Request { ticket, root: name, tokens, lease, holes: Vec::new() }),
            false => {
                drop(ticket);
                self.reference.end(&lease);
            }
        }
    }

    /// What was copied is on its way all the same; the next fence stands behind it.
    fn fail_spill(&mut self, count: usize, nth: u64) {
        self.spill_failing(count, Some(nth));
    }

    /// The request has what it had, and goes on.
    fn fail_restore(&mut self, a: usize, b: usize, nth: u64) {
        // Of what was cached when it was saved, as that may be in the second tier.
        let Some((name, tokens)) = (!self.saved.is_empty()).then(|| self.saved[a % self.saved.len()].clone()) else {
            return;
        };
        let Some(root) = self.names.iter().position(|known| *known == name).map(|index| self.roots[index]) else {
            return;
        };
        let mut tokens = [tokens, prompt::random(1 + b % 7, 0)].concat();
        tokens.truncate(MOST);
        let length = tokens.len();
        let mut ticket = self.cache.lookup(&Prompt::new(&tokens).content(root)).unwrap().open(Tokens::new(MOST as u64));
        let hit = ticket.blocks().count() as usize;
        let lease = Self::name(name, &tokens, hit);
        self.reference.begin(&lease);
        let hit = hit + self.restore_failing(root, &mut ticket, &tokens, Some(nth));
        if !self.make_room(&mut ticket, (length - hit * PER_BLOCK) as u64) || self.requests.len() >= 12 {
            drop(ticket);
            self.reference.end(&lease);
            return;
        }
        self.write(name, &mut ticket, &tokens, hit * PER_BLOCK);
        self.requests.push(Request { ticket, root: name, tokens, lease, holes: Vec::new() });
    }

    /// Somebody takes a block by hand, or, where blocks may have several owners, shares a request's.
    pub(super) fn hold(&mut self, a: usize, b: usize) {
        if self.held.len() == 4 {
            return;
        }
        let picked = self.pick(a / 2).filter(|_| self.forks && a.is_multiple_of(2));
        if let Some(index) = picked {
            let ticket = &self.requests[index].ticket;
            self.held.extend(ticket.share(b % (MOST / PER_BLOCK)));
            return;
        }
        let (free, cached) = (self.engine.bundle().kv.free().count(), self.cache.stats().cached.count());
        let block = self.engine.bundle().kv.acquire();
        let gone = cached - self.cache.stats().cached.count();
        (0..gone).for_each(|_| drop(self.reference.evict().unwrap()));
        assert!(gone == 0 || free == 0, "{gone} evicted while {free} were free");
        match block {
            Ok(block) => {
                self.held.push(block);
                self.tally.held += 1;
            }
            Err(_) => assert_eq!(free, 0),
        }
    }

    pub(super) fn let_go(&mut self, a: usize) {
        if !self.held.is_empty() {
            drop::<memtier::BlockRef<Kv>>(self.held.swap_remove(a % self.held.len()));
        }
    }
}
