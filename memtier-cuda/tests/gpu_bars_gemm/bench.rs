//! A serving engine with the graphs of all cases, what they read, their times, and whether what they leave is right.

use std::{cell::Cell, time::Instant};

use memtier::{
    Bytes, Cuda, Device, Engine, F8E4M3, Graph, LaunchError, Limits, Q4_0, Q5_0, Q6_K, Q8_0, Serving, Space, Step,
    Stream, StreamSpec, TableSpec, bf16,
};
use memtier_cuda::{
    CudaBackend, Kernels,
    kernels::{Activation, Tiling, tile_fp8},
};

use crate::{
    blocks::matrix,
    support::{Dims, Rng, Toy, ToySpec, kernels, pool},
    work::{By, Case, Left, PATTERN, Room, Spans, tile_bytes},
};

/// Rows of weights that tiles repeat.
const TILED_ROWS: usize = 64;
/// Rows at either end of the outputs that are looked at, and how many outputs of them.
const SEEN_ROWS: usize = 64;
const SEEN: usize = 100;

/// How long a measurement takes: rounds, whose median counts, and the least seconds of one.
#[derive(Clone, Copy)]
pub(crate) struct Pace {
    pub(crate) rounds: usize,
    pub(crate) least: f64,
}

/// A case that was measured.
pub(crate) struct Found {
    pub(crate) name: String,
    pub(crate) us: f64,
    /// Whether the library did all of it, where it was to.
    pub(crate) taken: bool,
}

pub(crate) struct Bench {
    engine: Engine<Serving<Toy>>,
    stream: Stream<Cuda>,
    kernels: Kernels,
    room: Room,
    /// With whether the library takes it.
    cases: Vec<(Case, Graph<Toy>, bool)>,
    data: Data,
    /// What the tiles are of.
    tiled: Option<(Tiling, usize)>,
}

/// What launches read.
struct Data {
    /// Inputs, and weights of bf16, are this from its beginning.
    pattern: Vec<bf16>,
    /// Inputs that are normalised, and norms.
    wide: Vec<f32>,
    norm: Vec<f32>,
    /// The weights of the tiles' rows.
    values: Vec<f64>,
}

impl Bench {
    /// Records every case as often as `launches` says: each launch with the next set of weights, of which there are at most `sets`.
    pub(crate) fn new(backend: &CudaBackend, cases: Vec<Case>, sets: usize, launches: impl Fn(&Case) -> usize) -> Self {
        let kernels = kernels(backend);
        let room = Room::of(&cases, sets);
        let budget = Bytes::gib(8);
        let device = Device::new(backend.clone(), budget);
        let mut engine = Engine::open(&device);
        let dims = Dims { elements: 1 << 16 };
        let spec =
            ToySpec { weights: dims, work: dims, kv: pool(16, 1024, 8), table: TableSpec { rows: 2, columns: 4 } };
        let lines = engine.declare_bundle::<Toy>(spec);
        let stream = engine.declare(StreamSpec { scratch: room.bytes() });
        let graphs = cases.len() as u32;
        let limits = Limits { graphs, graph_bytes: Bytes::mib(2), ..Limits::new(Cuda::NAME, budget) };
        let mut engine = engine.plan(limits).unwrap().carve(lines).unwrap();
        let mut stream = engine.open_stream(stream).unwrap();
        let record = |case: Case| {
            let taken = Cell::new(true);
            let mut recorded = || {
                engine.record::<Toy, LaunchError, _>(&mut stream, |step| {
                    let Step { on, scratch, .. } = step;
                    taken.set(Spans::take(scratch, &room)?.queue(on, &kernels, &case, launches(&case))?);
                    Ok(())
                })
            };
            // What the library refuses inside a recording is known behind it: the next one leaves it to our kernels.
            let graph = match recorded() {
                Err(_) if case.plans().is_some() => recorded(),
                first => first,
            };
            let graph = graph.unwrap_or_else(|error| panic!("{}: {error}", case.name));
            (case, graph, taken.get())
        };
        let cases = cases.into_iter().map(record).collect();
        let engine = engine.serve::<Toy>().unwrap();
        let (wide, norm) = (Rng(4).f32s(room.wide), Rng(5).f32s(room.norm));
        let data = Data { pattern: Rng(3).bf16s(PATTERN), wide, norm, values: Vec::new() };
        let mut bench = Bench { engine, stream, kernels, room, cases, data, tiled: None };
        bench.load();
        bench
    }

    /// Uploads what all cases share.
    fn load(&mut self) {
        let mut step = self.engine.step(&mut self.stream).unwrap();
        let mut spans = Spans::take(&mut step.scratch, &self.room).unwrap();
        for (span, count) in [(&mut spans.weights, self.room.weights), (&mut spans.inputs.x, self.room.x)] {
            for at in (0..count).step_by(PATTERN) {
                step.on.write(&mut span.range(at..at + PATTERN).unwrap(), &self.data.pattern).unwrap();
            }
        }
        step.on.write(&mut spans.inputs.wide, &self.data.wide).unwrap();
        step.on.write(&mut spans.inputs.norm, &self.data.norm).unwrap();
        step.finish().unwrap().wait().unwrap();
    }

