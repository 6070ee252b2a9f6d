//! A block: its warps take turns, each until it waits for the others; and so do the blocks of a cluster.

use super::{
    Grid,
    cluster::Cluster,
    memory::Range,
    race::Who,
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
            cluster: Cluster::default(),
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

    /// Makes it the block `index` of the grid, and `rank` of a cluster of so many.
    fn begin(&mut self, index: [u32; 3], (rank, blocks): (u32, u32), grid: &Grid<'_>) {
        let env = &mut self.env;
        (env.block, env.epoch, env.left) = (index, 1, grid.options.steps);
        env.shared.clear();
        env.cluster.reset(rank, blocks);
        self.warps.iter_mut().for_each(Warp::reset);
    }

    /// Runs until its end, or until all its threads wait for the cluster: whether they do.
    fn run(&mut self, grid: &Grid<'_>) -> Result<bool, Fault> {
        let mut stops = vec![Stop::Done; self.warps.len()];
        loop {
            for (warp, stop) in self.warps.iter_mut().zip(&mut stops) {
                *stop = match warp.run(&mut self.env) {
                    Ok(stop) => stop,
                    Err(trap) => return Err(fault(&self.env, warp, trap, grid)),
                };
            }
            if stops.iter().all(|it| *it == Stop::Done) {
                return Ok(false);
            }
            if stops.iter().all(|it| matches!(it, Stop::Done | Stop::Cluster(_))) {
                return Ok(true);
            }
            self.barrier(&stops).map_err(|(warp, trap)| fault(&self.env, &self.warps[warp], trap, grid))?;
            self.env.epoch += 1;
            self.env.counts.barriers += 1;
        }
    }

    /// All threads of the block must have come.
    fn barrier(&mut self, stops: &[Stop]) -> Result<(), (usize, Trap)> {
        let mut of_block = stops.iter().enumerate().filter_map(|(warp, stop)| match stop {
            Stop::Barrier(at) => Some((warp, *at)),
            _ => None,
        });
        let Some((waits, at)) = of_block.next() else { return Ok(()) };
        let of_cluster = stops.iter().enumerate().find_map(|(warp, stop)| match stop {
            Stop::Cluster(at) => Some((warp, super::marked(*at))),
            _ => None,
        });
        if let Some((other, place)) = of_cluster {
            let what = format!("warp {waits} waits for the block, warp {other} for the cluster at {place}");
            self.warps[waits].pcs = [at; 32];
            return Err((waits, Trap::new(0, Trouble::Deadlock(what))));
        }
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

/// Runs a cluster of the grid to its end.
pub(super) fn run(cluster: &mut [Block<'_>], number: u64, grid: &Grid<'_>) -> Result<(), Fault> {
    let (all, of) = (grid.launch.grid, grid.function.cluster);
    let (x, y) = (u64::from(all[0] / of[0]), u64::from(all[1] / of[1]));
    let first = [(number % x) as u32 * of[0], (number / x % y) as u32 * of[1], (number / x / y) as u32 * of[2]];
    let blocks = cluster.len() as u32;
    for (rank, block) in (0..).zip(cluster.iter_mut()) {
        let inside = [rank % of[0], rank / of[0] % of[1], rank / of[0] / of[1]];
        block.begin([0, 1, 2].map(|axis| first[axis] + inside[axis]), (rank, blocks), grid);
    }
    loop {
        let mut waits = false;
        for block in cluster.iter_mut() {
            waits |= block.run(grid)?;
        }
        if !waits {
            break;
        }
        publish(cluster, grid)?;
    }
    for block in cluster.iter() {
        if let Some(who) = block.env.cluster.lost() {
            let what = "a store to another block's shared memory that no barrier of the cluster has published";
            return Err(earlier(block, who, Trouble::Instruction(what.into()), grid));
        }
    }
    Ok(())
}

/// The blocks meet: each has what the others have stored in its shared memory.
fn publish(cluster: &mut [Block<'_>], grid: &Grid<'_>) -> Result<(), Fault> {
    for from in 0..cluster.len() {
        for store in cluster[from].env.cluster.published() {
            let env = &mut cluster[store.block].env;
            // A thread of no warp of that block, since the last barrier there.
            let who = Who { warp: (1 + from as u32) << 16 | store.who.warp, epoch: env.epoch, ..store.who };
            match env.shared.write(store.address, store.bytes, who) {
                Ok(at) => env.shared.set(at, store.bytes, store.value),
                Err(trouble) => return Err(earlier(&cluster[from], store.who, trouble, grid)),
            }
        }
    }
    for block in cluster {
        block.env.epoch += 1;
        block.env.counts.barriers += 1;
    }
    Ok(())
}

/// A fault of a thread that has gone on since.
fn earlier(block: &Block<'_>, who: Who, trouble: Trouble, grid: &Grid<'_>) -> Fault {
    let mut fault = fault(&block.env, &block.warps[who.warp as usize], Trap::new(who.lane as usize, trouble), grid);
    if let Some(inst) = block.env.code.instructions.get(who.at as usize) {
        fault.place = grid.module.place(inst.place);
    }
    fault
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
