//! Row g: a graph is recorded before any row is set, over the slab of one pool and a page table whose rows then name blocks
//! of another pool of the same kind. A kernel must be able to tell when the graph runs.

#![forbid(unsafe_code)]

use memtier::*;
use ui_tests::*;

#[graph_captured]
pub struct Groups {
    pub work: DecodeWorkspace,
    pub pools: [BlockPool<GlobalKv<f32>>; 2],
    pub table: PageTable<GlobalKv<f32>>,
}

/// Writes the first block of each row, as the reference engine's kernels do: after a look at the pool.
fn write<P: Place<Space = Host>>(
    on: &Recorder<P>,
    slab: &mut SlabMut<'_, GlobalKv<f32>, P>,
    ids: StableSpan<'_, KvId, P>,
) -> Result<(), LaunchError> {
    on.host_op((slab, table::<GlobalKv<f32>, _, _>(ids)), |(slab, table)| {
        if table.shape.pool != slab.pool && table.shape.pool != 0 {
            return Err(LaunchError::Unsupported { what: "page table", why: "its ids belong to another pool" });
        }
        for id in table.ids.iter().filter(|id| **id != u32::MAX) {
            let start = *id as usize * slab.block_units;
            slab.units[start..start + slab.block_units].fill(9.0);
        }
        Ok(())
    })
}

pub fn main() -> Result<(), Error> {
    let mut engine = loading();
    let lines = engine.declare_bundle::<Groups>(GroupsSpec { work: DIMS, pools: [POOL; 2], table: TABLE });
    let stream = engine.declare(STREAM);
    let mut engine = engine.plan(limits::<Host>())?.carve(lines)?;
    let mut stream = engine.open_stream(stream)?;
    let mut engine = engine.serve::<Groups>()?;
    let graph = engine.record(&mut stream, |step: &mut Step<'_, Groups, _>| {
        let GroupsView { pools, table, .. } = &mut step.buffers;
        write(step.on, &mut pools[0].slab_mut(), table.ids())
    })?;
    let open = |pool: usize| {
        let mut ticket = engine.bundle().pools[pool].open(Tokens::new(4));
        ticket.extend(Tokens::new(1)).map(|()| ticket)
    };
    let (victim, other) = (open(0)?, open(1)?);
    let mut step = engine.step(&mut stream)?;
    step.buffers.table.set(step.on, 0, &other)?;
    let replayed = step.replay(graph);
    let mut values = [0.0; 8];
    step.on.read(step.buffers.pools[0].block(&victim, 0)?, &mut values)?;
    assert_eq!((values, replayed.is_err()), ([0.0; 8], true), "a request of pool 1 wrote into a block of pool 0");
    Ok(())
}
