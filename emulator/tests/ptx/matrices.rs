//! Fragments of matrices, laid out here as the PTX documentation describes them, and products against f64.

use crate::support::{launch, options, text};

/// A value of a format with so many bits of exponent and mantissa, biased as IEEE does.
fn value(bits: u32, exponent: u32, mantissa: u32) -> f64 {
    let sign = if bits >> (exponent + mantissa) & 1 == 1 { -1.0 } else { 1.0 };
    let (e, m) = (bits >> mantissa & ((1 << exponent) - 1), f64::from(bits & ((1 << mantissa) - 1)));
    let (bias, scale) = ((1 << (exponent - 1)) - 1, f64::from(1 << mantissa));
    sign * if e == 0 { m / scale * 2_f64.powi(1 - bias) } else { (1.0 + m / scale) * 2_f64.powi(e as i32 - bias) }
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as u32
    }
}

/// Runs an instruction on registers that each lane loads: 4 of a, 2 of b, 4 of c, 2 of scales; returns d by lanes.
fn product(instruction: &str, lanes: &mut [[u32; 12]; 32]) -> Vec<[u32; 4]> {
    let mut body = "mul.wide.u32 %rd0, %tid, 48;\nadd.s64 %in, %in, %rd0;\n".to_owned();
    for register in 0..12 {
        body += &format!("ld.global.u32 %r{}, [%in+{}];\n", register + 4, 4 * register);
    }
    for register in 0..4 {
        body += &format!("mov.b32 %f{register}, %r{};\n", 10 + register);
    }
    body += "mul.wide.u32 %at, %tid, 16;\nadd.s64 %out, %out, %at;\n";
    body += instruction;
    let mut out = vec![[0_u32; 4]; 32];
    launch(&text("", &body), 32, &mut out, lanes, &options()).unwrap_or_else(|fault| panic!("{fault}"));
    out
}

const STORE: &str = "st.global.v4.f32 [%out], {%f4, %f5, %f6, %f7};";

/// Matrices as numbers and as bits, with so many bits an element.
struct Case {
    a: Vec<Vec<u32>>,
    b: Vec<Vec<u32>>,
    c: Vec<Vec<f32>>,
}

impl Case {
    fn new(k: usize, mut element: impl FnMut() -> u32, random: &mut Random) -> Self {
        let mut matrix = |rows: usize, columns: usize| -> Vec<Vec<u32>> {
            (0..rows).map(|_| (0..columns).map(|_| element()).collect()).collect()
        };
        let (a, b) = (matrix(16, k), matrix(k, 8));
        let c = (0..16).map(|_| (0..8).map(|_| (random.next() % 64) as f32 / 8.0 - 4.0).collect()).collect();
        Self { a, b, c }
    }

    /// The registers of each lane. The documentation gives, for element i of lane l of the left matrix: row l / 4, plus 8 in
    /// every second register; column (l % 4) * P + i % P, and half of k more in the upper two registers.
    fn registers(&self, bits: usize) -> [[u32; 12]; 32] {
        let (k, each) = (self.b.len(), 32 / bits);
        let mut lanes = [[0; 12]; 32];
        for (lane, registers) in lanes.iter_mut().enumerate() {
            let (group, within) = (lane / 4, lane % 4);
            for i in 0..4 * each {
                let row = if i / each == 0 || i / each == 2 { group } else { group + 8 };
                let column = within * each + i % each + if i < 2 * each { 0 } else { k / 2 };
                registers[i / each] |= self.a[row][column] << (bits * (i % each));
            }
            for i in 0..2 * each {
                let row = within * each + i % each + if i < each { 0 } else { k / 2 };
                registers[4 + i / each] |= self.b[row][group] << (bits * (i % each));
            }
            for i in 0..4 {
                let row = if i < 2 { group } else { group + 8 };
                registers[6 + i] = self.c[row][within * 2 + i % 2].to_bits();
            }
        }
        lanes
    }

