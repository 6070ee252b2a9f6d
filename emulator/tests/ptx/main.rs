//! The PTX interpreter against expectations that were not made with it.

#![allow(clippy::precedence, reason = "shifts and masks of bits, as the format's tables have them")]

mod arithmetic;
mod clusters;
mod faults;
mod kernels;
mod lanes;
mod matrices;
mod support;
