//! The arithmetic of attention.
//!
//! A lane is one (row, head). Positions are taken in chunks of 64, aligned to 64 whatever the rows, and a lane does for
//! each chunk that holds a position it sees:
//!
//! ```text
//! score[p] = scale * dot(q, key[p])            one fma for each dimension, in order
//! m'       = max(m, scores)
//! acc, sum = exp(m - m') * acc, exp(m - m') * sum          only where m' > m
//! w[p]     = exp(score[p] - m')
//! sum[p % 16] += w[p]
//! acc[d]   = fma(w[p], value[p][d], acc[d])    for each position, in order
//! ```
//!
//! Positions that the lane does not see get weight 0 and their values are never touched, so that neither other lanes'
//! positions nor unwritten cells can change a bit. The accumulators live in the output.

#![allow(clippy::needless_range_loop, reason = "one index goes through several arrays of registers")]

use std::ops::Range;

use super::attend::AttentionParams;
use super::lanes::Lanes;
use crate::math;

/// The most lanes that share a pass over the cache.
pub(super) const MAX_LANES: usize = 24;
/// Positions of a run: what one register holds.
pub(super) const RUN: usize = 16;
/// Runs of a chunk.
pub(super) const CHUNK_RUNS: usize = 4;
/// Positions of a chunk.
pub(super) const CHUNK: usize = RUN * CHUNK_RUNS;
/// f16 elements of a cache line.
const LINE: usize = 32;
/// Registers of values that the kernel sums at a time.
const WIDE: usize = 4;

/// The scores, then weights, of a chunk: run after run, for each lane. Aligned so that no register straddles two lines.
#[repr(align(64))]
pub(super) struct Scores([[f32; CHUNK]; MAX_LANES]);

impl Scores {
    pub(super) const fn new() -> Scores {
        Scores([[0.0; CHUNK]; MAX_LANES])
    }
}

/// One (row, head).
#[derive(Clone, Copy)]
pub(super) struct Lane {
    pub(super) q: *const f32,
    /// The same as it looks at the sinks.
    pub(super) q_sinks: *const f32,
    pub(super) out: *mut f32,
    /// The first position that it sees.
    pub(super) first: usize,
    /// The position after the last that it sees.
    pub(super) end: usize,
    /// The largest score so far.
    pub(super) max: f32,
    /// Sums of weights, by position modulo 16.
    pub(super) sums: [f32; RUN],
}

impl Lane {
    pub(super) const NONE: Lane = Lane {
        q: std::ptr::null(),
        q_sinks: std::ptr::null(),
        out: std::ptr::null_mut(),
        first: 0,
        end: 0,
        max: f32::NEG_INFINITY,
        sums: [0.0; RUN],
    };
}

/// Sixteen consecutive positions in one block.
#[derive(Clone, Copy)]
pub(super) struct Run {
    /// The first position.
    pub(super) position: usize,
    /// Its key's first dimension; the next dimension is `block_tokens` further.
    pub(super) keys: *const u16,
    /// Its value; the next position's is `head_dim` further.
    pub(super) values: *const u16,
    /// The first scale of its key, where the format has scales; the next group's is `block_tokens` further.
    pub(super) key_scales: *const u16,
    /// The first scale of its value; the next position's are behind its last.
    pub(super) value_scales: *const u16,
}

impl Run {
    pub(super) const NONE: Run = Run {
        position: 0,
        keys: std::ptr::null(),
        values: std::ptr::null(),
        key_scales: std::ptr::null(),
        value_scales: std::ptr::null(),
    };

    /// The positions of the run that a lane sees, counted from the run's first.
    #[inline(always)]
    fn seen(&self, lane: &Lane) -> Range<usize> {
        let end = lane.end.saturating_sub(self.position).min(RUN);
        lane.first.saturating_sub(self.position).min(end)..end
    }
}

