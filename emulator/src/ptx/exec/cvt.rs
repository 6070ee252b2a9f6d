//! Conversions.

use super::{float::to_f16, registers::Lanes};
use crate::ptx::{
    code::{Cvt, Round, Ty},
    floats::{BF16, E2M1, E4M3, E5M2, F16, F32, Format, NAN32, flush, from_bf16, from_f16, integral, to_bf16, to_f32},
};

pub(super) fn convert(l: &mut Lanes<'_>, cvt: Cvt, r: &[u32; 5], mask: u32) {
    let near = cvt.round == Round::Near && !cvt.sat && !cvt.relu && !cvt.ftz && !cvt.integral;
    let f = f32::from_bits;
    match (cvt.to, cvt.from) {
        (Ty::Bf16, Ty::F32) if near => l.map32(r[0], r[1], mask, |a| u32::from(to_bf16(f(a)))),
        (Ty::F16, Ty::F32) if near => l.map32(r[0], r[1], mask, |a| u32::from(to_f16(f(a)))),
        (Ty::F32, Ty::F16) if near => l.map32(r[0], r[1], mask, |a| from_f16(a as u16).to_bits()),
        (Ty::F32, Ty::Bf16) if near => l.map32(r[0], r[1], mask, |a| from_bf16(a as u16).to_bits()),
        // The first source is the high half.
        (Ty::Bf16x2, Ty::F32) if near => {
            l.two32(r, mask, |a, b| u32::from(to_bf16(f(a))) << 16 | u32::from(to_bf16(f(b))));
        }
        (Ty::F16x2, Ty::F32) if near => {
            l.two32(r, mask, |a, b| u32::from(to_f16(f(a))) << 16 | u32::from(to_f16(f(b))));
        }
        (Ty::F16x2, Ty::E4m3x2) if near => {
            let one = |a: u32| u32::from(to_f16(from_e4m3(a as u8)));
            l.map32(r[0], r[1], mask, |a| one(a) | one(a >> 8) << 16);
        }
        (to @ (Ty::F16x2 | Ty::Bf16x2 | Ty::E4m3x2 | Ty::E5m2x2 | Ty::E2m1x2), Ty::F32) => {
            let (format, bits) = packed(to);
            let one = |a: u32| encode(format, f64::from(f(a)), cvt);
            l.two32(r, mask, |a, b| one(a) << bits | one(b));
        }
        (Ty::F16x2, from) => {
            let (format, bits) = packed(from);
            let one = |a: u32| {
                let value = format.decode(a & ((1 << bits) - 1));
                let value = if cvt.relu { value.max(0.0) } else { value };
                F16.encode(value, Round::Near, false)
            };
            l.map32(r[0], r[1], mask, |a| one(a) | one(a >> bits) << 16);
        }
        (to, from) => {
            let mut values = l.values(r[1], from);
            for value in &mut values {
                *value = one(cvt, *value);
            }
            l.put(r[0], values, to, mask);
        }
    }
}

/// The format of each of two, and its bits.
fn packed(ty: Ty) -> (Format, u32) {
    match ty {
        Ty::F16x2 => (F16, 16),
        Ty::Bf16x2 => (BF16, 16),
        Ty::E4m3x2 => (E4M3, 8),
        Ty::E5m2x2 => (E5M2, 8),
        _ => (E2M1, 4),
    }
}

fn encode(format: Format, value: f64, cvt: Cvt) -> u32 {
    let value = if cvt.relu && value < 0.0 { 0.0 } else { value };
    format.encode(value, cvt.round, cvt.sat)
}

#[inline(always)]
fn from_e4m3(bits: u8) -> f32 {
    let size = u32::from(bits & 0x7f);
    // Exponents are 120 lower there.
    let value = f32::from_bits(size << 20) * f32::from_bits((127 + 120) << 23);
    let value = if size == 0x7f { f32::NAN } else { value };
    f32::from_bits(value.to_bits() | u32::from(bits & 0x80) << 24)
}

