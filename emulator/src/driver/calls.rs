//! What every function of the driver does first and last: is it initialised, is there a context, is it lost, does the call fail because
//! somebody said so.

use std::{
    cell::Cell,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError},
};

use cudarc::driver::sys::CUresult as R;

use crate::ptx;

use super::{
    books::Books,
    capture::Captures,
    error::{Failure, Outcome, ensure},
    events::Events,
    faults::Faults,
    graphs::Graphs,
    modules::Modules,
    settings::Settings,
    space::Space,
    streams::Streams,
};

/// The driver of this process.
pub(super) struct Driver {
    pub(super) settings: Settings,
    faults: Faults,
    pub(super) space: Space,
    /// How kernels are run.
    pub(super) options: ptx::Options,
    state: Mutex<State>,
    changed: Condvar,
}

/// Everything that calls and streams change.
pub(super) struct State {
    /// References to the primary context.
    pub(super) retained: u32,
    /// Why the context is lost.
    pub(super) lost: Option<Failure>,
    /// Streams that run something now.
    pub(super) running: u32,
    /// Whether streams begin nothing.
    pub(super) held: bool,
    pub(super) books: Books,
    pub(super) streams: Streams,
    pub(super) events: Events,
    pub(super) modules: Modules,
    pub(super) graphs: Graphs,
    pub(super) captures: Captures,
    handles: u64,
}

impl State {
    /// A handle that was never given before, and never is again.
    pub(super) fn handle(&mut self) -> u64 {
        self.handles += 16;
        self.handles
    }
}

/// The one context: its handle.
pub(super) const CONTEXT: u64 = 0xc0;

thread_local! {
    /// The thread's context, or zero.
    pub(super) static CURRENT: Cell<u64> = const { Cell::new(0) };
}

static DRIVER: OnceLock<Driver> = OnceLock::new();

/// Starts the driver, once.
pub(super) fn start() -> Outcome {
    if DRIVER.get().is_none() {
        let driver = Driver::open().map_err(|why| {
            eprintln!("memtier emulated GPU: {why}");
            Failure::from(R::CUDA_ERROR_OPERATING_SYSTEM)
        })?;
        // Another thread may have been first: then its driver stays.
        let _ = DRIVER.set(driver);
    }
    driver().map(drop)
}

pub(super) fn driver() -> Outcome<&'static Driver> {
    DRIVER.get().ok_or(R::CUDA_ERROR_NOT_INITIALIZED.into())
}

impl Driver {
    fn open() -> Result<Self, String> {
        let settings = Settings::read()?;
        let faults = Faults::of(&std::env::var("MEMTIER_EMULATED_FAULTS").unwrap_or_default())?;
        let books = Books::open(settings.memory, settings.poison).map_err(|error| error.to_string())?;
        let state = State {
            retained: 0,
            lost: None,
            running: 0,
            held: false,
            books,
            streams: Streams::default(),
            events: Events::default(),
            modules: Modules::default(),
            graphs: Graphs::default(),
            captures: Captures::default(),
            handles: 0x1000,
        };
        let (space, options, state) = (Space::default(), ptx::Options::from_env(), Mutex::new(state));
        Ok(Driver { settings, faults, space, options, state, changed: Condvar::new() })
    }

    pub(super) fn lock(&'static self) -> Inside {
        Inside { driver: self, state: Some(self.state.lock().unwrap_or_else(PoisonError::into_inner)) }
    }
}

/// The state, locked.
pub(super) struct Inside {
    pub(super) driver: &'static Driver,
    /// Absent only inside of `wait`.
    state: Option<MutexGuard<'static, State>>,
}

impl std::ops::Deref for Inside {
    type Target = State;

    fn deref(&self) -> &State {
        self.state.as_ref().expect("locked outside of `wait`")
    }
}

impl std::ops::DerefMut for Inside {
    fn deref_mut(&mut self) -> &mut State {
        self.state.as_mut().expect("locked outside of `wait`")
    }
}

impl Inside {
    /// Lets go of the state until something changed.
    pub(super) fn wait(&mut self) {
        if let Some(state) = self.state.take() {
            self.state = Some(self.driver.changed.wait(state).unwrap_or_else(PoisonError::into_inner));
        }
    }

    pub(super) fn wake(&self) {
        self.driver.changed.notify_all();
    }

    /// The context is there and not lost.
    pub(super) fn alive(&self) -> Outcome {
        ensure(CURRENT.get() == CONTEXT && self.retained > 0, R::CUDA_ERROR_INVALID_CONTEXT)?;
        self.lost.map_or(Ok(()), Err)
    }

    /// Both halves at once.
    pub(super) fn parts(&mut self) -> (&mut State, &'static Driver) {
        let driver = self.driver;
        (&mut **self, driver)
    }

    /// What was left for when nothing runs.
    pub(super) fn sweep(&mut self) {
        if self.running == 0 {
            self.books.sweep();
        }
    }
}

fn guarded(work: impl FnOnce() -> Outcome) -> u32 {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(())) => 0,
        Ok(Err(Failure(code))) => code,
        Err(_) => R::CUDA_ERROR_UNKNOWN as u32,
    }
}

/// A call that needs no driver.
pub(super) fn anywhere(work: impl FnOnce() -> Outcome) -> u32 {
    guarded(work)
}

/// A call that needs the driver to be initialised.
pub(super) fn initialised(name: &str, work: impl FnOnce(&mut Inside) -> Outcome) -> u32 {
    guarded(|| {
        let driver = driver()?;
        driver.faults.hit(name).map_or(Ok(()), |code| Err(Failure(code)))?;
        work(&mut driver.lock())
    })
}

/// A call that needs a context that is not lost.
pub(super) fn in_context(name: &str, work: impl FnOnce(&mut Inside) -> Outcome) -> u32 {
    initialised(name, |inside| {
        inside.alive()?;
        work(inside)
    })
}

/// Writes a result where the caller wants it.
///
/// # Safety
/// `to` is null, or valid for a write.
pub(super) unsafe fn put<T>(to: *mut T, value: T) -> Outcome {
    ensure(!to.is_null(), R::CUDA_ERROR_INVALID_VALUE)?;
    // SAFETY: not null, and by the caller valid.
    unsafe { to.write(value) };
    Ok(())
}

/// A handle as the caller sees it.
pub(super) fn pointer<T>(handle: u64) -> *mut T {
    std::ptr::without_provenance_mut(handle as usize)
}
