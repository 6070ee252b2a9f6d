//! The thread that reads, and the value it publishes.

use std::{
    fmt, io,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
        mpsc,
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use super::{
    level::{Level, derive_level},
    reading::{DeviceReading, Devices, NoSuchDevice},
    seqlock::SeqLock,
    snapshot::{Snapshot, WORDS, level_of},
    source::{Fault, Sample, Source, this_host},
    thresholds::{BadThresholds, Thresholds},
};

/// How often the host is read: 250 ms, so that a signal has an effect within 300.
pub const INTERVAL: Duration = Duration::from_millis(250);
/// Shorter intervals cost more than a thousandth of a core, longer ones miss what they are for.
const INTERVALS: [Duration; 2] = [Duration::from_millis(10), Duration::from_secs(60)];

/// Why a watcher was not made.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BadWatcher {
    /// The thresholds contradict each other.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Thresholds(Vec<BadThresholds>),
    /// The interval is too short or too long.
    #[error("an interval of {0:?}: from 10 ms to 60 s are possible")]
    Interval(Duration),
}

/// Reads host memory, stalls and cgroups on a thread of its own, takes what devices are fed, and publishes both as a
/// [`Snapshot`] that any thread copies when it likes.
///
/// Readers take no lock: they never wait for each other, never block the writer, and try again if it was at work. One
/// watcher serves a process; put it in an `Arc`.
///
/// ```
/// use memtier::Bytes;
/// use memtier::pressure::{DeviceReading, Level, Watcher};
///
/// let watcher = Watcher::this_host();
/// watcher.start()?; // reads once before it returns, so the next line has real numbers
/// println!("host {:?}", watcher.snapshot().host);
/// watcher.feed(0, DeviceReading { free: Bytes::mib(900), budget: Bytes::gib(31), used: Bytes::gib(30) })?;
/// assert!(watcher.snapshot().level >= Level::Tight);
/// for fault in watcher.faults() {
///     eprintln!("{fault}");
/// }
/// watcher.stop();
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Watcher {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct Shared {
    published: SeqLock<WORDS>,
    thresholds: Thresholds,
    interval: Duration,
    made: Instant,
    /// Read under a lock of its own, so that a feed does not wait for files; with the sample that is being read.
    source: Mutex<(Box<dyn Source>, Sample)>,
    /// What the next snapshot is made of. The writers' lock; readers never take it.
    known: Mutex<Known>,
    stopping: Mutex<bool>,
    stopped: Condvar,
    polls: AtomicU64,
    nanos: AtomicU64,
}

#[derive(Default)]
struct Known {
    sample: Sample,
    devices: Devices,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A source of the engine's may have panicked; what it left is replaced at the next poll.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Watcher {
    /// A watcher of this host with the default thresholds, every 250 ms. It reads nothing until it is started or polled.
    pub fn this_host() -> Self {
        Self::make(this_host(), Thresholds::default(), INTERVAL)
    }

    /// A watcher of `source`.
    ///
    /// # Errors
    /// [`BadWatcher`]: thresholds or an interval that make no sense are refused.
    pub fn new(source: Box<dyn Source>, thresholds: Thresholds, interval: Duration) -> Result<Self, BadWatcher> {
        thresholds.check().map_err(BadWatcher::Thresholds)?;
        if interval < INTERVALS[0] || interval > INTERVALS[1] {
            return Err(BadWatcher::Interval(interval));
        }
        Ok(Self::make(source, thresholds, interval))
    }

    fn make(source: Box<dyn Source>, thresholds: Thresholds, interval: Duration) -> Self {
        let shared = Shared {
            published: SeqLock::new(Snapshot::default().encode().0),
            thresholds,
            interval,
            made: Instant::now(),
            source: Mutex::new((source, Sample::default())),
            known: Mutex::default(),
            stopping: Mutex::new(false),
            stopped: Condvar::new(),
            polls: AtomicU64::new(0),
            nanos: AtomicU64::new(0),
        };
        Watcher { shared: Arc::new(shared), thread: Mutex::new(None) }
    }

    /// Reads once, then starts the thread. Does nothing when it runs already; starts again after a stop.
    ///
    /// # Errors
    /// What the system said when it had no thread for us. Snapshots then stay at this first reading.
    pub fn start(&self) -> io::Result<()> {
        let mut thread = lock(&self.thread);
        if thread.as_ref().is_some_and(|thread| !thread.is_finished()) {
            return Ok(());
        }
        *lock(&self.shared.stopping) = false;
        self.poll_now();
        let shared = self.shared.clone();
        // What a thread takes from the heap when it begins, it takes before this returns: an engine may count from here on.
        let (begun, begins) = mpsc::sync_channel(1);
        let run = move || {
            let _ = begun.send(());
            drop(begun);
            shared.run();
        };
        *thread = Some(thread::Builder::new().name("memtier-watch".into()).spawn(run)?);
        let _ = begins.recv();
        Ok(())
    }

    /// Stops the thread and waits until it has ended. Does nothing when none runs.
    pub fn stop(&self) {
        let mut thread = lock(&self.thread);
        *lock(&self.shared.stopping) = true;
        self.shared.stopped.notify_all();
        if let Some(thread) = thread.take() {
            // A panic in the engine's own source was printed when it happened.
            let _ = thread.join();
        }
    }

    /// Whether the thread runs.
    pub fn running(&self) -> bool {
        lock(&self.thread).as_ref().is_some_and(|thread| !thread.is_finished())
    }

    /// Reads now, on the calling thread, and publishes before it returns.
    pub fn poll_now(&self) {
        self.shared.poll();
    }

    /// Says what a device has left, and publishes. For whoever owns the device: after each query of the driver.
    ///
    /// # Errors
    /// [`NoSuchDevice`] above 15.
    pub fn feed(&self, device: usize, reading: DeviceReading) -> Result<(), NoSuchDevice> {
        let mut known = lock(&self.shared.known);
        known.devices.feed(device, reading)?;
        self.shared.publish(&known);
        Ok(())
    }

    /// A reader that keeps its copy: for a serve loop, which looks far more often than anything changes.
    pub fn reader(&self) -> SnapshotReader {
        SnapshotReader { latest: self.snapshot(), shared: self.shared.clone() }
    }

    /// What is known now. Takes no lock. Half a kilobyte is copied, which takes 17 to 33 ns.
    #[inline]
    pub fn snapshot(&self) -> Snapshot {
        self.shared.published.read(Snapshot::decode)
    }

    /// The level alone: one load.
    #[inline]
    pub fn level(&self) -> Level {
        level_of(self.shared.published.peek(0))
    }

    /// The thresholds.
    pub fn thresholds(&self) -> &Thresholds {
        &self.shared.thresholds
    }

    /// What the last reading could not read, and what is done instead.
    pub fn faults(&self) -> Vec<Fault> {
        lock(&self.shared.known).sample.faults.to_vec()
    }

    /// How often the host was read, and how long that took in all.
    pub fn cost(&self) -> (u64, Duration) {
        let nanos = self.shared.nanos.load(Ordering::Relaxed);
        (self.shared.polls.load(Ordering::Relaxed), Duration::from_nanos(nanos))
    }
}

/// A thread's own copy of the latest [`Snapshot`], made again only when something was published since.
///
/// Looking costs one load while nothing was. It outlives the watcher, and then stays at the last snapshot.
///
/// ```
/// use memtier::pressure::{Level, Watcher};
///
/// let watcher = Watcher::this_host();
/// let mut reader = watcher.reader();
/// assert_eq!(reader.latest().seq, 0);
/// watcher.poll_now();
/// assert_eq!(*reader.latest(), watcher.snapshot());
/// ```
pub struct SnapshotReader {
    shared: Arc<Shared>,
    latest: Snapshot,
}

impl SnapshotReader {
    /// What is known now. Takes no lock.
    #[inline]
    pub fn latest(&mut self) -> &Snapshot {
        let published = &self.shared.published;
        if published.writes() != self.latest.seq {
            self.latest = published.read(Snapshot::decode);
        }
        &self.latest
    }
}

impl fmt::Debug for SnapshotReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SnapshotReader").field(&self.latest).finish()
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.stop();
    }
}

