//! Comparisons, and predicates.

use super::{alu::logic, registers::Lanes};
use crate::ptx::{
    code::{Cmp, Set, Ty},
    floats::{flush, from_bf16, from_f16},
};

#[inline(always)]
pub(super) fn set(l: &mut Lanes<'_>, set: Set, r: &[u32; 5], mask: u32) {
    let sources = if set.both { 2 } else { 1 };
    let (a, b) = (r[sources], r[sources + 1]);
    let bits = match set.ty {
        Ty::S(4) => bits32(l, a, b, |a, b| integers(set.cmp, a as i32, b as i32)),
        Ty::U(4) | Ty::B(4) => bits32(l, a, b, |a, b| integers(set.cmp, a, b)),
        Ty::F32 if set.ftz => {
            bits32(l, a, b, |a, b| floats(set.cmp, flush(f32::from_bits(a)), flush(f32::from_bits(b))))
        }
        Ty::F32 => bits32(l, a, b, |a, b| floats(set.cmp, f32::from_bits(a), f32::from_bits(b))),
        Ty::S(8) => bits64(l, a, b, |a, b| integers(set.cmp, a as i64, b as i64)),
        Ty::F64 => bits64(l, a, b, |a, b| floats(set.cmp, f64::from_bits(a), f64::from_bits(b))),
        Ty::S(_) => bits32(l, a, b, |a, b| integers(set.cmp, a as u16 as i16, b as u16 as i16)),
        Ty::F16 => bits32(l, a, b, |a, b| floats(set.cmp, from_f16(a as u16), from_f16(b as u16))),
        Ty::Bf16 => bits32(l, a, b, |a, b| floats(set.cmp, from_bf16(a as u16), from_bf16(b as u16))),
        ty if ty.bytes() == 8 => bits64(l, a, b, |a, b| integers(set.cmp, a, b)),
        _ => bits32(l, a, b, |a, b| integers(set.cmp, a & 0xffff, b & 0xffff)),
    };
    let (with, not) = match set.with {
        Some((op, negated)) => {
            let c = l.p(r[sources + 2]) ^ if negated { u32::MAX } else { 0 };
            (logic(op, bits, c), logic(op, !bits, c))
        }
        None => (bits, !bits),
    };
    l.put_p(r[0], with, mask);
    if set.both {
        l.put_p(r[1], not, mask);
    }
}

#[inline(always)]
fn bits32(l: &Lanes<'_>, a: u32, b: u32, f: impl Fn(u32, u32) -> bool) -> u32 {
    let (a, b) = (l.a32(a), l.a32(b));
    let mut bits = 0;
    for lane in 0..32 {
        bits |= u32::from(f(a[lane], b[lane])) << lane;
    }
    bits
}

#[inline(always)]
fn bits64(l: &Lanes<'_>, a: u32, b: u32, f: impl Fn(u64, u64) -> bool) -> u32 {
    let (a, b) = (l.a64(a), l.a64(b));
    let mut bits = 0;
    for lane in 0..32 {
        bits |= u32::from(f(a[lane], b[lane])) << lane;
    }
    bits
}

#[inline(always)]
fn integers<T: PartialOrd>(cmp: Cmp, a: T, b: T) -> bool {
    match cmp {
        Cmp::Eq | Cmp::Equ => a == b,
        Cmp::Ne | Cmp::Neu => a != b,
        Cmp::Lt | Cmp::Ltu => a < b,
        Cmp::Le | Cmp::Leu => a <= b,
        Cmp::Gt | Cmp::Gtu => a > b,
        Cmp::Ge | Cmp::Geu => a >= b,
        Cmp::Num => true,
        Cmp::Nan => false,
    }
}

/// Comparisons with a NaN are false; those with `u` are true.
#[inline(always)]
fn floats<T: PartialOrd>(cmp: Cmp, a: T, b: T) -> bool {
    let ordered = a.partial_cmp(&b).is_some();
    match cmp {
        Cmp::Eq => a == b,
        Cmp::Ne => ordered && a != b,
        Cmp::Lt => a < b,
        Cmp::Le => a <= b,
        Cmp::Gt => a > b,
        Cmp::Ge => a >= b,
        Cmp::Equ => !ordered || a == b,
        Cmp::Neu => a != b,
        Cmp::Ltu => !ordered || a < b,
        Cmp::Leu => !ordered || a <= b,
        Cmp::Gtu => !ordered || a > b,
        Cmp::Geu => !ordered || a >= b,
        Cmp::Num => ordered,
        Cmp::Nan => !ordered,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comparisons_with_nan() {
        let all = [
            (Cmp::Eq, false),
            (Cmp::Ne, false),
            (Cmp::Lt, false),
            (Cmp::Le, false),
            (Cmp::Gt, false),
            (Cmp::Ge, false),
            (Cmp::Equ, true),
            (Cmp::Neu, true),
            (Cmp::Ltu, true),
            (Cmp::Leu, true),
            (Cmp::Gtu, true),
            (Cmp::Geu, true),
            (Cmp::Num, false),
            (Cmp::Nan, true),
        ];
        for (cmp, expected) in all {
            assert_eq!(floats(cmp, f32::NAN, 1.0), expected, "{cmp:?}");
        }
        assert!(floats(Cmp::Ne, 1.0, 2.0) && !floats(Cmp::Ne, 1.0, 1.0) && floats(Cmp::Leu, 1.0, 1.0));
    }
}
