//! Transcendental functions that give the same bits on every level: fixed sequences of IEEE operations.

/// Below this the exponential is no normal number.
const LOWEST: f32 = -87.33;
/// Added to a number below 2^22 it leaves the nearest integer, ties to even, in the low bits of the sum.
const ROUND: f32 = 12_582_912.0;

/// The exponential, within 2 units in the last place; 0 below -87.3 (no subnormals), infinite above 88.7.
#[inline(always)]
pub(crate) fn exp(x: f32) -> f32 {
    const HIGHEST: f32 = 88.72;
    let clamped = if x < LOWEST { LOWEST } else { x };
    let clamped = if clamped > HIGHEST { HIGHEST } else { clamped };
    let (shifted, p) = reduce(clamped);
    // Two factors, for 2^128 alone is no f32.
    let half = (shifted.to_bits() as i32).wrapping_sub(ROUND.to_bits() as i32) >> 1;
    let rest = (shifted.to_bits() as i32).wrapping_sub(ROUND.to_bits() as i32) - half;
    let value = p * power(half) * power(rest);
    if x < LOWEST {
        0.0
    } else if x > HIGHEST {
        f32::INFINITY
    } else {
        value
    }
}

/// [`exp`] for numbers that are not positive, as softmax has them: the same accuracy, fewer steps.
#[inline(always)]
pub(crate) fn exp_nonpositive(x: f32) -> f32 {
    let clamped = if x < LOWEST { LOWEST } else { x };
    let (shifted, p) = reduce(clamped);
    // 2^n is normal, for n is -126 at least.
    let value = p * power((shifted.to_bits() as i32).wrapping_sub(ROUND.to_bits() as i32));
    if x < LOWEST { 0.0 } else { value }
}

/// The integer n that is nearest to x / ln 2, in the low bits of the first result, and exp(x - n ln 2).
#[inline(always)]
fn reduce(x: f32) -> (f32, f32) {
    let shifted = x.mul_add(std::f32::consts::LOG2_E, ROUND);
    let n = shifted - ROUND;
    // ln 2 in two parts, the first with trailing zeros, so that the product with a small integer is exact.
    let r = n.mul_add(-0.693_359_4, x);
    let r = n.mul_add(2.121_944_4e-4, r);
    let p = 1.987_569_1e-4f32;
    let p = p.mul_add(r, 1.398_2e-3);
    let p = p.mul_add(r, 8.333_452e-3);
    let p = p.mul_add(r, 4.166_579_6e-2);
    let p = p.mul_add(r, 1.666_666_5e-1);
    let p = p.mul_add(r, 0.5);
    (shifted, p.mul_add(r * r, r) + 1.0)
}

/// 2^n for a normal result.
#[inline(always)]
fn power(n: i32) -> f32 {
    f32::from_bits((n.wrapping_add(127) as u32) << 23)
}

/// x * sigmoid(x).
#[inline(always)]
pub(crate) fn silu(x: f32) -> f32 {
    times_sigmoid(x, x)
}

/// x * sigmoid(y); the exponential is taken of a number that is not positive, where it is cheap and cannot overflow.
#[inline(always)]
fn times_sigmoid(x: f32, y: f32) -> f32 {
    let small = exp_nonpositive(-y.abs());
    let numerator = if y < 0.0 { small } else { 1.0 };
    x * numerator / (1.0 + small)
}

/// The tanh approximation of GELU.
#[inline(always)]
pub(crate) fn gelu_tanh(x: f32) -> f32 {
    // 0.5 * (1 + tanh(u)) is the logistic function of 2u.
    const FACTOR: f32 = 2.0 * 0.797_884_6;
    times_sigmoid(x, FACTOR * x * (0.044_715 * x).mul_add(x, 1.0))
}

/// The hyperbolic tangent, within about 1e-7.
#[inline(always)]
pub(crate) fn tanh(x: f32) -> f32 {
    1.0 - 2.0 / (1.0 + exp(2.0 * x))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn worst(from: f32, to: f32, f: fn(f32) -> f32, reference: fn(f64) -> f64, floor: f64) -> f64 {
        let steps = 200_000;
        let at = |i: u32| from + (to - from) * i as f32 / steps as f32;
        (0..=steps).map(at).fold(0.0, |worst: f64, x| {
            let (found, expected) = (f64::from(f(x)), reference(f64::from(x)));
            worst.max((found - expected).abs() / expected.abs().max(floor))
        })
    }

    #[test]
    fn functions_are_accurate() {
        assert!(worst(-87.0, 88.0, exp, f64::exp, 0.0) < 2.5e-7);
        assert!(worst(-87.0, 0.0, exp_nonpositive, f64::exp, 0.0) < 2.5e-7);
        assert!(worst(-30.0, 30.0, silu, |x| x / (1.0 + (-x).exp()), 1e-6) < 5e-7);
        let gelu = |x: f64| 0.5 * x * (1.0 + (0.797_884_560_802_865_4 * (x + 0.044_715 * x * x * x)).tanh());
        assert!(worst(-8.0, 8.0, gelu_tanh, gelu, 1e-1) < 5e-7);
        assert!(worst(-10.0, 10.0, tanh, f64::tanh, 1.0) < 2e-7);
    }

    #[test]
    fn exponential_at_the_edges() {
        assert_eq!(exp(0.0), 1.0);
        assert_eq!(exp(f32::NEG_INFINITY), 0.0);
        assert_eq!(exp(-1000.0), 0.0);
        assert_eq!(exp_nonpositive(0.0), 1.0);
        assert_eq!(exp_nonpositive(f32::NEG_INFINITY), 0.0);
        assert!(exp_nonpositive(-87.3) > 0.0);
        assert!(exp_nonpositive(f32::NAN).is_nan());
        assert_eq!(exp(f32::INFINITY), f32::INFINITY);
        assert!(exp(88.7).is_finite());
        assert!(exp(f32::NAN).is_nan());
    }
}
