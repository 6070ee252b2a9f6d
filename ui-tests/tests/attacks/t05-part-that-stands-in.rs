//! A module in place of memtier, whose parts are all memtier's and do what they like: none of it is called.

#![forbid(unsafe_code)]

use memtier::*;
use ui_tests::*;

pub mod fake {
    pub mod __private {
        pub use memtier::__private::*;
        use memtier::Part as Real;
        pub use memtier::plan::Demand;

        /// Every real part is one of these.
        pub trait Part: Real {
            type Space: Space;
            type View<'a, P: Place<Space = <Self as Real>::Space>>: Send
            where
                Self: 'a;
            type LoadView<'a, P: Place<Space = <Self as Real>::Space>>: Send
            where
                Self: 'a;
            type Kept: Send;

            fn view<P: Place<Space = <Self as Real>::Space>>(_: &mut Self, _: &Cx<P>) -> <Self as Part>::View<'static, P> {
                panic!("a part was handed out while it may be in a graph")
            }
            fn load_view<P: Place<Space = <Self as Real>::Space>>(
                _: &mut Self,
                _: &Cx<P>,
            ) -> <Self as Part>::LoadView<'static, P> {
                panic!("a part was handed out")
            }
            fn kept(_: Self) -> <Self as Part>::Kept {
                panic!("a part outlives its model")
            }
            fn keep(_: &Self, _: &mut Keep) {
                panic!("a graph would not keep the memory of this part")
            }
            fn gates<V: ?Sized>(_: &Self, _: &mut V) {
                panic!("nobody would hear of this pool")
            }
        }
        impl<T: Real> Part for T {
            type Space = <T as Real>::Space;
            type View<'a, P: Place<Space = <T as Real>::Space>>
                = <T as Real>::View<'a, P>
            where
                T: 'a;
            type LoadView<'a, P: Place<Space = <T as Real>::Space>>
                = <T as Real>::LoadView<'a, P>
            where
                T: 'a;
            type Kept = <T as Real>::Kept;
        }

        /// The same for what is declared.
        pub trait Declare: memtier::Declare {
            type Spec: Send + Sync + 'static;
            fn price(_: &<Self as Declare>::Spec, _: &mut dyn FnMut(Demand)) -> Result<(), SizeError> {
                panic!("a price of one's own")
            }
        }
        impl<T: memtier::Declare> Declare for T {
            type Spec = <T as memtier::Declare>::Spec;
        }
    }
}

#[graph_captured(crate = self::fake)]
pub struct Model {
    pub work: DecodeWorkspace,
    pub kv: BlockPool<GlobalKv<f32>>,
}

pub fn main() -> Result<(), Error> {
    let mut engine = loading();
    let lines = engine.declare_bundle::<Model>(ModelSpec { work: DIMS, kv: POOL });
    let stream = engine.declare(STREAM);
    let mut engine = engine.plan(limits::<Host>())?.carve(lines)?;
    let mut stream = engine.open_stream(stream)?;
    drop(engine.load::<Model>(&mut stream)?);
    let graph = engine.record::<Model, LaunchError, _>(&mut stream, |step| {
        step.on.copy(&mut step.buffers.work.hidden, step.buffers.work.attn.read())
    })?;
    let mut engine = engine.serve::<Model>()?;
    let mut step = engine.step::<Model>(&mut stream)?;
    step.on.write(&mut step.buffers.work.attn, &[2.0; 64])?;
    step.replay(graph)?;
    step.finish()?.wait()?;
    let (_, kept) = engine.drain::<Model>()?.end_model::<Model>();
    let _: DecodeWorkspace = kept.work;
    Ok(())
}