    fn check(&self, found: &[[u32; 4]], left: impl Fn(usize, usize) -> f64, right: impl Fn(usize, usize) -> f64) {
        for (lane, found) in found.iter().enumerate() {
            for (i, found) in found.iter().enumerate() {
                let (row, column) = (lane / 4 + if i < 2 { 0 } else { 8 }, lane % 4 * 2 + i % 2);
                let mut sum = f64::from(self.c[row][column]);
                let mut size = sum.abs();
                for at in 0..self.b.len() {
                    let product = left(row, at) * right(at, column);
                    (sum, size) = (sum + product, size + product.abs());
                }
                let found = f64::from(f32::from_bits(*found));
                assert!(
                    (found - sum).abs() <= size * 64.0 * f64::from(f32::EPSILON) / 2.0,
                    "{row} {column}: {found} {sum}"
                );
            }
        }
    }
}

#[test]
fn products_of_halves() {
    for (name, exponent, mantissa) in [("f16", 5, 10), ("bf16", 8, 7)] {
        let mut random = Random(7);
        let mut elements = Random(8);
        // Signs and mantissas at random, exponents near that of one.
        let bias = (1 << (exponent - 1)) - 1;
        let case = Case::new(
            16,
            || {
                let word = elements.next();
                (word & 1) << 15 | (bias - 2 + (word >> 1) % 4) << mantissa | (word >> 8) & ((1 << mantissa) - 1)
            },
            &mut random,
        );
        let instruction = format!(
            "mma.sync.aligned.m16n8k16.row.col.f32.{name}.{name}.f32 {{%f4, %f5, %f6, %f7}}, {{%r4, %r5, %r6, %r7}}, \
             {{%r8, %r9}}, {{%f0, %f1, %f2, %f3}};\n{STORE}"
        );
        let found = product(&instruction, &mut case.registers(16));
        let of = |bits| value(bits, exponent, mantissa);
        case.check(&found, |row, k| of(case.a[row][k]), |k, column| of(case.b[k][column]));
    }
}

#[test]
fn products_of_tf32_of_eight_elements_and_of_four() {
    let (mut random, mut elements) = (Random(11), Random(12));
    let element = || {
        let word = elements.next();
        (word & 1) << 31 | (125 + (word >> 1) % 4) << 23 | (elements.next() & 0x7f_ffff)
    };
    let mut case = Case::new(8, element, &mut random);
    // Of an f32's mantissa ten bits are looked at.
    let of = |bits: u32| f64::from(f32::from_bits(bits & 0xffff_e000));
    let head = "mma.sync.aligned.row.col.f32.tf32.tf32.f32 {%f4, %f5, %f6, %f7}";
    let eight = head.replace("aligned", "aligned.m16n8k8");
    let eight = format!("{eight}, {{%r4, %r5, %r6, %r7}}, {{%r8, %r9}}, {{%f0, %f1, %f2, %f3}};\n{STORE}");
    let found = product(&eight, &mut case.registers(32));
    case.check(&found, |row, k| of(case.a[row][k]), |k, column| of(case.b[k][column]));
    // Four: the registers of the first ones.
    let four = head.replace("aligned", "aligned.m16n8k4");
    let four = format!("{four}, {{%r4, %r5}}, {{%r8}}, {{%f0, %f1, %f2, %f3}};\n{STORE}");
    let found = product(&four, &mut case.registers(32));
    case.a.iter_mut().for_each(|row| row[4..].fill(0));
    case.check(&found, |row, k| of(case.a[row][k]), |k, column| of(case.b[k][column]));
}

