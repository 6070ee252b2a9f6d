//! A bundle over two spaces on a GPU: blocks go to the host and come back, a layer is brought over by a graph.

mod support;

use memtier::{
    BlockPool, Blocks, Bytes, Cuda, Device, Engine, GlobalKv, Host, HostBackend, LaunchError, Limits, PoolSpec, Space,
    Step, StreamSpec, Tokens, graph_captured, tier,
};
use support::{Dims, Rng, Work, backend};

const N: usize = 1 << 18;
const BLOCK: usize = 1 << 14;

/// Read-only while serving, wherever it is.
#[tier(ModelResident, dims = Dims)]
struct Layer {
    #[shape(elements)]
    weight: f32,
}

/// The device's parts first; the others are in host memory beside them.
#[graph_captured]
struct Model {
    work: Work,
    kv: BlockPool<GlobalKv<f32>, Cuda>,
    layer: Layer<Host>,
    cold: BlockPool<GlobalKv<f32>, Host>,
}

#[test]
fn blocks_and_layers_cross_in_stream_order() {
    let Some(backend) = backend() else { return };
    let device = Device::new(backend, Bytes::mib(256));
    let host = Device::new(HostBackend::new(), Bytes::mib(64));
    let mut engine = Engine::open(&device).with(&host).map_err(|_| "another space").unwrap();
    let dims = Dims { elements: N };
    let pool = |blocks| PoolSpec::fixed(Tokens::new(16), BLOCK, Blocks::new(blocks));
    let lines = engine.declare_bundle::<Model>(ModelSpec { work: dims, kv: pool(2), layer: dims, cold: pool(8) });
    let stream = engine.declare(StreamSpec { scratch: Bytes::mib(1) });
    let limits = Limits { graphs: 1, graph_bytes: Bytes::mib(1), ..Limits::new(Cuda::NAME, Bytes::mib(256)) };
    let mut engine = engine.plan(limits).unwrap().carve(lines).unwrap();
    let mut stream = engine.open_stream(stream).unwrap();
    assert!(host.report().live >= Bytes::new((N * 4 + 8 * BLOCK * 4) as u64));

    let mut rng = Rng(33);
    let weight = rng.f32s(N);
    {
        let mut load = engine.load(&mut stream).unwrap();
        let mut staged = load.staging.take::<f32>(N).unwrap();
        staged.copy_from_slice(&weight);
        staged.upload_beside(load.on, &mut load.buffers.layer.weight).unwrap();
        staged.fill(0.0);
    }
    let graph = engine
        .record::<Model, LaunchError, _>(&mut stream, |step| {
            let Step { buffers: ModelView { work, layer, .. }, on, .. } = step;
            on.copy_across(&mut work.x, layer.weight)?;
            on.copy_across(&mut work.y, work.x.read())
        })
        .unwrap();
    let mut engine = engine.serve::<Model>().unwrap();
    let mut hot = engine.bundle().kv.open(Tokens::new(32));
    hot.push(Blocks::new(2)).unwrap();
    let mut cold = engine.bundle().cold.open(Tokens::new(128));
    cold.push(Blocks::new(8)).unwrap();

    for round in 0..20 {
        let blocks: Vec<Vec<f32>> = (0..8).map(|_| rng.f32s(BLOCK)).collect();
        let mut step = engine.step(&mut stream).unwrap();
        step.on.write(&mut step.buffers.work.y, &vec![f32::NAN; N]).unwrap();
        // One block of the device, written again before anybody waits for the copy of what it held.
        for (index, block) in blocks.iter().enumerate() {
            let ModelView { kv, cold: beside, .. } = &mut step.buffers;
            step.on.write(&mut kv.block_mut(&mut hot, 0).unwrap(), block).unwrap();
            let from = kv.block(&hot, 0).unwrap();
            step.on.copy_across(&mut beside.block_mut(&mut cold, index).unwrap(), from).unwrap();
        }
        step.replay(graph).unwrap();
        for index in [3, 0, 7, 5, 1, 2, 6, 4] {
            let ModelView { kv, cold: beside, .. } = &mut step.buffers;
            let from = beside.block(&cold, index).unwrap();
            step.on.copy_across(&mut kv.block_mut(&mut hot, 1).unwrap(), from).unwrap();
            let mut back = vec![f32::NAN; BLOCK];
            step.on.read::<f32>(kv.block(&hot, 1).unwrap(), &mut back).unwrap();
            assert!(back == blocks[index], "round {round}, block {index}");
        }
        let mut brought = vec![f32::NAN; N];
        step.on.read::<f32>(&step.buffers.work.y, &mut brought).unwrap();
        assert!(brought == weight, "round {round}: the graph brought something else");
        step.finish().unwrap().wait().unwrap();
    }
    drop((hot, cold));
    let (engine, kept) = engine.drain().unwrap().end_model();
    drop((engine, kept, stream));
    assert_eq!((device.report().live, host.report().live), (Bytes::ZERO, Bytes::ZERO));
}
