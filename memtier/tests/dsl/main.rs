//! A whole model through the declarations: declared, planned, carved, loaded, stepped, recorded, replayed, served, drained,
//! swapped with what survives, and served again. Priced is carved, and no two fields share a byte.
#![forbid(unsafe_code)]
#![deny(warnings, missing_docs, unused, clippy::all)]

pub mod fill;
pub mod model;

use fill::{holds, upload};
use memtier::{
    Blocks, Bytes, Device, Eager, Element, Engine, FakeBackend, FieldInfo, Fits, Host, HostBackend, LaunchError, Line,
    Load, Loading, Planning, RecordError, Serving, SizeError, Space, StableSpan, StableSpanMut, Step, Stream,
    StreamSpec, Tokens, Uploading, input, output,
};
use model::{
    DIMS, DecodeWorkspace, Dims, Llama, LlamaLines, LlamaLoadView, LlamaView, LlamaWeights, LlamaWeightsMut,
    NormWeights, limits, spec,
};

/// The address and the bytes of a field.
type Place = (u64, u64);

fn place<T: Element, P: memtier::Place>(span: StableSpan<'_, T, P>) -> Place {
    (span.widen().addr(), (span.len() * size_of::<T::Repr>()) as u64)
}

/// Calls `$each!(field)` for each field of the weights, in the order of memory.
macro_rules! every_field {
    ($weights:expr, $each:ident) => {{
        let weights = $weights;
        $each!(weights.embed);
        $each!(weights.norm.scale);
        $each!(weights.norm.quantised);
        $each!(weights.extra.query);
        $each!(weights.extra.up);
        $each!(weights.extra.down);
        #[allow(unused_mut, reason = "some callers only look")]
        for mut layer in weights.layers.iter_mut() {
            $each!(layer.query);
            $each!(layer.up);
            $each!(layer.down);
        }
        #[allow(unused_mut, reason = "some callers only look")]
        for mut norm in weights.norms.iter_mut() {
            $each!(norm.scale);
            $each!(norm.quantised);
        }
        if let Some(vision) = &mut weights.vision {
            $each!(vision.patches);
        }
        if let Some(projector) = &mut weights.projector {
            $each!((*projector));
        }
    }};
}

fn places(weights: &mut LlamaWeightsMut<'_, Uploading<Host>>) -> Vec<Place> {
    let mut places = Vec::new();
    macro_rules! note {
        ($field:expr) => {
            places.push(place($field.read()))
        };
    }
    every_field!(weights, note);
    places
}

/// The fields lie where `fields` says, whole and apart.
fn agree(fields: &[FieldInfo], places: &[Place], price: Bytes) {
    let base = places[0].0;
    assert_eq!(base % 4096, 0, "a storage starts on a page");
    assert_eq!(fields.len(), places.len());
    let mut end = 0;
    for (field, (addr, bytes)) in fields.iter().zip(places) {
        assert_eq!((field.offset.count(), field.bytes.count()), (addr - base, *bytes), "{}", field.name);
        assert!(field.offset.count() >= end, "{} overlaps the field before it", field.name);
        end = field.offset.count() + field.bytes.count();
    }
    assert!(end <= price.count(), "the last field ends behind the storage");
}

fn open(device: &Device) -> (Engine<Loading>, LlamaLines, Line<Stream<Host>>) {
    let mut engine = Engine::open(device);
    let lines = engine.declare_bundle::<Llama>(spec(DIMS));
    let stream = engine.declare(StreamSpec { scratch: Bytes::kib(64) });
    (engine, lines, stream)
}

/// Writes something else into every field, then reads everything back.
fn load(engine: &mut Engine<Planning<Llama>>, stream: &mut Stream<Host>) {
    let Load { buffers: LlamaLoadView { mut weights, work, .. }, on, scratch: _, staging } =
        engine.load(stream).unwrap();
    agree(&LlamaWeights::fields(&DIMS).unwrap(), &places(&mut weights), LlamaWeights::price(&DIMS).unwrap());
    let work_places =
        [place(work.hidden.read()), place(work.attn.read()), place(work.logits.read()), place(work.before.read())];
    agree(&DecodeWorkspace::fields(&DIMS).unwrap(), &work_places, DecodeWorkspace::price(&DIMS).unwrap());
    assert_eq!(work_places[2].0 % 4096, 0, "`align(4096)`");

    let mut seed = 0u8;
    macro_rules! fill {
        ($field:expr) => {{
            seed += 1;
            upload(&mut $field, seed, &staging, on);
        }};
    }
    every_field!(&mut weights, fill);
    assert_eq!(usize::from(seed), LlamaWeights::fields(&DIMS).unwrap().len());
}

