//! Times of attention as the bars have them: random data, buffers rotated past the second-level cache, launches recorded into a graph
//! that is replayed, medians, a sample of the result against f64. `benches/gpu/attention_peers.py` reads these lines.

mod support;

use std::time::Instant;

use memtier::{
    BlockPool, Blocks, Bytes, Cuda, Device, Engine, F8E4M3, GlobalKv, LaunchError, Limits, PageTable, Space, Step,
    StreamSpec, TableSpec, Tokens, bf16, f16, graph_captured, tier,
};
use memtier_cuda::kernels::{
    DecodeShape, DecodeWork, KvElement, PackedKv, PagedKv, PrefillShape, paged_decode, paged_prefill,
};
use support::{Rng, backend, distance, kernels as load_kernels, pool, skipped_without_a_real_device, wide};

/// Launches of a graph, replays of a round, rounds.
const LAUNCHES: usize = 20;
const REPLAYS: usize = 5;
const ROUNDS: usize = 7;

#[derive(Clone, Copy, Debug)]
struct Dims {
    queries: usize,
    numbers: usize,
    outs: usize,
    partial: usize,
}

/// What is read and written besides the pages.
#[tier(EnginePersistent, dims = Dims, space = Cuda)]
struct Work {
    #[shape(queries)]
    q: bf16,
    #[shape(queries)]
    q16: f16,
    #[shape(numbers)]
    rows: u32,
    #[shape(numbers)]
    ends: u32,
    #[shape(outs)]
    out: bf16,
    #[shape(partial)]
    partial: f32,
    #[shape(65536)]
    arrived: u32,
}

#[derive(Clone, Copy)]
struct Case {
    batch: usize,
    context: usize,
    kv_heads: usize,
    group: usize,
    head_dim: usize,
    page: usize,
}

impl Case {
    fn heads(&self) -> usize {
        self.kv_heads * self.group
    }

    /// Of keys and values of one launch.
    fn elements(&self) -> usize {
        self.batch * self.context * self.kv_heads * self.head_dim * 2
    }

    fn name(&self) -> String {
        let Case { batch, context, kv_heads, head_dim, page, .. } = self;
        format!("{batch}x{context} {}/{kv_heads} D{head_dim} page {page}", self.heads())
    }
}

/// Bytes that stay away from the cache between two uses.
const PAST_CACHE: usize = 400 << 20;

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

/// An element of a pool: random contents of a block, and what a number in it is.
trait Held: KvElement {
    fn block(rng: &mut Rng, units: usize, case: &Case, packed: Option<PackedKv>) -> Vec<Self>;
    /// Token `slot` of a block: `part` counts key heads, then value heads.
    fn vector(block: &[Self], part: usize, slot: usize, case: &Case, packed: Option<PackedKv>) -> Vec<f64>;
}

impl Held for bf16 {
    fn block(rng: &mut Rng, units: usize, _: &Case, _: Option<PackedKv>) -> Vec<Self> {
        // Long ones repeat: making them takes longer than measuring.
        let some = rng.bf16s(units.min(1 << 20));
        (0..units).map(|at| some[(at + at / some.len() * 136) % some.len()]).collect()
    }
    fn vector(block: &[Self], part: usize, slot: usize, case: &Case, _: Option<PackedKv>) -> Vec<f64> {
        wide(&block[(part * case.page + slot) * case.head_dim..][..case.head_dim]).collect()
    }
}

/// An e4m3 by its definition.
fn widened(bits: u8) -> f64 {
    let (exponent, mantissa) = (i32::from(bits >> 3 & 15), f64::from(bits & 7));
    let size = if exponent == 0 { mantissa / 512.0 } else { (1.0 + mantissa / 8.0) * 2f64.powi(exponent - 7) };
    if bits & 0x80 == 0 { size } else { -size }
}

