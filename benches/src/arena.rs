//! Bump allocation: one take from an arena, one take from scratch.

use std::alloc::Layout;
use std::hint::black_box;

use bumpalo::Bump;

use crate::timing::Bench;

/// Bytes of one take: an activation row.
const TAKE: usize = 4096;
/// Takes between two rewinds: a layer's worth.
const TAKES: u64 = 64;
/// What the takes come from.
const ARENA: usize = TAKE * (TAKES as usize + 1);
/// Alignment of a take, as device buffers have it.
const ALIGN: usize = 256;

/// One take, the arena opened anew after a layer's worth.
pub(crate) fn take() -> Bench {
    Bench::new("arena take").with("bumpalo", bumpalo_takes())
}

/// One take from scratch, rewound after a layer's worth.
pub(crate) fn scratch() -> Bench {
    Bench::new("scratch take").with("bumpalo", bumpalo_takes())
}

fn bumpalo_takes() -> impl FnMut(u64) {
    let mut bump = Bump::with_capacity(ARENA + ALIGN);
    let layout = Layout::from_size_align(TAKE, ALIGN).unwrap_or_else(|_| Layout::new::<u8>());
    move |n| {
        let mut left = n;
        while left > 0 {
            let round = left.min(TAKES);
            for _ in 0..round {
                black_box(bump.alloc_layout(black_box(layout)));
            }
            bump.reset();
            left -= round;
        }
    }
}