impl fmt::Debug for Watcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watcher").field("running", &self.running()).field("snapshot", &self.snapshot()).finish()
    }
}

impl Shared {
    fn run(&self) {
        let mut stopping = lock(&self.stopping);
        loop {
            let waited = self.stopped.wait_timeout_while(stopping, self.interval, |stopping| !*stopping);
            let (guard, _) = waited.unwrap_or_else(PoisonError::into_inner);
            if *guard {
                return;
            }
            drop(guard);
            self.poll();
            stopping = lock(&self.stopping);
        }
    }

    fn poll(&self) {
        // Held until the reading is published: of two polls at a time, the one that read last also publishes last.
        let mut reading = lock(&self.source);
        let began = Instant::now();
        let (source, sample) = &mut *reading;
        source.sample(sample);
        {
            let mut known = lock(&self.known);
            let Sample { host, psi, cgroup, faults } = &*sample;
            (known.sample.host, known.sample.psi, known.sample.cgroup) = (*host, *psi, *cgroup);
            known.sample.faults.clone_from(faults);
            self.publish(&known);
        }
        self.polls.fetch_add(1, Ordering::Relaxed);
        let nanos = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.nanos.fetch_add(nanos, Ordering::Relaxed);
    }

    /// The caller holds the writers' lock: `known` is behind it.
    fn publish(&self, known: &Known) {
        let Sample { host, psi, cgroup, .. } = known.sample;
        let devices = known.devices.iter().map(|(_, reading)| reading);
        let level = derive_level(host.as_ref(), psi.as_ref(), cgroup.as_ref(), devices, &self.thresholds);
        let snapshot = Snapshot { level, seq: 0, at: self.made.elapsed(), host, psi, cgroup, devices: known.devices };
        let (words, used) = snapshot.encode();
        self.published.write(&words[..used]);
    }
}
