//! IEEE 754 half precision, in both directions.

/// The value of a half.
pub fn to_f32(bits: u16) -> f32 {
    let sign = if bits >> 15 == 1 { -1.0 } else { 1.0 };
    let exponent = i32::from(bits >> 10 & 0x1f);
    let fraction = f32::from(bits & 0x3ff);
    sign * match exponent {
        0 => fraction * 2f32.powi(-24),
        0x1f if fraction == 0.0 => f32::INFINITY,
        0x1f => f32::NAN,
        _ => (1024.0 + fraction) * 2f32.powi(exponent - 25),
    }
}

/// A finite number rounded to the nearest half, ties to even, as an f32 again; beyond the largest half it is infinite.
pub fn round(x: f32) -> f32 {
    let magnitude = x.abs();
    // The distance of neighbouring halves at this magnitude; below the normal ones it stays 2^-24.
    let exponent = ((magnitude.to_bits() >> 23) as i32 - 127).max(-14);
    let step = 2f32.powi(exponent - 10);
    let rounded = (magnitude / step).round_ties_even() * step;
    let rounded = if rounded > 65504.0 { f32::INFINITY } else { rounded };
    rounded.copysign(x)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_half_rounds_to_itself_and_what_lies_between_goes_to_the_even_one() {
        for bits in 0..0x7c00u16 {
            let (value, next) = (to_f32(bits), to_f32(bits + 1));
            assert_eq!(round(value), value);
            assert_eq!(round(-value), -value);
            if bits < 0x7bff {
                let even = if bits & 1 == 0 { value } else { next };
                assert_eq!(round(value + (next - value) / 2.0), even, "{bits:#x}");
                assert_eq!(round(value + (next - value) * 0.75), next);
            }
        }
        assert_eq!(round(65520.0), f32::INFINITY);
    }
}
