//! Matrix products of every format, on every level.

mod common;

use common::{Matrix, Rng, bits, odd_cols, quantized, with_random_scales};
use engine_kernels::{
    Activation, Format, Input, Isa, KernelError, Projection, QuantRows, Threads, gated, matmul, matmul_gated,
    matmul_gated_quantize, matmul_many,
};

/// Activations in the form that a format takes.
struct X {
    float: bool,
    x: Vec<f32>,
    quant: Vec<u8>,
    cols: usize,
}

impl X {
    fn random(rng: &mut Rng, format: Format, rows: usize, cols: usize) -> X {
        let x = rng.activations(rows * cols);
        let float = format.is_float();
        let quant = if float { Vec::new() } else { quantized(Isa::detect(), &x, rows, cols) };
        X { float, x, quant, cols }
    }

    fn rows(&self, range: std::ops::Range<usize>) -> Input<'_> {
        if self.float {
            let x = &self.x[range.start * self.cols..range.end * self.cols];
            return Input::Float { x, rows: range.len(), cols: self.cols };
        }
        let all = QuantRows::new(self.x.len() / self.cols, self.cols, &self.quant).unwrap();
        all.slice(range).unwrap().into()
    }

    /// What the products are made of.
    fn values(&self) -> Vec<f32> {
        if self.float {
            return self.x.clone();
        }
        let rows = self.x.len() / self.cols;
        let quant = QuantRows::new(rows, self.cols, &self.quant).unwrap();
        let mut values = vec![0.0; self.x.len()];
        for (row, values) in values.chunks_exact_mut(self.cols).enumerate() {
            quant.dequantize_row(row, values).unwrap();
        }
        values
    }
}

fn run(threads: &Threads, isa: Isa, matrix: &Matrix, x: Input<'_>) -> Vec<f32> {
    let mut out = vec![f32::NAN; x.rows() * matrix.rows];
    matmul(threads, isa, &matrix.packed(), x, &mut out).unwrap();
    out
}

#[test]
fn products_agree_with_f64_over_the_quantised_activations() {
    let mut rng = Rng::new(10);
    let threads = Threads::new(2).unwrap();
    for format in Format::ALL {
        for (rows, cols, m) in [(1, odd_cols(format), 1), (17, odd_cols(format), 3), (48, 768, 11)] {
            let matrix = Matrix::random(&mut rng, format, rows, cols);
            let x = X::random(&mut rng, format, m, cols);
            let reference = matrix.reference(&x.values(), m);
            for isa in Isa::available() {
                for (found, (sum, size)) in run(&threads, isa, &matrix, x.rows(0..m)).iter().zip(&reference) {
                    let error = (f64::from(*found) - sum).abs() / size;
                    assert!(error < 1e-6, "{format} {isa:?} {rows}x{cols}: {found} for {sum}, {error:e}");
                }
            }
        }
    }
}

#[test]
fn extreme_quants_do_not_saturate() {
    let mut rng = Rng::new(19);
    let threads = Threads::new(1).unwrap();
    let (rows, cols) = (16, 512);
    for format in Format::ALL.into_iter().filter(|format| !format.is_float()) {
        for byte in [0x00, 0x7f, 0x80, 0xff, 0x1f, 0xe0] {
            let raw = vec![byte; rows * format.row_bytes(cols).unwrap()];
            let matrix = Matrix::new(format, rows, cols, with_random_scales(&mut rng, format, raw));
            for signs in [[1.0, 1.0], [-1.0, -1.0], [1.0, -1.0]] {
                let x: Vec<f32> = (0..cols).map(|col| signs[col % 2]).collect();
                let quant = quantized(Isa::detect(), &x, 1, cols);
                let reference = matrix.reference(&x, 1);
                for isa in Isa::available() {
                    let found = run(&threads, isa, &matrix, QuantRows::new(1, cols, &quant).unwrap().into());
                    for (found, (sum, size)) in found.iter().zip(&reference) {
                        let error = (f64::from(*found) - sum).abs();
                        assert!(error <= 2e-6 * size, "{format} {byte:#x} {isa:?}: {found} for {sum}");
                    }
                }
            }
        }
    }
}

