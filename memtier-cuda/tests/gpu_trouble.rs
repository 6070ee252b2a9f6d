//! Bad luck: every acquisition that can be refused, code that the driver cannot run, a capture that breaks, a kernel that faults. Each is a
//! typed error that names the remedy, and the process goes on where CUDA lets it.

mod support;

use std::{fs, process::Command};

use cudarc::driver::sys;
use memtier::{
    Bytes, Cuda, Device, Engine, LaunchError, Limits, NativeQueue, PlanError, RecordError, Serving, Space, Step,
    Stream, StreamSpec, TableSpec,
};
use memtier_cuda::{CudaBackend, CudaStream, DriverError, KernelError, KernelModule, Kernels, kernels};
use support::{Dims, Rig, Toy, ToySpec, ToyView, backend, kernels as load_kernels, kernels_folder, pool};

const TABLE: TableSpec = TableSpec { rows: 2, columns: 4 };

fn rig() -> Option<Rig> {
    Rig::new(Bytes::mib(8), pool(16, 4096, 8), TABLE)
}

/// From nothing to serving, with the error of whatever failed.
fn start(backend: &CudaBackend, kernels: &Kernels) -> Result<(Engine<Serving<Toy>>, Stream<Cuda>), String> {
    let device = Device::new(backend.clone(), Bytes::mib(256));
    let mut engine = Engine::open(&device);
    let dims = Dims { elements: 4096 };
    let spec = ToySpec { weights: dims, work: dims, kv: pool(16, 4096, 8), table: TABLE };
    let lines = engine.declare_bundle::<Toy>(spec);
    let stream = engine.declare(StreamSpec { scratch: Bytes::mib(1) });
    let limits = Limits { graphs: 1, graph_bytes: Bytes::mib(1), ..Limits::new(Cuda::NAME, Bytes::mib(256)) };
    let refused = |report: PlanError| match report {
        PlanError::Acquire(error) => error.to_string(),
        other => panic!("{other}"),
    };
    let engine = engine.plan(limits).map_err(|error| refused(error.report))?;
    let mut engine = engine.carve(lines).map_err(|failed| failed.error.to_string())?;
    let mut stream = engine.open_stream(stream).map_err(|error| error.to_string())?;
    let recorded = engine.record::<Toy, LaunchError, _>(&mut stream, |step| {
        let Step { buffers: ToyView { work, .. }, on, .. } = step;
        kernels::scale(on, kernels, &mut work.y, &work.x, 2.0)
    });
    let graph = recorded.map_err(|error| match error {
        RecordError::Bake(LaunchError::Device(error)) => error.to_string(),
        other => panic!("{other}"),
    })?;
    let mut engine = engine.serve::<Toy>().unwrap();
    let mut step = engine.step(&mut stream).unwrap();
    step.on.write(&mut step.buffers.work.x, &[21.0; 4096]).unwrap();
    step.replay(graph).unwrap();
    let mut out = [0.0];
    step.on.read::<f32>(&step.buffers.work.y, &mut out).unwrap();
    assert_eq!(out, [42.0]);
    step.finish().unwrap().wait().unwrap();
    Ok((engine, stream))
}

#[test]
fn every_acquisition_that_is_refused_is_named_and_the_next_start_works() {
    let Some(backend) = backend() else { return };
    let kernels = load_kernels(&backend);
    drop(start(&backend, &kernels).unwrap());
    let before = backend.memory().unwrap().free;
    let mut refusals = 0;
    let calls = [
        "cuMemAddressReserve",
        "cuMemCreate",
        "cuMemMap",
        "cuMemSetAccess",
        "cuStreamCreate",
        "cuEventCreate",
        "cuMemHostAlloc",
        "cuGraphInstantiate",
        "cuGraphUpload",
    ];
    for call in calls {
        // Each of them, the first, the second and so on, until a start has no more.
        for after in 0.. {
            backend.fail(call, after);
            match start(&backend, &kernels) {
                Err(error) => {
                    assert!(error.contains(call) && error.contains("OUT_OF_MEMORY"), "{call} {after}: {error}")
                }
                Ok(started) => {
                    assert!(after > 0, "{call} is never called");
                    drop(started);
                    break;
                }
            }
            refusals += 1;
            assert_eq!(backend.memory().unwrap().free, before, "{call} {after}: something was kept");
        }
        // What was armed last hit nothing yet, and must not hit somebody else.
        while start(&backend, &kernels).is_ok() {}
    }
    assert!(refusals > 80, "{refusals}");
    println!("{refusals} refusals, each named, nothing kept");
}

