//! Products of prompts: any number of rows, with algorithms that were chosen while the engine loads.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use memtier::{
    Bytes, Cuda, Fits, Input, Is, LaunchError, Place, Recorder, SameElement, StableSpan, StableSpanMut, bf16,
};

use super::{
    Choice, CublasLt, LtError, LtOutput, LtShape,
    product::{Operation, aligned, fits, stream_of},
    table::Table,
};
use crate::{
    error::DriverError,
    kernels::{Matrix, require},
    queue::while_doing,
};

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
    /// The plans of these tables, which are for `least` rows and more.
    pub(super) fn new(
        library: CublasLt,
        operation: Operation,
        (tables, least): (Vec<Table>, usize),
        refused: Vec<LtError>,
    ) -> Self {
        let used = tables.iter().flat_map(|table| &table.plans).map(|plan| plan.choice.workspace).max();
        let (workspace, launched, left) = (used.unwrap_or(0), AtomicU64::new(0), AtomicU64::new(0));
        LtPlans(Arc::new(Plans { operation, tables, least, workspace, refused, launched, left, library }))
    }

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
        let why = "one to three matrices are multiplied at once";
        require((1..=3).contains(&matrices.len()), "cublasLt: matrices", why)?;
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
    fn only_words_of_the_library_are_refusals() {
        let error = |call, code| DriverError { call, code, name: String::new(), text: String::new() };
        assert!(is_refusal(&error("cublasLtMatmul", 15)) && !is_refusal(&error("cublasLtMatmul", 14)));
        assert!(!is_refusal(&error("cuCtxSetCurrent", 15)));
    }
}
