//! Attention of a few rows of one sequence, for some heads of one key/value head: which lanes go through which runs of
//! the cache. [`kernel`](super::kernel) has the arithmetic.

use std::ops::Range;

use super::HOLE;
use super::attend::{AttentionParams, KvSequence, Query, RingOf, Views};
use super::cache::KvCache;
use super::format::KvFormat;
use super::kernel::{CHUNK, CHUNK_RUNS, Lane, MAX_LANES, RUN, Run, Scores, score, sum, weigh};
use super::lanes::{Lanes, Portable};
use super::rotate::{Rotated, rotate};
use super::unpack::Unpacked;
use crate::isa::{Isa, Level};
use crate::threads::Shares;

/// What one call computes.
pub(super) struct Piece<'a> {
    pub(super) params: AttentionParams,
    pub(super) views: Views<'a>,
    pub(super) cache: KvCache<'a>,
    pub(super) sequence: KvSequence<'a>,
    /// The sequence's ring, where there are rings.
    pub(super) ring: Option<RingOf<'a>>,
    pub(super) kv_head: usize,
    pub(super) queries: &'a [Query],
    /// Rows of one sequence.
    pub(super) rows: Range<usize>,
    /// Heads of one key/value head.
    pub(super) heads: Range<usize>,
    pub(super) q: &'a [f32],
    pub(super) out: Shares<'a, f32>,
}