#[test]
fn quantising_activations_costs_less_than_a_percent() {
    let mut rng = Rng::new(11);
    let threads = Threads::new(1).unwrap();
    for format in Format::ALL.into_iter().filter(|format| !format.is_float()) {
        let (rows, cols, m) = (64, 1536, 8);
        let matrix = Matrix::random(&mut rng, format, rows, cols);
        let x = X::random(&mut rng, format, m, cols);
        let reference = matrix.reference(&x.x, m);
        let found = run(&threads, Isa::detect(), &matrix, x.rows(0..m));
        let noise: f64 = found.iter().zip(&reference).map(|(f, (sum, _))| (f64::from(*f) - sum).powi(2)).sum();
        let signal: f64 = reference.iter().map(|(sum, _)| sum.powi(2)).sum();
        let relative = (noise / signal).sqrt();
        println!("{format}: relative noise {relative:.2e}");
        assert!(relative < 1e-2, "{format}: {relative}");
    }
}

#[test]
fn levels_agree_bit_for_bit() {
    let mut rng = Rng::new(12);
    let threads = Threads::new(1).unwrap();
    for format in Format::ALL {
        let matrix = Matrix::random(&mut rng, format, 37, 512);
        let x = X::random(&mut rng, format, 9, 512);
        let expected = bits(&run(&threads, Isa::portable(), &matrix, x.rows(0..9)));
        for isa in Isa::available() {
            assert_eq!(bits(&run(&threads, isa, &matrix, x.rows(0..9))), expected, "{format} {isa:?}");
        }
    }
}

#[test]
fn a_row_does_not_depend_on_its_batch_or_the_threads() {
    const M: usize = 33;
    let mut rng = Rng::new(13);
    let pools: Vec<Threads> = (1..=4).map(|count| Threads::new(count).unwrap()).collect();
    for format in Format::ALL {
        let matrix = Matrix::random(&mut rng, format, 40, 256);
        let x = X::random(&mut rng, format, M, 256);
        for isa in Isa::available() {
            let alone: Vec<u32> =
                (0..M).flat_map(|row| bits(&run(&pools[0], isa, &matrix, x.rows(row..row + 1)))).collect();
            for m in 1..=M {
                // Both ends of the batch, so that a row meets every position of a tile.
                for first in [0, M - m] {
                    let found = run(&pools[m % 4], isa, &matrix, x.rows(first..first + m));
                    let expected = &alone[first * matrix.rows..(first + m) * matrix.rows];
                    assert_eq!(bits(&found), expected, "{format} {isa:?} rows {first}..{}", first + m);
                }
            }
        }
    }
}

#[test]
fn large_batches_are_cut_without_a_trace() {
    let mut rng = Rng::new(14);
    let threads = Threads::new(2).unwrap();
    let (rows, cols, m) = (64, 2048, 301);
    for format in [Format::Q4_1, Format::Q6_K, Format::F16] {
        let matrix = Matrix::random(&mut rng, format, rows, cols);
        let x = X::random(&mut rng, format, m, cols);
        let found = run(&threads, Isa::detect(), &matrix, x.rows(0..m));
        for row in [0, 1, 127, 128, 200, 300] {
            let alone = run(&threads, Isa::detect(), &matrix, x.rows(row..row + 1));
            assert_eq!(bits(&found[row * rows..][..rows]), bits(&alone), "{format} row {row}");
        }
    }
}

#[test]
fn projections_share_their_input() {
    let mut rng = Rng::new(15);
    let threads = Threads::new(2).unwrap();
    let m = 5;
    let x = X::random(&mut rng, Format::Q4_0, m, 256);
    let formats = [Format::Q4_0, Format::Q8_0, Format::Q4_K, Format::Q6_K, Format::Q5_1, Format::Q2_K];
    let matrices: Vec<Matrix> =
        formats.iter().enumerate().map(|(i, format)| Matrix::random(&mut rng, *format, 16 * i + 5, 256)).collect();
    for isa in Isa::available() {
        let mut outs: Vec<Vec<f32>> = matrices.iter().map(|matrix| vec![1.5; m * matrix.rows]).collect();
        let mut projections: Vec<Projection<'_>> = matrices
            .iter()
            .zip(&mut outs)
            .enumerate()
            .map(|(i, (matrix, out))| Projection { weights: matrix.packed(), out, add: i % 2 == 1 })
            .collect();
        matmul_many(&threads, isa, x.rows(0..m), &mut projections).unwrap();
        for (i, (matrix, out)) in matrices.iter().zip(&outs).enumerate() {
            let mut expected = run(&threads, isa, matrix, x.rows(0..m));
            if i % 2 == 1 {
                expected.iter_mut().for_each(|x| *x += 1.5);
            }
            assert_eq!(bits(out), bits(&expected), "{}", matrix.format);
        }
    }
}

