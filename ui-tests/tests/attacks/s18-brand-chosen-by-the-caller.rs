//! row: d
//! error: macro
//! says: implementation of `FnOnce` is not general enough
//! A capture's brand chosen by the caller, so that two captures could have the same one: a body must work for every brand.

#![forbid(unsafe_code)]

use memtier::*;
use ui_tests::*;

#[cfg(crime)]
pub fn body<'b>() -> impl FnOnce(&mut Step<'_, Llama, Captured<'b, Host>>) -> Result<(), LaunchError> {
    |step| forward(step)
}

#[cfg(not(crime))]
pub fn body() -> impl for<'s, 'b> FnOnce(&mut Step<'s, Llama, Captured<'b, Host>>) -> Result<(), LaunchError> {
    |step| forward(step)
}

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = serving();
    engine.record(&mut stream, body())?;
    Ok(())
}
