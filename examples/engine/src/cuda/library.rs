//! Products of prompts by a vendor's library, cuBLASLt, where it is installed and wanted. Its algorithms are chosen, and their kernels
//! loaded, before anything is planned; what it works in is a line of the plan, and what it takes for itself a part of the library
//! reserve. Without it the kernels of memtier-cuda do all products, and a sentence says why.

use std::{ops::RangeInclusive, path::Path};

use memtier::{Bytes, LaunchError, Place, StableSpan, StableSpanMut, bf16};
use memtier_cuda::{CublasLt, CudaBackend, LtError, LtOutput, LtPlans, LtShape, kernels::Inputs};

use crate::{arch::Arch, config::Settings, model::pass_tokens};

/// Rows from which on the library does a product with a matrix of so many elements, by the sweep of `gpu_bars_gemm` on an H200
/// (`docs/gpu-measured.md`, "Products"): with SmolLM2's and Gemma 3 270M's matrices (at most 2.6 million elements) memtier's kernels are as
/// fast up to 128 rows, with those of a Llama of 8 billion weights (from 16.8 million on) half as fast at 33 rows already (fewer were not measured).
const LEAST_ROWS: usize = 129;
const LEAST_ROWS_OF_LARGE: usize = 33;
/// Elements of a matrix from which on it is a large one: in the middle, by ratio, of those that were measured.
const LARGE: usize = 6 << 20;
/// What an algorithm may use of the workspace.
const MOST_WORKSPACE: Bytes = Bytes::mib(32);
/// The library's file, where it is not found by its name.
const PATH: &str = "MEMTIER_CUBLASLT";

/// The library with its plans for one model, or why it is not used. A name: clones share it.
#[derive(Clone)]
pub(super) enum Library {
    /// Its plans.
    There(LtPlans),
    /// Why not.
    Not(String),
}

impl Default for Library {
    fn default() -> Self {
        Library::Not("no model is open".to_owned())
    }
}

impl Library {
    /// Opens the library for a model under these settings.
    pub(super) fn open(backend: &CudaBackend, arch: &Arch, settings: &Settings) -> Self {
        let most = pass_tokens(&settings.config(arch));
        let not = |why: &str| Library::Not(why.to_owned());
        if !settings.cublaslt {
            return not("--no-cublaslt was given");
        }
        if arch.batch_invariant {
            return not("--batch-invariant: a library sums few rows in another order than many");
        }
        let shapes = shapes(arch);
        let least = shapes.iter().map(|shape| least_rows(shape.columns, shape.outputs)).min().unwrap_or(LEAST_ROWS);
        if most < least {
            return Library::Not(format!("a pass has at most {most} tokens, and from {least} on it would pay"));
        }
        match Self::plans(backend, &shapes, least..=most) {
            Ok(plans) => Library::There(plans),
            Err(error) => Library::Not(error.to_string()),
        }
    }

    fn plans(backend: &CudaBackend, shapes: &[LtShape], rows: RangeInclusive<usize>) -> Result<LtPlans, LtError> {
        let path = std::env::var_os(PATH);
        let library = CublasLt::open(backend, path.as_deref().map(Path::new))?;
        library.plans(shapes, rows, MOST_WORKSPACE)
    }

    /// Bytes that it works in.
    pub(super) fn workspace(&self) -> usize {
        match self {
            // A line of no bytes is no line: the library is told that it may use nothing.
            Library::There(plans) => (plans.workspace().count() as usize).max(1),
            Library::Not(_) => 0,
        }
    }

    /// By which its reserve is remembered; empty without it.
    pub(super) fn version(&self) -> String {
        match self {
            Library::There(plans) => format!("cuBLASLt {}", plans.library().version()),
            Library::Not(_) => String::new(),
        }
    }

    /// The plans of a pass, with what the library works in there.
    pub(super) fn within<'p, P: Place>(
        &'p self,
        workspace: Option<StableSpanMut<'p, u8, P>>,
    ) -> Option<ByLibrary<'p, P>> {
        match (self, workspace) {
            (Library::There(plans), Some(workspace)) => Some(ByLibrary { plans, workspace }),
            _ => None,
        }
    }
}

impl std::fmt::Display for Library {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Library::Not(why) => write!(f, "prompts are multiplied by memtier's kernels: {why}"),
            Library::There(plans) => {
                write!(f, "prompts are multiplied by {plans}; {} products so far", plans.launched())?;
                if plans.left() > 0 {
                    write!(f, "; it refused {}, which memtier's kernels did", plans.left())?;
                }
                plans.refused().iter().try_for_each(|error| write!(f, "; {error}"))
            }
        }
    }
}

fn least_rows(columns: usize, outputs: usize) -> usize {
    if columns.saturating_mul(outputs) < LARGE { LEAST_ROWS } else { LEAST_ROWS_OF_LARGE }
}

/// Whether a product of `rows` rows is one for the library.
pub(super) fn pays(rows: usize, columns: usize, outputs: usize) -> bool {
    rows >= least_rows(columns, outputs)
}

/// The products of a model: queries to values, gate and up, and the projections back to the residual stream.
fn shapes(arch: &Arch) -> Vec<LtShape> {
    let back = if arch.post_norms { LtOutput::F32 } else { LtOutput::AddF32 };
    let mut shapes = Vec::new();
    for layer in &arch.weights.layers {
        let of = |columns, outputs, output| LtShape { columns, outputs, output };
        for shape in [
            of(layer.hidden, layer.q_rows + 2 * layer.kv_rows, LtOutput::Bf16),
            of(layer.q_rows, layer.hidden, back),
            of(layer.hidden, 2 * layer.ffn, LtOutput::Bf16),
            of(layer.ffn, layer.hidden, back),
        ] {
            if !shapes.contains(&shape) {
                shapes.push(shape);
            }
        }
    }
    shapes
}

/// The library in a pass.
pub(super) struct ByLibrary<'p, P: Place> {
    plans: &'p LtPlans,
    workspace: StableSpanMut<'p, u8, P>,
}

/// Runs a product of rows by columns by outputs where there is a library, it pays, and its inputs are rows of bf16. Whether it was launched.
pub(super) fn by_library<'x, P: Place>(
    library: &mut Option<ByLibrary<'_, P>>,
    x: Inputs<'x, P>,
    [rows, columns, outputs]: [usize; 3],
    run: impl FnOnce(&LtPlans, StableSpan<'x, bf16, P>, &mut StableSpanMut<'_, u8, P>) -> Result<bool, LaunchError>,
) -> Result<bool, LaunchError> {
    match (library, x) {
        (Some(ByLibrary { plans, workspace }), Inputs::Plain(x)) if pays(rows, columns, outputs) => {
            run(plans, x, workspace)
        }
        _ => Ok(false),
    }
}
