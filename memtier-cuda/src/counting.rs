//! Counts what the process asks of the driver, whoever asks: cuBLAS's own memory, too. CUPTI, NVIDIA's profiling interface, calls
//! back at every such call.

use std::{
    cell::Cell,
    ffi::{CStr, c_char, c_int, c_void},
    fmt,
    path::PathBuf,
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering},
    },
};

use libloading::os::unix::{Library, RTLD_NOW};

thread_local! {
    static OURS: Cell<bool> = const { Cell::new(false) };
}

/// Runs a call of the driver that counts as this crate's own.
pub(crate) fn ours<R>(call: impl FnOnce() -> R) -> R {
    let before = OURS.replace(true);
    let result = call();
    OURS.set(before);
    result
}

/// Why nothing can be counted.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CountError {
    /// CUPTI was not found.
    #[error(
        "driver calls are not counted: no `libcupti.so` ({reason}). It is part of the CUDA toolkit (extras/CUPTI/lib64) and of the \
         Python wheel `nvidia-cuda-cupti`: put its folder on LD_LIBRARY_PATH, or its path into MEMTIER_CUPTI"
    )]
    NoCupti {
        /// The loader's words about the last place.
        reason: String,
    },
    /// CUPTI refused: a profiler or a debugger has it.
    #[error(
        "driver calls are not counted: {call} says {code}; a profiler that runs this process has CUPTI to itself, so run without"
    )]
    Refused {
        /// CUPTI's function.
        call: &'static str,
        /// Its result.
        code: i32,
    },
}

/// What a call takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Taken {
    /// Device memory.
    Device,
    /// Page-locked host memory, allocated or registered.
    Pinned,
    /// Code, for which the driver takes device memory.
    Code,
}

/// What a function of the driver takes, when it takes something.
fn taken(function: &str) -> Option<Taken> {
    let plain = function.strip_suffix("_ptsz").unwrap_or(function);
    let plain = plain.trim_end_matches(|c: char| c.is_ascii_digit()).strip_suffix("_v").unwrap_or(plain);
    match plain {
        "cuMemAlloc"
        | "cuMemAllocPitch"
        | "cuMemAllocManaged"
        | "cuMemAllocAsync"
        | "cuMemAllocFromPoolAsync"
        | "cuMemCreate"
        | "cuArrayCreate"
        | "cuArray3DCreate"
        | "cuMipmappedArrayCreate" => Some(Taken::Device),
        "cuMemAllocHost" | "cuMemHostAlloc" | "cuMemHostRegister" => Some(Taken::Pinned),
        "cuModuleLoad"
        | "cuModuleLoadData"
        | "cuModuleLoadDataEx"
        | "cuModuleLoadFatBinary"
        | "cuLibraryLoadData"
        | "cuLibraryLoadFromFile" => Some(Taken::Code),
        _ => None,
    }
}

/// Whether the second argument of a function is a number of bytes.
fn says_bytes(function: &str) -> bool {
    function.starts_with("cuMem") && !function.starts_with("cuMemAllocPitch")
}

/// One function of the driver that takes something, and how often it did.
struct Counted {
    name: &'static str,
    taken: Taken,
    says_bytes: bool,
    ours: AtomicU64,
    others: AtomicU64,
    others_bytes: AtomicU64,
}

/// What the callback looks at: for each function by CUPTI's number, which counter is its own.
struct Table {
    counted: Vec<Counted>,
    of: Vec<u16>,
}

const NONE: u16 = u16::MAX;

/// CUPTI's record of a call, as far as it is read.
#[repr(C)]
struct CallbackData {
    site: c_int,
    function: *const c_char,
    arguments: *const c_void,
    result: *const c_void,
}

/// The site after the call.
const EXIT: c_int = 1;
/// CUPTI's domain of driver functions.
const DRIVER: c_int = 1;
/// Beyond the functions of any driver.
const MOST: u32 = 4096;

