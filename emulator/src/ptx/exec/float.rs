//! Floating point numbers.

use super::registers::Lanes;
use crate::ptx::{
    code::{Float, Float1, Half, Mode, Round},
    floats::{BF16, F16, add_odd, canonical, flush, from_bf16, from_f16, to_bf16, to_f32},
};

#[inline(always)]
pub(super) fn float32(l: &mut Lanes<'_>, op: Float, mode: Mode, r: &[u32; 5], mask: u32) {
    let f = f32::from_bits;
    if mode != Mode::PLAIN && !matches!(op, Float::Copysign) {
        return l.two32(r, mask, |a, b| with_mode(op, mode, f(a), f(b)));
    }
    match op {
        Float::Add => l.two32(r, mask, |a, b| canonical(f(a) + f(b))),
        Float::Sub => l.two32(r, mask, |a, b| canonical(f(a) - f(b))),
        Float::Mul => l.two32(r, mask, |a, b| canonical(f(a) * f(b))),
        Float::Div => l.two32(r, mask, |a, b| canonical(f(a) / f(b))),
        Float::DivApprox => l.two32(r, mask, |a, b| canonical(divide(f(a), f(b)))),
        Float::Min | Float::MinNan => l.two32(r, mask, |a, b| least(a, b, op == Float::MinNan)),
        Float::Max | Float::MaxNan => l.two32(r, mask, |a, b| greatest(a, b, op == Float::MaxNan)),
        // The sign of the first, the size of the second.
        Float::Copysign => l.two32(r, mask, |a, b| a & 0x8000_0000 | b & 0x7fff_ffff),
    }
}

/// Minimum: a number before a NaN, or the NaN where it is asked for; -0 is below +0.
#[inline(always)]
fn least(a: u32, b: u32, nan: bool) -> u32 {
    let (x, y) = (f32::from_bits(a), f32::from_bits(b));
    let number = if x < y {
        a
    } else if x == y {
        a | b
    } else {
        b
    };
    let number = if y.is_nan() { a } else { number };
    let number = if nan && (x.is_nan() || y.is_nan()) { u32::MAX } else { number };
    canonical(f32::from_bits(number))
}

#[inline(always)]
fn greatest(a: u32, b: u32, nan: bool) -> u32 {
    let (x, y) = (f32::from_bits(a), f32::from_bits(b));
    let number = if x > y {
        a
    } else if x == y {
        a & b
    } else {
        b
    };
    let number = if y.is_nan() { a } else { number };
    let number = if nan && (x.is_nan() || y.is_nan()) { u32::MAX } else { number };
    canonical(f32::from_bits(number))
}

/// `div.approx`: divisors above 2^126 make zeros of finite numbers, and NaN of infinite ones.
#[inline(always)]
fn divide(a: f32, b: f32) -> f32 {
    let large = b.abs() > 8.507_059e37 && b.is_finite();
    if large { if a.is_infinite() { f32::NAN } else { a * 0.0 * b.signum() } } else { a / b }
}

fn with_mode(op: Float, mode: Mode, a: f32, b: f32) -> u32 {
    let (a, b) = if mode.ftz { (flush(a), flush(b)) } else { (a, b) };
    let (x, y) = (f64::from(a), f64::from(b));
    let directed = |exact: f64| {
        let zero = exact == 0.0 && mode.round == Round::Down && a != 0.0;
        if zero && matches!(op, Float::Add | Float::Sub) { -0.0 } else { to_f32(exact, mode.round) }
    };
    let result = match op {
        Float::Min | Float::MinNan => f32::from_bits(least(a.to_bits(), b.to_bits(), op == Float::MinNan)),
        Float::Max | Float::MaxNan => f32::from_bits(greatest(a.to_bits(), b.to_bits(), op == Float::MaxNan)),
        Float::Copysign => b.copysign(a),
        Float::DivApprox => divide(a, b),
        Float::Add => directed(add_odd(x, y)),
        Float::Sub => directed(add_odd(x, -y)),
        Float::Mul => directed(x * y),
        Float::Div if mode.round == Round::Near => a / b,
        Float::Div => directed(divide_odd(x, y)),
    };
    finish(result, mode)
}

