//! The guarantees, one by one.

use crate::Mutation;

pub(crate) const MUTATIONS: &[Mutation] = &[
    // Phases.
    Mutation {
        case: "phase/declare-while-serving",
        file: "engine/mod.rs",
        from: "",
        to: "
impl<B: Send + Sync> MakesDeclarations for Serving<B> {
    fn loading(&mut self, _: Token) -> &mut Loading { unimplemented!() }
    fn into_loading(self, _: Token) -> Loading { unimplemented!() }
}",
    },
    Mutation {
        case: "phase/carve-while-serving",
        file: "engine/mod.rs",
        from: "",
        to: "
impl<B: Send + Sync> CarvesStorage for Serving<B> {
    fn into_planning(self, _: Token) -> Planning { unimplemented!() }
}",
    },
    Mutation {
        case: "phase/stream-while-serving",
        file: "engine/mod.rs",
        from: "",
        to: "
impl<B: Send + Sync> OpensMemory for Serving<B> {
    fn open(&mut self, _: Token) -> Opened<'_> { unimplemented!() }
}",
    },
    Mutation {
        case: "phase/staging-while-serving",
        file: "engine/mod.rs",
        from: "",
        to: "
impl<B: Bundle> StagesUploads<B> for Serving<B> {
    fn target(&mut self, _: Token) -> &mut B { &mut self.owned }
}",
    },
    Mutation {
        case: "phase/end-model-without-a-drain",
        file: "engine/mod.rs",
        from: "",
        to: "
impl<B: Bundle> EndsModel<B> for Serving<B> {
    fn into_drained(self, _: Token) -> Serving<Drained<B>> { unimplemented!() }
}",
    },
    Mutation {
        case: "phase/phase-implemented-downstream",
        file: "lib.rs",
        from: "pub use engine::{",
        to: "pub use engine::Token;\npub use engine::{",
    },
    Mutation {
        case: "phase/staging-alive-at-serve",
        file: "engine/planning.rs",
        from: "    pub staging: Staging<'s>,",
        to: "    pub staging: Staging<'static>,",
    },
    Mutation {
        case: "phase/upload-from-an-own-vec",
        file: "place.rs",
        from: "",
        to: "\nimpl<S: Space> OutsideCapture for Uploading<S> {}",
    },
    // Tiers.
    Mutation {
        case: "tier/resident-storage-demanded-persistent",
        file: "tier.rs",
        from: "",
        to: "\nimpl<S: Space> OutlivesModel for ModelResident<S> {}",
    },
    Mutation {
        case: "tier/nested-storage-laid-out-by-hand",
        file: "tier.rs",
        from: "impl<T: Tier> SameTier<T> for T {}",
        to: "impl<T: Tier, O: Tier> SameTier<O> for T {}",
    },
    // Spans and launches.
    Mutation {
        case: "span/stable-span-from-a-device-span",
        file: "span.rs",
        from: "",
        to: "
impl<'a, T: Element, P: Place> From<DeviceSpan<'a, T>> for StableSpan<'a, T, P> {
    fn from(span: DeviceSpan<'a, T>) -> Self { StableSpan { raw: span.raw, marker: PhantomData } }
}",
    },
    Mutation {
        case: "span/write-view-copied",
        file: "span.rs",
        from: "",
        to: "
impl<T: Element, P> Clone for StableSpanMut<'_, T, P> { fn clone(&self) -> Self { *self } }
impl<T: Element, P> Copy for StableSpanMut<'_, T, P> {}",
    },
    Mutation {
        case: "launch/device-span-to-a-kernel",
        file: "span.rs",
        from: "",
        to: "
impl<T: Element> Sealed for DeviceSpan<'_, T> {}
impl<T: SameElement<U>, U: Element, Q: Place> Input<U, Q> for DeviceSpan<'_, T> {
    fn input(self) -> RawSpan<U> { self.raw.cast() }
}",
    },
    Mutation {
        case: "launch/wrong-element-to-a-kernel",
        file: "element.rs",
        from: "",
        to: "\nimpl SameElement<f32> for u32 {}",
    },
    Mutation {
        case: "launch/host-span-to-a-cuda-kernel",
        file: "space.rs",
        from: "impl<S: Space> Is<S> for S {}",
        to: "impl<S: Space, O> Is<O> for S {}",
    },
    // Bundles over two spaces.
    Mutation {
        case: "attacks/a22-part-in-another-space-on-an-unseen-stream",
        file: "place.rs",
        from: "",
        to: "\nimpl<P, S> LaunchesOver<Beside<P>> for Eager<S> {}",
    },
    Mutation {
        case: "launch/copy-across-from-another-step",
        file: "place.rs",
        from: "",
        to: "\nimpl Reached<Eager<crate::space::Cuda>> for Eager<Host> { const BESIDE: bool = true; }",
    },
    Mutation {
        case: "tier/page-table-beside-the-device",
        file: "pool/table.rs",
        from: "    const STEERS: bool = true;",
        to: "    const STEERS: bool = false;",
    },
    // Captures.
    Mutation {
        case: "graph/foreign-instance-in-a-capture",
        file: "place.rs",
        from: "impl<'b, S, R> SameMode<Captured<'b, R>> for Eager<S> where Captured<'b, R>: Owns<Eager<S>> {}",
        to: "impl<'b, S, R> SameMode<Captured<'b, R>> for Eager<S> {}",
    },
    Mutation {
        case: "graph/captured-span-in-an-eager-launch",
        file: "place.rs",
        from: "impl<'b, S, R> SameMode<Eager<R>> for Captured<'b, S> where Eager<R>: Shares<Captured<'b, S>> {}",
        to: "impl<'b, S, R> SameMode<Eager<R>> for Captured<'b, S> {}",
    },
    Mutation {
        case: "graph/host-write-in-a-capture",
        file: "place.rs",
        from: "",
        to: "\nimpl<S: Space> OutsideCapture for Captured<'_, S> {}",
    },
    // Requests and blocks.
    Mutation {
        case: "kv/block-ref-cloned",
        file: "pool/block.rs",
        from: "",
        to: "
impl<K: PoolKind> Clone for BlockRef<K> {
    fn clone(&self) -> Self { unimplemented!() }
}",
    },
    Mutation {
        case: "kv/block-span-after-retire",
        file: "pool/view.rs",
        from: "pub fn block<'x>(&'x self, ticket: &'x Ticket<K>,",
        to: "pub fn block<'x>(&'x self, ticket: &Ticket<K>,",
    },
    Mutation {
        case: "kv/sliding-window-block-shared",
        file: "pool/kind.rs",
        from: "",
        to: "\nimpl<E: Plain> Shareable for SwaKv<E> {}",
    },
    Mutation {
        case: "kv/publish-without-a-proof",
        file: "pool/prefix.rs",
        from: "",
        to: "
impl<K: PoolKind> InMemory<K> for Ticket<K> { fn published(&self) -> Prefix<K> { unimplemented!() } }",
    },
    Mutation {
        case: "kv/settled-forged",
        file: "record/fence.rs",
        from: "pub struct Settled {\n    pub(crate) lane: Arc<Lane>,\n    pub(crate) step: u64,",
        to: "pub struct Settled {\n    pub lane: Arc<Lane>,\n    pub step: u64,",
    },
    Mutation {
        case: "kv/planned-commit-forged",
        file: "pool/spec.rs",
        from: "pub struct PlannedCommit<K> {\n    pool: u64,\n    kind: PhantomData<fn() -> K>,",
        to: "pub struct PlannedCommit<K> {\n    pub pool: u64,\n    pub kind: PhantomData<fn() -> K>,",
    },
    Mutation {
        case: "kv/table-row-of-another-kind",
        file: "pool/table.rs",
        from: "pub fn set(&mut self, on: &Recorder<P>, row: usize, ticket: &Ticket<K>)",
        to: "pub fn set<A: PoolKind>(&mut self, on: &Recorder<P>, row: usize, ticket: &Ticket<A>)",
    },
    Mutation {
        case: "kv/needed-minus-held",
        file: "units.rs",
        from: "",
        to: "\nimpl<U> Operand<U> for U { fn applied(self, _: U) -> U { self } }",
    },
    // Scratch.
    Mutation {
        case: "scratch/nested-frame-returned",
        file: "record/scratch.rs",
        from: "pub fn nested(&mut self) -> ScratchFrame<'_, P> {",
        to: "pub fn nested(&mut self) -> ScratchFrame<'f, P> {",
    },
];
