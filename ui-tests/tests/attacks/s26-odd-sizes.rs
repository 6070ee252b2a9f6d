//! Rows c, m, u: spans of nothing, ranges that are none, an alignment as large as it may be, buffers of one element and of none.

#![forbid(unsafe_code)]

use memtier::*;
use ui_tests::*;

#[tier(EnginePersistent, dims = ())]
pub struct Odd {
    #[shape(1, align = 4096)]
    pub one: u8,
    #[shape(1, align = 4096)]
    pub other: u8,
}

#[graph_captured]
pub struct Oddities {
    pub odd: Odd,
    pub none: Vec<Odd>,
    pub nowhere: [Odd; 0],
    pub table: PageTable<GlobalKv<f32>>,
}

pub fn main() -> Result<(), Error> {
    let mut engine = Engine::open(&Device::new(HostBackend::new(), Bytes::mib(1)));
    let table = TableSpec { rows: 1, columns: 1 };
    let lines = engine.declare_bundle::<Oddities>(OdditiesSpec { odd: (), none: vec![], nowhere: [], table });
    let (stream, pinned) = (engine.declare(STREAM), engine.declare(PinnedSpec { len: 1 }));
    let mut engine = engine.plan(limits::<Host>())?.carve(lines)?;
    let (mut stream, pinned): (_, Pinned<u8>) = (engine.open_stream(stream)?, engine.pin(pinned)?);
    let mut engine = engine.serve::<Oddities>()?;
    let mut step = engine.step::<Oddities>(&mut stream)?;
    let OdditiesView { odd, none, nowhere, .. } = &mut step.buffers;
    assert!(none.is_empty() && nowhere.is_empty());
    let OddMut { one, other } = odd;
    assert_eq!((one.read().widen().addr() % 4096, other.read().widen().addr() % 4096), (0, 0));
    let (from, to) = (1, 0);
    assert!(one.range(0..2).is_none() && one.range(from..to).is_none() && one.range(usize::MAX..usize::MAX).is_none());
    assert!(other.read().split_at(2).is_none() && other.read().split_at(usize::MAX).is_none());
    step.on.write(one, &[7])?;
    step.on.write(other, &[9])?;
    let mut nothing = one.range(1..1).ok_or("there is room for nothing at the end")?;
    step.on.write(&mut nothing, &[])?;
    step.on.copy::<u8>(&mut nothing, other.read().range(0..0).ok_or("nor at the start")?)?;
    step.on.host_op((output::<u8, _, _>(&mut nothing), input::<u8, _, _>(&*other)), |(nothing, other)| {
        assert!(nothing.is_empty() && other == [9]);
        Ok(())
    })?;
    let mut scratch = step.scratch.take::<u8>(0)?;
    step.on.write(&mut scratch, &[])?;
    assert!(step.scratch.take::<f32>(usize::MAX).is_err() && step.scratch.take::<u8>(usize::MAX - 255).is_err());
    let late = step.on.read_back(one.read().range(1..1).ok_or("there is")?, pinned)?;
    let settled = step.finish()?.wait()?;
    assert_eq!(late.take(&settled)?.len(), 1);
    Ok(())
}
