//! An engine in a crate of its own: it knows memtier by another name, has no unsafe code, and no warning is let through.
#![forbid(unsafe_code)]
#![deny(missing_docs, warnings)]

use std::error::Error;

use mt::{
    BlockPool, Bytes, Device, Engine, Fits, GlobalKv, Host, HostBackend, Input, Is, LaunchError, Limits, Line, Load, Loading,
    PageTable, Place, PoolSpec, Recorder, SameElement, Serving, Space, StableSpanMut, Step, Stream, StreamSpec, TableSpec,
    Tokens, graph_captured, input, output, tier,
};

/// The numbers that the shapes are made of.
#[derive(Clone, Copy, Debug)]
pub struct Dims {
    /// Elements of a row.
    pub hidden: usize,
    /// Layers.
    pub layers: usize,
    /// Sequences.
    pub rows: usize,
}

/// One layer.
#[tier(ModelResident, dims = Dims, crate = mt)]
pub struct Layer {
    /// A scale for each element.
    #[shape(hidden)]
    pub scale: f32,
}

/// The weights.
#[tier(ModelResident, dims = Dims, crate = mt)]
pub struct Weights {
    /// Layers.
    pub layers: [Layer; layers],
}

/// What every step writes.
#[tier(EnginePersistent, dims = Dims, crate = mt)]
pub struct Work {
    /// One row a sequence.
    #[shape(rows, hidden)]
    pub hidden: f32,
    /// The next.
    #[shape(rows, hidden)]
    pub next: f32,
}

/// Everything the engine owns for one model.
#[graph_captured(crate = mt)]
pub struct Model<S: Space = Host> {
    /// Weights.
    pub weights: Weights<S>,
    /// Workspace.
    pub work: Work<S>,
    /// KV.
    pub kv: BlockPool<GlobalKv<f32>, S>,
    /// Blocks of each sequence.
    pub table: PageTable<GlobalKv<f32>, S>,
}

/// `out[row][i] = x[row][i] * scale[i]`.
///
/// # Errors
/// [`LaunchError`].
pub fn scale<P: Place<Space: Is<Host>>>(
    on: &Recorder<P>,
    out: &mut StableSpanMut<'_, impl SameElement<f32>, impl Fits<P>>,
    x: impl Input<f32, P>,
    scale: impl Input<f32, P>,
) -> Result<(), LaunchError> {
    let arguments = (output::<f32, _, _>(out), input::<f32, _, _>(x), input::<f32, _, _>(scale));
    on.host_op(arguments, |(out, x, scale)| {
        for (out, x) in out.chunks_exact_mut(scale.len()).zip(x.chunks_exact(scale.len())) {
            out.iter_mut().zip(x).zip(scale).for_each(|((out, x), scale)| *out = x * scale);
        }
        Ok(())
    })
}

/// One pass, eager or captured.
///
/// # Errors
/// [`LaunchError`].
pub fn forward<P: Place<Space = Host>>(step: &mut Step<'_, Model, P>) -> Result<(), LaunchError> {
    let (on, buffers) = (step.on, &mut step.buffers);
    for layer in buffers.weights.layers.iter() {
        scale(on, &mut buffers.work.next, &buffers.work.hidden, layer.scale)?;
        on.copy::<f32>(&mut buffers.work.hidden, &buffers.work.next)?;
    }
    Ok(())
}

/// A small model.
pub const DIMS: Dims = Dims { hidden: 4, layers: 3, rows: 2 };

/// Declares a model and a stream.
pub fn declare(engine: &mut Engine<Loading>) -> (ModelLines, Line<Stream<Host>>) {
    let kv = PoolSpec::fixed(Tokens::new(4), 64, mt::Blocks::new(8));
    let spec = ModelSpec { weights: DIMS, work: DIMS, kv, table: TableSpec { rows: 2, columns: 4 } };
    (engine.declare_bundle::<Model>(spec), engine.declare(StreamSpec { scratch: Bytes::kib(4) }))
}

/// What an engine's author keeps: no lifetimes.
pub struct Server {
    /// The memory.
    pub engine: Engine<Serving<Model>>,
    /// Where it runs.
    pub stream: Stream<Host>,
}

/// Walks an engine to serving, with every scale a two.
///
/// # Errors
/// Whatever was refused.
pub fn serve() -> Result<Server, Box<dyn Error + Send + Sync>> {
    let mut engine = Engine::open(&Device::new(HostBackend::new(), Bytes::mib(1)));
    let (lines, stream) = declare(&mut engine);
    let limits = Limits { graphs: 1, graph_bytes: Bytes::kib(4), ..Limits::new(Host::NAME, Bytes::mib(1)) };
    let mut engine = engine.plan(limits)?.carve(lines)?;
    let mut stream = engine.open_stream(stream)?;
    {
        let Load { buffers: ModelLoadView { mut weights, .. }, on, staging, .. } = engine.load(&mut stream)?;
        let mut tensor = staging.take::<f32>(DIMS.hidden)?;
        tensor.fill(2.0);
        for mut layer in weights.layers.iter_mut() {
            tensor.upload(on, &mut layer.scale)?;
        }
    }
    Ok(Server { engine: engine.serve::<Model>()?, stream })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_serves_eagerly_from_a_graph_and_on_another_thread() -> Result<(), Box<dyn Error + Send + Sync>> {
        let Server { mut engine, mut stream } = serve()?;
        let graph = engine.record(&mut stream, |step| forward(step))?;
        let served = std::thread::spawn(move || -> Result<_, Box<dyn Error + Send + Sync>> {
            let mut ticket = engine.bundle().kv.open(Tokens::new(8));
            ticket.extend(Tokens::new(8))?;
            let mut step = engine.step(&mut stream)?;
            step.buffers.table.set(step.on, 0, &ticket)?;
            step.on.write(&mut step.buffers.work.hidden, &[1.0; 8])?;
            forward(&mut step)?;
            step.replay(graph)?;
            let mut values = [0.0; 8];
            step.on.read(&step.buffers.work.hidden, &mut values)?;
            step.buffers.table.clear(step.on, 0)?;
            step.finish()?.wait()?;
            drop(ticket);
            let (_engine, _kept) = engine.drain()?.end_model();
            Ok(values)
        });
        assert_eq!(served.join().map_err(|_| "the thread panicked")??, [64.0; 8]);
        Ok(())
    }
}
