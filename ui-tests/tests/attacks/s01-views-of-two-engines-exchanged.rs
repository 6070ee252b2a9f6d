//! Row m: the views and recorders of two engines' steps are exchanged: every span knows its stream.

#![forbid(unsafe_code)]

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut one, mut its_stream) = serving();
    let (mut two, mut other_stream) = serving();
    let mut one: Step<'_, Llama, Eager<Host>> = one.step(&mut its_stream)?;
    let mut two: Step<'_, Llama, Eager<Host>> = two.step(&mut other_stream)?;
    std::mem::swap(&mut one.buffers, &mut two.buffers);
    let wrong = |result| matches!(result, Err(LaunchError::WrongStream { .. }));
    assert!(wrong(one.on.write(&mut one.buffers.work.tokens, &[1])));
    assert!(wrong(forward(&mut one)));
    assert!(matches!(one.buffers.table.clear(one.on, 0), Err(RowError::Launch(LaunchError::WrongStream { .. }))));
    std::mem::swap(&mut one.on, &mut two.on);
    one.on.write(&mut one.buffers.work.tokens, &[1])?;
    assert!(wrong(forward(&mut one)), "the scratch is still the other's");
    Ok(())
}