/// A quotient of two f32, rounded to odd.
fn divide_odd(a: f64, b: f64) -> f64 {
    let quotient = a / b;
    let rest = (-quotient).mul_add(b, a);
    to_odd(quotient, rest != 0.0, (rest > 0.0) == (b > 0.0))
}

/// Towards the exact value, which is above or below, to the odd neighbour.
fn to_odd(value: f64, inexact: bool, above: bool) -> f64 {
    if !value.is_finite() || !inexact || value.to_bits() & 1 == 1 {
        return value;
    }
    let away = above == (value > 0.0);
    f64::from_bits(if away { value.to_bits() + 1 } else { value.to_bits() - 1 })
}

fn finish(value: f32, mode: Mode) -> u32 {
    let value = if mode.ftz { flush(value) } else { value };
    if mode.sat {
        return if value > 0.0 { value.min(1.0).to_bits() } else { 0 };
    }
    canonical(value)
}

pub(super) fn float64(l: &mut Lanes<'_>, op: Float, r: &[u32; 5], mask: u32) {
    let f = f64::from_bits;
    match op {
        Float::Add => l.two64(r, mask, |a, b| (f(a) + f(b)).to_bits()),
        Float::Sub => l.two64(r, mask, |a, b| (f(a) - f(b)).to_bits()),
        Float::Mul => l.two64(r, mask, |a, b| (f(a) * f(b)).to_bits()),
        Float::Div | Float::DivApprox => l.two64(r, mask, |a, b| (f(a) / f(b)).to_bits()),
        Float::Copysign => l.two64(r, mask, |a, b| f(b).copysign(f(a)).to_bits()),
        Float::Min | Float::MinNan => l.two64(r, mask, |a, b| extreme(f(a), f(b), f(a) < f(b), a | b)),
        Float::Max | Float::MaxNan => l.two64(r, mask, |a, b| extreme(f(a), f(b), f(a) > f(b), a & b)),
    }
}

fn extreme(a: f64, b: f64, first: bool, same: u64) -> u64 {
    if a == b {
        same
    } else if first || b.is_nan() {
        a.to_bits()
    } else {
        b.to_bits()
    }
}

#[inline(always)]
pub(super) fn fma32(l: &mut Lanes<'_>, mode: Mode, r: &[u32; 5], mask: u32) {
    let f = f32::from_bits;
    if mode == Mode::PLAIN {
        l.three32(r, mask, |a, b, c| canonical(f(a).mul_add(f(b), f(c))));
    } else {
        l.three32(r, mask, |a, b, c| fma_with_mode(mode, f(a), f(b), f(c)));
    }
}

fn fma_with_mode(mode: Mode, a: f32, b: f32, c: f32) -> u32 {
    let (a, b, c) = if mode.ftz { (flush(a), flush(b), flush(c)) } else { (a, b, c) };
    let result = match mode.round {
        Round::Near => a.mul_add(b, c),
        round => {
            let exact = add_odd(f64::from(a) * f64::from(b), f64::from(c));
            let zero = exact == 0.0 && round == Round::Down && c != 0.0;
            if zero { -0.0 } else { to_f32(exact, round) }
        }
    };
    finish(result, mode)
}

#[inline(always)]
pub(super) fn fma64(l: &mut Lanes<'_>, r: &[u32; 5], mask: u32) {
    let f = f64::from_bits;
    l.three64(r, mask, |a, b, c| f(a).mul_add(f(b), f(c)).to_bits());
}

