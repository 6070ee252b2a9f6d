//! cuBLASLt, opened where it is: large products by the vendor's kernels, with a workspace that was planned.

use std::{
    ffi::{c_int, c_void},
    path::Path,
    ptr,
    sync::Arc,
};

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use memtier::{
    Bytes, Cuda, Fits, Input, Is, LaunchError, Place, Recorder, SameElement, StableSpan, StableSpanMut, bf16,
};

use crate::{
    CudaBackend,
    driver::Context,
    error::DriverError,
    kernels::Matrix,
    queue::{CudaStream, while_doing},
};

type Handle = *mut c_void;
type Status = c_int;

/// `CUDA_R_16BF`, `CUDA_R_32F` and `CUBLAS_COMPUTE_32F`.
const BF16: c_int = 14;
const F32: c_int = 0;
const COMPUTE_F32: c_int = 68;
/// `CUBLASLT_MATMUL_DESC_TRANSA`, `CUBLAS_OP_T`, `CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES`.
const TRANSPOSE_LEFT: c_int = 3;
const TRANSPOSED: c_int = 1;
const MOST_WORKSPACE: c_int = 1;

/// The names that the library has, the newest first.
const NAMES: [&str; 3] = ["libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"];

/// `cublasLtMatmulHeuristicResult_t`: an algorithm is 64 bytes that nobody looks into.
#[repr(C)]
#[derive(Clone, Copy)]
struct Choice {
    algorithm: [u64; 8],
    workspace: usize,
    state: Status,
    waves: f32,
    reserved: [c_int; 4],
}

type Create = unsafe extern "C" fn(*mut Handle) -> Status;
type Destroy = unsafe extern "C" fn(Handle) -> Status;
type CreateProduct = unsafe extern "C" fn(*mut Handle, c_int, c_int) -> Status;
type CreateLayout = unsafe extern "C" fn(*mut Handle, c_int, u64, u64, i64) -> Status;
type Set = unsafe extern "C" fn(Handle, c_int, *const c_void, usize) -> Status;
type Choose = unsafe extern "C" fn(
    Handle,
    Handle,
    Handle,
    Handle,
    Handle,
    Handle,
    Handle,
    c_int,
    *mut Choice,
    *mut c_int,
) -> Status;
type Multiply = unsafe extern "C" fn(
    Handle,
    Handle,
    *const c_void,
    *const c_void,
    Handle,
    *const c_void,
    Handle,
    *const c_void,
    *const c_void,
    Handle,
    *mut c_void,
    Handle,
    *const [u64; 8],
    *mut c_void,
    usize,
    *mut c_void,
) -> Status;

/// Why cuBLASLt cannot be used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LtError {
    /// There is no such library.
    #[error(
        "cuBLASLt could not be opened: {reason}. It is part of the CUDA toolkit and of the Python wheel `nvidia-cublas`: put its \
         folder on LD_LIBRARY_PATH or give the path of `libcublasLt.so.*`, or use `kernels::project`, which needs no library"
    )]
    NoLibrary {
        /// The loader's own words.
        reason: String,
    },
    /// A call of it failed.
    #[error("{call} failed with cuBLAS status {status}")]
    Call {
        /// The library's function.
        call: &'static str,
        /// Its status.
        status: i32,
    },
    /// It has no algorithm for the product within the workspace.
    #[error(
        "cuBLASLt has no algorithm for {rows} x {columns} by {outputs} outputs within a workspace of {workspace}: plan a larger one, \
         or use `kernels::project`"
    )]
    NoAlgorithm {
        /// Rows of inputs.
        rows: usize,
        /// Elements of a row.
        columns: usize,
        /// Outputs.
        outputs: usize,
        /// What it may use.
        workspace: Bytes,
    },
    /// The driver failed.
    #[error(transparent)]
    Driver(#[from] DriverError),
}

fn check(call: &'static str, status: Status) -> Result<(), LtError> {
    if status == 0 { Ok(()) } else { Err(LtError::Call { call, status }) }
}

