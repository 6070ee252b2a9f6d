//! Times of projections for the table of bars: random data, weights rotated past the cache, replays of a graph, medians; samples
//! checked against f64. Printed, not judged: `benches/gpu/gemm_peers.py` puts them beside torch's of the same run.

#[path = "gpu_quant/blocks.rs"]
mod blocks;
mod support;

use std::time::Instant;

use blocks::matrix;

use memtier::{
    Bytes, Cuda, Device, Engine, F8E4M3, Graph, LaunchError, Limits, PackedFormat, Place, Q4_0, Q5_0, Q6_K, Q8_0,
    Recorder, ScratchFrame, Serving, Space, StableSpanMut, Step, Stream, StreamSpec, TableSpec, bf16,
};
use memtier_cuda::{
    CublasLt, Kernels, LtOutput, LtPlans, LtProduct, LtShape,
    kernels::{
        Activation, Inputs, Matrix, TiledMatrix, Tiling, gate, project, project_add, project_f32, project_gated,
        project_tiled_f32, rms_norm_wide, tile_fp8,
    },
};
use support::{Dims, Rng, Toy, ToySpec, backend, kernels as load_kernels, pool, skipped_without_a_real_device};

/// Elements of all sets of weights, of inputs and of outputs; bytes of all sets of tiles.
const WEIGHTS: usize = 4 << 26;
const INPUTS: usize = 1 << 26;
const TILES: usize = 330 << 20;
/// Outputs in f32.
const SUMS: usize = 1 << 23;
/// What cuBLASLt may use.
const WORKSPACE: usize = 32 << 20;
/// Random numbers; behind them they begin anew.
const PATTERN: usize = 1 << 18;
/// Rounds of every measurement; the median counts.
const ROUNDS: usize = 7;

#[derive(Clone)]
enum Kind {
    /// bf16 in and out; in f32; added to f32; two that gate each other; the same with a norm on the way.
    Bf16,
    F32,
    Add,
    Gated,
    Normed,
    /// Weights of few bits.
    Tiled(Tiling),
    Lt(LtProduct),
    /// What becomes of a prompt's rows: stored in bf16; added to f32; stored, then gated.
    Prompt(LtPlans, LtOutput),
    PromptGated(LtPlans),
}

#[derive(Clone)]
struct Case {
    name: String,
    rows: usize,
    columns: usize,
    outputs: Vec<usize>,
    kind: Kind,
    invariant: bool,
}

impl Case {
    fn all(&self) -> usize {
        self.outputs.iter().sum()
    }

    /// What a row of outputs has.
    fn width(&self) -> usize {
        if matches!(self.kind, Kind::Gated | Kind::PromptGated(_)) { self.outputs[0] } else { self.all() }
    }

    /// Bytes of weights that a launch reads.
    fn bytes(&self) -> usize {
        match &self.kind {
            Kind::Tiled(tiling) => tiling.bytes(&[self.all(), self.columns]).unwrap().count() as usize,
            _ => self.all() * self.columns * 2,
        }
    }

    /// Sets of weights that one launch after the other takes.
    fn sets(&self) -> usize {
        let room = if matches!(self.kind, Kind::Tiled(_)) { TILES } else { WEIGHTS * 2 };
        (room / self.bytes()).clamp(1, (250 << 20) / self.bytes() + 2)
    }

    /// Launches in a graph.
    fn launches(&self) -> usize {
        if self.rows * self.all() * self.columns > 1 << 36 { 4 } else { self.sets().max(40) }
    }
}

/// Everything that launches read and write, from the stream's scratch: in the same order, so at the same place, in every step.
struct Spans<'f, P: Place> {
    weights: StableSpanMut<'f, bf16, P>,
    x: StableSpanMut<'f, bf16, P>,
    wide: StableSpanMut<'f, f32, P>,
    norm: StableSpanMut<'f, f32, P>,
    out: StableSpanMut<'f, bf16, P>,
    both: StableSpanMut<'f, bf16, P>,
    sums: StableSpanMut<'f, f32, P>,
    tiles: StableSpanMut<'f, u8, P>,
    workspace: StableSpanMut<'f, u8, P>,
}

impl<'f, P: Place<Space = Cuda>> Spans<'f, P> {
    fn take(scratch: &mut ScratchFrame<'f, P>) -> Result<Self, LaunchError> {
        Ok(Spans {
            weights: scratch.take(WEIGHTS)?,
            x: scratch.take(INPUTS)?,
            wide: scratch.take(1 << 20)?,
            norm: scratch.take(1 << 14)?,
            out: scratch.take(INPUTS)?,
            both: scratch.take(INPUTS / 2)?,
            sums: scratch.take(SUMS)?,
            tiles: scratch.take(TILES)?,
            workspace: scratch.take(WORKSPACE)?,
        })
    }

