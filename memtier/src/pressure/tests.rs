//! The watcher over a tree of files, and the seqlock under load.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use tempfile::TempDir;

use super::{seqlock::SeqLock, *};
use crate::units::Bytes;

/// A tree of files like the kernel's, removed when dropped.
struct Tree(TempDir);

impl Tree {
    fn new() -> Self {
        let tree = Tree(tempfile::tempdir().unwrap());
        tree.meminfo(32 << 20, 24 << 20);
        tree.write("proc/pressure/memory", b"some avg10=0.00 avg60=0.00\nfull avg10=0.00 avg60=0.00\n");
        tree.write("proc/self/cgroup", b"0::/serve.slice/engine.service\n");
        tree.write("sys/fs/cgroup/cgroup.controllers", b"memory\n");
        for group in ["sys/fs/cgroup/serve.slice", "sys/fs/cgroup/serve.slice/engine.service"] {
            tree.write(&format!("{group}/memory.current"), b"1073741824\n");
            tree.write(&format!("{group}/memory.high"), b"max\n");
            tree.write(&format!("{group}/memory.max"), b"max\n");
        }
        tree
    }

    fn write(&self, path: &str, content: &[u8]) {
        let path = self.0.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        // As the kernel does it: a reader sees the old file or the new one.
        let new = path.with_extension("new");
        fs::write(&new, content).unwrap();
        fs::rename(new, path).unwrap();
    }

    fn meminfo(&self, total_kib: u64, available_kib: u64) {
        let content = format!("MemTotal: {total_kib} kB\nMemFree: 1 kB\nMemAvailable: {available_kib} kB\n");
        self.write("proc/meminfo", content.as_bytes());
    }

    fn source(&self) -> Box<dyn Source> {
        Box::new(ProcFiles::under(self.0.path()))
    }

    fn watcher(&self) -> Watcher {
        Watcher::new(self.source(), Thresholds::default(), INTERVAL).unwrap()
    }
}

#[test]
fn the_first_reading_is_there_when_start_returns() {
    let tree = Tree::new();
    let watcher = tree.watcher();
    assert_eq!((watcher.snapshot(), watcher.running()), (Snapshot::default(), false));
    watcher.start().unwrap();
    let snapshot = watcher.snapshot();
    assert_eq!(snapshot.host, Some(HostReading { total: Bytes::gib(32), available: Bytes::gib(24) }));
    assert_eq!((snapshot.level, snapshot.seq, snapshot.cgroup), (Level::Ok, 1, None));
    assert_eq!(watcher.faults(), []);
    watcher.start().unwrap();
    assert_eq!(watcher.snapshot().seq, 1, "started twice is started once");
    watcher.stop();
    watcher.stop();
    assert!(!watcher.running());
    let polls = watcher.cost().0;
    thread::sleep(Duration::from_millis(300));
    assert_eq!(watcher.cost().0, polls, "joined: nobody reads any more");
    watcher.start().unwrap();
    assert!(watcher.running(), "and it starts again");
}

#[test]
fn a_reader_sees_every_change_and_outlives_the_watcher() {
    let tree = Tree::new();
    let watcher = tree.watcher();
    let mut reader = watcher.reader();
    for round in 1..=100 {
        tree.meminfo(32 << 20, (24 << 20) - round);
        watcher.poll_now();
        assert_eq!(reader.latest().host.unwrap().available, Bytes::kib((24 << 20) - round));
        assert_eq!(*reader.latest(), watcher.snapshot());
        let reading = DeviceReading { free: Bytes::new(round), budget: Bytes::gib(1), used: Bytes::ZERO };
        watcher.feed(3, reading).unwrap();
        assert_eq!(reader.latest().devices.get(3), Some(reading));
    }
    let last = watcher.snapshot();
    drop(watcher);
    assert_eq!(*reader.latest(), last);
}