impl Held for F8E4M3 {
    fn block(rng: &mut Rng, units: usize, case: &Case, _: Option<PackedKv>) -> Vec<Self> {
        let elements = 2 * case.kv_heads * case.page * case.head_dim;
        // Any finite number; then scales of about what makes them of size one.
        let some: Vec<_> = (0..elements.min(1 << 20))
            .map(|_| F8E4M3((rng.below(256) as u8 & 0xf7).min(if rng.below(2) == 0 { 0x70 } else { 0xf0 })))
            .collect();
        let mut block: Vec<_> = (0..elements).map(|at| some[at % some.len()]).collect();
        for _ in 0..2 * case.kv_heads * case.page {
            let scale = 0.01 + 0.01 * (rng.below(1000) as f32 / 1000.0);
            block.extend(scale.to_le_bytes().map(F8E4M3));
        }
        block.resize(units, F8E4M3(0));
        block
    }
    fn vector(block: &[Self], part: usize, slot: usize, case: &Case, _: Option<PackedKv>) -> Vec<f64> {
        let at = part * case.page + slot;
        let scales = 2 * case.kv_heads * case.page * case.head_dim + at * 4;
        let scale = f32::from_le_bytes(std::array::from_fn(|byte| block[scales + byte].0));
        block[at * case.head_dim..][..case.head_dim].iter().map(|x| f64::from(scale) * widened(x.0)).collect()
    }
}

/// Pages of eight-bit integers and of NVFP4.
impl Held for f16 {
    fn block(rng: &mut Rng, units: usize, case: &Case, packed: Option<PackedKv>) -> Vec<Self> {
        let (vectors, head_dim) = (2 * case.kv_heads * case.page, case.head_dim);
        let int8 = packed == Some(PackedKv::Int8);
        // Any cells; then scales of about what makes numbers of size one.
        let mut bytes: Vec<u8> =
            (0..vectors * head_dim / if int8 { 1 } else { 2 }).map(|_| rng.below(256) as u8).collect();
        if int8 {
            let scale = |_| f16::from_f32(0.01 + 0.01 * (rng.below(1000) as f32 / 1000.0)).to_bits().to_le_bytes();
            bytes.extend((0..vectors * head_dim / 32).flat_map(scale));
        } else {
            bytes.extend((0..vectors * head_dim / 16).map(|_| 0x30 + rng.below(16) as u8));
            bytes.extend((0..vectors).flat_map(|_| (0.2 + 0.2 * (rng.below(1000) as f32 / 1000.0)).to_le_bytes()));
        }
        bytes.resize(2 * units, 0);
        bytes.chunks(2).map(|pair| f16::from_bits(u16::from_le_bytes([pair[0], pair[1]]))).collect()
    }
    fn vector(block: &[Self], part: usize, slot: usize, case: &Case, packed: Option<PackedKv>) -> Vec<f64> {
        let (vectors, head_dim) = (2 * case.kv_heads * case.page, case.head_dim);
        let at = part * case.page + slot;
        let byte = |index: usize| block[index / 2].to_bits().to_le_bytes()[index % 2];
        if packed == Some(PackedKv::Int8) {
            let scale = |i: usize| block[(vectors * head_dim + at * head_dim / 16 + i / 32 * 2) / 2].to_f64();
            return (0..head_dim).map(|i| f64::from(byte(at * head_dim + i) as i8) * scale(i)).collect();
        }
        let groups = vectors * head_dim / 2;
        let scale = groups + vectors * head_dim / 16 + at * 4;
        let scale = f64::from(f32::from_le_bytes(std::array::from_fn(|index| byte(scale + index))));
        let element = |i: usize| {
            // Four in each half of a word: even elements, and odd ones.
            let half = block[((at * head_dim + i / 8 * 8) / 2 + i % 2 * 2) / 2].to_bits();
            let (bits, sign) = (half >> (9 - 3 * (i % 8 / 2)) & 7, half >> [15, 12, 14, 13][i % 8 / 2] & 1);
            let size = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0][usize::from(bits)];
            size * widened(byte(groups + at * head_dim / 16 + i / 16)) * scale * if sign == 0 { 1.0 } else { -1.0 }
        };
        (0..head_dim).map(element).collect()
    }
}

