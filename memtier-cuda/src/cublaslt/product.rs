//! Products: algorithms, chosen before anything is served, and launches with them.

use std::{
    ffi::{c_int, c_void},
    ptr,
    sync::Arc,
};

use memtier::{
    Bytes, Cuda, Fits, Input, Is, LaunchError, Place, Recorder, SameElement, StableSpan, StableSpanMut, bf16,
};

use super::{Choice, CublasLt, Described, Layout, LtError, LtOutput, LtShape, check};
use crate::{
    error::DriverError,
    kernels::Matrix,
    queue::{CudaStream, while_doing},
};

/// `CUDA_R_16BF`, `CUDA_R_32F` and `CUBLAS_COMPUTE_32F`.
const BF16: c_int = 14;
const F32: c_int = 0;
const COMPUTE_F32: c_int = 68;
/// `CUBLASLT_MATMUL_DESC_TRANSA`, `CUBLAS_OP_T`.
const TRANSPOSE_LEFT: c_int = 3;
const TRANSPOSED: c_int = 1;
/// `CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES`, `.._REDUCTION_SCHEME_MASK`, and the four of `.._MIN_ALIGNMENT_A_BYTES`.
const MOST_WORKSPACE: c_int = 1;
const REDUCTIONS: c_int = 3;
const ALIGNMENTS: [c_int; 4] = [5, 6, 7, 8];
/// `CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE`: parts of a sum are f32, and added in one order.
const IN_ORDER: u32 = 2;
/// Spans of matrices begin at multiples of this many bytes, the workspace at multiples of 256.
const ALIGNED: u32 = 16;

/// How a product is computed: the same for all of them.
pub(super) struct Operation(Described);

// SAFETY: nothing in it changes any more, and the library only reads it.
unsafe impl Send for Operation {}
// SAFETY: as above.
unsafe impl Sync for Operation {}

/// A shape and a number of rows, as the library's matrices: they lie column by column, so the weights are columns x outputs
/// (transposed), `x` is columns x rows, `out` outputs x rows.
struct Layouts {
    weights: Layout,
    x: Layout,
    out: Layout,
}

impl CublasLt {
    pub(super) fn operation(&self) -> Result<Operation, LtError> {
        let lt = &*self.0;
        lt.context.bind()?;
        let product = Described::new(lt.destroy_product, "cublasLtMatmulDescCreate", |raw| {
            // SAFETY: writes a handle, which is destroyed with `Described`.
            unsafe { (lt.create_product)(raw, COMPUTE_F32, F32) }
        })?;
        let transposed = TRANSPOSED;
        let transposed = (&raw const transposed).cast();
        // SAFETY: a live handle; reads one integer.
        check("cublasLtMatmulDescSetAttribute", unsafe {
            (lt.set_product)(product.raw, TRANSPOSE_LEFT, transposed, 4)
        })?;
        Ok(Operation(product))
    }

    fn layouts(&self, shape: LtShape, rows: usize) -> Result<Layouts, LtError> {
        let layout = |element: c_int, rows: usize, columns: usize| {
            let mut layout = Layout([0; 8]);
            // SAFETY: writes into the caller's 64 bytes, whose number it is told.
            let status = unsafe {
                (self.0.describe_matrix)(
                    &mut layout,
                    size_of::<Layout>(),
                    element,
                    rows as u64,
                    columns as u64,
                    rows as i64,
                )
            };
            check("cublasLtMatrixLayoutInit", status).map(|()| layout)
        };
        let LtShape { columns, outputs, output } = shape;
        let of_out = if output == LtOutput::Bf16 { BF16 } else { F32 };
        let (weights, x) = (layout(BF16, columns, outputs)?, layout(BF16, columns, rows)?);
        Ok(Layouts { weights, x, out: layout(of_out, outputs, rows)? })
    }

    /// The library's first choice for so many rows.
    pub(super) fn choose(
        &self,
        operation: &Operation,
        shape: LtShape,
        rows: usize,
        workspace: Bytes,
    ) -> Result<Choice, LtError> {
        let LtShape { columns, outputs, .. } = shape;
        let none = LtError::NoAlgorithm { rows, columns, outputs, workspace };
        if [rows, columns, outputs].iter().any(|size| *size == 0 || i32::try_from(*size).is_err()) {
            return Err(none);
        }
        let lt = &*self.0;
        lt.context.bind()?;
        let Layouts { weights, x, out } = self.layouts(shape, rows)?;
        let preference = Described::new(lt.destroy_preference, "cublasLtMatmulPreferenceCreate", |raw| {
            // SAFETY: writes a handle, which is destroyed with `Described`.
            unsafe { (lt.create_preference)(raw) }
        })?;
        let prefer = |what: c_int, value: *const c_void, bytes: usize| {
            // SAFETY: a live handle; reads so many bytes.
            let status = unsafe { (lt.set_preference)(preference.raw, what, value, bytes) };
            check("cublasLtMatmulPreferenceSetAttribute", status)
        };
        let most = workspace.count();
        prefer(MOST_WORKSPACE, (&raw const most).cast(), 8)?;
        prefer(REDUCTIONS, ptr::from_ref(&IN_ORDER).cast(), 4)?;
        ALIGNMENTS.iter().try_for_each(|what| prefer(*what, ptr::from_ref(&ALIGNED).cast(), 4))?;
        let mut choice = Choice { algorithm: [0; 8], workspace: 0, state: 0, waves: 0.0, reserved: [0; 4] };
        let mut found = 0;
        // SAFETY: live handles and layouts; writes at most one result and one integer.
        let status = unsafe {
            let (operation, preference) = (operation.0.raw, preference.raw);
            (lt.choose)(lt.handle, operation, &weights, &x, &out, &out, preference, 1, &mut choice, &mut found)
        };
        // What it does not support is a status of its own (15), or nothing found.
        if status == 15 || status == 0 && (found == 0 || choice.state != 0) {
            return Err(none);
        }
        check("cublasLtMatmulAlgoGetHeuristic", status)?;
        Ok(choice)
    }

