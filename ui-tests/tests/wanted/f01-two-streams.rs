//! Prefill on one stream while decode runs on the other, each on a thread of its own; their results are joined by fences.

#![forbid(unsafe_code)]

use memtier::*;
use std::thread;
use ui_tests::*;

/// A workspace, a pool and a page table for each side; the weights are read by both.
#[graph_captured]
pub struct Both {
    pub weights: LlamaWeights,
    pub prefill: DecodeWorkspace,
    pub decode: DecodeWorkspace,
    pub kv: [BlockPool<GlobalKv<f32>>; 2],
    pub tables: [PageTable<GlobalKv<f32>>; 2],
}

/// What one side runs.
fn pass<P: Place<Space = Host>>(
    on: &Recorder<P>,
    weights: LlamaWeightsRef<'_, P>,
    work: &mut DecodeWorkspaceMut<'_, P>,
    kv: &mut PoolView<'_, GlobalKv<f32>, P>,
    table: &PageTableView<'_, GlobalKv<f32>, P>,
) -> Result<(), LaunchError> {
    host::embed(on, &mut work.hidden, weights.embed, &work.tokens)?;
    host::write_kv(on, &mut kv.slab_mut(), table.ids(), &work.hidden)
}

pub fn main() -> Result<(), Error> {
    let device = Device::new(FakeBackend::<Host>::asynchronous(), Bytes::mib(1));
    let mut engine = Engine::open(&device);
    let spec = BothSpec { weights: DIMS, prefill: DIMS, decode: DIMS, kv: [POOL; 2], tables: [TABLE; 2] };
    let lines = engine.declare_bundle::<Both>(spec);
    let (one, two) = (engine.declare(STREAM), engine.declare(STREAM));
    let mut engine = engine.plan(limits::<Host>())?.carve(lines)?;
    let (mut one, mut two) = (engine.open_stream(one)?, engine.open_stream(two)?);
    {
        let Load { mut buffers, on, staging, .. } = engine.load(&mut one)?;
        let mut tensor = staging.take::<f32>(buffers.weights.embed.len())?;
        tensor.fill(3.0);
        tensor.upload(on, &mut buffers.weights.embed)?;
        for work in [&mut buffers.prefill, &mut buffers.decode] {
            staging.take::<u32>(work.tokens.len())?.upload(on, &mut work.tokens)?;
        }
    }
    let mut engine = engine.serve::<Both>()?;
    let [mut prompt, mut answer] = [0, 1].map(|pool| engine.bundle().kv[pool].open(Tokens::new(4)));
    prompt.extend(Tokens::new(1))?;
    answer.extend(Tokens::new(1))?;

    let Overlap { parts, first, second } = engine.overlap(&mut one, &mut two)?;
    let weights = parts.weights.shared();
    let ([prompts, answers], [prompt_rows, answer_rows]) = (parts.kv.each(), parts.tables.each());
    let (prefilled, decoded) = thread::scope(|scope| -> Result<(Fence, Fence), Error> {
        let (prompt, prefill) = (&prompt, parts.prefill);
        let prefilling = scope.spawn(move || -> Result<Fence, Error> {
            let (mut work, mut kv) = (prefill.on(&first)?, prompts.on(&first)?);
            let mut table = prompt_rows.on(&first)?;
            table.set(first.on, 0, prompt)?;
            pass(first.on, weights.on(&first)?, &mut work, &mut kv, &table)?;
            Ok(first.finish()?)
        });
        let (mut work, mut kv) = (parts.decode.on(&second)?, answers.on(&second)?);
        let mut table = answer_rows.on(&second)?;
        table.set(second.on, 0, &answer)?;
        pass(second.on, weights.on(&second)?, &mut work, &mut kv, &table)?;
        let decoded = second.finish()?;
        Ok((prefilling.join().map_err(|_| "prefill panicked")??, decoded))
    })?;
    assert!(prefilled.poll().is_none() && decoded.poll().is_none(), "neither waited for the other");
    prompt.advance(Tokens::new(1), &prefilled)?;
    answer.advance(Tokens::new(1), &decoded)?;
    let (prefilled, decoded) = (prefilled.wait()?, decoded.wait()?);
    let written = [prompt.written(&prefilled)?.tokens(), answer.written(&decoded)?.tokens()];
    assert_eq!(written, [Tokens::new(1); 2]);
    assert!(answer.written(&prefilled).is_ok(), "it is done, whoever asks");

    // The prompt moves over to the pool of the answers, in an ordinary step.
    let mut moved = engine.bundle().kv[1].open(Tokens::new(4));
    moved.extend(Tokens::new(1))?;
    let mut step = engine.step::<Both>(&mut two)?;
    let [prompts, answers] = &mut step.buffers.kv;
    step.on.copy::<f32>(&mut answers.block_mut(&mut moved, 0)?, prompts.block(&prompt, 0)?)?;
    let mut values = [0.0; 8];
    step.on.read(answers.block(&moved, 0)?, &mut values)?;
    assert_eq!(values, [3.0; 8]);
    Ok(())
}