/// Fills `scores` with the dot products of all lanes and runs. With `AHEAD` it calls for the keys of the `next` runs,
/// line by line as it goes through those of the current ones.
///
/// # Safety
///
/// The processor has the features of `V`; the pointers of lanes and runs are valid for the shape.
#[inline(always)]
pub(super) unsafe fn score<V: Lanes, const AHEAD: bool>(
    lanes: &[Lane],
    runs: &[Run],
    next: &[Run; CHUNK_RUNS],
    stride: usize,
    head_dim: usize,
    scores: &mut Scores,
) {
    for (lanes, scores) in lanes.chunks(V::QUERIES).zip(scores.0.chunks_mut(V::QUERIES)) {
        let together = if runs.len() == V::RUNS { V::RUNS } else { 1 };
        for (index, runs) in runs.chunks(together).enumerate() {
            let at = index * together * RUN;
            // SAFETY: passed on.
            unsafe {
                match (lanes.len(), together) {
                    (6, 4) => dots::<V, AHEAD, 6, 4>(lanes, runs, next, stride, head_dim, scores, at),
                    (5, 4) => dots::<V, AHEAD, 5, 4>(lanes, runs, next, stride, head_dim, scores, at),
                    (4, 4) => dots::<V, AHEAD, 4, 4>(lanes, runs, next, stride, head_dim, scores, at),
                    (3, 4) => dots::<V, AHEAD, 3, 4>(lanes, runs, next, stride, head_dim, scores, at),
                    (2, 4) => dots::<V, AHEAD, 2, 4>(lanes, runs, next, stride, head_dim, scores, at),
                    (1, 4) => dots::<V, AHEAD, 1, 4>(lanes, runs, next, stride, head_dim, scores, at),
                    (6, _) => dots::<V, AHEAD, 6, 1>(lanes, runs, next, stride, head_dim, scores, at),
                    (5, _) => dots::<V, AHEAD, 5, 1>(lanes, runs, next, stride, head_dim, scores, at),
                    (4, _) => dots::<V, AHEAD, 4, 1>(lanes, runs, next, stride, head_dim, scores, at),
                    (3, _) => dots::<V, AHEAD, 3, 1>(lanes, runs, next, stride, head_dim, scores, at),
                    (2, _) => dots::<V, AHEAD, 2, 1>(lanes, runs, next, stride, head_dim, scores, at),
                    _ => dots::<V, AHEAD, 1, 1>(lanes, runs, next, stride, head_dim, scores, at),
                }
            }
        }
    }
}

/// Dot products of `Q` lanes and `R` runs.
///
/// # Safety
///
/// As `score`; there are at least `Q` lanes and `R` runs.
#[inline(always)]
unsafe fn dots<V: Lanes, const AHEAD: bool, const Q: usize, const R: usize>(
    lanes: &[Lane],
    runs: &[Run],
    next: &[Run; CHUNK_RUNS],
    stride: usize,
    head_dim: usize,
    scores: &mut [[f32; CHUNK]],
    at: usize,
) {
    if Q > V::QUERIES || (R > 1 && R != V::RUNS) {
        return;
    }
    let q: [*const f32; Q] = std::array::from_fn(|lane| lanes[lane].q);
    let keys: [*const u16; R] = std::array::from_fn(|run| runs[run].keys);
    // SAFETY: the caller's promise: dimension `d` of a query is below `head_dim`, and so is a key's, `stride` apart.
    unsafe {
        let mut acc = [[V::zero(); R]; Q];
        for d in 0..head_dim {
            let mut key = [V::zero(); R];
            for run in 0..R {
                key[run] = V::load_half(keys[run].add(d * stride));
            }
            if AHEAD && (d * stride).is_multiple_of(LINE) {
                for next in &next[..R] {
                    V::prefetch(next.keys.wrapping_add(d * stride).cast());
                }
            }
            for lane in 0..Q {
                let q = V::splat_at(q[lane].add(d));
                for run in 0..R {
                    acc[lane][run] = key[run].fma(q, acc[lane][run]);
                }
            }
        }
        for lane in 0..Q {
            let scores = &mut scores[lane][at..at + R * RUN];
            for run in 0..R {
                acc[lane][run].store(scores.as_mut_ptr().add(run * RUN));
            }
        }
    }
}

/// Turns the lanes' dot products into weights, and rescales what they have summed so far.
///
/// # Safety
///
/// The lanes' outputs are valid for `head_dim` elements and nobody else's.
#[inline(always)]
pub(super) unsafe fn weigh(
    lanes: &mut [Lane],
    runs: &[Run],
    params: AttentionParams,
    head_dim: usize,
    scores: &mut Scores,
) {
    // Pass by pass rather than lane by lane, so that the processor overlaps the lanes' chains.
    let mut largest = [f32::NEG_INFINITY; MAX_LANES];
    for ((lane, scores), largest) in lanes.iter().zip(&mut scores.0).zip(&mut largest) {
        *largest = scale_and_mask(lane, runs, params, scores);
    }
    for (lane, largest) in lanes.iter_mut().zip(largest) {
        if largest > lane.max {
            let factor = math::exp_nonpositive(lane.max - largest);
            lane.max = largest;
            // SAFETY: the caller's promise.
            let out = unsafe { std::slice::from_raw_parts_mut(lane.out, head_dim) };
            for out in out {
                *out *= factor;
            }
            for sum in &mut lane.sums {
                *sum *= factor;
            }
        }
    }
    for (lane, scores) in lanes.iter_mut().zip(&mut scores.0) {
        // Before the first visible position there is no maximum to subtract, and nothing to weigh.
        let max = if lane.max == f32::NEG_INFINITY { 0.0 } else { lane.max };
        for scores in &mut scores.as_chunks_mut::<RUN>().0[..runs.len()] {
            for (score, sum) in scores.iter_mut().zip(&mut lane.sums) {
                *score = math::exp_nonpositive(*score - max);
                *sum += *score;
            }
        }
    }
}

