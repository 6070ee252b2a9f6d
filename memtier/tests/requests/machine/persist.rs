//! What histories do with a store: the cache is saved while requests run, and loaded into one that may have changed since.

use std::collections::HashMap;

use futures_executor::block_on;
use memtier::Blocks;
use memtier_store::StoreError;

use super::{CACHED, Machine, PER_BLOCK, Prompt};
use crate::reference::Name;

/// Blocks that are loaded one behind the other.
struct Chain {
    /// Up to the last that is there already.
    held: Name,
    /// Those that are written.
    new: Vec<Name>,
}

impl Machine {
    /// Everything behind roots that were not forgotten is saved, once, and under its right name.
    pub(super) fn persist(&mut self) {
        let (digests, names, cache) = (&self.names, self.reference.names(), &self.cache);
        let roots = digests.iter().zip(&self.roots).map(|(name, root)| (*name, cache.root_digest(*root).unwrap()));
        let roots: HashMap<_, _> = roots.collect();
        let digest = |name: &Name| Some((Prompt::new(&name.1).digest(*roots.get(&name.0)?), name.clone()));
        let mut expected: HashMap<_, _> = names.filter_map(digest).collect();
        let mut export = cache.export();
        self.saved.clear();
        while let Some(block) = export.next_block() {
            self.saved.push(expected.remove(&block.digest).expect("a block that is cached, once"));
        }
        assert!(expected.is_empty(), "left out: {expected:?}");
        let mut saver = self.store.save(&self.cache).unwrap();
        loop {
            let step = self.engine.step(&mut self.stream).unwrap();
            let segment = saver.gather(step.on, &step.buffers.kv).unwrap();
            self.settled = step.finish().unwrap().wait().unwrap();
            let Some(segment) = segment else { break };
            block_on(saver.put(&segment)).unwrap();
        }
        self.tally.saved += self.saved.len() as u64;
        assert_eq!(block_on(saver.commit()).unwrap().blocks, Blocks::new(self.saved.len() as u64));
    }

    /// What was saved, and is not cached, comes back as far as there is room that nobody has. Nothing is evicted for it.
    pub(super) fn reload(&mut self) {
        let is_known = |name: &&Name| self.names.contains(&name.0);
        let records: Vec<_> = self.saved.iter().filter(is_known).cloned().collect();
        let mut loader = match block_on(self.store.load(&self.cache)) {
            Ok(Some(loader)) => loader,
            Ok(None) => return assert!(self.saved.is_empty()),
            // All roots were forgotten since.
            Err(StoreError::OtherModel { .. }) => return assert!(records.is_empty() && !self.saved.is_empty()),
            Err(error) => panic!("{error}"),
        };
        let (mut next, mut loaded) = (0, 0);
        while block_on(loader.fetch()).unwrap() {
            let chains = self.foretell(&records, &mut next);
            let mut step = self.engine.step(&mut self.stream).unwrap();
            let batch = loader.write(step.on, &mut step.buffers.kv).unwrap();
            let fence = step.finish().unwrap();
            let new = chains.iter().map(|chain| chain.new.len() as u64).sum();
            assert_eq!(batch.blocks(), Blocks::new(new), "blocks that there is room for");
            loaded += new;
            loader.publish(batch, &fence).unwrap();
            self.settled = fence.wait().unwrap();
            for Chain { held, new } in chains {
                let last = new.last().unwrap_or(&held).clone();
                new.into_iter().for_each(|name| self.reference.insert(name));
                self.reference.moved(&held, &last);
                self.reference.end(&last);
            }
        }
        let report = loader.finish();
        self.tally.reloaded += loaded;
        assert_eq!((report.blocks, report.tear, next), (loaded, None, records.len()));
    }

    /// What the next step of a load writes: blocks behind each other in one go, up to the first that is behind one of those.
    fn foretell(&mut self, records: &[Name], next: &mut usize) -> Vec<Chain> {
        let is_next = |before: &Name, name: &Name| {
            name.0 == before.0 && name.1.len() == before.1.len() + PER_BLOCK && name.1.starts_with(&before.1)
        };
        let free = self.engine.bundle().kv.free().count();
        let mut room = free.min(CACHED - self.reference.cached() as u64) as usize;
        let (mut chains, mut written) = (Vec::<Chain>::new(), Vec::<Name>::new());
        while let Some(first) = records.get(*next) {
            if written.iter().any(|before| is_next(before, first)) {
                break;
            }
            let follows = records[*next..].windows(2).take_while(|pair| is_next(&pair[0], &pair[1])).count();
            let chain = &records[*next..=*next + follows];
            *next += chain.len();
            let last = chain.last().unwrap_or(first);
            let blocks = last.1.len() / PER_BLOCK;
            let name = |blocks: usize| Self::name(last.0, &last.1, blocks);
            let held = (1..=blocks).take_while(|blocks| self.reference.is_cached(&name(*blocks))).count();
            let new = if held + chain.len() < blocks { 0 } else { (blocks - held).min(room) };
            self.reference.begin(&name(held));
            if new == 0 {
                self.reference.end(&name(held));
                continue;
            }
            room -= new;
            let new: Vec<_> = (held + 1..=held + new).map(name).collect();
            written.extend(new.iter().cloned());
            chains.push(Chain { held: name(held), new });
        }
        chains
    }
}
