//! Dequantisation and packing of every format.

mod common;

use common::{Matrix, Rng, bits, odd_cols, random_raw, reference_row};
use engine_kernels::{
    Format, GROUP_ROWS, Isa, KernelError, Packed, Threads, dequantize_raw_row, dequantize_row, embed, group_bytes,
    pack, pack_groups, pack_parallel, packed_bytes,
};

#[test]
fn raw_rows_dequantise_as_ggml_does() {
    let mut rng = Rng::new(1);
    for format in Format::ALL {
        let cols = odd_cols(format);
        for _ in 0..50 {
            let raw = random_raw(&mut rng, format, 1, cols);
            let mut found = vec![0.0; cols];
            dequantize_raw_row(format, &raw, &mut found).unwrap();
            assert_eq!(bits(&found), bits(&reference_row(format, &raw, cols)), "{format}");
        }
    }
}

#[test]
fn packed_rows_dequantise_to_the_same_values() {
    let mut rng = Rng::new(2);
    for format in Format::ALL {
        for rows in [1, 16, 17, 48] {
            let cols = odd_cols(format);
            let matrix = Matrix::random(&mut rng, format, rows, cols);
            let mut row = vec![0.0; cols];
            for index in 0..rows {
                dequantize_row(&matrix.packed(), index, &mut row).unwrap();
                assert_eq!(bits(&row), bits(&matrix.values[index * cols..][..cols]), "{format} row {index} of {rows}");
            }
            assert!(matches!(dequantize_row(&matrix.packed(), rows, &mut row), Err(KernelError::Index { .. })));
            assert!(dequantize_row(&matrix.packed(), 0, &mut row[1..]).is_err());
        }
    }
}

#[test]
fn packing_by_parts_and_on_threads_gives_the_same_bytes() {
    let mut rng = Rng::new(3);
    let threads = Threads::new(3).unwrap();
    for format in Format::ALL {
        let (rows, cols) = (16 * 4 + 5, odd_cols(format));
        let matrix = Matrix::random(&mut rng, format, rows, cols);
        let (row_bytes, group) = (format.row_bytes(cols).unwrap(), group_bytes(format, cols).unwrap());

        let mut parts = vec![0x55; matrix.bytes.len()];
        for range in [3..5, 0..1, 1..3] {
            let raw = &matrix.raw[range.start * GROUP_ROWS * row_bytes..(range.end * GROUP_ROWS).min(rows) * row_bytes];
            let dst = &mut parts[range.start * group..range.end * group];
            pack_groups(format, rows, cols, range, raw, dst).unwrap();
        }
        assert_eq!(parts, matrix.bytes, "{format}");

        let mut parallel = vec![0x55; matrix.bytes.len()];
        pack_parallel(&threads, format, rows, cols, &matrix.raw, &mut parallel).unwrap();
        assert_eq!(parallel, matrix.bytes, "{format}");
    }
}

#[test]
fn wrong_sizes_are_refused() {
    assert_eq!(packed_bytes(Format::Q4_K, 16, 640), None);
    assert_eq!(packed_bytes(Format::Q4_0, 16, 0), None);
    assert_eq!(packed_bytes(Format::F32, usize::MAX, 1 << 40), None);
    assert_eq!(packed_bytes(Format::Q8_0, 262_144, 640), Some(262_144 * 680));
    let (raw, mut dst) = ([0u8; 36], [0u8; 1024]);
    assert!(matches!(pack(Format::Q4_0, 1, 33, &raw, &mut dst), Err(KernelError::Multiple { .. })));
    assert!(matches!(pack(Format::Q4_0, 1, 64, &raw[1..], &mut dst), Err(KernelError::Shape { .. })));
    assert!(matches!(pack(Format::Q4_0, 1, 64, &raw, &mut dst[1..]), Err(KernelError::Shape { .. })));
    let range = pack_groups(Format::Q4_0, 1, 64, 1..2, &raw, &mut dst);
    assert!(matches!(range, Err(KernelError::Index { .. })));
    assert!(Packed::new(Format::Q4_0, 1, 64, &dst[..10]).is_err());
    assert!(dequantize_raw_row(Format::Q8_0, &raw, &mut [0.0; 32]).is_err());
}

#[test]
fn embedding_scales_the_tokens_rows() {
    let threads = Threads::new(2).unwrap();
    let matrix = Matrix::random(&mut Rng::new(4), Format::Q8_0, 50, 96);
    let tokens = [3u32, 49, 3, 0, 17, 20, 21, 22, 23];
    for isa in Isa::available() {
        let mut out = vec![0.0; tokens.len() * 96];
        embed(&threads, isa, &matrix.packed(), &tokens, 2.5, &mut out).unwrap();
        for (out, token) in out.chunks_exact(96).zip(tokens) {
            let expected: Vec<f32> = matrix.values[token as usize * 96..][..96].iter().map(|x| x * 2.5).collect();
            assert_eq!(bits(out), bits(&expected));
        }
        let error = embed(&threads, isa, &matrix.packed(), &[50], 1.0, &mut out[..96]).unwrap_err();
        assert_eq!(error, KernelError::Index { what: "token", limit: 50, found: 50 });
    }
}
