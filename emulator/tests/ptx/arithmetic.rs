//! Integers, floats and conversions, through whole kernels.

use crate::support::{each32, launch, options, text};

/// Loads `%r1`, `%r2`, `%r3` of this thread from the input, and leaves what the instruction makes in `%r0`.
fn three(instruction: &str, values: &[[u32; 3]]) -> Vec<u32> {
    let load = "mul.wide.u32 %rd0, %tid, 12;\nadd.s64 %in, %in, %rd0;\nld.global.u32 %r1, [%in];\n\
                ld.global.u32 %r2, [%in+4];\nld.global.u32 %r3, [%in+8];\n\
                mov.b32 %f1, %r1;\nmov.b32 %f2, %r2;\nmov.b32 %f3, %r3;\n";
    let mut input: Vec<u32> = values.iter().flatten().copied().collect();
    each32(values.len() as u32, "", &format!("{load}{instruction}"), &mut input)
}

const WORDS: [u32; 9] = [0, 1, 2, 31, 33, 0x7fff_ffff, 0x8000_0000, 0xffff_fffe, 0xdead_beef];

fn pairs() -> Vec<[u32; 3]> {
    WORDS.iter().flat_map(|a| WORDS.map(|b| [*a, b, 7])).collect()
}

/// The instruction `name %r0, %r1, %r2` does what the function does, for all pairs.
fn same(name: &str, expected: impl Fn(u32, u32) -> u32) {
    let pairs = pairs();
    let found = three(&format!("{name} %r0, %r1, %r2;"), &pairs);
    for ([a, b, _], found) in pairs.iter().zip(found) {
        assert_eq!(found, expected(*a, *b), "{name} {a:#x} {b:#x}");
    }
}

#[test]
fn integers_of_32_bits() {
    same("add.s32", u32::wrapping_add);
    same("sub.s32", u32::wrapping_sub);
    same("mul.lo.s32", u32::wrapping_mul);
    same("mul.hi.u32", |a, b| (u64::from(a) * u64::from(b) / (1 << 32)) as u32);
    same("mul.hi.s32", |a, b| (i128::from(a as i32) * i128::from(b as i32)).div_euclid(1 << 32) as u32);
    same("min.u32", |a, b| if a < b { a } else { b });
    same("max.s32", |a, b| if a as i32 > b as i32 { a } else { b });
    same("div.u32", |a, b| a.checked_div(b).unwrap_or(u32::MAX));
    same("rem.u32", |a, b| a.checked_rem(b).unwrap_or(a));
    same("xor.b32", |a, b| a ^ b);
    same("shl.b32", |a, b| if b > 31 { 0 } else { a << b });
    same("shr.u32", |a, b| if b > 31 { 0 } else { a >> b });
    same("shr.s32", |a, b| (i64::from(a as i32) >> b.min(63)) as u32);
}

#[test]
fn bits_of_words() {
    let one = |instruction: &str, values: [u32; 3]| three(instruction, &[values])[0];
    assert_eq!(one("prmt.b32 %r0, %r1, %r2, %r3;", [0x3322_1100, 0x7766_5584, 0xc0f6]), 0xff00_0066);
    assert_eq!(one("prmt.b32 %r0, %r1, %r2, %r3;", [0x3322_1100, 0x7766_5584, 0x4132]), 0x8411_3322);
    assert_eq!(one("bfe.u32 %r0, %r1, %r2, %r3;", [0xabcd_ef01, 8, 12]), 0xdef);
    assert_eq!(one("bfe.s32 %r0, %r1, %r2, %r3;", [0xabcd_ef01, 8, 8]), 0xffff_ffef);
    assert_eq!(one("bfi.b32 %r0, %r1, %r2, %r3, 8;", [0xabcd, 0xffff_ffff, 4]), 0xffff_fcdf);
    assert_eq!(one("shf.l.wrap.b32 %r0, %r1, %r2, %r3;", [0x8000_0001, 0xf, 33]), 0x1f);
    assert_eq!(one("lop3.b32 %r0, %r1, %r2, %r3, 0x96;", [0b0011, 0b0101, 0b1111]), 0b0011 ^ 0b0101 ^ 0b1111);
    assert_eq!(one("popc.b32 %r0, %r1;", [0xf0f0_0001, 0, 0]), 9);
    assert_eq!(one("clz.b32 %r0, %r1;", [0x0010_0000, 0, 0]), 11);
}

