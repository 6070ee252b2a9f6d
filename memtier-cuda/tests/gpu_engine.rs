//! The typed core, walked from end to end on a GPU: declare, plan, carve, load, step, record, serve, grow, drain.

mod support;

use memtier::{
    Blocks, Bytes, Cuda, Device, Engine, LaunchError, Limits, Place, PlanError, PoolSpec, RecordError, Recorder,
    Serving, Space, Step, Stream, StreamSpec, TableSpec, Tokens, bf16,
};
use memtier_cuda::Kernels;
use memtier_cuda::kernels::{self, DecodeShape, DecodeWork, PagedKv, paged_decode};
use support::{Dims, Rig, Rng, Toy, ToySpec, ToyView, backend, kernels as load_kernels, pool};

const N: usize = 1 << 16;

/// `y = 2 * weight + x`, by way of scratch: eager and captured alike.
fn forward<P: Place<Space = Cuda>>(
    on: &Recorder<P>,
    kernels: &Kernels,
    view: &mut ToyView<'_, P>,
    scratch: &mut memtier::ScratchFrame<'_, P>,
) -> Result<(), LaunchError> {
    let ToyView { weights, work, .. } = view;
    let mut scratch = scratch.nested();
    let mut doubled = scratch.take::<f32>(N)?;
    kernels::scale(on, kernels, &mut doubled, weights.weight, 2.0)?;
    kernels::add(on, kernels, &mut work.y, &doubled, &work.x)
}

#[test]
fn an_engine_from_declare_to_drain() {
    let Some(backend) = backend() else { return };
    let kernels = load_kernels(&backend);
    let free = backend.memory().unwrap().free;
    let device = Device::new(backend.clone(), Bytes::mib(256));
    let mut engine = Engine::open(&device);
    let dims = Dims { elements: N };
    let spec =
        || ToySpec { weights: dims, work: dims, kv: pool(16, 4096, 64), table: TableSpec { rows: 2, columns: 8 } };
    let lines = engine.declare_bundle::<Toy>(spec());
    let stream = engine.declare(StreamSpec { scratch: Bytes::mib(4) });
    let limits = Limits { graphs: 1, graph_bytes: Bytes::mib(1), ..Limits::new(Cuda::NAME, Bytes::mib(256)) };
    let mut engine = engine.plan(limits).unwrap().carve(lines).unwrap();
    let mut stream = engine.open_stream(stream).unwrap();

    let mut rng = Rng(21);
    let weight = rng.f32s(N);
    {
        let mut load = engine.load(&mut stream).unwrap();
        let mut staged = load.staging.take::<f32>(N).unwrap();
        staged.copy_from_slice(&weight);
        staged.upload(load.on, &mut load.buffers.weights.weight).unwrap();
        staged.fill(0.0);
    }
    let graph = engine
        .record::<Toy, LaunchError, _>(&mut stream, |step| {
            let Step { buffers, on, scratch, .. } = step;
            forward(on, &kernels, buffers, scratch)
        })
        .unwrap();
    let full = engine.record::<Toy, LaunchError, _>(&mut stream, |_| Ok(())).err();
    assert!(matches!(full, Some(RecordError::BudgetExhausted { planned: 1 })));
    let mut engine = engine.serve::<Toy>().unwrap();
    let journal = backend.journal().len();

    for round in 0..20 {
        let x = rng.f32s(N);
        let mut results = [vec![0.0f32; N], vec![f32::NAN; N]];
        for (captured, result) in results.iter_mut().enumerate() {
            let mut step = engine.step(&mut stream).unwrap();
            step.on.write(&mut step.buffers.work.x, &x).unwrap();
            step.on.write(&mut step.buffers.work.y, &vec![f32::NAN; N]).unwrap();
            match captured == 1 {
                true => step.replay(graph).unwrap(),
                false => forward(step.on, &kernels, &mut step.buffers, &mut step.scratch).unwrap(),
            }
            step.on.read::<f32>(&step.buffers.work.y, result).unwrap();
            step.finish().unwrap().wait().unwrap();
        }
        let [eager, captured] = results;
        assert!(eager.iter().zip(weight.iter().zip(&x)).all(|(y, (w, x))| *y == 2.0 * w + x), "round {round}");
        assert!(
            eager.iter().zip(&captured).all(|(a, b)| a.to_bits() == b.to_bits()),
            "round {round}: captured differs"
        );
    }
    assert_eq!(backend.journal().len(), journal, "memory was taken while serving");
    let report = engine.memory_report();
    assert_eq!(report.unplanned_acquisitions(), 0);
    println!("{report}");
    engine.forget(graph).unwrap();
    let drained = engine.drain().unwrap();
    let (engine, kept) = drained.end_model();
    drop((engine, kept, stream));
    assert_eq!(device.report().live, Bytes::ZERO);
    assert_eq!(device.report().failed_releases, 0);
    // The driver keeps a little for streams and graphs that existed once.
    let kept = free.count().saturating_sub(backend.memory().unwrap().free.count());
    println!("kept by the driver afterwards: {:.1} MiB", kept as f64 / f64::from(1 << 20));
    assert!(kept < 8 << 20);
}