    /// Uploads tiles of as many elements a row, unless they are there.
    fn load_tiles(&mut self, case: &Case) {
        let Some(tiling) = case.tiling().filter(|tiling| self.tiled != Some((*tiling, case.columns))) else { return };
        let (tiles, values) = tiles(tiling, case.columns);
        let mut step = self.engine.step(&mut self.stream).unwrap();
        let mut spans = Spans::take(&mut step.scratch, &self.room).unwrap();
        // A megabyte at a time.
        let many = tiles.repeat((1usize << 20).div_ceil(tiles.len()));
        for at in (0..self.room.tiles).step_by(many.len()) {
            let count = many.len().min(self.room.tiles - at);
            step.on.write(&mut spans.tiles.range(at..at + count).unwrap(), &many[..count]).unwrap();
        }
        step.finish().unwrap().wait().unwrap();
        (self.tiled, self.data.values) = (Some((tiling, case.columns)), values);
    }

    /// Times all cases, each after a launch whose outputs are compared with f64.
    pub(crate) fn measure(mut self, pace: Pace) -> Vec<Found> {
        println!("{:<40} {:>10} {:>8}  far from f64", "case", "us", "TB/s");
        let mut found = Vec::new();
        for index in 0..self.cases.len() {
            let far = self.check(index, |bench, _| {
                let (case, ..) = &bench.cases[index];
                let mut step = bench.engine.step(&mut bench.stream).unwrap();
                let mut spans = Spans::take(&mut step.scratch, &bench.room).unwrap();
                spans.queue(step.on, &bench.kernels, case, 1).unwrap();
                step.finish().unwrap().wait().unwrap();
            });
            let us = self.time(index, pace);
            let (case, _, taken) = &self.cases[index];
            let refused = if *taken { "" } else { " (cuBLASLt refused: by our kernels)" };
            let rate = case.bytes() as f64 / us * 1e-6;
            println!("{:<40} {us:>10.2} us {rate:>8.3}  {far:.1e}{refused}", case.name);
            found.push(Found { name: case.name.clone(), us, taken: *taken });
        }
        found
    }

    /// Replays each case's graph, which has one launch, and compares its outputs with f64. How many the library took.
    pub(crate) fn check_all(mut self) -> usize {
        let mut worst = 0.0f64;
        for index in 0..self.cases.len() {
            let far = self.check(index, |bench, graph| {
                let mut step = bench.engine.step(&mut bench.stream).unwrap();
                step.replay(graph).unwrap();
                step.finish().unwrap().wait().unwrap();
            });
            worst = worst.max(far);
        }
        let by_library = self.cases.iter().filter(|(case, _, taken)| *taken && case.plans().is_some()).count();
        println!("{} launches, {by_library} of them by the library, worst {worst:.1e}", self.cases.len());
        by_library
    }

    /// The time of one launch in microseconds: replays of a graph of many, until the device is done.
    fn time(&mut self, index: usize, Pace { rounds, least }: Pace) -> f64 {
        let (ref case, graph, _) = self.cases[index];
        let launches = case.launches();
        let (mut times, mut replays) = (Vec::new(), 1);
        while times.len() < rounds {
            let mut step = self.engine.step(&mut self.stream).unwrap();
            let mut word = [0.0f32];
            let start = Instant::now();
            (0..replays).for_each(|_| step.replay(graph).unwrap());
            step.on.read::<f32>(&step.buffers.work.y.range(0..1).unwrap(), &mut word).unwrap();
            let elapsed = start.elapsed().as_secs_f64();
            step.finish().unwrap().wait().unwrap();
            // Long enough that waiting for the end does not count.
            match elapsed < least && replays < 1000 {
                true => replays *= 2,
                false => times.push(elapsed * 1e6 / (replays * launches) as f64),
            }
        }
        times.sort_by(f64::total_cmp);
        times[rounds / 2]
    }

