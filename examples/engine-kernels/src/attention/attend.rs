//! The public entry to attention: checks, and how the work is shared out.

use super::HOLE;
use super::cache::{KvCache, KvShape, blocks_in_slab};
use super::format::KvFormat;
use super::kernel::MAX_LANES;
use super::piece::{Piece, run_piece};
use crate::error::{KernelError, expect, multiple, product};
use crate::isa::Isa;
use crate::threads::{Shares, Threads};

/// A sequence's part of the cache.
#[derive(Debug, Clone, Copy)]
pub struct KvSequence<'a> {
    /// The block of each [`block_tokens`](super::KvShape::block_tokens) positions; [`HOLE`] for those that are gone.
    pub blocks: &'a [u32],
    /// Positions written so far, those of this batch included.
    pub tokens: u32,
}

/// One query row: a token of a sequence, which attends to the positions up to its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Query {
    /// Index into the sequences.
    pub sequence: u32,
    /// The token's position; less than the sequence's tokens.
    pub position: u32,
}

/// What a layer's attention does.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AttentionParams {
    /// Query heads, a multiple of the key/value heads: heads h * (heads / kv_heads).. share key/value head h.
    pub heads: usize,
    /// Factor of the scores, usually 1 / sqrt(head_dim).
    pub scale: f32,
    /// Attend only to positions above `position - window`; `None` for all.
    pub window: Option<u32>,
    /// Scores become `cap * tanh(score / cap)` after scaling; `None` for as they are.
    pub softcap: Option<f32>,
}

/// The first positions of every sequence, which are seen although they left the window (StreamingLLM's attention sinks).
///
/// Between them and the window lies what is seen no more, and is not counted: a row at position p looks at the sinks as if it
/// were at `p - gap`, where gap is how many positions lie between. Scores depend on distances only, so keys stay as they were
/// written; the queries are what differs.
#[derive(Debug, Clone, Copy)]
pub struct Sinks<'a> {
    /// How many.
    pub count: u32,
    /// The queries as they look at the sinks, rotated for `p - gap`; otherwise those of `q`.
    pub q: &'a [f32],
}

/// The latest tokens of every sequence in f16, beside a cache of smaller elements that has them, too: seen here for as long as they
/// are among the latest, and as they were rounded from then on (KIVI's residual).
#[derive(Debug, Clone, Copy)]
pub struct Ring<'a> {
    /// Where the rings are: f16, one block a sequence, in which position p has slot `p % block_tokens`.
    pub cache: KvCache<'a>,
    /// How many of the latest tokens a token sees here, itself included: at most `block_tokens`, less the rows of one sequence in
    /// this call, and one.
    pub latest: u32,
    /// The ring of each sequence.
    pub sequences: &'a [RingOf<'a>],
}

/// One sequence's ring.
#[derive(Debug, Clone, Copy)]
pub struct RingOf<'a> {
    /// Its block; none, or [`HOLE`], where the sequence has no ring.
    pub block: &'a [u32],
    /// The first position that is in it: those before were never written here.
    pub start: u32,
}

/// Where a row looks besides the cache.
#[derive(Debug, Clone, Copy, Default)]
pub struct Views<'a> {
    /// The first positions, wherever the window is.
    pub sinks: Option<Sinks<'a>>,
    /// The latest positions in f16.
    pub ring: Option<Ring<'a>>,
}

