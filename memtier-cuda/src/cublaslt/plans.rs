//! Products of prompts: any number of rows, with algorithms that were chosen while the engine loads.

use std::{
    ops::RangeInclusive,
    sync::{
        Arc,
        atomic::{AtomicU8, AtomicU64, Ordering},
    },
};

use memtier::{
    Bytes, Cuda, Fits, Input, Is, LaunchError, Place, Recorder, SameElement, StableSpan, StableSpanMut, bf16,
};

use super::{
    Choice, CublasLt, LtError,
    product::{Operation, aligned, fits, stream_of},
};
use crate::{
    error::DriverError,
    graph::bake,
    kernels::Matrix,
    queue::{CudaStream, while_doing},
};

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
struct Plan {
    rows: usize,
    choice: Choice,
}

struct Table {
    shape: LtShape,
    /// By rows.
    plans: Vec<Plan>,
    /// What the library says to each number of rows, from the least on, with the algorithm that was chosen for at least as many.
    says: Box<[AtomicU8]>,
}

/// Nobody asked yet.
const UNKNOWN: u8 = 0;
const TAKES: u8 = 1;
const REFUSES: u8 = 2;

impl Table {
    fn new(shape: LtShape, plans: Vec<Plan>, rows: RangeInclusive<usize>) -> Self {
        let says = rows.map(|_| AtomicU8::new(UNKNOWN)).collect();
        Table { shape, plans, says }
    }

    /// Each plan with the fewest and the most rows that it is for, counted from the least.
    fn ends(&self, least: usize) -> impl Iterator<Item = (usize, &Choice)> {
        let mut fewest = least;
        self.plans.iter().flat_map(move |Plan { rows, choice }| {
            let first = std::mem::replace(&mut fewest, rows + 1);
            [(first, choice), (*rows, choice)]
        })
    }

    /// What was recorded is taken, whatever the library says when it is asked: it is more careful than it has to be.
    fn recorded(&self, least: usize) {
        for (rows, _) in self.ends(least) {
            if let Some(says) = self.says.get(rows - least) {
                says.store(TAKES, Ordering::Relaxed);
            }
        }
    }

    /// Whether the library takes so many rows: `ask`ed the first time. An answer that is an error is none.
    fn takes(&self, above: usize, ask: impl FnOnce() -> Result<bool, LtError>) -> bool {
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

    fn refuse(&self, above: usize) {
        if let Some(says) = self.says.get(above) {
            says.store(REFUSES, Ordering::Relaxed);
        }
    }
}

struct Plans {
    // Dropped before the library.
    operation: Operation,
    tables: Vec<Table>,
    least: usize,
    workspace: usize,
    refused: Vec<LtError>,
    launched: AtomicU64,
    left: AtomicU64,
    library: CublasLt,
}

/// Algorithms for the products of prompts, whose number of rows is known when they come. A name: clones share them, and
/// recorded graphs keep them.
///
/// ```no_run
/// use memtier::{Bytes, Cuda, LaunchError, Eager, Recorder, StableSpan, StableSpanMut, bf16};
/// use memtier_cuda::{CublasLt, CudaBackend, Kernels, LtOutput, LtPlans, LtShape};
/// use memtier_cuda::kernels::{Inputs, Matrix, project};
///
/// // While the engine loads; `workspace()` becomes a line of the plan.
/// fn plans(backend: &CudaBackend) -> Result<LtPlans, memtier_cuda::LtError> {
///     let shape = LtShape { columns: 4096, outputs: 14336, output: LtOutput::Bf16 };
///     CublasLt::open(backend, None)?.plans(&[shape], 128..=8192, Bytes::mib(32))
/// }
///
/// // While it serves: by the library where it has a plan, else by this crate's kernels.
/// fn layer(
///     on: &Recorder<Eager<Cuda>>,
///     (kernels, plans): (&Kernels, &LtPlans),
///     out: &mut StableSpanMut<'_, bf16, Eager<Cuda>>,
///     weights: Matrix<'_, Eager<Cuda>>,
///     (x, rows): (StableSpan<'_, bf16, Eager<Cuda>>, usize),
///     workspace: &mut StableSpanMut<'_, u8, Eager<Cuda>>,
/// ) -> Result<(), LaunchError> {
///     if plans.project(on, out, &[weights], (x, rows), workspace)? {
///         return Ok(());
///     }
///     project(on, kernels, out, &[weights], Inputs::Plain(x), rows)
/// }
/// # let _ = (plans, layer);
/// ```
#[derive(Clone)]
pub struct LtPlans(Arc<Plans>);

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
    /// has none for are [refused](LtPlans::refused), the others served.
    ///
    /// # Errors
    /// [`LtError::NoAlgorithm`] when it has none for any shape; [`LtError::Call`] and [`LtError::Driver`] when a call fails.
    pub fn plans(&self, shapes: &[LtShape], rows: RangeInclusive<usize>, workspace: Bytes) -> Result<LtPlans, LtError> {
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
        let used = tables.iter().flat_map(|table| &table.plans).map(|plan| plan.choice.workspace).max();
        let (least, workspace) = (*rows.start(), used.unwrap_or(0));
        let (launched, left) = (AtomicU64::new(0), AtomicU64::new(0));
        let plans = Plans { operation, tables, least, workspace, refused, launched, left, library: self.clone() };
        match plans.refused.first() {
            Some(error) if plans.tables.is_empty() => Err(error.clone()),
            _ => Ok(LtPlans(Arc::new(plans))),
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

/// Where the library has an algorithm.
struct Found {
    /// Of the tables.
    table: usize,
    /// Rows above the least.
    above: usize,
    choice: Choice,
}

impl Plans {
    /// The algorithm for products of so many rows, when the matrices lie one behind the other.
    fn of<P: Place>(&self, matrices: &[Matrix<'_, P>], rows: usize, output: LtOutput) -> Option<Found> {
        let first = matrices.first()?;
        let mut end = first.place().0;
        for matrix in matrices {
            if matrix.columns() != first.columns() || matrix.place().0 != end {
                return None;
            }
            end = end.checked_add((matrix.rows() as u64).checked_mul(matrix.columns() as u64)?.checked_mul(2)?)?;
        }
        let outputs = matrices.iter().map(Matrix::rows).sum();
        let shape = LtShape { columns: first.columns(), outputs, output };
        let above = rows.checked_sub(self.least)?;
        let table = self.tables.iter().position(|table| table.shape == shape)?;
        let choice = self.tables[table].plans.iter().find(|plan| rows <= plan.rows)?.choice;
        Some(Found { table, above, choice })
    }

    /// Whether the library takes what was found. Only its choice for the fewest and for the most rows was tried while it was loaded.
    fn takes(&self, Found { table, above, choice }: &Found) -> bool {
        let table = &self.tables[*table];
        let takes =
            table.takes(*above, || self.library.takes(&self.operation, choice, table.shape, self.least + above));
        if !takes {
            self.left.fetch_add(1, Ordering::Relaxed);
        }
        takes
    }
}

impl std::fmt::Debug for LtPlans {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "LtPlans({self})")
    }
}

impl std::fmt::Display for LtPlans {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let algorithms: usize = self.0.tables.iter().map(|table| table.plans.len()).sum();
        write!(
            f,
            "cuBLASLt {} from {} rows on, {algorithms} plans for {} shapes, workspace {} bytes",
            self.0.library.version(),
            self.0.least,
            self.0.tables.len(),
            self.0.workspace
        )
    }
}

impl LtPlans {
    /// What its algorithms use of the workspace, at most.
    pub fn workspace(&self) -> Bytes {
        Bytes::new(self.0.workspace as u64)
    }