    /// Queues `count` launches, beginning with the weights of the first set.
    fn queue(&mut self, on: &Recorder<P>, kernels: &Kernels, case: &Case, count: usize) -> Result<(), LaunchError> {
        let Case { rows, columns, outputs, kind, .. } = case;
        let (rows, columns, width) = (*rows, *columns, case.width());
        let kernels = kernels.clone().batch_invariant(case.invariant);
        let mut out = self.out.range(0..rows * width).unwrap();
        let mut sums = self.sums.range(0..(rows * width).min(SUMS)).unwrap();
        let x = self.x.read().range(0..rows * columns).unwrap();
        for set in (0..case.sets()).cycle().take(count) {
            if let Kind::Tiled(tiling) = kind {
                let tiles = self.tiles.read().range(set * case.bytes()..(set + 1) * case.bytes()).unwrap();
                let matrix = TiledMatrix::new(tiles, *tiling, width, columns)?.at_rest();
                project_tiled_f32(on, &kernels, &mut sums, &[matrix], x, rows)?;
                continue;
            }
            let mut first = set * case.all() * columns;
            let mut matrices = Vec::new();
            for outputs in outputs {
                let weights = self.weights.read().range(first..first + outputs * columns).unwrap();
                matrices.push(Matrix::new(weights, *outputs, columns)?.at_rest());
                first += outputs * columns;
            }
            match kind {
                Kind::Bf16 => project(on, &kernels, &mut out, &matrices, Inputs::Plain(x), rows)?,
                Kind::F32 => project_f32(on, &kernels, &mut sums, &matrices, Inputs::Plain(x), rows)?,
                Kind::Add => project_add(on, &kernels, &mut sums, matrices[0], Inputs::Plain(x), rows)?,
                Kind::Gated => {
                    let (pair, how) = ([matrices[0], matrices[1]], (rows, Activation::Silu));
                    project_gated(on, &kernels, &mut out, pair, Inputs::Plain(x), how)?;
                }
                Kind::Normed => {
                    let (x, weight) = (self.wide.read().range(0..rows * columns), self.norm.read().range(0..columns));
                    let inputs = Inputs::Normed { x: x.unwrap(), weight: weight.unwrap(), epsilon: 1e-5 };
                    project(on, &kernels, &mut out, &matrices, inputs, rows)?;
                }
                Kind::Lt(product) => product.launch(on, &mut out, matrices[0], x, &mut self.workspace)?,
                Kind::Prompt(plans, LtOutput::Bf16) => {
                    assert!(plans.project(on, &mut out, &matrices, (x, rows), &mut self.workspace)?, "{plans}");
                }
                Kind::Prompt(plans, _) => {
                    assert!(plans.project_add(on, &mut sums, matrices[0], (x, rows), &mut self.workspace)?, "{plans}");
                }
                Kind::PromptGated(plans) => {
                    let mut both = self.both.range(0..2 * rows * width).unwrap();
                    assert!(plans.project(on, &mut both, &matrices, (x, rows), &mut self.workspace)?, "{plans}");
                    gate(on, &kernels, &mut out, &both, width, Activation::Silu)?;
                }
                Kind::Tiled(_) => {}
            }
        }
        Ok(())
    }
}

/// Tiles of 64 rows, which a matrix repeats, and their weights.
fn tiles(tiling: Tiling, columns: usize) -> (Vec<u8>, Vec<f64>) {
    let mut rng = Rng(9);
    match tiling {
        Tiling::Q4 => matrix::<Q4_0>(&mut rng, 64, columns),
        Tiling::Q5 => matrix::<Q5_0>(&mut rng, 64, columns),
        Tiling::Q6 => matrix::<Q6_K>(&mut rng, 64, columns),
        Tiling::Q8 => matrix::<Q8_0>(&mut rng, 64, columns),
        Tiling::F8 => {
            // Of size 1 to 2 with a sign, by a scale that f16 has.
            let bits: Vec<_> = (0..64 * columns).map(|_| rng.next() as u8 & 0x87 | 0x38).collect();
            let value = |bits: &u8| {
                let size = (1.0 + f64::from(bits & 7) / 8.0) / 64.0;
                if bits & 0x80 == 0 { size } else { -size }
            };
            let values = bits.iter().map(value).collect();
            let mut tiles = vec![0; tiling.bytes(&[64, columns]).unwrap().count() as usize];
            let bits: Vec<_> = bits.into_iter().map(F8E4M3).collect();
            tile_fp8(&bits, &[1.0 / 64.0; 64], (64, columns, columns), &mut tiles).unwrap();
            (tiles, values)
        }
    }
}