/// One query of one head in f64 over keys and values of tokens.
fn attend(query: &[f64], tokens: impl Iterator<Item = (Vec<f64>, Vec<f64>)>, scale: f64) -> Vec<f64> {
    let (mut most, mut total, mut out) = (f64::NEG_INFINITY, 0.0, vec![0.0; query.len()]);
    for (key, value) in tokens {
        let score = query.iter().zip(&key).map(|(q, k)| q * k).sum::<f64>() * scale;
        if score > most {
            let rescale = (most - score).exp();
            total *= rescale;
            out.iter_mut().for_each(|out| *out *= rescale);
            most = score;
        }
        let p = (score - most).exp();
        total += p;
        out.iter_mut().zip(&value).for_each(|(out, v)| *out += p * v);
    }
    out.iter().map(|out| out / total).collect()
}

macro_rules! bars {
    ($module:ident, $element:ty, $query:ty, $q:ident) => {
        mod $module {
            use super::*;

            #[graph_captured]
            struct Pages {
                work: Work,
                kv: BlockPool<GlobalKv<$element>, Cuda>,
                table: PageTable<GlobalKv<$element>, Cuda>,
            }

            /// The median time of a decode launch, or of a prefill over the whole context, in microseconds; and the bytes of keys and values, with
            /// their scales.
            pub(super) fn time(case: Case, packed: Option<PackedKv>, prefill: bool) -> Option<(f64, f64)> {
                let Case { batch, context, kv_heads, head_dim, page, .. } = case;
                let (heads, columns) = (case.heads(), context / page);
                let backend = backend()?;
                let kernels = load_kernels(&backend);
                let kv = PagedKv { layer_base: 0, kv_heads, head_dim, packed };
                let units = kv.block_units::<$element>(page).unwrap();
                let bytes = batch * columns * units * size_of::<$element>();
                let sets = if prefill { 1 } else { (PAST_CACHE / bytes + 1).min(4) };
                let tokens = if prefill { context } else { batch };
                let scale = 1.0 / (head_dim as f32).sqrt();
                let shares = DecodeShape::shares_for(&kernels, &kv, heads, batch, context);
                let decode = DecodeShape { heads, scale, window: None, softcap: None, shares };
                let whole = PrefillShape { heads, scale, window: None, softcap: None };
                let queries = tokens * heads * head_dim;

                let device = Device::new(backend, Bytes::gib(8));
                let mut engine = Engine::open(&device);
                let dims = Dims {
                    queries,
                    numbers: tokens * sets,
                    outs: queries,
                    partial: decode.partial_units(batch, head_dim).unwrap(),
                };
                let table = TableSpec { rows: batch * sets, columns };
                let spec = PagesSpec { work: dims, kv: pool(page, units, batch * sets * columns), table };
                let lines = engine.declare_bundle::<Pages>(spec);
                let stream = engine.declare(StreamSpec { scratch: Bytes::mib(1) });
                let limits = Limits { graphs: 1, graph_bytes: Bytes::mib(8), ..Limits::new(Cuda::NAME, Bytes::gib(8)) };
                let mut engine = engine.plan(limits).unwrap().carve(lines).unwrap();
                let mut stream = engine.open_stream(stream).unwrap();
                let mut engine = engine.serve::<Pages>().unwrap();

                let mut rng = Rng(81);
                let contents: Vec<_> = (0..8).map(|_| <$element>::block(&mut rng, units, &case, packed)).collect();
                let q: Vec<$query> = (0..queries).map(|_| <$query>::from_f32(rng.normal())).collect();
                let handle = engine.bundle().kv.handle();
                let mut tickets: Vec<_> = (0..batch * sets).map(|_| handle.open(Tokens::new(context as u64))).collect();
                // Pages of a sequence lie apart from each other.
                for _ in 0..columns {
                    tickets.iter_mut().for_each(|ticket| ticket.push(Blocks::new(1)).unwrap());
                }
                {
                    let mut step = engine.step(&mut stream).unwrap();
                    let on = step.on;
                    for (row, ticket) in tickets.iter_mut().enumerate() {
                        step.buffers.table.set(on, row, ticket).unwrap();
                        for index in 0..columns {
                            let mut block = step.buffers.kv.block_mut(ticket, index).unwrap();
                            on.write(&mut block, &contents[(row + index) % 8]).unwrap();
                        }
                    }
                    let work = &mut step.buffers.work;
                    let rows = (0..tokens * sets).map(|at| if prefill { 0 } else { at as u32 }).collect::<Vec<_>>();
                    let ends =
                        (0..tokens * sets).map(|at| if prefill { at } else { context } as u32).collect::<Vec<_>>();
                    on.write(&mut work.rows, &rows).unwrap();
                    on.write(&mut work.ends, &ends).unwrap();
                    on.write(&mut work.$q, &q).unwrap();
                    on.write(&mut work.arrived, &vec![0; 65536]).unwrap();
                    step.finish().unwrap().wait().unwrap();
                }

                let launches = if prefill { 3 } else { LAUNCHES.next_multiple_of(sets) };
                let graph = engine
                    .record::<Pages, LaunchError, _>(&mut stream, |step| {
                        let Step { buffers: PagesView { work, kv: pool, table }, on, .. } = step;
                        let missing = || LaunchError::Unsupported { what: "test", why: "rows of every set" };
                        for at in 0..launches {
                            let from = at % sets * tokens;
                            let rows = work.rows.read().range(from..from + tokens).ok_or_else(missing)?;
                            let ends = work.ends.read().range(from..from + tokens).ok_or_else(missing)?;
                            let (slab, ids) = (pool.slab(), table.ids());
                            if prefill {
                                paged_prefill(
                                    on,
                                    &kernels,
                                    &mut work.out,
                                    work.$q.read(),
                                    &slab,
                                    ids,
                                    [rows, ends],
                                    (kv, whole),
                                )?;
                            } else {
                                let it = DecodeWork { partial: &mut work.partial, arrived: &mut work.arrived };
                                let inputs = [rows, ends];
                                paged_decode(
                                    on,
                                    &kernels,
                                    &mut work.out,
                                    it,
                                    work.$q.read(),
                                    &slab,
                                    ids,
                                    inputs,
                                    (kv, decode),
                                )?;
                            }
                        }
                        Ok(())
                    })
                    .unwrap();
                let mut times = Vec::new();
                let mut found = vec![bf16::ZERO; queries];
                for round in 0..=ROUNDS {
                    let mut step = engine.step(&mut stream).unwrap();
                    let mut word = [0];
                    step.on.read::<u32>(&step.buffers.work.rows.range(0..1).unwrap(), &mut word).unwrap();
                    let start = Instant::now();
                    (0..REPLAYS).for_each(|_| step.replay(graph).unwrap());
                    step.on.read::<u32>(&step.buffers.work.rows.range(0..1).unwrap(), &mut word).unwrap();
                    if round > 0 {
                        times.push(start.elapsed().as_secs_f64() * 1e6 / (REPLAYS * launches) as f64);
                    }
                    step.on.read::<bf16>(&step.buffers.work.out, &mut found).unwrap();
                    step.finish().unwrap().wait().unwrap();
                }

                // The first and the last query heads of the first and the last row that were launched last.
                let (mut expected, mut sample) = (Vec::new(), Vec::new());
                let set = (launches - 1) % sets;
                for (token, head) in [(0, 0), (tokens - 1, heads - 1), (tokens / 2, heads / 2)] {
                    let row = if prefill { 0 } else { set * batch + token };
                    let end = if prefill { token + 1 } else { context };
                    let at = (token * heads + head) * head_dim;
                    let query: Vec<f64> = q[at..][..head_dim].iter().map(|x| x.to_f32().into()).collect();
                    let vector = |part: usize, token: usize| {
                        <$element>::vector(&contents[(row + token / page) % 8], part, token % page, &case, packed)
                    };
                    let kv_head = head / case.group;
                    let seen = (0..end).map(|token| (vector(kv_head, token), vector(kv_heads + kv_head, token)));
                    expected.extend(attend(&query, seen, scale.into()));
                    sample.extend(wide(&found[at..][..head_dim]));
                }
                let far = distance(sample, &expected);
                assert!(far < 4e-3, "{}: {far}", case.name());
                Some((median(times), bytes as f64))
            }
        }
    };
}
bars!(bf16s, bf16, bf16, q);
bars!(f8s, F8E4M3, f16, q16);
bars!(f16s, f16, f16, q16);