#[test]
fn wide_products_and_64_bits() {
    let body = "ld.global.u64 %rd1, [%in];\nld.global.u64 %rd2, [%in+8];\nmul.lo.s64 %rd3, %rd1, %rd2;\n\
                st.global.u64 [%out], %rd3;\nshr.u64 %rd3, %rd1, 4;\nst.global.u64 [%out+8], %rd3;\n\
                cvt.u32.u64 %r1, %rd1;\ncvt.u32.u64 %r2, %rd2;\nmul.wide.s32 %rd3, %r1, %r2;\n\
                st.global.u64 [%out+16], %rd3;\nmad.wide.u32 %rd3, %r1, %r2, %rd1;\nst.global.u64 [%out+24], %rd3;\n\
                div.u64 %rd3, %rd1, %rd2;\nst.global.u64 [%out+32], %rd3;\nmov.b64 {%r3, %r4}, %rd1;\n\
                mov.b64 %rd3, {%r4, %r3};\nst.global.v2.u64 [%out+48], {%rd3, %rd1};";
    let (a, b) = (0xfedc_ba98_ffff_fff0_u64, 0x0000_0001_8000_0003_u64);
    let mut out = [0_u64; 8];
    launch(&text("", body), 1, &mut out, &mut [a, b], &options()).unwrap();
    let (low_a, low_b) = (a as u32, b as u32);
    let signed = i64::from(low_a as i32) * i64::from(low_b as i32);
    let mad = (u64::from(low_a) * u64::from(low_b)).wrapping_add(a);
    assert_eq!(out, [a.wrapping_mul(b), a >> 4, signed as u64, mad, a / b, 0, a.rotate_left(32), a]);
}

#[test]
fn floats_round_once_and_make_one_nan() {
    let values: Vec<[f32; 3]> = vec![
        [1.0, 1.5 * f32::EPSILON / 4.0, 0.0],
        [1.0 + f32::EPSILON, 1.0 - f32::EPSILON, -1.0],
        [f32::INFINITY, -f32::INFINITY, 1.0],
        [1e-40, 0.5, 3.0],
        [3.0, 7.0, 1e30],
        [f32::MAX, 2.0, -f32::MAX],
    ];
    let bits: Vec<_> = values.iter().map(|it| it.map(f32::to_bits)).collect();
    let check = |name: &str, expected: fn(f32, f32, f32) -> f32| {
        let found = three(&format!("{name};\nmov.b32 %r0, %f0;"), &bits);
        for ([a, b, c], found) in values.iter().zip(found) {
            let value = expected(*a, *b, *c);
            let expected = if value.is_nan() { 0x7fff_ffff } else { value.to_bits() };
            assert_eq!(found, expected, "{name} {a} {b} {c}");
        }
    };
    check("add.f32 %f0, %f1, %f2", |a, b, _| (f64::from(a) + f64::from(b)) as f32);
    check("mul.f32 %f0, %f1, %f2", |a, b, _| (f64::from(a) * f64::from(b)) as f32);
    check("div.rn.f32 %f0, %f1, %f2", |a, b, _| (f64::from(a) / f64::from(b)) as f32);
    check("fma.rn.f32 %f0, %f1, %f2, %f3", |a, b, c| (f64::from(a) * f64::from(b) + f64::from(c)) as f32);
    check("sqrt.rn.f32 %f0, %f1", |a, _, _| f64::from(a).sqrt() as f32);
    check("add.ftz.f32 %f0, %f1, %f2", |a, b, _| if a == 1e-40 { b } else { a + b });
    check("max.f32 %f0, %f1, %f2", |a, b, _| if a > b { a } else { b });
    check("copysign.f32 %f0, %f1, %f2", |a, b, _| b.copysign(a));
    check("fma.rn.sat.f32 %f0, %f1, %f2, %f3", |a, b, c| {
        let value = f64::from(a) * f64::from(b) + f64::from(c);
        if value > 0.0 { value.min(1.0) as f32 } else { 0.0 }
    });
    check("neg.f32 %f0, %f1", |a, _, _| -a);
}

#[test]
fn approximations_are_within_what_ptx_promises() {
    let values: Vec<f32> = (-40..40).map(|it| it as f32 * 0.37 + 0.01).collect();
    let bits: Vec<_> = values.iter().map(|it| [it.to_bits(), 3.7_f32.to_bits(), 0]).collect();
    let check = |name: &str, error: f64, expected: fn(f64) -> f64| {
        for (value, found) in values.iter().zip(three(&format!("{name};\nmov.b32 %r0, %f0;"), &bits)) {
            let (found, expected) = (f64::from(f32::from_bits(found)), expected(f64::from(*value)));
            let near = (found - expected).abs() <= error * expected.abs().max(1e-30);
            assert!(near || found.is_nan() && expected.is_nan(), "{name} {value}: {found} {expected}");
        }
    };
    check("ex2.approx.ftz.f32 %f0, %f1", 2.4e-7, f64::exp2);
    check("lg2.approx.ftz.f32 %f0, %f1", 6e-7, f64::log2);
    check("rsqrt.approx.f32 %f0, %f1", 1.7e-7, |it| 1.0 / it.sqrt());
    check("div.approx.f32 %f0, %f1, %f2", 2.4e-7, |it| it / f64::from(3.7_f32));
    check("tanh.approx.f32 %f0, %f1", 5e-4, f64::tanh);
}

