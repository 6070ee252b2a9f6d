//! Elementwise operations.

use crate::error::{KernelError, expect};
use crate::isa::{Isa, multiversion};
use crate::math;
use crate::threads::{Shares, Threads, spread};

/// Elements that a thread takes at a time.
const GRAIN: usize = 8192;

/// The activation function of a gated feed-forward.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Activation {
    /// x * sigmoid(x): Llama.
    Silu,
    /// GELU, tanh approximation: Gemma.
    GeluTanh,
}

/// `gate = act(gate) * up`, elementwise.
///
/// # Errors
///
/// [`KernelError::Shape`] where the lengths differ.
pub fn gated(
    threads: &Threads,
    isa: Isa,
    activation: Activation,
    gate: &mut [f32],
    up: &[f32],
) -> Result<(), KernelError> {
    expect("up", gate.len(), up.len())?;
    let shares = Shares::new(gate);
    spread(threads, up.len(), GRAIN, true, &|range| {
        // SAFETY: ranges do not overlap.
        let gate = unsafe { shares.part(range.start, range.len()) };
        match activation {
            Activation::Silu => gate_silu(isa, gate, &up[range]),
            Activation::GeluTanh => gate_gelu_tanh(isa, gate, &up[range]),
        }
    });
    Ok(())
}

/// [`gated`] on a tile of a matmul.
pub(crate) fn gate_lanes(isa: Isa, activation: Activation, gate: &mut [[f32; 16]], up: &[[f32; 16]]) {
    let (gate, up) = (gate.as_flattened_mut(), up.as_flattened());
    match activation {
        Activation::Silu => gate_silu(isa, gate, up),
        Activation::GeluTanh => gate_gelu_tanh(isa, gate, up),
    }
}

multiversion! {
    fn gate_silu(gate: &mut [f32], up: &[f32]) {
        for (gate, up) in gate.iter_mut().zip(up) {
            *gate = math::silu(*gate) * up;
        }
    }
}

multiversion! {
    fn gate_gelu_tanh(gate: &mut [f32], up: &[f32]) {
        for (gate, up) in gate.iter_mut().zip(up) {
            *gate = math::gelu_tanh(*gate) * up;
        }
    }
}

/// `x += y`, elementwise.
///
/// # Errors
///
/// [`KernelError::Shape`] where the lengths differ.
pub fn add(isa: Isa, x: &mut [f32], y: &[f32]) -> Result<(), KernelError> {
    expect("addend", x.len(), y.len())?;
    add_body(isa, x, y);
    Ok(())
}

multiversion! {
    fn add_body(x: &mut [f32], y: &[f32]) {
        for (x, y) in x.iter_mut().zip(y) {
            *x += y;
        }
    }
}

multiversion! {
    /// `x *= factor`, elementwise.
    pub fn scale(x: &mut [f32], factor: f32) {
        for x in x {
            *x *= factor;
        }
    }
}

/// `x = cap * tanh(x / cap)`, elementwise.
pub fn softcap(threads: &Threads, isa: Isa, x: &mut [f32], cap: f32) {
    let len = x.len();
    let shares = Shares::new(x);
    spread(threads, len, GRAIN, true, &|range| {
        // SAFETY: ranges do not overlap.
        softcap_body(isa, unsafe { shares.part(range.start, range.len()) }, cap);
    });
}

multiversion! {
    fn softcap_body(x: &mut [f32], cap: f32) {
        for x in x {
            *x = cap * math::tanh(*x / cap);
        }
    }
}

/// The index of the largest element, the first of equals; NaNs lose. `None` for an empty slice or one of NaNs only.
pub fn argmax(isa: Isa, x: &[f32]) -> Option<usize> {
    let largest = largest(isa, x);
    // Looking for the value again costs less than carrying indices along.
    x.iter().position(|x| *x == largest)
}

multiversion! {
    fn largest(x: &[f32]) -> f32 {
        let mut lanes = [f32::NEG_INFINITY; 64];
        let (chunks, rest) = x.as_chunks::<64>();
        for chunk in chunks {
            for (lane, x) in lanes.iter_mut().zip(chunk) {
                *lane = if *x > *lane { *x } else { *lane };
            }
        }
        lanes.iter().chain(rest).fold(f32::NEG_INFINITY, |largest, x| if *x > largest { *x } else { largest })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn argmax_takes_the_first_and_ignores_nan() {
        for isa in Isa::available() {
            let mut x = vec![0.0f32; 1000];
            assert_eq!(argmax(isa, &x), Some(0));
            (x[700], x[701], x[3]) = (2.0, 2.0, f32::NAN);
            assert_eq!(argmax(isa, &x), Some(700));
            assert_eq!(argmax(isa, &[]), None);
            assert_eq!(argmax(isa, &[f32::NAN]), None);
            assert_eq!(argmax(isa, &[f32::NAN, f32::NEG_INFINITY]), Some(1));
        }
    }

    #[test]
    fn levels_agree_bit_for_bit() {
        let threads = Threads::new(2).unwrap();
        let x: Vec<f32> = (0..20_000).map(|i| (i as f32 * 0.7).sin() * 20.0).collect();
        let y: Vec<f32> = x.iter().rev().copied().collect();
        let all = |isa: Isa| {
            let mut outputs = Vec::new();
            for activation in [Activation::Silu, Activation::GeluTanh] {
                let mut gate = x.clone();
                gated(&threads, isa, activation, &mut gate, &y).unwrap();
                outputs.extend(gate);
            }
            let mut capped = x.clone();
            softcap(&threads, isa, &mut capped, 30.0);
            add(isa, &mut capped, &y).unwrap();
            scale(isa, &mut capped, 1.7);
            outputs.extend(capped);
            outputs.into_iter().map(f32::to_bits).collect::<Vec<_>>()
        };
        let expected = all(Isa::portable());
        for isa in Isa::available() {
            assert_eq!(all(isa), expected, "{isa:?}");
        }
    }
}
