//! Adding what a request wrote.

use super::{super::Contents, At, NONE, Run, State, Tree, VACANT};

impl Tree {
    /// Moves the blocks of a request from `at` up to `full` into the cache, whose referents the cache takes over; the lease that is on `at`
    /// moves along. Where the same is cached already, the request's `table` names that block, and its own is given up. Evicts what
    /// was unused for longest where there is no room, and ends where even that does not help: at what it returns.
    pub(in super::super) fn publish(
        &self,
        state: &mut State,
        mut at: At,
        content: &impl Contents,
        full: usize,
        table: &mut [u32],
    ) -> At {
        let plain = content.is_plain();
        while (at.depth as usize) < full {
            let Some((run, same)) = self.follow(state, at, content, plain, full) else {
                return self.add(state, at, content, plain, &table[..full]);
            };
            let run = state.cut(run, same);
            state.begin(run);
            state.end(at.run);
            let ours = &mut table[at.depth as usize..][..same];
            // A row that still names an own block pins it until the row is set again.
            self.core.release_all(ours);
            ours.copy_from_slice(state.blocks_of(run));
            at = At { run, depth: at.depth + same as u32, ..at };
        }
        at
    }

    /// Adds the blocks from `at` on, which nobody has published.
    fn add(&self, state: &mut State, mut at: At, content: &impl Contents, plain: bool, table: &[u32]) -> At {
        let mut missing = (table.len() - at.depth as usize).saturating_sub((self.most - state.cached) as usize);
        if missing > 0 {
            state.evict(|blocks, _| {
                let count = blocks.len().min(missing);
                self.core.release_all(&blocks[blocks.len() - count..]);
                missing -= count;
                count
            });
        }
        let end = table.len() - missing;
        while (at.depth as usize) < end {
            let first = at.depth as usize;
            let (run, slot, count) = match state.grow(at.run, plain, end - first) {
                Some((slot, count)) => (at.run, slot, count),
                None => {
                    let Some((slot, count)) = state.slots.take(end - first) else { break };
                    (self.branch(state, at.run, content, plain, first, [slot, count]), slot, count)
                }
            };
            self.fill(state, [at.run, run], slot, content, plain, [first, count], &table[first..first + count]);
            at = At { run, depth: at.depth + count as u32, ..at };
        }
        at
    }

    /// A new run behind `parent`, whose lease it takes over.
    fn branch(
        &self,
        state: &mut State,
        parent: u32,
        content: &impl Contents,
        plain: bool,
        index: usize,
        [slot, count]: [usize; 2],
    ) -> u32 {
        // There are as many as slots, and each has one at least.
        let Some(run) = state.vacant.pop() else { unreachable!("there are as many runs as slots") };
        let next = std::mem::replace(&mut state.runs[parent as usize].first_child, run);
        // An only child is found without the index.
        let mut hash = 0;
        if next != NONE {
            state.runs[next as usize].previous = run;
            self.file(state, next);
            hash = self.keys.hash(parent, content.extra(index, self.per_block), self.part(content, index));
            state.index.insert(hash, run);
        }
        // What is behind the parent needs it as the lease did, so its count stays.
        let (start, len) = (slot as u32, count as u32);
        state.latest += 1;
        let number = state.latest;
        state.runs[run as usize] = Run { hash, number, busy: 1, parent, next, start, len, plain, ..VACANT };
        run
    }

    /// Puts a run into the index that was an only child and is none any more, unless it is there since an earlier time.
    fn file(&self, state: &mut State, run: u32) {
        let known = &state.runs[run as usize];
        if known.hash == 0 {
            let tokens = state.tokens_of(known.start as usize, self.per_block);
            let hash = self.keys.hash(known.parent, state.extra(known, 0), tokens);
            state.runs[run as usize].hash = hash;
            state.index.insert(hash, run);
        }
    }

    /// Fills slots with what is in `count` blocks from block `first` of the content on: of run `run`, behind the end of run
    /// `behind`, which may be the same.
    #[expect(clippy::too_many_arguments, reason = "what is in a slot, and where it comes from")]
    fn fill(
        &self,
        state: &mut State,
        [behind, run]: [u32; 2],
        slot: usize,
        content: &impl Contents,
        plain: bool,
        [first, count]: [usize; 2],
        blocks: &[u32],
    ) {
        let per_block = self.per_block;
        let tokens = &content.tokens()[first * per_block..][..count * per_block];
        state.tokens.write(slot * per_block, tokens);
        state.blocks[slot..][..count].copy_from_slice(blocks);
        state.run_of[slot..][..count].fill(run);
        state.cached += count as u32;
        if !plain {
            let extras = state.extras[slot..][..count].iter_mut().enumerate();
            extras.for_each(|(index, extra)| *extra = content.extra(first + index, per_block));
        }
        let Some(events) = &mut state.events else { return };
        let Run { start, len, parent, .. } = state.runs[behind as usize];
        let mut before = if parent == NONE { behind } else { slot_before(start, len, slot) };
        for (index, tokens) in tokens.chunks_exact(per_block).enumerate() {
            let extra = if plain { 0 } else { state.extras[slot + index] };
            events.stored((slot + index) as u32, before, extra, tokens);
            before = (slot + index) as u32;
        }
    }
}

/// The slot of the block before the one in `slot`: the run's last, or, where the run has grown into `slot`, the one right before.
fn slot_before(start: u32, len: u32, slot: usize) -> u32 {
    let end = start + len;
    if (start..end).contains(&(slot as u32)) { slot as u32 - 1 } else { end - 1 }
}

impl State {
    /// Makes a run longer, by up to `most` slots right behind it, where nothing tells its end: no other lease, and nothing that is or
    /// was behind it.
    fn grow(&mut self, run: u32, plain: bool, most: usize) -> Option<(usize, usize)> {
        let Run { parent, start, len, busy, first_child, plain: is_plain, shut, .. } = self.runs[run as usize];
        if parent == NONE || shut || busy != 1 || first_child != NONE || plain != is_plain {
            return None;
        }
        let slot = (start + len) as usize;
        let count = self.slots.take_at(slot, most);
        self.runs[run as usize].len += count as u32;
        (count > 0).then_some((slot, count))
    }
}
