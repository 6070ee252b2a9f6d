//! A block: its warps take turns, each until it waits for the others.

use super::{
    Grid,
    memory::Range,
    shared::Shared,
    unmarked,
    warp::{Env, Stop, Trap, Warp},
};
use crate::ptx::{Counts, Fault, Trouble};

/// What runs one block after another.
pub(super) struct Block<'a> {
    warps: Vec<Warp>,
    env: Env<'a>,
}

impl<'a> Block<'a> {
    pub(super) fn new(grid: &'a Grid<'a>) -> Self {
        let (function, launch) = (grid.function, grid.launch);
        let threads = launch.block.iter().product::<u32>();
        let local_bytes = (function.local as usize).next_multiple_of(16);
        let warp = |index: u32| Warp::new(&function.code, index, threads - 32 * index, local_bytes);
        // Dynamic memory begins behind what the kernel declares.
        let fixed = function.shared.next_multiple_of(function.shared_align.max(1)) as usize;
        let env = Env {
            code: &function.code,
            constants: &grid.constants,
            launch,
            memory: grid.memory,
            shared: Shared::new(fixed + launch.dynamic_shared as usize, grid.options.racecheck),
            ranges: vec![Range::default(); function.code.instructions.len()],
            local_bytes,
            block: [0; 3],
            epoch: 1,
            counts: Counts::default(),
            left: 0,
        };
        Self { warps: (0..threads.div_ceil(32)).map(warp).collect(), env }
    }

    pub(super) fn counts(&self) -> Counts {
        self.env.counts
    }

    /// Runs a block to its end.
    pub(super) fn run(&mut self, index: [u32; 3], grid: &Grid<'_>) -> Result<(), Fault> {
        let env = &mut self.env;
        (env.block, env.epoch, env.left) = (index, 1, grid.options.steps);
        env.shared.clear();
        self.warps.iter_mut().for_each(Warp::reset);
        let mut stops = vec![Stop::Done; self.warps.len()];
        loop {
            for (warp, stop) in self.warps.iter_mut().zip(&mut stops) {
                *stop = match warp.run(&mut self.env) {
                    Ok(stop) => stop,
                    Err(trap) => return Err(fault(&self.env, warp, trap, grid)),
                };
            }
            if stops.iter().all(|it| *it == Stop::Done) {
                return Ok(());
            }
            self.barrier(&stops).map_err(|(warp, trap)| fault(&self.env, &self.warps[warp], trap, grid))?;
            self.env.epoch += 1;
            self.env.counts.barriers += 1;
        }
    }

    /// All threads of the block must have come.
    fn barrier(&mut self, stops: &[Stop]) -> Result<(), (usize, Trap)> {
        let Some((waits, Stop::Barrier(at))) = stops.iter().copied().enumerate().find(|it| it.1 != Stop::Done) else {
            return Ok(());
        };
        let gone = self.warps.iter().find(|it| it.live != it.born);
        let Some(gone) = gone else { return Ok(()) };
        let threads = gone.born & !gone.live;
        let what = format!(
            "warp {waits} waits at a barrier, and threads {threads:#010x} of warp {} have ended without reaching it",
            gone.index
        );
        let warp = &mut self.warps[waits];
        warp.pcs = [at; 32];
        Err((waits, Trap::new(warp.live.trailing_zeros() as usize, Trouble::Deadlock(what))))
    }
}

fn fault(env: &Env<'_>, warp: &Warp, trap: Trap, grid: &Grid<'_>) -> Fault {
    let thread = warp.index * 32 + trap.lane as u32;
    let block = env.launch.block;
    let place = env.code.instructions.get(warp.pcs[trap.lane] as usize).map(|it| it.place).unwrap_or_default();
    let words = |text: String| unmarked(&text, grid.module, grid.function);
    Fault {
        kernel: grid.function.name.clone(),
        block: env.block,
        thread: [thread % block[0], thread / block[0] % block[1], thread / block[0] / block[1]],
        place: grid.module.place(place),
        trouble: match trap.trouble {
            Trouble::Deadlock(text) => Trouble::Deadlock(words(text)),
            Trouble::Race(text) => Trouble::Race(words(text)),
            other => other,
        },
    }
}