type Callback = unsafe extern "C" fn(*mut c_void, c_int, u32, *const CallbackData);
type Subscribe = unsafe extern "C" fn(*mut *mut c_void, Callback, *mut c_void) -> c_int;
type Enable = unsafe extern "C" fn(u32, *mut c_void, c_int, u32) -> c_int;
type Name = unsafe extern "C" fn(c_int, u32, *mut *const c_char) -> c_int;

/// # Safety
/// Called by CUPTI: `table` is what was subscribed with, and lives for ever; `data` is a record of the driver domain.
unsafe extern "C" fn on_call(table: *mut c_void, domain: c_int, function: u32, data: *const CallbackData) {
    // SAFETY: by CUPTI, both live during the call; the table is only read.
    let (table, data) = unsafe { (&*table.cast::<Table>().cast_const(), &*data) };
    let counter = table.of.get(function as usize).filter(|_| domain == DRIVER && data.site == EXIT);
    let Some(counted) = counter.and_then(|index| table.counted.get(usize::from(*index))) else { return };
    // SAFETY: behind the call CUPTI gives its result, a `CUresult`.
    if data.result.is_null() || unsafe { *data.result.cast::<c_int>() } != 0 {
        return;
    }
    if OURS.get() {
        counted.ours.fetch_add(1, Ordering::Relaxed);
        return;
    }
    counted.others.fetch_add(1, Ordering::Relaxed);
    if counted.says_bytes && !data.arguments.is_null() {
        // SAFETY: the arguments are a struct of the function's parameters, of which the first is a pointer (a handle's, an
        // address's) and the second a `size_t`.
        let bytes = unsafe { *data.arguments.cast::<u64>().add(1) };
        counted.others_bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// Counts the process's allocations, its libraries' among them, from its first [`start`](Self::start) to the process's end. There is one
/// for all: CUPTI has room for one.
///
/// ```no_run
/// use memtier_cuda::AllocationCounter;
///
/// match AllocationCounter::start() {
///     Ok(counter) => {
///         let before = counter.so_far();
///         // ... serve ...
///         println!("allocations of others: {}", counter.so_far().since(&before));
///     }
///     Err(why) => println!("{why}"),
/// }
/// ```
#[derive(Clone, Copy)]
pub struct AllocationCounter {
    table: &'static Table,
}

impl AllocationCounter {
    /// Starts counting, or finds that it has started.
    ///
    /// # Errors
    /// [`CountError`]: the process goes on without.
    pub fn start() -> Result<Self, CountError> {
        static STARTED: OnceLock<Result<AllocationCounter, CountError>> = OnceLock::new();
        STARTED.get_or_init(subscribe).clone()
    }

    /// What was asked of the driver so far, by everybody.
    pub fn so_far(&self) -> Allocations {
        let read = |counted: &Counted| Calls {
            function: counted.name,
            taken: counted.taken,
            ours: counted.ours.load(Ordering::Relaxed),
            others: counted.others.load(Ordering::Relaxed),
            others_bytes: counted.others_bytes.load(Ordering::Relaxed),
        };
        Allocations { calls: self.table.counted.iter().map(read).collect() }
    }
}

impl fmt::Debug for AllocationCounter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AllocationCounter").field(&self.so_far()).finish()
    }
}

/// Calls of the driver that took something.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Allocations {
    /// One entry for each function that is watched, also those that were not called.
    pub calls: Vec<Calls>,
}

/// How often one function of the driver took something.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Calls {
    /// The driver's name for it.
    pub function: &'static str,
    /// What it takes.
    pub taken: Taken,
    /// Calls of this crate's backends: those that the books know.
    pub ours: u64,
    /// Calls of everybody else in the process.
    pub others: u64,
    /// What those asked for, in bytes, where the function says it.
    pub others_bytes: u64,
}

