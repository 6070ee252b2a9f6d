//! cuBLASLt, opened where it is: large products by the vendor's kernels, with a workspace that was planned.

mod choosing;
mod plans;
mod product;
mod table;

use std::{
    ffi::{c_int, c_void},
    path::Path,
    ptr,
    sync::Arc,
};

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use memtier::Bytes;

pub use self::{
    plans::LtPlans,
    product::LtProduct,
    table::{LtOutput, LtShape},
};
use crate::{CudaBackend, driver::Context, error::DriverError};

type Handle = *mut c_void;
type Status = c_int;

/// The oldest version that is used: 12.0.
const OLDEST: u64 = 120_000;

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
type DescribeMatrix = unsafe extern "C" fn(*mut Layout, usize, c_int, u64, u64, i64) -> Status;
type Set = unsafe extern "C" fn(Handle, c_int, *const c_void, usize) -> Status;
type Version = unsafe extern "C" fn() -> usize;
type Choose = unsafe extern "C" fn(
    Handle,
    Handle,
    *const Layout,
    *const Layout,
    *const Layout,
    *const Layout,
    Handle,
    c_int,
    *mut Choice,
    *mut c_int,
) -> Status;
type CheckChoice = unsafe extern "C" fn(
    Handle,
    Handle,
    *const Layout,
    *const Layout,
    *const Layout,
    *const Layout,
    *const [u64; 8],
    *mut Choice,
) -> Status;
type Multiply = unsafe extern "C" fn(
    Handle,
    Handle,
    *const c_void,
    *const c_void,
    *const Layout,
    *const c_void,
    *const Layout,
    *const c_void,
    *const c_void,
    *const Layout,
    *mut c_void,
    *const Layout,
    *const [u64; 8],
    *mut c_void,
    usize,
    *mut c_void,
) -> Status;

/// `cublasLtMatrixLayoutOpaque_t`: how a matrix lies, in 64 bytes of the caller.
#[repr(C)]
struct Layout([u64; 8]);

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
    /// It is older than what is used of it.
    #[error(
        "cuBLASLt {version} is older than 12.0: install a newer one, or use `kernels::project`, which needs no library"
    )]
    TooOld {
        /// Its version.
        version: LtVersion,
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
    /// More rows than products are planned for.
    #[error(
        "a product of {rows} rows: at most {most} are planned for, since each number of rows is remembered; prompts are multiplied in chunks, plan for the \
         rows of one"
    )]
    TooManyRows {
        /// The most rows that were asked for.
        rows: usize,
        /// The most that can be.
        most: usize,
    },
    /// The driver failed.
    #[error(transparent)]
    Driver(#[from] DriverError),
}

fn check(call: &'static str, status: Status) -> Result<(), LtError> {
    if status == 0 { Ok(()) } else { Err(LtError::Call { call, status }) }
}

/// A version of the library.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct LtVersion(u64);

impl std::fmt::Display for LtVersion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}.{}", self.0 / 10_000, self.0 / 100 % 100, self.0 % 100)
    }
}

struct Loaded {
    handle: Handle,
    context: Arc<Context>,
    version: LtVersion,
    destroy: Destroy,
    create_product: CreateProduct,
    destroy_product: Destroy,
    set_product: Set,
    describe_matrix: DescribeMatrix,
    create_preference: Create,
    destroy_preference: Destroy,
    set_preference: Set,
    choose: Choose,
    check_choice: CheckChoice,
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
    /// [`LtError::NoLibrary`] where there is none, [`LtError::TooOld`], [`LtError::Call`] when it refuses the device.
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
        let version: Version = function!(b"cublasLtGetVersion");
        // SAFETY: takes nothing.
        let version = LtVersion(unsafe { version() } as u64);
        if version.0 < OLDEST {
            return Err(LtError::TooOld { version });
        }
        let context = backend.context().clone();
        context.bind()?;
        let create: Create = function!(b"cublasLtCreate");
        let mut loaded = Loaded {
            handle: ptr::null_mut(),
            context,
            version,
            destroy: function!(b"cublasLtDestroy"),
            create_product: function!(b"cublasLtMatmulDescCreate"),
            destroy_product: function!(b"cublasLtMatmulDescDestroy"),
            set_product: function!(b"cublasLtMatmulDescSetAttribute"),
            describe_matrix: function!(b"cublasLtMatrixLayoutInit_internal"),
            create_preference: function!(b"cublasLtMatmulPreferenceCreate"),
            destroy_preference: function!(b"cublasLtMatmulPreferenceDestroy"),
            set_preference: function!(b"cublasLtMatmulPreferenceSetAttribute"),
            choose: function!(b"cublasLtMatmulAlgoGetHeuristic"),
            check_choice: function!(b"cublasLtMatmulAlgoCheck"),
            multiply: function!(b"cublasLtMatmul"),
            _library: library,
        };
        // SAFETY: writes a handle, which is destroyed in `drop`; null until then, which `cublasLtDestroy` takes.
        check("cublasLtCreate", unsafe { create(&mut loaded.handle) })?;
        Ok(CublasLt(Arc::new(loaded)))
    }

    /// Its version: what a library reserve is remembered by.
    pub fn version(&self) -> LtVersion {
        self.0.version
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
        assert_eq!(LtVersion(130_100).to_string(), "13.1.0");
    }
}