/// Computes a piece: `rows` x `heads` outputs.
pub(super) fn run_piece(isa: Isa, piece: &Piece<'_>) {
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
    fn avx512(piece: &Piece<'_>) {
        // SAFETY: this function has the features of the type.
        unsafe { compute::<super::lanes::Avx512>(piece) }
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,fma,f16c")]
    fn avx2(piece: &Piece<'_>) {
        // SAFETY: this function has the features of the type.
        unsafe { compute::<super::lanes::Avx2>(piece) }
    }

    match isa.level() {
        // SAFETY: an `Isa` of this level exists only where its features were detected.
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => unsafe { avx512(piece) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => unsafe { avx2(piece) },
        // SAFETY: plain Rust needs no features.
        _ => unsafe { compute::<Portable>(piece) },
    }
}

/// # Safety
///
/// The processor has the features of `V`. The piece was checked by `attend`, and no other live piece has one of its
/// (row, head) pairs.
#[inline(always)]
unsafe fn compute<V: Lanes>(piece: &Piece<'_>) {
    let dim = piece.cache.shape.head_dim;
    let window = piece.params.window.map_or(usize::MAX, |window| window as usize);
    let mut lanes = [Lane::NONE; MAX_LANES];
    let mut count = 0;
    let (mut rows, mut heads) = (piece.rows.clone(), 0..0);
    let mut row = 0;
    loop {
        let Some(head) = heads.next() else {
            let Some(next) = rows.next() else { break };
            (row, heads) = (next, piece.heads.clone());
            continue;
        };
        let position = piece.queries[row].position as usize;
        let at = (row * piece.params.heads + head) * dim;
        // SAFETY: the (row, head) pair is this piece's own.
        let out = unsafe { piece.out.part(at, dim) };
        out.fill(0.0);
        lanes[count] = Lane {
            q: piece.q[at..at + dim].as_ptr(),
            q_sinks: piece.views.sinks.map_or(piece.q, |sinks| sinks.q)[at..at + dim].as_ptr(),
            out: out.as_mut_ptr(),
            first: (position + 1).saturating_sub(window),
            end: position + 1,
            ..Lane::NONE
        };
        count += 1;
        if count == MAX_LANES || (rows.is_empty() && heads.is_empty()) {
            // SAFETY: the lanes' pointers are valid for `dim` elements, and their outputs are disjoint.
            unsafe { attend_lanes::<V>(piece, &mut lanes[..count]) };
            count = 0;
        }
    }
}

/// # Safety
///
/// As `compute`; the lanes' pointers are valid for `head_dim` elements, and their outputs are disjoint.
#[inline(always)]
unsafe fn attend_lanes<V: Lanes>(piece: &Piece<'_>, lanes: &mut [Lane]) {
    let shape = piece.cache.shape;
    let mut scores = Scores::new();
    // What is rotated is looked at with rotated queries; what is in a ring is not.
    let (rotates, mut rotated, mut plain) = (shape.format.rotates(), Rotated::new(), [std::ptr::null(); MAX_LANES]);
    for (plain, lane) in plain.iter_mut().zip(lanes.iter()) {
        *plain = lane.q;
    }
    if rotates {
        // SAFETY: the lanes' queries are valid for a head, which is no larger than `MAX_DIM`, and nothing else is rotated into there.
        unsafe { rotated.fill(lanes, shape.head_dim) };
    }
    let mut own = [(std::ptr::null(), 0, 0); MAX_LANES];
    for (own, lane) in own.iter_mut().zip(lanes.iter()) {
        *own = (lane.q, lane.first, lane.end);
    }
    let sinks = piece.views.sinks.map_or(0, |sinks| sinks.count as usize);
    let whole = Source { cache: piece.cache, blocks: piece.sequence.blocks, kv_head: piece.kv_head };
    // Where there is no ring, nobody sees anything in it.
    let block = piece.ring.and_then(|of| of.block.first()).filter(|block| **block != HOLE);
    let (ring, latest, start) = match (piece.views.ring, piece.ring, block) {
        (Some(ring), Some(of), Some(block)) => {
            let ring = Source { cache: ring.cache, blocks: std::slice::from_ref(block), kv_head: piece.kv_head };
            (ring, piece.views.ring.map_or(0, |ring| ring.latest as usize), of.start as usize)
        }
        _ => (whole, 0, usize::MAX),
    };
    // The sinks first, where a lane's window does not reach them; then its window, the latest of it in the ring.
    for view in [View::Sinks, View::Window, View::Ring] {
        for ((lane, (q, first, end)), plain) in lanes.iter_mut().zip(own).zip(plain) {
            let in_ring = end.saturating_sub(latest).max(start).clamp(first, end);
            (lane.q, lane.first, lane.end) = match view {
                View::Sinks => (lane.q_sinks, 0, first.min(sinks)),
                View::Window => (q, first, in_ring),
                View::Ring => (plain, in_ring, end),
            };
            if rotates && matches!(view, View::Ring) {
                // What was summed so far is rotated back: the rest of the sum is not rotated.
                // SAFETY: the lane's output is valid for `head_dim` elements and nobody else's.
                rotate(unsafe { std::slice::from_raw_parts_mut(lane.out, shape.head_dim) });
            }
        }
        let source = if matches!(view, View::Ring) { &ring } else { &whole };
        // SAFETY: passed on; both queries are valid for `head_dim` elements.
        unsafe { through::<V>(piece.params, source, lanes, &mut scores) };
    }
    for lane in lanes {
        // SAFETY: the lane's output is valid for `head_dim` elements and nobody else's.
        let out = unsafe { std::slice::from_raw_parts_mut(lane.out, shape.head_dim) };
        let mut sums = lane.sums;
        let mut width = RUN;
        while width > 1 {
            width /= 2;
            for index in 0..width {
                sums[index] += sums[index + width];
            }
        }
        // A lane that saw nothing keeps its zeros.
        let inverse = if sums[0] > 0.0 || sums[0].is_nan() { 1.0 / sums[0] } else { 0.0 };
        for out in out {
            *out *= inverse;
        }
    }
}

/// What lanes look at, one after the other.
#[derive(Clone, Copy)]
enum View {
    Sinks,
    Window,
    Ring,
}

/// One head of one sequence in a cache. Positions beyond its blocks are in them again: a ring is a sequence of one block.
#[derive(Clone, Copy)]
struct Source<'a> {
    cache: KvCache<'a>,
    blocks: &'a [u32],
    kv_head: usize,
}

/// Takes the lanes through the cache, chunk after chunk. Chunks of other formats become f16 first, once for all lanes.
///
/// # Safety
///
/// As `attend_lanes`.
#[inline(always)]
unsafe fn through<V: Lanes>(params: AttentionParams, source: &Source<'_>, lanes: &mut [Lane], scores: &mut Scores) {
    let shape = source.cache.shape;
    let (dim, packed) = (shape.head_dim, shape.format != KvFormat::F16);
    let positions = seen(lanes);
    // Few lanes mean little to do for each line of the cache, and a cache that is rarely at hand: it is called for ahead.
    let ahead = lanes.len() <= V::QUERIES && !packed;
    let stride = if packed { RUN } else { shape.block_tokens };
    let mut unpacked = Unpacked::new();
    let mut next = Runs::of(source, positions.clone(), positions.start / CHUNK);
    for chunk in positions.start / CHUNK..positions.end.div_ceil(CHUNK) {
        let mut current = next;
        next = Runs::of(source, positions.clone(), chunk + 1);
        if packed {
            // SAFETY: the runs' pointers reach the whole of the head's keys and values for 16 positions of one block.
            current.runs = unsafe { unpacked.fill::<V>(shape, current.as_slice(), &next.runs) };
        }
        let runs = current.as_slice();
        // SAFETY: as above, and the unpacked ones the same of a block of 16 positions.
        unsafe {
            if ahead {
                score::<V, true>(lanes, runs, &next.runs, stride, dim, scores);
                weigh(lanes, runs, params, dim, scores);
                sum::<V, true>(lanes, runs, &next.runs, dim, scores);
            } else {
                score::<V, false>(lanes, runs, &next.runs, stride, dim, scores);
                weigh(lanes, runs, params, dim, scores);
                sum::<V, false>(lanes, runs, &next.runs, dim, scores);
            }
        }
    }
}

/// The positions that some lane sees, and those between.
fn seen(lanes: &[Lane]) -> Range<usize> {
    let first = lanes.iter().map(|lane| lane.first).min().unwrap_or(0);
    first..lanes.iter().map(|lane| lane.end).max().unwrap_or(0)
}

/// The runs of one chunk that some lane sees.
#[derive(Clone, Copy)]
struct Runs {
    runs: [Run; CHUNK_RUNS],
    count: usize,
}

impl Runs {
    /// Those of `chunk` within `positions`; none beyond the end.
    #[inline(always)]
    fn of(source: &Source<'_>, positions: Range<usize>, chunk: usize) -> Runs {
        let Source { cache, blocks, kv_head } = source;
        let shape = cache.shape;
        let mut runs = Runs { runs: [Run::NONE; CHUNK_RUNS], count: 0 };
        for position in (chunk * CHUNK..positions.end.min((chunk + 1) * CHUNK)).step_by(RUN) {
            // A ring's only block is all of its blocks.
            let index = position / shape.block_tokens;
            let block = blocks[if blocks.len() == 1 { 0 } else { index }];
            if block == HOLE || position + RUN <= positions.start {
                continue;
            }
            let slot = position % shape.block_tokens;
            // In bounds: `attend` checked the block, and a run lies within one block.
            let block = &cache.slab[cache.base + block as usize * cache.stride..];
            let (keys, values) = (&block[shape.keys(*kv_head)..], &block[shape.values(*kv_head)..]);
            let (bits, scales) = (shape.format.bits(), shape.format.scales(shape.head_dim));
            // Scales lie behind the elements; 16 elements of any format are whole units.
            let elements = shape.head_dim * shape.block_tokens * bits / 16;
            runs.runs[runs.count] = Run {
                position,
                keys: keys[slot * shape.format.key_step() / 16..].as_ptr(),
                values: values[slot * shape.head_dim * bits / 16..].as_ptr(),
                // Past the end where there are none.
                key_scales: keys.as_ptr().wrapping_add(elements + slot),
                value_scales: values.as_ptr().wrapping_add(elements + slot * scales),
            };
            runs.count += 1;
        }
        runs
    }

    #[inline(always)]
    fn as_slice(&self) -> &[Run] {
        &self.runs[..self.count]
    }
}