#[test]
fn a_plan_beyond_the_device_is_refused_with_its_arithmetic() {
    let Some(backend) = backend() else { return };
    let total = backend.memory().unwrap().total;
    let device = Device::new(backend, total);
    let mut engine = Engine::open(&device);
    let dims = Dims { elements: usize::try_from(total.count()).unwrap() / 4 };
    let kv = pool(16, 4096, 64);
    let spec = ToySpec { weights: dims, work: dims, kv, table: TableSpec { rows: 2, columns: 8 } };
    let _lines = engine.declare_bundle::<Toy>(spec);
    let refused = engine.plan(Limits::new(Cuda::NAME, total)).err().unwrap();
    assert!(matches!(refused.report, PlanError::DoesNotFit(_)), "{}", refused.report);
    assert_eq!(device.report().live, Bytes::ZERO);
}

#[test]
fn a_budget_that_the_device_cannot_hold_is_an_error_and_the_process_goes_on() {
    let Some(backend) = backend() else { return };
    let total = backend.memory().unwrap().total;
    let device = Device::new(backend.clone(), Bytes::new(total.count() * 2));
    let mut engine = Engine::open(&device);
    // Fits the budget that was claimed, not the card.
    let dims = Dims { elements: usize::try_from(total.count()).unwrap() / 4 };
    let small = Dims { elements: 16 };
    let kv = pool(16, 4096, 64);
    let spec = ToySpec { weights: dims, work: small, kv, table: TableSpec { rows: 2, columns: 8 } };
    let _lines = engine.declare_bundle::<Toy>(spec);
    let refused = engine.plan(Limits::new(Cuda::NAME, Bytes::new(total.count() * 2))).err().unwrap();
    let PlanError::Acquire(error) = &refused.report else { panic!("{}", refused.report) };
    assert!(error.to_string().contains("CUDA_ERROR_OUT_OF_MEMORY"), "{error}");
    assert_eq!(device.report().live, Bytes::ZERO);
    drop(refused);
    assert!(Rig::new(Bytes::mib(2), kv, TableSpec { rows: 2, columns: 8 }).is_some());
}

#[test]
fn a_capture_that_fails_is_closed_and_the_stream_goes_on() {
    let kv = pool(16, 4096, 64);
    let rig = Rig::new(Bytes::mib(4), kv, TableSpec { rows: 2, columns: 8 });
    let Some(Rig { kernels, mut engine, mut stream, .. }) = rig else { return };
    let body = engine.record::<Toy, LaunchError, _>(&mut stream, |step| {
        let Step { buffers: ToyView { weights, work, .. }, on, .. } = step;
        kernels::scale(on, &kernels, &mut work.y, weights.weight, 1.0)?;
        Err(LaunchError::Unsupported { what: "test", why: "the body fails" })
    });
    assert!(matches!(body, Err(RecordError::Body(LaunchError::Unsupported { .. }))));
    let mut step = engine.step(&mut stream).unwrap();
    forward(step.on, &kernels, &mut step.buffers, &mut step.scratch).unwrap();
    step.finish().unwrap().wait().unwrap();
}

