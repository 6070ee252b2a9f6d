//! Without a driver, a compiler or a new enough driver: typed errors that name the remedy. Runs everywhere.

use std::process::Command;

use memtier_cuda::{AllocationCounter, CountError, CudaBackend, DriverError, OpenError};

#[test]
fn no_driver_is_an_error_that_says_what_to_install_and_what_works_without() {
    match CudaBackend::open(0) {
        Ok(_) => println!("skipped: there is a driver and a device here"),
        Err(error @ OpenError::NoDriver { .. }) => {
            let text = error.to_string();
            let words = ["libcuda.so.1", "NVIDIA driver 580", "LD_LIBRARY_PATH", "HostBackend"];
            assert!(words.iter().all(|word| text.contains(word)), "{text}");
        }
        Err(error) => println!("skipped: there is a driver here ({error})"),
    }
}

#[test]
fn a_driver_that_is_too_old_is_told_by_both_versions() {
    let text = OpenError::OldDriver { found: 12080, wanted: 13000, needed: "580" }.to_string();
    assert_eq!(text, "the driver supports CUDA 12.8, and 13.0 is needed: install the NVIDIA driver 580 or newer");
    let text = OpenError::NoFunction { symbol: "cuMemCreate", needed: "580" }.to_string();
    assert!(text.contains("cuMemCreate") && text.contains("install a newer"), "{text}");
    let name = "CUDA_ERROR_OUT_OF_MEMORY".to_owned();
    let failed = DriverError { call: "cuDevicePrimaryCtxRetain", code: 2, name, text: "out of memory".into() };
    let text = OpenError::from(failed).to_string();
    assert!(text.contains("cuDevicePrimaryCtxRetain") && text.contains("`nvidia-smi` says"), "{text}");
}

#[test]
fn no_nvrtc_is_an_error_that_says_where_it_comes_from() {
    let beside = tempfile::tempdir().unwrap();
    let folder = beside.path().join("kernels");
    let compile = |nvrtc: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_compile-kernels"));
        command.env("MEMTIER_NVRTC", nvrtc).env_remove("MEMTIER_PTX_NVRTC").arg("--out").arg(&folder);
        let output = command.output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (code, said) = compile("/nowhere/libnvrtc.so.13");
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("/nowhere/libnvrtc.so.13") && said.contains("nvidia-cuda-nvrtc"), "{said}");
    // A library, but not this one.
    let other = std::env::current_exe().unwrap();
    let (code, said) = compile(other.to_str().unwrap());
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("nvidia-cuda-nvrtc"), "{said}");
    assert!(!folder.exists(), "something was written");
}

/// In a process of its own: the counter is there once, with what it found.
#[test]
fn no_cupti_is_an_error_and_the_process_goes_on() {
    const CHILD: &str = "MEMTIER_NO_CUPTI_CHILD";
    if std::env::var_os(CHILD).is_some() {
        let error = AllocationCounter::start().unwrap_err();
        assert!(matches!(error, CountError::NoCupti { .. }), "{error}");
        assert!(error.to_string().contains("nvidia-cuda-cupti"), "{error}");
        return println!("went on");
    }
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["no_cupti_is_an_error_and_the_process_goes_on", "--exact", "--nocapture"]);
    let output = child.env(CHILD, "1").env("MEMTIER_CUPTI", "/nowhere/libcupti.so").output().unwrap();
    assert!(output.status.success() && String::from_utf8_lossy(&output.stdout).contains("went on"));
}