/// [`attend_with`], without views.
///
/// # Errors
///
/// As there.
#[allow(clippy::too_many_arguments, reason = "a kernel's arguments are its shapes")]
pub fn attend(
    threads: &Threads,
    isa: Isa,
    params: AttentionParams,
    cache: KvCache<'_>,
    sequences: &[KvSequence<'_>],
    queries: &[Query],
    q: &[f32],
    out: &mut [f32],
) -> Result<(), KernelError> {
    attend_with(threads, isa, params, Views::default(), cache, sequences, queries, q, out)
}

/// Attention of `queries.len()` rows: `q` and `out` are rows of `heads` x `head_dim` f32.
///
/// A row's result depends on its own query, its position and its sequence's cells alone, bit for bit: neither on the
/// other rows, nor on the threads. Rows of one sequence in a run of increasing positions are handled together, which is
/// what makes a prefill fast. A row that can see no position (all holes) gives zeros.
///
/// # Errors
///
/// [`KernelError`] where a length is wrong, or a query, a block table or a block number points outside of what it
/// indexes; `out` is then untouched.
#[allow(clippy::too_many_arguments, reason = "a kernel's arguments are its shapes")]
pub fn attend_with(
    threads: &Threads,
    isa: Isa,
    params: AttentionParams,
    views: Views<'_>,
    cache: KvCache<'_>,
    sequences: &[KvSequence<'_>],
    queries: &[Query],
    q: &[f32],
    out: &mut [f32],
) -> Result<(), KernelError> {
    check(params, cache, sequences, queries)?;
    let (shape, heads) = (cache.shape, params.heads);
    let row = product("query row", heads, shape.head_dim)?;
    expect("query rows", product("query rows", queries.len(), row)?, q.len())?;
    expect("attention output", q.len(), out.len())?;
    if let Some(sinks) = views.sinks {
        expect("query rows for the sinks", q.len(), sinks.q.len())?;
    }
    if let Some(ring) = &views.ring {
        check_ring(ring, cache, sequences)?;
    }
    if queries.is_empty() {
        return Ok(());
    }

    let group = heads / shape.kv_heads;
    let cut = Cut::new(threads.count(), queries.len(), shape.kv_heads, group);
    let shares = Shares::new(out);
    threads.pieces(cut.pieces(), &|piece| {
        // Later rows see more positions: they go first, so that the threads end together.
        let tile = cut.tiles - 1 - piece / cut.columns();
        let (kv_head, part) = (piece % cut.columns() / cut.parts, piece % cut.columns() % cut.parts);
        let first_row = tile * cut.rows;
        let end_row = (first_row + cut.rows).min(queries.len());
        let first_head = kv_head * group + part * cut.part_heads;
        let end_head = (first_head + cut.part_heads).min((kv_head + 1) * group);
        let mut row = first_row;
        while row < end_row && first_head < end_head {
            // A run of rows of one sequence.
            let index = queries[row].sequence;
            let count = queries[row..end_row].iter().take_while(|query| query.sequence == index).count();
            let piece = Piece {
                params,
                views,
                cache,
                sequence: sequences[index as usize],
                ring: views.ring.map(|ring| ring.sequences[index as usize]),
                kv_head,
                queries,
                rows: row..row + count,
                heads: first_head..end_head,
                q,
                out: shares,
            };
            run_piece(isa, &piece);
            row += count;
        }
    });
    Ok(())
}

fn check(
    params: AttentionParams,
    cache: KvCache<'_>,
    sequences: &[KvSequence<'_>],
    queries: &[Query],
) -> Result<(), KernelError> {
    let elements = cache.shape.check()?;
    multiple("query heads", cache.shape.kv_heads, params.heads)?;
    let in_slab = blocks_in_slab(cache.slab.len(), cache.base, cache.stride, elements)?;
    for sequence in sequences {
        let needed = (sequence.tokens as usize).div_ceil(cache.shape.block_tokens);
        if needed > sequence.blocks.len() {
            let (expected, found) = (needed as u64, sequence.blocks.len() as u64);
            return Err(KernelError::Shape { what: "block table", expected, found });
        }
        if let Some(block) = sequence.blocks[..needed].iter().find(|b| **b != HOLE && **b as usize >= in_slab) {
            return Err(KernelError::Index { what: "block", limit: in_slab as u64, found: u64::from(*block) });
        }
    }
    for query in queries {
        let Some(sequence) = sequences.get(query.sequence as usize) else {
            let (limit, found) = (sequences.len() as u64, u64::from(query.sequence));
            return Err(KernelError::Index { what: "sequence", limit, found });
        };
        if query.position >= sequence.tokens {
            let (limit, found) = (u64::from(sequence.tokens), u64::from(query.position));
            return Err(KernelError::Index { what: "position", limit, found });
        }
    }
    Ok(())
}

fn check_ring(ring: &Ring<'_>, cache: KvCache<'_>, sequences: &[KvSequence<'_>]) -> Result<(), KernelError> {
    let shape = ring.cache.shape;
    let elements = shape.check()?;
    if shape != (KvShape { block_tokens: shape.block_tokens, format: KvFormat::F16, ..cache.shape }) {
        let (expected, found) = (cache.shape.head_dim as u64, shape.head_dim as u64);
        return Err(KernelError::Shape { what: "heads of the ring (f16)", expected, found });
    }
    if ring.latest as usize > shape.block_tokens {
        let (limit, found) = (shape.block_tokens as u64 + 1, u64::from(ring.latest));
        return Err(KernelError::Index { what: "latest tokens of the ring", limit, found });
    }
    expect("rings", sequences.len(), ring.sequences.len())?;
    let in_slab = blocks_in_slab(ring.cache.slab.len(), ring.cache.base, ring.cache.stride, elements)?;
    let blocks = ring.sequences.iter().filter_map(|of| of.block.first());
    match blocks.copied().find(|block| *block != HOLE && *block as usize >= in_slab) {
        None => Ok(()),
        Some(block) => Err(KernelError::Index { what: "ring", limit: in_slab as u64, found: u64::from(block) }),
    }
}

/// How the rows and heads are cut into pieces.
#[derive(Debug, Clone, Copy)]
struct Cut {
    /// Query rows of a piece.
    rows: usize,
    /// Pieces along the rows.
    tiles: usize,
    kv_heads: usize,
    /// Pieces that the heads of one key/value head are cut into.
    parts: usize,
    /// Heads of such a piece.
    part_heads: usize,
}

impl Cut {
    fn new(threads: usize, rows: usize, kv_heads: usize, group: usize) -> Cut {
        let rows_at_once = (MAX_LANES / group).max(1);
        let mut best = Cut { rows: rows_at_once.min(rows), tiles: 0, kv_heads, parts: 1, part_heads: group };
        best.tiles = rows.div_ceil(best.rows);
        if best.pieces() >= 4 * threads || threads == 1 {
            return best;
        }
        // Little to share: cut finer, by rows and by heads, weighing what the busiest thread has to do. A piece costs one
        // conversion of the cache, about as much as one query lane.
        let cost = |cut: &Cut| cut.pieces().div_ceil(threads) * (1 + cut.rows * cut.part_heads);
        for rows_of_piece in 1..=best.rows {
            for parts in 1..=group {
                let part_heads = group.div_ceil(parts);
                let cut = Cut {
                    rows: rows_of_piece,
                    tiles: rows.div_ceil(rows_of_piece),
                    kv_heads,
                    parts: group.div_ceil(part_heads),
                    part_heads,
                };
                if cost(&cut) < cost(&best) {
                    best = cut;
                }
            }
        }
        best
    }

    /// Pieces of one tile of rows.
    fn columns(&self) -> usize {
        self.kv_heads * self.parts
    }

    fn pieces(&self) -> usize {
        self.tiles * self.columns()
    }
}
