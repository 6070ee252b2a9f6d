//! The order of use: a list through the runs at whose end a lease ended, oldest first.
//!
//! A path is used as a whole, and a block is never older than what follows it, so the run at the end of a used path stands for all of
//! it: a use moves one run, however long the path is. Eviction takes the oldest run and walks up from it. A run that is needed
//! when its turn comes, or has something behind it, leaves the list: whoever ends its use lists it again, or what is behind it leads there.

use super::{index::NONE, tree::Run};

/// When a path was used: the number of the use.
pub(super) type Tick = u64;

pub(super) struct Uses {
    oldest: u32,
    newest: u32,
    now: Tick,
}

impl Uses {
    pub(super) const fn new() -> Self {
        Uses { oldest: NONE, newest: NONE, now: 0 }
    }

    /// The path that ends with `run` was used now.
    pub(super) fn used(&mut self, runs: &mut [Run], run: u32) {
        self.remove(runs, run);
        self.now += 1;
        let known = &mut runs[run as usize];
        (known.used, known.listed, known.older, known.newer) = (self.now, true, self.newest, NONE);
        match std::mem::replace(&mut self.newest, run) {
            NONE => self.oldest = run,
            newest => runs[newest as usize].newer = run,
        }
    }

    /// Puts back what is left of the oldest path, which was used at `tick`.
    pub(super) fn put_back(&mut self, runs: &mut [Run], run: u32, tick: Tick) {
        self.remove(runs, run);
        let known = &mut runs[run as usize];
        (known.used, known.listed, known.older, known.newer) = (tick, true, NONE, self.oldest);
        match std::mem::replace(&mut self.oldest, run) {
            NONE => self.newest = run,
            oldest => runs[oldest as usize].older = run,
        }
    }

    /// Takes a run out of the list, if it is there.
    pub(super) fn remove(&mut self, runs: &mut [Run], run: u32) {
        let Run { listed: true, older, newer, .. } = runs[run as usize] else { return };
        match older {
            NONE => self.oldest = newer,
            older => runs[older as usize].newer = newer,
        }
        match newer {
            NONE => self.newest = older,
            newer => runs[newer as usize].older = older,
        }
        runs[run as usize].listed = false;
    }

    /// The run unused for longest.
    pub(super) fn oldest(&self) -> Option<u32> {
        (self.oldest != NONE).then_some(self.oldest)
    }
}

#[cfg(test)]
mod tests {
    use super::{super::tree::VACANT, NONE, Run, Uses};

    /// Beside a list that is copied for each change. Each call changes a few neighbours, however long the list is.
    #[test]
    fn the_order_is_that_of_use_and_no_call_touches_more_than_neighbours() {
        const RUNS: usize = 64;
        let (mut uses, mut runs, mut order) = (Uses::new(), vec![VACANT; RUNS], Vec::new());
        let mut random = 3u64;
        let links = |runs: &[Run]| -> Vec<_> { runs.iter().map(|run| (run.older, run.newer, run.listed)).collect() };
        for _ in 0..50_000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let run = (random >> 40) as u32 % RUNS as u32;
            let before = links(&runs);
            order.retain(|known| *known != run);
            match random >> 33 & 3 {
                0 => uses.remove(&mut runs, run),
                // What is left of the oldest path has its time of use.
                1 => {
                    let tick = order.first().map_or(0, |oldest: &u32| runs[*oldest as usize].used);
                    order.insert(0, run);
                    uses.put_back(&mut runs, run, tick);
                }
                _ => {
                    order.push(run);
                    uses.used(&mut runs, run);
                }
            }
            let changed = before.iter().zip(links(&runs)).filter(|(before, after)| **before != *after).count();
            assert!(changed <= 4, "{changed} links of {} runs", order.len());
            let (mut at, mut listed) = (uses.oldest().unwrap_or(NONE), Vec::new());
            while let Some(run) = runs.get(at as usize) {
                listed.push(at);
                at = run.newer;
            }
            assert_eq!(listed, order);
            assert!(order.is_sorted_by_key(|run| runs[*run as usize].used));
            assert_eq!(runs.iter().filter(|run| run.listed).count(), order.len());
        }
    }
}
