//! Half-precision conversions in plain Rust, bit for bit what F16C does.

/// The value of an IEEE binary16.
#[inline(always)]
pub fn f16_to_f32(bits: u16) -> f32 {
    let sign = u32::from(bits & 0x8000) << 16;
    let rest = u32::from(bits & 0x7fff);
    if rest >= 0x7c00 {
        // Infinity, or a NaN that the conversion makes quiet.
        let quiet = if rest > 0x7c00 { 0x0040_0000 } else { 0 };
        return f32::from_bits(sign | 0x7f80_0000 | (rest & 0x3ff) << 13 | quiet);
    }
    // Shifted into place the exponent is 112 too small; multiplying by 2^112 corrects it and normalises subnormals.
    let magnitude = f32::from_bits(rest << 13) * f32::from_bits((112 + 127) << 23);
    f32::from_bits(sign | magnitude.to_bits())
}

/// The nearest IEEE binary16, ties to even; too large becomes infinity.
#[inline(always)]
pub fn f32_to_f16(value: f32) -> u16 {
    let bits = value.to_bits();
    let sign = (bits >> 16 & 0x8000) as u16;
    let rest = bits & 0x7fff_ffff;
    if rest > 0x7f80_0000 {
        return sign | 0x7e00 | (rest >> 13 & 0x1ff) as u16;
    }
    if rest >= 0x477f_f000 {
        return sign | 0x7c00;
    }
    if rest < 0x3880_0000 {
        // A subnormal result: adding 0.5 leaves its 10 bits, rounded by the addition itself, at the bottom.
        let shifted = f32::from_bits(rest) + 0.5;
        return sign | (shifted.to_bits() - 0x3f00_0000) as u16;
    }
    let odd = rest >> 13 & 1;
    let rounded = rest + 0xfff + odd;
    sign | ((rounded >> 13) - (112 << 10)) as u16
}

/// The value of a ue4m3, an E4M3 without its sign.
#[inline(always)]
pub(crate) fn ue4m3_to_f32(bits: u8) -> f32 {
    // Shifted into place the exponent is 120 too small; multiplying by 2^120 corrects it and normalises subnormals.
    f32::from_bits(u32::from(bits & 0x7f) << 20) * f32::from_bits((120 + 127) << 23)
}

/// The value of a bfloat16.
#[inline(always)]
pub fn bf16_to_f32(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

/// The nearest bfloat16, ties to even.
#[inline(always)]
pub fn f32_to_bf16(value: f32) -> u16 {
    let bits = value.to_bits();
    if value.is_nan() {
        return (bits >> 16) as u16 | 0x40;
    }
    ((bits + 0x7fff + (bits >> 16 & 1)) >> 16) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_f16_survives_the_round_trip() {
        for bits in 0..=u16::MAX {
            let value = f16_to_f32(bits);
            if value.is_nan() {
                assert!(f16_to_f32(f32_to_f16(value)).is_nan());
            } else {
                assert_eq!(f32_to_f16(value), bits, "{value}");
            }
        }
    }

    #[test]
    fn rounding_to_f16_is_to_nearest_even() {
        // Between neighbours: below the midpoint, at it, and above it, for every finite pair.
        for bits in 0..0x7bffu16 {
            let (low, high) = (f64::from(f16_to_f32(bits)), f64::from(f16_to_f32(bits + 1)));
            let middle = ((low + high) / 2.0) as f32;
            assert_eq!(f64::from(middle), (low + high) / 2.0);
            assert_eq!(f32_to_f16(middle), if bits & 1 == 0 { bits } else { bits + 1 });
            assert_eq!(f32_to_f16(f32::from_bits(middle.to_bits() - 1)), bits);
            assert_eq!(f32_to_f16(f32::from_bits(middle.to_bits() + 1)), bits + 1);
        }
        assert_eq!(f32_to_f16(65519.0), 0x7bff);
        assert_eq!(f32_to_f16(65520.0), 0x7c00);
        assert_eq!(f32_to_f16(-1e9), 0xfc00);
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn conversions_agree_with_the_processor() {
        use std::arch::x86_64::*;

        #[target_feature(enable = "f16c,avx")]
        fn both(value: f32) -> (u16, u32) {
            let half = _mm_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(_mm_set1_ps(value));
            let bits = _mm_extract_epi16::<0>(half) as u16;
            (bits, _mm_extract_ps::<0>(_mm_cvtph_ps(half)) as u32)
        }

        if !is_x86_feature_detected!("f16c") {
            return;
        }
        let mut bits = 0u32;
        loop {
            let value = f32::from_bits(bits);
            // SAFETY: the feature was detected above.
            let (half, back) = unsafe { both(value) };
            assert_eq!(f32_to_f16(value), half, "{bits:#x}");
            assert_eq!(f16_to_f32(half).to_bits(), back, "{half:#x}");
            match bits.checked_add(1009) {
                Some(next) => bits = next,
                None => break,
            }
        }
    }

    #[test]
    fn bf16_rounds_to_nearest_even() {
        assert_eq!(f32_to_bf16(1.0), 0x3f80);
        assert_eq!(f32_to_bf16(f32::from_bits(0x3f80_8000)), 0x3f80);
        assert_eq!(f32_to_bf16(f32::from_bits(0x3f81_8000)), 0x3f82);
        assert_eq!(f32_to_bf16(f32::from_bits(0x3f80_8001)), 0x3f81);
        assert!(bf16_to_f32(f32_to_bf16(f32::NAN)).is_nan());
    }
}