struct Loaded {
    handle: Handle,
    context: Arc<Context>,
    destroy: Destroy,
    create_product: CreateProduct,
    destroy_product: Destroy,
    set_product: Set,
    create_layout: CreateLayout,
    destroy_layout: Destroy,
    create_preference: Create,
    destroy_preference: Destroy,
    set_preference: Set,
    choose: Choose,
    multiply: Multiply,
    // The functions above are the library's.
    _library: Library,
}

// SAFETY: a handle of cuBLASLt may be used from any thread, several at once: by its documentation.
unsafe impl Send for Loaded {}
// SAFETY: as above.
unsafe impl Sync for Loaded {}

impl Drop for Loaded {
    fn drop(&mut self) {
        if self.context.bind().is_ok() {
            // SAFETY: created once, destroyed once.
            unsafe { (self.destroy)(self.handle) };
        }
    }
}

/// The library on one device. A name: clones share it.
///
/// ```no_run
/// use memtier::Bytes;
/// use memtier_cuda::{CublasLt, CudaBackend};
///
/// let backend = CudaBackend::open(0)?;
/// let library = CublasLt::open(&backend, None)?;
/// // While the engine loads: 8192 rows of 4096 elements, 14336 outputs, within a workspace that is a line of the plan.
/// let product = library.product((8192, 4096, 14336), Bytes::mib(32))?;
/// println!("{} of it used", product.workspace());
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct CublasLt(Arc<Loaded>);

impl CublasLt {
    /// Opens the library at `path`, or by its name.
    ///
    /// # Errors
    /// [`LtError::NoLibrary`] where there is none, [`LtError::Call`] when it refuses the device.
    pub fn open(backend: &CudaBackend, path: Option<&Path>) -> Result<Self, LtError> {
        let library = match path {
            Some(path) => library(path),
            None => NAMES
                .iter()
                .map(|name| library(Path::new(name)))
                .reduce(|first, next| first.or(next))
                .unwrap_or_else(|| Err(LtError::NoLibrary { reason: String::new() })),
        }?;
        let missing = |error: libloading::Error| LtError::NoLibrary { reason: error.to_string() };
        macro_rules! function {
            ($name:literal) => {
                // SAFETY: the function has this type since cuBLAS 11, by its header.
                *unsafe { library.get($name) }.map_err(missing)?
            };
        }
        let context = backend.context().clone();
        context.bind()?;
        let create: Create = function!(b"cublasLtCreate");
        let mut loaded = Loaded {
            handle: ptr::null_mut(),
            context,
            destroy: function!(b"cublasLtDestroy"),
            create_product: function!(b"cublasLtMatmulDescCreate"),
            destroy_product: function!(b"cublasLtMatmulDescDestroy"),
            set_product: function!(b"cublasLtMatmulDescSetAttribute"),
            create_layout: function!(b"cublasLtMatrixLayoutCreate"),
            destroy_layout: function!(b"cublasLtMatrixLayoutDestroy"),
            create_preference: function!(b"cublasLtMatmulPreferenceCreate"),
            destroy_preference: function!(b"cublasLtMatmulPreferenceDestroy"),
            set_preference: function!(b"cublasLtMatmulPreferenceSetAttribute"),
            choose: function!(b"cublasLtMatmulAlgoGetHeuristic"),
            multiply: function!(b"cublasLtMatmul"),
            _library: library,
        };
        // SAFETY: writes a handle, which is destroyed in `drop`; null until then, which `cublasLtDestroy` takes.
        check("cublasLtCreate", unsafe { create(&mut loaded.handle) })?;
        Ok(CublasLt(Arc::new(loaded)))
    }

