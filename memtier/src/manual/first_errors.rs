//! First errors: what somebody sees who skims the README and gets the order wrong.
//!
//! Each is the first message, as the compiler prints it, of a program that is kept as a test.
//!
#![doc = include_str!("first_errors.md")]