#[test]
fn a_device_that_is_really_full_refuses_the_plan_and_serves_a_smaller_one() {
    let Some(backend) = backend() else { return };
    let kernels = load_kernels(&backend);
    let free = backend.memory().unwrap().free;
    // Somebody else has nearly all of it.
    let other = Device::new(backend.clone(), free);
    let mut engine = Engine::open(&other);
    let most = free.beyond(Bytes::mib(256));
    let _hog = engine.declare::<Stream<Cuda>>(StreamSpec { scratch: most });
    let hog = engine.plan(Limits::new(Cuda::NAME, free)).unwrap();
    let device = Device::new(backend.clone(), Bytes::gib(4));
    let mut engine = Engine::open(&device);
    let _wish = engine.declare::<Stream<Cuda>>(StreamSpec { scratch: Bytes::gib(1) });
    let refused = engine.plan(Limits::new(Cuda::NAME, Bytes::gib(4))).err().unwrap();
    let PlanError::Acquire(error) = &refused.report else { panic!("{}", refused.report) };
    for words in ["CUDA_ERROR_OUT_OF_MEMORY", " are free: plan with a budget that they hold"] {
        assert!(error.to_string().contains(words), "{error}");
    }
    drop((hog, refused));
    drop(start(&backend, &kernels).unwrap());
}

/// PTX of a CUDA that no driver knows yet.
const OF_THE_FUTURE: &str = ".version 99.9\n.target sm_90\n.address_size 64\n.visible .entry nothing() { ret; }\n";
/// Writes where nothing is.
const FAULTS: &str = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry fault() {\n.reg .b64 %a;\nmov.u64 %a, 4096;\n\
     st.global.u32 [%a], 1;\nret;\n}\n";

#[test]
fn code_that_the_driver_cannot_run_is_told_apart_from_code_that_is_none() {
    let Some(backend) = backend() else { return };
    // SAFETY: nothing of it is launched.
    let load = |image: &[u8]| unsafe { KernelModule::load(&backend, image) }.err();
    let future = load(OF_THE_FUTURE.as_bytes()).unwrap();
    assert!(matches!(future, KernelError::Mismatch { .. }), "{future}");
    assert!(future.to_string().contains("newer driver"), "{future}");
    let noise = load(b"this is no image at all").unwrap();
    assert!(matches!(noise, KernelError::Mismatch { .. } | KernelError::Damaged { .. }), "{noise}");
    // Another device's kernels under this one's name.
    let (folder, ours) = (tempfile::tempdir().unwrap(), kernels_folder());
    let target = load_kernels(&backend).target();
    let other = match target {
        "sm_120a" => "sm_90a",
        "compute_120f" => "compute_90a",
        "compute_90a" => "compute_120f",
        _ => "sm_120a",
    };
    if !ours.join(other).exists() {
        return println!("skipped: no kernels for {other} here");
    }
    fs::create_dir_all(folder.path().join(target)).unwrap();
    for entry in fs::read_dir(ours.join(other)).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, folder.path().join(target).join(path.file_name().unwrap())).unwrap();
    }
    let manifest = fs::read_to_string(ours.join("manifest.txt")).unwrap();
    let lines = manifest.lines().filter(|line| !line.starts_with(&format!("image {target} ")));
    let renamed: Vec<_> =
        lines.map(|line| line.replace(&format!("image {other} "), &format!("image {target} "))).collect();
    fs::write(folder.path().join("manifest.txt"), renamed.join("\n")).unwrap();
    let error = Kernels::load(&backend, folder.path()).unwrap_err();
    let KernelError::Mismatch { path, .. } = &error else { panic!("{error}") };
    assert!(path.contains(target), "{path}");
    assert!(error.to_string().contains("compile"), "{error}");
    // An image that is cut off, one that is not there, and a folder that is none.
    let image = path.clone();
    let length = fs::metadata(&image).unwrap().len();
    fs::File::options().write(true).open(&image).unwrap().set_len(length / 2).unwrap();
    let said = Kernels::load(&backend, folder.path()).unwrap_err().to_string();
    assert!(said.contains(&image) && said.contains(&format!("{} bytes", length / 2)), "{said}");
    let said = Kernels::load(&backend, &folder.path().join("nowhere")).unwrap_err().to_string();
    assert!(said.contains("nowhere") && said.contains("compile-kernels"), "{said}");
    // The device is as it was.
    drop(start(&backend, &load_kernels(&backend)).unwrap());
}

