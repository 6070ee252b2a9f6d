//! Thousands of requests with shared prefixes, forks and guesses, of which three of ten are cancelled, at points of their lives that are drawn
//! evenly: `MEMTIER_REQUESTS=20000 MEMTIER_TIMES=1 cargo test --release -p memtier-engine --test engine soak:: -- --nocapture` runs as many.

use std::{
    collections::{BTreeMap, VecDeque},
    ops::ControlFlow,
    time::{Duration, Instant},
};

use crate::common::tiny_file;
use crate::small::prompt;
use memtier::Bytes;
use memtier_engine::{Llm, ModelFile, Outcome, RequestId, Row, Sampling, Settings};
use memtier_model::write::TinyModel;

/// Where a request is cancelled.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Point {
    /// In the queue.
    Waiting,
    /// Admitted, with some of its prompt not computed.
    Prefill,
    /// With some of its answer.
    Decode,
    /// When a token was told, before what its pass wrote is published.
    BeforePublish,
    /// Forked, before either has written on.
    Fork,
}

const POINTS: [Point; 5] = [Point::Waiting, Point::Prefill, Point::Decode, Point::BeforePublish, Point::Fork];
/// Of fifty requests, three end at each point.
const DECK: usize = 50;
const EACH: usize = 3;
/// So many earlier prompts are asked again, by one of four.
const AGAIN: usize = 40;

struct Random(u64);

impl Random {
    fn below(&mut self, below: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % below
    }
}

/// A running request.
struct Running {
    fate: Option<Point>,
    /// Tokens of its answer, and how many there are when its fate meets it.
    answered: usize,
    at: usize,
    /// Passes since it started.
    passes: usize,
    /// Whether it is somebody's second answer.
    is_fork: bool,
}

struct Soak {
    llm: Llm,
    random: Random,
    deck: Vec<Option<Point>>,
    waiting: BTreeMap<RequestId, (Option<Point>, usize)>,
    running: BTreeMap<Row, Running>,
    cancelled: BTreeMap<Point, usize>,
    submitted: usize,
    /// Prompts that are asked again.
    asked: Vec<Vec<u32>>,
    forks: usize,
    admissions: Vec<Duration>,
    passes: Vec<Duration>,
}