/// Functions of one number. The approximate ones are computed in f64 and rounded: well within what PTX promises.
pub(super) fn one32(l: &mut Lanes<'_>, op: Float1, mode: Mode, r: &[u32; 5], mask: u32) {
    let f = |a: u32| if mode.ftz { flush(f32::from_bits(a)) } else { f32::from_bits(a) };
    let wide = |a: u32| f64::from(f(a));
    match op {
        Float1::Neg => l.map32(r[0], r[1], mask, |a| f(a).to_bits() ^ 0x8000_0000),
        Float1::Abs => l.map32(r[0], r[1], mask, |a| f(a).to_bits() & 0x7fff_ffff),
        Float1::Rcp => l.map32(r[0], r[1], mask, |a| finish(1.0 / f(a), mode)),
        Float1::RcpApprox => l.map32(r[0], r[1], mask, |a| finish((1.0 / wide(a)) as f32, mode)),
        Float1::Sqrt => l.map32(r[0], r[1], mask, |a| finish(f(a).sqrt(), mode)),
        Float1::SqrtApprox => l.map32(r[0], r[1], mask, |a| finish(wide(a).sqrt() as f32, mode)),
        Float1::RsqrtApprox => l.map32(r[0], r[1], mask, |a| finish((1.0 / wide(a).sqrt()) as f32, mode)),
        Float1::Ex2 => l.map32(r[0], r[1], mask, |a| finish(wide(a).exp2() as f32, mode)),
        Float1::Lg2 => l.map32(r[0], r[1], mask, |a| finish(wide(a).log2() as f32, mode)),
        Float1::Sin => l.map32(r[0], r[1], mask, |a| finish(wide(a).sin() as f32, mode)),
        Float1::Cos => l.map32(r[0], r[1], mask, |a| finish(wide(a).cos() as f32, mode)),
        Float1::Tanh => l.map32(r[0], r[1], mask, |a| finish(wide(a).tanh() as f32, mode)),
    }
}

pub(super) fn one64(l: &mut Lanes<'_>, op: Float1, r: &[u32; 5], mask: u32) {
    let f = f64::from_bits;
    l.map64(r[0], r[1], mask, |a| match op {
        Float1::Neg => a ^ 1 << 63,
        Float1::Abs => a & !(1 << 63),
        Float1::Rcp | Float1::RcpApprox => (1.0 / f(a)).to_bits(),
        Float1::Sqrt | Float1::SqrtApprox => f(a).sqrt().to_bits(),
        Float1::RsqrtApprox => (1.0 / f(a).sqrt()).to_bits(),
        Float1::Ex2 => f(a).exp2().to_bits(),
        Float1::Lg2 => f(a).log2().to_bits(),
        Float1::Sin => f(a).sin().to_bits(),
        Float1::Cos => f(a).cos().to_bits(),
        Float1::Tanh => f(a).tanh().to_bits(),
    });
}

/// f32 to f16, to the nearest.
#[inline(always)]
pub(super) fn to_f16(value: f32) -> u16 {
    let bits = value.to_bits();
    let (sign, size) = (bits >> 16 & 0x8000, bits & 0x7fff_ffff);
    let normal = size.wrapping_add(0xc800_0fff).wrapping_add(size >> 13 & 1) >> 13;
    // Half has its last place where subnormal halves have theirs: the addition rounds.
    let small = (f32::from_bits(size) + 0.5).to_bits().wrapping_sub(0x3f00_0000);
    let finite = if size < 0x3880_0000 { small } else { normal };
    let number = if size >= 0x4780_0000 { 0x7c00 } else { finite };
    if size > 0x7f80_0000 { 0x7fff } else { (sign | number) as u16 }
}

#[inline(always)]
fn halves(a: u32, b: u32, count: u8, f: impl Fn(u16, u16) -> u16) -> u32 {
    let low = u32::from(f(a as u16, b as u16));
    if count == 1 { low } else { low | u32::from(f((a >> 16) as u16, (b >> 16) as u16)) << 16 }
}

/// Halves. Sums and products of them in f32 are so near that rounding them again is as if there had been one rounding.
#[inline(always)]
pub(super) fn half(l: &mut Lanes<'_>, op: Float, half: Half, count: u8, r: &[u32; 5], mask: u32) {
    let f = |x: f32, y: f32| match op {
        Float::Add => x + y,
        Float::Sub => x - y,
        Float::Mul => x * y,
        Float::Div | Float::DivApprox => x / y,
        Float::Min | Float::MinNan => f32::from_bits(least(x.to_bits(), y.to_bits(), op == Float::MinNan)),
        Float::Max | Float::MaxNan => f32::from_bits(greatest(x.to_bits(), y.to_bits(), op == Float::MaxNan)),
        Float::Copysign => y.copysign(x),
    };
    match half {
        Half::Bf16 => l.two32(r, mask, |a, b| halves(a, b, count, |x, y| to_bf16(f(from_bf16(x), from_bf16(y))))),
        Half::F16 => l.two32(r, mask, |a, b| halves(a, b, count, |x, y| to_f16(f(from_f16(x), from_f16(y))))),
    }
}