#[test]
fn products_of_bytes_plain_and_with_scales() {
    let (mut random, mut elements) = (Random(3), Random(4));
    // No NaN.
    let case = Case::new(32, || elements.next() & 0xff & !1, &mut random);
    let of = |bits| value(bits, 4, 3);
    let tail = "{%f4, %f5, %f6, %f7}, {%r4, %r5, %r6, %r7}, {%r8, %r9}, {%f0, %f1, %f2, %f3}";
    let plain = format!("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {tail};\n{STORE}");
    let found = product(&plain, &mut case.registers(8));
    case.check(&found, |row, k| of(case.a[row][k]), |k, column| of(case.b[k][column]));
    // One scale a row: byte 2 of lanes 2 and 3 of each four, byte 1 of lane 3 for columns.
    let scaled = format!(
        "mma.sync.aligned.m16n8k32.row.col.kind::mxf8f6f4.block_scale.scale_vec::1X.f32.e4m3.e4m3.f32.ue8m0 {tail}, \
         {{%r14}}, {{2, 1}}, {{%r15}}, {{1, 3}};\n{STORE}"
    );
    let mut lanes = case.registers(8);
    for (lane, registers) in lanes.iter_mut().enumerate() {
        let exponents =
            |seed: usize| (0..4).fold(0, |all, at| all | ((120 + (lane * 5 + at * 3 + seed) % 13) as u32) << (8 * at));
        (registers[10], registers[11]) = (exponents(0), exponents(4));
    }
    let found = product(&scaled, &mut lanes.clone());
    let power = |word: u32, byte: u32| 2_f64.powi((word >> (8 * byte) & 0xff) as i32 - 127);
    let row_scale = |row: usize| power(lanes[row % 8 * 4 + 2 + row / 8][10], 2);
    let column_scale = |column: usize| power(lanes[column * 4 + 3][11], 1);
    case.check(
        &found,
        |row, k| of(case.a[row][k]) * row_scale(row),
        |k, column| of(case.b[k][column]) * column_scale(column),
    );
}

#[test]
fn products_of_four_bits_with_scales_of_16() {
    let (mut random, mut elements) = (Random(5), Random(6));
    let case = Case::new(64, || elements.next() & 0xf, &mut random);
    let instruction = format!(
        "mma.sync.aligned.kind::mxf4nvf4.block_scale.scale_vec::4X.m16n8k64.row.col.f32.e2m1.e2m1.f32.ue4m3 \
         {{%f4, %f5, %f6, %f7}}, {{%r4, %r5, %r6, %r7}}, {{%r8, %r9}}, {{%f0, %f1, %f2, %f3}}, {{%r14}}, {{0, 0}}, {{%r15}}, {{0, 2}};\n{STORE}"
    );
    let mut lanes = case.registers(4);
    for registers in &mut lanes {
        (registers[10], registers[11]) = (elements.next() & 0x3f3f_3f3f, elements.next() & 0x3f3f_3f3f);
    }
    let found = product(&instruction, &mut lanes.clone());
    let of = |bits| value(bits, 2, 1);
    let scale = |word: u32, k: usize| value(word >> (8 * (k / 16)) & 0x7f, 4, 3);
    case.check(
        &found,
        |row, k| of(case.a[row][k]) * scale(lanes[row % 8 * 4 + row / 8][10], k),
        |k, column| of(case.b[k][column]) * scale(lanes[column * 4 + 2][11], k),
    );
}

#[test]
fn products_of_integers() {
    let (mut random, mut elements) = (Random(1), Random(2));
    let case = Case::new(32, || elements.next() & 0xff, &mut random);
    let mut lanes = case.registers(8);
    lanes.iter_mut().for_each(|it| it[6..10].copy_from_slice(&[1, 2, 3, 4]));
    let found = product(
        "mma.sync.aligned.m16n8k32.row.col.s32.s8.u8.s32 {%r20, %r21, %r22, %r23}, {%r4, %r5, %r6, %r7}, {%r8, %r9}, \
         {%r10, %r11, %r12, %r13};\nst.global.v4.u32 [%out], {%r20, %r21, %r22, %r23};",
        &mut lanes,
    );
    for (lane, found) in found.iter().enumerate() {
        for (i, found) in found.iter().enumerate() {
            let (row, column) = (lane / 4 + if i < 2 { 0 } else { 8 }, lane % 4 * 2 + i % 2);
            let products = (0..32).map(|k| i32::from(case.a[row][k] as u8 as i8) * case.b[k][column] as i32);
            assert_eq!(*found as i32, products.sum::<i32>() + i as i32 + 1, "{row} {column}");
        }
    }
}

