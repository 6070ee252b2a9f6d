//! A prefix cache with a second tier, saved to a folder and loaded by another engine: a prompt is computed once, ever.

use std::sync::Arc;

use futures_executor::block_on;
use memtier::{
    BlockPool, Blocks, Bytes, Content, Device, Engine, GlobalKv, Host, HostBackend, Limits, PoolSpec, PrefixCache,
    PrefixCacheSpec, RootKey, Serving, Space, Stream, StreamSpec, TierSpec, TieredCache, Tokens, graph_captured,
};
use memtier_store::{PrefixStore, StoreSpec};
use object_store::{local::LocalFileSystem, path::Path};

type Failure = Box<dyn std::error::Error>;

/// Tokens in a block.
const BLOCK: usize = 16;

/// Four blocks to compute with, sixteen for what does not fit.
#[graph_captured]
struct Model<S: Space = Host> {
    kv: BlockPool<GlobalKv<f32>, S>,
    cold: BlockPool<GlobalKv<f32>, S>,
}

struct Server {
    engine: Engine<Serving<Model>>,
    stream: Stream<Host>,
    tiers: TieredCache<GlobalKv<f32>>,
}

impl Server {
    fn new() -> Result<Self, Failure> {
        let device = Device::new(HostBackend::new(), Bytes::mib(1));
        let mut engine = Engine::open(&device);
        let pool = |blocks| PoolSpec::fixed(Tokens::new(BLOCK as u64), BLOCK, Blocks::new(blocks));
        let lines = engine.declare_bundle::<Model>(ModelSpec { kv: pool(4), cold: pool(16) });
        let stream = engine.declare(StreamSpec { scratch: Bytes::kib(1) });
        let mut engine = engine.plan(Limits::new(Host::NAME, Bytes::mib(1)))?.carve(lines)?;
        let stream = engine.open_stream(stream)?;
        let engine = engine.serve::<Model>()?;
        let hot = PrefixCache::new(&engine.bundle().kv.handle(), PrefixCacheSpec::new(Blocks::new(4)))?;
        let cold = PrefixCache::new(&engine.bundle().cold.handle(), PrefixCacheSpec::new(Blocks::new(16)))?;
        let tiers = TieredCache::new(hot, cold, TierSpec { paths: 8, longest: Tokens::new(1024) })?;
        Ok(Server { engine, stream, tiers })
    }

    /// Serves a prompt of whole blocks. How many tokens had to be computed.
    fn serve(&mut self, prompt: &[u32]) -> Result<u64, Failure> {
        let root = self.tiers.root(&RootKey::new("toy"))?;
        let content = Content::new(root, prompt);
        let all = Tokens::new(prompt.len() as u64);
        let mut ticket = self.tiers.lookup(&content)?.open(all);
        let mut step = self.engine.step(&mut self.stream)?;
        let ModelView { kv, cold, .. } = &mut step.buffers;
        // What the first tier gave up comes back from the second.
        let restored = self.tiers.restore(step.on, kv, cold, &mut ticket, &content)?;
        let known = Tokens::new(ticket.tokens().count() + restored.count());
        let computed = all.beyond(known);
        ticket.extend(all.beyond(ticket.tokens()))?;
        for index in known.count() as usize / BLOCK..prompt.len() / BLOCK {
            // The forward pass of a model whose values are its tokens.
            let values: Vec<f32> = prompt[index * BLOCK..][..BLOCK].iter().map(|token| *token as f32).collect();
            step.on.write(&mut kv.block_mut(&mut ticket, index)?, &values)?;
        }
        let mut last = [0.0; BLOCK];
        step.on.read(kv.block(&ticket, prompt.len() / BLOCK - 1)?, &mut last)?;
        assert_eq!(last[BLOCK - 1], prompt[prompt.len() - 1] as f32);
        let fence = step.finish()?;
        ticket.advance(all.beyond(ticket.tokens()), &fence)?;
        self.tiers.hot().publish(&mut ticket, &fence.wait()?, &content)?;
        drop(ticket);

        // What would be given up next is copied to the second tier, and published there when the copy is done.
        let mut step = self.engine.step(&mut self.stream)?;
        let ModelView { kv, cold, .. } = &mut step.buffers;
        self.tiers.spill(step.on, kv, cold, Blocks::new(8))?;
        let fence = step.finish()?;
        self.tiers.sent(&fence)?;
        self.tiers.settle(&fence.wait()?)?;
        Ok(computed.count())
    }

    /// Saves the second tier: everything was spilled.
    fn save(&mut self, store: &PrefixStore) -> Result<Blocks, Failure> {
        let mut saver = store.save(self.tiers.cold())?;
        loop {
            let step = self.engine.step(&mut self.stream)?;
            let segment = saver.gather(step.on, &step.buffers.cold)?;
            step.finish()?.wait()?;
            let Some(segment) = segment else { break };
            block_on(saver.put(&segment))?;
        }
        Ok(block_on(saver.commit())?.blocks)
    }

    /// Loads into the second tier; requests restore what they need.
    fn load(&mut self, store: &PrefixStore) -> Result<u64, Failure> {
        self.tiers.root(&RootKey::new("toy"))?;
        let Some(mut loader) = block_on(store.load(self.tiers.cold()))? else { return Ok(0) };
        while block_on(loader.fetch())? {
            let mut step = self.engine.step(&mut self.stream)?;
            let batch = loader.write(step.on, &mut step.buffers.cold)?;
            loader.publish(batch, &step.finish()?)?;
        }
        Ok(loader.finish().blocks)
    }
}

fn main() -> Result<(), Failure> {
    // An engine names a folder that stays.
    let folder = tempfile::tempdir()?;
    let objects = Arc::new(LocalFileSystem::new_with_prefix(folder.path())?);
    let store = PrefixStore::new(objects, Path::from("toy"), StoreSpec::default());

    // Three prompts of three blocks, in a pool of four.
    let prompts: [Vec<u32>; 3] = [0, 1000, 2000].map(|first| (first..first + 3 * BLOCK as u32).collect());
    let mut server = Server::new()?;
    for prompt in &prompts {
        assert_eq!(server.serve(prompt)?, 48);
    }
    println!("the first again: {} tokens computed", server.serve(&prompts[0])?);
    println!("saved {}", server.save(&store)?);
    drop(server);

    let mut server = Server::new()?;
    println!("loaded {} blocks", server.load(&store)?);
    for prompt in &prompts {
        assert_eq!(server.serve(prompt)?, 0);
    }
    println!("all three again, in another engine: nothing computed");
    Ok(())
}
