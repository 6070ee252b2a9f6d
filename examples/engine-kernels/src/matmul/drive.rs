//! Cuts matmuls into pieces and runs them on the threads.

use super::tile::{MAX_TILE_ROWS, Tile, TileFn, TileOut, tiles};
use crate::isa::Isa;
use crate::ops::{Activation, gate_lanes};
use crate::packed::{GROUP_ROWS, Packed, groups};
use crate::threads::{Shares, Threads};

/// Matrices of one region.
pub(super) const MAX_JOBS: usize = 4;
/// Pieces per thread: enough that a thread that was held up leaves little behind.
const PIECES_PER_THREAD: usize = 8;
/// Activation bytes that a piece goes through for each group: they stay in the second-level cache.
const BLOCK_BYTES: usize = 384 << 10;

/// Activation rows as bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rows<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) stride: usize,
    pub(super) count: usize,
}

/// The bytes of a slice of floats.
pub(super) fn bytes_of(x: &[f32]) -> &[u8] {
    // SAFETY: f32 has no padding and any of its bytes is a valid u8.
    unsafe { std::slice::from_raw_parts(x.as_ptr().cast(), size_of_val(x)) }
}

/// What happens to a product.
#[derive(Debug, Clone, Copy)]
pub(super) enum Effect<'a> {
    Set,
    Add,
    Gate { up: Packed<'a>, activation: Activation },
}

/// One matrix and its output.
#[derive(Debug)]
pub(super) struct Job<'a> {
    weights: Packed<'a>,
    tiles: &'static [TileFn],
    up_tiles: &'static [TileFn],
    effect: Effect<'a>,
    out: Shares<'a, f32>,
}

impl<'a> Job<'a> {
    /// `out` has `weights.rows()` elements for each activation row; callers check.
    pub(super) fn new(isa: Isa, weights: Packed<'a>, effect: Effect<'a>, out: &'a mut [f32]) -> Job<'a> {
        let up = if let Effect::Gate { up, .. } = effect { up } else { weights };
        Job {
            weights,
            tiles: tiles(isa, weights.format()),
            up_tiles: tiles(isa, up.format()),
            effect,
            out: Shares::new(out),
        }
    }
}

/// How a job is cut: pieces of `groups` groups by `rows` activation rows.
#[derive(Debug, Clone, Copy, Default)]
struct Cut {
    groups: usize,
    rows: usize,
    /// Pieces along the groups.
    wide: usize,
    /// Number of pieces.
    pieces: usize,
}

impl Cut {
    fn new(job: &Job<'_>, x: Rows<'_>, pieces: usize) -> Cut {
        let all = groups(job.weights.rows());
        let tiles = (BLOCK_BYTES / x.stride / MAX_TILE_ROWS).max(1);
        // Blocks of about equal size, in whole tiles.
        let blocks = x.count.div_ceil(tiles * MAX_TILE_ROWS).max(1);
        let rows = x.count.div_ceil(blocks).next_multiple_of(MAX_TILE_ROWS).min(x.count.max(1));
        let high = x.count.div_ceil(rows);
        let groups = (all * high).div_ceil(pieces).clamp(1, all.max(1));
        let wide = all.div_ceil(groups);
        Cut { groups, rows, wide, pieces: wide * high }
    }
}

/// Runs the jobs on the same activations.
pub(super) fn run(threads: &Threads, isa: Isa, x: Rows<'_>, jobs: &[Option<Job<'_>>]) {
    let total_groups: usize = jobs.iter().flatten().map(|job| groups(job.weights.rows())).sum();
    if total_groups == 0 || x.count == 0 {
        return;
    }
    let mut cuts = [Cut::default(); MAX_JOBS];
    let mut total = 0;
    for (cut, job) in cuts.iter_mut().zip(jobs.iter().flatten()) {
        let share = groups(job.weights.rows()) * threads.count() * PIECES_PER_THREAD;
        *cut = Cut::new(job, x, share.div_ceil(total_groups).max(1));
        total += cut.pieces;
    }
    threads.pieces(total, &|mut piece| {
        for (cut, job) in cuts.iter().zip(jobs.iter().flatten()) {
            if piece < cut.pieces {
                return run_piece(isa, job, *cut, piece, x);
            }
            piece -= cut.pieces;
        }
    });
}

fn run_piece(isa: Isa, job: &Job<'_>, cut: Cut, piece: usize, x: Rows<'_>) {
    let first_row = piece / cut.wide * cut.rows;
    let end_row = (first_row + cut.rows).min(x.count);
    let first_group = piece % cut.wide * cut.groups;
    let end_group = (first_group + cut.groups).min(groups(job.weights.rows()));
    for group in first_group..end_group {
        let mut row = first_row;
        while row < end_row {
            let count = job.tiles.len().min(job.up_tiles.len()).min(end_row - row);
            run_tile(isa, job, group, row, count, x);
            row += count;
        }
    }
}

/// One group against `count` activation rows from `row`.
fn run_tile(isa: Isa, job: &Job<'_>, group: usize, row: usize, count: usize, x: Rows<'_>) {
    let x = Tile {
        weights: &[],
        cols: job.weights.cols(),
        x: &x.bytes[row * x.stride..][..count * x.stride],
        x_stride: x.stride,
    };
    let mut product: TileOut = [[0.0; GROUP_ROWS]; MAX_TILE_ROWS];
    multiply(job.tiles, &job.weights, group, count, x, &mut product);
    if let Effect::Gate { up, activation } = job.effect {
        let mut other: TileOut = [[0.0; GROUP_ROWS]; MAX_TILE_ROWS];
        multiply(job.up_tiles, &up, group, count, x, &mut other);
        gate_lanes(isa, activation, &mut product[..count], &other[..count]);
    }
    let rows = job.weights.rows();
    let width = GROUP_ROWS.min(rows - group * GROUP_ROWS);
    for (index, product) in product[..count].iter().enumerate() {
        // SAFETY: each (group, activation row) is in one piece, each piece is taken once, and this part is that group's
        // outputs for that row.
        let out = unsafe { job.out.part((row + index) * rows + group * GROUP_ROWS, width) };
        if let Effect::Add = job.effect {
            for (out, product) in out.iter_mut().zip(product) {
                *out += product;
            }
        } else if width == GROUP_ROWS {
            out.copy_from_slice(product);
        } else {
            out.copy_from_slice(&product[..width]);
        }
    }
}

fn multiply(tiles: &[TileFn], weights: &Packed<'_>, group: usize, count: usize, x: Tile<'_>, out: &mut TileOut) {
    // SAFETY: the table was made for an `Isa`, which exists only where its features were detected.
    unsafe { tiles[count - 1](&Tile { weights: weights.group(group), ..x }, out) }
}
