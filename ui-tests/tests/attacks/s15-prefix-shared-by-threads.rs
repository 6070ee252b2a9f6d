//! Rows a, o: a prefix is opened, extended and dropped by many threads while its publisher ends.

#![forbid(unsafe_code)]

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = serving();
    let (ticket, settled) = written(&mut engine, &mut stream)?;
    let prefix = ticket.written(&settled)?.publish();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..200 {
                    let mut follower = prefix.open(Tokens::new(4));
                    follower.extend(Tokens::new(3)).unwrap();
                    assert_eq!((follower.tokens(), follower.blocks()), (Tokens::new(1), Blocks::new(4)));
                    let block = follower.share(0).unwrap();
                    drop(follower);
                    assert!(block.referents() >= 2);
                }
            });
        }
        drop(ticket);
    });
    assert_eq!(engine.bundle().kv.free(), Blocks::new(63));
    drop(prefix);
    assert_eq!(engine.bundle().kv.free(), Blocks::new(64));
    Ok(())
}
