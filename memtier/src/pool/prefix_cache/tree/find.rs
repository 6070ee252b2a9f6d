//! Finding what is cached of a prompt.

use super::{super::Contents, At, NONE, Place, Run, State, Tree};
use crate::backend::fetch;

/// How many blocks behind a match are compared for one that starts alike.
const SIBLINGS: usize = 16;
/// Tokens that are compared in one sweep.
const SWEEP: usize = 512;
/// Blocks that one cache line names.
const LINE: usize = 16;
/// Lines of them that are read ahead: those of 256 blocks.
const FETCHED: usize = 16;

impl Tree {
    /// Walks from the root along `content` for as long as blocks are cached, and takes a lease on the last. `found` gets their blocks.
    /// `None` for a root that was forgotten.
    pub(in super::super) fn lookup(&self, content: &impl Contents, mut found: impl FnMut(&[u32])) -> Option<At> {
        let mut guard = self.lock();
        let state = &mut *guard;
        let root = state.root(content.root())?;
        let mut at = At { run: root, depth: 0, root };
        let (blocks, plain) = (content.tokens().len() / self.per_block, content.is_plain());
        while (at.depth as usize) < blocks {
            let Some((run, same)) = self.follow(state, at, content, plain, blocks) else { break };
            let run = state.cut(run, same);
            found(state.blocks_of(run));
            state.pass(at.run, run);
            at = At { run, depth: at.depth + same as u32, root };
        }
        state.hits += u64::from(at.depth);
        state.misses += blocks as u64 - u64::from(at.depth);
        // The lease. What is before it was counted on the way.
        state.runs[at.run as usize].busy += 1;
        Some(at)
    }

    /// The run behind `at` that goes on as `content` does, for one block at least, and for how many.
    pub(super) fn follow(
        &self,
        state: &State,
        at: At,
        content: &impl Contents,
        plain: bool,
        blocks: usize,
    ) -> Option<(u32, usize)> {
        let first = at.depth as usize;
        let extra = |index: usize| if plain { 0 } else { content.extra(index, self.per_block) };
        let run = self.child(state, at.run, extra(first), self.part(content, first))?;
        let known = &state.runs[run as usize];
        // While the tokens are compared, which takes longer.
        state.fetch_around(known);
        let most = (blocks - first).min(known.len as usize) * self.per_block;
        let theirs = &state.tokens[known.start as usize * self.per_block..][..most];
        let same = alike(&content.tokens()[first * self.per_block..][..most], theirs) / self.per_block;
        let differs = |index: &usize| extra(first + index) != state.extra(known, *index);
        let same = if plain && known.plain { same } else { (0..same).find(differs).unwrap_or(same) };
        Some((run, same))
    }

    /// The run behind `parent` whose first block is the one of `tokens`.
    fn child(&self, state: &State, parent: u32, extra: u128, tokens: &[u32]) -> Option<u32> {
        let first = state.runs[parent as usize].first_child;
        let known = state.runs.get(first as usize)?;
        if known.next == NONE {
            // Whose child it is needs no look: it was found through its parent.
            return state.starts_with(first, extra, tokens).then_some(first);
        }
        // Not the first one's tokens, which say nothing of the others and are read for nothing.
        let hash = self.keys.hash(parent, extra, tokens);
        let is_it = |run: u32| state.runs[run as usize].parent == parent && state.starts_with(run, extra, tokens);
        state.index.find(hash, is_it)
    }

    /// The cached block behind `at` that starts with most of `tokens`, and how many: at least one, less than a block.
    pub(in super::super) fn alike(&self, at: At, extra: u128, tokens: &[u32]) -> Option<(u32, usize)> {
        let state = self.lock();
        let mut child = state.runs[at.run as usize].first_child;
        let mut best = None;
        for _ in 0..SIBLINGS {
            let run = state.runs.get(child as usize)?;
            let theirs = state.tokens_of(run.start as usize, self.per_block);
            let same = theirs.iter().zip(tokens).take_while(|(a, b)| a == b).count();
            // What is in the block besides tokens may lie anywhere in it.
            if same > 0 && state.extra(run, 0) == extra && best.is_none_or(|(_, most)| same > most) {
                best = Some((state.blocks[run.start as usize], same));
            }
            child = run.next;
            if child == NONE {
                break;
            }
        }
        // A referent for the caller, counted while the block cannot go.
        if let Some((block, _)) = best {
            self.core.share(block);
        }
        best
    }

