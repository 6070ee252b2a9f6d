//! Whether a request may start, with how much of its prompt, or when to ask again; and whether a model may be loaded.
//!
//! [`Admission::decide`] is a function of a request, the limits that the ladder leaves, and a snapshot. An
//! [`AdmissionQueue`] lets requests wait in order and holds them while memory is short. All of it together, as a serve loop
//! has it:
//!
//! ```
//! use memtier::admission::{AdmissionQueue, CostModel, Next, Request, Settings};
//! use memtier::plan::KvDtype;
//! use memtier::pressure::{DeviceReading, LimitLatch, ServeLimits, Watcher, this_host};
//! use memtier::{Bytes, Tokens};
//!
//! // The operator's file, and the engine's own configuration.
//! let settings = Settings::parse("psi.full_critical = 20\n").unwrap();
//! let config = ServeLimits { slots: 4, prefill_window: Tokens::new(8192), kv: KvDtype::F16, evict_cached: false };
//! let (ladder, capacity) = (settings.ladder().unwrap(), Tokens::new(32_768));
//! let admission = settings.admission(CostModel::from_shape(32, 4096)?, capacity);
//! let watcher = Watcher::new(this_host(), settings.thresholds, settings.poll)?;
//! watcher.start()?;
//!
//! let mut reader = watcher.reader();
//! let mut queue = AdmissionQueue::new(64, settings.backpressure()?);
//! let mut latch = LimitLatch::new(ladder.limits(watcher.level(), &config));
//!
//! // A request comes in. One that could never run is told so here, and blocks nobody.
//! let request = |prompt| Request::on_device(Tokens::new(prompt), Tokens::new(256));
//! let snapshot = reader.latest();
//! queue.push(request(900), "a question", &admission, &config, snapshot).unwrap();
//! let (_, refused) = queue.push(request(40_000), "a book", &admission, &config, snapshot).unwrap_err();
//! assert_eq!(refused.retry_after, None);
//!
//! // Each turn of the serve loop: feed the device, look once, decide by what was seen.
//! let mut running = 0;
//! for _turn in 0..3 {
//!     watcher.feed(0, DeviceReading { free: Bytes::gib(9), budget: Bytes::gib(15), used: Bytes::gib(6) })?;
//!     let snapshot = reader.latest();
//!     latch.propose(ladder.limits(snapshot.level, &config));
//!     loop {
//!         match queue.next(&admission, latch.current(), running, snapshot) {
//!             Next::Run(name, window) => {
//!                 println!("{name}: prefill {window}, {}", latch.current());
//!                 running += 1;
//!             }
//!             Next::Refused(name, why) => println!("{name}: 503, {why}"),
//!             Next::Held | Next::SlotsTaken | Next::Empty => break,
//!         }
//!     }
//!     let step = latch.begin();
//!     // ... decode with `step.limits()`: nothing that holds for this step changes under it ...
//!     latch.end(step);
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod cost;
mod decide;
mod load;
mod queue;
mod refusal;
mod settings;
#[cfg(test)]
mod tests;

pub use cost::{BadAnchors, CostModel, KV_BYTES_PER_TOKEN_FP32, KV_BYTES_PER_TOKEN_Q4};
pub use decide::{Admission, AdmissionConfig, Request, Residence, Verdict};
pub use load::ModelLoad;
pub use queue::{AdmissionQueue, Backpressure, BadBackpressure, Gate, Next};
pub use refusal::{LoadRefusal, Place, Reason, Refusal};
pub use settings::{BadSetting, Settings};