impl Allocations {
    /// What came after `before`.
    #[must_use]
    pub fn since(&self, before: &Allocations) -> Allocations {
        let zero = |calls: &Calls| Calls { ours: 0, others: 0, others_bytes: 0, ..*calls };
        let less = |calls: &Calls| {
            let earlier = before.calls.iter().find(|earlier| earlier.function == calls.function);
            let earlier = earlier.copied().unwrap_or_else(|| zero(calls));
            Calls {
                ours: calls.ours.saturating_sub(earlier.ours),
                others: calls.others.saturating_sub(earlier.others),
                others_bytes: calls.others_bytes.saturating_sub(earlier.others_bytes),
                ..*calls
            }
        };
        Allocations { calls: self.calls.iter().map(less).collect() }
    }

    /// Calls of this crate's backends.
    pub fn ours(&self) -> u64 {
        self.calls.iter().map(|calls| calls.ours).sum()
    }

    /// Calls of others: vendor libraries, a runtime, the program itself behind the planner's back.
    pub fn others(&self) -> u64 {
        self.calls.iter().map(|calls| calls.others).sum()
    }
}

/// The calls of others, each by its name; `0` when there was none.
impl fmt::Display for Allocations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.others())?;
        let named = self.calls.iter().filter(|calls| calls.others > 0);
        for (index, Calls { function, others, others_bytes, .. }) in named.enumerate() {
            let mib = *others_bytes as f64 / f64::from(1 << 20);
            write!(f, "{}{others} x {function}", if index == 0 { " (" } else { ", " })?;
            if *others_bytes > 0 {
                write!(f, " of {mib:.2} MiB")?;
            }
        }
        f.write_str(if self.others() > 0 { ")" } else { "" })
    }
}

fn library() -> Result<Library, CountError> {
    let named = std::env::var_os("MEMTIER_CUPTI").map(PathBuf::from);
    let usual = ["libcupti.so.13", "libcupti.so", "/usr/local/cuda/extras/CUPTI/lib64/libcupti.so"].map(PathBuf::from);
    let places = named.map_or_else(|| usual.to_vec(), |path| vec![path]);
    let mut reason = String::new();
    for place in places {
        // SAFETY: the library's initialisers are its vendor's.
        match unsafe { Library::open(Some(&place), RTLD_NOW) } {
            Ok(library) => return Ok(library),
            Err(error) => reason = error.to_string(),
        }
    }
    Err(CountError::NoCupti { reason })
}