impl Soak {
    fn new(model: TinyModel, settings: Settings) -> Self {
        let file = tiny_file("soak", model);
        let file = ModelFile::open(file.path()).unwrap();
        Soak {
            llm: Llm::open(&file, &settings, &mut |_| ()).unwrap(),
            random: Random(std::env::var("MEMTIER_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1)),
            deck: Vec::new(),
            waiting: BTreeMap::new(),
            running: BTreeMap::new(),
            cancelled: BTreeMap::new(),
            submitted: 0,
            asked: Vec::new(),
            forks: 0,
            admissions: Vec::new(),
            passes: Vec::new(),
        }
    }

    /// The next request's fate: exactly three of ten are cancelled, in random order.
    fn fate(&mut self) -> Option<Point> {
        if self.deck.is_empty() {
            self.deck = POINTS.iter().flat_map(|point| [Some(*point); EACH]).collect();
            self.deck.resize(DECK, None);
            for index in (1..DECK).rev() {
                self.deck.swap(index, self.random.below(index + 1));
            }
        }
        self.deck.pop().unwrap()
    }

    fn submit(&mut self) {
        let fate = self.fate();
        // A handful of system prompts, then something of one's own; longer than two passes where it is to end in between.
        let mut tokens = prompt(16 * (1 + self.random.below(5)), self.random.below(6) as u32);
        let own = if fate == Some(Point::Prefill) { 66 } else { 1 } + self.random.below(30);
        tokens.extend(prompt(own, self.random.below(1 << 20) as u32));
        // Some are asked again, and some of those after everything of them was given up.
        match self.asked.get(self.random.below(4 * AGAIN)) {
            Some(asked) if fate != Some(Point::Prefill) => tokens.clone_from(asked),
            _ if self.asked.len() < AGAIN => self.asked.push(tokens.clone()),
            _ => self.asked[self.submitted % AGAIN].clone_from(&tokens),
        }
        // A pass gives up to three tokens, so the last one is not among those that its fate comes with.
        let answer = 6 + self.random.below(20);
        let id = self.llm.submit(tokens, answer, Sampling::GREEDY, None).unwrap();
        self.submitted += 1;
        self.waiting.insert(id, (fate, 1 + self.random.below(answer - 5)));
        if fate == Some(Point::Waiting) {
            // At once, or when others are behind it.
            let id = if self.random.below(2) == 0 { id } else { *self.waiting.keys().next().unwrap() };
            let victim = self.waiting.iter().find(|(other, (fate, _))| **other >= id && *fate == Some(Point::Waiting));
            let victim = *victim.unwrap().0;
            assert!(self.llm.cancel(victim));
            self.waiting.remove(&victim);
            self.count(Point::Waiting);
        }
    }

    fn count(&mut self, point: Point) {
        *self.cancelled.entry(point).or_insert(0) += 1;
    }

    fn start(&mut self) {
        let began = Instant::now();
        let mut started = VecDeque::new();
        self.llm.start_waiting(|id, outcome| match outcome {
            Outcome::Started(row) => started.push_back((id, row)),
            other => panic!("{other:?}"),
        });
        let each = began.elapsed() / started.len().max(1) as u32;
        for (id, row) in started {
            self.admissions.push(each);
            let (fate, at) = self.waiting.remove(&id).unwrap();
            self.running.insert(row, Running { fate, answered: 0, at, passes: 0, is_fork: false });
        }
    }

    /// Ends those that are to end before all of their prompt is in: one that was not begun, or one that was.
    fn cancel_prefilling(&mut self) {
        let rows: Vec<_> =
            self.running.iter().filter(|(_, it)| it.fate == Some(Point::Prefill)).map(|(row, _)| *row).collect();
        for row in rows {
            // Before its first pass, or after it.
            if self.running[&row].passes == self.running[&row].at % 2 {
                self.end(row);
                self.count(Point::Prefill);
            }
        }
    }

    fn end(&mut self, row: Row) {
        self.llm.end(row).unwrap();
        self.running.remove(&row);
    }

    /// Forks now and then; where a request's fate is to end in a fork, one of the two goes before either has written.
    fn fork(&mut self) {
        let rows: Vec<Row> = self.running.keys().copied().collect();
        for row in rows {
            let Some(it) = self.running.get(&row) else { continue };
            let is_fate = it.fate == Some(Point::Fork) && it.answered >= it.at;
            let is_whim = it.fate.is_none() && it.answered > 0 && self.random.below(60) == 0;
            if !(is_fate || is_whim) {
                continue;
            }
            if self.running.len() == 4 {
                // Somebody's second answer is not wanted any more.
                let Some(row) = self.running.iter().find(|(_, it)| it.is_fork && is_fate).map(|(row, _)| *row) else {
                    continue;
                };
                self.end(row);
            }
            let other = self.llm.fork(row, Sampling::GREEDY).unwrap();
            self.forks += 1;
            let (answered, at) = (self.running[&row].answered, usize::MAX);
            self.running.insert(other, Running { fate: None, answered, at, passes: 0, is_fork: true });
            if is_fate {
                let gone = if self.random.below(2) == 0 { row } else { other };
                self.end(gone);
                self.count(Point::Fork);
                if let Some(stays) = self.running.get_mut(if gone == row { &other } else { &row }) {
                    (stays.fate, stays.is_fork) = (None, false);
                }
            }
        }
    }

    /// One pass. Whoever is to end when its token is told ends there; whoever decodes, after it.
    fn step(&mut self) -> usize {
        let (running, mut ended, mut gone) = (&mut self.running, Vec::new(), Vec::new());
        let began = Instant::now();
        let tokens = self.llm.step_while(|token| {
            let it = running.get_mut(&token.row).unwrap();
            it.answered += 1;
            if it.fate == Some(Point::BeforePublish) && it.answered >= it.at {
                gone.push(token.row);
                return ControlFlow::Break(());
            }
            if token.last || (it.fate == Some(Point::Decode) && it.answered >= it.at) {
                ended.push((token.row, token.last));
            }
            ControlFlow::Continue(())
        });
        self.passes.push(began.elapsed());
        for row in gone {
            self.running.remove(&row);
            self.count(Point::BeforePublish);
        }
        for (row, last) in ended {
            // With several tokens a pass, it may be here twice.
            let Some(it) = self.running.get(&row) else { continue };
            assert_eq!(it.fate, (!last).then_some(Point::Decode));
            self.end(row);
            if !last {
                self.count(Point::Decode);
            }
        }
        self.running.values_mut().for_each(|it| it.passes += 1);
        tokens.unwrap()
    }

    fn run(&mut self, requests: usize) {
        while self.submitted < requests || !self.running.is_empty() || !self.waiting.is_empty() {
            while self.submitted < requests && self.waiting.len() < 4 {
                self.submit();
            }
            self.start();
            self.cancel_prefilling();
            self.step();
            self.fork();
        }
    }

    /// Three of ten, as many at each point; no block is out; and the device gave nothing but what the plan had paid for.
    fn check(&self, requests: usize) {
        let all: usize = self.cancelled.values().sum();
        println!("{requests} requests, {} forks, {all} cancelled: {:?}", self.forks, self.cancelled);
        assert!((28 * requests..=32 * requests).contains(&(100 * all)), "{all} of {requests} were cancelled");
        for point in POINTS {
            let (count, even) = (self.cancelled.get(&point).copied().unwrap_or(0), requests * 6 / 100);
            assert!(
                count * 10 >= even * 9 && count * 10 <= even * 11,
                "{count} at {point:?}, and {even} would be even"
            );
        }
        assert!(self.forks > requests / 20, "{} forks", self.forks);
        let (report, stats) = (self.llm.memory_report(), self.llm.prefix_stats().unwrap());
        assert_eq!(report.pools[0].held, stats.cached, "{report}");
        assert_eq!(stats.cached, stats.reclaimable);
        assert!(stats.hits > stats.misses / 4, "{stats:?}");
        let device = self.llm.device().report();
        assert_eq!(device.acquisitions[2], device.planned_commits, "the device gave nothing but planned commits");
    }
}

fn requests() -> usize {
    std::env::var("MEMTIER_REQUESTS").ok().and_then(|count| count.parse().ok()).unwrap_or(400)
}

fn settings() -> Settings {
    Settings {
        budget: Bytes::gib(2),
        max_batch: 4,
        // The last row is for forks.
        max_slots: Some(3),
        max_seq_len: 256,
        prefill_chunk: 32,
        threads: 2,
        draft: 2,
        ..Settings::default()
    }
}

fn quantile(times: &[Duration], percent: usize) -> Duration {
    let mut times = times.to_vec();
    times.sort_unstable();
    times[(times.len() * percent / 100).min(times.len() - 1)]
}

/// The medians of the first and of the last thousand. They are printed by every run, and held to in a long one that asks for it
/// (`MEMTIER_TIMES=1`): a machine that does other things beside would fail a short one.
fn is_flat(what: &str, times: &[Duration]) {
    let part = (times.len() / 4).min(1000);
    let (first, last) = (quantile(&times[..part], 50), quantile(&times[times.len() - part..], 50));
    println!(
        "{what}: {first:?} at first, {last:?} at last; all: median {:?}, 99 % below {:?}, most {:?}",
        quantile(times, 50),
        quantile(times, 99),
        quantile(times, 100)
    );
    if crate::common::times_matter() {
        assert!(last < 2 * first + Duration::from_micros(5), "{what}: {first:?} at first, {last:?} at last");
    }
}

#[test]
fn a_long_day_leaves_every_block_free_and_is_as_fast_at_its_end() {
    let mut soak = Soak::new(TinyModel::gemma3(5), settings());
    soak.run(requests());
    soak.check(requests());
    is_flat("admission", &soak.admissions);
    is_flat("pass", &soak.passes);
}

/// With a pool that is always full, and a second tier that is, too.
#[test]
fn a_long_day_in_two_tiers_conserves_both() {
    let mut found = Vec::new();
    for (name, model) in [("llama", TinyModel::llama(5)), ("gemma3", TinyModel::gemma3(5))] {
        for spill_ahead in [0, 8] {
            let settings = Settings { cold_blocks: 96, cold_snapshots: 48, spill_ahead, ..settings() };
            let mut soak = Soak::new(model.clone(), settings);
            soak.run(requests());
            soak.check(requests());
            // What was sent ahead arrives with the next pass, even if that has nothing else to do.
            while soak.llm.tier_stats().unwrap().moving.count() > 0 {
                soak.step();
            }
            let (stats, report) = (soak.llm.tier_stats().unwrap(), soak.llm.memory_report());
            println!(
                "{name}, {spill_ahead} blocks ahead: {} spilled, {} restored; {:?}",
                stats.spilled,
                stats.restored,
                soak.llm.snapshot_stats()
            );
            assert!(stats.spilled > 50 && stats.restored > 5 && stats.hot.evicted > 50, "{stats:?}");
            assert_eq!((stats.cold.cached, stats.moving.count()), (stats.cold.reclaimable, 0));
            assert!(report.pools.iter().any(|pool| pool.held == stats.cold.cached), "{report}");
            if let Some(states) = soak.llm.snapshot_stats() {
                assert!(states.restored > 5 && states.moving == 0, "{states:?}");
                assert!(report.pools.iter().any(|pool| pool.held == states.cold_blocks), "{states:?} {report}");
            }
            is_flat(&format!("{name}, {spill_ahead} ahead, admission"), &soak.admissions);
            is_flat(&format!("{name}, {spill_ahead} ahead, pass"), &soak.passes);
            found.push(quantile(&soak.admissions, 99));
        }
    }
    println!("99 % of admissions below, without and with copies ahead: {found:?}");
}
