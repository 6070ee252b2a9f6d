//! One bundle over two spaces: a device's memory, and host memory beside it.

use memtier::{
    BlockPool, Blocks, Bundle, Bytes, Content, Cuda, Device, Engine, FakeBackend, GlobalKv, Host, HostBackend,
    LaunchError, Limits, Load, PageTable, PlanError, Planning, PoolSpec, PrefixCache, PrefixCacheSpec, Root, RootKey,
    Serving, Step, Stream, StreamSpec, TableSpec, TierSpec, TieredCache, Tokens, graph_captured, tier,
};

type Failure = Box<dyn std::error::Error>;

#[derive(Clone, Copy)]
struct Dims {
    hidden: usize,
}

#[tier(ModelResident, dims = Dims)]
struct Layer {
    #[shape(hidden)]
    weight: u32,
}

#[tier(EnginePersistent, dims = Dims)]
struct Work {
    #[shape(hidden)]
    layer: u32,
    #[shape(hidden)]
    back: u32,
}

/// The device computes with `work`, `kv` and `table`; layers and cold blocks are beside it.
#[graph_captured]
struct Model {
    work: Work<Cuda>,
    kv: BlockPool<GlobalKv<u32>, Cuda>,
    table: PageTable<GlobalKv<u32>, Cuda>,
    layers: [Layer<Host>; 2],
    cold: Option<BlockPool<GlobalKv<u32>, Host>>,
}

const DIMS: Dims = Dims { hidden: 16 };
const TABLE: TableSpec = TableSpec { rows: 1, columns: 8 };

fn spec() -> ModelSpec {
    let pool = |blocks| PoolSpec::fixed(Tokens::new(4), 4, Blocks::new(blocks));
    ModelSpec { work: DIMS, kv: pool(16), table: TABLE, layers: [DIMS, DIMS], cold: Some(pool(64)) }
}

/// Launches on the device are done when they were waited for, and not before.
fn devices() -> (Device, Device) {
    let device = Device::new(FakeBackend::<Cuda>::asynchronous(), Bytes::kib(64));
    (device, Device::new(HostBackend::new(), Bytes::kib(64)))
}

fn carved((device, host): &(Device, Device)) -> Result<(Engine<Planning<Model>>, Stream<Cuda>), Failure> {
    let mut engine = Engine::open(device).with(host).map_err(|_| "two devices of one space")?;
    let lines = engine.declare_bundle::<Model>(spec());
    let stream = engine.declare::<Stream<Cuda>>(StreamSpec { scratch: Bytes::new(256) });
    let limits = Limits { graphs: 1, graph_bytes: Bytes::kib(4), ..Limits::new("cuda", Bytes::kib(64)) };
    let mut engine = engine.plan(limits)?.carve(lines)?;
    let stream = engine.open_stream(stream)?;
    Ok((engine, stream))
}

#[test]
fn each_part_is_priced_and_carved_in_its_own_space() -> Result<(), Failure> {
    let (device, host) = devices();
    let demanded = |space| {
        let demands = Model::demands(&spec()).unwrap();
        Bytes::sum(demands.iter().filter(|demand| demand.space == space).map(|demand| demand.amount.least().unwrap()))
    };
    // Two layers of a page each, and 64 blocks of 16 bytes.
    assert_eq!(demanded("host")?, Bytes::new(2 * 4096 + 64 * 16));
    let (engine, stream) = carved(&(device.clone(), host.clone()))?;
    // The layers' arena, and the pool's one page.
    assert_eq!(host.report().live, Bytes::kib(8 + 4));
    assert!(device.report().live >= demanded("cuda")?);
    drop((engine, stream));
    assert_eq!((device.report().live, host.report().live), (Bytes::ZERO, Bytes::ZERO));
    Ok(())
}