#[test]
fn a_forced_poll_does_not_wait() {
    let tree = Tree::new();
    let watcher = tree.watcher();
    tree.meminfo(32 << 20, 1 << 20);
    watcher.poll_now();
    assert_eq!((watcher.level(), watcher.snapshot().level), (Level::Critical, Level::Critical));
}

#[test]
fn a_signal_has_its_effect_within_a_second_and_all_is_undone() {
    let tree = Tree::new();
    let watcher = tree.watcher();
    watcher.start().unwrap();
    let config = ServeLimits {
        slots: 8,
        prefill_window: crate::Tokens::new(16_384),
        kv: crate::plan::KvDtype::F16,
        evict_cached: false,
    };
    let ladder = Ladder::default();
    let mut latch = LimitLatch::new(ladder.limits(watcher.level(), &config));
    let (mut slowest, mut notes) = (Duration::ZERO, Vec::new());
    // 32 GiB: 4.8 are the reserve. The last row is the first: everything comes back.
    for (available_mib, level) in
        [(9000, Level::Watch), (5500, Level::Tight), (4915, Level::Critical), (5500, Level::Tight), (24_576, Level::Ok)]
    {
        tree.meminfo(32 << 20, available_mib << 10);
        let began = Instant::now();
        while watcher.level() != level {
            assert!(began.elapsed() < Duration::from_secs(60), "{level} never came");
            thread::sleep(Duration::from_millis(1));
        }
        latch.propose(ladder.limits(watcher.snapshot().level, &config));
        slowest = slowest.max(began.elapsed());
        notes.push(latch.current().to_string());
    }
    println!("slowest signal to effect: {slowest:?}\n{}", notes.join("\n"));
    assert_eq!(latch.current().limits, config);
    assert!(notes[2].starts_with("critical: slots 8 -> 1, prefill window 16384 -> 4096"), "{notes:?}");
    // The interval of 250 ms and the time the machine takes to wake a thread; a loaded test machine gets more of the latter, so what an
    // idle one keeps is held to only where somebody asks for times (CONTRIBUTING.md).
    if std::env::var_os("MEMTIER_TIMES").is_some() {
        assert!(slowest < Duration::from_millis(300), "{slowest:?}");
    }
}

#[test]
fn the_tightest_group_of_the_hierarchy_counts() {
    let tree = Tree::new();
    let watcher = tree.watcher();
    let read = || {
        watcher.poll_now();
        watcher.snapshot()
    };
    tree.write("sys/fs/cgroup/serve.slice/engine.service/memory.max", b"8589934592\n");
    let own = read();
    assert_eq!(own.cgroup.map(|group| (group.depth, group.available())), Some((2, Some(Bytes::gib(7)))));
    assert_eq!(own.level, Level::Ok);
    // The parent is tighter, by its high mark.
    tree.write("sys/fs/cgroup/serve.slice/memory.high", b"1610612736\n");
    let parent = read();
    assert_eq!(parent.cgroup.map(|group| (group.depth, group.high)), Some((1, Some(Bytes::mib(1536)))));
    // 512 MiB are left, 230 of them reserve: more than the reserve above it.
    assert_eq!(parent.level, Level::Ok);
    tree.write("sys/fs/cgroup/serve.slice/memory.current", b"1395864371\n");
    assert_eq!(read().level, Level::Critical);
    // File cache that nobody uses is not pressure.
    tree.write("sys/fs/cgroup/serve.slice/memory.stat", b"anon 1\ninactive_file 536870912\n");
    assert_eq!(read().level, Level::Ok);
    // Stalls of the own group count as the machine's do.
    tree.write("sys/fs/cgroup/serve.slice/engine.service/memory.pressure", b"some avg10=11.00\nfull avg10=0.00\n");
    assert_eq!((read().level, read().psi.unwrap().some), (Level::Tight, Percent::whole(11)));
    assert_eq!(watcher.faults(), []);
}

