//! A stand-in for cuBLASLt that has an algorithm for everything, lets itself be recorded at addresses where nothing is, and then
//! refuses: odd numbers of rows when it is asked, others when they are launched. Compiled by a test into a library of its own.
#![allow(non_snake_case, unreachable_pub, clippy::missing_safety_doc)]

use std::ffi::{c_int, c_void};

type Handle = *mut c_void;
type Layout = *const [u64; 8];

/// `CUBLAS_STATUS_NOT_SUPPORTED`.
const NOT_SUPPORTED: c_int = 15;
/// What its algorithms say that they work in.
const WORKSPACE: usize = 1 << 20;
/// Where kernels are recorded that never run.
const NOWHERE: usize = 1 << 20;

#[unsafe(no_mangle)]
pub extern "C" fn cublasLtGetVersion() -> usize {
    130_000
}

macro_rules! done {
    ($($name:ident($($argument:ty),*);)*) => { $(
        #[unsafe(no_mangle)]
        pub extern "C" fn $name($(_: $argument),*) -> c_int {
            0
        }
    )* };
}
done! {
    cublasLtCreate(*mut Handle);
    cublasLtDestroy(Handle);
    cublasLtMatmulDescCreate(*mut Handle, c_int, c_int);
    cublasLtMatmulDescDestroy(Handle);
    cublasLtMatmulDescSetAttribute(Handle, c_int, *const c_void, usize);
    cublasLtMatmulPreferenceCreate(*mut Handle);
    cublasLtMatmulPreferenceDestroy(Handle);
    cublasLtMatmulPreferenceSetAttribute(Handle, c_int, *const c_void, usize);
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasLtMatrixLayoutInit_internal(
    layout: *mut [u64; 8],
    _bytes: usize,
    _element: c_int,
    rows: u64,
    columns: u64,
    _apart: i64,
) -> c_int {
    // SAFETY: as with cuBLASLt, the caller gives pointers to what is read and written here.
    unsafe { *layout = [rows, columns, 0, 0, 0, 0, 0, 0] };
    0
}

/// `cublasLtMatmulHeuristicResult_t`.
#[repr(C)]
pub struct Choice {
    algorithm: [u64; 8],
    workspace: usize,
    state: c_int,
    waves: f32,
    reserved: [c_int; 4],
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasLtMatmulAlgoGetHeuristic(
    _: Handle,
    _: Handle,
    _: Layout,
    _: Layout,
    _: Layout,
    _: Layout,
    _: Handle,
    _: c_int,
    choice: *mut Choice,
    found: *mut c_int,
) -> c_int {
    // SAFETY: as with cuBLASLt, the caller gives pointers to what is read and written here.
    unsafe {
        *choice = Choice { algorithm: [7; 8], workspace: WORKSPACE, state: 0, waves: 1.0, reserved: [0; 4] };
        *found = 1;
    }
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasLtMatmulAlgoCheck(
    _: Handle,
    _: Handle,
    _: Layout,
    x: Layout,
    _: Layout,
    _: Layout,
    algorithm: *const [u64; 8],
    choice: *mut Choice,
) -> c_int {
    // SAFETY: as with cuBLASLt, the caller gives pointers to what is read and written here.
    unsafe {
        assert_eq!(*algorithm, [7; 8]);
        (*choice).workspace = WORKSPACE;
        (*choice).state = if (*x)[1] % 2 == 1 { NOT_SUPPORTED } else { 0 };
    }
    0
}

#[unsafe(no_mangle)]
pub extern "C" fn cublasLtMatmul(
    _: Handle,
    _: Handle,
    _: *const c_void,
    _: *const c_void,
    _: Layout,
    _: *const c_void,
    _: Layout,
    _: *const c_void,
    _: *const c_void,
    _: Layout,
    out: *mut c_void,
    _: Layout,
    _: *const [u64; 8],
    _: *mut c_void,
    _: usize,
    _: *mut c_void,
) -> c_int {
    if out.addr() == NOWHERE { 0 } else { NOT_SUPPORTED }
}
