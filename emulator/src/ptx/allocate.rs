//! Places for registers.
//!
//! A text names thousands of registers a kernel, each written once. What is never alive at the same time shares a place, so
//! that those of a warp fit a processor's cache. It is right lane by lane, and so it is right however lanes diverge.

use super::{
    code::{CONSTANT, Code, Inst, Kind, NONE, Op},
    parse::body::{Body, Raw},
};

/// Gives each register its place.
pub(super) fn allocate(body: Body<'_>) -> Code {
    let mut raws = body.raws;
    let mut taken = [0; 3];
    for (class, taken) in taken.iter_mut().enumerate() {
        let places = places(&raws, class, body.counts[class], taken);
        for raw in &mut raws {
            if class == 2 && raw.guard != NONE {
                raw.guard = places[raw.guard as usize];
            }
            for (kind, number) in &mut raw.operands {
                if class_of(*kind) == class && *number & CONSTANT == 0 {
                    *number = places[*number as usize];
                }
            }
        }
    }
    let instructions = raws.into_iter().map(|raw| {
        let mut r = [NONE; 5];
        for (place, (_, number)) in r.iter_mut().zip(&raw.operands) {
            *place = *number;
        }
        let more = if raw.operands.len() > 5 { raw.operands.iter().map(|it| it.1).collect() } else { Box::default() };
        Inst { op: raw.op, guard: raw.guard, negated: raw.negated, r, more, place: raw.place }
    });
    Code {
        instructions: instructions.collect(),
        constants32: body.constants32,
        constants64: body.constants64,
        registers32: taken[0],
        registers64: taken[1],
        predicates: taken[2],
    }
}

fn class_of(kind: Kind) -> usize {
    match kind {
        Kind::Use32 | Kind::Def32 => 0,
        Kind::Use64 | Kind::Def64 => 1,
        Kind::UseP | Kind::DefP => 2,
    }
}

/// Calls with the registers of a class that an instruction uses (false) and writes (true), uses first. What is written
/// under a predicate keeps its old value elsewhere, so it is used too.
fn visit(raw: &Raw, class: usize, mut each: impl FnMut(u32, bool)) {
    if class == 2 && raw.guard != NONE {
        each(raw.guard, false);
    }
    let mine = || raw.operands.iter().filter(move |it| class_of(it.0) == class && it.1 & CONSTANT == 0);
    let written = |kind| matches!(kind, Kind::Def32 | Kind::Def64 | Kind::DefP);
    for (kind, number) in mine() {
        if !written(*kind) || raw.guard != NONE {
            each(*number, false);
        }
    }
    for (kind, number) in mine() {
        if written(*kind) {
            each(*number, true);
        }
    }
}

/// Straight runs of instructions: first, one past the last, and the first of those that may follow.
struct Run {
    first: usize,
    end: usize,
    next: Vec<usize>,
}

fn runs(raws: &[Raw]) -> Vec<Run> {
    let mut starts = vec![false; raws.len() + 1];
    starts[0] = true;
    for (at, raw) in raws.iter().enumerate() {
        if let Op::Branch(target) = raw.op {
            starts[target as usize] = true;
            starts[at + 1] = true;
        } else if raw.op == Op::Exit {
            starts[at + 1] = true;
        }
    }
    starts[raws.len()] = true;
    let firsts: Vec<_> = (0..=raws.len()).filter(|at| starts[*at]).collect();
    let run_at = |at: usize| firsts.binary_search(&at).ok().filter(|it| *it + 1 < firsts.len());
    firsts
        .windows(2)
        .map(|it| {
            let last = &raws[it[1] - 1];
            let falls = last.guard != NONE || !matches!(last.op, Op::Branch(_) | Op::Exit);
            let mut next = Vec::new();
            next.extend(run_at(it[1]).filter(|_| falls));
            if let Op::Branch(target) = last.op {
                next.extend(run_at(target as usize));
            }
            Run { first: it[0], end: it[1], next }
        })
        .collect()
}

/// Sets of registers, one a run.
struct Sets {
    words: usize,
    bits: Vec<u64>,
}

impl Sets {
    fn new(runs: usize, registers: u32) -> Self {
        let words = (registers as usize).div_ceil(64);
        Self { words, bits: vec![0; words * runs] }
    }

    fn of(&self, run: usize) -> &[u64] {
        &self.bits[run * self.words..(run + 1) * self.words]
    }

    fn has(&self, run: usize, register: u32) -> bool {
        self.of(run)[register as usize / 64] >> (register % 64) & 1 != 0
    }

    fn add(&mut self, run: usize, register: u32) {
        self.bits[run * self.words + register as usize / 64] |= 1 << (register % 64);
    }
}

/// What is alive where each run begins, and where it ends.
fn alive(raws: &[Raw], runs: &[Run], class: usize, registers: u32) -> (Sets, Sets) {
    let (mut used, mut written) = (Sets::new(runs.len(), registers), Sets::new(runs.len(), registers));
    for (at, run) in runs.iter().enumerate() {
        for raw in &raws[run.first..run.end] {
            visit(raw, class, |register, writes| {
                if writes {
                    written.add(at, register);
                } else if !written.has(at, register) {
                    used.add(at, register);
                }
            });
        }
    }
    let (mut begin, mut end) = (used, Sets::new(runs.len(), registers));
    let words = begin.words;
    loop {
        let mut changed = false;
        for at in (0..runs.len()).rev() {
            for word in 0..words {
                let out = runs[at].next.iter().fold(0, |all, next| all | begin.bits[next * words + word]);
                end.bits[at * words + word] = out;
                let place = at * words + word;
                let new = begin.bits[place] | out & !written.bits[place];
                changed |= new != begin.bits[place];
                begin.bits[place] = new;
            }
        }
        if !changed {
            return (begin, end);
        }
    }
}

/// The place of each register of a class: by the first and the last instruction between which it is alive.
fn places(raws: &[Raw], class: usize, registers: u32, taken: &mut u32) -> Vec<u32> {
    let runs = runs(raws);
    let (begin, end) = alive(raws, &runs, class, registers);
    let mut spans = vec![(usize::MAX, 0); registers as usize];
    let mut touch = |register: usize, at: usize| {
        let span = &mut spans[register];
        *span = (span.0.min(at), span.1.max(at));
    };
    for (index, run) in runs.iter().enumerate() {
        for (sets, at) in [(&begin, run.first), (&end, run.end)] {
            for (word, bits) in sets.of(index).iter().enumerate() {
                let mut bits = *bits;
                while bits != 0 {
                    touch(word * 64 + bits.trailing_zeros() as usize, at);
                    bits &= bits - 1;
                }
            }
        }
        for (at, raw) in raws[run.first..run.end].iter().enumerate() {
            visit(raw, class, |register, _| touch(register as usize, run.first + at));
        }
    }
    let mut order: Vec<_> = (0..registers as usize).filter(|it| spans[*it].0 != usize::MAX).collect();
    order.sort_by_key(|it| spans[*it].0);
    let mut places = vec![0; registers as usize];
    let mut free = Vec::new();
    let mut busy = std::collections::BinaryHeap::new();
    for register in order {
        let (first, last) = spans[register];
        while let Some(std::cmp::Reverse((over, place))) = busy.peek().copied() {
            // An instruction reads before it writes only lane by lane: a place is free behind its last reader.
            if over >= first {
                break;
            }
            busy.pop();
            free.push(place);
        }
        let place = free.pop().unwrap_or_else(|| {
            *taken += 1;
            *taken - 1
        });
        busy.push(std::cmp::Reverse((last, place)));
        places[register] = place;
    }
    places
}