    /// Chooses an algorithm for products of `rows` rows of `columns` elements with matrices of `outputs` rows, that uses at most
    /// `workspace` bytes, and loads its kernel. To be called before serving: nothing is chosen at a launch.
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
        let none = LtError::NoAlgorithm { rows, columns, outputs, workspace };
        if rows == 0 || columns == 0 || outputs == 0 {
            return Err(none);
        }
        let lt = &*self.0;
        lt.context.bind()?;
        // Its matrices lie column by column: `out` is outputs x rows, the weights columns x outputs (transposed), `x`
        // columns x rows.
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
        let layout = |rows: usize, columns: usize| {
            Described::new(lt.destroy_layout, "cublasLtMatrixLayoutCreate", |raw| {
                // SAFETY: as above.
                unsafe { (lt.create_layout)(raw, BF16, rows as u64, columns as u64, rows as i64) }
            })
        };
        let (weights, x, out) = (layout(columns, outputs)?, layout(columns, rows)?, layout(outputs, rows)?);
        let preference = Described::new(lt.destroy_preference, "cublasLtMatmulPreferenceCreate", |raw| {
            // SAFETY: as above.
            unsafe { (lt.create_preference)(raw) }
        })?;
        let most = workspace.count();
        // SAFETY: a live handle; reads eight bytes.
        let status = unsafe { (lt.set_preference)(preference.raw, MOST_WORKSPACE, (&raw const most).cast(), 8) };
        check("cublasLtMatmulPreferenceSetAttribute", status)?;
        let mut choice = Choice { algorithm: [0; 8], workspace: 0, state: 0, waves: 0.0, reserved: [0; 4] };
        let mut found = 0;
        // SAFETY: live handles; writes at most one result and one integer.
        let status = unsafe {
            (lt.choose)(
                lt.handle,
                product.raw,
                weights.raw,
                x.raw,
                out.raw,
                out.raw,
                preference.raw,
                1,
                &mut choice,
                &mut found,
            )
        };
        // What it does not support is a status of its own (15), or nothing found.
        if status == 15 || status == 0 && (found == 0 || choice.state != 0) {
            return Err(none);
        }
        check("cublasLtMatmulAlgoGetHeuristic", status)?;
        let described = [product, weights, x, out];
        Ok(LtProduct(Arc::new(Product { described, choice, shape: (rows, columns, outputs), library: self.clone() })))
    }
}

impl std::fmt::Debug for CublasLt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("CublasLt")
    }
}

fn library(path: &Path) -> Result<Library, LtError> {
    // SAFETY: the library's initialisers are its vendor's.
    let library = unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) };
    library.map_err(|error| LtError::NoLibrary { reason: format!("{}: {error}", path.display()) })
}

/// One of the library's descriptions, until it is dropped.
struct Described {
    raw: Handle,
    destroy: Destroy,
}

impl Described {
    fn new(destroy: Destroy, call: &'static str, create: impl FnOnce(*mut Handle) -> Status) -> Result<Self, LtError> {
        let mut raw = ptr::null_mut();
        check(call, create(&mut raw))?;
        Ok(Described { raw, destroy })
    }
}

impl Drop for Described {
    fn drop(&mut self) {
        // SAFETY: created once, destroyed once; the library outlives it.
        unsafe { (self.destroy)(self.raw) };
    }
}

struct Product {
    // Dropped before the library.
    described: [Described; 4],
    choice: Choice,
    shape: (usize, usize, usize),
    library: CublasLt,
}

// SAFETY: nothing in it changes any more, and the library only reads it.
unsafe impl Send for Product {}
// SAFETY: as above.
unsafe impl Sync for Product {}

/// A product of one shape with its algorithm. A name: clones share it, and recorded graphs keep it.
#[derive(Clone)]
pub struct LtProduct(Arc<Product>);

