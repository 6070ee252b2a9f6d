//! Memory policy: who decides what may be used, what is given up when memory is short, and who may start.
//!
//! Four modules, each of use without the others, and the reference engine takes all of them:
//!
//! | Module | Decides | Example |
//! |---|---|---|
//! | [`account`](crate::account) | what a backend may use, before it is asked | `08-recycle` |
//! | [`cache`](crate::cache) | how much freed memory may be kept for the next request | `08-recycle` |
//! | [`pressure`](crate::pressure) | how short memory is, and what is given up at which level | `09-pressure` |
//! | [`admission`](crate::admission) | who may start, with how much of the prompt, or when to ask again | `09-pressure` |
//!
//! What decides is a function of values: a budget from what the device answered, a level from a reading, limits from a level,
//! a verdict from limits, a request and a snapshot. What changes the world is thin, and acts only where new state is
//! created: no rung moves or frees what a step in flight reads.
//!
//! # The engine's flags
//!
//! ```text
//! --vram-budget SIZE      what may be used of the device; the plan's budget is never more
//! --max-slots N           requests that run at once; the others wait in order
//! --queue N               how many may wait; the next one is told when to ask again
//! --pressure-config FILE  thresholds, ladder and admission, one `key = value` a line
//! --cost-anchors FILE     what prompts cost the host, as `memtier-engine measure-anchors` measured it
//! --kv-low q8_0           a second pool, of smaller keys and values, for requests that start while memory is short
//! --graphs N              decode passes recorded at load and replayed, one for each number of requests
//! --cut-to N              a prompt's last N tokens are better than a refusal
//! ```
//!
//! Nothing is printed while nothing was decided. Otherwise the report has one line for each decision:
//!
//! ```text
//! Memory policy
//!   budget: 512 MiB, by --vram-budget
//!   limits: tight: slots 4 -> 2, prefill window 2048 -> 1024 tokens, cached blocks are evicted
//!   prefill chunk: 512 -> 256 tokens
//!   cache: 12 blocks given up at tight
//!   request 2: waits, all 2 slots are taken
//!   request 3: starts with the last 1024 tokens of 1400
//!   request 4: refused: the host's memory is at its reserve; try again in 1 s
//! ```
//!
//! # The file
//!
//! Every threshold of [`Thresholds`](crate::pressure::Thresholds), every rung of [`Rungs`](crate::pressure::Rungs) and the
//! queue's levels have a key; [`Settings::keys`](crate::admission::Settings::keys) lists them. Sizes have units, shares are
//! percentages, switches are `on` and `off`. A typo is an error with the key that was probably meant, and all errors are
//! reported at once.
//!
//! ```
//! let settings = memtier::admission::Settings::parse("
//!     cgroup.reserve_min = 128 MiB  # below the limit of our cgroup
//!     psi.some_tight     = 20       # percent of the last ten seconds
//!     slots.at           = critical # keep all slots while it is only tight
//!     queue.hold_at      = tight    # after a refusal, new work waits until it is less
//! ").unwrap();
//! assert!(settings.ladder().is_ok());
//! ```
//!
//! # What is read
//!
//! On Linux `/proc/meminfo`, `/proc/pressure/memory`, and the memory limits of every cgroup from the own one to the root, in
//! the unified hierarchy and in the old one's memory controller; the tightest counts. Four times a second, on one thread for
//! the process. What is missing or impossible is no pressure, and [`Watcher::faults`](crate::pressure::Watcher::faults) says
//! so. Elsewhere only what devices are fed makes pressure. A reading that finds what the one before found takes nothing
//! from the heap, so an engine that counts allocations while it serves counts none of the watcher's.
//!
//! What a plan has set aside on a device cannot run out, so the engine feeds no device of its own: a device is fed by whoever
//! shares its memory with others.
//!
//! # What each rung does in the engine
//!
//! * **Slots**: requests that run go on; none follows while as many run as the rung leaves.
//! * **Prefill window**: a longer prompt is cut, if its request allows that, or told when to ask again; and the chunk of a
//!   pass is reduced in the same share. A prompt is never answered differently for being prefilled in smaller chunks.
//! * **Cached blocks**: whoever holds blocks that no request needs is asked to give up all of them, between two passes.
//! * **KV element type**: with `--kv-low q8_0` a second pool is planned, with its own page table, and requests that start at
//!   WATCH or above have their keys and values there, in little more than half the bytes. What runs keeps its own, and both
//!   kinds share passes. The pool commits memory when somebody needs it. Any [smaller type](super::kv_types) will do, on the CPU.
//!   Without the flag the rung reduces nothing; a `kv.to` that no pool holds is refused when the engine opens.
//!
//! After a refusal at TIGHT or above, new work waits until the level is below TIGHT; at CRITICAL who waits is sent away with
//! a time to ask again. Nobody has to say that it is over. A request that could never run is refused when it comes.
//!
//! # What a prompt costs
//!
//! Admission charges a prompt its KV state and an activation peak. The peak comes from measurements, interpolated: run
//! `memtier-engine measure-anchors --model-file FILE > anchors.txt` once for a model, a machine and the flags that it is
//! served with. Without them the engine takes its own formula for the scratch of a pass, which is exact and therefore above
//! what is measured: pages that a pass does not touch are not resident.
//!
//! # What it costs
//!
//! Measured on 2026-11-29 on two cores of an AMD EPYC (Zen 4) that other work was running on; the commands print them again.
//!
//! | | | |
//! |---|---|---|
//! | a snapshot, copied whole, of up to 4 devices | 17 to 19 ns (16 devices: 24 ns) | `cargo test --release -p memtier --lib what_it_costs -- --ignored --nocapture` |
//! | the same through a [`SnapshotReader`](crate::pressure::SnapshotReader), nothing new | 0.8 ns | the same |
//! | all that a step does for the policy | 12 ns at least, 43 ns median | `cargo run --release -p memtier-bench policy` |
//! | the watcher's thread | 41.8 ms in a minute, 0.07 % of a core | `cargo test --release -p memtier --lib a_minute -- --ignored --nocapture` |
//! | from a signal to its effect on steps, in a cgroup of 512 MiB | 137 and 178 ms, the slowest of four in two runs | `cargo test -p memtier-engine --test cgroup -- --nocapture` |
//! | the same over a tree of files | 257 ms, the slowest of seven | `cargo test -p memtier-engine --test engine policy:: -- --nocapture` |
//! | a block of SmolLM2 135M, 16 tokens | 368,640 bytes in f16, 195,840 in q8_0 | `memtier-engine demo --kv-low q8_0` |