#[test]
fn comparisons_and_choices() {
    let body = "setp.lt.u32 %p1|%p2, %r1, %r2;\nsetp.lt.and.s32 %p3, %r1, %r2, !%p1;\nselp.b32 %r4, 1, 0, %p1;\n\
                selp.b32 %r5, 2, 0, %p2;\nselp.b32 %r6, 4, 0, %p3;\nnot.pred %p4, %p3;\nor.pred %p4, %p4, %p1;\n\
                selp.b32 %r7, 8, 0, %p4;\nor.b32 %r0, %r4, %r5;\nor.b32 %r0, %r0, %r6;\nor.b32 %r0, %r0, %r7;";
    let pairs = pairs();
    for ([a, b, _], found) in pairs.iter().zip(three(body, &pairs)) {
        let less = a < b;
        let signed = (*a as i32) < *b as i32 && !less;
        let expected =
            u32::from(less) | u32::from(!less) << 1 | u32::from(signed) << 2 | u32::from(!signed || less) << 3;
        assert_eq!(found, expected, "{a:#x} {b:#x}");
    }
}

#[test]
fn small_formats_by_their_bits() {
    let one = |instruction: &str, a: f32, b: f32| three(instruction, &[[a.to_bits(), b.to_bits(), 0]])[0];
    let to16 = |what: &str| format!("{what} %h1, %f1, %f2;\nmov.b32 %r0, {{%h1, 0}};");
    assert_eq!(one(&to16("cvt.rn.satfinite.e4m3x2.f32"), 1.0, -500.0), 0x38fe);
    assert_eq!(one("cvt.rn.bf16x2.f32 %r0, %f1, %f2;", 1.0, -2.0), 0x3f80_c000);
    assert_eq!(one("cvt.rn.f16x2.f32 %r0, %f1, %f2;", 1.0, 65520.0), 0x3c00_7c00);
    assert_eq!(one("cvt.rz.f16.f32 %h1, %f1;\nmov.b32 %r0, {%h1, %h1};", 65520.0, 0.0), 0x7bff_7bff);
    assert_eq!(one("cvt.rn.bf16.f32 %h1, %f1;\nmov.b32 %r0, {%h1, 7};", 1.0 + 1.0 / 256.0, 0.0), 0x0007_3f80);
    let scoped = "{\n.reg .b16 l, h;\nmov.b32 {l, h}, %r1;\ncvt.rn.f16x2.e4m3x2 %r0, l;\n}";
    assert_eq!(three(scoped, &[[0xffff_38fe, 0, 0]]), [0x3c00_df00]);
    assert_eq!(three("mul.rn.bf16x2 %r0, %r1, %r2;", &[[0x4000_3f80, 0x4040_bf80, 0]]), [0x40c0_bf80]);
    assert_eq!(three("fma.rn.f16x2 %r0, %r1, %r2, %r3;", &[[0x4000_3c00, 0x4200_3c00, 0x3c00_bc00]]), [0x4700_0000]);
}

#[test]
fn conversions_of_numbers() {
    let bits = f32::to_bits;
    assert_eq!(
        three("cvt.rzi.s32.f32 %r0, %f1;", &[[bits(-3.9), 0, 0], [bits(1e30), 0, 0]]),
        [-3_i32 as u32, 0x7fff_ffff]
    );
    assert_eq!(three("cvt.rni.s32.f32 %r0, %f1;", &[[bits(2.5), 0, 0], [bits(3.5), 0, 0]]), [2, 4]);
    assert_eq!(three("cvt.rn.f32.u32 %f0, %r1;\nmov.b32 %r0, %f0;", &[[0xffff_ffff, 0, 0]]), [bits(4_294_967_296.0)]);
    assert_eq!(three("cvt.u16.u32 %h1, %r1;\ncvt.s32.s16 %r0, %h1;", &[[0x1_8001, 0, 0]]), [0xffff_8001]);
    assert_eq!(
        three(
            "cvt.f64.f32 %fd1, %f1;\nadd.f64 %fd1, %fd1, 0d3FF0000000000000;\ncvt.rn.f32.f64 %f0, %fd1;\nmov.b32 %r0, %f0;",
            &[[bits(0.25), 0, 0]]
        ),
        [bits(1.25)]
    );
}
