//! A hybrid model: attention layers whose prefix is shared, and recurrent layers whose state is overwritten with every token. A
//! request that starts behind a cached prefix gets a copy of the state as it was there; a wrong guess is undone by a copy.

use std::sync::Arc;

use memtier::{
    BlockPool, Blocks, Bytes, Content, Device, Eager, Engine, GlobalKv, Host, HostBackend, LaunchError, Limits,
    PoolSpec, PrefixCache, PrefixCacheSpec, Recorder, RecurrentState, RootKey, Serving, Snapshots, Space, Stream,
    StreamSpec, Ticket, Tokens, graph_captured, output,
};

/// Tokens of a block of attention's keys and values.
const BLOCK: usize = 4;
/// Elements of the state.
const STATE: usize = 8;

/// What a hybrid model owns for its requests.
#[graph_captured]
pub struct Hybrid {
    /// One value a token.
    pub kv: BlockPool<GlobalKv<f32>>,
    /// One state a sequence.
    pub state: BlockPool<RecurrentState<f32>>,
}

type Error = Box<dyn std::error::Error>;

struct Request {
    kv: Ticket<GlobalKv<f32>>,
    state: Ticket<RecurrentState<f32>>,
    tokens: Vec<u32>,
}

struct Server {
    engine: Engine<Serving<Hybrid>>,
    stream: Stream<Host>,
}

impl Server {
    /// Processes the request's tokens from `done` on: every token decays the state and adds to it, and leaves a value behind.
    fn run(&mut self, request: &mut Request, done: usize) -> Result<memtier::Settled, Error> {
        let Request { kv, state, tokens } = request;
        let more = Tokens::new((tokens.len() - done) as u64);
        kv.extend(more)?;
        state.extend(more)?;
        let mut step = self.engine.step(&mut self.stream)?;
        for (position, token) in tokens.iter().enumerate().skip(done) {
            let mut block = step.buffers.kv.block_mut(kv, position / BLOCK)?;
            let mut value = block.range(position % BLOCK..position % BLOCK + 1).ok_or("a block of four values")?;
            let mut state = step.buffers.state.block_mut(state, 0)?;
            recur(step.on, &mut value, &mut state, *token as f32)?;
        }
        let fence = step.finish()?;
        kv.advance(more, &fence)?;
        state.advance(more, &fence)?;
        Ok(fence.wait()?)
    }

    /// Copies a state into a request that has none, or over the one it has.
    fn copy(
        &mut self,
        from: &Ticket<RecurrentState<f32>>,
        to: &mut Ticket<RecurrentState<f32>>,
    ) -> Result<memtier::Settled, Error> {
        to.extend(from.tokens())?;
        let mut step = self.engine.step(&mut self.stream)?;
        let (source, mut target) = step.buffers.state.copy_pair((from, 0), (to, 0))?;
        step.on.copy::<f32>(&mut target, source)?;
        let fence = step.finish()?;
        to.rewind(to.tokens())?;
        to.advance(from.tokens(), &fence)?;
        Ok(fence.wait()?)
    }

    fn read(&mut self, state: &Ticket<RecurrentState<f32>>) -> Result<[f32; STATE], Error> {
        let step = self.engine.step(&mut self.stream)?;
        let mut values = [0.0; STATE];
        step.on.read(step.buffers.state.block(state, 0)?, &mut values)?;
        let _ = step.finish()?;
        Ok(values)
    }
}

/// `state = state / 2 + token * (1, 2, 3, …)`, and its sum is what attention will see.
fn recur(
    on: &Recorder<Eager<Host>>,
    value: &mut memtier::StableSpanMut<'_, f32, Eager<Host>>,
    state: &mut memtier::StableSpanMut<'_, f32, Eager<Host>>,
    token: f32,
) -> Result<(), LaunchError> {
    on.host_op((output::<f32, _, _>(value), output::<f32, _, _>(state)), move |(value, state)| {
        state.iter_mut().enumerate().for_each(|(index, it)| *it = *it / 2.0 + token * (index + 1) as f32);
        value[0] = state.iter().sum();
        Ok(())
    })
}