#[test]
fn the_old_hierarchys_limits_count_as_well() {
    let tree = Tree::new();
    tree.write("proc/self/cgroup", b"4:memory:/jobs/one\n0::/serve.slice/engine.service\n");
    for (group, limit) in
        [("memory", "9223372036854771712"), ("memory/jobs", "8589934592"), ("memory/jobs/one", "4294967296")]
    {
        tree.write(&format!("sys/fs/cgroup/{group}/memory.limit_in_bytes"), limit.as_bytes());
        tree.write(&format!("sys/fs/cgroup/{group}/memory.usage_in_bytes"), b"1073741824\n");
    }
    let watcher = tree.watcher();
    let read = || {
        watcher.poll_now();
        watcher.snapshot().cgroup.map(|group| (group.depth, group.available()))
    };
    assert_eq!((read(), watcher.level(), watcher.faults()), (Some((2, Some(Bytes::gib(3)))), Level::Ok, vec![]));
    tree.write("sys/fs/cgroup/memory/jobs/memory.usage_in_bytes", b"8053063680\n");
    assert_eq!((read(), watcher.level()), (Some((1, Some(Bytes::mib(512)))), Level::Critical));
    tree.write("sys/fs/cgroup/memory/jobs/memory.stat", b"inactive_file 1\ntotal_inactive_file 4294967296\n");
    assert_eq!((read(), watcher.level()), (Some((2, Some(Bytes::gib(3)))), Level::Ok));
    // The unified group beside it is as tight as it says, too.
    tree.write("sys/fs/cgroup/serve.slice/memory.max", b"1073741824\n");
    assert_eq!((read(), watcher.level()), (Some((1, Some(Bytes::ZERO))), Level::Critical));
}

#[test]
fn device_feeds_make_levels_of_their_own() {
    let watcher = Watcher::new(Box::new(NoHost), Thresholds::default(), INTERVAL).unwrap();
    watcher.start().unwrap();
    assert!(watcher.faults()[0].to_string().contains("only fed devices make pressure"));
    assert_eq!(watcher.snapshot().host, None);
    let feed = |device, free| {
        let reading = DeviceReading { free: Bytes::mib(free), budget: Bytes::gib(16), used: Bytes::gib(1) };
        watcher.feed(device, reading).map(|()| watcher.level())
    };
    assert_eq!(feed(0, 8000), Ok(Level::Ok));
    assert_eq!(feed(15, 1500), Ok(Level::Watch));
    assert_eq!(feed(3, 1000), Ok(Level::Tight));
    assert_eq!(feed(16, 0), Err(NoSuchDevice(16)));
    assert_eq!(watcher.snapshot().fullest_device().map(|(index, _)| index), Some(3));
    assert_eq!(feed(3, 8000), Ok(Level::Watch));
    assert_eq!(feed(15, 8000), Ok(Level::Ok));
}

#[test]
fn bad_thresholds_and_intervals_are_refused() {
    let tree = Tree::new();
    let bad = Thresholds { host_tight_divisor: 0, ..Thresholds::default() };
    assert!(matches!(Watcher::new(tree.source(), bad, INTERVAL), Err(BadWatcher::Thresholds(_))));
    for interval in [Duration::ZERO, Duration::from_millis(9), Duration::from_secs(61)] {
        let error = Watcher::new(tree.source(), Thresholds::default(), interval).unwrap_err();
        assert_eq!(error, BadWatcher::Interval(interval));
    }
}