pub(super) fn half_fma(l: &mut Lanes<'_>, half: Half, count: u8, r: &[u32; 5], mask: u32) {
    let format = if half == Half::F16 { F16 } else { BF16 };
    l.three32(r, mask, |a, b, c| {
        (0..u32::from(count)).fold(0, |all, at| {
            let part = |bits: u32| format.decode(bits >> (16 * at) & 0xffff);
            let exact = add_odd(part(a) * part(b), part(c));
            all | format.encode(exact, Round::Near, false) << (16 * at)
        })
    });
}

pub(super) fn half_one(l: &mut Lanes<'_>, op: Float1, half: Half, count: u8, r: &[u32; 5], mask: u32) {
    let format = if half == Half::F16 { F16 } else { BF16 };
    let places = if count == 2 { 0x8000_8000 } else { 0x8000 };
    l.map32(r[0], r[1], mask, |a| match op {
        Float1::Neg => a ^ places,
        Float1::Abs => a & !places,
        _ => (0..u32::from(count)).fold(0, |all, at| {
            let value = format.decode(a >> (16 * at) & 0xffff);
            let value = if op == Float1::Ex2 { value.exp2() } else { value.tanh() };
            all | format.encode(value, Round::Near, false) << (16 * at)
        }),
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_are_made_as_the_format_says() {
        for bits in (0..=u32::MAX).step_by(4093) {
            let value = f32::from_bits(bits);
            assert_eq!(
                u32::from(to_f16(value)),
                F16.encode(f64::from(value), Round::Near, false) & 0xffff,
                "{bits:#x}"
            );
        }
    }

    #[test]
    fn directed_sums_products_and_quotients_enclose_the_exact_one() {
        let mode = |round| Mode { round, ..Mode::PLAIN };
        let mut seed = 1_u64;
        for _ in 0..20_000 {
            let mut next = || {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                f32::from_bits((seed >> 33) as u32 & 0x80ff_ffff | 0x3f00_0000)
            };
            let (a, b) = (next(), next());
            for op in [Float::Add, Float::Mul, Float::Div] {
                let at = |round| f32::from_bits(with_mode(op, mode(round), a, b));
                let (down, up, zero, near) = (at(Round::Down), at(Round::Up), at(Round::Zero), at(Round::Near));
                assert!(down <= near && near <= up, "{op:?} {a} {b}");
                assert!(down == up || down.next_up() == up, "{op:?} {a} {b}");
                assert_eq!(zero, if near > 0.0 { down } else { up }, "{op:?} {a} {b}");
            }
        }
    }

    #[test]
    fn minima_prefer_numbers_and_know_signs_of_zeros() {
        let bits = f32::to_bits;
        assert_eq!(least(bits(f32::NAN), bits(2.0), false), bits(2.0));
        assert_eq!(least(bits(2.0), bits(f32::NAN), false), bits(2.0));
        assert_eq!(least(bits(2.0), bits(f32::NAN), true), 0x7fff_ffff);
        assert_eq!(greatest(0xffff_ffff, 0x7fc0_0000, false), 0x7fff_ffff);
        assert_eq!(least(bits(0.0), bits(-0.0), false), bits(-0.0));
        assert_eq!(greatest(bits(-0.0), bits(0.0), false), bits(0.0));
    }

    #[test]
    fn approximate_division_by_huge_numbers_is_zero() {
        assert_eq!(divide(3.0, 2e38), 0.0);
        assert!(divide(f32::INFINITY, 2e38).is_nan());
        assert_eq!(divide(3.0, 2.0), 1.5);
        assert_eq!(divide(3.0, f32::INFINITY), 0.0);
    }
}
