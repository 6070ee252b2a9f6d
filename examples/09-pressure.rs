//! Memory pressure: what is read, what is given up at which level, and who may start. The readings are made up here, so that
//! the story is the same on every machine; `this_host()` in the place of `Story` reads the real ones.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use memtier::{
    Bytes, Tokens,
    admission::{AdmissionQueue, CostModel, Next, Request, Settings},
    plan::KvDtype,
    pressure::{HostReading, LimitLatch, Percent, Psi, Sample, ServeLimits, Source, Watcher},
};

/// MiB available of 32 GiB, and the share of time in which all tasks stand still.
type Reading = (u64, u32);

struct Story(Arc<Mutex<Reading>>);

impl Source for Story {
    fn sample(&mut self, sample: &mut Sample) {
        let (available, stalled) = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let stalled = Percent::whole(stalled as u8);
        sample.host = Some(HostReading { total: Bytes::gib(32), available: Bytes::mib(available) });
        sample.psi = Some(Psi { some: stalled, full: stalled });
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // The operator's file; what it does not name keeps its default.
    let said = Settings::parse("kv.to = q8_0\nretry.memory = 2 s\n");
    let settings = said.map_err(|errors| errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))?;
    // Measured once for each model and machine.
    let anchors = CostModel::parse("512 16MiB\n4096 96MiB  # a line for each length that was measured\n");
    let cost = anchors.map_err(|_| "two lines that ascend are a model")?;
    let config = ServeLimits { slots: 4, prefill_window: Tokens::new(8192), kv: KvDtype::F16, evict_cached: false };
    let (ladder, admission) = (
        settings.ladder().map_err(|_| "the default rungs are a ladder")?,
        settings.admission(cost, Tokens::new(32_768)),
    );

    let now = Arc::new(Mutex::new((24_000, 0)));
    let watcher = Watcher::new(Box::new(Story(now.clone())), settings.thresholds, settings.poll)?;
    let mut reader = watcher.reader();
    let mut latch = LimitLatch::new(ladder.limits(watcher.level(), &config));
    let mut queue = AdmissionQueue::new(8, settings.backpressure()?);

    // 4,915 MiB are the reserve. Each line is what a serve loop sees at its next step.
    let (mut number, mut running, mut seen) = (0, 0, Vec::new());
    for reading in [(24_000, 0), (9000, 0), (5500, 0), (5500, 20), (4915, 0), (5500, 0), (24_000, 0)] {
        *now.lock().unwrap_or_else(PoisonError::into_inner) = reading;
        watcher.poll_now(); // the thread does this four times a second
        let snapshot = reader.latest();
        latch.propose(ladder.limits(snapshot.level, &config));
        println!("{snapshot}\n  {}", latch.current());
        for prompt in [900, 6000, 40_000] {
            number += 1;
            let (tokens, kv) = (Tokens::new(prompt), Bytes::kib(112));
            // Half of a prompt is better than a refusal.
            let request = Request::on_host(tokens, Tokens::new(256), kv).cut_to(Tokens::new(prompt / 2));
            if let Err((_, refused)) = queue.push(request, number, &admission, &config, snapshot) {
                println!("  {number}: {refused}");
            }
        }
        loop {
            match queue.next(&admission, latch.current(), running, snapshot) {
                Next::Run(name, window) => {
                    println!("  {name}: starts with {window}");
                    running += 1;
                }
                Next::Refused(name, why) => println!("  {name}: {why}"),
                Next::Held => break println!("  {} wait for the level to fall", queue.waiting()),
                Next::SlotsTaken => break println!("  {} wait for a slot", queue.waiting()),
                Next::Empty => break,
            }
        }
        let step = latch.begin();
        seen.push((step.limits().level, step.limits().limits.slots, step.limits().limits.kv));
        latch.end(step);
        running = 0; // what ran has ended when we look again
    }
    assert_eq!(seen.first(), seen.last(), "all of it is undone");
    assert_eq!(seen.iter().map(|(_, slots, _)| *slots).collect::<Vec<_>>(), [4, 4, 2, 1, 1, 2, 4]);
    assert_eq!(seen[1].2, KvDtype::Q8_0);
    assert_eq!(admission.config().retry_memory, Duration::from_secs(2));
    Ok(())
}
