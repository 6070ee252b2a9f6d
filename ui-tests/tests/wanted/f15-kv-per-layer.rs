//! KV is written layer by layer while the layers are walked.

#![forbid(unsafe_code)]

use memtier::*;
use ui_tests::*;

fn layers(step: &mut Step<'_, Llama, Eager<Host>>) -> Result<(), LaunchError> {
    let Step { buffers: LlamaView { weights, work, kv, table, .. }, on, .. } = step;
    for layer in weights.layers.iter() {
        host::matmul(on, 8, &mut work.attn, layer.query, &work.hidden)?;
        host::write_kv(on, &mut kv.slab_mut(), table.ids(), &work.attn)?;
    }
    Ok(())
}

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = serving();
    let ticket = ticket(&engine);
    let mut step = engine.step(&mut stream)?;
    step.buffers.table.set(step.on, 0, &ticket)?;
    layers(&mut step)?;
    Ok(())
}
