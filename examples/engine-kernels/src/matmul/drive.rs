//! Cuts matmuls into pieces and runs them on the threads.

use super::tile::{MAX_TILE_ROWS, Tile, TileFn, TileOut, tiles};
use crate::isa::Isa;
use crate::ops::{Activation, gate_lanes};
use crate::packed::{GROUP_ROWS, Packed, groups};
use crate::quant::{RECORD_BYTES, RECORD_COLS, quantize};
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

/// Where products go.
#[derive(Debug)]
pub(super) enum Output<'a> {
    /// Overwrites rows of `weights.rows()` elements.
    Set(Shares<'a, f32>),
    /// Adds to them.
    Add(Shares<'a, f32>),
    /// Quantises: rows of records, one for each two groups.
    Quantize(Shares<'a, u8>),
}

/// One matrix, or two whose products are gated, and the output.
#[derive(Debug)]
pub(super) struct Job<'a> {
    weights: Packed<'a>,
    tiles: &'static [TileFn],
    up: Option<(Packed<'a>, &'static [TileFn], Activation)>,
    out: Output<'a>,
}

impl<'a> Job<'a> {
    /// The output has a row of `weights.rows()` elements for each activation row, and `up` has the shape of `weights`;
    /// callers check. Where the output is quantised, they also make sure that the rows fill records.
    pub(super) fn new(isa: Isa, weights: Packed<'a>, up: Option<(Packed<'a>, Activation)>, out: Output<'a>) -> Job<'a> {
        let up = up.map(|(up, activation)| (up, tiles(isa, up.format()), activation));
        Job { weights, tiles: tiles(isa, weights.format()), up, out }
    }

    /// Groups that must not be cut apart.
    fn unit(&self) -> usize {
        match self.out {
            Output::Quantize(_) => RECORD_COLS / GROUP_ROWS,
            _ => 1,
        }
    }

    /// The most activation rows of a tile.
    fn tile_rows(&self) -> usize {
        self.up.map_or(usize::MAX, |(_, tiles, _)| tiles.len()).min(self.tiles.len())
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
        let groups = (all * high).div_ceil(pieces).clamp(1, all.max(1)).next_multiple_of(job.unit());
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
    let mut products = [const { TileOut::new() }; RECORD_COLS / GROUP_ROWS];
    for group in (first_group..end_group).step_by(job.unit()) {
        let mut row = first_row;
        while row < end_row {
            // Tiles of about equal height.
            let left = end_row - row;
            let count = left.div_ceil(left.div_ceil(job.tile_rows()));
            let x = &x.bytes[row * x.stride..][..count * x.stride];
            for (offset, product) in products[..job.unit()].iter_mut().enumerate() {
                multiply(isa, job, group + offset, count, x, product);
            }
            store(isa, job, group, row, count, &products);
            row += count;
        }
    }
}

/// One group's products with `count` activation rows.
fn multiply(isa: Isa, job: &Job<'_>, group: usize, count: usize, x: &[u8], out: &mut TileOut) {
    let tile = |weights: &Packed<'_>, tiles: &[TileFn], out: &mut TileOut| {
        let tile = Tile { weights: weights.group(group), cols: weights.cols(), x, x_stride: x.len() / count };
        // SAFETY: the table was made for an `Isa`, which exists only where its features were detected.
        unsafe { tiles[count - 1](&tile, out) }
    };
    tile(&job.weights, job.tiles, out);
    if let Some((up, tiles, activation)) = &job.up {
        let mut other = TileOut::new();
        tile(up, tiles, &mut other);
        gate_lanes(isa, *activation, &mut out.0[..count], &other.0[..count]);
    }
}

/// Puts the products of `group` (and the next one, where outputs are quantised) and `count` activation rows from `row`
/// where they belong.
fn store(isa: Isa, job: &Job<'_>, group: usize, row: usize, count: usize, products: &[TileOut; 2]) {
    let rows = job.weights.rows();
    let width = GROUP_ROWS.min(rows - group * GROUP_ROWS);
    for index in 0..count {
        let product = &products[0].0[index];
        let at = (row + index) * rows + group * GROUP_ROWS;
        match &job.out {
            // SAFETY: each (group, activation row) is in one piece, each piece is run once, and this part is that group's
            // outputs for that row.
            Output::Set(out) => match unsafe { out.part(at, width) }.as_mut_array::<GROUP_ROWS>() {
                Some(out) => *out = *product,
                // SAFETY: as above.
                None => unsafe { out.part(at, width) }.copy_from_slice(&product[..width]),
            },
            Output::Add(out) => {
                // SAFETY: as above.
                let out = unsafe { out.part(at, width) };
                out.iter_mut().zip(product).for_each(|(out, product)| *out += product);
            }
            Output::Quantize(out) => {
                let mut block = [0f32; RECORD_COLS];
                block[..GROUP_ROWS].copy_from_slice(product);
                block[GROUP_ROWS..].copy_from_slice(&products[1].0[index]);
                // SAFETY: as above, for two groups; they are never cut apart.
                quantize(isa, &block, unsafe { out.part(at / RECORD_COLS * RECORD_BYTES, RECORD_BYTES) });
            }
        }
    }
}