#[test]
fn a_host_device_that_is_too_small_refuses_the_plan() {
    let (device, _) = devices();
    let refused = carved(&(device.clone(), Device::new(HostBackend::new(), Bytes::kib(4)))).err().unwrap();
    assert!(refused.to_string().contains("budget of 4096 bytes"), "{refused}");
    let mut engine = Engine::open(&device);
    let _lines = engine.declare_bundle::<Model>(spec());
    let missing = engine.plan(Limits::new("cuda", Bytes::kib(64))).err().unwrap().report;
    assert!(matches!(missing, PlanError::NoDevice { space: "host", .. }), "{missing}");
    assert_eq!(device.report().live, Bytes::ZERO);
}

#[test]
fn layers_beside_the_device_are_loaded_and_brought_over_in_a_graph() -> Result<(), Failure> {
    let (mut engine, mut stream) = carved(&devices())?;
    {
        let Load { buffers, on, staging, .. } = engine.load(&mut stream)?;
        let mut tensor = staging.take::<u32>(16)?;
        let short = staging.take::<u32>(15)?;
        for (index, mut layer) in buffers.layers.into_iter().enumerate() {
            tensor.fill(100 + index as u32);
            tensor.upload_beside(on, &mut layer.weight)?;
            let refused = short.upload_beside(on, &mut layer.weight);
            assert_eq!(refused, Err(LaunchError::Shape { what: "upload", expected: 16, found: 15 }));
        }
    }
    let graph = engine.record::<Model, LaunchError, _>(&mut stream, |step| {
        let Step { buffers: ModelView { work, layers, .. }, on, .. } = step;
        on.copy_across(&mut work.layer, layers[1].weight)?;
        on.copy_across(&mut work.back, work.layer.read())
    })?;
    let mut engine = engine.serve::<Model>()?;
    let mut step = engine.step(&mut stream)?;
    step.on.write(&mut step.buffers.work.layer, &[7; 16])?;
    step.replay(graph)?;
    let mut back = [0; 16];
    step.on.read::<u32>(&step.buffers.work.back, &mut back)?;
    assert_eq!(back, [101; 16]);
    step.on.copy_across(&mut step.buffers.work.layer, step.buffers.layers[0].weight)?;
    step.on.read::<u32>(&step.buffers.work.layer, &mut back)?;
    assert_eq!(back, [100; 16]);
    Ok(())
}

#[test]
fn a_copy_that_cannot_be_made_is_refused() -> Result<(), Failure> {
    let (engine, mut stream) = carved(&devices())?;
    let mut engine = engine.serve::<Model>()?;
    let cold = engine.bundle().cold.as_ref().ok_or("declared")?.handle();
    let [mut one, mut other] = [cold.open(Tokens::new(4)), cold.open(Tokens::new(4))];
    one.extend(Tokens::new(4))?;
    other.extend(Tokens::new(4))?;
    let step = engine.step(&mut stream)?;
    let ModelView { mut work, cold, .. } = step.buffers;
    let mut cold = cold.ok_or("declared")?;
    let (from, mut to) = cold.copy_pair((&one, 0), (&mut other, 0))?;
    let both = step.on.copy_across(&mut to, from);
    assert!(matches!(both, Err(LaunchError::Unsupported { what: "copy_across", .. })), "{both:?}");
    let lengths = step.on.copy_across(&mut work.layer, from);
    assert_eq!(lengths, Err(LaunchError::Shape { what: "copy_across", expected: 16, found: 4 }));
    Ok(())
}

/// Requests over both tiers.
struct Server {
    engine: Engine<Serving<Model>>,
    stream: Stream<Cuda>,
    tiers: TieredCache<GlobalKv<u32>>,
    root: Root,
}

