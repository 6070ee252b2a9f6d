//! The memory space: a parameter that the macro adds, one that the author declares, or a fixed one.

use memtier::{
    BlockPool, Blocks, Bytes, Cuda, Device, Engine, FakeBackend, GlobalKv, Host, Limits, Place, PoolSpec, Space,
    Stream, StreamSpec, Tokens, f16, graph_captured, tier,
};

use crate::{DIMS, Dims};

/// Wherever it is nested, or where the bundle says.
#[tier(ModelResident, dims = Dims)]
pub struct Anywhere {
    /// An array.
    #[shape(hidden)]
    pub x: f32,
    /// Nested: in the same space.
    pub inner: Inner,
    /// An array of them.
    pub more: [Inner; layers],
}

/// Nested.
#[tier(ModelResident, dims = Dims)]
pub struct Inner {
    /// An array.
    #[shape(rows)]
    pub x: f32,
}

/// An alias of a storage nests too.
pub type Alias = Inner;

/// In a space that the author declared.
#[tier(ModelResident, dims = Dims, space = R)]
pub struct Declared<R: Space = Host> {
    /// An array.
    #[shape(hidden)]
    pub x: f32,
    /// Written with the space.
    pub inner: Inner<R>,
    /// Written with the space.
    pub more: [Inner<R>; layers],
}

/// Always on the device.
#[tier(EnginePersistent, dims = Dims, space = Cuda)]
pub struct OnDevice {
    /// An array.
    #[shape(hidden)]
    pub x: f32,
    /// Written with the space.
    pub inner: Work<Cuda>,
}

/// A workspace.
#[tier(EnginePersistent, dims = Dims)]
pub struct Work {
    /// An array.
    #[shape(rows)]
    pub x: f32,
}

/// Nests one with a declared space, and an alias.
#[tier(ModelResident, dims = Dims)]
pub struct Outer {
    /// Its space is filled in as well.
    pub declared: Declared,
    /// An alias.
    pub alias: Alias,
}

/// A bundle for any space.
#[graph_captured]
pub struct Model<S: Space = Host> {
    /// Weights.
    pub weights: Outer<S>,
    /// Others.
    pub anywhere: Anywhere<S>,
    /// Workspace.
    pub work: Work<S>,
    /// A pool.
    pub kv: BlockPool<GlobalKv<f16>, S>,
}

/// The same where the space is bound elsewhere.
#[graph_captured(space = R)]
pub struct Named<R>
where
    R: Space,
{
    /// Weights.
    pub weights: Outer<R>,
    /// Workspace.
    pub work: Option<Work<R>>,
}

/// A bundle that is always on the device.
#[graph_captured]
pub struct Fixed {
    /// Workspace.
    pub work: OnDevice,
    /// Weights.
    pub weights: Outer<Cuda>,
}

/// Model code is generic over the place: views know their space by it.
pub fn elements<P: Place>(view: &ModelView<'_, P>) -> usize {
    let weights: OuterRef<'_, P> = view.weights;
    let inner: usize = weights.declared.more.iter().map(|inner| inner.x.len()).sum();
    weights.declared.x.len() + inner + weights.alias.x.len() + view.anywhere.more.len() + view.work.x.len()
}

fn whole<S: Space>() {
    let device = Device::new(FakeBackend::<S>::new(), Bytes::mib(1));
    let mut engine = Engine::open(&device);
    let kv = PoolSpec::fixed(Tokens::new(4), 64, Blocks::new(32));
    let spec = ModelSpec::<S> { weights: DIMS, anywhere: DIMS, work: DIMS, kv };
    let lines = engine.declare_bundle::<Model<S>>(spec);
    let stream = engine.declare::<Stream<S>>(StreamSpec { scratch: Bytes::kib(4) });
    let mut engine = engine.plan(Limits::new(S::NAME, Bytes::mib(1))).unwrap().carve(lines).unwrap();
    let mut stream = engine.open_stream(stream).unwrap();
    let mut engine = engine.serve::<Model<S>>().unwrap();
    let step = engine.step(&mut stream).unwrap();
    assert_eq!(elements(&step.buffers), 8 + 2 * 3 + 3 + 2 + 3);
    drop(step);
    let (_, kept): (_, ModelKept<S>) = engine.drain().unwrap().end_model();
    let _: Work<S> = kept.work;
}

#[test]
fn one_declaration_serves_every_space() {
    whole::<Host>();
    whole::<Cuda>();
    assert_eq!(Anywhere::price(&DIMS), <Anywhere<Cuda> as memtier::Storage>::price(&DIMS));
    assert_eq!(Declared::price(&DIMS), <Declared<Cuda> as memtier::Storage>::price(&DIMS));
    assert!(OnDevice::price(&DIMS).is_ok());
}

#[test]
fn a_bundle_is_where_its_parts_are() {
    fn space<B: memtier::Bundle>() -> &'static str {
        <B::Space as Space>::NAME
    }
    assert_eq!((space::<Fixed>(), space::<Named<Cuda>>(), space::<Model>()), ("cuda", "cuda", "host"));
}
