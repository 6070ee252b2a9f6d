//! What the types cost: nothing when a kernel runs, a little when a step is launched, something when a crate is compiled.
//!
//! # At run time
//!
//! `cargo test -p ui-tests --test zero_cost` compiles pairs of functions optimised, one through memtier's types and one with raw
//! pointers, and compares their instructions (`MEMTIER_UI_SHOW=1` prints them; `ui-tests/tests/zero_cost/pairs.rs` is the source).
//! On x86-64 with the pinned compiler, 2026-11-29:
//!
//! | Pair | Typed | Raw | Difference |
//! |---|---|---|---|
//! | `pack`: the arguments of a launch, three spans and a number, as `#[kernel]` packs them | 9 | 9 | none |
//! | `access`: spans to slices, and a vectorised `out += factor * x` over them | 63 | 63 | none |
//! | `take`: a span from the scratch stack | 44 | 39 | the high-water mark of reports: three loads, a comparison, a store |
//! | `operation`: a whole `host_op` around a call | 81 | 12 | the checks below, and their errors |
//!
//! The packing is this, typed and raw:
//!
//! ```text
//! movq (%rsi), %rax     // the address of `out`
//! movq (%rdx), %rdx     // of `x`
//! movq (%rcx), %rcx     // of `weight`
//! movl %r8d, %esi       // a number, as a word
//! movq %rax, (%r9)
//! movq %rdx, 8(%r9)
//! movq %rcx, 16(%r9)
//! movq %rsi, 24(%r9)
//! retq
//! ```
//!
//! An operation pays once per launch, whatever its size. In order: whether the recorder is a capture (a load, a branch); whether
//! the step is open (two loads and a branch, and again when its end can no longer come in between); whether each span is of this stream (a comparison each); whether a replay runs that
//! would reach the same memory (an atomic increment before, a decrement after). Some 50 of the 81 run when nothing is wrong; the
//! others write errors and unwind.
//!
//! # At compile time
//!
//! `cargo xtask bench compile-time` checks 100 annotated structs of 20 fields, beside a crate that holds what the macros wrote for
//! them. So the difference is what it costs to run the macros. On a two-core AMD EPYC that was busy with other work, five repetitions in
//! turns, 2026-11-29, in CPU seconds of `cargo check`:
//!
//! | | Annotated | Written out | Ratio |
//! |---|---|---|---|
//! | from nothing | 3.54 (3.45..3.75) | 2.77 (2.64..3.01) | 1.28 |
//! | after an edit, incrementally | 1.74 (1.66..1.79) | 1.00 (0.94..1.06) | 1.74 |
//!
//! Incrementally the compiler skips most of its work and runs the macros all the same: 0.7 s for 2000 fields. They are built without
//! optimisation, as all macros are in the `dev` profile.