/// The kinds of packed pages, by their names in these lines.
const PACKED: [(&str, PackedKv); 3] = [("e4m3", PackedKv::E4M3), ("int8", PackedKv::Int8), ("nvfp4", PackedKv::Nvfp4)];

fn time_packed(case: Case, packed: PackedKv, prefill: bool) -> Option<(f64, f64)> {
    match packed {
        PackedKv::E4M3 => f8s::time(case, None, prefill),
        packed => f16s::time(case, Some(packed), prefill),
    }
}

const fn case(batch: usize, context: usize, kv_heads: usize, group: usize, head_dim: usize) -> Case {
    Case { batch, context, kv_heads, group, head_dim, page: 64 }
}

const DECODE: [Case; 8] = [
    case(32, 4096, 8, 4, 128),
    case(128, 1024, 8, 4, 128),
    case(8, 4096, 8, 4, 128),
    case(1, 8192, 8, 8, 128),
    case(32, 4096, 3, 3, 64),
    // One request of a small model.
    case(1, 512, 3, 3, 64),
    case(1, 1024, 3, 3, 64),
    case(1, 1024, 1, 4, 256),
];

#[test]
fn decode() {
    if skipped_without_a_real_device("times are taken here") {
        return;
    }
    for case in DECODE {
        let Some((us, bytes)) = bf16s::time(case, None, false) else { return };
        println!("bars decode bf16 {}: {us:.2} us {:.0} GB/s", case.name(), bytes / us / 1e3);
    }
    // The first case, where every sequence lies in one piece.
    let contiguous = Case { page: 4096, ..DECODE[0] };
    let Some((us, bytes)) = bf16s::time(contiguous, None, false) else { return };
    println!("bars decode bf16 {}: {us:.2} us {:.0} GB/s", contiguous.name(), bytes / us / 1e3);
}

