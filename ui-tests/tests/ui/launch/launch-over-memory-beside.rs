//! row: l
//! error: E0277
//! says: `Host` memory where `Cuda` memory is needed
//! A kernel over the part of its own bundle that is in host memory.

use memtier::*;
use ui_tests::*;

#[graph_captured]
pub struct Mixed {
    pub work: DecodeWorkspace<Cuda>,
    pub cold: DecodeWorkspace<Host>,
}

fn pass<P: Place<Space = Cuda>>(step: &mut Step<'_, Mixed, P>) -> Result<(), LaunchError> {
    let MixedView { work, cold } = &mut step.buffers;
    #[cfg(crime)]
    cuda::add_assign(step.on, &mut work.hidden, &cold.attn)?;
    #[cfg(not(crime))]
    {
        step.on.copy_across(&mut work.attn, cold.attn.read())?;
        cuda::add_assign(step.on, &mut work.hidden, &work.attn)?;
    }
    Ok(())
}

pub fn main() {
    let _: fn(&mut Step<'_, Mixed, Eager<Cuda>>) -> Result<(), LaunchError> = pass;
}