#[test]
fn impossible_files_are_faults_with_a_stated_fallback() {
    let cases: [(&str, &[u8], &str); 17] = [
        ("proc/meminfo", b"", "`MemTotal:` is not there"),
        ("proc/meminfo", b"MemTotal: 5 kB\n", "`MemAvailable:` is not there"),
        ("proc/meminfo", b"MemTotal: -5 kB\nMemAvailable: 1 kB\n", "`-5`"),
        ("proc/meminfo", b"MemTotal: 99999999999999999999999 kB\nMemAvailable: 1 kB\n", "more than a machine can have"),
        ("proc/meminfo", b"MemTotal: 1 kB\nMemAvailable: 2 kB\n", "more memory is available than there is"),
        ("proc/meminfo", b"\xff\xfe\x00MemTotal: 1 kB\n", "is not there"),
        ("proc/pressure/memory", b"", "`some` is not there"),
        ("proc/pressure/memory", b"some avg10=0.00\n", "`full` is not there"),
        ("proc/pressure/memory", b"some avg10=999.00\nfull avg10=0.00\n", "`999.00`"),
        ("proc/pressure/memory", b"some avg10=-1.00\nfull avg10=0.00\n", "`-1.00`"),
        ("proc/self/cgroup", b"", "the root group's limits count"),
        ("proc/self/cgroup", b"0::/../../host\n", "the root group's limits count"),
        ("proc/self/cgroup", b"0::/no/such/group\n", "the root group's limits count"),
        ("proc/self/cgroup", b"0::/\xff\xfe\n", "the root group's limits count"),
        ("sys/fs/cgroup/serve.slice/memory.max", b"lots\n", "it counts as no limit"),
        ("sys/fs/cgroup/serve.slice/memory.max", b"18446744073709551616\n", "it counts as no limit"),
        ("sys/fs/cgroup/serve.slice/memory.high", b"-1\n", "it counts as no limit"),
    ];
    for (file, content, says) in cases {
        let tree = Tree::new();
        tree.write(file, content);
        let watcher = tree.watcher();
        watcher.poll_now();
        let faults: Vec<_> = watcher.faults().iter().map(ToString::to_string).collect();
        assert_eq!(faults.len(), 1, "{faults:?}");
        assert!(faults[0].contains(file.rsplit('/').next().unwrap()) && faults[0].contains(says), "{faults:?}");
        assert_eq!(watcher.level(), Level::Ok);
    }
    let empty = Watcher::new(Box::new(ProcFiles::under(Path::new("/nowhere/at/all"))), Thresholds::default(), INTERVAL)
        .unwrap();
    empty.poll_now();
    let faults: Vec<_> = empty.faults().iter().map(ToString::to_string).collect();
    assert_eq!(faults.len(), 3, "{faults:?}");
    assert!(faults[0].contains("no memory cgroups here"), "{faults:?}");
}

#[test]
fn a_source_that_panics_leaves_the_watcher_usable() {
    struct Fails(bool);
    impl Source for Fails {
        fn sample(&mut self, sample: &mut Sample) {
            assert!(std::mem::replace(&mut self.0, true), "the first reading fails");
            sample.host = Some(HostReading { total: Bytes::gib(4), available: Bytes::ZERO });
        }
    }
    let watcher = Watcher::new(Box::new(Fails(false)), Thresholds::default(), INTERVAL).unwrap();
    let failed = thread::scope(|scope| scope.spawn(|| watcher.poll_now()).join().is_err());
    assert!(failed);
    watcher.poll_now();
    assert_eq!(watcher.level(), Level::Critical);
}

#[test]
fn the_lock_reads_what_was_written_and_counts() {
    let lock = SeqLock::new([1, 2]);
    let both = || lock.read(|words, seq| (words.at(0), words.at(1), words.at(2), seq));
    assert_eq!(both(), (1, 2, 0, 0));
    lock.write(&[3, 4]);
    lock.write(&[5]);
    assert_eq!(both(), (5, 4, 0, 2));
}

/// 10^7 reads against a writer that never rests; a tenth of that in a build that is not optimised.
#[test]
fn ten_million_reads_are_never_torn() {
    let reads = if cfg!(debug_assertions) { 1_000_000 } else { 10_000_000u32 };
    let (lock, done) = (Arc::new(SeqLock::new([0, 0, 0])), Arc::new(AtomicBool::new(false)));
    let writer = thread::spawn({
        let (lock, done) = (lock.clone(), done.clone());
        move || {
            let mut round = 0u64;
            while !done.load(Ordering::Relaxed) {
                round += 1;
                lock.write(&[round, !round, round.rotate_left(7)]);
            }
            round
        }
    });
    let mut last = 0;
    for _ in 0..reads {
        let (one, two, three, seq) = lock.read(|words, seq| (words.at(0), words.at(1), words.at(2), seq));
        // The first value is not of the pattern.
        let whole = seq == 0 || (two == !one && three == one.rotate_left(7));
        assert!(
            whole && one == seq && seq >= last,
            "torn, or backwards: {one} {two:x} {three:x} as {seq} after {last}"
        );
        last = seq;
    }
    done.store(true, Ordering::Relaxed);
    assert!(writer.join().unwrap() > 1000);
}

