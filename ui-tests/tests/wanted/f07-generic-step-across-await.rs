//! A step of any model, held across `.await` in a task that may move between threads.

#![forbid(unsafe_code)]

use memtier::*;
use std::{
    future::Future,
    pin::pin,
    task::{Context, Poll, Waker},
};
use ui_tests::*;

fn spawn<F: Future<Output = Result<(), Error>> + Send + 'static>(future: F) -> Result<(), Error> {
    let run = std::thread::spawn(move || {
        let mut future = pin!(future);
        match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(result) => result,
            Poll::Pending => Err("not ready".into()),
        }
    });
    run.join().map_err(|_| "the task panicked")?
}

fn serve<B: Bundle>(mut engine: Engine<Serving<B>>, mut stream: Stream<B::Space>) -> Result<(), Error> {
    spawn(async move {
        let step = engine.step::<B>(&mut stream)?;
        std::future::ready(()).await;
        step.finish()?.wait()?;
        Ok(())
    })
}

pub fn main() -> Result<(), Error> {
    let (engine, stream) = serving();
    serve(engine, stream)
}