    /// Whether the library takes this algorithm, chosen for more rows, for so many, within the workspace of the choice. It is asked on
    /// the host, and queues nothing.
    pub(super) fn takes(
        &self,
        operation: &Operation,
        choice: &Choice,
        shape: LtShape,
        rows: usize,
    ) -> Result<bool, LtError> {
        let lt = &*self.0;
        lt.context.bind()?;
        let Layouts { weights, x, out } = self.layouts(shape, rows)?;
        let mut checked = *choice;
        // SAFETY: live handles, layouts and an algorithm of this library; writes one result.
        let status = unsafe {
            let operation = operation.0.raw;
            (lt.check_choice)(lt.handle, operation, &weights, &x, &out, &out, &choice.algorithm, &mut checked)
        };
        Ok(status == 0 && checked.state == 0 && checked.workspace <= choice.workspace)
    }

    /// Queues a product. It takes no memory, of the host neither.
    ///
    /// # Safety
    /// `out`, weights, inputs and workspace are addresses of memory as long as `shape`, `rows` and `choice` say; nothing else writes it,
    /// or reads what is written, until the work on `stream` is done.
    pub(super) unsafe fn multiply(
        &self,
        operation: &Operation,
        choice: &Choice,
        (shape, rows): (LtShape, usize),
        [out, weights, x, workspace]: [u64; 4],
        stream: *mut c_void,
    ) -> Result<(), DriverError> {
        let lt = &*self.0;
        let failed = |call: &'static str, status: i32| {
            let (name, text) = ("CUBLAS_STATUS".to_owned(), format!("cuBLAS status {status}"));
            DriverError { call, code: status.unsigned_abs(), name, text }
        };
        let layouts = match self.layouts(shape, rows) {
            Ok(layouts) => layouts,
            Err(LtError::Call { call, status }) => return Err(failed(call, status)),
            Err(_) => return Err(failed("cublasLtMatrixLayoutInit", 1)),
        };
        let one = 1.0f32;
        let before = if shape.output == LtOutput::AddF32 { 1.0f32 } else { 0.0 };
        let at = |address: u64| ptr::without_provenance_mut::<c_void>(address as usize);
        // SAFETY: live handles; the library reads one f32 from each of the pointers to host memory before it returns; the rest by
        // the caller.
        let status = unsafe {
            (lt.multiply)(
                lt.handle,
                operation.0.raw,
                (&raw const one).cast(),
                at(weights),
                &layouts.weights,
                at(x),
                &layouts.x,
                (&raw const before).cast(),
                at(out),
                &layouts.out,
                at(out),
                &layouts.out,
                &choice.algorithm,
                at(workspace),
                choice.workspace,
                stream,
            )
        };
        if status == 0 { Ok(()) } else { Err(failed("cublasLtMatmul", status)) }
    }

    /// Chooses an algorithm for products of `rows` rows of `columns` elements with matrices of `outputs` rows, that uses at most
    /// `workspace` bytes. To be called before serving: nothing is chosen at a launch. For prompts, whose number of rows is known when they
    /// come, there is [`plans`](Self::plans).
    ///
    /// The first launch of a product loads the kernel; launch it once before serving, and no launch takes memory.
    ///
    /// # Errors
    /// [`LtError::NoAlgorithm`]; [`LtError::Call`] when the library fails.
    pub fn product(
        &self,
        (rows, columns, outputs): (usize, usize, usize),
        workspace: Bytes,
    ) -> Result<LtProduct, LtError> {
        let operation = self.operation()?;
        let shape = LtShape { columns, outputs, output: LtOutput::Bf16 };
        let choice = self.choose(&operation, shape, rows, workspace)?;
        Ok(LtProduct(Arc::new(Product { operation, choice, shape, rows, library: self.clone() })))
    }
}

struct Product {
    // Dropped before the library.
    operation: Operation,
    choice: Choice,
    shape: LtShape,
    rows: usize,
    library: CublasLt,
}