/// Makes scores of a lane's dot products, minus infinity where it does not see the position, and returns the largest.
#[inline(always)]
fn scale_and_mask(lane: &Lane, runs: &[Run], params: AttentionParams, scores: &mut [f32; CHUNK]) -> f32 {
    let mut largest = [f32::NEG_INFINITY; RUN];
    for (run, scores) in runs.iter().zip(scores.as_chunks_mut::<RUN>().0) {
        for score in scores.iter_mut() {
            *score *= params.scale;
        }
        if let Some(cap) = params.softcap {
            for score in scores.iter_mut() {
                *score = cap * math::tanh(*score / cap);
            }
        }
        let seen = run.seen(lane);
        if seen.len() < RUN {
            // Selected, not computed: the score of a cell that was never written may be NaN.
            let (first, end) = (seen.start as i32, seen.end as i32);
            for (score, index) in scores.iter_mut().zip(0i32..) {
                *score = if (index >= first) & (index < end) { *score } else { f32::NEG_INFINITY };
            }
        }
        for (largest, score) in largest.iter_mut().zip(scores.iter()) {
            *largest = if *score > *largest { *score } else { *largest };
        }
    }
    let mut width = RUN;
    while width > 1 {
        width /= 2;
        for index in 0..width {
            let other = largest[index + width];
            largest[index] = if other > largest[index] { other } else { largest[index] };
        }
    }
    largest[0]
}

/// Adds the weighted values of all runs to the lanes' outputs. With `AHEAD` it calls for the values of the `next` runs as it
/// goes.
///
/// # Safety
///
/// The processor has the features of `V`; the pointers of lanes and runs are valid for the shape.
#[inline(always)]
pub(super) unsafe fn sum<V: Lanes, const AHEAD: bool>(
    lanes: &[Lane],
    runs: &[Run],
    next: &[Run; CHUNK_RUNS],
    head_dim: usize,
    weights: &Scores,
) {
    for (lanes, weights) in lanes.chunks(V::QUERIES).zip(weights.0.chunks(V::QUERIES)) {
        // SAFETY: passed on.
        unsafe {
            match lanes.len() {
                6 => sum_lanes::<V, AHEAD, 6>(lanes, runs, next, head_dim, weights),
                5 => sum_lanes::<V, AHEAD, 5>(lanes, runs, next, head_dim, weights),
                4 => sum_lanes::<V, AHEAD, 4>(lanes, runs, next, head_dim, weights),
                3 => sum_lanes::<V, AHEAD, 3>(lanes, runs, next, head_dim, weights),
                2 => sum_lanes::<V, AHEAD, 2>(lanes, runs, next, head_dim, weights),
                _ => sum_lanes::<V, AHEAD, 1>(lanes, runs, next, head_dim, weights),
            }
        }
    }
}