fn cases(library: Option<&CublasLt>) -> Vec<Case> {
    let mut cases = Vec::new();
    let mut put = |name: String, rows, columns, outputs: &[usize], kind| {
        cases.push(Case { name, rows, columns, outputs: outputs.to_vec(), kind, invariant: false });
    };
    let large = [(8192, 8192), (14_336, 4096), (4096, 14_336)];
    for (outputs, columns) in large {
        for rows in [1, 4, 16] {
            put(format!("gemm {rows} {outputs} {columns}"), rows, columns, &[outputs], Kind::Bf16);
        }
    }
    for (outputs, columns) in large {
        for rows in [1, 4, 16] {
            for tiling in [Tiling::Q4, Tiling::Q5, Tiling::Q6, Tiling::Q8, Tiling::F8] {
                put(format!("{tiling:?} {rows} {outputs} {columns}"), rows, columns, &[outputs], Kind::Tiled(tiling));
            }
        }
    }
    // SmolLM2-135M's.
    for rows in [1, 4, 8, 16, 64] {
        put(format!("normed-qkv {rows}"), rows, 576, &[576, 192, 192], Kind::Normed);
        put(format!("gemm-qkv {rows}"), rows, 576, &[576, 192, 192], Kind::Bf16);
        put(format!("gemm-o {rows}"), rows, 576, &[576], Kind::Add);
        put(format!("gemm-gated {rows}"), rows, 576, &[1536, 1536], Kind::Gated);
        put(format!("gemm-down {rows}"), rows, 1536, &[576], Kind::Add);
        put(format!("gemm-head {rows}"), rows, 576, &[49_152], Kind::F32);
    }
    for rows in [65, 512, 8192] {
        put(format!("gemm-qkv {rows}"), rows, 576, &[576, 192, 192], Kind::Bf16);
        put(format!("gemm-gated {rows}"), rows, 576, &[1536, 1536], Kind::Gated);
        put(format!("gemm-down {rows}"), rows, 1536, &[576], Kind::Bf16);
        put(format!("gemm-o {rows}"), rows, 576, &[576], Kind::Add);
        put(format!("gemm-down-added {rows}"), rows, 1536, &[576], Kind::Add);
    }
    put("gemm 8192 8192 8192".into(), 8192, 8192, &[8192], Kind::Bf16);
    if let Some(library) = library {
        let product = library.product((8192, 8192, 8192), Bytes::new(WORKSPACE as u64)).unwrap();
        put("cublaslt 8192 8192 8192".into(), 8192, 8192, &[8192], Kind::Lt(product));
        // As the engine has them.
        let of = |columns, outputs, output| LtShape { columns, outputs, output };
        let shapes = [
            of(576, 960, LtOutput::Bf16),
            of(576, 3072, LtOutput::Bf16),
            of(1536, 576, LtOutput::Bf16),
            of(576, 576, LtOutput::AddF32),
            of(1536, 576, LtOutput::AddF32),
        ];
        let plans = library.plans(&shapes, 65..=8192, Bytes::new(WORKSPACE as u64)).unwrap();
        for rows in [65, 512, 8192] {
            let prompt = |output| Kind::Prompt(plans.clone(), output);
            put(format!("cublaslt-qkv {rows}"), rows, 576, &[576, 192, 192], prompt(LtOutput::Bf16));
            put(format!("cublaslt-gated {rows}"), rows, 576, &[1536, 1536], Kind::PromptGated(plans.clone()));
            put(format!("cublaslt-down {rows}"), rows, 1536, &[576], prompt(LtOutput::Bf16));
            put(format!("cublaslt-o {rows}"), rows, 576, &[576], prompt(LtOutput::AddF32));
            put(format!("cublaslt-down-added {rows}"), rows, 1536, &[576], prompt(LtOutput::AddF32));
        }
    }
    // What the batch-invariant mode costs.
    let of_mode = |case: &Case| case.name.starts_with("gemm") && (case.rows <= 64 || case.columns < 8192);
    let plain = cases.clone().into_iter().filter(of_mode);
    let invariant: Vec<_> =
        plain.map(|case| Case { name: format!("invariant-{}", case.name), invariant: true, ..case }).collect();
    cases.extend(invariant);
    cases
}

