//! The CUDA driver: whether it is there, what the device is, and its context.
//!
//! cudarc panics where the library or one of its functions is missing. So nothing here calls it before [`Context::open`]
//! has looked for the library and for every function that this crate calls.

use std::{
    collections::BTreeMap,
    ffi::{CStr, c_char, c_int},
    ptr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use cudarc::driver::sys::{self, CUresult};

use crate::{
    counting::ours,
    error::{DriverError, OpenError},
    faults::Faults,
};

/// The oldest driver that will do.
pub(crate) const NEEDED: &str = "580";
/// The CUDA version that the bindings were made for.
const CUDA: i32 = 13000;

/// Every function of the driver that this crate calls.
const FUNCTIONS: &[&str] = &[
    "cuInit",
    "cuDriverGetVersion",
    "cuDeviceGetCount",
    "cuDeviceGet",
    "cuDeviceGetName",
    "cuDeviceGetAttribute",
    "cuDeviceTotalMem_v2",
    "cuDevicePrimaryCtxRetain",
    "cuDevicePrimaryCtxRelease_v2",
    "cuCtxGetCurrent",
    "cuCtxSetCurrent",
    "cuGetErrorName",
    "cuGetErrorString",
    "cuMemGetInfo_v2",
    "cuMemGetAllocationGranularity",
    "cuMemAddressReserve",
    "cuMemAddressFree",
    "cuMemCreate",
    "cuMemRelease",
    "cuMemMap",
    "cuMemUnmap",
    "cuMemSetAccess",
    "cuMemHostAlloc",
    "cuMemHostRegister_v2",
    "cuMemHostUnregister",
    "cuMemFreeHost",
    "cuMemcpyHtoDAsync_v2",
    "cuMemcpyDtoHAsync_v2",
    "cuMemcpyDtoDAsync_v2",
    "cuStreamCreate",
    "cuStreamDestroy_v2",
    "cuStreamSynchronize",
    "cuStreamBeginCapture_v2",
    "cuStreamEndCapture",
    "cuGraphInstantiateWithFlags",
    "cuGraphUpload",
    "cuGraphLaunch",
    "cuGraphDestroy",
    "cuGraphExecDestroy",
    "cuEventCreate",
    "cuEventDestroy_v2",
    "cuEventRecord",
    "cuEventQuery",
    "cuEventSynchronize",
    "cuModuleLoadData",
    "cuModuleUnload",
    "cuModuleGetFunction",
    "cuFuncLoad",
    "cuFuncGetParamInfo",
    "cuFuncGetAttribute",
    "cuFuncSetAttribute",
    "cuLaunchKernel",
    "cuLaunchKernelEx",
];

/// What a device is.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct DeviceInfo {
    /// Its number among the visible devices.
    pub ordinal: u32,
    /// Its name.
    pub name: String,
    /// Its compute capability: major, minor.
    pub capability: (u32, u32),
    /// Its multiprocessors.
    pub multiprocessors: u32,
    /// The most shared memory that a block can have, in bytes.
    pub shared: u32,
    /// Its memory, in bytes.
    pub total: u64,
    /// The CUDA version that the driver supports, as it numbers versions: 13000 is 13.0.
    pub cuda: i32,
}

/// The primary context of a device, for as long as somebody holds it.
pub(crate) struct Context {
    device: sys::CUdevice,
    raw: sys::CUcontext,
    pub(crate) info: DeviceInfo,
    /// Device memory in use when the context was there and nothing in it, in bytes.
    pub(crate) at_open: u64,
    pub(crate) faults: Faults,
    pub(crate) locked: LockedRanges,
}

/// Host memory that was registered here: where each piece starts and ends.
#[derive(Default)]
pub(crate) struct LockedRanges(Mutex<BTreeMap<u64, u64>>);

impl LockedRanges {
    fn ranges(&self) -> MutexGuard<'_, BTreeMap<u64, u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add(&self, at: u64, bytes: u64) {
        self.ranges().insert(at, at + bytes);
    }

    pub(crate) fn remove(&self, at: u64) {
        self.ranges().remove(&at);
    }

    /// How many of `bytes` bytes at `at` one copy may have: the driver refuses one that crosses from a registered piece into another.
    fn at_once(&self, at: u64, bytes: u64) -> u64 {
        let ranges = self.ranges();
        let inside = ranges.range(..=at).next_back().map(|(_, end)| *end).filter(|end| *end > at);
        let end = inside.or_else(|| ranges.range(at..).next().map(|(start, _)| *start));
        end.map_or(bytes, |end| bytes.min(end - at))
    }

    /// Calls `copy` with pieces, as offsets and lengths, that together are `bytes` bytes of host memory at `at`.
    pub(crate) fn pieces<E>(
        &self,
        at: u64,
        bytes: u64,
        mut copy: impl FnMut(u64, u64) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut done = 0;
        while done < bytes {
            let piece = self.at_once(at + done, bytes - done);
            copy(done, piece)?;
            done += piece;
        }
        Ok(())
    }
}