/// Nanoseconds of one call in the fastest of 500 batches: others run on this machine as well.
fn fastest(call: impl Fn()) -> f64 {
    let batch = || {
        let began = Instant::now();
        (0..5000).for_each(|_| call());
        began.elapsed().as_nanos() as f64 / 5000.0
    };
    (0..500).map(|_| batch()).fold(f64::MAX, f64::min)
}

/// Shown with `cargo test --release -p memtier --lib what_it_costs -- --nocapture --ignored`.
#[test]
#[ignore = "a measurement: wants an optimised build and a quiet machine"]
fn what_it_costs() {
    let watcher = Watcher::this_host();
    for devices in [0, 1, 2, 4, 16] {
        for device in 0..devices {
            let reading = DeviceReading { free: Bytes::gib(9), budget: Bytes::gib(16), used: Bytes::gib(1) };
            watcher.feed(device, reading).unwrap();
        }
        let best = fastest(|| {
            std::hint::black_box(&watcher.snapshot());
        });
        println!("snapshot with {devices:>2} devices: {best:.1} ns");
    }
    let best = (0..20).map(|_| {
        let before = watcher.cost();
        (0..200).for_each(|_| watcher.poll_now());
        let after = watcher.cost();
        (after.1 - before.1) / (after.0 - before.0) as u32
    });
    let each = best.min().unwrap();
    let share = each.as_secs_f64() / INTERVAL.as_secs_f64() * 100.0;
    println!("one poll: {each:?}, {share:.4} % of a core every {INTERVAL:?}");
    let reader = std::cell::RefCell::new(watcher.reader());
    let best = fastest(|| {
        std::hint::black_box(reader.borrow_mut().latest());
    });
    println!("reader with nothing new: {best:.1} ns");
    let best = fastest(|| {
        std::hint::black_box(watcher.level());
    });
    println!("level alone: {best:.1} ns");
}

/// Processor time of the watcher's thread, as the scheduler counted it. Shown with
/// `cargo test --release -p memtier --lib a_minute_of_watching -- --nocapture --ignored`.
#[test]
#[cfg(target_os = "linux")]
#[ignore = "a measurement: takes a minute"]
fn a_minute_of_watching_costs_less_than_a_thousandth_of_a_core() {
    let watcher = Watcher::this_host();
    watcher.start().unwrap();
    // A thread names itself when it starts to run.
    thread::sleep(INTERVAL);
    let mut threads = fs::read_dir("/proc/self/task").unwrap().map(|thread| thread.unwrap().path());
    let named =
        |thread: &PathBuf| fs::read_to_string(thread.join("comm")).is_ok_and(|name| name.trim() == "memtier-watch");
    let thread = threads.find(named).unwrap();
    let ran = || {
        let text = fs::read_to_string(thread.join("schedstat")).unwrap();
        Duration::from_nanos(text.split_whitespace().next().unwrap().parse().unwrap())
    };
    let (before, began, polls) = (ran(), Instant::now(), watcher.cost().0);
    thread::sleep(Duration::from_secs(60));
    let (used, over) = (ran() - before, began.elapsed());
    let share = used.as_secs_f64() / over.as_secs_f64();
    println!("{used:?} in {over:?}, {} polls: {:.4} % of a core", watcher.cost().0 - polls, share * 100.0);
    assert!(share < 0.001, "{share}");
}
