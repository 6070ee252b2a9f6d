//! Products of e4m3 and of NVFP4 against f64 on the CPU.

mod support;

use memtier::{Bytes, TableSpec, bf16};
use memtier_cuda::kernels::{Fp8Matrix, Nvfp4, Nvfp4Matrix, pack_fp8, pack_nvfp4, project_fp8, project_nvfp4};
use support::{Rig, Rng, distance, pool, wide};

/// Rows of `x`, outputs, elements of a row: tiles that are full, that are not, and more stages than there are.
const SHAPES: [(usize, usize, usize); 7] =
    [(1, 1, 128), (7, 130, 256), (128, 128, 128), (130, 70, 768), (64, 300, 1152), (200, 129, 384), (257, 64, 2048)];

/// What an e4m3 is worth, from its definition.
fn e4m3(bits: u8) -> f64 {
    let (exponent, mantissa) = (i32::from(bits >> 3 & 15), f64::from(bits & 7));
    let size = if exponent == 0 { mantissa / 512.0 } else { (1.0 + mantissa / 8.0) * 2f64.powi(exponent - 7) };
    if bits & 0x80 != 0 { -size } else { size }
}

/// What an NVFP4 matrix holds; where scales lie is said here once more.
fn values(packed: &Nvfp4, rows: usize, columns: usize) -> Vec<f64> {
    let element = |row: usize, column: usize| {
        let at = row * columns + column;
        let four = packed.data[at / 2].0[0] >> (at % 2 * 4) & 15;
        let size = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0][usize::from(four & 7)];
        let block = row / 128 * (columns / 64) + column / 64;
        let scale = packed.scales[block * 512 + row % 32 * 16 + row % 128 / 32 * 4 + column / 16 % 4].0;
        e4m3(scale) * if four & 8 != 0 { -size } else { size }
    };
    (0..rows * columns).map(|at| element(at / columns, at % columns)).collect()
}

fn products(x: &[f64], weights: &[f64], columns: usize) -> Vec<f64> {
    let dot = |x: &[f64], w: &[f64]| x.iter().zip(w).map(|(x, w)| x * w).sum::<f64>();
    x.chunks(columns).flat_map(|x| weights.chunks(columns).map(move |w| dot(x, w))).collect()
}

fn rig() -> Option<Rig> {
    Rig::new(Bytes::mib(64), pool(16, 16 * 64, 8), TableSpec { rows: 2, columns: 4 })
}

/// A span of these values in the step's scratch.
macro_rules! span {
    ($step:ident, $element:ty, $values:expr) => {{
        let values = &$values;
        let mut span = $step.scratch.take::<$element>(values.len()).unwrap();
        $step.on.write(&mut span, values).unwrap();
        span
    }};
}

/// As much as is written behind a matrix: more than a row of any.
const BEHIND: usize = 512;

/// Reads an output back, and sees that nothing was written behind it.
macro_rules! read {
    ($step:ident, $span:expr) => {{
        let mut found = vec![bf16::ZERO; $span.len()];
        $step.on.read::<bf16>(&$span, &mut found).unwrap();
        let behind = found.split_off(found.len() - BEHIND);
        assert!(behind.iter().all(|x| x.is_nan()), "written behind the last row");
        found
    }};
}

/// Values of very different sizes from row to row.
fn random(rng: &mut Rng, rows: usize, columns: usize) -> Vec<f32> {
    let mut values = rng.f32s(rows * columns);
    values.iter_mut().enumerate().for_each(|(at, x)| *x *= 0.01 * (1 + at / columns % 7) as f32);
    values
}

#[test]
fn products_of_e4m3() {
    let Some(Rig { kernels, mut engine, mut stream, .. }) = rig() else { return };
    let (mut rng, mut worst) = (Rng(61), 0.0f64);
    for (rows, outputs, columns) in SHAPES {
        let x = pack_fp8(&random(&mut rng, rows, columns), rows, columns).unwrap();
        let w = pack_fp8(&random(&mut rng, outputs, columns), outputs, columns).unwrap();
        let values = |packed: &memtier_cuda::kernels::Fp8| -> Vec<f64> {
            let scale = |at: usize| f64::from(packed.scales[at / columns]);
            packed.data.iter().enumerate().map(|(at, x)| e4m3(x.0) * scale(at)).collect()
        };
        let expected = products(&values(&x), &values(&w), columns);
        let mut step = engine.step(&mut stream).unwrap();
        let spans = (span!(step, memtier::F8E4M3, x.data), span!(step, f32, x.scales));
        let others = (span!(step, memtier::F8E4M3, w.data), span!(step, f32, w.scales));
        let x = Fp8Matrix::new(spans.0.read(), spans.1.read(), rows, columns).unwrap();
        let w = Fp8Matrix::new(others.0.read(), others.1.read(), outputs, columns).unwrap();
        let mut out = span!(step, bf16, vec![bf16::NAN; rows * outputs + BEHIND]);
        project_fp8(step.on, &kernels, &mut out.range(0..rows * outputs).unwrap(), w, x).unwrap();
        let first = read!(step, out);
        let far = distance(wide(&first), &expected);
        assert!(far < 4.2e-3, "{rows} x {columns} to {outputs}: {far}");
        worst = worst.max(far);
        project_fp8(step.on, &kernels, &mut out.range(0..rows * outputs).unwrap(), w, x).unwrap();
        assert!(read!(step, out) == first, "the same inputs gave other bits");
    }
    println!("e4m3: {worst:.2e}");
}

