//! Algorithms for the products of prompts, chosen and their kernels loaded while an engine loads.

use std::ops::RangeInclusive;

use memtier::{Bytes, LaunchError};

use super::{
    CublasLt, LtError, LtPlans, LtShape,
    product::Operation,
    table::{Plan, Table},
};
use crate::{
    graph::bake,
    queue::{CudaStream, while_doing},
};

/// The most rows of a product: a megabyte of host memory for each shape.
const MOST_ROWS: usize = 1 << 20;

/// The rows that plans are made for. No rows want no product.
fn wanted(rows: &RangeInclusive<usize>) -> Result<RangeInclusive<usize>, LtError> {
    match *rows.end() {
        most if most > MOST_ROWS => Err(LtError::TooManyRows { rows: most, most: MOST_ROWS }),
        most => Ok((*rows.start()).max(1)..=most),
    }
}

/// Numbers of rows that algorithms are chosen for: each is used for what lies between it and the one before.
fn steps(rows: RangeInclusive<usize>) -> Vec<usize> {
    let (least, most) = (*rows.start(), *rows.end());
    let powers = (0..usize::BITS).flat_map(|power| [1usize << power, (1usize << power) / 2 * 3]);
    let mut steps: Vec<_> = powers.filter(|step| (least..most).contains(step)).collect();
    steps.sort_unstable();
    steps.dedup();
    if least <= most && most > 0 {
        steps.push(most);
    }
    steps
}

impl CublasLt {
    /// Chooses algorithms for products of `rows` rows with matrices of these shapes, each using at most `workspace` bytes, and loads their
    /// kernels. To be called before serving: a launch chooses nothing and takes no memory. Sums are added in one order, so
    /// the same inputs give the same bits.
    ///
    /// An algorithm is chosen for each power of two of rows, and for what is in the middle between two. Shapes that the library
    /// has none for are [refused](LtPlans::refused), the others served. Takes a byte of host memory for each number of rows and
    /// shape: a megabyte a shape at most, since products of more than 1,048,576 rows are not planned for.
    ///
    /// # Errors
    /// [`LtError::TooManyRows`]; [`LtError::NoAlgorithm`] when it has none for any shape; [`LtError::Call`] and [`LtError::Driver`] when a call fails.
    pub fn plans(&self, shapes: &[LtShape], rows: RangeInclusive<usize>, workspace: Bytes) -> Result<LtPlans, LtError> {
        let rows = wanted(&rows)?;
        let operation = self.operation()?;
        let (mut tables, mut refused) = (Vec::<Table>::new(), Vec::new());
        for shape in shapes {
            if tables.iter().any(|table| table.shape == *shape) {
                continue;
            }
            match self.table(&operation, *shape, rows.clone(), workspace) {
                Ok(table) if table.plans.is_empty() => {}
                Ok(table) => tables.push(table),
                Err(error @ LtError::NoAlgorithm { .. }) => refused.push(error),
                Err(error) => return Err(error),
            }
        }
        match refused.first() {
            Some(error) if tables.is_empty() => Err(error.clone()),
            _ => Ok(LtPlans::new(self.clone(), operation, (tables, *rows.start()), refused)),
        }
    }

    /// The algorithms of one shape, their kernels loaded. Where one cannot be recorded (no memory is at its addresses, a
    /// workspace that it would clear among them), all are chosen again among those that use no workspace.
    fn table(
        &self,
        operation: &Operation,
        shape: LtShape,
        rows: RangeInclusive<usize>,
        workspace: Bytes,
    ) -> Result<Table, LtError> {
        let within = |workspace: Bytes| {
            let choose = |rows| self.choose(operation, shape, rows, workspace).map(|choice| Plan { rows, choice });
            let plans = steps(rows.clone()).into_iter().map(choose).collect::<Result<Vec<_>, _>>()?;
            Ok::<_, LtError>(Table::new(shape, plans, rows.clone()))
        };
        for workspace in [workspace, Bytes::ZERO] {
            let table = within(workspace)?;
            if self.load(operation, &table, *rows.start())? {
                table.recorded(*rows.start());
                return Ok(table);
            }
        }
        let LtShape { columns, outputs, .. } = shape;
        Err(LtError::NoAlgorithm { rows: *rows.start(), columns, outputs, workspace: Bytes::ZERO })
    }

    /// Loads the kernels of a table: each product is recorded, for the most and for the fewest rows, into a graph that never runs.
    /// `false` where the library, or the driver, refuses to record one.
    fn load(&self, operation: &Operation, table: &Table, least: usize) -> Result<bool, LtError> {
        let stream = CudaStream::open(&self.0.context)?;
        // Nothing runs, so nothing is at the addresses.
        let nowhere = [1 << 20; 4];
        let recorded = bake(&stream, &mut || {
            let all = stream.enqueue(|raw| {
                // SAFETY: the stream records; the graph is dropped and never runs, so no address is looked at.
                table.ends(least).try_for_each(|(rows, choice)| unsafe {
                    self.multiply(operation, choice, (table.shape, rows), nowhere, raw.cast())
                })
            });
            all.map_err(|error| LaunchError::Device(while_doing("recording cuBLASLt")(error)))
        });
        Ok(recorded.is_ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_remembered_of_rows_has_an_end() {
        assert_eq!(wanted(&(0..=8192)).unwrap(), 1..=8192);
        assert_eq!(wanted(&(65..=MOST_ROWS)).unwrap(), 65..=MOST_ROWS);
        let error = wanted(&(1..=usize::MAX)).unwrap_err();
        assert!(matches!(error, LtError::TooManyRows { rows: usize::MAX, most: MOST_ROWS }), "{error}");
        assert!(error.to_string().contains("at most 1048576"), "{error}");
    }

    #[test]
    fn every_number_of_rows_has_a_step_that_is_at_most_half_more() {
        let steps = steps(128..=8192);
        assert_eq!(steps[..4], [128, 192, 256, 384]);
        assert_eq!(steps.last(), Some(&8192));
        for rows in 128..=8192 {
            let step = steps.iter().find(|step| rows <= **step).unwrap();
            assert!(*step <= rows * 3 / 2, "{rows}: {step}");
        }
        assert_eq!(super::steps(128..=128), [128]);
        assert_eq!(super::steps(129..=140), [140]);
        assert!(super::steps(RangeInclusive::new(128, 64)).is_empty());
    }
}
