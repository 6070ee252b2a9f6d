//! Formats of floating point numbers, and rounding in every direction.

use super::code::Round;

/// The NaN that f32 instructions make.
pub(crate) const NAN32: u32 = 0x7fff_ffff;

/// A small format: sign, exponent, mantissa.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Format {
    exponent: u32,
    mantissa: u32,
    /// The largest finite number, without its sign.
    largest: u32,
    infinity: Option<u32>,
    nan: Option<u32>,
}

pub(crate) const F16: Format =
    Format { exponent: 5, mantissa: 10, largest: 0x7bff, infinity: Some(0x7c00), nan: Some(0x7fff) };
pub(crate) const BF16: Format =
    Format { exponent: 8, mantissa: 7, largest: 0x7f7f, infinity: Some(0x7f80), nan: Some(0x7fff) };
pub(crate) const F32: Format =
    Format { exponent: 8, mantissa: 23, largest: 0x7f7f_ffff, infinity: Some(0x7f80_0000), nan: Some(NAN32) };
pub(crate) const E5M2: Format =
    Format { exponent: 5, mantissa: 2, largest: 0x7b, infinity: Some(0x7c), nan: Some(0x7f) };
pub(crate) const E4M3: Format = Format { exponent: 4, mantissa: 3, largest: 0x7e, infinity: None, nan: Some(0x7f) };
pub(crate) const E2M1: Format = Format { exponent: 2, mantissa: 1, largest: 7, infinity: None, nan: None };

impl Format {
    fn bias(self) -> i32 {
        (1 << (self.exponent - 1)) - 1
    }

    fn sign(self) -> u32 {
        1 << (self.exponent + self.mantissa)
    }

    /// The value of these bits.
    pub(crate) fn decode(self, bits: u32) -> f64 {
        let magnitude = bits & (self.sign() - 1);
        let sign = if bits & self.sign() != 0 { -1.0 } else { 1.0 };
        if magnitude > self.largest {
            return if Some(magnitude) == self.infinity { sign * f64::INFINITY } else { f64::NAN };
        }
        let exponent = (magnitude >> self.mantissa) as i32;
        let mantissa = magnitude & ((1 << self.mantissa) - 1);
        let (whole, exponent) = if exponent == 0 { (mantissa, 1) } else { (mantissa | 1 << self.mantissa, exponent) };
        sign * f64::from(whole) * power(exponent - self.bias() - self.mantissa as i32)
    }

    /// The bits of the number nearest in the direction. What is too large becomes the largest (`saturate`) or infinity.
    pub(crate) fn encode(self, value: f64, round: Round, saturate: bool) -> u32 {
        if value.is_nan() {
            return self.nan.unwrap_or(self.largest);
        }
        let negative = value.is_sign_negative();
        let sign = if negative { self.sign() } else { 0 };
        let magnitude = value.abs();
        let up = matches!((round, negative), (Round::Up, false) | (Round::Down, true));
        let over = if saturate || !(round == Round::Near || up) {
            self.largest
        } else {
            self.infinity.or(self.nan).unwrap_or(self.largest)
        };
        if magnitude == f64::INFINITY {
            return sign | if saturate { self.largest } else { self.infinity.or(self.nan).unwrap_or(self.largest) };
        }
        let smallest = 1 - self.bias();
        let exponent = ((magnitude.to_bits() >> 52) as i32 - 1023).max(smallest);
        if exponent - smallest > 1 << self.exponent {
            return sign | over;
        }
        // In units of the last place: exact, a multiplication with a power of two.
        let units = scale(magnitude, self.mantissa as i32 - exponent);
        let (whole, rest) = (units.floor(), units - units.floor());
        let away = match round {
            Round::Near => rest > 0.5 || rest == 0.5 && whole % 2.0 == 1.0,
            Round::Zero => false,
            Round::Up | Round::Down => up && rest > 0.0,
        };
        let whole = whole as u32 + u32::from(away);
        // A mantissa that overflows carries into the exponent, as it should.
        let bits = (((exponent - smallest) as u32) << self.mantissa) + whole;
        sign | if bits > self.largest { over } else { bits }
    }
}

/// Two to a power in the range of f64's normal numbers.
fn power(exponent: i32) -> f64 {
    f64::from_bits(((exponent + 1023).clamp(1, 2046) as u64) << 52)
}

/// Times a power of two, exact where the result is a normal number.
fn scale(value: f64, exponent: i32) -> f64 {
    let half = exponent / 2;
    value * power(half) * power(exponent - half)
}

/// An f16.
#[inline(always)]
pub(crate) fn from_f16(bits: u16) -> f32 {
    let bits = u32::from(bits);
    // The exponent moves by a multiplication, which makes numbers of subnormals.
    let scaled = f32::from_bits((bits & 0x7fff) << 13) * f32::from_bits(0x7780_0000);
    let special = if bits & 0x7c00 == 0x7c00 { 0x7f80_0000 } else { 0 };
    f32::from_bits(scaled.to_bits() | special | (bits & 0x8000) << 16)
}