#[test]
fn products_of_nvfp4() {
    let Some(Rig { kernels, mut engine, mut stream, .. }) = rig() else { return };
    let (mut rng, mut worst, mut packing) = (Rng(62), 0.0f64, 0.0f64);
    for (rows, outputs, columns) in SHAPES {
        let (x, w) = (random(&mut rng, rows, columns), random(&mut rng, outputs, columns));
        let (a, b) = (pack_nvfp4(&x, rows, columns).unwrap(), pack_nvfp4(&w, outputs, columns).unwrap());
        let (a64, b64) = (values(&a, rows, columns), values(&b, outputs, columns));
        let scale = a.scale * b.scale;
        let expected: Vec<f64> = products(&a64, &b64, columns).iter().map(|x| x * f64::from(scale)).collect();
        // Four bits keep a tenth.
        let kept =
            distance(a64.iter().map(|x| x * f64::from(a.scale)), &x.iter().map(|x| f64::from(*x)).collect::<Vec<_>>());
        assert!(kept < 0.13, "packing: {kept}");
        packing = packing.max(kept);
        let mut step = engine.step(&mut stream).unwrap();
        let spans = (span!(step, memtier::E2M1x2, a.data), span!(step, memtier::F8E4M3, a.scales));
        let others = (span!(step, memtier::E2M1x2, b.data), span!(step, memtier::F8E4M3, b.scales));
        let x = Nvfp4Matrix::new(spans.0.read(), spans.1.read(), rows, columns).unwrap();
        let w = Nvfp4Matrix::new(others.0.read(), others.1.read(), outputs, columns).unwrap();
        let mut out = span!(step, bf16, vec![bf16::NAN; rows * outputs + BEHIND]);
        project_nvfp4(step.on, &kernels, &mut out.range(0..rows * outputs).unwrap(), w, x, scale).unwrap();
        let first = read!(step, out);
        let far = distance(wide(&first), &expected);
        assert!(far < 4.2e-3, "{rows} x {columns} to {outputs}: {far}");
        worst = worst.max(far);
        project_nvfp4(step.on, &kernels, &mut out.range(0..rows * outputs).unwrap(), w, x, scale).unwrap();
        assert!(read!(step, out) == first, "the same inputs gave other bits");
    }
    println!("NVFP4 on {}: {worst:.2e}, packing {packing:.2e}", kernels.target());
}

#[test]
fn the_instruction_and_what_stands_in_for_it_agree() {
    let Some(Rig { backend, kernels, .. }) = rig() else { return };
    kernels.self_test(&backend).unwrap();
}

#[test]
fn what_does_not_fit_is_refused_before_the_launch() {
    let Some(Rig { kernels, mut engine, mut stream, .. }) = rig() else { return };
    let step = &mut engine.step(&mut stream).unwrap();
    let data = step.scratch.take::<memtier::F8E4M3>(2 * 128).unwrap();
    let scales = step.scratch.take::<f32>(2).unwrap();
    let mut out = step.scratch.take::<bf16>(8).unwrap();
    let refused = Fp8Matrix::new(data.read(), scales.read(), 4, 64).err().unwrap();
    assert!(refused.to_string().contains("128s"), "{refused}");
    let refused = Fp8Matrix::new(data.read(), scales.read(), 3, 128).err().unwrap();
    assert!(refused.to_string().contains("Fp8Matrix"), "{refused}");
    let matrix = Fp8Matrix::new(data.read(), scales.read(), 2, 128).unwrap();
    let refused = project_fp8(step.on, &kernels, &mut out, matrix, matrix).unwrap_err();
    assert!(refused.to_string().contains("project_fp8: out"), "{refused}");
}