// SAFETY: the driver's contexts are used from any thread; the handle is only passed to it.
unsafe impl Send for Context {}
// SAFETY: as above; nothing in it changes.
unsafe impl Sync for Context {}

/// A result of the driver as a `Result`.
pub(crate) fn check(call: &'static str, result: CUresult) -> Result<(), DriverError> {
    if result == CUresult::CUDA_SUCCESS {
        return Ok(());
    }
    Err(failed(call, result))
}

#[cold]
fn failed(call: &'static str, result: CUresult) -> DriverError {
    let text = |read: unsafe fn(CUresult, *mut *const c_char) -> CUresult| {
        let mut text = ptr::null();
        // SAFETY: the driver is there, since it gave a result; it writes a pointer to a static string, or null.
        unsafe {
            read(result, &mut text);
            if text.is_null() { String::from("unknown") } else { CStr::from_ptr(text).to_string_lossy().into_owned() }
        }
    };
    DriverError { call, code: result as u32, name: text(sys::cuGetErrorName), text: text(sys::cuGetErrorString) }
}

/// Whether the driver's library, and every function that this crate calls, can be found. Loads the library.
fn present() -> Result<(), OpenError> {
    // SAFETY: loads the driver's library, whose initialisers are its vendor's.
    if !unsafe { sys::is_culib_present() } {
        return Err(OpenError::NoDriver { needed: NEEDED });
    }
    for symbol in FUNCTIONS {
        // SAFETY: the library was found a moment ago; the address is looked up and not used.
        if unsafe { sys::culib().get::<*const ()>(symbol.as_bytes()) }.is_err() {
            return Err(OpenError::NoFunction { symbol, needed: NEEDED });
        }
    }
    Ok(())
}

impl Context {
    /// Retains the primary context of device `ordinal`.
    pub(crate) fn open(ordinal: u32) -> Result<Arc<Self>, OpenError> {
        present()?;
        let (mut cuda, mut count, mut device) = (0, 0, 0);
        // SAFETY: the function is there.
        match unsafe { sys::cuInit(0) } {
            // A driver without a device says so at once.
            CUresult::CUDA_ERROR_NO_DEVICE => return Err(OpenError::NoDevice { ordinal, count: 0 }),
            result => check("cuInit", result)?,
        }
        // SAFETY: as above; writes one integer.
        unsafe { check("cuDriverGetVersion", sys::cuDriverGetVersion(&mut cuda)) }?;
        if cuda < CUDA {
            return Err(OpenError::OldDriver { found: cuda, wanted: CUDA, needed: NEEDED });
        }
        // SAFETY: as above.
        unsafe { check("cuDeviceGetCount", sys::cuDeviceGetCount(&mut count)) }?;
        let count = u32::try_from(count).unwrap_or(0);
        if ordinal >= count {
            return Err(OpenError::NoDevice { ordinal, count });
        }
        // SAFETY: the ordinal is one of the driver's.
        unsafe { check("cuDeviceGet", sys::cuDeviceGet(&mut device, ordinal as c_int)) }?;
        let info = describe(device, ordinal, cuda)?;
        use sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_VIRTUAL_ADDRESS_MANAGEMENT_SUPPORTED as VMM;
        if attribute(device, VMM)? == 0 {
            return Err(OpenError::NoVirtualMemory { device: info.name });
        }
        let mut raw = ptr::null_mut();
        // SAFETY: the device is the driver's; the reference it takes is given back in `drop`.
        unsafe { check("cuDevicePrimaryCtxRetain", sys::cuDevicePrimaryCtxRetain(&mut raw, device)) }?;
        let mut context =
            Context { device, raw, info, at_open: 0, faults: Faults::default(), locked: LockedRanges::default() };
        let (free, total) = context.memory()?;
        context.at_open = total.saturating_sub(free);
        Ok(Arc::new(context))
    }

    /// Makes it the calling thread's context. Other libraries may have changed that since the last call.
    pub(crate) fn bind(&self) -> Result<(), DriverError> {
        self.changed().map(drop)
    }

    /// The same, and whether it was not the thread's context before.
    pub(crate) fn changed(&self) -> Result<bool, DriverError> {
        let mut current = ptr::null_mut();
        // SAFETY: writes the thread's context, or null.
        unsafe { check("cuCtxGetCurrent", sys::cuCtxGetCurrent(&mut current)) }?;
        if current == self.raw {
            return Ok(false);
        }
        // SAFETY: the context is retained for as long as `self`.
        unsafe { check("cuCtxSetCurrent", sys::cuCtxSetCurrent(self.raw)) }?;
        Ok(true)
    }

    /// The device, as memory requests name it.
    pub(crate) fn device(&self) -> sys::CUdevice {
        self.device
    }