#[test]
fn matrices_of_16_bits_are_loaded_by_rows_and_by_columns() {
    // Element (row, column) of matrix m is m * 64 + row * 8 + column; rows lie 32 bytes apart.
    let mut input: Vec<u32> = Vec::new();
    for matrix in 0..4_u32 {
        for row in 0..8 {
            let one = |column: u32| matrix * 64 + row * 8 + column;
            input.extend((0..4).map(|it| one(2 * it) | one(2 * it + 1) << 16));
            input.extend([0xffff_ffff; 4]);
        }
    }
    // Each lane copies one row and is the one that gives its address.
    let body = |trans: &str| {
        format!(
            "shl.b32 %r1, %tid, 5;\ncvt.u64.u32 %rd1, %r1;\nadd.s64 %rd2, %in, %rd1;\nld.global.v4.u32 {{%r2, %r3, %r4, %r5}}, [%rd2];\n\
             mov.u64 %rd3, dynamic;\nadd.s64 %rd3, %rd3, %rd1;\nst.shared.v4.u32 [%rd3], {{%r2, %r3, %r4, %r5}};\nbar.warp.sync -1;\n\
             cvt.u32.u64 %r6, %rd3;\nldmatrix.sync.aligned.m8n8.x4{trans}.shared.b16 {{%r7, %r8, %r9, %r10}}, [%r6];\n\
             mul.wide.u32 %at, %tid, 16;\nadd.s64 %out, %out, %at;\nst.global.v4.u32 [%out], {{%r7, %r8, %r9, %r10}};"
        )
    };
    for trans in [false, true] {
        let mut out = vec![[0_u32; 4]; 32];
        let body = body(if trans { ".trans" } else { "" });
        launch(&text("", &body), 32, &mut out, &mut input, &options()).unwrap_or_else(|fault| panic!("{fault}"));
        for (lane, found) in out.iter().enumerate() {
            for (matrix, found) in found.iter().enumerate() {
                let (a, b) = (lane as u32 / 4, 2 * (lane as u32 % 4));
                let one = |it: u32| matrix as u32 * 64 + if trans { it * 8 + a } else { a * 8 + it };
                assert_eq!(*found, one(b) | one(b + 1) << 16, "{trans} {lane} {matrix}");
            }
        }
    }
}

#[test]
fn a_matrix_in_registers_is_transposed() {
    // Element (row, column) is row * 8 + column.
    let body = "shl.b32 %r1, %tid, 1;\nadd.u32 %r2, %r1, 1;\nshl.b32 %r2, %r2, 16;\nor.b32 %r1, %r1, %r2;\n\
                movmatrix.sync.aligned.m8n8.trans.b16 %r3, %r1;\n\
                mul.wide.u32 %at, %tid, 4;\nadd.s64 %out, %out, %at;\nst.global.u32 [%out], %r3;";
    let mut out = [0_u32; 32];
    launch(&text("", body), 32, &mut out, &mut [0_u32], &options()).unwrap_or_else(|fault| panic!("{fault}"));
    for (lane, found) in out.iter().enumerate() {
        let (row, column) = (lane as u32 / 4, 2 * (lane as u32 % 4));
        assert_eq!(*found, (column * 8 + row) | ((column + 1) * 8 + row) << 16, "{lane}");
    }
}

#[test]
fn matrices_that_nobody_wrote_are_nan() {
    let body = "mov.u64 %rd3, dynamic;\ncvt.u32.u64 %r6, %rd3;\nldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r7}, [%r6];\n\
                mul.wide.u32 %at, %tid, 4;\nadd.s64 %out, %out, %at;\nst.global.u32 [%out], %r7;";
    let mut out = [0_u32; 32];
    launch(&text("", body), 32, &mut out, &mut [0_u32], &options()).unwrap_or_else(|fault| panic!("{fault}"));
    assert_eq!(out, [u32::MAX; 32]);
}