    /// Shapes that the library has no algorithms for.
    pub fn refused(&self) -> &[LtError] {
        &self.0.refused
    }

    /// Products that it launched so far, into streams and into graphs that were recorded, those among them that a later refusal ended; replays are not
    /// counted.
    pub fn launched(&self) -> u64 {
        self.0.launched.load(Ordering::Relaxed)
    }

    /// Products of shapes and numbers of rows that have a plan, which the library refused, so that other kernels had to do them.
    pub fn left(&self) -> u64 {
        self.0.left.load(Ordering::Relaxed)
    }

    /// The library.
    pub fn library(&self) -> &CublasLt {
        &self.0.library
    }

    /// `out = x weights^T` in bf16: `out` is rows x the outputs of all `matrices` side by side. `false`, and nothing is launched, where there is no plan:
    /// for another shape, fewer or more rows, or matrices that do not lie one behind the other; and where the library refuses just these rows, which
    /// is [counted](Self::left). Nothing else may use `workspace` on this stream meanwhile.
    ///
    /// # Errors
    /// [`LaunchError::Shape`] and [`LaunchError::Unsupported`] name what does not fit; [`LaunchError::Device`] when the launch fails. Inside a
    /// recording it is known only when the graph is made that the library refused a product: [`RecordError::Bake`](memtier::RecordError::Bake) of
    /// [`LaunchError::Refused`], once. Record again: such rows are left to other kernels then.
    pub fn project<P: Place<Space: Is<Cuda>>>(
        &self,
        on: &Recorder<P>,
        out: &mut StableSpanMut<'_, impl SameElement<bf16>, impl Fits<P>>,
        matrices: &[Matrix<'_, P>],
        x: (StableSpan<'_, bf16, P>, usize),
        workspace: &mut StableSpanMut<'_, impl SameElement<u8>, impl Fits<P>>,
    ) -> Result<bool, LaunchError> {
        let out = out.output::<bf16, P>(on);
        let out = (out.addr(), out.stream(), out.units());
        self.launch(on, out, (matrices, LtOutput::Bf16), x, workspace)
    }

    /// The same of one matrix in f32.
    ///
    /// # Errors
    /// As [`project`](Self::project).
    pub fn project_f32<P: Place<Space: Is<Cuda>>>(
        &self,
        on: &Recorder<P>,
        out: &mut StableSpanMut<'_, impl SameElement<f32>, impl Fits<P>>,
        matrix: Matrix<'_, P>,
        x: (StableSpan<'_, bf16, P>, usize),
        workspace: &mut StableSpanMut<'_, impl SameElement<u8>, impl Fits<P>>,
    ) -> Result<bool, LaunchError> {
        let out = out.output::<f32, P>(on);
        let out = (out.addr(), out.stream(), out.units());
        self.launch(on, out, (&[matrix], LtOutput::F32), x, workspace)
    }

    /// `out += x weights^T` in f32: a projection back into the residual stream.
    ///
    /// # Errors
    /// As [`project`](Self::project).
    pub fn project_add<P: Place<Space: Is<Cuda>>>(
        &self,
        on: &Recorder<P>,
        out: &mut StableSpanMut<'_, impl SameElement<f32>, impl Fits<P>>,
        matrix: Matrix<'_, P>,
        x: (StableSpan<'_, bf16, P>, usize),
        workspace: &mut StableSpanMut<'_, impl SameElement<u8>, impl Fits<P>>,
    ) -> Result<bool, LaunchError> {
        let out = out.output::<f32, P>(on);
        let out = (out.addr(), out.stream(), out.units());
        self.launch(on, out, (&[matrix], LtOutput::AddF32), x, workspace)
    }

    fn launch<P: Place<Space: Is<Cuda>>>(
        &self,
        on: &Recorder<P>,
        (out, out_stream, out_units): (u64, u32, usize),
        (matrices, output): (&[Matrix<'_, P>], LtOutput),
        (x, rows): (StableSpan<'_, bf16, P>, usize),
        workspace: &mut StableSpanMut<'_, impl SameElement<u8>, impl Fits<P>>,
    ) -> Result<bool, LaunchError> {
        let Some(found) = self.0.of(matrices, rows, output) else { return Ok(false) };
        if !self.0.takes(&found) {
            return Ok(false);
        }
        let Found { table, above, choice } = found;
        let shape = self.0.tables[table].shape;
        let (x, workspace) = (Input::<bf16, P>::input(x), workspace.output::<u8, P>(on));
        // There is a plan, so each is below 2^31.
        fits("cublasLt: x", rows * shape.columns, x.units())?;
        fits("cublasLt: out", rows * shape.outputs, out_units)?;
        if workspace.units() < choice.workspace {
            let (what, found) = ("cublasLt: workspace", workspace.units());
            return Err(LaunchError::Shape { what, expected: choice.workspace, found });
        }
        let (weights, first_stream) = matrices[0].place();
        aligned([out, x.addr(), weights], if choice.workspace > 0 { workspace.addr() } else { 0 })?;
        let of = |index: usize| matrices.get(index).map_or(first_stream, |matrix| matrix.place().1);
        let streams = [out_stream, x.stream(), workspace.stream(), first_stream, of(1), of(2)];
        let words = [out, weights, x.addr(), workspace.addr()];
        let plans = self.0.clone();
        let launched = on.launch(&streams, move |queue| {
            let queued = stream_of(&queue)?.enqueue(|raw| {
                // SAFETY: the matrices lie one behind the other, and are as long as the shape says, as `x` and `out` are, and the workspace as
                // long as the algorithm's; `out` and the workspace came from `&mut`. The caller's views (or the graph) keep them.
                unsafe { plans.library.multiply(&plans.operation, &choice, (shape, rows), words, raw.cast()) }
            });
            match queued {
                Ok(()) => _ = plans.launched.fetch_add(1, Ordering::Relaxed),
                // What it said before was worth nothing: from now on other kernels do all products of so many rows.
                Err(error) if is_refusal(&error) => {
                    plans.tables.iter().for_each(|table| table.refuse(above));
                    let why = format!("{rows} rows of {} by {}: {error}", shape.columns, shape.outputs);
                    return Err(LaunchError::Refused { what: "cublasLt", why });
                }
                Err(error) => return Err(LaunchError::Device(while_doing("launching cuBLASLt")(error))),
            }
            Ok(())
        });
        match launched {
            Ok(()) => Ok(true),
            Err(LaunchError::Refused { .. }) => {
                self.0.left.fetch_add(1, Ordering::Relaxed);
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }
}

/// Whether the library said that it does not do this (`CUBLAS_STATUS_INVALID_VALUE`, `.._ARCH_MISMATCH`, `.._NOT_SUPPORTED`), before it
/// queued anything.
fn is_refusal(error: &DriverError) -> bool {
    error.call == "cublasLtMatmul" && matches!(error.code, 7 | 8 | 15)
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
        let error = |call, code| DriverError { call, code, name: String::new(), text: String::new() };
        assert!(is_refusal(&error("cublasLtMatmul", 15)) && !is_refusal(&error("cublasLtMatmul", 14)));
        assert!(!is_refusal(&error("cuCtxSetCurrent", 15)));
    }
}