/// Nothing that was written into one field is seen in another.
fn unharmed(step: &mut Step<'_, Llama, Eager<Host>>) {
    let (weights, on) = (step.buffers.weights, step.on);
    let mut seed = 0;
    holds(weights.embed, &mut seed, on);
    holds(weights.norm.scale, &mut seed, on);
    holds(weights.norm.quantised, &mut seed, on);
    for layer in std::iter::once(weights.extra).chain(weights.layers.iter()) {
        holds(layer.query, &mut seed, on);
        holds(layer.up, &mut seed, on);
        holds(layer.down, &mut seed, on);
    }
    for norm in weights.norms.iter() {
        holds(norm.scale, &mut seed, on);
        holds(norm.quantised, &mut seed, on);
    }
    holds(weights.vision.unwrap().patches, &mut seed, on);
    holds(weights.projector.unwrap(), &mut seed, on);
}

/// `logits = before + 1`, `before = logits`: something that a graph can be seen to have done.
fn count<P: memtier::Place<Space: memtier::Is<Host>>>(
    on: &memtier::Recorder<P>,
    logits: &mut StableSpanMut<'_, f32, impl Fits<P>>,
    before: &mut StableSpanMut<'_, f32, impl Fits<P>>,
) -> Result<(), LaunchError> {
    on.host_op((output::<f32, _, _>(logits), input::<f32, _, _>(&*before)), |(logits, before)| {
        logits.iter_mut().zip(before).for_each(|(logit, before)| *logit = before + 1.0);
        Ok(())
    })?;
    on.copy::<f32>(before, &*logits)
}

fn first_logit(step: &Step<'_, Llama, Eager<Host>>) -> f32 {
    let mut out = [0.0];
    step.on.read::<f32>(&step.buffers.work.logits, &mut out).unwrap();
    out[0]
}

/// One model: steps, a graph, requests.
fn serve(engine: Engine<Planning<Llama>>, stream: &mut Stream<Host>) -> Engine<Serving<Llama>> {
    let mut engine = engine;
    let graph = engine
        .record::<Llama, LaunchError, _>(stream, |step| {
            let LlamaView { work, .. } = &mut step.buffers;
            count(step.on, &mut work.logits, &mut work.before)
        })
        .unwrap_or_else(|error: RecordError<LaunchError>| panic!("{error}"));
    let mut engine = engine.serve::<Llama>().unwrap();

    let mut ticket = engine.bundle().kv.open(Tokens::new(8));
    ticket.extend(Tokens::new(5)).unwrap();
    let mut window = engine.bundle().window.as_ref().unwrap().open(Tokens::new(4));
    window.extend(Tokens::new(4)).unwrap();

    let mut step = engine.step(stream).unwrap();
    unharmed(&mut step);
    {
        let LlamaView { work, table, kv, window, draft, .. } = &mut step.buffers;
        assert!(draft.is_none() && window.is_some());
        assert_eq!(kv.committed(), Blocks::new(8));
        let tens = vec![10.0; work.before.len()];
        step.on.write(&mut work.before, &tens).unwrap();
        table.set(step.on, 0, &ticket).unwrap();
    }
    for round in 1..=3 {
        step.replay(graph).unwrap();
        assert_eq!(first_logit(&step), 10.0 + round as f32);
    }
    step.buffers.table.clear(step.on, 0).unwrap();
    unharmed(&mut step);
    step.finish().unwrap().wait().unwrap();
    drop((ticket, window));
    engine
}