impl std::fmt::Debug for LtProduct {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (rows, columns, outputs) = self.0.shape;
        write!(f, "LtProduct({rows} x {columns} by {outputs}, workspace {})", self.workspace())
    }
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
        let (rows, columns, outputs) = self.0.shape;
        let (out, workspace) = (out.output::<bf16, P>(on), workspace.output::<u8, P>(on));
        let x = Input::<bf16, P>::input(x);
        let fits = |what, expected, found| match expected == found {
            true => Ok(()),
            false => Err(LaunchError::Shape { what, expected, found }),
        };
        fits("cublasLt: rows of weights", outputs, weights.rows())?;
        fits("cublasLt: columns of weights", columns, weights.columns())?;
        // The library described matrices of this size: their products fit.
        fits("cublasLt: x", rows * columns, x.units())?;
        fits("cublasLt: out", rows * outputs, out.units())?;
        let least = self.0.choice.workspace;
        if workspace.units() < least {
            return Err(LaunchError::Shape { what: "cublasLt: workspace", expected: least, found: workspace.units() });
        }
        // Algorithms are chosen for pointers that are multiples of 16, the workspace's of 256.
        let (weights_at, weights_stream) = weights.place();
        let whole = [out.addr(), x.addr(), weights_at].iter().all(|address| address % 16 == 0);
        if !whole || least > 0 && workspace.addr() % 256 != 0 {
            let why = "a span begins between multiples of 16 bytes (the workspace: of 256): split spans at such places";
            return Err(LaunchError::Unsupported { what: "cublasLt", why });
        }
        let streams = [out.stream(), x.stream(), weights_stream, workspace.stream()];
        let words = [out.addr(), weights_at, x.addr(), workspace.addr()];
        let product = self.0.clone();
        on.launch(&streams, move |queue| {
            let stream = queue.native().downcast_ref::<CudaStream>().ok_or(LaunchError::Unsupported {
                what: "queue",
                why: "cuBLASLt runs on a queue of `CudaBackend`: open the engine on one",
            })?;
            // SAFETY: the matrices are as long as described, and so is the workspace; `out` and the workspace came from `&mut`. The caller's views (or
            // the graph) keep them.
            let queued =
                stream.enqueue(|raw| (0..times).try_for_each(|_| unsafe { product.multiply(words, raw.cast()) }));
            queued.map_err(|error| LaunchError::Device(while_doing("launching cuBLASLt")(error)))
        })
    }
}

impl Product {
    /// Queues the product.
    ///
    /// # Safety
    /// `out`, weights, inputs and workspace are addresses of memory as long as described; nothing else writes it, or reads what is
    /// written, until the work on `stream` is done.
    unsafe fn multiply(&self, [out, weights, x, workspace]: [u64; 4], stream: *mut c_void) -> Result<(), DriverError> {
        let lt = &*self.library.0;
        let [product, of_weights, of_x, of_out] = &self.described;
        let (one, zero) = (1.0f32, 0.0f32);
        let at = |address: u64| address as *mut c_void;
        // SAFETY: live handles; the library reads one f32 from each of the pointers to host memory before it returns; the rest by
        // the caller.
        let status = unsafe {
            (lt.multiply)(
                lt.handle,
                product.raw,
                (&raw const one).cast(),
                at(weights),
                of_weights.raw,
                at(x),
                of_x.raw,
                (&raw const zero).cast(),
                at(out),
                of_out.raw,
                at(out),
                of_out.raw,
                &self.choice.algorithm,
                at(workspace),
                self.choice.workspace,
                stream,
            )
        };
        if status == 0 {
            return Ok(());
        }
        let (name, text) = ("CUBLAS_STATUS".to_owned(), format!("cuBLAS status {status}"));
        Err(DriverError { call: "cublasLtMatmul", code: status.unsigned_abs(), name, text })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_library_says_where_it_comes_from() {
        let error = library(Path::new("/nowhere/libcublasLt.so.13")).err().map(|error| error.to_string());
        assert!(error.is_some_and(|error| error.contains("nvidia-cublas") && error.contains("/nowhere")));
    }

    #[test]
    fn a_choice_is_as_long_as_the_librarys() {
        assert_eq!((size_of::<Choice>(), std::mem::offset_of!(Choice, workspace)), (96, 64));
    }
}