/// The time of one launch in microseconds: replays of a graph of many, until the device is done.
fn time(engine: &mut Engine<Serving<Toy>>, stream: &mut Stream<Cuda>, graph: Graph<Toy>, launches: usize) -> f64 {
    let mut times = Vec::new();
    let mut replays = 1;
    while times.len() < ROUNDS {
        let mut step = engine.step(stream).unwrap();
        let mut word = [0.0f32];
        let start = Instant::now();
        (0..replays).for_each(|_| step.replay(graph).unwrap());
        step.on.read::<f32>(&step.buffers.work.y.range(0..1).unwrap(), &mut word).unwrap();
        let elapsed = start.elapsed().as_secs_f64();
        step.finish().unwrap().wait().unwrap();
        // Long enough that waiting for the end does not count.
        match elapsed < 5e-3 && replays < 1000 {
            true => replays *= 2,
            false => times.push(elapsed * 1e6 / (replays * launches) as f64),
        }
    }
    times.sort_by(f64::total_cmp);
    times[ROUNDS / 2]
}

#[test]
fn bars() {
    if skipped_without_a_real_device("times are taken here") {
        return;
    }
    let Some(backend) = backend() else { return };
    let kernels = load_kernels(&backend);
    let library = CublasLt::open(&backend, None);
    if let Err(error) = &library {
        println!("skipped: {error}");
    }
    let cases = cases(library.as_ref().ok());
    let budget = Bytes::gib(6);
    let device = Device::new(backend.clone(), budget);
    let mut engine = Engine::open(&device);
    let dims = Dims { elements: 1 << 16 };
    let spec = ToySpec { weights: dims, work: dims, kv: pool(16, 1024, 8), table: TableSpec { rows: 2, columns: 4 } };
    let lines = engine.declare_bundle::<Toy>(spec);
    let stream = engine.declare(StreamSpec { scratch: Bytes::gib(2) });
    let limits = Limits { graphs: 192, graph_bytes: Bytes::mib(2), ..Limits::new(Cuda::NAME, budget) };
    let mut engine = engine.plan(limits).unwrap().carve(lines).unwrap();
    let mut stream = engine.open_stream(stream).unwrap();
    let record = |case: &Case, engine: &mut Engine<_>, stream: &mut Stream<Cuda>| {
        let recorded = engine.record::<Toy, LaunchError, _>(stream, |step| {
            let Step { on, scratch, .. } = step;
            Spans::take(scratch)?.queue(on, &kernels, case, case.launches())
        });
        recorded.unwrap()
    };
    let graphs: Vec<_> = cases.iter().map(|case| record(case, &mut engine, &mut stream)).collect();
    let mut engine = engine.serve::<Toy>().unwrap();
    let pattern = Rng(3).bf16s(PATTERN);
    let (wide, norm) = (Rng(4).f32s(1 << 20), Rng(5).f32s(1 << 14));
    {
        let mut step = engine.step(&mut stream).unwrap();
        let mut spans = Spans::take(&mut step.scratch).unwrap();
        for (span, count) in [(&mut spans.weights, WEIGHTS), (&mut spans.x, INPUTS)] {
            for at in (0..count).step_by(PATTERN) {
                step.on.write(&mut span.range(at..at + PATTERN).unwrap(), &pattern).unwrap();
            }
        }
        step.on.write(&mut spans.wide, &wide).unwrap();
        step.on.write(&mut spans.norm, &norm).unwrap();
        step.finish().unwrap().wait().unwrap();
    }
    println!("{:<32} {:>10} {:>8}  far from f64", "case", "us", "TB/s");
    for (case, graph) in cases.iter().zip(graphs) {
        let far = check(&mut engine, &mut stream, &kernels, case, &pattern);
        let us = time(&mut engine, &mut stream, graph, case.launches());
        let bytes = case.bytes() as f64;
        println!("{:<32} {us:>10.2} us {:>8.3}  {far:.1e}", case.name, bytes / us * 1e-6);
    }
}