#[test]
fn the_gated_product_is_its_parts() {
    let mut rng = Rng::new(16);
    let threads = Threads::new(2).unwrap();
    for (format, up_format) in [(Format::Q4_1, Format::Q4_1), (Format::Q5_0, Format::Q8_0), (Format::BF16, Format::F32)]
    {
        let (gate, up) = (Matrix::random(&mut rng, format, 41, 160), Matrix::random(&mut rng, up_format, 41, 160));
        let wide_gate = Matrix::random(&mut rng, format, 96, 160);
        let wide_up = Matrix::random(&mut rng, up_format, 96, 160);
        for activation in [Activation::Silu, Activation::GeluTanh] {
            for isa in Isa::available() {
                for m in [1, 10] {
                    let x = X::random(&mut rng, format, m, 160);
                    let mut expected = run(&threads, isa, &gate, x.rows(0..m));
                    let other = run(&threads, isa, &up, x.rows(0..m));
                    gated(&threads, isa, activation, &mut expected, &other).unwrap();
                    let mut found = vec![0.0; m * 41];
                    matmul_gated(&threads, isa, &gate.packed(), &up.packed(), activation, x.rows(0..m), &mut found)
                        .unwrap();
                    assert_eq!(bits(&found), bits(&expected), "{format} {isa:?} {activation:?}");

                    let (gate, up) = (wide_gate.packed(), wide_up.packed());
                    let mut wide = vec![0.0; m * 96];
                    matmul_gated(&threads, isa, &gate, &up, activation, x.rows(0..m), &mut wide).unwrap();
                    let mut bytes = vec![0; QuantRows::bytes(m, 96).unwrap()];
                    matmul_gated_quantize(&threads, isa, &gate, &up, activation, x.rows(0..m), &mut bytes).unwrap();
                    assert!(bytes == quantized(isa, &wide, m, 96), "{format} {isa:?} {activation:?}");
                }
            }
        }
    }
}

#[test]
fn wrong_shapes_are_refused() {
    let mut rng = Rng::new(17);
    let threads = Threads::new(1).unwrap();
    let isa = Isa::detect();
    let matrix = Matrix::random(&mut rng, Format::Q4_0, 16, 64);
    let x = X::random(&mut rng, Format::Q4_0, 2, 64);
    let narrow = X::random(&mut rng, Format::Q4_0, 2, 32);
    let float = X::random(&mut rng, Format::F32, 2, 64);
    let mut out = vec![7.0; 32];
    let weights = matrix.packed();
    let short = matmul(&threads, isa, &weights, x.rows(0..2), &mut out[1..]);
    assert_eq!(short, Err(KernelError::Shape { what: "output", expected: 32, found: 31 }));
    assert!(matches!(matmul(&threads, isa, &weights, narrow.rows(0..2), &mut out), Err(KernelError::Shape { .. })));
    let kind = matmul(&threads, isa, &weights, float.rows(0..2), &mut out);
    assert_eq!(kind, Err(KernelError::Input { format: "Q4_0" }));
    assert!(out.iter().all(|x| *x == 7.0));
    let (activation, mut bytes) = (Activation::Silu, [0; 48]);
    let gated = matmul_gated_quantize(&threads, isa, &weights, &weights, activation, x.rows(0..2), &mut bytes);
    assert!(matches!(gated, Err(KernelError::Multiple { of: 32, found: 16, .. })));
    // No rows are no work.
    matmul(&threads, isa, &weights, x.rows(0..0), &mut []).unwrap();
}

#[test]
fn activations_that_are_no_numbers_show() {
    let mut rng = Rng::new(18);
    let threads = Threads::new(1).unwrap();
    let matrix = Matrix::random(&mut rng, Format::Q4_1, 16, 64);
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let mut x = rng.activations(3 * 64);
        x[64 + 40] = bad;
        for isa in Isa::available() {
            let quant = quantized(isa, &x, 3, 64);
            let out = run(&threads, isa, &matrix, QuantRows::new(3, 64, &quant).unwrap().into());
            assert!(out[16..32].iter().all(|x| x.is_nan()), "{bad} {isa:?}");
            assert!(out[..16].iter().chain(&out[32..]).all(|x| x.is_finite()));
        }
    }
}
