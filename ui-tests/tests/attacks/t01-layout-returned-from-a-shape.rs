//! row: n
//! error: macro
//! says: `return` leaves an expression that has to have a value
//! A layout of larger dims, returned from a shape in place of the one that is being priced: its fields would lie outside of their memory.

#![forbid(unsafe_code)]

use memtier::*;
use ui_tests::*;

#[derive(Clone, Copy)]
pub struct Size {
    pub elements: usize,
    pub steal: bool,
}

impl Size {
    /// What the price of other dims has left behind.
    pub fn stolen(&self) -> Option<<Stolen as Storage>::Layout> {
        let large = Size { elements: 1 << 20, steal: false };
        if self.steal { <Stolen as Declare>::price(&large, &mut |_| {}).ok() } else { None }
    }
}

#[tier(EnginePersistent, dims = Size, space = Host)]
pub struct Stolen {
    #[cfg(crime)]
    #[shape({ if let Some(layout) = stolen() { return Ok(layout) } elements })]
    pub data: f32,
    #[cfg(not(crime))]
    #[shape({ if let Some(_layout) = stolen() { elements } else { elements } })]
    pub data: f32,
}

#[graph_captured]
pub struct Thief {
    pub stolen: Stolen,
}

pub fn main() -> Result<(), Error> {
    let mut engine = loading();
    let lines = engine.declare_bundle::<Thief>(ThiefSpec { stolen: Size { elements: 1, steal: true } });
    let stream = engine.declare(STREAM);
    let mut engine = engine.plan(limits::<Host>())?.carve(lines)?;
    let mut stream = engine.open_stream(stream)?;
    let mut engine = engine.serve::<Thief>()?;
    let mut step = engine.step::<Thief>(&mut stream)?;
    assert_eq!(step.buffers.stolen.data.len(), 1);
    step.on.write(&mut step.buffers.stolen.data, &[1.0])?;
    Ok(())
}
