//! `#[kernel(..)]` as its users have it: wrappers of this repository's kernels and of others, with and without a GPU.
//!
//! Compiling this file is a test: every signature was compared with its source.

mod support;

use std::{env, path::Path};

use memtier::{Bytes, Cuda, Eager, Input, LaunchError, Recorder, StableSpanMut, TableSpec, bf16};
use memtier_cuda::{KernelEntry, KernelModule, LaunchGrid, LoadedKernel, kernel};
use support::{Rig, Rng, kernels_folder, pool};

/// `out[i] = factor * x[i]`: the caller vouches.
///
/// # Safety
/// `n` elements are in both.
#[kernel("../kernels/vector.cu", "scale_f32")]
pub unsafe fn scale(out: Out<f32>, x: In<f32>, factor: f32, n: u64);

/// `out[i] = a[i] + b[i]`: the author vouches.
#[kernel("../kernels/vector.cu", "add_f32", threads = 256, unsafe(requires(
    out.len() as u64 == n,
    a.len() == out.len(),
    b.len() == out.len(),
)))]
pub fn add(out: Out<f32>, a: In<f32>, b: In<f32>, n: u64);

/// The other kernels of this repository whose parameters are written out.
pub mod ours {
    use memtier::bf16 as brain;
    use memtier_cuda::kernel;

    #[kernel("../kernels/norm.cu", "rms_norm_f32")]
    pub unsafe fn rms_norm(
        out: Out<memtier::bf16>,
        x: In<f32>,
        weight: In<memtier::bf16>,
        hidden: u32,
        epsilon: f32,
        rows: u32,
    );

    #[kernel("../kernels/norm.cu", "residual_rms_norm_f32")]
    pub unsafe fn residual_rms_norm(
        out: Out<memtier::bf16>,
        residual: Out<f32>,
        delta: In<memtier::bf16>,
        weight: In<memtier::bf16>,
        hidden: u32,
        epsilon: f32,
        rows: u32,
    );

    /// `out = silu(gate) * up`, whole rows of both.
    #[kernel("../kernels/gate.cu", "silu_gate_bf16", unsafe(requires(
        (out.len() as u64) == pieces * 8 && columns > 0 && columns.is_multiple_of(8),
        out.len().is_multiple_of(columns as usize),
        gate_up.len() == 2 * out.len(),
    )))]
    pub fn silu_gate(out: Out<memtier::bf16>, gate_up: In<memtier::bf16>, columns: u32, pieces: u64);

    #[kernel("../kernels/rope.cu", "rope_angles")]
    pub unsafe fn rope_angles(angles: Out<f32>, positions: In<u32>, frequencies: In<f32>, pairs: u32, total: u64);

    /// Used by name only: a type by another name is not known to the macro.
    pub type Bits = brain;
}

/// Kernels of a file that only this crate has.
pub mod own {
    use memtier_cuda::kernel;

    #[kernel("tests/kernels/own.cu", "axpy_f32", unsafe(requires(y.len() == x.len(), n <= y.len() as u64)))]
    pub(crate) fn axpy(y: Out<f32>, x: In<f32>, factor: f32, n: u64);

    #[kernel("tests/kernels/own.cu", "every_value", threads = 1)]
    pub unsafe fn every_value(out: Out<f64>, a: i8, half_bits: u16, b: i32, c: i64, d: f64, e: bool);

    /// Row `i` is `values[i]`; the grid says how many rows.
    #[kernel("tests/kernels/own.cu", "fill_rows", unsafe(requires(
        grid.blocks() <= values.len() as u64,
        grid.blocks().checked_mul(u64::from(columns)).is_some_and(|cells| cells <= out.len() as u64),
    )))]
    pub fn fill_rows(out: Out<f32>, values: In<u32>, columns: u32);

    /// The words of the macro are the author's own, too.
    pub struct Out;

    #[cfg(any())]
    #[kernel("tests/kernels/own.cu", "axpy_f32")]
    pub unsafe fn not_there(nothing: In<f32>);

    #[kernel("tests/kernels/own.cu", "axpy_f32")]
    #[cfg(not(any()))]
    pub unsafe fn r#move(r#in: Out<f32>, r#ref: In<f32>, r#fn: f32, r#type: u64);
}

/// Model code over any place, as the wrappers of memtier-cuda have it.
fn twice<P: memtier::Place<Space: memtier::Is<Cuda>>>(
    on: &Recorder<P>,
    kernel: &LoadedKernel<scale>,
    out: &mut StableSpanMut<'_, impl memtier::SameElement<f32>, impl memtier::Fits<P>>,
    x: impl Input<f32, P>,
    n: usize,
) -> Result<(), LaunchError> {
    // SAFETY: the callers below pass spans of `n` elements.
    unsafe { scale(on, kernel, LaunchGrid::over(n, 256), out, x, 2.0, n as u64) }
}

