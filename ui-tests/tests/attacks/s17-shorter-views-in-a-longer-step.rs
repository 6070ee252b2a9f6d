//! row: m
//! error: E0597
//! says: `stream` does not live long enough
//! A view of a short step put into a long one of another engine: a step's lifetime is its own.

#![forbid(unsafe_code)]

use memtier::*;
use ui_tests::*;

pub fn exchange<'s>(one: &mut Step<'s, Llama, Eager<Host>>, two: &mut Step<'s, Llama, Eager<Host>>) {
    std::mem::swap(&mut one.buffers, &mut two.buffers);
}

pub fn main() -> Result<(), Error> {
    let (mut one, mut its_stream) = serving();
    let (mut two, mut stream) = serving();
    let mut long: Step<'_, Llama, Eager<Host>> = one.step(&mut its_stream)?;
    #[cfg(crime)]
    {
        let mut stream = stream;
        let mut short: Step<'_, Llama, Eager<Host>> = two.step(&mut stream)?;
        exchange(&mut long, &mut short);
    }
    #[cfg(not(crime))]
    let mut other: Step<'_, Llama, Eager<Host>> = two.step(&mut stream)?;
    #[cfg(not(crime))]
    exchange(&mut long, &mut other);
    assert_eq!(long.buffers.work.tokens.len(), 8);
    Ok(())
}
