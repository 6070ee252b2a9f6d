//! What this crate costs on top of the bare driver, both in one run, alternating.
#![allow(clippy::disallowed_methods, reason = "the bare driver, to compare with")]

mod support;

use std::{ffi::c_void, ptr, time::Instant};

use cudarc::driver::sys::{self, CUresult};
use memtier::{Backend, Bytes, LaunchError, PhaseName, Step, TableSpec, Tag};
use memtier_cuda::{CudaBackend, kernels};
use support::{Rig, Toy, backend, kernels_folder, pool, skipped_without_a_real_device};

const TAG: Tag = Tag { name: "test", phase: PhaseName::Planning, pinned: false };

fn ok(result: CUresult) {
    assert_eq!(result, CUresult::CUDA_SUCCESS);
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn micros(start: Instant) -> f64 {
    start.elapsed().as_secs_f64() * 1e6
}

/// A commit and its return by the driver's own calls, in microseconds.
fn bare_commit(base: u64, bytes: usize) -> (f64, f64) {
    // SAFETY: plain data, zero means none; the range is reserved, and nothing is mapped in it before or after.
    unsafe {
        let mut properties: sys::CUmemAllocationProp = std::mem::zeroed();
        properties.type_ = sys::CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
        properties.location = sys::CUmemLocation { type_: sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id: 0 };
        let flags = sys::CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
        let access = sys::CUmemAccessDesc { location: properties.location, flags };
        let mut handle = 0;
        let start = Instant::now();
        ok(sys::cuMemCreate(&mut handle, bytes, &properties, 0));
        ok(sys::cuMemMap(base, bytes, 0, handle, 0));
        ok(sys::cuMemSetAccess(base, bytes, &access, 1));
        let commit = micros(start);
        let start = Instant::now();
        ok(sys::cuMemUnmap(base, bytes));
        ok(sys::cuMemRelease(handle));
        (commit, micros(start))
    }
}

/// Rounds of a comparison: in each, both alternate many times, and their medians are compared. The median of the rounds counts, so
/// that one disturbance of a shared machine does not.
const ROUNDS: usize = 7;

/// The ratio of ours to the bare driver's, round by round, as its median; printed with the times.
struct Ratio {
    what: &'static str,
    rounds: Vec<(f64, f64)>,
}

impl Ratio {
    fn new(what: &'static str) -> Self {
        Ratio { what, rounds: Vec::new() }
    }

    fn round(&mut self, ours: Vec<f64>, bare: Vec<f64>) {
        self.rounds.push((median(ours), median(bare)));
    }

    fn report(&self) -> f64 {
        let of = |pick: fn(&(f64, f64)) -> f64| median(self.rounds.iter().map(pick).collect());
        let (ours, bare, ratio) = (of(|pair| pair.0), of(|pair| pair.1), of(|pair| pair.0 / pair.1));
        let worst = self.rounds.iter().map(|pair| pair.0 / pair.1).fold(0.0, f64::max);
        let what = self.what;
        println!(
            "{what}: {ours:.3} us, by the bare driver {bare:.3} us: {ratio:.3} x (worst of {ROUNDS} rounds {worst:.3})"
        );
        ratio
    }

    /// Holds the bar in release builds; others are slower than what is shipped.
    fn hold(&self, most: f64) {
        let ratio = self.report();
        match cfg!(debug_assertions) {
            true => println!("skipped: times are held to their bars in release builds"),
            false => assert!(ratio < most, "{}: {ratio:.3} x the bare driver's time, {most} allowed", self.what),
        }
    }
}

/// The same through the backend.
fn our_commit(backend: &CudaBackend, base: u64, chunk: Bytes) -> (f64, f64) {
    let start = Instant::now();
    // SAFETY: the base is the caller's, nothing is committed, and nothing runs.
    unsafe { backend.commit(TAG, base, Bytes::ZERO, chunk) }.unwrap();
    let commit = micros(start);
    let start = Instant::now();
    // SAFETY: committed above.
    unsafe { backend.decommit(TAG, base, Bytes::ZERO, chunk) }.unwrap();
    (commit, micros(start))
}

#[test]
fn a_commit_costs_what_the_drivers_calls_cost() {
    if skipped_without_a_real_device("times are compared here") {
        return;
    }
    let Some(backend) = backend() else { return };
    let chunk = Bytes::mib(256);
    let base = backend.reserve(TAG, Bytes::gib(24), Bytes::ZERO).unwrap();
    let (mut commits, mut decommits) = (Ratio::new("commit of 256 MiB"), Ratio::new("decommit of 256 MiB"));
    for round in 0..=ROUNDS {
        let [mut ours, mut ours_back, mut bare, mut bare_back] = [const { Vec::new() }; 4];
        // Which memory the driver hands out, and so how long it takes, depends on what was given back last: so each goes first in turns.
        for pair in 0..60 {
            for by_us in [pair % 2 == 0, pair % 2 == 1] {
                let (commit, decommit) = match by_us {
                    true => our_commit(&backend, base, chunk),
                    false => bare_commit(base, chunk.count() as usize),
                };
                let (commits, decommits) =
                    if by_us { (&mut ours, &mut ours_back) } else { (&mut bare, &mut bare_back) };
                commits.push(commit);
                decommits.push(decommit);
            }
        }
        // The first round warms up.
        if round > 0 {
            commits.round(ours, bare);
            decommits.round(ours_back, bare_back);
        }
    }
    // SAFETY: released once.
    unsafe { backend.release(TAG, base, Bytes::gib(24), Bytes::ZERO) }.unwrap();
    decommits.report();
    commits.hold(1.1);
}

/// The bare driver's own stream, module and graph of the same launch.
struct Bare {
    module: sys::CUmodule,
    function: sys::CUfunction,
    stream: sys::CUstream,
    /// Where the kernel reads and writes.
    memory: u64,
}

impl Bare {
    fn open(image: &[u8], memory: u64) -> Self {
        let (mut module, mut function, mut stream) = (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
        // SAFETY: the context is current: the engine was opened in this thread; the names end with zero.
        unsafe {
            ok(sys::cuModuleLoadData(&mut module, image.as_ptr().cast()));
            ok(sys::cuModuleGetFunction(&mut function, module, c"scale_f32".as_ptr()));
            ok(sys::cuStreamCreate(&mut stream, sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32));
        }
        Bare { module, function, stream, memory }
    }

    fn launch(&self) {
        let (out, x, factor, n) = (self.memory, self.memory + 4096, 2.0f32, 256u64);
        let mut arguments: [*mut c_void; 4] = [
            ptr::from_ref(&out).cast::<c_void>().cast_mut(),
            ptr::from_ref(&x).cast::<c_void>().cast_mut(),
            ptr::from_ref(&factor).cast::<c_void>().cast_mut(),
            ptr::from_ref(&n).cast::<c_void>().cast_mut(),
        ];
        // SAFETY: the kernel's four arguments, on memory of ours.
        ok(unsafe {
            let arguments = arguments.as_mut_ptr();
            sys::cuLaunchKernel(self.function, 1, 1, 1, 256, 1, 1, 0, self.stream, arguments, ptr::null_mut())
        });
    }

    fn wait(&self) {
        // SAFETY: a live stream.
        ok(unsafe { sys::cuStreamSynchronize(self.stream) });
    }

    /// A graph of `count` launches.
    fn capture(&self, count: usize) -> sys::CUgraphExec {
        let (mut graph, mut exec) = (ptr::null_mut(), ptr::null_mut());
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: a live stream; handles are written, and the graph is destroyed once.
        unsafe {
            ok(sys::cuStreamBeginCapture_v2(self.stream, mode));
            (0..count).for_each(|_| self.launch());
            ok(sys::cuStreamEndCapture(self.stream, &mut graph));
            ok(sys::cuGraphInstantiateWithFlags(&mut exec, graph, 0));
            ok(sys::cuGraphDestroy(graph));
            ok(sys::cuGraphUpload(exec, self.stream));
        }
        self.wait();
        exec
    }
}

impl Drop for Bare {
    fn drop(&mut self) {
        // SAFETY: nothing runs; each is destroyed once.
        unsafe {
            ok(sys::cuStreamDestroy_v2(self.stream));
            ok(sys::cuModuleUnload(self.module));
        }
    }
}

/// Times `count` calls at a time, of ours and of the bare driver's in turns, in an order that turns, too; an idle device before each.
fn alternate(ours: &mut Vec<f64>, bare: &mut Vec<f64>, count: u32, mut call: impl FnMut(bool)) {
    for pair in 0..40 {
        for by_us in [pair % 2 == 0, pair % 2 == 1] {
            let start = Instant::now();
            (0..count).for_each(|_| call(by_us));
            let time = micros(start) / f64::from(count);
            // SAFETY: waits for the current context.
            ok(unsafe { sys::cuCtxSynchronize() });
            if by_us { ours.push(time) } else { bare.push(time) }
        }
    }
}

/// Launches of a graph's nodes.
const NODES: usize = 20;

/// Graphs of the bare driver, each with its own stream: what calls of it cost apart from where their graphs lie.
const BARE_GRAPHS: usize = 3;

/// Times replays of ours and of every bare graph in turns, 30 at a time: few enough that none waits for the device, so that what is
/// taken is the time of the calls. `call(None)` is ours; an idle device before each.
fn replays_in_turns(mut call: impl FnMut(Option<usize>)) -> (f64, [f64; BARE_GRAPHS]) {
    let mut times = [const { Vec::new() }; BARE_GRAPHS + 1];
    for turn in 0..40 {
        for graph in (0..=BARE_GRAPHS).map(|graph| (graph + turn) % (BARE_GRAPHS + 1)) {
            let start = Instant::now();
            (0..30).for_each(|_| call(graph.checked_sub(1)));
            times[graph].push(micros(start) / 30.0);
            // SAFETY: waits for the current context.
            ok(unsafe { sys::cuCtxSynchronize() });
        }
    }
    let [ours, bare @ ..] = times.map(median);
    (ours, bare)
}

#[test]
fn launches_and_replays_cost_what_the_drivers_calls_cost() {
    if skipped_without_a_real_device("times are compared here") {
        return;
    }
    let table = TableSpec { rows: 2, columns: 4 };
    let Some(Rig { backend, kernels, mut engine, mut stream, .. }) = Rig::new(Bytes::mib(8), pool(16, 4096, 8), table)
    else {
        return;
    };
    let image = std::fs::read(kernels.image(&kernels_folder(), "vector")).unwrap();
    let memory = backend.reserve(TAG, Bytes::mib(2), Bytes::mib(2)).unwrap();
    let bares: [Bare; BARE_GRAPHS] = std::array::from_fn(|_| Bare::open(&image, memory));
    let execs = bares.each_ref().map(|bare| bare.capture(NODES));
    let bare = &bares[0];
    let graph_of_ours = engine
        .record::<Toy, LaunchError, _>(&mut stream, |step| {
            let Step { on, scratch, .. } = step;
            let (mut out, x) = (scratch.take::<f32>(256)?, scratch.take::<f32>(256)?);
            (0..NODES).try_for_each(|_| kernels::scale(on, &kernels, &mut out, &x, 2.0))
        })
        .unwrap();
    let (mut launches, mut replays) = (Ratio::new("launch"), Ratio::new("replay of a graph of 20 launches"));
    let mut apart = Ratio::new("the dearest bare graph of three, beside their median");
    for round in 0..=ROUNDS {
        let [mut ours, mut by_driver] = [const { Vec::new() }; 2];
        let mut step = engine.step(&mut stream).unwrap();
        {
            let Step { on, scratch, .. } = &mut step;
            let mut scratch = scratch.nested();
            let (mut out, x) = (scratch.take::<f32>(256).unwrap(), scratch.take::<f32>(256).unwrap());
            alternate(&mut ours, &mut by_driver, 100, |by_us| match by_us {
                true => kernels::scale(on, &kernels, &mut out, &x, 2.0).unwrap(),
                false => bare.launch(),
            });
            on.read::<f32>(&out, &mut [0.0]).unwrap();
        }
        let (replay, bare_replays) = replays_in_turns(|graph| match graph {
            None => step.replay(graph_of_ours).unwrap(),
            // SAFETY: live handles.
            Some(graph) => ok(unsafe { sys::cuGraphLaunch(execs[graph], bares[graph].stream) }),
        });
        // The first round warms up.
        if round > 0 {
            let usual = median(bare_replays.to_vec());
            let dearest = bare_replays.into_iter().fold(0.0, f64::max);
            launches.round(ours, by_driver);
            replays.round(vec![replay], vec![usual]);
            apart.round(vec![dearest], vec![usual]);
        }
        step.finish().unwrap().wait().unwrap();
    }
    // SAFETY: nothing runs; destroyed and released once.
    unsafe {
        execs.into_iter().for_each(|exec| ok(sys::cuGraphExecDestroy(exec)));
        drop(bares);
        backend.release(TAG, memory, Bytes::mib(2), Bytes::mib(2)).unwrap();
    }
    replays.report();
    launches.hold(1.03);
    // Graphs of the same launches differ by where they lie: what the bare driver's differ by among themselves is not ours.
    replays.hold(1.03 * apart.report().clamp(1.0, 1.05));
}
