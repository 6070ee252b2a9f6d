//! row: d
//! error: E0451
//! says: of struct `Graph` are private
//! A graph that nobody recorded.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = serving();
    let graph: Graph<Llama> = engine.record(&mut stream, |step| forward(step))?;
    #[cfg(crime)]
    let graph = Graph { slot: 1, ..graph };
    engine.step(&mut stream)?.replay(graph)?;
    Ok(())
}