impl Server {
    fn open(devices: &(Device, Device)) -> Result<Self, Failure> {
        let (engine, stream) = carved(devices)?;
        let engine = engine.serve::<Model>()?;
        let Model { kv, cold, .. } = engine.bundle();
        let hot = PrefixCache::new(&kv.handle(), PrefixCacheSpec::new(Blocks::new(16)))?;
        let cold = cold.as_ref().ok_or("declared")?;
        let cold = PrefixCache::new(&cold.handle(), PrefixCacheSpec::new(Blocks::new(64)))?;
        let tiers = TieredCache::new(hot, cold, TierSpec { paths: 4, longest: Tokens::new(32) })?;
        let root = tiers.root(&RootKey::new("model"))?;
        Ok(Server { engine, stream, tiers, root })
    }

    /// One request of 32 tokens, of which every block is looked at. How many blocks came back from the host.
    fn serve(&mut self, tokens: &[u32]) -> Result<u64, Failure> {
        let content = Content::new(self.root, tokens);
        let mut ticket = self.tiers.lookup(&content)?.open(Tokens::new(32));
        let mut step = self.engine.step(&mut self.stream)?;
        let ModelView { kv, cold, table, .. } = &mut step.buffers;
        let cold = cold.as_mut().ok_or("declared")?;
        let restored = self.tiers.restore(step.on, kv, cold, &mut ticket, &content)?;
        let known = (ticket.tokens().count() + restored.count()) / 4;
        ticket.push(Blocks::new(8 - ticket.blocks().count()))?;
        for index in known as usize..8 {
            step.on.write(&mut kv.block_mut(&mut ticket, index)?, &tokens[4 * index..4 * index + 4])?;
        }
        table.set(step.on, 0, &ticket)?;
        for index in 0..8 {
            let mut block = [0; 4];
            step.on.read::<u32>(kv.block(&ticket, index)?, &mut block)?;
            assert_eq!(block, tokens[4 * index..4 * index + 4], "block {index}, {known} were known");
        }
        table.clear(step.on, 0)?;
        self.tiers.spill(step.on, kv, cold, Blocks::new(8))?;
        let fence = step.finish()?;
        ticket.advance(Tokens::new(32 - ticket.tokens().count()), &fence)?;
        self.tiers.sent(&fence)?;
        let settled = fence.wait()?;
        self.tiers.settle(&settled)?;
        self.tiers.hot().publish(&mut ticket, &settled, &content)?;
        Ok(restored.count() / 4)
    }
}

#[test]
fn blocks_are_spilled_to_the_host_and_come_back_as_they_were() -> Result<(), Failure> {
    let devices = devices();
    let mut server = Server::open(&devices)?;
    // Six prompts of eight blocks: the device holds two of them, the host all.
    let prompts: Vec<Vec<u32>> = (0..6).map(|first| (first * 100..first * 100 + 32).collect()).collect();
    let mut restored = 0;
    for _ in 0..10 {
        for tokens in &prompts {
            restored += server.serve(tokens)?;
        }
    }
    assert!(restored > 200, "{restored} blocks came back from the host");
    assert_eq!(server.tiers.stats().cold.cached, Blocks::new(48));
    // Nothing is acquired on either device while serving.
    assert_eq!((devices.0.report().acquisitions[2], devices.1.report().acquisitions[2]), (0, 0));
    Ok(())
}

#[test]
fn a_model_ends_with_both_spaces_and_what_is_kept_serves_the_next() -> Result<(), Failure> {
    let devices = devices();
    let mut server = Server::open(&devices)?;
    server.serve(&(0..32).collect::<Vec<u32>>())?;
    let Server { engine, tiers, .. } = server;
    drop(tiers);
    let (mut engine, kept) = engine.drain().map_err(|failed| failed.to_string())?.end_model();
    let cold = engine.keep(kept.cold.ok_or("declared")?, &spec().cold.ok_or("declared")?)?;
    let _: memtier::Line<BlockPool<GlobalKv<u32>, Host>> = cold;
    assert_eq!(devices.1.report().live, Bytes::kib(4), "the layers' arena went with the model");
    Ok(())
}