/// [`sum`] for `Q` lanes: together where they see the same positions, one by one at the edges.
///
/// # Safety
///
/// As `sum`; there are `Q` lanes.
#[inline(always)]
unsafe fn sum_lanes<V: Lanes, const AHEAD: bool, const Q: usize>(
    lanes: &[Lane],
    runs: &[Run],
    next: &[Run; CHUNK_RUNS],
    head_dim: usize,
    weights: &[[f32; CHUNK]],
) {
    if Q > V::QUERIES {
        return;
    }
    let common = |run: &Run| {
        let seen = lanes.iter().map(|lane| run.seen(lane));
        let start = seen.clone().map(|seen| seen.start).max().unwrap_or(0);
        start..seen.map(|seen| seen.end).min().unwrap_or(0)
    };
    // SAFETY: passed on; every range lies within a run.
    unsafe {
        // Mostly everyone sees everything: asked of the whole first.
        let first = lanes.iter().map(|lane| lane.first).max().unwrap_or(0);
        let end = lanes.iter().map(|lane| lane.end).min().unwrap_or(0);
        let whole = match runs {
            [start, .., last] if first <= start.position && last.position + RUN <= end => runs.len(),
            _ => runs.iter().take_while(|run| common(run) == (0..RUN)).count(),
        };
        columns::<V, AHEAD, Q>(lanes, &runs[..whole], next, 0..RUN, head_dim, weights, 0);
        for (index, run) in runs.iter().enumerate().skip(whole) {
            let common = common(run);
            let run = std::slice::from_ref(run);
            if common.is_empty() {
                for (lane, weights) in lanes.iter().zip(weights) {
                    let (lane, weights) = (std::slice::from_ref(lane), std::slice::from_ref(weights));
                    columns::<V, false, 1>(lane, run, next, run[0].seen(&lane[0]), head_dim, weights, index);
                }
                continue;
            }
            for (lane, weights) in lanes.iter().zip(weights) {
                let seen = run[0].seen(lane);
                let (lane, weights) = (std::slice::from_ref(lane), std::slice::from_ref(weights));
                columns::<V, false, 1>(lane, run, next, seen.start..common.start, head_dim, weights, index);
            }
            columns::<V, false, Q>(lanes, run, next, common.clone(), head_dim, weights, index);
            for (lane, weights) in lanes.iter().zip(weights) {
                let seen = run[0].seen(lane);
                let (lane, weights) = (std::slice::from_ref(lane), std::slice::from_ref(weights));
                columns::<V, false, 1>(lane, run, next, common.end..seen.end, head_dim, weights, index);
            }
        }
    }
}

/// Adds positions `seen` of `runs`, whose weights begin at run `index`, for all dimensions of `Q` lanes.
///
/// # Safety
///
/// As `sum`; `seen` lies within a run.
#[inline(always)]
#[allow(clippy::too_many_arguments, reason = "all of one loop nest")]
unsafe fn columns<V: Lanes, const AHEAD: bool, const Q: usize>(
    lanes: &[Lane],
    runs: &[Run],
    next: &[Run; CHUNK_RUNS],
    seen: Range<usize>,
    head_dim: usize,
    weights: &[[f32; CHUNK]],
    index: usize,
) {
    if runs.is_empty() || seen.is_empty() {
        return;
    }
    let mut dim = 0;
    // SAFETY: passed on; dimensions `dim..dim + 16 * W` lie below `head_dim`.
    unsafe {
        while dim + RUN * WIDE <= head_dim {
            columns_at::<V, AHEAD, Q, WIDE>(lanes, runs, next, seen.clone(), head_dim, weights, index, dim);
            dim += RUN * WIDE;
        }
        while dim < head_dim {
            columns_at::<V, AHEAD, Q, 1>(lanes, runs, next, seen.clone(), head_dim, weights, index, dim);
            dim += RUN;
        }
    }
}

/// # Safety
///
/// As `columns`; dimensions `dim..dim + 16 * W` lie below `head_dim`.
#[inline(always)]
#[allow(clippy::too_many_arguments, reason = "all of one loop nest")]
unsafe fn columns_at<V: Lanes, const AHEAD: bool, const Q: usize, const W: usize>(
    lanes: &[Lane],
    runs: &[Run],
    next: &[Run; CHUNK_RUNS],
    seen: Range<usize>,
    head_dim: usize,
    weights: &[[f32; CHUNK]],
    index: usize,
    dim: usize,
) {
    let out: [*mut f32; Q] = std::array::from_fn(|lane| lanes[lane].out.wrapping_add(dim));
    // SAFETY: the caller's promise; a weight's index lies within the chunk.
    unsafe {
        let mut acc = [[V::zero(); W]; Q];
        for lane in 0..Q {
            for wide in 0..W {
                acc[lane][wide] = V::load(out[lane].add(RUN * wide));
            }
        }
        for (offset, (run, next)) in runs.iter().zip(next).enumerate() {
            for token in seen.clone() {
                let at = run.values.add(token * head_dim + dim);
                if AHEAD {
                    for line in (0..RUN * W).step_by(LINE) {
                        V::prefetch(next.values.wrapping_add(token * head_dim + dim + line).cast());
                    }
                }
                let mut value = [V::zero(); W];
                for wide in 0..W {
                    value[wide] = V::load_half(at.add(RUN * wide));
                }
                for lane in 0..Q {
                    let weight =
                        V::splat_at(weights.as_ptr().add(lane).cast::<f32>().add((index + offset) * RUN + token));
                    for wide in 0..W {
                        acc[lane][wide] = value[wide].fma(weight, acc[lane][wide]);
                    }
                }
            }
        }
        for lane in 0..Q {
            for wide in 0..W {
                acc[lane][wide].store(out[lane].add(RUN * wide));
            }
        }
    }
}
