//! What the library has for one shape of matrices: an algorithm for each step of rows, and what it says to every number of them.

use std::{
    ops::RangeInclusive,
    sync::atomic::{AtomicU8, Ordering},
};

use super::{Choice, LtError};

/// What becomes of a product.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LtOutput {
    /// Stored in bf16.
    Bf16,
    /// Stored in f32.
    F32,
    /// Added to f32 that is there.
    AddF32,
}

/// Matrices of one shape, and what becomes of products with them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LtShape {
    /// Elements of a row of inputs.
    pub columns: usize,
    /// Outputs: rows of the matrix, or of several that lie one behind the other in memory.
    pub outputs: usize,
    /// What becomes of them.
    pub output: LtOutput,
}

/// An algorithm for up to so many rows.
pub(super) struct Plan {
    pub(super) rows: usize,
    pub(super) choice: Choice,
}

pub(super) struct Table {
    pub(super) shape: LtShape,
    /// By rows.
    pub(super) plans: Vec<Plan>,
    /// What the library says to each number of rows, from the least on, with the algorithm that was chosen for at least as many.
    says: Box<[AtomicU8]>,
}

/// Nobody asked yet.
const UNKNOWN: u8 = 0;
const TAKES: u8 = 1;
const REFUSES: u8 = 2;

impl Table {
    pub(super) fn new(shape: LtShape, plans: Vec<Plan>, rows: RangeInclusive<usize>) -> Self {
        let says = rows.map(|_| AtomicU8::new(UNKNOWN)).collect();
        Table { shape, plans, says }
    }

    /// Each plan with the fewest and the most rows that it is for, counted from the least.
    pub(super) fn ends(&self, least: usize) -> impl Iterator<Item = (usize, &Choice)> {
        let mut fewest = least;
        self.plans.iter().flat_map(move |Plan { rows, choice }| {
            let first = std::mem::replace(&mut fewest, rows + 1);
            [(first, choice), (*rows, choice)]
        })
    }

    /// What was recorded is taken, whatever the library says when it is asked: it is more careful than it has to be.
    pub(super) fn recorded(&self, least: usize) {
        for (rows, _) in self.ends(least) {
            if let Some(says) = self.says.get(rows - least) {
                says.store(TAKES, Ordering::Relaxed);
            }
        }
    }

    /// Whether the library takes so many rows: `ask`ed the first time. An answer that is an error is none.
    pub(super) fn takes(&self, above: usize, ask: impl FnOnce() -> Result<bool, LtError>) -> bool {
        let Some(says) = self.says.get(above) else { return false };
        match says.load(Ordering::Relaxed) {
            UNKNOWN => {
                let answer = if ask().unwrap_or(false) { TAKES } else { REFUSES };
                // A launch that was refused meanwhile says more.
                let known = says.compare_exchange(UNKNOWN, answer, Ordering::Relaxed, Ordering::Relaxed);
                known.map_or_else(|said| said, |_| answer) == TAKES
            }
            said => said == TAKES,
        }
    }

    pub(super) fn refuse(&self, above: usize) {
        if let Some(says) = self.says.get(above) {
            says.store(REFUSES, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_that_were_recorded_are_not_asked_for_and_others_once() {
        let choice = Choice { algorithm: [0; 8], workspace: 0, state: 0, waves: 0.0, reserved: [0; 4] };
        let plans = [96, 128].map(|rows| Plan { rows, choice }).into();
        let shape = LtShape { columns: 64, outputs: 64, output: LtOutput::Bf16 };
        let table = Table::new(shape, plans, 65..=128);
        table.recorded(65);
        for rows in [65, 96, 97, 128] {
            assert!(table.takes(rows - 65, || unreachable!("{rows} rows were recorded")));
        }
        assert!(!table.takes(70 - 65, || Ok(false)) && !table.takes(70 - 65, || unreachable!("it was asked before")));
        assert!(table.takes(71 - 65, || Ok(true)));
        // A launch that is refused says more than a recording.
        table.refuse(0);
        assert!(!table.takes(0, || unreachable!("it was refused")));
    }

    #[test]
    fn the_library_is_asked_once_for_each_number_of_rows() {
        let shape = LtShape { columns: 64, outputs: 64, output: LtOutput::Bf16 };
        let table = Table::new(shape, Vec::new(), 65..=68);
        assert!(table.takes(0, || Ok(true)) && table.takes(0, || unreachable!()));
        // What it refuses is left to others, and so is what it has no word for.
        assert!(!table.takes(1, || Ok(false)) && !table.takes(1, || unreachable!()));
        assert!(!table.takes(2, || Err(LtError::Call { call: "cublasLtMatmulAlgoCheck", status: 1 })));
        assert!(!table.takes(4, || unreachable!()) && table.takes(3, || Ok(true)));
        // A launch that it refuses all the same.
        table.refuse(0);
        assert!(!table.takes(0, || unreachable!()));
    }
}