/// One lane of any other conversion.
#[inline(always)]
fn one(cvt: Cvt, bits: u64) -> u64 {
    match (cvt.from, cvt.to) {
        (Ty::B(_) | Ty::U(_) | Ty::S(_), Ty::B(_) | Ty::U(_) | Ty::S(_)) => integer(cvt, bits),
        (Ty::B(_) | Ty::U(_) | Ty::S(_), _) => from_integer(cvt, bits),
        (_, Ty::B(_) | Ty::U(_) | Ty::S(_)) => to_integer(cvt, value(cvt.from, bits, cvt.ftz)),
        _ => float(cvt, bits),
    }
}

/// A value of its type, as a number with a sign that fits.
#[inline(always)]
fn extend(ty: Ty, bits: u64) -> i128 {
    let size = 8 * ty.bytes() as u32;
    let shift = 64 - size;
    if matches!(ty, Ty::S(_)) {
        i128::from((bits << shift) as i64 >> shift)
    } else {
        i128::from(bits << shift >> shift)
    }
}

fn range(ty: Ty) -> (i128, i128) {
    let size = 8 * ty.bytes() as u32;
    if matches!(ty, Ty::S(_)) { (-(1 << (size - 1)), (1 << (size - 1)) - 1) } else { (0, (1 << size) - 1) }
}

/// The bits of a type; the register above them gets the sign where there is one.
#[inline(always)]
fn truncate(ty: Ty, value: i128) -> u64 {
    match ty.bytes() {
        8 => value as u64,
        4 => value as u32 as u64,
        2 => value as u16 as u64,
        _ if matches!(ty, Ty::S(_)) => value as i8 as u16 as u64,
        _ => value as u8 as u64,
    }
}

#[inline(always)]
fn integer(cvt: Cvt, bits: u64) -> u64 {
    let value = extend(cvt.from, bits);
    let value = if cvt.sat { value.clamp(range(cvt.to).0, range(cvt.to).1) } else { value };
    truncate(cvt.to, value)
}

fn value(ty: Ty, bits: u64, ftz: bool) -> f64 {
    match ty {
        Ty::F64 => f64::from_bits(bits),
        Ty::F32 if ftz => f64::from(flush(f32::from_bits(bits as u32))),
        Ty::F32 => f64::from(f32::from_bits(bits as u32)),
        Ty::F16 => f64::from(from_f16(bits as u16)),
        _ => f64::from(from_bf16(bits as u16)),
    }
}

fn from_integer(cvt: Cvt, bits: u64) -> u64 {
    let value = extend(cvt.from, bits);
    match cvt.to {
        Ty::F64 if cvt.round == Round::Near => (value as f64).to_bits(),
        Ty::F32 if cvt.round == Round::Near => u64::from((value as f32).to_bits()),
        to => {
            // 64 bits do not fit an f64: what is lost is kept as an odd last place.
            let near = value as f64;
            let rest = value - near as i128;
            let odd = if rest != 0 && near.to_bits() & 1 == 0 {
                f64::from_bits(if (rest > 0) == (near > 0.0) { near.to_bits() + 1 } else { near.to_bits() - 1 })
            } else {
                near
            };
            match to {
                Ty::F32 => u64::from(to_f32(odd, cvt.round).to_bits()),
                Ty::F16 => u64::from(F16.encode(odd, cvt.round, cvt.sat)),
                Ty::Bf16 => u64::from(BF16.encode(odd, cvt.round, cvt.sat)),
                _ => directed64(near, rest, cvt.round).to_bits(),
            }
        }
    }
}

/// An integer that was rounded to the nearest f64, in a direction.
fn directed64(near: f64, rest: i128, round: Round) -> f64 {
    match round {
        Round::Up if rest > 0 => near.next_up(),
        Round::Down if rest < 0 => near.next_down(),
        Round::Zero if rest != 0 && (rest < 0) == (near > 0.0) => {
            if near > 0.0 {
                near.next_down()
            } else {
                near.next_up()
            }
        }
        _ => near,
    }
}

/// Out of range it is the nearest that there is. NaN: zero, or the highest bit where 64 bits are on either side.
fn to_integer(cvt: Cvt, value: f64) -> u64 {
    if value.is_nan() {
        let wide = cvt.from == Ty::F64 || cvt.to.bytes() == 8;
        return if wide { 1 << (8 * cvt.to.bytes() - 1) } else { 0 };
    }
    let (low, high) = range(cvt.to);
    let whole = integral(value, cvt.round);
    // `as` saturates.
    truncate(cvt.to, (whole as i128).clamp(low, high))
}

