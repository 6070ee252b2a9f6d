//! Quantisation, norms and rotary positions, against f64 and on every level.

mod common;

use common::{Matrix, Rng, bits, quantized};
use engine_kernels::{
    Format, Isa, KernelError, Norm, QuantRows, RECORD_BYTES, RopeAngles, RopeParams, RopeStyle, Threads, quantize_rows,
    residual_norm, residual_norm_quantize, rms_norm, rms_norm_in_place, rms_norm_quantize, rope, rope_angles,
};

fn i32_at(record: &[u8], at: usize) -> i32 {
    i32::from_le_bytes(record[at..at + 4].try_into().unwrap())
}

#[test]
fn quantised_rows_are_what_they_say() {
    let mut rng = Rng::new(40);
    let (rows, cols) = (7, 96);
    let mut x = rng.activations(rows * cols);
    x[..32].fill(0.0);
    x[32..64].iter_mut().for_each(|x| *x *= 1e-38);
    x[64..96].iter_mut().for_each(|x| *x *= 1e37);
    let expected = quantized(Isa::portable(), &x, rows, cols);
    for isa in Isa::available() {
        assert!(quantized(isa, &x, rows, cols) == expected, "{isa:?}");
    }
    for (block, record) in x.chunks_exact(32).zip(expected.chunks_exact(RECORD_BYTES)) {
        let largest = block.iter().fold(0f32, |largest, x| largest.max(x.abs()));
        let scale = f32::from_bits(i32_at(record, 32) as u32);
        assert_eq!(scale, largest / 127.0);
        let quants: Vec<i32> = record[..32].iter().map(|byte| i32::from(*byte as i8)).collect();
        for (quant, x) in quants.iter().zip(block) {
            assert!((-127..=127).contains(quant));
            assert!((*quant as f32 * scale - x).abs() <= scale * 0.501 || scale < 1e-37);
        }
        let sums = [quants[..16].iter().sum::<i32>(), quants[16..].iter().sum::<i32>()];
        assert_eq!([i32_at(record, 40), i32_at(record, 44)], sums.map(|sum| -sum));
        assert_eq!(f32::from_bits(i32_at(record, 36) as u32), scale * (sums[0] + sums[1]) as f32);
    }
}

#[test]
fn a_quantised_row_does_not_depend_on_its_batch() {
    let mut rng = Rng::new(41);
    let threads = Threads::new(3).unwrap();
    let (rows, cols) = (70, 256);
    let x = rng.activations(rows * cols);
    let alone: Vec<u8> = x.chunks_exact(cols).flat_map(|row| quantized(Isa::detect(), row, 1, cols)).collect();
    let mut together = vec![0; QuantRows::bytes(rows, cols).unwrap()];
    let quant = quantize_rows(&threads, Isa::detect(), &x, rows, cols, &mut together).unwrap();
    assert_eq!((quant.rows(), quant.cols()), (rows, cols));
    assert!(quant.slice(3..5).unwrap().as_bytes() == &alone[3 * cols / 32 * 48..5 * cols / 32 * 48]);
    assert!(quant.slice(69..71).is_err());
    assert!(together == alone);
}

#[test]
fn sizes_of_quantised_rows_are_checked() {
    assert_eq!(QuantRows::bytes(2, 64), Some(2 * 2 * 48));
    assert_eq!(QuantRows::bytes(2, 33), None);
    assert_eq!(QuantRows::bytes(usize::MAX, 64), None);
    let threads = Threads::new(1).unwrap();
    let mut dst = [0; 96];
    let wrong = quantize_rows(&threads, Isa::detect(), &[0.0; 48], 1, 48, &mut dst).unwrap_err();
    assert_eq!(wrong, KernelError::Multiple { what: "columns of quantised rows", of: 32, found: 48 });
    assert!(quantize_rows(&threads, Isa::detect(), &[0.0; 64], 1, 64, &mut dst[1..]).is_err());
}

