//! Drivers that a machine with a GPU cannot show: too old, without a device, without memory left. By the emulated one.

mod support;

use std::process::Command;

use memtier_cuda::CudaBackend;
use support::{backend, is_emulated};

const CHILD: &str = "MEMTIER_OPEN_CHILD";

/// What opening a device says in a process with these variables.
fn said(variables: &[(&str, &str)]) -> String {
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["a_driver_that_will_not_do_is_told_apart", "--exact", "--nocapture"]);
    let output = child.env(CHILD, "1").envs(variables.iter().copied()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn a_driver_that_will_not_do_is_told_apart() {
    if std::env::var_os(CHILD).is_some() {
        return match CudaBackend::open(0) {
            Ok(backend) => println!("opened: {:?}", backend.info()),
            Err(error) => println!("refused: {error}"),
        };
    }
    let Some(backend) = backend() else { return };
    if !is_emulated(&backend) {
        return println!("skipped: a real driver is what it is");
    }
    let old = said(&[("MEMTIER_EMULATED_CUDA", "12080")]);
    assert!(old.contains("refused: the driver supports CUDA 12.8, and 13.0 is needed"), "{old}");
    let none = said(&[("MEMTIER_EMULATED_DEVICES", "0")]);
    assert!(none.contains("refused: no CUDA device 0: 0 visible"), "{none}");
    let full = said(&[("MEMTIER_EMULATED_FAULTS", "cuDevicePrimaryCtxRetain:1:2")]);
    assert!(full.contains("cuDevicePrimaryCtxRetain failed: CUDA_ERROR_OUT_OF_MEMORY (2)"), "{full}");
    let small = said(&[("MEMTIER_EMULATED_MEMORY_MIB", "16")]);
    assert!(small.contains("CUDA_ERROR_OUT_OF_MEMORY"), "{small}");
    let hopper = said(&[("MEMTIER_EMULATED_CAPABILITY", "9.0")]);
    assert!(hopper.contains("opened: ") && hopper.contains("capability: (9, 0)"), "{hopper}");
}
