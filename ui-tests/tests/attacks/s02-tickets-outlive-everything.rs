//! Row a: requests, prefixes, handles, fences and blocks that outlive their engine and its device.

#![forbid(unsafe_code)]

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = serving();
    let (ticket, settled) = written(&mut engine, &mut stream)?;
    let fence = engine.step::<Llama>(&mut stream)?.finish()?;
    let prefix = ticket.written(&settled)?.publish();
    let block = ticket.share(0).ok_or("one block")?;
    let pool = engine.bundle().kv.handle();
    drop((engine, stream));
    fence.wait()?;
    assert_eq!(block.referents(), 3);
    let mut again = prefix.open(Tokens::new(8));
    assert!(matches!(again.extend(Tokens::new(4)), Err(AcquireBlocksError::ModelEnded { .. })));
    let (other, twin) = (block.share(), block.share());
    drop((prefix, ticket, again, block, pool));
    std::thread::spawn(move || drop((other, twin))).join().map_err(|_| "dropping panicked")?;
    ticket_on_a_dead_pool()
}

fn ticket_on_a_dead_pool() -> Result<(), Error> {
    let (engine, _stream) = serving();
    let pool = engine.bundle().kv.handle();
    drop(engine);
    // Names only: there is no step that could give an address for them.
    let mut ticket = pool.open(Tokens::new(4));
    let _ = ticket.extend(Tokens::new(2));
    drop(ticket);
    Ok(())
}