fn norm_reference(x: &[f32], norm: Norm<'_>) -> Vec<f64> {
    let squares: f64 = x.iter().map(|x| f64::from(*x).powi(2)).sum();
    let factor = 1.0 / (squares / x.len() as f64 + f64::from(norm.epsilon)).sqrt();
    x.iter().zip(norm.weight).map(|(x, weight)| f64::from(*x) * factor * f64::from(*weight)).collect()
}

fn close(found: &[f32], expected: &[f64], tolerance: f64) {
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(expected) {
        assert!((f64::from(*found) - expected).abs() <= tolerance * expected.abs().max(1e-3), "{found} for {expected}");
    }
}

#[test]
fn norms_agree_with_f64_and_with_each_other() {
    let mut rng = Rng::new(42);
    let threads = Threads::new(2).unwrap();
    for (rows, cols) in [(1, 576), (3, 640), (40, 1024), (9, 32), (2, 96)] {
        let (x, delta) = (rng.activations(rows * cols), rng.activations(rows * cols));
        let (weight, other) = (rng.activations(cols), rng.activations(cols));
        let pre = Norm { weight: &weight, epsilon: 1e-5 };
        let post = Norm { weight: &other, epsilon: 1e-6 };
        let mut first: Option<Vec<u32>> = None;
        for isa in Isa::available() {
            let mut out = vec![0.0; rows * cols];
            rms_norm(&threads, isa, pre, &x, rows, &mut out).unwrap();
            for (x, out) in x.chunks_exact(cols).zip(out.chunks_exact(cols)) {
                close(out, &norm_reference(x, pre), 1e-6);
            }
            let mut in_place = x.clone();
            rms_norm_in_place(&threads, isa, pre, &mut in_place, rows).unwrap();
            assert_eq!(bits(&in_place), bits(&out));
            let mut bytes = vec![0; QuantRows::bytes(rows, cols).unwrap()];
            rms_norm_quantize(&threads, isa, pre, &x, rows, &mut bytes).unwrap();
            assert!(bytes == quantized(isa, &out, rows, cols));

            let mut all = bits(&out);
            for post in [None, Some(post)] {
                let mut residual = x.clone();
                residual_norm(&threads, isa, &mut residual, &delta, post, pre, rows, &mut out).unwrap();
                for row in 0..rows {
                    let range = row * cols..(row + 1) * cols;
                    let delta: Vec<f64> = match post {
                        Some(post) => norm_reference(&delta[range.clone()], post),
                        None => delta[range.clone()].iter().map(|x| f64::from(*x)).collect(),
                    };
                    let sum: Vec<f64> = x[range.clone()].iter().zip(&delta).map(|(x, d)| f64::from(*x) + d).collect();
                    close(&residual[range.clone()], &sum, 1e-3);
                    close(&out[range.clone()], &norm_reference(&residual[range], pre), 1e-6);
                }
                let mut fused = x.clone();
                residual_norm_quantize(&threads, isa, &mut fused, &delta, post, pre, rows, &mut bytes).unwrap();
                assert_eq!(bits(&fused), bits(&residual));
                assert!(bytes == quantized(isa, &out, rows, cols));
                all.extend(bits(&residual).into_iter().chain(bits(&out)));
            }
            assert!(*first.get_or_insert_with(|| all.clone()) == all, "{isa:?}");
        }
    }
}