    /// Whether the block before `at` is the one that `content` has there.
    pub(in super::super) fn ends_with(&self, state: &State, at: At, content: &impl Contents) -> bool {
        let Some(index) = (at.depth as usize).checked_sub(1) else { return true };
        if content.tokens().len() < at.depth as usize * self.per_block {
            return false;
        }
        let run = &state.runs[at.run as usize];
        let (last, slot) = (run.len as usize - 1, (run.start + run.len) as usize - 1);
        state.extra(run, last) == content.extra(index, self.per_block)
            && state.tokens_of(slot, self.per_block) == self.part(content, index)
    }

    #[inline]
    pub(super) fn part<'c>(&self, content: &'c impl Contents, index: usize) -> &'c [u32] {
        &content.tokens()[index * self.per_block..][..self.per_block]
    }
}

impl State {
    #[inline]
    pub(super) fn tokens_of(&self, slot: usize, per_block: usize) -> &[u32] {
        &self.tokens[slot * per_block..][..per_block]
    }

    /// What is in block `index` of a run besides tokens.
    #[inline]
    pub(super) fn extra(&self, run: &Run, index: usize) -> u128 {
        if run.plain { 0 } else { self.extras[run.start as usize + index] }
    }

    /// Whether the first block of a run is the one of `tokens`.
    #[inline]
    fn starts_with(&self, run: u32, extra: u128, tokens: &[u32]) -> bool {
        let known = &self.runs[run as usize];
        self.tokens_of(known.start as usize, tokens.len()) == tokens && self.extra(known, 0) == extra
    }

    /// Begins to read what is needed of a run in a moment: its blocks, and its neighbours in the order of use.
    #[inline]
    pub(in super::super) fn fetch_around(&self, run: &Run) {
        let blocks = &self.blocks[run.start as usize..][..run.len as usize];
        blocks.iter().step_by(LINE).take(FETCHED).for_each(fetch);
        [run.older, run.newer].iter().filter_map(|run| self.runs.get(*run as usize)).for_each(fetch);
    }

    /// The block before `at`; none at a root.
    pub(in super::super) fn place(&self, at: At) -> Option<Place> {
        let Run { start, len, number: stamp, .. } = self.runs[at.run as usize];
        let slot = (start + len).wrapping_sub(1);
        (len > 0).then_some(Place { slot, depth: at.depth, stamp })
    }

    /// Whether the block is still there.
    pub(in super::super) fn is_cached(&self, place: Place) -> bool {
        let run = || &self.runs[self.run_of[place.slot as usize] as usize];
        self.blocks[place.slot as usize] != NONE && run().number == place.stamp
    }

    /// Whether the path to `at` leads through `before`.
    pub(in super::super) fn has_passed(&self, at: At, before: Place) -> bool {
        if before.depth > at.depth || !self.is_cached(before) {
            return false;
        }
        let (mut run, mut end) = (&self.runs[at.run as usize], at.depth);
        while end - run.len >= before.depth {
            end -= run.len;
            run = &self.runs[run.parent as usize];
        }
        run.start + run.len - 1 - (end - before.depth) == before.slot
    }
}

/// How many tokens two lists of one length have in common, from the first on.
fn alike(ours: &[u32], theirs: &[u32]) -> usize {
    let mut same = 0;
    for (ours, theirs) in ours.chunks(SWEEP).zip(theirs.chunks(SWEEP)) {
        if ours != theirs {
            return same + ours.iter().zip(theirs).take_while(|(a, b)| a == b).count();
        }
        same += ours.len();
    }
    same
}