/// Uploads what the case needs besides, launches it once, and compares samples with f64.
fn check(
    engine: &mut Engine<Serving<Toy>>,
    stream: &mut Stream<Cuda>,
    kernels: &Kernels,
    case: &Case,
    pattern: &[bf16],
) -> f64 {
    let mut step = engine.step(stream).unwrap();
    let on = step.on;
    let mut spans = Spans::take(&mut step.scratch).unwrap();
    let mut weights = Vec::new();
    if let Kind::Tiled(tiling) = case.kind {
        let (tiles, values) = tiles(tiling, case.columns);
        for at in (0..case.bytes() * case.sets()).step_by(tiles.len()) {
            on.write(&mut spans.tiles.range(at..at + tiles.len()).unwrap(), &tiles).unwrap();
        }
        weights = values;
    }
    spans.queue(on, kernels, case, 1).unwrap();
    let (rows, width, k) = (case.rows, case.width(), case.columns);
    let count = rows.min(64) * width;
    let found: Vec<f64> = if matches!(case.kind, Kind::Tiled(_)) {
        let mut found = vec![f32::NAN; count];
        on.read::<f32>(&spans.sums.range(0..count).unwrap(), &mut found).unwrap();
        found.into_iter().map(f64::from).collect()
    } else {
        let mut found = vec![bf16::NAN; count];
        on.read::<bf16>(&spans.out.range(0..count).unwrap(), &mut found).unwrap();
        found.into_iter().map(|x| f64::from(x.to_f32())).collect()
    };
    step.finish().unwrap().wait().unwrap();
    let within = match case.kind {
        Kind::Bf16 | Kind::Lt(_) | Kind::Prompt(_, LtOutput::Bf16) => 4.2e-3,
        // Its scales are rounded.
        Kind::Tiled(Tiling::Q6) => 6e-4,
        Kind::Tiled(_) => 2e-5,
        _ => return 0.0,
    };
    // Inputs, and weights of bf16, are the pattern from its beginning; tiles repeat their rows.
    let of = |at: usize| f64::from(pattern[at % PATTERN].to_f32());
    let weight = |output: usize, at: usize| match weights.is_empty() {
        true => of(output * k + at),
        false => weights[output % 64 * k + at],
    };
    let mut rng = Rng(6);
    let (mut apart, mut size) = (0.0, 0.0);
    for _ in 0..200 {
        let (row, output) = (rng.below(rows.min(64)), rng.below(width));
        let expected: f64 = (0..k).map(|at| of(row * k + at) * weight(output, at)).sum();
        apart += (found[row * width + output] - expected).powi(2);
        size += expected.powi(2);
    }
    let far = (apart / size).sqrt();
    assert!(far < within, "{}: {far}", case.name);
    far
}

/// CPU time of a launch of cuBLASLt through the wrapper, and what the wrapper adds.
#[test]
fn what_a_launch_costs() {
    if skipped_without_a_real_device("times are taken here") {
        return;
    }
    let Some(mut rig) = support::Rig::new(Bytes::mib(64), pool(16, 1024, 8), TableSpec { rows: 2, columns: 4 }) else {
        return;
    };
    let library = match CublasLt::open(&rig.backend, None) {
        Ok(library) => library,
        Err(error) => return println!("skipped: {error}"),
    };
    let (rows, columns, outputs) = (128, 256, 128);
    let product = library.product((rows, columns, outputs), Bytes::mib(4)).unwrap();
    let kernels = &rig.kernels;
    let mut step = rig.engine.step(&mut rig.stream).unwrap();
    let Step { on, scratch, .. } = &mut step;
    let x = scratch.take::<bf16>(rows * columns).unwrap();
    let weights = scratch.take::<bf16>(outputs * columns).unwrap();
    let mut out = scratch.take::<bf16>(rows * outputs).unwrap();
    let mut workspace = scratch.take::<u8>(4 << 20).unwrap();
    let (wide, norm) = (scratch.take::<f32>(1024).unwrap(), scratch.take::<f32>(1024).unwrap());
    let matrix = Matrix::new(weights.read(), outputs, columns).unwrap().at_rest();
    let mut bf16s = scratch.take::<bf16>(1024).unwrap();
    let mut times = [Vec::new(), Vec::new(), Vec::new()];
    for _ in 0..ROUNDS {
        let mut clock = |which: usize, launch: &mut dyn FnMut()| {
            let start = Instant::now();
            (0..if which == 1 { 1 } else { 200 }).for_each(|_| launch());
            times[which].push(start.elapsed().as_secs_f64() * 1e6 / 200.0);
            on.read::<f32>(&wide.read().range(0..1).unwrap(), &mut [0.0]).unwrap();
        };
        clock(0, &mut || product.launch(on, &mut out, matrix, x.read(), &mut workspace).unwrap());
        clock(1, &mut || product.launch_times(on, &mut out, matrix, x.read(), &mut workspace, 200).unwrap());
        clock(2, &mut || rms_norm_wide(on, kernels, &mut bf16s, &norm, &norm, (1, 1e-5)).unwrap());
    }
    let [ours, bare, small] = times.map(|mut times| {
        times.sort_by(f64::total_cmp);
        times[ROUNDS / 2]
    });
    println!("a launch of cuBLASLt {ours:.3} us, of it the library's {bare:.3} us; of a small kernel {small:.3} us");
}
