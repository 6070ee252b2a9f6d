//! Results of the driver, with their names and words.

use std::ffi::CStr;

use cudarc::driver::sys::CUresult;

/// A result that is not success, by its number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Failure(pub(super) u32);

impl From<CUresult> for Failure {
    fn from(result: CUresult) -> Self {
        Failure(result as u32)
    }
}

/// What calls return inside.
pub(super) type Outcome<T = ()> = Result<T, Failure>;

/// Success, or this failure.
pub(super) fn ensure(holds: bool, otherwise: CUresult) -> Outcome {
    if holds { Ok(()) } else { Err(otherwise.into()) }
}

macro_rules! results { ($($code:literal $name:literal $words:literal)*) => {
    /// The name and the words of a result.
    pub(super) fn known(code: u32) -> Option<(&'static CStr, &'static CStr)> {
        match code {
            $($code => Some(($name, $words)),)*
            _ => None,
        }
    }
} }
results! {
    0 c"CUDA_SUCCESS" c"no error"
    1 c"CUDA_ERROR_INVALID_VALUE" c"an argument is not valid"
    2 c"CUDA_ERROR_OUT_OF_MEMORY" c"there is not enough memory"
    3 c"CUDA_ERROR_NOT_INITIALIZED" c"cuInit was not called"
    4 c"CUDA_ERROR_DEINITIALIZED" c"the driver is shutting down"
    100 c"CUDA_ERROR_NO_DEVICE" c"there is no device"
    101 c"CUDA_ERROR_INVALID_DEVICE" c"there is no device of that number"
    200 c"CUDA_ERROR_INVALID_IMAGE" c"the image is not valid"
    201 c"CUDA_ERROR_INVALID_CONTEXT" c"the thread has no valid context"
    205 c"CUDA_ERROR_MAP_FAILED" c"mapping failed"
    206 c"CUDA_ERROR_UNMAP_FAILED" c"unmapping failed"
    209 c"CUDA_ERROR_NO_BINARY_FOR_GPU" c"there is no code for this device in the image"
    218 c"CUDA_ERROR_INVALID_PTX" c"the PTX is not valid"
    222 c"CUDA_ERROR_UNSUPPORTED_PTX_VERSION" c"the PTX is of a newer CUDA than this driver"
    304 c"CUDA_ERROR_OPERATING_SYSTEM" c"the operating system refused"
    400 c"CUDA_ERROR_INVALID_HANDLE" c"a handle is not valid"
    401 c"CUDA_ERROR_ILLEGAL_STATE" c"this is not possible in this state"
    500 c"CUDA_ERROR_NOT_FOUND" c"there is nothing of that name"
    600 c"CUDA_ERROR_NOT_READY" c"the work is not done"
    700 c"CUDA_ERROR_ILLEGAL_ADDRESS" c"a kernel or a copy reached memory that is not there"
    701 c"CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES" c"the launch takes more than the device has"
    702 c"CUDA_ERROR_LAUNCH_TIMEOUT" c"a kernel took too long"
    709 c"CUDA_ERROR_CONTEXT_IS_DESTROYED" c"the context was destroyed"
    710 c"CUDA_ERROR_ASSERT" c"an assertion of a kernel does not hold"
    712 c"CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED" c"the host memory is registered already"
    713 c"CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED" c"the host memory was not registered"
    715 c"CUDA_ERROR_ILLEGAL_INSTRUCTION" c"a kernel came to an instruction that is none"
    716 c"CUDA_ERROR_MISALIGNED_ADDRESS" c"a kernel reached memory at an address that is not aligned"
    717 c"CUDA_ERROR_INVALID_ADDRESS_SPACE" c"an instruction of a kernel got an address of another space"
    719 c"CUDA_ERROR_LAUNCH_FAILED" c"a kernel failed"
    801 c"CUDA_ERROR_NOT_SUPPORTED" c"this is not supported"
    900 c"CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED" c"this is not allowed while a stream is captured"
    901 c"CUDA_ERROR_STREAM_CAPTURE_INVALIDATED" c"the capture was invalidated by an earlier call"
    904 c"CUDA_ERROR_STREAM_CAPTURE_UNJOINED" c"another stream was not joined to the one that is captured"
    905 c"CUDA_ERROR_STREAM_CAPTURE_ISOLATION" c"the capture would depend on work outside of it"
    906 c"CUDA_ERROR_STREAM_CAPTURE_IMPLICIT" c"the default stream would depend on a stream that is captured"
    907 c"CUDA_ERROR_CAPTURED_EVENT" c"the event was recorded in a capture"
    908 c"CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD" c"the capture was begun by another thread"
    999 c"CUDA_ERROR_UNKNOWN" c"an error of the emulated driver itself"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_bindings() {
        let of =
            [CUresult::CUDA_ERROR_INVALID_VALUE, CUresult::CUDA_ERROR_ILLEGAL_ADDRESS, CUresult::CUDA_ERROR_NOT_READY];
        let captures = [CUresult::CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, CUresult::CUDA_ERROR_CAPTURED_EVENT];
        let images = [CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU, CUresult::CUDA_ERROR_UNSUPPORTED_PTX_VERSION];
        for result in of.into_iter().chain(captures).chain(images) {
            let (name, _) = known(result as u32).unwrap();
            assert_eq!(name.to_str().unwrap(), format!("{result:?}"));
        }
        assert!(known(123_456).is_none());
    }
}