#[test]
fn rotations_agree_with_f64() {
    let mut rng = Rng::new(43);
    let threads = Threads::new(2).unwrap();
    let positions = [0u32, 1, 2, 77, 4095, 131_071, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16];
    let (heads, head_dim) = (3, 32);
    let factors: Vec<f32> = (0..8).map(|i| 1.0 + i as f32).collect();
    for (dims, base, scale, factors) in
        [(32, 1e5, 1.0, None), (32, 1e6, 0.125, None), (16, 5e5, 1.0, Some(factors.as_slice()))]
    {
        let params = RopeParams { dims, base, scale, factors };
        let mut table = vec![0.0; RopeAngles::elements(positions.len(), dims).unwrap()];
        rope_angles(&threads, params, &positions, &mut table).unwrap();
        let angles = RopeAngles::new(positions.len(), dims, &table).unwrap();
        let x = rng.activations(positions.len() * heads * head_dim);
        for style in [RopeStyle::Interleaved, RopeStyle::Halves] {
            let mut first: Option<Vec<u32>> = None;
            for isa in Isa::available() {
                let mut found = x.clone();
                rope(&threads, isa, style, angles, &mut found, heads, head_dim).unwrap();
                assert_eq!(*first.get_or_insert_with(|| bits(&found)), bits(&found), "{isa:?}");
                let rows = x.chunks_exact(heads * head_dim).zip(found.chunks_exact(heads * head_dim));
                for ((x, found), position) in rows.zip(positions) {
                    for (x, found) in x.chunks_exact(head_dim).zip(found.chunks_exact(head_dim)) {
                        let mut expected: Vec<f64> = x.iter().map(|x| f64::from(*x)).collect();
                        for i in 0..dims / 2 {
                            let divisor = factors.map_or(1.0, |factors| f64::from(factors[i]));
                            let frequency = f64::from(base).powf(-2.0 * i as f64 / dims as f64) / divisor;
                            let (sin, cos) = (f64::from(position) * f64::from(scale) * frequency).sin_cos();
                            let (a, b) = match style {
                                RopeStyle::Interleaved => (2 * i, 2 * i + 1),
                                RopeStyle::Halves => (i, i + dims / 2),
                            };
                            let (xa, xb) = (f64::from(x[a]), f64::from(x[b]));
                            (expected[a], expected[b]) = (xa * cos - xb * sin, xa * sin + xb * cos);
                        }
                        for (found, expected) in found.iter().zip(expected) {
                            assert!((f64::from(*found) - expected).abs() < 2e-6, "{found} for {expected}");
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn wrong_rope_arguments_are_refused() {
    let threads = Threads::new(1).unwrap();
    let params = RopeParams { dims: 8, base: 1e4, scale: 1.0, factors: None };
    let mut table = [0.0; 16];
    assert!(rope_angles(&threads, params, &[0], &mut table).is_err());
    assert!(rope_angles(&threads, RopeParams { dims: 7, ..params }, &[0], &mut table[..7]).is_err());
    let short = RopeParams { factors: Some(&[1.0]), ..params };
    assert!(rope_angles(&threads, short, &[0, 1], &mut table).is_err());
    let angles = rope_angles(&threads, params, &[0, 1], &mut table).unwrap();
    let style = RopeStyle::Halves;
    assert!(rope(&threads, Isa::detect(), style, angles, &mut [0.0; 8], 2, 4).is_err());
    assert!(rope(&threads, Isa::detect(), style, angles, &mut [0.0; 15], 1, 8).is_err());
    assert!(rope(&threads, Isa::detect(), style, angles, &mut [0.0; 16], 1, 8).is_ok());
}

#[test]
fn one_quantisation_serves_every_level() {
    let mut rng = Rng::new(44);
    let matrix = Matrix::random(&mut rng, Format::Q8_0, 16, 64);
    let threads = Threads::new(1).unwrap();
    let x = rng.activations(64);
    let mut outs = Vec::new();
    for quantizer in Isa::available() {
        let bytes = quantized(quantizer, &x, 1, 64);
        for isa in Isa::available() {
            let mut out = vec![0.0; 16];
            let x = QuantRows::new(1, 64, &bytes).unwrap();
            engine_kernels::matmul(&threads, isa, &matrix.packed(), x.into(), &mut out).unwrap();
            outs.push(bits(&out));
        }
    }
    assert!(outs.iter().all(|out| *out == outs[0]));
}
