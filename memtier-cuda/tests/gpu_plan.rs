//! The plan against what the driver says is in use, over two starts: the second plans with what the first measured.
//!
//! Each start is a process of its own, because a context and a library are there once.

mod support;

use std::{ffi::c_void, path::Path, process::Command};

use memtier::{
    Blocks, Bytes, Cuda, Device, Engine, LaunchError, Limits, PoolSpec, Space, Step, StreamSpec, TableSpec, Tokens,
    plan::ReserveSource,
    plan::Tier,
    reserve::{ReserveFile, is_apart},
};
use memtier_cuda::kernels;
use support::{Dims, Toy, ToySpec, backend, kernels as load_kernels};

const CHILD: &str = "MEMTIER_PLAN_CHILD";
const MEASURED: &str = "a_second_start_plans_what_the_driver_says_is_in_use";

/// A vendor's library that claims memory on first use, as an engine would have one. Kept to the end of the process.
fn library() -> &'static str {
    let names = ["libcublas.so.13", "libcublas.so.12"];
    // SAFETY: a vendor's library.
    let found = names.iter().find_map(|name| Some((*name, unsafe { libloading::Library::new(*name) }.ok()?)));
    let Some((name, library)) = found else { return "none" };
    let mut handle: *mut c_void = std::ptr::null_mut();
    // SAFETY: the function has this type by its header.
    unsafe {
        let create = library.get::<unsafe extern "C" fn(*mut *mut c_void) -> i32>(b"cublasCreate_v2").unwrap();
        assert_eq!(create(&mut handle), 0);
    }
    std::mem::forget(library);
    name
}

fn mib(bytes: Bytes) -> f64 {
    bytes.count() as f64 / f64::from(1 << 20)
}

/// One start, measured: what it planned with is compared with what is there.
fn start(path: &Path) {
    let Some(backend) = backend() else { return };
    let measuring = backend.start_up();
    let (mut file, warning) = ReserveFile::open(path);
    assert!(warning.is_none());
    let key = backend.reserve_key(concat!("memtier-cuda ", env!("CARGO_PKG_VERSION"), ", cuBLAS"), "graphs");
    let budget = backend.memory().unwrap().total;
    let limits = Limits { graphs: 4, graph_bytes: Bytes::mib(1), ..Limits::new(Cuda::NAME, budget) };
    let limits = file.limits(&key, backend.with_context(limits));
    let remembered = limits.library_source == ReserveSource::Remembered;

    let device = Device::new(backend.clone(), budget);
    let mut engine = Engine::open(&device);
    // 4 GiB of weights, 4 GiB of pool, odd sizes all around.
    let kv = PoolSpec::fixed(Tokens::new(64), 1_234_567 / 64 * 64, Blocks::new(1739));
    let weights = Dims { elements: (1 << 30) + 12_345 };
    let spec = ToySpec { weights, work: Dims { elements: 77_777 }, kv, table: TableSpec { rows: 16, columns: 1739 } };
    let lines = engine.declare_bundle::<Toy>(spec);
    let stream = engine.declare(StreamSpec { scratch: Bytes::mib(333) });
    let mut engine = engine.plan(limits).unwrap().carve(lines).unwrap();
    let kernels = load_kernels(&backend);
    let mut stream = engine.open_stream(stream).unwrap();
    let used_by = library();
    let graphs: Vec<_> = (1..=4)
        .map(|launches| {
            let recorded = engine.record::<Toy, LaunchError, _>(&mut stream, |step| {
                let Step { buffers, on, .. } = step;
                (0..launches * 10)
                    .try_for_each(|_| kernels::scale(on, &kernels, &mut buffers.work.y, &buffers.work.x, 2.0))
            });
            recorded.unwrap()
        })
        .collect();
    let mut engine = engine.serve::<Toy>().unwrap();
    for graph in graphs {
        let mut step = engine.step(&mut stream).unwrap();
        step.replay(graph).unwrap();
        step.finish().unwrap().wait().unwrap();
    }

    let (used, live) = (backend.used().unwrap(), device.report().live);
    assert_eq!(device.resident(), Some(live), "the backend maps another amount than the books say");
    // Graphs have a line of their own.
    let measured = measuring.reserve(used, live.plus(Bytes::mib(4)).unwrap());
    let plan = engine.memory_plan();
    let total = plan.total();
    let apart = (used.count() as f64 - total.count() as f64).abs() / used.count() as f64;
    let report = engine.memory_report();
    let named: u64 =
        report.tiers.iter().filter(|tier| tier.tier != Tier::Reserve).map(|tier| tier.committed.count()).sum();
    let reserves = plan.lines().iter().filter(|line| line.tier == Tier::Reserve).map(|line| line.granted.count());
    let named = named + reserves.sum::<u64>();
    let attributed = named.min(used.count()) as f64 / used.count() as f64;
    println!(
        "start: in use {:.2} MiB by the driver; planned {:.2} MiB, {:.3} % apart; context {:.2}, library reserve {:.2} planned, {:.2} measured \
         ({used_by}); attributed {:.3} %",
        mib(used),
        mib(total),
        apart * 100.0,
        mib(backend.context_memory()),
        mib(limits.library_reserve),
        mib(measured),
        attributed * 100.0
    );
    if remembered {
        assert!(apart <= 0.005, "{apart}");
        assert!(!is_apart(limits.library_reserve, measured), "the plan needs a correction");
        assert!(attributed >= 0.995 && named as f64 <= used.count() as f64 * 1.005, "{attributed} {named}");
        println!("start: the remembered reserve holds");
    }
    file.record(&key, measured).unwrap();
}

#[test]
fn a_second_start_plans_what_the_driver_says_is_in_use() {
    if let Some(path) = std::env::var_os(CHILD) {
        return start(path.as_ref());
    }
    if backend().is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut said = Vec::new();
    for _ in 0..2 {
        let program = std::env::current_exe().unwrap();
        let output = Command::new(program)
            .args([MEASURED, "--exact", "--nocapture"])
            .env(CHILD, folder.path().join("reserve"))
            .output()
            .unwrap();
        let out = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{out}\n{}", String::from_utf8_lossy(&output.stderr));
        out.lines().filter(|line| line.starts_with("start: ")).for_each(|line| println!("{line}"));
        said.push(out);
    }
    assert!(!said[0].contains("holds") && said[1].contains("the remembered reserve holds"), "{said:?}");
}
