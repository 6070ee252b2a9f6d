//! The inputs of one pass, gathered from the requests.

use std::ops::Range;

use super::Row;
use crate::{
    config::Settings,
    sequence::{Sampling, Sequence},
};

/// The inputs of one pass, on the host. Sized once.
pub(super) struct Batch {
    pub(super) tokens: Vec<u32>,
    pub(super) rows: Vec<u32>,
    pub(super) positions: Vec<u32>,
    pub(super) lengths: Vec<u32>,
    pub(super) starts: Vec<u32>,
    pub(super) picks: Vec<u32>,
    /// Temperature and top-p of each row.
    pub(super) sampling: Vec<f32>,
    /// Top-k and the seed of each row.
    pub(super) seeds: Vec<u32>,
    /// Whether the workspace has those of all rows.
    pub(super) is_sampling_there: bool,
    pub(super) sampled: Vec<u32>,
    /// Tokens, the first ones, of answers that go on.
    pub(super) decodes: usize,
    /// What each request has of the pass.
    pub(super) shares: Vec<Share>,
}

/// A request's part of a pass.
#[derive(Clone, Copy)]
pub(super) struct Share {
    pub(super) row: Row,
    /// Its tokens in the pass, drafts included.
    pub(super) count: usize,
    /// Of those, how many are guesses.
    pub(super) drafts: usize,
    /// Whether it gets a new token.
    pub(super) complete: bool,
    /// Whether it ended when its token was told.
    pub(super) gone: bool,
}

impl Batch {
    pub(super) fn new(settings: &Settings) -> Self {
        let (rows, picks) = (settings.max_batch, settings.max_batch * (1 + settings.draft));
        let tokens = settings.prefill_chunk.max(picks);
        Batch {
            tokens: Vec::with_capacity(tokens),
            rows: Vec::with_capacity(tokens),
            positions: Vec::with_capacity(tokens),
            lengths: vec![0; rows],
            starts: vec![0; rows],
            picks: Vec::with_capacity(picks),
            sampling: vec![0.0; 2 * rows],
            seeds: vec![0; 3 * rows],
            is_sampling_there: false,
            sampled: vec![0; picks],
            decodes: 0,
            shares: Vec::with_capacity(rows),
        }
    }

    pub(super) fn clear(&mut self) {
        for list in [&mut self.tokens, &mut self.rows, &mut self.positions, &mut self.picks] {
            list.clear();
        }
        self.shares.clear();
        self.decodes = 0;
    }

    /// Takes `count` pending tokens of a request into the pass; its last one wants logits if nothing is left.
    pub(super) fn add(&mut self, row: Row, sequence: &Sequence, count: usize) {
        let range = sequence.done..sequence.done + count;
        self.tokens.extend_from_slice(&sequence.tokens[range.clone()]);
        self.rows.extend(range.clone().map(|_| row as u32));
        self.positions.extend(range.clone().map(|position| position as u32));
        self.lengths[row] = range.end as u32;
        self.starts[row] = sequence.ring_start as u32;
        let complete = range.end == sequence.tokens.len();
        if complete {
            self.picks.push(self.tokens.len() as u32 - 1);
        }
        self.set_sampling(row, sequence.sampling);
        self.shares.push(Share { row, count, drafts: 0, complete, gone: false });
    }

    /// Takes a request's last token and what it guesses to come: each wants logits.
    pub(super) fn add_drafted(&mut self, row: Row, sequence: &Sequence, guesses: Range<usize>) {
        self.add(row, sequence, 1);
        let drafts = guesses.len();
        for guess in guesses {
            let position = self.lengths[row];
            self.tokens.push(sequence.tokens[guess]);
            self.rows.push(row as u32);
            self.positions.push(position);
            self.lengths[row] += 1;
            self.picks.push(self.tokens.len() as u32 - 1);
        }
        if let Some(share) = self.shares.last_mut() {
            (share.count, share.drafts) = (1 + drafts, drafts);
        }
    }

    /// How the request in this row is sampled. Most passes find it there already.
    fn set_sampling(&mut self, row: Row, Sampling { temperature, top_p, top_k, seed }: Sampling) {
        let (how, seeds) = ([temperature, top_p], [top_k, seed as u32, (seed >> 32) as u32]);
        let (at, at_seeds) = (&mut self.sampling[2 * row..2 * row + 2], &mut self.seeds[3 * row..3 * row + 3]);
        if *at != how || *at_seeds != seeds {
            at.copy_from_slice(&how);
            at_seeds.copy_from_slice(&seeds);
            self.is_sampling_there = false;
        }
    }
}
