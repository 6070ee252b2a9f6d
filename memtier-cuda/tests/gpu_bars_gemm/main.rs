//! Times of projections: random data, weights rotated past the cache, replays of a graph, medians; samples checked against f64. Printed,
//! not judged: `benches/gpu/gemm_peers.py` puts those of the bars beside torch's of the same run.

mod bench;
#[path = "../gpu_quant/blocks.rs"]
mod blocks;
mod cases;
mod rows;
#[path = "../support/stand_in.rs"]
mod stand_in;
#[path = "../support/mod.rs"]
mod support;
mod work;

use std::{path::Path, time::Instant};

use bench::{Bench, Pace};
use memtier::{Bytes, Step, TableSpec, bf16};
use memtier_cuda::{
    CublasLt, CudaBackend,
    kernels::{Matrix, rms_norm_wide},
};
use stand_in::refusing;
use support::{backend, is_emulated, pool, sized, skipped_without_a_real_device};
use work::Case;

/// Rounds of every measurement of the bars; the median counts.
const ROUNDS: usize = 7;
/// Of the bars, and of cases that are many.
const LONG: Pace = Pace { rounds: ROUNDS, least: 5e-3 };
const SHORT: Pace = Pace { rounds: 5, least: 2e-3 };

/// The library, or `None` with a sentence.
fn library(backend: &CudaBackend) -> Option<CublasLt> {
    let path = std::env::var_os("MEMTIER_CUBLASLT");
    CublasLt::open(backend, path.as_deref().map(Path::new)).inspect_err(|error| println!("skipped: {error}")).ok()
}

/// Times what `cases` gives.
fn measured(pace: Pace, cases: impl FnOnce(Option<&CublasLt>) -> Vec<Case>) -> Option<Vec<bench::Found>> {
    if skipped_without_a_real_device("times are taken here") {
        return None;
    }
    let backend = backend()?;
    let cases = cases(library(&backend).as_ref());
    Some(Bench::new(&backend, cases, usize::MAX, Case::launches).measure(pace))
}

#[test]
fn bars() {
    measured(LONG, cases::cases);
}

/// By itself, since it takes all the power that the card may draw: `gemm_peers.py` runs it in turns with torch's.
#[test]
fn the_largest_product() {
    measured(LONG, cases::largest);
}

#[test]
fn rows_from_which_on_another_form_is_faster() {
    if let Some(found) = measured(SHORT, rows::cases) {
        rows::meet(&found);
    }
}

#[test]
fn each_kernel_for_many_rows() {
    measured(SHORT, |_| rows::each_kernel());
}

/// Where there is no real device, too: what is timed above is recorded, replayed and right.
#[test]
fn every_form_gives_the_products() {
    let Some(backend) = backend() else { return };
    let library = if is_emulated(&backend) { None } else { library(&backend) };
    let (few, some) = ([rows::SHAPES[1], rows::SHAPES[2], rows::SHAPES[5]], [rows::SHAPES[1], rows::SHAPES[6]]);
    let (shapes, rows) = sized(&backend, (&rows::SHAPES[..], &[16, 65, 512][..]), (&few[..], &[33][..]));
    Bench::new(&backend, rows::few_cases(shapes, rows, library.as_ref()), 1, |_| 1).check_all();
    // Where another kernel begins.
    let rows = sized(&backend, &[8, 17, 97][..], &[4][..]);
    Bench::new(&backend, rows::few_cases(&some, rows, library.as_ref()), 1, |_| 1).check_all();
    // And the bars' own, of small matrices.
    let mut bars = cases::cases(None);
    let most = sized(&backend, 64, 4);
    bars.retain(|case| case.columns <= 1536 && case.all() <= 3072 && case.rows <= most);
    Bench::new(&backend, bars, 1, |_| 1).check_all();
}

/// By a stand-in that refuses odd numbers of rows when it is asked, and others when they are launched.
#[test]
fn what_the_library_refuses_is_left_to_our_kernels() {
    let (Some(backend), Some(refusing)) = (backend(), refusing()) else { return };
    let library = CublasLt::open(&backend, Some(&refusing.path())).unwrap();
    let mut cases = rows::few_cases(&rows::SHAPES[1..2], &[34, 35], Some(&library));
    cases.retain(|case| case.plans().is_some());
    assert_eq!(cases.len(), 4);
    assert_eq!(Bench::new(&backend, cases, 1, |_| 1).check_all(), 0);
}

#[test]
fn forms_meet_where_all_that_follow_are_faster() {
    let of = |ratios: [f64; 4]| rows::from_where(&[1, 2, 3, 4].map(|rows| (rows, ratios[rows - 1])));
    assert_eq!(of([1.2, 0.9, 1.0, 0.8]), Some(4));
    assert_eq!(of([1.2, 1.1, 0.9, 0.8]), Some(3));
    assert_eq!((of([0.9, 0.8, 0.7, 1.1]), of([0.9; 4])), (None, Some(1)));
}

/// CPU time of a launch of cuBLASLt through the wrapper, and what the wrapper adds.
#[test]
fn what_a_launch_costs() {
    if skipped_without_a_real_device("times are taken here") {
        return;
    }
    let Some(mut rig) = support::Rig::new(Bytes::mib(64), pool(16, 1024, 8), TableSpec { rows: 2, columns: 4 }) else {
        return;
    };
    let Some(library) = library(&rig.backend) else { return };
    let (rows, columns, outputs) = (128, 256, 128);
    let product = library.product((rows, columns, outputs), Bytes::mib(4)).unwrap();
    let kernels = &rig.kernels;
    let mut step = rig.engine.step(&mut rig.stream).unwrap();
    let Step { on, scratch, .. } = &mut step;
    let x = scratch.take::<bf16>(rows * columns).unwrap();
    let weights = scratch.take::<bf16>(outputs * columns).unwrap();
    let mut out = scratch.take::<bf16>(rows * outputs).unwrap();
    let mut workspace = scratch.take::<u8>(4 << 20).unwrap();
    let (wide, norm) = (scratch.take::<f32>(1024).unwrap(), scratch.take::<f32>(1024).unwrap());
    let matrix = Matrix::new(weights.read(), outputs, columns).unwrap().at_rest();
    let mut bf16s = scratch.take::<bf16>(1024).unwrap();
    let mut times = [Vec::new(), Vec::new(), Vec::new()];
    for _ in 0..ROUNDS {
        let mut clock = |which: usize, launch: &mut dyn FnMut()| {
            let start = Instant::now();
            (0..if which == 1 { 1 } else { 200 }).for_each(|_| launch());
            times[which].push(start.elapsed().as_secs_f64() * 1e6 / 200.0);
            on.read::<f32>(&wide.read().range(0..1).unwrap(), &mut [0.0]).unwrap();
        };
        clock(0, &mut || product.launch(on, &mut out, matrix, x.read(), &mut workspace).unwrap());
        clock(1, &mut || product.launch_times(on, &mut out, matrix, x.read(), &mut workspace, 200).unwrap());
        clock(2, &mut || rms_norm_wide(on, kernels, &mut bf16s, &norm, &norm, (1, 1e-5)).unwrap());
    }
    let [ours, bare, small] = times.map(|mut times| {
        times.sort_by(f64::total_cmp);
        times[ROUNDS / 2]
    });
    println!("a launch of cuBLASLt {ours:.3} us, of it the library's {bare:.3} us; of a small kernel {small:.3} us");
}