/// A product of one shape with its algorithm. A name: clones share it, and recorded graphs keep it.
#[derive(Clone)]
pub struct LtProduct(Arc<Product>);

impl std::fmt::Debug for LtProduct {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (LtShape { columns, outputs, .. }, rows) = (self.0.shape, self.0.rows);
        write!(f, "LtProduct({rows} x {columns} by {outputs}, workspace {})", self.workspace())
    }
}

/// Refuses spans that begin where algorithms were not chosen for.
pub(super) fn aligned(matrices: [u64; 3], workspace: u64) -> Result<(), LaunchError> {
    if matrices.iter().all(|address| address.is_multiple_of(u64::from(ALIGNED))) && workspace.is_multiple_of(256) {
        return Ok(());
    }
    let why = "a span begins between multiples of 16 bytes (the workspace: of 256): split spans at such places";
    Err(LaunchError::Unsupported { what: "cublasLt", why })
}

/// Refuses a span of another length.
pub(super) fn fits(what: &'static str, expected: usize, found: usize) -> Result<(), LaunchError> {
    if expected == found { Ok(()) } else { Err(LaunchError::Shape { what, expected, found }) }
}

/// The stream of a queue of this crate.
pub(super) fn stream_of<'q>(queue: &memtier::NativeQueue<'q>) -> Result<&'q CudaStream, LaunchError> {
    queue.native().downcast_ref::<CudaStream>().ok_or(LaunchError::Unsupported {
        what: "queue",
        why: "cuBLASLt runs on a queue of `CudaBackend`: open the engine on one",
    })
}

impl LtProduct {
    /// What its algorithm uses of the workspace.
    pub fn workspace(&self) -> Bytes {
        Bytes::new(self.0.choice.workspace as u64)
    }

    /// `out = x weights^T`, bf16 with sums in f32: `x` is rows x columns, `out` rows x outputs. Nothing else may use `workspace` on
    /// this stream meanwhile; take it from the step's scratch.
    ///
    /// # Errors
    /// [`LaunchError::Shape`] and [`LaunchError::Unsupported`] name what does not fit; [`LaunchError::Device`] when the library
    /// refuses the launch.
    pub fn launch<P: Place<Space: Is<Cuda>>>(
        &self,
        on: &Recorder<P>,
        out: &mut StableSpanMut<'_, impl SameElement<bf16>, impl Fits<P>>,
        weights: Matrix<'_, P>,
        x: StableSpan<'_, bf16, P>,
        workspace: &mut StableSpanMut<'_, impl SameElement<u8>, impl Fits<P>>,
    ) -> Result<(), LaunchError> {
        self.launch_times(on, out, weights, x, workspace, 1)
    }

    /// The same, `times` over, one behind the other: what the library takes of a launch, for measurements.
    ///
    /// # Errors
    /// As [`launch`](Self::launch).
    #[doc(hidden)]
    pub fn launch_times<P: Place<Space: Is<Cuda>>>(
        &self,
        on: &Recorder<P>,
        out: &mut StableSpanMut<'_, impl SameElement<bf16>, impl Fits<P>>,
        weights: Matrix<'_, P>,
        x: StableSpan<'_, bf16, P>,
        workspace: &mut StableSpanMut<'_, impl SameElement<u8>, impl Fits<P>>,
        times: u32,
    ) -> Result<(), LaunchError> {
        let (LtShape { columns, outputs, .. }, rows) = (self.0.shape, self.0.rows);
        let (out, workspace) = (out.output::<bf16, P>(on), workspace.output::<u8, P>(on));
        let x = Input::<bf16, P>::input(x);
        fits("cublasLt: rows of weights", outputs, weights.rows())?;
        fits("cublasLt: columns of weights", columns, weights.columns())?;
        // Each is below 2^31: their products fit.
        fits("cublasLt: x", rows * columns, x.units())?;
        fits("cublasLt: out", rows * outputs, out.units())?;
        let least = self.0.choice.workspace;
        if workspace.units() < least {
            return Err(LaunchError::Shape { what: "cublasLt: workspace", expected: least, found: workspace.units() });
        }
        let (weights_at, weights_stream) = weights.place();
        aligned([out.addr(), x.addr(), weights_at], if least > 0 { workspace.addr() } else { 0 })?;
        let streams = [out.stream(), x.stream(), weights_stream, workspace.stream()];
        let words = [out.addr(), weights_at, x.addr(), workspace.addr()];
        let product = self.0.clone();
        on.launch(&streams, move |queue| {
            let stream = stream_of(&queue)?;
            let Product { operation, choice, shape, rows, library } = &*product;
            let queued = stream.enqueue(|raw| {
                (0..times).try_for_each(|_| {
                    // SAFETY: the matrices are as long as described, and so is the workspace; `out` and the workspace came from
                    // `&mut`. The caller's views (or the graph) keep them.
                    unsafe { library.multiply(operation, choice, (*shape, *rows), words, raw.cast()) }
                })
            });
            queued.map_err(|error| LaunchError::Device(while_doing("launching cuBLASLt")(error)))
        })
    }
}
