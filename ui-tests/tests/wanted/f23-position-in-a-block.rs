//! A CPU operation that finds where in its block a position lies, from what the slab says.

#![forbid(unsafe_code)]

use memtier::*;
use ui_tests::*;

#[graph_captured]
pub struct Cache {
    pub kv: BlockPool<GlobalKv<f32>>,
    pub table: PageTable<GlobalKv<f32>>,
}

pub fn main() -> Result<(), Error> {
    let mut engine = loading();
    // Four tokens of two elements.
    let kv = PoolSpec::fixed(Tokens::new(4), 8, Blocks::new(2));
    let lines = engine.declare_bundle::<Cache>(CacheSpec { kv, table: TableSpec { rows: 1, columns: 2 } });
    let stream = engine.declare(STREAM);
    let mut engine = engine.plan(limits::<Host>())?.carve(lines)?;
    let mut stream = engine.open_stream(stream)?;
    let mut engine = engine.serve::<Cache>()?;
    let mut request = engine.bundle().kv.open(Tokens::new(8));
    request.extend(Tokens::new(6))?;
    let mut step = engine.step::<Cache>(&mut stream)?;
    let CacheView { kv, table: rows } = &mut step.buffers;
    rows.set(step.on, 0, &request)?;
    let position = 5;
    step.on.host_op((&mut kv.slab_mut(), table::<GlobalKv<f32>, _, _>(rows.ids())), move |(slab, table)| {
        let ids = table.row(0).unwrap_or_default();
        let width = slab.block_units / slab.block_tokens;
        let at = ids[position / slab.block_tokens] as usize * slab.block_units + position % slab.block_tokens * width;
        slab.units[at..at + width].fill(7.0);
        Ok(())
    })?;
    step.on.host_op((&kv.slab(),), |(slab,)| {
        assert_eq!((slab.block_tokens, slab.block_units), (4, 8));
        Ok(())
    })?;
    let mut second = [0.0; 2];
    let block = kv.block(&request, 1)?.range(2..4).ok_or("its second token")?;
    step.on.read::<f32>(block, &mut second)?;
    assert_eq!(second, [7.0; 2]);
    Ok(())
}