    /// A call that takes something: memory, a stream, an event, code. It counts as this crate's own, and fails when a test said so.
    pub(crate) fn acquire(&self, call: &'static str, make: impl FnOnce() -> CUresult) -> Result<(), DriverError> {
        match self.faults.hit(call) {
            true => Err(failed(call, CUresult::CUDA_ERROR_OUT_OF_MEMORY)),
            false => check(call, ours(make)),
        }
    }

    /// Free and total device memory as the driver reports them, in bytes.
    pub(crate) fn memory(&self) -> Result<(u64, u64), DriverError> {
        self.bind()?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: writes two integers.
        unsafe { check("cuMemGetInfo", sys::cuMemGetInfo_v2(&mut free, &mut total)) }?;
        Ok((free as u64, total as u64))
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: retained once in `open`. A refusal leaves the context to the end of the process.
        let _ = unsafe { sys::cuDevicePrimaryCtxRelease_v2(self.device) };
    }
}

fn attribute(device: sys::CUdevice, attribute: sys::CUdevice_attribute) -> Result<u32, DriverError> {
    let mut value = 0;
    // SAFETY: writes one integer.
    unsafe { check("cuDeviceGetAttribute", sys::cuDeviceGetAttribute(&mut value, attribute, device)) }?;
    Ok(u32::try_from(value).unwrap_or(0))
}

fn describe(device: sys::CUdevice, ordinal: u32, cuda: i32) -> Result<DeviceInfo, DriverError> {
    use sys::CUdevice_attribute as A;
    let mut name = [0; 256];
    let mut total = 0;
    // SAFETY: writes at most 256 bytes with a terminating zero, and one integer.
    unsafe {
        check("cuDeviceGetName", sys::cuDeviceGetName(name.as_mut_ptr(), name.len() as c_int, device))?;
        check("cuDeviceTotalMem", sys::cuDeviceTotalMem_v2(&mut total, device))?;
    }
    let name: Vec<u8> = name.iter().take_while(|byte| **byte != 0).map(|byte| *byte as u8).collect();
    let capability = (
        attribute(device, A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
        attribute(device, A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
    );
    let multiprocessors = attribute(device, A::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?;
    let shared = attribute(device, A::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?;
    let name = String::from_utf8_lossy(&name).into_owned();
    Ok(DeviceInfo { ordinal, name, capability, multiprocessors, shared, total: total as u64, cuda })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One that is missing from the list would be a panic in the middle of a pass, where a driver lacks it.
    #[test]
    fn every_function_that_is_called_is_looked_for() {
        fn calls(folder: &std::path::Path, found: &mut std::collections::BTreeSet<String>) {
            for path in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
                if path.is_dir() {
                    calls(&path, found);
                    continue;
                }
                let text = std::fs::read_to_string(&path).unwrap();
                let names = text.split("sys::cu").skip(1).map(|rest| {
                    let end = rest.find(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
                    format!("cu{}", &rest[..end.unwrap_or(rest.len())])
                });
                // Without the word above, and `culib`.
                found.extend(names.filter(|name| name[2..].starts_with(|first: char| first.is_ascii_uppercase())));
            }
        }
        let sources = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        if !sources.is_dir() {
            println!("skipped: the sources are not on this machine");
            return;
        }
        let mut called = std::collections::BTreeSet::new();
        calls(&sources, &mut called);
        let listed: std::collections::BTreeSet<_> = FUNCTIONS.iter().map(|name| (*name).to_owned()).collect();
        assert!(called.len() > 40, "{called:?}");
        assert_eq!(called, listed);
    }

    #[test]
    fn copies_are_cut_where_registered_pieces_meet() {
        let locked = LockedRanges::default();
        let pieces = |at, bytes| {
            let mut pieces = Vec::new();
            let done: Result<(), ()> = locked.pieces(at, bytes, |from, bytes| {
                pieces.push((from, bytes));
                Ok(())
            });
            done.map(|()| pieces).unwrap_or_default()
        };
        assert_eq!(pieces(1000, 500), [(0, 500)]);
        assert_eq!(pieces(1000, 0), []);
        locked.add(1000, 100);
        locked.add(1100, 50);
        assert_eq!(pieces(1000, 100), [(0, 100)]);
        assert_eq!(pieces(1010, 140), [(0, 90), (90, 50)]);
        assert_eq!(pieces(900, 400), [(0, 100), (100, 100), (200, 50), (250, 150)]);
        locked.remove(1000);
        assert_eq!(pieces(1000, 120), [(0, 100), (100, 20)]);
    }

    #[test]
    fn opening_without_a_driver_says_what_is_missing_and_does_not_panic() {
        // On a machine with a driver the first device opens, or the error is one of the typed ones.
        match Context::open(0) {
            Err(OpenError::NoDriver { .. }) => {
                let text = Context::open(0).err().map(|error| error.to_string()).unwrap_or_default();
                assert!(text.contains("libcuda.so.1") && text.contains("HostBackend"), "{text}");
            }
            Ok(context) => assert!(context.info.total > 0),
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
}