/// Does what `work` does with the stream's handle, as a launch wrapper would.
fn raw(
    work: impl Fn(sys::CUstream) -> Result<(), DriverError> + Send + Sync + 'static,
) -> impl Fn(NativeQueue<'_>) -> Result<(), LaunchError> + Send + Sync + 'static {
    move |queue| {
        let stream = queue.native().downcast_ref::<CudaStream>().unwrap();
        stream.enqueue(&work).map_err(|error| LaunchError::Unsupported { what: "raw call", why: error.name.leak() })
    }
}

fn refused(call: &'static str, result: sys::CUresult) -> Result<(), DriverError> {
    match result {
        sys::CUresult::CUDA_SUCCESS => Ok(()),
        result => {
            let (code, name, text) = (result as u32, format!("{result:?}"), String::new());
            Err(DriverError { call, code, name, text })
        }
    }
}

#[test]
fn an_illegal_call_in_a_capture_breaks_the_capture_only() {
    let Some(Rig { kernels, mut engine, mut stream, .. }) = rig() else { return };
    for told in [true, false] {
        let broken = engine.record::<Toy, LaunchError, _>(&mut stream, |step| {
            let Step { buffers: ToyView { weights, work, .. }, on, .. } = step;
            kernels::scale(on, &kernels, &mut work.y, weights.weight, 1.0)?;
            on.launch(
                &[],
                raw(move |stream| {
                    // SAFETY: a live stream. A capture forbids waiting for it.
                    let result = refused("cuStreamSynchronize", unsafe { sys::cuStreamSynchronize(stream) });
                    assert!(result.is_err(), "a capture lets a thread wait for its stream");
                    // A wrapper may also swallow it: the end of the capture tells.
                    if told { result } else { Ok(()) }
                }),
            )
        });
        match (told, broken.err().unwrap()) {
            (true, RecordError::Bake(LaunchError::Unsupported { why, .. })) => {
                assert!(why.contains("STREAM_CAPTURE"), "{why}");
            }
            (false, RecordError::Bake(LaunchError::Device(error))) => {
                assert!(error.to_string().contains("STREAM_CAPTURE"), "{error}");
                assert!(!error.lost);
            }
            (_, other) => panic!("{other}"),
        }
        // The same work, eagerly, on the same stream; and a capture of it works.
        let mut step = engine.step(&mut stream).unwrap();
        let Step { buffers: ToyView { weights, work, .. }, on, .. } = &mut step;
        kernels::scale(on, &kernels, &mut work.y, weights.weight, 1.0).unwrap();
        step.finish().unwrap().wait().unwrap();
        let whole = engine.record::<Toy, LaunchError, _>(&mut stream, |step| {
            let Step { buffers: ToyView { weights, work, .. }, on, .. } = step;
            kernels::scale(on, &kernels, &mut work.y, weights.weight, 1.0)
        });
        engine.forget(whole.unwrap()).unwrap();
    }
}

/// In a process of its own: a context that faulted is lost with its process.
#[test]
fn a_kernel_that_faults_loses_the_device_and_everything_drops() {
    const CHILD: &str = "MEMTIER_FAULTING_CHILD";
    if std::env::var_os(CHILD).is_none() {
        if backend().is_none() {
            return;
        }
        let program = std::env::current_exe().unwrap();
        let name = "a_kernel_that_faults_loses_the_device_and_everything_drops";
        let output = Command::new(program).args([name, "--exact", "--nocapture"]).env(CHILD, "1").output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
        assert!(said.contains("everything was dropped"), "{said}");
        said.lines().filter(|line| line.starts_with("lost: ")).for_each(|line| println!("{line}"));
        // This process is untouched.
        return drop(rig().unwrap());
    }
    let Some(Rig { backend, device, kernels, mut engine, mut stream }) = rig() else { return };
    // SAFETY: it faults, which is what is looked at; nothing on the device is used afterwards.
    let module = unsafe { KernelModule::load(&backend, FAULTS.as_bytes()) }.unwrap();
    let mut step = engine.step(&mut stream).unwrap();
    step.on
        .launch(
            &[],
            raw(move |stream| {
                let (mut code, mut function) = (std::ptr::null_mut(), std::ptr::null_mut());
                let mut image = FAULTS.as_bytes().to_vec();
                image.push(0);
                // SAFETY: PTX that ends with zero; a kernel without arguments.
                unsafe {
                    refused("load", sys::cuModuleLoadData(&mut code, image.as_ptr().cast()))?;
                    refused("function", sys::cuModuleGetFunction(&mut function, code, c"fault".as_ptr()))?;
                    let none = std::ptr::null_mut();
                    refused("launch", sys::cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, none, none))
                }
            }),
        )
        .unwrap();
    let mut out = [0.0];
    let LaunchError::Device(error) = step.on.read::<f32>(&step.buffers.work.y, &mut out).unwrap_err() else { panic!() };
    assert!(error.lost, "{error}");
    let text = error.to_string();
    assert!(text.contains("lost to this process") && text.contains("new one"), "{text}");
    println!("lost: {text}");
    // Every later call says so, and none hangs.
    let later = kernels::scale(step.on, &kernels, &mut step.buffers.work.y, &step.buffers.work.x, 1.0);
    assert!(matches!(later, Err(LaunchError::Device(ref error)) if error.lost), "{later:?}");
    let finished = step.finish().and_then(|fence| fence.wait().map(drop).map_err(LaunchError::from));
    assert!(matches!(finished, Err(LaunchError::Device(ref error)) if error.lost), "{finished:?}");
    assert!(backend.memory().unwrap_err().is_lost());
    let driver = backend.memory().unwrap_err();
    assert_eq!(driver.call, "cuMemGetInfo");
    drop((engine, stream, module, kernels));
    println!("releases that failed: {}; everything was dropped", device.report().failed_releases);
    drop((device, backend));
}
