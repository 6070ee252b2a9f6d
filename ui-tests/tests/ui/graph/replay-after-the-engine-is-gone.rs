//! row: d
//! error: E0382
//! says: borrow of moved value: `engine`
//! Replaying a graph whose buffers are gone.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = serving();
    let graph = engine.record(&mut stream, |step| forward(step))?;
    #[cfg(crime)]
    drop(engine);
    engine.step(&mut stream)?.replay(graph)?;
    Ok(())
}
