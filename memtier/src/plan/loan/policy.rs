//! The one policy.

use super::{Accepted, Chunk, Costs, LoanPlan, Mode, NoRoom, Note, Policy, Room};
use crate::units::{Bytes, Tokens};

/// Decides how many slots the cache gets and where the prompt path's buffers are.
///
/// Borrowing first: a cache that takes all the room, and the largest chunk whose buffers fit into the part of it that may
/// be lent (an automatic chunk by bisection over the grid, each with every ring; a list of usual sizes when that finds
/// none; a fixed chunk halved until it fits). Otherwise the buffers are owned: priced first, cut down on the grid until
/// they and the least cache fit, and the cache gets what is left.
///
/// # Errors
/// [`NoRoom`] when not even the smallest chunk fits beside the least cache.
pub fn choose(policy: &Policy, costs: &Costs<'_>, room: &Room, chunk: Chunk) -> Result<LoanPlan, NoRoom> {
    let for_cache = room.free.beyond(room.after);
    if let Some(slots) = fitting_slots(costs, room, for_cache)
        && let Some(accepted) = lend(policy, costs, room, slots, chunk)
    {
        return Ok(LoanPlan { slots, accepted, note: cut(chunk, accepted.chunk) });
    }
    owned(policy, costs, room, chunk)
}

/// The note of a chunk that is not the fixed one.
fn cut(chunk: Chunk, got: Tokens) -> Option<Note> {
    match chunk {
        Chunk::Fixed(from) if got < from => Some(Note::ChunkCut { from }),
        _ => None,
    }
}

/// Slots of a cache in `bytes`: the operator's if they fit, else as many as do; `None` below the least.
fn fitting_slots(costs: &Costs<'_>, room: &Room, bytes: Bytes) -> Option<u64> {
    let fits = |slots: u64| (costs.tail)(slots, slots) <= bytes;
    let slots = match room.slots {
        Some(slots) if fits(slots) => slots,
        Some(_) => return None,
        None => largest(MOST_SLOTS, fits),
    };
    (slots >= room.least_slots).then_some(slots)
}

/// More slots than any model has experts.
const MOST_SLOTS: u64 = 1 << 24;

/// A loan from a cache of `slots`, or `None` when nothing can be lent.
pub(super) fn lend(policy: &Policy, costs: &Costs<'_>, room: &Room, slots: u64, chunk: Chunk) -> Option<Accepted> {
    if !room.borrow || slots < policy.lend_floor {
        return None;
    }
    let loan = |tokens: Tokens| loan_for(policy, costs, slots, tokens);
    match chunk {
        Chunk::Fixed(tokens) => {
            let halves = std::iter::successors(Some(tokens.count()), |&tokens| Some(tokens / 2));
            halves
                .take_while(|&tokens| tokens >= policy.grid.count().max(1))
                .find_map(|tokens| loan(Tokens::new(tokens)))
        }
        Chunk::Auto { ceiling } => {
            let grid = policy.grid.count().max(1);
            let steps = largest(ceiling.count() / grid, |step| step == 0 || loan(Tokens::new(step * grid)).is_some());
            let listed =
                || policy.list.iter().filter(|&&tokens| tokens <= ceiling.count()).find_map(|&t| loan(Tokens::new(t)));
            if steps > 0 { loan(Tokens::new(steps * grid)) } else { listed() }
        }
    }
}

/// A loan of exactly this chunk: the first ring with which its buffers fit into what may be lent.
pub(super) fn loan_for(policy: &Policy, costs: &Costs<'_>, slots: u64, chunk: Tokens) -> Option<Accepted> {
    let most = (u128::from(slots) * u128::from(policy.lend_percent.min(100)) / 100) as u64;
    let lendable = (costs.tail)(slots, most);
    rings(costs).find_map(|ring| {
        let bytes = (costs.prompt)(chunk, ring);
        if bytes > lendable {
            return None;
        }
        // The fewest slots at the end that hold them.
        let lent = most - largest(most, |fewer| (costs.tail)(slots, most - fewer) >= bytes);
        Some(Accepted { chunk, mode: Mode::Borrowed { slots: lent, bytes, ring } })
    })
}

fn rings<'c>(costs: &'c Costs<'_>) -> impl Iterator<Item = u64> + 'c {
    let none = costs.rings.is_empty().then_some(0);
    costs.rings.iter().copied().chain(none)
}

/// Buffers of their own, beside the largest cache that is then possible.
fn owned(policy: &Policy, costs: &Costs<'_>, room: &Room, chunk: Chunk) -> Result<LoanPlan, NoRoom> {
    let least_slots = room.slots.unwrap_or(room.least_slots).max(room.least_slots);
    let cache = (costs.tail)(least_slots, least_slots);
    let bound = match chunk {
        // What nobody asked for is not paid for with half the cache.
        Chunk::Auto { ceiling } => ceiling.min(policy.owned_ceiling),
        Chunk::Fixed(tokens) => tokens,
    };
    let left = room.free.beyond(room.after).beyond(cache);
    match largest_owned(policy, costs, bound, left) {
        Some(accepted) => {
            let for_cache = room.free.beyond(room.after).beyond(accepted.mode.beside());
            let slots = fitting_slots(costs, room, for_cache).unwrap_or(least_slots);
            Ok(LoanPlan { slots, accepted, note: cut(chunk, accepted.chunk).or(Some(Note::OwnedInstead)) })
        }
        None => {
            let smallest = bound.count().min(policy.grid.count().max(1));
            let prompt =
                rings(costs).map(|ring| (costs.prompt)(Tokens::new(smallest), ring)).min().unwrap_or(Bytes::ZERO);
            let need = [room.after, cache, prompt].iter().map(|bytes| u128::from(bytes.count())).sum::<u128>();
            let short = u64::try_from(need.saturating_sub(u128::from(room.free.count()))).unwrap_or(u64::MAX);
            let (free, after) = (room.free, room.after);
            Err(NoRoom { free, after, cache, least_slots, smallest, prompt, short: Bytes::new(short) })
        }
    }
}

/// The largest owned chunk of at most `bound` in `left`: the bound itself, or the grid below it.
pub(super) fn largest_owned(policy: &Policy, costs: &Costs<'_>, bound: Tokens, left: Bytes) -> Option<Accepted> {
    let owned = |tokens: u64| {
        let priced = rings(costs).map(|ring| (ring, (costs.prompt)(Tokens::new(tokens), ring)));
        let (ring, bytes) = priced.into_iter().find(|(_, bytes)| *bytes <= left)?;
        Some(Accepted { chunk: Tokens::new(tokens), mode: Mode::Owned { bytes, ring } })
    };
    let grid = policy.grid.count().max(1);
    owned(bound.count()).filter(|_| !bound.is_zero()).or_else(|| {
        let steps = largest(bound.count() / grid, |step| step == 0 || owned(step * grid).is_some());
        (steps > 0).then(|| owned(steps * grid)).flatten()
    })
}

/// The largest number up to `most` for which `holds`, given that it holds below one for which it does.
pub(super) fn largest(most: u64, holds: impl Fn(u64) -> bool) -> u64 {
    let (mut good, mut bad) = (0, most.saturating_add(1));
    while good + 1 < bad {
        let middle = good + (bad - good) / 2;
        if holds(middle) { good = middle } else { bad = middle }
    }
    good
}