/// Two models, one after the other.
fn whole_life(device: &Device) {
    let (engine, lines, stream) = open(device);
    let mut engine = engine.plan(limits()).unwrap().carve(lines).unwrap();
    let plan = engine.memory_plan();
    assert_eq!(plan.line("LlamaWeights").unwrap().granted, LlamaWeights::price(&DIMS).unwrap());
    assert_eq!(plan.line("DecodeWorkspace").unwrap().granted, DecodeWorkspace::price(&DIMS).unwrap());
    let planned = Bytes::sum(plan.lines().iter().filter(|line| line.space == Host::NAME).map(|line| line.granted));
    let mut stream = engine.open_stream(stream).unwrap();
    // What graphs cost is set aside, not acquired.
    let graphs = Bytes::kib(8);
    assert_eq!(device.report().live.plus(graphs), planned, "priced is carved");

    load(&mut engine, &mut stream);
    let mut engine = serve(engine, &mut stream);
    let (address, logit) = {
        let step = engine.step(&mut stream).unwrap();
        (place(step.buffers.work.logits.read()), first_logit(&step))
    };

    let (mut engine, kept) = engine.drain().unwrap().end_model();
    let _: memtier::Gone = kept.weights;
    let sizes = spec(DIMS);
    let other = Dims { vocab: 101, ..DIMS };
    let work = engine.keep(kept.work, &other).err().expect("kept with other dims").part;
    let lines = LlamaLines {
        weights: engine.declare(DIMS),
        work: engine.keep(work, &sizes.work).unwrap(),
        kv: engine.keep(kept.kv, &sizes.kv).unwrap(),
        window: engine.keep(kept.window, &sizes.window).unwrap(),
        draft: engine.keep(kept.draft, &sizes.draft).unwrap(),
        table: engine.keep(kept.table, &sizes.table).unwrap(),
    };
    let mut engine = engine.plan(limits()).unwrap().carve(lines).unwrap();
    load(&mut engine, &mut stream);
    {
        let step = engine.step(&mut stream).unwrap();
        assert_eq!(place(step.buffers.work.logits.read()), address, "what survives stays where it is");
        assert_eq!(first_logit(&step), logit, "and holds what it held");
    }
    let engine = serve(engine, &mut stream);
    assert_eq!(device.report().acquisitions[2], 0, "nothing was acquired while serving");
    drop((engine, stream));
    assert_eq!(device.report().live, Bytes::ZERO, "everything was given back");
}

#[test]
fn the_whole_life_on_host_memory() {
    whole_life(&Device::new(HostBackend::new(), Bytes::mib(64)));
}

#[test]
fn the_whole_life_on_the_fake_backend() {
    whole_life(&Device::new(FakeBackend::<Host>::new(), Bytes::mib(64)));
}

#[test]
fn the_whole_life_when_launches_finish_as_late_as_they_can() {
    whole_life(&Device::new(FakeBackend::<Host>::asynchronous(), Bytes::mib(64)));
}

#[test]
fn optional_fields_cost_nothing_when_they_are_out() {
    let names = |dims: &Dims| -> Vec<String> {
        LlamaWeights::fields(dims).unwrap().into_iter().map(|field| field.name).collect()
    };
    let (with, without, small) = (DIMS, Dims { vision: false, ..DIMS }, Dims { layers: 1, ..DIMS });
    assert!(names(&with).ends_with(&["vision.patches".into(), "projector".into()]));
    assert!(!names(&without).iter().any(|name| name.starts_with("vision") || name == "projector"));
    assert!(names(&small).contains(&"vision.patches".into()) && !names(&small).contains(&"projector".into()));
    let vision = LlamaWeights::price(&with).unwrap().count() - LlamaWeights::price(&without).unwrap().count();
    assert!(vision >= 3 * 14 * 14 * 64 * 2);
}

#[test]
fn items_have_dims_of_their_own() {
    let fields = LlamaWeights::fields(&DIMS).unwrap();
    let shape = |name: &str| fields.iter().find(|field| field.name == name).map(|field| field.shape.clone());
    assert_eq!(shape("extra.up"), Some(vec![128, 64]));
    assert_eq!(shape("layers[0].up"), Some(vec![32, 64]));
    assert_eq!(shape("layers[2].down"), Some(vec![64, 96]));
    assert_eq!(shape("norms[1].quantised"), Some(vec![2, 256]));
    let bytes = |name: &str| fields.iter().find(|field| field.name == name).map(|field| field.bytes.count());
    assert_eq!((bytes("layers[0].up"), bytes("layers[1].up")), (Some(32 * 64 * 2), Some(64 * 64 / 32 * 34)));
}

#[test]
fn sizes_that_are_none_are_typed_errors_with_their_field() {
    let error = |dims: Dims| LlamaWeights::price(&dims).err();
    assert_eq!(error(Dims { vocab: usize::MAX, ..DIMS }), Some(SizeError::Overflow { field: "embed" }));
    assert_eq!(error(Dims { vocab: 0, ..DIMS }), Some(SizeError::Zero { field: "embed" }));
    let many = error(Dims { layers: 1 << 40, ..DIMS });
    assert!(matches!(many, Some(SizeError::Overflow { .. } | SizeError::TooMany { .. })), "{many:?}");
    let work = DecodeWorkspace::price(&Dims { heads: usize::MAX, ..DIMS });
    assert_eq!(work.err(), Some(SizeError::Overflow { field: "attn" }), "inside of an expression");
    let norm = NormWeights::price(&Dims { hidden: usize::MAX, ..DIMS });
    assert!(matches!(norm, Err(SizeError::Overflow { .. })), "in a method");
    let none = Dims { layers: 0, ..DIMS };
    assert!(LlamaWeights::price(&none).is_ok(), "an array may be empty");
}