fn float(cvt: Cvt, bits: u64) -> u64 {
    let value = value(cvt.from, bits, cvt.ftz);
    let value = if cvt.integral { integral(value, cvt.round) } else { value };
    let saturate = |value: f64| if value > 0.0 { value.min(1.0) } else { 0.0 };
    let value = if cvt.sat && matches!(cvt.to, Ty::F32 | Ty::F64 | Ty::F16) { saturate(value) } else { value };
    let value = if cvt.relu && value < 0.0 { 0.0 } else { value };
    match cvt.to {
        Ty::F64 => value.to_bits(),
        Ty::F32 if value.is_nan() => u64::from(NAN32),
        Ty::F32 => {
            let result = if cvt.integral { value as f32 } else { f32::from_bits(F32.encode(value, cvt.round, false)) };
            u64::from((if cvt.ftz { flush(result) } else { result }).to_bits())
        }
        Ty::F16 => u64::from(F16.encode(value, cvt.round, false)),
        _ => u64::from(BF16.encode(value, cvt.round, cvt.sat)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cvt(to: Ty, from: Ty, round: Round) -> Cvt {
        Cvt { to, from, round, integral: false, ftz: false, sat: false, relu: false }
    }

    #[test]
    fn e4m3_is_what_its_format_says() {
        for bits in 0..=255 {
            let (fast, slow) = (f64::from(from_e4m3(bits)), E4M3.decode(u32::from(bits)));
            assert!(fast == slow || fast.is_nan() && slow.is_nan(), "{bits:#x}");
        }
    }

    #[test]
    fn integers_keep_signs_and_saturate() {
        assert_eq!(one(cvt(Ty::S(8), Ty::S(4), Round::Near), 0xffff_fffe), -2_i64 as u64);
        assert_eq!(one(cvt(Ty::U(8), Ty::U(4), Round::Near), 0xffff_fffe), 0xffff_fffe);
        assert_eq!(one(cvt(Ty::U(4), Ty::U(8), Round::Near), 0x1_0000_0005), 5);
        assert_eq!(one(Cvt { sat: true, ..cvt(Ty::S(1), Ty::S(4), Round::Near) }, 300), 127);
        assert_eq!(one(Cvt { sat: true, ..cvt(Ty::U(1), Ty::S(4), Round::Near) }, -5_i32 as u32 as u64), 0);
    }

    #[test]
    fn floats_to_integers_round_saturate_and_know_nan() {
        let to =
            |ty, value: f32, round| one(Cvt { integral: true, ..cvt(ty, Ty::F32, round) }, u64::from(value.to_bits()));
        assert_eq!(to(Ty::S(4), 2.5, Round::Near), 2);
        assert_eq!(to(Ty::S(4), -2.5, Round::Zero) as u32 as i32, -2);
        assert_eq!(to(Ty::S(4), -2.5, Round::Down) as u32 as i32, -3);
        assert_eq!(to(Ty::U(4), -1.0, Round::Zero), 0);
        assert_eq!(to(Ty::S(4), 1e20, Round::Zero), 0x7fff_ffff);
        assert_eq!(to(Ty::U(4), f32::NAN, Round::Zero), 0);
        assert_eq!(to(Ty::S(8), f32::NAN, Round::Zero), 1 << 63);
    }

    #[test]
    fn integers_to_floats_round_once() {
        let to = |value: u64, round| f32::from_bits(one(cvt(Ty::F32, Ty::U(8), round), value) as u32);
        let value = (1 << 60) + (1 << 36) + 1;
        assert_eq!(to(value, Round::Near), (1_u64 << 60) as f32 * (1.0 + f32::EPSILON));
        assert_eq!(to(value, Round::Zero), (1_u64 << 60) as f32);
        assert_eq!(to(value, Round::Up), (1_u64 << 60) as f32 * (1.0 + f32::EPSILON));
    }
}