fn subscribe() -> Result<AllocationCounter, CountError> {
    let library = library()?;
    macro_rules! function {
        ($name:literal, $ty:ty) => {
            // SAFETY: the function has this type since CUPTI 11, by its header.
            *unsafe { library.get::<$ty>($name) }.map_err(|error| CountError::NoCupti { reason: error.to_string() })?
        };
    }
    let (subscribe, enable) = (function!(b"cuptiSubscribe", Subscribe), function!(b"cuptiEnableCallback", Enable));
    let name = function!(b"cuptiGetCallbackName", Name);
    // CUPTI may call back until the process ends.
    std::mem::forget(library);
    let mut table = Table { counted: Vec::new(), of: Vec::new() };
    for number in 1..MOST {
        let mut text = std::ptr::null();
        // SAFETY: writes a pointer to a static string, or fails.
        if unsafe { name(DRIVER, number, &mut text) } != 0 || text.is_null() {
            continue;
        }
        // SAFETY: CUPTI's own, static, ends with zero.
        let Ok(text) = unsafe { CStr::from_ptr(text) }.to_str() else { continue };
        if let Some(taken) = taken(text) {
            table.of.resize(number as usize, NONE);
            table.of.push(table.counted.len() as u16);
            let [ours, others, others_bytes] = [const { AtomicU64::new(0) }; 3];
            let says_bytes = says_bytes(text);
            table.counted.push(Counted { name: text, taken, says_bytes, ours, others, others_bytes });
        }
    }
    if table.counted.is_empty() {
        return Err(CountError::Refused { call: "cuptiGetCallbackName", code: 0 });
    }
    let table: &'static Table = Box::leak(Box::new(table));
    let mut subscriber = std::ptr::null_mut();
    let userdata = std::ptr::from_ref(table).cast_mut().cast();
    // SAFETY: the callback reads the table only, which lives for ever.
    let code = unsafe { subscribe(&mut subscriber, on_call, userdata) };
    if code != 0 {
        return Err(CountError::Refused { call: "cuptiSubscribe", code });
    }
    for (number, _) in table.of.iter().enumerate().filter(|(_, counter)| **counter != NONE) {
        // SAFETY: a live subscriber; the number is one that CUPTI named.
        let code = unsafe { enable(1, subscriber, DRIVER, number as u32) };
        if code != 0 {
            return Err(CountError::Refused { call: "cuptiEnableCallback", code });
        }
    }
    Ok(AllocationCounter { table })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_that_take_something_are_known_in_every_version() {
        for (function, expected) in [
            ("cuMemAlloc", Some(Taken::Device)),
            ("cuMemAlloc_v2", Some(Taken::Device)),
            ("cuMemAllocAsync_ptsz", Some(Taken::Device)),
            ("cuMemAllocFromPoolAsync", Some(Taken::Device)),
            ("cuArray3DCreate_v2", Some(Taken::Device)),
            ("cuMemHostRegister_v2", Some(Taken::Pinned)),
            ("cuModuleLoadDataEx", Some(Taken::Code)),
            ("cuMemFree_v2", None),
            ("cuLaunchKernel", None),
            ("cuMemPoolCreate", None),
        ] {
            assert_eq!(taken(function), expected, "{function}");
        }
        assert!(says_bytes("cuMemCreate") && !says_bytes("cuMemAllocPitch_v2") && !says_bytes("cuArrayCreate_v2"));
    }

    #[test]
    fn calls_are_counted_when_they_succeeded_and_by_who_made_them() {
        let counted = |name, taken| {
            let [ours, others, others_bytes] = [const { AtomicU64::new(0) }; 3];
            Counted { name, taken, says_bytes: says_bytes(name), ours, others, others_bytes }
        };
        let functions = vec![counted("cuMemAlloc_v2", Taken::Device), counted("cuModuleLoadData", Taken::Code)];
        let table: &'static Table = Box::leak(Box::new(Table { counted: functions, of: vec![NONE, 0, NONE, 1] }));
        let counter = AllocationCounter { table };
        let call = |number: u32, site: c_int, result: c_int| {
            let arguments = [0u64, 3 << 20];
            let (arguments, result) = (arguments.as_ptr().cast(), std::ptr::from_ref(&result).cast());
            let data = CallbackData { site, function: std::ptr::null(), arguments, result };
            // SAFETY: as CUPTI calls it.
            unsafe { on_call(std::ptr::from_ref(table).cast_mut().cast(), DRIVER, number, &data) };
        };
        let start = counter.so_far();
        assert_eq!(start.to_string(), "0");
        call(1, 0, 0);
        call(1, EXIT, 2);
        call(2, EXIT, 0);
        call(900, EXIT, 0);
        assert_eq!(counter.so_far(), start, "entered, failed, or not watched");
        ours(|| call(1, EXIT, 0));
        call(1, EXIT, 0);
        call(1, EXIT, 0);
        call(3, EXIT, 0);
        let now = counter.so_far().since(&start);
        assert_eq!((now.ours(), now.others()), (1, 3));
        assert_eq!(now.to_string(), "3 (2 x cuMemAlloc_v2 of 6.00 MiB, 1 x cuModuleLoadData)");
        assert_eq!(counter.so_far().since(&counter.so_far()).others(), 0);
    }

    #[test]
    fn without_cupti_it_is_an_error_that_says_where_it_is_found() {
        let error = CountError::NoCupti { reason: "not there".into() }.to_string();
        assert!(error.contains("extras/CUPTI") && error.contains("MEMTIER_CUPTI"), "{error}");
    }
}
