//! Running kernels.

mod alu;
mod block;
mod cluster;
mod compare;
mod cvt;
mod float;
mod matrix;
mod memory;
mod race;
mod raw;
mod registers;
mod shared;
mod shuffle;
mod special;
mod warp;

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
};

use self::{block::Block, registers::Constants};
use super::{Counts, Fault, Function, Launch, Memory, Module, Options, Trouble};

/// Stands around the number of an instruction in a message, until its place is told in words.
const MARK: char = '\u{0}';

/// The number of an instruction in a message.
fn marked(instruction: u32) -> String {
    format!("{MARK}{instruction}{MARK}")
}

/// A message with places in words.
fn unmarked(text: &str, module: &Module, function: &Function) -> String {
    let place = |number: &str| {
        let instruction = number.parse::<usize>().ok().and_then(|it| function.code.instructions.get(it));
        instruction.map_or_else(|| number.to_owned(), |it| module.place(it.place))
    };
    text.split(MARK).enumerate().map(|(at, part)| if at % 2 == 1 { place(part) } else { part.to_owned() }).collect()
}

/// Below so many instructions that are left to run a thread more is not worth its start.
const WORTH_A_THREAD: u64 = 20_000;

/// A launch, as all who run its blocks see it.
struct Grid<'a> {
    module: &'a Module,
    function: &'a Function,
    launch: &'a Launch<'a>,
    memory: &'a dyn Memory,
    options: &'a Options,
    constants: Constants,
    next: AtomicU64,
    clusters: u64,
    stop: AtomicBool,
    fault: Mutex<Option<(u64, Fault)>>,
}

impl Grid<'_> {
    fn fault(&self, block: u64, fault: Fault) {
        self.stop.store(true, Relaxed);
        let mut first = self.fault.lock().unwrap_or_else(PoisonError::into_inner);
        if first.as_ref().is_none_or(|it| block < it.0) {
            *first = Some((block, fault));
        }
    }

    /// Runs clusters of blocks (of one, in most kernels) until none is left, or as many as are asked for.
    fn work(&self, cluster: &mut [Block<'_>], most: u64) {
        for _ in 0..most {
            let number = self.next.fetch_add(1, Relaxed);
            if number >= self.clusters || self.stop.load(Relaxed) {
                return;
            }
            if let Err(mut fault) = block::run(cluster, number, self) {
                if let Trouble::Steps(steps) = &mut fault.trouble {
                    *steps = self.options.steps;
                }
                self.fault(number, fault);
                return;
            }
        }
    }
}

fn refuse(function: &Function, what: String) -> Fault {
    let place = format!("line {} of the PTX", function.line);
    Fault { kernel: function.name.clone(), block: [0; 3], thread: [0; 3], place, trouble: Trouble::Launch(what) }
}

/// Whether the launch fits the kernel.
fn check(module: &Module, function: &Function, launch: &Launch<'_>) -> Result<(), Fault> {
    let threads = launch.block.iter().fold(1_u64, |all, it| all.saturating_mul(u64::from(*it)));
    let refuse = |what| Err(refuse(function, what));
    if launch.grid.contains(&0) || threads == 0 {
        return refuse(format!("no blocks or no threads: {:?} blocks of {:?}", launch.grid, launch.block));
    }
    if launch.grid[0] > i32::MAX as u32 || launch.grid[1..].iter().any(|it| *it > 65_535) {
        return refuse(format!("{:?} blocks, of which there are at most 2147483647 x 65535 x 65535", launch.grid));
    }
    if threads > 1024 {
        return refuse(format!("{threads} threads a block, of which there are at most 1024"));
    }
    if function.required_threads.is_some_and(|it| it != launch.block) {
        return refuse(format!("blocks of {:?} threads, and .reqntid wants others", launch.block));
    }
    if let Some(most) = function.max_threads {
        let most: u64 = most.iter().map(|it| u64::from(*it)).product();
        if threads > most {
            return refuse(format!("{threads} threads a block, and .maxntid allows {most}"));
        }
    }
    let (cluster, grid) = (function.cluster, launch.grid);
    if cluster.contains(&0) || cluster.iter().map(|it| u64::from(*it)).product::<u64>() > 8 {
        return refuse(format!("clusters of {cluster:?} blocks, of which there are at most 8"));
    }
    if grid.iter().zip(cluster).any(|(blocks, of)| !blocks.is_multiple_of(of)) {
        return refuse(format!("{grid:?} blocks, which are no clusters of {cluster:?}"));
    }
    if launch.params.len() < function.param_bytes() {
        return refuse(format!("{} bytes of parameters of {}", launch.params.len(), function.param_bytes()));
    }
    if launch.globals.len() < module.globals.len() {
        return refuse(format!("{} of {} variables have addresses", launch.globals.len(), module.globals.len()));
    }
    Ok(())
}

fn counted(cluster: &[Block<'_>]) -> Counts {
    let mut counts = Counts::default();
    cluster.iter().for_each(|it| counts.add(&it.counts()));
    counts
}

/// Runs all blocks, on several threads where it pays.
pub(super) fn run(
    module: &Module,
    function: &Function,
    launch: &Launch<'_>,
    memory: &dyn Memory,
    options: &Options,
) -> Result<Counts, Fault> {
    check(module, function, launch)?;
    let grid = Grid {
        module,
        function,
        launch,
        memory,
        options,
        constants: Constants::new(&function.code, launch.globals),
        next: AtomicU64::new(0),
        clusters: launch.grid.iter().zip(function.cluster).map(|(blocks, of)| u64::from(blocks / of)).product(),
        stop: AtomicBool::new(false),
        fault: Mutex::new(None),
    };
    let cluster = || (0..function.cluster.iter().product()).map(|_| Block::new(&grid)).collect::<Vec<_>>();
    let mut first = cluster();
    // The first one tells what the others will take.
    grid.work(&mut first, 1);
    let left = grid.clusters.saturating_sub(1);
    let helpers = (options.workers.max(1) as u64 - 1).min(left);
    let ahead = counted(&first).instructions.saturating_mul(left);
    let mut counts = Counts::default();
    if helpers == 0 || ahead < WORTH_A_THREAD {
        grid.work(&mut first, u64::MAX);
    } else {
        let others = std::thread::scope(|scope| {
            let work = || {
                let mut blocks = cluster();
                grid.work(&mut blocks, u64::MAX);
                counted(&blocks)
            };
            let handles: Vec<_> = (0..helpers).map(|_| scope.spawn(work)).collect();
            grid.work(&mut first, u64::MAX);
            handles.into_iter().filter_map(|it| it.join().ok()).collect::<Vec<_>>()
        });
        others.iter().for_each(|it| counts.add(it));
    }
    counts.add(&counted(&first));
    // Whoever looks next sees all that was written.
    raw::fence();
    match grid.fault.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some((_, fault)) => Err(fault),
        None => Ok(counts),
    }
}