fn main() -> Result<(), Error> {
    let device = Device::new(HostBackend::new(), Bytes::mib(1));
    let mut engine = Engine::open(&device);
    let lines = engine.declare_bundle::<Hybrid>(HybridSpec {
        kv: PoolSpec::fixed(Tokens::new(BLOCK as u64), BLOCK, Blocks::new(16)),
        // Two sequences, one that guesses, and two snapshots.
        state: PoolSpec::states(STATE, Blocks::new(5)),
    });
    let stream = engine.declare(StreamSpec { scratch: Bytes::kib(1) });
    let mut engine = engine.plan(Limits::new(Host::NAME, Bytes::mib(1)))?.carve(lines)?;
    let stream = engine.open_stream(stream)?;
    let mut server = Server { engine: engine.serve::<Hybrid>()?, stream };
    let (kv, states) = (server.engine.bundle().kv.handle(), server.engine.bundle().state.handle());
    let cache = PrefixCache::new(&kv, PrefixCacheSpec::new(Blocks::new(16)))?;
    let mut snapshots = Snapshots::<RecurrentState<f32>>::new(&cache, 2);
    let root = cache.root(&RootKey::new("hybrid"))?;
    let open = || states.open(Tokens::new(64));

    // The first request computes all of its prompt; whole blocks go to the cache, and the state at their end is kept.
    let prompt: Vec<u32> = (1..=8).collect();
    let mut first = Request { kv: kv.open(Tokens::new(64)), state: open(), tokens: prompt.clone() };
    let settled = server.run(&mut first, 0)?;
    let cached = cache.publish(&mut first.kv, &settled, &Content::new(root, &prompt))?;
    let mut copy = open();
    let settled = server.copy(&first.state, &mut copy)?;
    assert!(snapshots.keep(&first.kv, Arc::new(copy), &settled));
    println!("cached {cached}, with the state behind them");

    // The second asks on. It starts with the blocks and a copy of the state, and computes two tokens, not ten.
    let mut tokens = prompt.clone();
    tokens.extend([9, 10]);
    let mut lease = cache.lookup(&Content::new(root, &tokens))?;
    let (blocks, state) = snapshots.find(&lease).ok_or("the state was kept")?;
    lease.shorten(blocks);
    let mut second = Request { kv: lease.open(Tokens::new(64)), state: open(), tokens };
    let _ = server.copy(&state, &mut second.state)?;
    let done = second.kv.tokens().count() as usize;
    server.run(&mut second, done)?;
    println!("found {done} tokens, computed {}", second.tokens.len() - done);

    // As if it had computed them all.
    let mut alone = Request { kv: kv.open(Tokens::new(64)), state: open(), tokens: second.tokens.clone() };
    server.run(&mut alone, 0)?;
    assert_eq!(server.read(&second.state)?, server.read(&alone.state)?);

    // Three guesses, of which none is right: the state goes back, and the blocks lose their tail.
    let (before, expected) = (second.kv.tokens(), server.read(&second.state)?);
    let mut copy = open();
    let _ = server.copy(&second.state, &mut copy)?;
    second.tokens.extend([70, 71, 72]);
    server.run(&mut second, before.count() as usize)?;
    assert_ne!(server.read(&second.state)?, expected);
    second.kv.rewind(Tokens::new(3))?;
    second.kv.truncate(before.in_blocks_of(Tokens::new(BLOCK as u64)));
    let _ = server.copy(&copy, &mut second.state)?;
    assert_eq!((server.read(&second.state)?, second.kv.tokens()), (expected, before));

    drop((first, second, alone, copy, state));
    assert_eq!((states.free(), snapshots.blocks()), (Blocks::new(4), Blocks::new(1)));
    println!("every state is back but the one that is kept");
    Ok(())
}
