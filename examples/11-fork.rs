//! Best of several answers: forks share a prompt's blocks, the last and half full one too, and copy it before they write.

use memtier::{BlockError, Bytes, Device, Engine, Host, HostBackend, Limits, Space, Tokens};
use memtier_examples::{Toy, declare};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let device = Device::new(HostBackend::new(), Bytes::mib(1));
    let mut engine = Engine::open(&device);
    let (lines, stream) = declare(&mut engine);
    let mut engine = engine.plan(Limits::new(Host::NAME, Bytes::mib(1)))?.carve(lines)?;
    let mut stream = engine.open_stream(stream)?;
    let mut engine = engine.serve::<Toy>()?;
    while let Some(commit) = engine.bundle().kv.planned_commit() {
        engine.bundle().kv.grow(commit)?;
    }
    let pool = engine.bundle().kv.handle();

    // A prompt of six tokens: one block and a half.
    let mut first = pool.open(Tokens::new(16));
    first.extend(Tokens::new(6))?;
    let mut step = engine.step(&mut stream)?;
    for index in 0..2 {
        step.on.write(&mut step.buffers.kv.block_mut(&mut first, index)?, &[1.0; 32])?;
    }
    let fence = step.finish()?;
    first.advance(Tokens::new(6), &fence)?;
    fence.wait()?;

    // Three answers, and still two blocks.
    let mut answers = [first.fork(Tokens::new(16)), first.fork(Tokens::new(16)), first];
    println!(
        "{} answers, {} blocks free of {}",
        answers.len(),
        pool.free().count(),
        engine.bundle().kv.committed().count()
    );
    let mut step = engine.step(&mut stream)?;
    let refused = step.buffers.kv.block_mut(&mut answers[0], 1).err();
    println!("{}", refused.ok_or("a shared block was handed out for writing")?);
    assert!(matches!(refused, Some(BlockError::Shared { referents: 3, .. })));

    // Each makes the half full block its own, and writes its next token behind what it copied. The last one has it alone by then.
    for (number, answer) in answers.iter_mut().enumerate() {
        let copied = step.buffers.kv.own(step.on, answer, 1)?;
        assert_eq!(copied, number < 2);
        let mut block = step.buffers.kv.block_mut(answer, 1)?;
        let mut token = block.range(16..24).ok_or("the third token of the block")?;
        step.on.write(&mut token, &[10.0 + number as f32; 8])?;
    }
    let fence = step.finish()?;
    for answer in &mut answers {
        answer.advance(Tokens::new(1), &fence)?;
    }
    fence.wait()?;

    // The best one goes on; the others drop, and give back what was theirs alone.
    let [_, best, _] = answers;
    let step = engine.step(&mut stream)?;
    let mut block = [0.0; 32];
    step.on.read(step.buffers.kv.block(&best, 1)?, &mut block)?;
    assert_eq!((block[0], block[16]), (1.0, 11.0));
    step.finish()?.wait()?;
    println!("the best of them has {}", best.tokens());
    Ok(())
}
