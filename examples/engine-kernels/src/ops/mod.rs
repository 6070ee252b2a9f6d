//! Everything between the matmuls and attention: normalisation, rotary positions, activations, sampling helpers.

mod elementwise;
mod embed;
mod norm;
mod rope;

pub(crate) use elementwise::gate_lanes;
pub use elementwise::{Activation, add, argmax, gated, scale, softcap};
pub use embed::embed;
pub use norm::{Norm, residual_norm, residual_norm_quantize, rms_norm, rms_norm_in_place, rms_norm_quantize};
pub use rope::{RopeAngles, RopeParams, RopeStyle, rope, rope_angles};
