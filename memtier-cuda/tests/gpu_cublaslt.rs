//! Products of prompts by cuBLASLt, where it is installed: against f64, launched and replayed, again and again, and without an
//! allocation. Skipped with the library's error where it is not; `MEMTIER_CUBLASLT` names its file.

#[path = "support/stand_in.rs"]
mod stand_in;
mod support;

use std::path::Path;

use memtier::{
    Bytes, Cuda, LaunchError, Place, RecordError, Recorder, ScratchFrame, StableSpanMut, Step, TableSpec, bf16,
};
use memtier_cuda::{AllocationCounter, CublasLt, CudaBackend, LtError, LtOutput, LtPlans, LtShape, kernels::Matrix};
use stand_in::refusing;
use support::{Rig, Rng, backend, distance, pool, rounds, wide};

const COLUMNS: usize = 192;
/// Three matrices, one behind the other.
const OUTPUTS: [usize; 3] = [96, 32, 32];
const ALL: usize = OUTPUTS[0] + OUTPUTS[1] + OUTPUTS[2];
const LEAST: usize = 65;
const WORKSPACE: Bytes = Bytes::mib(32);

/// The library, or `None` with a sentence.
fn library(backend: &CudaBackend) -> Option<CublasLt> {
    let path = std::env::var_os("MEMTIER_CUBLASLT");
    match CublasLt::open(backend, path.as_deref().map(Path::new)) {
        Ok(library) => Some(library),
        Err(error @ (LtError::NoLibrary { .. } | LtError::TooOld { .. })) => {
            assert!(
                std::env::var_os("MEMTIER_REQUIRE_CUBLASLT").is_none(),
                "MEMTIER_REQUIRE_CUBLASLT is set, but {error}"
            );
            println!("skipped: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn most() -> usize {
    rounds(3000, 200)
}

fn plans(library: &CublasLt) -> LtPlans {
    let shape = |outputs, output| LtShape { columns: COLUMNS, outputs, output };
    let shapes = [shape(ALL, LtOutput::Bf16), shape(ALL, LtOutput::F32), shape(ALL, LtOutput::AddF32)];
    library.plans(&shapes, LEAST..=most(), WORKSPACE).unwrap()
}

fn rig() -> Option<(Rig, LtPlans)> {
    let rig = Rig::new(Bytes::mib(128), pool(16, 16 * 64, 8), TableSpec { rows: 2, columns: 4 })?;
    let plans = plans(&library(&rig.backend)?);
    println!("{plans}");
    assert!(plans.refused().is_empty(), "{:?}", plans.refused());
    Some((rig, plans))
}

/// What a launch reads and writes: in the same order, so at the same place, in every step.
struct Spans<'f, P: Place> {
    x: StableSpanMut<'f, bf16, P>,
    weights: StableSpanMut<'f, bf16, P>,
    out: StableSpanMut<'f, bf16, P>,
    sums: StableSpanMut<'f, f32, P>,
    workspace: StableSpanMut<'f, u8, P>,
}

impl<'f, P: Place<Space = Cuda>> Spans<'f, P> {
    fn take(scratch: &mut ScratchFrame<'f, P>, plans: &LtPlans) -> Result<Self, LaunchError> {
        Ok(Spans {
            x: scratch.take(most() * COLUMNS)?,
            weights: scratch.take(ALL * COLUMNS)?,
            out: scratch.take(most() * ALL)?,
            sums: scratch.take(most() * ALL)?,
            workspace: scratch.take(plans.workspace().count() as usize)?,
        })
    }

    /// Stores three matrices' products in bf16, and adds one's to f32.
    fn launch(&mut self, on: &Recorder<P>, plans: &LtPlans, rows: usize) -> Result<[bool; 2], LaunchError> {
        let mut first = 0;
        let three = OUTPUTS.map(|outputs| {
            let span = self.weights.read().range(first * COLUMNS..(first + outputs) * COLUMNS).unwrap();
            first += outputs;
            Matrix::new(span, outputs, COLUMNS).unwrap()
        });
        let one = Matrix::new(self.weights.read(), ALL, COLUMNS)?;
        let x = (self.x.read().range(0..rows * COLUMNS).unwrap(), rows);
        let mut out = self.out.range(0..rows * ALL).unwrap();
        let mut sums = self.sums.range(0..rows * ALL).unwrap();
        let stored = plans.project(on, &mut out, &three, x, &mut self.workspace)?;
        Ok([stored, plans.project_add(on, &mut sums, one, x, &mut self.workspace)?])
    }
}

#[test]
fn any_number_of_rows_launched_and_replayed_is_what_f64_gives() {
    let Some((Rig { mut engine, mut stream, .. }, plans)) = rig() else { return };
    let mut rng = Rng(61);
    let (x, weights, before) = (rng.bf16s(most() * COLUMNS), rng.bf16s(ALL * COLUMNS), rng.f32s(most() * ALL));
    let mut worst = [0.0f64; 2];
    for rows in [LEAST, 128, 129, 191, 200, 777, 1024, 2999, 3000] {
        if rows > most() {
            continue;
        }
        let graph = engine
            .record::<support::Toy, LaunchError, _>(&mut stream, |step| {
                let Step { on, scratch, .. } = step;
                assert_eq!(Spans::take(scratch, &plans)?.launch(on, &plans, rows)?, [true; 2]);
                Ok(())
            })
            .unwrap();
        let mut runs = Vec::new();
        for run in 0..4 {
            let mut step = engine.step(&mut stream).unwrap();
            {
                let mut scratch = step.scratch.nested();
                let mut spans = Spans::take(&mut scratch, &plans).unwrap();
                step.on.write(&mut spans.x, &x).unwrap();
                step.on.write(&mut spans.weights, &weights).unwrap();
                step.on.write(&mut spans.out, &vec![bf16::NAN; most() * ALL]).unwrap();
                step.on.write(&mut spans.sums, &before).unwrap();
                if run % 2 == 0 {
                    assert_eq!(spans.launch(step.on, &plans, rows).unwrap(), [true; 2]);
                }
            }
            if run % 2 == 1 {
                step.replay(graph).unwrap();
            }
            let spans = Spans::take(&mut step.scratch, &plans).unwrap();
            let (mut out, mut sums) = (vec![bf16::ZERO; most() * ALL], vec![0.0f32; most() * ALL]);
            step.on.read::<bf16>(&spans.out, &mut out).unwrap();
            step.on.read::<f32>(&spans.sums, &mut sums).unwrap();
            step.finish().unwrap().wait().unwrap();
            assert!(out[rows * ALL..].iter().all(|x| x.is_nan()), "{rows}: written past the last row");
            assert!(sums[rows * ALL..] == before[rows * ALL..], "{rows}: written past the last row");
            out.truncate(rows * ALL);
            runs.push((out, sums));
        }
        engine.forget(graph).unwrap();
        let bits = |run: &(Vec<bf16>, Vec<f32>)| {
            let (out, sums) = run;
            (out.iter().map(|x| x.to_bits()).collect::<Vec<_>>(), sums.iter().map(|x| x.to_bits()).collect::<Vec<_>>())
        };
        assert!(runs.iter().all(|run| bits(run) == bits(&runs[0])), "{rows}: the same inputs gave other bits");
        let (out, sums) = &runs[0];
        let mut expected = Vec::new();
        let row = |row: &[bf16], w: &[bf16]| wide(row).zip(wide(w)).map(|(x, w)| x * w).sum::<f64>();
        for x in x[..rows * COLUMNS].chunks(COLUMNS) {
            expected.extend(weights.chunks(COLUMNS).map(|w| row(x, w)));
        }
        let far = distance(wide(out), &expected);
        assert!(far < 4.2e-3, "{rows}: bf16 {far}");
        let added: Vec<f64> = expected.iter().zip(&before).map(|(x, y)| x + f64::from(*y)).collect();
        let far_added = distance(sums[..rows * ALL].iter().map(|x| f64::from(*x)), &added);
        assert!(far_added < 1e-4, "{rows}: added {far_added}");
        worst = [worst[0].max(far), worst[1].max(far_added)];
    }
    println!(
        "worst: bf16 {:.2e}, added to f32 {:.2e}; the same bits four times over, launched and replayed",
        worst[0], worst[1]
    );
}

#[test]
fn a_launch_allocates_nothing() {
    let Some((Rig { device, mut engine, mut stream, .. }, plans)) = rig() else { return };
    let counter = match AllocationCounter::start() {
        Ok(counter) => counter,
        Err(error) if std::env::var_os("MEMTIER_REQUIRE_CUPTI").is_none() => return println!("skipped: {error}"),
        Err(error) => panic!("{error}"),
    };
    // Nothing was launched yet, so a kernel that is not there is loaded now.
    let start = counter.so_far();
    for rows in [LEAST, 100, 150, 200, 300, 512, 700, 1024, 1500, 3000] {
        let rows = rows.min(most());
        let mut step = engine.step(&mut stream).unwrap();
        let launched = Spans::take(&mut step.scratch, &plans).unwrap().launch(step.on, &plans, rows).unwrap();
        assert_eq!(launched, [true; 2]);
        step.finish().unwrap().wait().unwrap();
    }
    assert_eq!((plans.launched(), plans.left()), (20, 0));
    let served = counter.so_far().since(&start);
    println!("20 products of 65 to 3000 rows, none launched before: allocations {served}");
    assert_eq!((served.ours(), served.others()), (0, 0), "{served:?}");
    assert_eq!(device.report().acquisitions[2], 0);
}

#[test]
fn what_has_no_plan_is_left_to_other_kernels() {
    let Some((Rig { backend, mut engine, mut stream, .. }, plans)) = rig() else { return };
    let mut step = engine.step(&mut stream).unwrap();
    let mut spans = Spans::take(&mut step.scratch, &plans).unwrap();
    assert_eq!(spans.launch(step.on, &plans, LEAST - 1).unwrap(), [false; 2]);
    let Spans { x, weights, out, workspace, .. } = &mut spans;
    let matrix = Matrix::new(weights.read(), ALL, COLUMNS).unwrap();
    let (rows, x) = (LEAST, x.read());
    // Matrices that are not one behind the other.
    let mut twice = out.range(0..rows * 2 * ALL).unwrap();
    let inputs = (x.range(0..rows * COLUMNS).unwrap(), rows);
    assert!(!plans.project(step.on, &mut twice, &[matrix, matrix], inputs, workspace).unwrap());
    // What does not fit is an error, and nothing is launched.
    let refused = plans.project(step.on, out, &[matrix], inputs, workspace).unwrap_err();
    assert!(refused.to_string().contains("cublasLt: out"), "{refused}");
    let mut exact = out.range(0..rows * ALL).unwrap();
    let refused = plans.project(step.on, &mut exact, &[matrix], (x, rows), workspace).unwrap_err();
    assert!(refused.to_string().contains("cublasLt: x"), "{refused}");
    let odd = (x.range(4..rows * COLUMNS + 4).unwrap(), rows);
    let refused = plans.project(step.on, &mut exact, &[matrix], odd, workspace).unwrap_err();
    assert!(refused.to_string().contains("multiples of 16"), "{refused}");
    let none = library(&backend).unwrap().plans(&[], 1..=2, WORKSPACE).unwrap();
    assert!(none.workspace().is_zero());
    let shape = LtShape { columns: COLUMNS, outputs: 0, output: LtOutput::F32 };
    let refused = library(&backend).unwrap().plans(&[shape], 1..=2, WORKSPACE).unwrap_err();
    assert!(matches!(refused, LtError::NoAlgorithm { outputs: 0, .. }), "{refused}");
}

#[test]
fn numbers_of_rows_that_the_library_refuses_are_left_to_other_kernels() {
    let Some(mut rig) = Rig::new(Bytes::mib(64), pool(16, 16 * 64, 8), TableSpec { rows: 2, columns: 4 }) else {
        return;
    };
    let Some(file) = refusing() else { return };
    let library = CublasLt::open(&rig.backend, Some(&file.path())).unwrap();
    // It is loaded.
    drop(file);
    let plans = plans(&library);
    let shape = LtShape { columns: COLUMNS, outputs: ALL, output: LtOutput::F32 };
    let from_none = library.plans(&[shape], 0..=2, WORKSPACE).unwrap();
    assert!(from_none.to_string().contains("from 1 rows on"), "no rows want no product: {from_none}");
    assert!(plans.to_string().contains("cuBLASLt 13.0.0") && plans.refused().is_empty(), "{plans}");
    assert_eq!(plans.workspace(), Bytes::mib(1));
    let mut step = rig.engine.step(&mut rig.stream).unwrap();
    let mut spans = Spans::take(&mut step.scratch, &plans).unwrap();
    // Two products each. Odd numbers are refused when the library is asked, the even one by the launch, and then without one.
    for (rows, left) in [(LEAST, 2), (67, 4), (100, 6), (100, 8)] {
        assert_eq!(spans.launch(step.on, &plans, rows).unwrap(), [false; 2], "{rows}");
        assert_eq!((plans.launched(), plans.left()), (0, left), "{rows}");
    }
    let matrix = Matrix::new(spans.weights.read(), ALL, COLUMNS).unwrap();
    for matrices in [&[][..], &[matrix; 4]] {
        let inputs = (spans.x.read(), LEAST);
        let refused = plans.project(step.on, &mut spans.out, matrices, inputs, &mut spans.workspace).unwrap_err();
        assert!(refused.to_string().contains("one to three matrices"), "{refused}");
    }
    // What has no plan is not its refusal.
    assert_eq!(spans.launch(step.on, &plans, LEAST - 1).unwrap(), [false; 2]);
    assert_eq!(plans.left(), 8);
    step.finish().unwrap().wait().unwrap();
    // In a recording it is known when the graph is made, so that fails; the next one has other kernels for both.
    let mut record = || {
        rig.engine.record::<support::Toy, LaunchError, _>(&mut rig.stream, |step| {
            let Step { on, scratch, .. } = step;
            Spans::take(scratch, &plans)?.launch(on, &plans, 102).map(drop)
        })
    };
    let refused = record().err().unwrap();
    assert!(matches!(refused, RecordError::Bake(LaunchError::Refused { .. })), "{refused}");
    for word in ["102 rows of 192 by 160", "cublasLtMatmul", "record the graph again"] {
        assert!(refused.to_string().contains(word), "{refused}");
    }
    assert!(record().is_ok());
    assert_eq!((plans.launched(), plans.left()), (0, 10));
}

#[test]
fn a_library_that_is_none_is_refused_with_the_remedy() {
    let Some(backend) = backend() else { return };
    let refused = CublasLt::open(&backend, Some(Path::new("/nowhere/libcublasLt.so"))).unwrap_err();
    assert!(refused.to_string().contains("kernels::project"), "{refused}");
    // The driver's library is a library, and none of cuBLASLt.
    let refused = CublasLt::open(&backend, Some(Path::new("libcuda.so.1")))
        .or(CublasLt::open(&backend, Some(Path::new("libcuda.so"))));
    assert!(matches!(refused.unwrap_err(), LtError::NoLibrary { .. }));
}