#[test]
fn decode_packed() {
    if skipped_without_a_real_device("times are taken here") {
        return;
    }
    for (name, packed) in PACKED {
        for case in [DECODE[0], DECODE[1], DECODE[2]] {
            let Some((us, bytes)) = time_packed(case, packed, false) else { return };
            // Of e4m3 without the scales, which are another 1/32: as its bar counts them.
            let bytes = if packed == PackedKv::E4M3 { case.elements() as f64 } else { bytes };
            println!("bars decode {name} {}: {us:.2} us {:.0} GB/s", case.name(), bytes / us / 1e3);
        }
    }
}

#[test]
fn prefill() {
    if skipped_without_a_real_device("times are taken here") {
        return;
    }
    let line = |kind: &str, case: Case, us: f64| {
        let flops = 2 * case.heads() * case.context * case.context * case.head_dim;
        println!("bars prefill {kind} {}: {us:.2} us {:.0} TFLOP/s", case.name(), flops as f64 / us / 1e6);
    };
    let cases = [case(1, 8192, 8, 4, 128), case(1, 8192, 2, 4, 256), case(1, 8192, 8, 4, 64)];
    for case in cases {
        let Some((us, _)) = bf16s::time(case, None, true) else { return };
        line("bf16", case, us);
    }
    for (name, packed) in PACKED {
        let Some((us, _)) = time_packed(cases[0], packed, true) else { return };
        line(name, cases[0], us);
    }
}