#[test]
fn a_captured_kernel_over_a_pool_sees_its_growth() {
    // Blocks of 2 MiB; one from the start, up to 768 more: 1.5 GiB of growth under the graph.
    let (page, kv_heads, head_dim) = (64, 8, 128);
    let per_layer = 2 * kv_heads * page * head_dim;
    let layers = (1 << 20) / per_layer;
    let spec = PoolSpec {
        per_block: Tokens::new(page as u64),
        block_elements: layers * per_layer,
        floor: Blocks::new(1),
        initial: Blocks::new(1),
        most: Blocks::new(769),
        step: Blocks::new(128),
    };
    let rig = Rig::new(Bytes::mib(64), spec, TableSpec { rows: 2, columns: 769 });
    let Some(Rig { backend, device, kernels, mut engine, mut stream }) = rig else { return };
    let heads = kv_heads * 4;
    let shape = DecodeShape { heads, scale: 0.088, window: None, softcap: None, shares: 8 };
    let kv = PagedKv { layer_base: per_layer, kv_heads, head_dim, packed: None };
    let mut rng = Rng(22);
    let handle = engine.bundle().kv.handle();
    let mut first = handle.open(Tokens::new(page as u64));
    first.push(Blocks::new(1)).unwrap();
    let content = rng.bf16s(layers * per_layer);
    let q = rng.bf16s(heads * head_dim);

    // Before any row is set: the graph looks whose ids the table holds when it runs.
    let graph = engine
        .record::<Toy, LaunchError, _>(&mut stream, |step| {
            let Step { buffers: ToyView { kv: pool, table, work, .. }, on, scratch, .. } = step;
            let partial_units = shape.partial_units(1, head_dim).unwrap_or(0);
            let mut partial = scratch.take::<f32>(partial_units)?;
            let mut out = scratch.take::<bf16>(heads * head_dim)?;
            let q = scratch.take::<bf16>(heads * head_dim)?;
            let numbers = scratch.take::<u32>(2)?.into_read();
            let missing = || LaunchError::Unsupported { what: "test", why: "two numbers" };
            let (rows, lengths) = numbers.split_at(1).ok_or_else(missing)?;
            let ids = table.ids();
            let work = DecodeWork { partial: &mut partial, arrived: &mut work.arrived };
            paged_decode(on, &kernels, &mut out, work, &q, &pool.slab(), ids, [rows, lengths], (kv, shape))
        })
        .unwrap();

    // The graph reads its query, its row and its length from scratch, and leaves its result there: the step before and
    // after it takes the same places in the same order.
    let replay = |engine: &mut Engine<Serving<Toy>>, stream: &mut Stream<Cuda>, length: usize| {
        let mut step = engine.step(stream).unwrap();
        let on = step.on;
        {
            let mut scratch = step.scratch.nested();
            let _partial = scratch.take::<f32>(shape.partial_units(1, head_dim).unwrap()).unwrap();
            let mut out = scratch.take::<bf16>(heads * head_dim).unwrap();
            let mut to_q = scratch.take::<bf16>(heads * head_dim).unwrap();
            let mut numbers = scratch.take::<u32>(2).unwrap();
            on.write(&mut out, &vec![bf16::NAN; heads * head_dim]).unwrap();
            on.write(&mut to_q, &q).unwrap();
            on.write(&mut numbers, &[0, length as u32]).unwrap();
        }
        step.replay(graph).unwrap();
        let mut found = vec![bf16::ZERO; heads * head_dim];
        {
            let mut scratch = step.scratch.nested();
            let _partial = scratch.take::<f32>(shape.partial_units(1, head_dim).unwrap()).unwrap();
            let out = scratch.take::<bf16>(heads * head_dim).unwrap();
            on.read::<bf16>(&out, &mut found).unwrap();
        }
        step.finish().unwrap().wait().unwrap();
        found.iter().map(|value| value.to_bits()).collect::<Vec<_>>()
    };
    let nothing = replay(&mut engine, &mut stream, page);
    assert!(nothing.iter().all(|bits| *bits == 0), "a table without rows attends to something");
    {
        let mut step = engine.step(&mut stream).unwrap();
        step.buffers.table.set(step.on, 0, &first).unwrap();
        let mut block = step.buffers.kv.block_mut(&mut first, 0).unwrap();
        step.on.write(&mut block, &content).unwrap();
        step.finish().unwrap().wait().unwrap();
    }
    let before = replay(&mut engine, &mut stream, page);
    assert!(before.iter().any(|bits| *bits != 0) && before.iter().all(|bits| bf16::from_bits(*bits).is_finite()));

    // All planned growth, under the graph.
    let live = device.report().live;
    let mut commits = 0;
    while let Some(commit) = engine.bundle().kv.planned_commit() {
        engine.bundle().kv.grow(commit).unwrap();
        commits += 1;
        assert_eq!(replay(&mut engine, &mut stream, page), before, "another result after {commits} commits");
    }
    assert_eq!(commits, 6);
    assert_eq!(device.report().live.count() - live.count(), 3 << 29, "1.5 GiB");
    assert_eq!(replay(&mut engine, &mut stream, page), before, "the graph gives another result after growth");

    // A block that came with the growth, reached by the same graph through the table.
    let (mut filler, mut late) = (handle.open(Tokens::new(700 * page as u64)), handle.open(Tokens::new(page as u64)));
    filler.push(Blocks::new(700)).unwrap();
    late.push(Blocks::new(1)).unwrap();
    {
        let mut step = engine.step(&mut stream).unwrap();
        step.buffers.table.set(step.on, 0, &late).unwrap();
        let mut block = step.buffers.kv.block_mut(&mut late, 0).unwrap();
        step.on.write(&mut block, &content).unwrap();
        step.finish().unwrap().wait().unwrap();
    }
    assert_eq!(replay(&mut engine, &mut stream, page), before, "a block of the growth reads differently");
    // Its first half attends to something else.
    assert_ne!(replay(&mut engine, &mut stream, page / 2), before);
    let report = device.report();
    assert_eq!(report.acquisitions[2], report.planned_commits, "an unplanned acquisition while serving");
    assert!(backend.journal().iter().all(|event| event.done));
}