    /// Launches a case once by `launch`, and compares samples with f64.
    fn check(&mut self, index: usize, launch: impl FnOnce(&mut Self, Graph<Toy>)) -> f64 {
        let (case, graph, _) = self.cases[index].clone();
        self.load_tiles(&case);
        let (rows, width) = (case.rows, case.width());
        let seen = rows.min(SEEN_ROWS);
        // The first rows, and the last.
        let parts = [0, rows - seen];
        let mut step = self.engine.step(&mut self.stream).unwrap();
        let mut spans = Spans::take(&mut step.scratch, &self.room).unwrap();
        for first in parts {
            let (part, count) = (first * width..(first + seen) * width, seen * width);
            match case.left {
                Left::Add => step.on.write(&mut spans.outs.sums.range(part).unwrap(), &vec![0.0; count]).unwrap(),
                Left::F32 => step.on.write(&mut spans.outs.sums.range(part).unwrap(), &vec![f32::NAN; count]).unwrap(),
                _ => step.on.write(&mut spans.outs.out.range(part).unwrap(), &vec![bf16::NAN; count]).unwrap(),
            }
        }
        step.finish().unwrap().wait().unwrap();
        launch(self, graph);
        let mut step = self.engine.step(&mut self.stream).unwrap();
        let spans = Spans::take(&mut step.scratch, &self.room).unwrap();
        let (mut rng, mut apart, mut size) = (Rng(6), 0.0, 0.0);
        for first in parts {
            let (part, count) = (first * width..(first + seen) * width, seen * width);
            let found: Vec<f64> = if case.wide() {
                let mut found = vec![f32::NAN; count];
                step.on.read::<f32>(&spans.outs.sums.read().range(part).unwrap(), &mut found).unwrap();
                found.into_iter().map(f64::from).collect()
            } else {
                let mut found = vec![bf16::NAN; count];
                step.on.read::<bf16>(&spans.outs.out.read().range(part).unwrap(), &mut found).unwrap();
                found.into_iter().map(|x| f64::from(x.to_f32())).collect()
            };
            for _ in 0..SEEN {
                let (row, output) = (rng.below(seen), rng.below(width));
                let expected = self.data.expected(&case, first + row, output);
                apart += (found[row * width + output] - expected).powi(2);
                size += expected.powi(2);
            }
        }
        step.finish().unwrap().wait().unwrap();
        let far = (apart / size).sqrt();
        assert!(far < within(&case), "{}: {far}", case.name);
        far
    }
}

impl Data {
    /// An output of the first set of weights, in f64.
    fn expected(&self, case: &Case, row: usize, output: usize) -> f64 {
        let k = case.columns;
        let of = |at: usize| f64::from(self.pattern[at % PATTERN].to_f32());
        let weight = |output: usize, at: usize| match case.tiling() {
            None => of(output * k + at),
            Some(_) => self.values[output % TILED_ROWS * k + at],
        };
        let dot = |output: usize| -> f64 { (0..k).map(|at| of(row * k + at) * weight(output, at)).sum() };
        match case.left {
            Left::Bf16 | Left::F32 | Left::Add => dot(output),
            Left::Gated(how) => {
                let gate = dot(output);
                let act = match how {
                    Activation::Silu => gate / (1.0 + (-gate).exp()),
                    Activation::GeluTanh => {
                        let inner = (2.0 / std::f64::consts::PI).sqrt() * (gate + 0.044_715 * gate.powi(3));
                        0.5 * gate * (1.0 + inner.tanh())
                    }
                };
                act * dot(case.outputs[0] + output)
            }
            Left::Normed => {
                let x = &self.wide[row * k..][..k];
                let mean = x.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>() / k as f64;
                // What is multiplied is rounded, then divided.
                let of = |at: usize| f64::from(bf16::from_f32(x[at] * self.norm[at]).to_f32());
                (0..k).map(|at| of(at) * weight(output, at)).sum::<f64>() / (mean + 1e-5).sqrt()
            }
        }
    }
}

/// How far outputs may be from f64, by norm.
fn within(case: &Case) -> f64 {
    let sums = match case.by {
        // Weights are rounded to bf16 on the way.
        By::Unpacked(..) => 4.2e-3,
        // Scales of 6 bits are rounded.
        By::Tiles(Tiling::Q6) => 6e-4,
        // For more than 16 rows those of 4 bits, too, are rounded to bf16.
        By::Tiles(Tiling::Q4) if case.rows > 16 => 4.2e-3,
        By::Tiles(_) => 2e-5,
        By::Own(_) | By::Product(_) | By::Plans(_) => 1e-4,
    };
    match case.left {
        Left::F32 | Left::Add => sums,
        Left::Bf16 | Left::Normed => 4.2e-3f64.max(1.3 * sums),
        Left::Gated(_) => 8e-3f64.max(2.4 * sums),
    }
}

/// Tiles of 64 rows, which a matrix repeats, and their weights.
fn tiles(tiling: Tiling, columns: usize) -> (Vec<u8>, Vec<f64>) {
    let mut rng = Rng(9);
    match tiling {
        Tiling::Q4 => matrix::<Q4_0>(&mut rng, TILED_ROWS, columns),
        Tiling::Q5 => matrix::<Q5_0>(&mut rng, TILED_ROWS, columns),
        Tiling::Q6 => matrix::<Q6_K>(&mut rng, TILED_ROWS, columns),
        Tiling::Q8 => matrix::<Q8_0>(&mut rng, TILED_ROWS, columns),
        Tiling::F8 => {
            // Of size 1 to 2 with a sign, by a scale that f16 has.
            let bits: Vec<_> = (0..TILED_ROWS * columns).map(|_| rng.next() as u8 & 0x87 | 0x38).collect();
            let value = |bits: &u8| {
                let size = (1.0 + f64::from(bits & 7) / 8.0) / 64.0;
                if bits & 0x80 == 0 { size } else { -size }
            };
            let values = bits.iter().map(value).collect();
            let mut tiles = vec![0; tile_bytes(tiling, TILED_ROWS, columns)];
            let bits: Vec<_> = bits.into_iter().map(F8E4M3).collect();
            tile_fp8(&bits, &[1.0 / 64.0; TILED_ROWS], (TILED_ROWS, columns, columns), &mut tiles).unwrap();
            (tiles, values)
        }
    }
}