#[test]
fn wrappers_know_their_source() {
    assert_eq!((scale::ENTRY, scale::THREADS), ("scale_f32", 256));
    assert_eq!(own::axpy::THREADS, 128);
    assert!(own::axpy::SOURCE.contains("y[i] += factor * x[i]"));
    assert_eq!(own::axpy::SOURCE, own::fill_rows::SOURCE);
    assert_eq!(own::r#move::ENTRY, "axpy_f32");
    let _ = (own::Out, ours::Bits::ONE, bf16::ONE);
}

fn rig() -> Option<Rig> {
    Rig::new(Bytes::mib(64), pool(16, 16 * 64, 8), TableSpec { rows: 2, columns: 4 })
}

/// The image of a source of this repository.
fn module(rig: &Rig, name: &str) -> KernelModule {
    let path = rig.kernels.image(&kernels_folder(), name);
    let image = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    // SAFETY: `Kernels::load` found these images to be of this crate's sources.
    unsafe { KernelModule::load(&rig.backend, &image) }.unwrap()
}

#[test]
fn generated_wrappers_launch_and_refuse() {
    let Some(mut rig) = rig() else { return };
    let vector = module(&rig, "vector");
    let (scale, add) = (vector.get::<scale>().unwrap(), vector.get::<add>().unwrap());
    let mut rng = Rng(11);
    let mut step = rig.engine.step(&mut rig.stream).unwrap();
    for n in [1usize, 255, 1000, 65_537] {
        let (x, y) = (rng.f32s(n), rng.f32s(n));
        let mut a = step.scratch.take::<f32>(n).unwrap();
        let mut b = step.scratch.take::<f32>(n).unwrap();
        let mut out = step.scratch.take::<f32>(n).unwrap();
        step.on.write(&mut a, &x).unwrap();
        step.on.write(&mut b, &y).unwrap();
        twice(step.on, &scale, &mut out, &a, n).unwrap();
        let mut found = vec![0.0; n];
        step.on.read::<f32>(&out, &mut found).unwrap();
        assert!(found.iter().zip(&x).all(|(found, x)| *found == 2.0 * x), "scale {n}");
        let grid = LaunchGrid::over(n, 256);
        memtier_add(step.on, &add, grid, &mut out, &a, &b, n).unwrap();
        step.on.read::<f32>(&out, &mut found).unwrap();
        assert!(found.iter().zip(x.iter().zip(&y)).all(|(found, (x, y))| *found == x + y), "add {n}");
        // A count that is not the spans' does not reach the device.
        let refused = memtier_add(step.on, &add, grid, &mut out, &a, &b, n + 1).unwrap_err();
        assert_eq!(refused.to_string(), "add: it requires that `out.len() as u64 == n`");
        let refused = memtier_add(step.on, &add, grid.with_threads(64), &mut out, &a, &b, n).unwrap_err();
        assert!(refused.to_string().contains("how many threads a block has"), "{refused}");
    }
}

fn memtier_add(
    on: &Recorder<Eager<Cuda>>,
    kernel: &LoadedKernel<add>,
    grid: LaunchGrid,
    out: &mut StableSpanMut<'_, f32, Eager<Cuda>>,
    a: impl Input<f32, Eager<Cuda>>,
    b: impl Input<f32, Eager<Cuda>>,
    n: usize,
) -> Result<(), LaunchError> {
    add(on, kernel, grid, out, a, b, n as u64)
}

/// Needs `own.cu` compiled: `own.cubin` beside the other kernels, or the file that `MEMTIER_OWN_CUBIN` names.
#[test]
fn kernels_of_another_crate_get_every_value() {
    let Some(mut rig) = rig() else { return };
    let beside = rig.kernels.image(&kernels_folder(), "own");
    let path = env::var_os("MEMTIER_OWN_CUBIN").map_or(beside, Into::into);
    if !Path::new(&path).exists() {
        println!("skipped: no {}", path.display());
        return;
    }
    let image = std::fs::read(&path).unwrap();
    // SAFETY: it was compiled from `own.cu`.
    let module = unsafe { KernelModule::load(&rig.backend, &image) }.unwrap();
    let mut step = rig.engine.step(&mut rig.stream).unwrap();
    let mut out = step.scratch.take::<f64>(6).unwrap();
    let every = module.get::<own::every_value>().unwrap();
    let values = (-3i8, 60_000u16, -70_000i32, -(1i64 << 40), 0.1f64, true);
    let grid = LaunchGrid::new(1);
    // SAFETY: six elements.
    unsafe {
        own::every_value(step.on, &every, grid, &mut out, values.0, values.1, values.2, values.3, values.4, values.5)
    }
    .unwrap();
    let mut found = [0.0; 6];
    step.on.read::<f64>(&out, &mut found).unwrap();
    assert_eq!(found, [-3.0, 60_000.0, -70_000.0, -((1i64 << 40) as f64), 0.1, 1.0]);

    let fill = module.get::<own::fill_rows>().unwrap();
    let mut rows = step.scratch.take::<f32>(3 * 100).unwrap();
    let mut numbers = step.scratch.take::<u32>(3).unwrap();
    step.on.write(&mut numbers, &[7, 8, 9]).unwrap();
    own::fill_rows(step.on, &fill, LaunchGrid::new(3).with_threads(32), &mut rows, &numbers, 100).unwrap();
    own::fill_rows(step.on, &fill, LaunchGrid::new(0), &mut rows, &numbers, 100).unwrap();
    let refused = own::fill_rows(step.on, &fill, LaunchGrid::new(4), &mut rows, &numbers, 100).unwrap_err();
    assert!(refused.to_string().contains("`grid.blocks() <= values.len() as u64`"), "{refused}");
    let mut found = vec![0.0; 300];
    step.on.read::<f32>(&rows, &mut found).unwrap();
    assert!(found.chunks(100).zip([7.0, 8.0, 9.0]).all(|(row, value)| row.iter().all(|found| *found == value)));

    let axpy = module.get::<own::axpy>().unwrap();
    let (mut y, mut x) = (step.scratch.take::<f32>(500).unwrap(), step.scratch.take::<f32>(500).unwrap());
    step.on.write(&mut y, &[1.0; 500]).unwrap();
    step.on.write(&mut x, &[2.0; 500]).unwrap();
    own::axpy(step.on, &axpy, LaunchGrid::over(500, 128), &mut y, &x, 3.0, 500).unwrap();
    let mut found = [0.0; 500];
    step.on.read::<f32>(&y, &mut found).unwrap();
    assert!(found.iter().all(|found| *found == 7.0));
}