/// A bf16.
#[inline(always)]
pub(crate) fn from_bf16(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

/// To bf16, to the nearest.
#[inline(always)]
pub(crate) fn to_bf16(value: f32) -> u16 {
    let bits = value.to_bits();
    let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16;
    if value.is_nan() { 0x7fff } else { rounded as u16 }
}

/// A number of subnormal size as a zero of its sign.
#[inline(always)]
pub(crate) fn flush(value: f32) -> f32 {
    let bits = value.to_bits();
    if bits & 0x7f80_0000 == 0 { f32::from_bits(bits & 0x8000_0000) } else { value }
}

/// The NaN of f32 instructions for any NaN.
#[inline(always)]
pub(crate) fn canonical(value: f32) -> u32 {
    if value.is_nan() { NAN32 } else { value.to_bits() }
}

/// a + b, rounded to odd: a second rounding to fewer bits is then as if there had been one.
pub(crate) fn add_odd(a: f64, b: f64) -> f64 {
    let sum = a + b;
    if !sum.is_finite() {
        return sum;
    }
    let part = sum - a;
    let rest = (a - (sum - part)) + (b - part);
    if rest == 0.0 || sum.to_bits() & 1 == 1 {
        return sum;
    }
    // Towards the exact sum, to the neighbour, which is odd.
    let away = (rest > 0.0) == (sum > 0.0);
    f64::from_bits(if away { sum.to_bits() + 1 } else { sum.to_bits() - 1 })
}

/// To f32 in a direction.
pub(crate) fn to_f32(value: f64, round: Round) -> f32 {
    match round {
        Round::Near => value as f32,
        _ => f32::from_bits(F32.encode(value, round, false)),
    }
}

/// To the nearest whole number in a direction.
pub(crate) fn integral(value: f64, round: Round) -> f64 {
    match round {
        Round::Near => value.round_ties_even(),
        Round::Zero => value.trunc(),
        Round::Down => value.floor(),
        Round::Up => value.ceil(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_small_number_survives_both_ways() {
        for (format, bits) in [(E4M3, 8), (E5M2, 8), (E2M1, 4), (F16, 16), (BF16, 16)] {
            for number in 0..1_u32 << bits {
                let value = format.decode(number);
                if !value.is_nan() {
                    assert_eq!(format.encode(value, Round::Near, false), number, "{format:?} {number:#x}");
                }
            }
        }
    }

    #[test]
    fn known_values() {
        assert_eq!(E4M3.decode(0x7e), 448.0);
        assert_eq!(E4M3.decode(0x01), 1.0 / 512.0);
        assert_eq!((0..8).map(|it| E2M1.decode(it)).collect::<Vec<_>>(), [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]);
        assert_eq!(E5M2.decode(0x7b), 57344.0);
        assert!(E4M3.decode(0xff).is_nan() && E5M2.decode(0x7d).is_nan());
        assert_eq!(E4M3.encode(1e9, Round::Near, true), 0x7e);
        assert_eq!(E4M3.encode(1e9, Round::Near, false), 0x7f);
        assert_eq!(E2M1.encode(-9.0, Round::Near, true), 0xf);
        // 464 is half way between 448 and 480, which is not there.
        assert_eq!(E4M3.encode(464.0, Round::Near, false), 0x7e);
    }

    #[test]
    fn halves_and_f32_as_the_processor_rounds_them() {
        for bits in (0..=u32::MAX).step_by(65_521) {
            let value = f32::from_bits(bits);
            if value.is_nan() {
                continue;
            }
            assert_eq!(u32::from(to_bf16(value)), BF16.encode(f64::from(value), Round::Near, false), "{bits:#x}");
            let wide = f64::from(value) * (1.0 + 1e-9);
            assert_eq!(F32.encode(wide, Round::Near, false), (wide as f32).to_bits(), "{bits:#x}");
        }
        for bits in 0..=u16::MAX {
            let (fast, slow) = (from_f16(bits), F16.decode(u32::from(bits)));
            assert!(f64::from(fast) == slow || fast.is_nan() && slow.is_nan(), "{bits:#x}");
        }
    }

    #[test]
    fn directions() {
        let third = 1.0 / 3.0;
        let down = to_f32(third, Round::Down);
        let up = to_f32(third, Round::Up);
        assert!(f64::from(down) < third && f64::from(up) > third && up.to_bits() == down.to_bits() + 1);
        assert_eq!(to_f32(-third, Round::Zero), -down);
        assert_eq!(to_f32(-third, Round::Up), -down);
        assert_eq!(to_f32(1e300, Round::Zero), f32::MAX);
        assert_eq!(to_f32(1e300, Round::Up), f32::INFINITY);
        // 1 + 2^-60 rounds to 1 in f64; to odd it stays above, and so rounds up.
        let odd = add_odd(1.0, 2_f64.powi(-60));
        assert_eq!(to_f32(odd, Round::Up), 1.0 + f32::EPSILON);
        assert_eq!(to_f32(add_odd(1.0, -(2_f64.powi(-60))), Round::Down), 1.0 - f32::EPSILON / 2.0);
    }
}
