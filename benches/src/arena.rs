//! Bump allocation: one take from an arena, one take from scratch.

use std::alloc::Layout;
use std::error::Error;
use std::hint::black_box;
use std::time::{Duration, Instant};

use bumpalo::Bump;

use crate::serving::{ROWS, TAKE, TAKES, planned, serving};
use crate::timing::Bench;

/// Alignment of a take, as device buffers have it.
const ALIGN: usize = 256;

/// One buffer of a bundle: carving takes all of them from the arena and makes the owners that the engine keeps.
pub(crate) fn take() -> Result<Bench, Box<dyn Error>> {
    // What `carve` cannot report.
    let _ = planned()?;
    Ok(Bench::new("arena take (a field carved)")
        .with_clock("memtier", carve)
        .with("bumpalo", bumpalo_takes(ROWS as u64))
        .with("bumpalo, pushing each into a Vec", bumpalo_kept()))
}

/// One take from scratch, rewound after a layer's worth.
pub(crate) fn scratch() -> Result<Bench, Box<dyn Error>> {
    let (mut engine, mut stream) = serving()?;
    let takes = move |n| {
        let Ok(mut step) = engine.step(&mut stream) else { return };
        in_rounds(n, TAKES, |round| {
            let mut frame = step.scratch.nested();
            for _ in 0..round {
                black_box(frame.take::<f32>(black_box(TAKE / size_of::<f32>())).is_ok());
            }
        });
    };
    Ok(Bench::new("scratch take").with("memtier", takes).with("bumpalo", bumpalo_takes(TAKES)))
}

/// Carves as many whole bundles as `n` buffers need. Opening the arenas is the plan's work and is not counted.
fn carve(n: u64) -> Duration {
    let mut spent = Duration::ZERO;
    let bundles = n.div_ceil(ROWS as u64);
    for _ in 0..bundles {
        let Ok((engine, (lines, _))) = planned() else { return Duration::MAX };
        let start = Instant::now();
        let carved = black_box(engine.carve(lines));
        spent += start.elapsed();
        drop(carved);
    }
    spent.mul_f64(n as f64 / (bundles * ROWS as u64) as f64)
}

fn layout() -> Layout {
    Layout::from_size_align(TAKE, ALIGN).unwrap_or_else(|_| Layout::new::<u8>())
}

fn bumpalo_takes(between_resets: u64) -> impl FnMut(u64) {
    let mut bump = Bump::with_capacity((TAKE + ALIGN) * between_resets as usize);
    move |n| {
        in_rounds(n, between_resets, |round| {
            for _ in 0..round {
                black_box(bump.alloc_layout(black_box(layout())));
            }
            bump.reset();
        });
    }
}

/// As the engine needs it: the addresses are kept, each with its length.
fn bumpalo_kept() -> impl FnMut(u64) {
    let mut bump = Bump::with_capacity((TAKE + ALIGN) * ROWS);
    move |n| {
        in_rounds(n, ROWS as u64, |round| {
            let mut kept = Vec::with_capacity(ROWS);
            for _ in 0..round {
                kept.push((bump.alloc_layout(black_box(layout())), TAKE));
            }
            black_box(&kept);
            bump.reset();
        });
    }
}

fn in_rounds(mut n: u64, most: u64, mut round: impl FnMut(u64)) {
    while n > 0 {
        let count = n.min(most);
        round(count);
        n -= count;
    }
}
