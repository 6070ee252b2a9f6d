//! Caches of e4m3, of eight-bit integers and of NVFP4: written by `rope_kv_write`, read by `paged_decode` and by `paged_prefill`, all against f64 on the CPU.

mod support;

use memtier::{
    BlockPool, Blocks, Bytes, Cuda, Device, Engine, F8E4M3, GlobalKv, Limits, PageTable, Space, Step, StreamSpec,
    TableSpec, Tokens, bf16, f16, graph_captured,
};
use memtier_cuda::kernels::{
    DecodeShape, DecodeWork, PackedKv, PagedKv, PrefillShape, RopeShape, RopeStyle, begin_pass, paged_decode,
    paged_prefill, rope_kv_write,
};
use support::{Rng, backend, distance, kernels as load_kernels, pool, rounds, wide};

struct Case {
    /// What a layer of a pool of f16 is; a pool of e4m3 has no other.
    packed: PackedKv,
    head_dim: usize,
    kv_heads: usize,
    group: usize,
    page: usize,
    window: Option<usize>,
    softcap: Option<f32>,
    shares: usize,
    lengths: Vec<usize>,
    /// The second page of every sequence that has a third one is gone.
    hole: bool,
}

/// An e4m3 by its definition.
fn widened(F8E4M3(bits): F8E4M3) -> f64 {
    let (exponent, mantissa) = (i32::from(bits >> 3 & 15), f64::from(bits & 7));
    let size = if exponent == 0 { mantissa / 512.0 } else { (1.0 + mantissa / 8.0) * 2f64.powi(exponent - 7) };
    if bits & 0x80 == 0 { size } else { -size }
}

/// The bytes of a unit of a pool.
trait Unit: Copy {
    /// What is no number, whatever it is taken for: an element, a scale of a group, or an f32 of a vector.
    const NO_NUMBER: Self;
    fn bytes(self) -> impl Iterator<Item = u8>;
}
impl Unit for F8E4M3 {
    const NO_NUMBER: Self = F8E4M3(0xff);
    fn bytes(self) -> impl Iterator<Item = u8> {
        [self.0].into_iter()
    }
}
impl Unit for f16 {
    const NO_NUMBER: Self = f16::from_bits(0xffff);
    fn bytes(self) -> impl Iterator<Item = u8> {
        self.to_bits().to_le_bytes().into_iter()
    }
}

/// One layer of a page, as vectors: `[part * page + slot]`, keys' parts first.
fn vectors(block: &[u8], vectors: usize, head_dim: usize, packed: PackedKv) -> Vec<Vec<f64>> {
    let f32_at = |at: usize| f64::from(f32::from_le_bytes(std::array::from_fn(|byte| block[at + byte])));
    let f16_at = |at: usize| f16::from_le_bytes([block[at], block[at + 1]]).to_f64();
    let groups = vectors * head_dim; // where scales begin, of a byte an element
    match packed {
        PackedKv::E4M3 => (0..vectors)
            .map(|index| {
                let scale = f32_at(groups + index * 4);
                block[index * head_dim..][..head_dim].iter().map(|x| widened(F8E4M3(*x)) * scale).collect()
            })
            .collect(),
        PackedKv::Int8 => (0..vectors)
            .map(|index| {
                let scale = |i: usize| f16_at(groups + index * head_dim / 16 + i / 32 * 2);
                (0..head_dim).map(|i| f64::from(block[index * head_dim + i] as i8) * scale(i)).collect()
            })
            .collect(),
        _ => (0..vectors)
            .map(|index| {
                let groups = vectors * head_dim / 2;
                let all = f32_at(groups + vectors * head_dim / 16 + index * 4);
                let element = |i: usize| {
                    // Of eight in a word, the even ones are in the low half.
                    let (half, place) = ((index * head_dim + i / 8 * 8) / 2 + i % 2 * 2, i % 8 / 2);
                    let half = u16::from_le_bytes([block[half], block[half + 1]]);
                    let (bits, sign) = (half >> (9 - 3 * place) & 7, half >> [15, 12, 14, 13][place] & 1);
                    let size = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0][usize::from(bits)];
                    let group = widened(F8E4M3(block[groups + index * head_dim / 16 + i / 16]));
                    size * group * all * if sign == 0 { 1.0 } else { -1.0 }
                };
                (0..head_dim).map(element).collect()
            })
            .collect(),
    }
}

/// One query of one head in f64, over the keys and values that it sees.
fn attend(query: &[f64], seen: &[(Vec<f64>, Vec<f64>)], scale: f64, softcap: Option<f32>) -> Vec<f64> {
    let score = |key: &[f64]| {
        let product: f64 = query.iter().zip(key).map(|(q, k)| q * k).sum::<f64>() * scale;
        softcap.map_or(product, |cap| f64::from(cap) * (product / f64::from(cap)).tanh())
    };
    let scores: Vec<f64> = seen.iter().map(|(key, _)| score(key)).collect();
    let most = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let total: f64 = scores.iter().map(|score| (score - most).exp()).sum();
    let mut out = vec![0.0; query.len()];
    for (score, (_, value)) in scores.iter().zip(seen) {
        out.iter_mut().zip(value).for_each(|(out, v)| *out += (score - most).exp() / total * v);
    }
    out
}

/// Keys and values of all tokens as the projections give them: of very different sizes, some of them zero.
fn rows_of(rng: &mut Rng, (tokens, all, head_dim): (usize, usize, usize), sizes: std::ops::Range<i32>) -> Vec<bf16> {
    let vector = |rng: &mut Rng| {
        let size = 2f32.powi(sizes.start + rng.below(sizes.len()) as i32) * if rng.below(16) == 0 { 0.0 } else { 1.0 };
        let size = if rng.below(2) == 0 { 1.0 } else { size };
        (0..head_dim).map(|_| bf16::from_f32(rng.normal() * size)).collect::<Vec<_>>()
    };
    (0..tokens * all).flat_map(|_| vector(rng)).collect()
}

/// The distances from f64.
struct Found {
    written: f64,
    decode: f64,
    prefill: f64,
}

macro_rules! pages {
    ($module:ident, $element:ty) => {
        mod $module {
            use super::*;

            /// A pool and its table.
            #[graph_captured]
            struct Pages {
                kv: BlockPool<GlobalKv<$element>, Cuda>,
                table: PageTable<GlobalKv<$element>, Cuda>,
            }

            /// Writes the tokens of all sequences, reads the pages, attends from the last token of each, and from the last tokens of each together.
            pub(super) fn run(case: &Case, rng: &mut Rng) -> Option<Found> {
                let Case { packed, head_dim, kv_heads, group, page, window, softcap, shares, lengths, hole } = case;
                let (head_dim, kv_heads, page, heads, batch) =
                    (*head_dim, *kv_heads, *page, kv_heads * group, lengths.len());
                let backend = backend()?;
                let kernels = load_kernels(&backend);
                let columns = lengths.iter().max().map_or(1, |length| length.div_ceil(page)) + 1;
                let mut kv = PagedKv { layer_base: 0, kv_heads, head_dim, packed: Some(*packed) };
                let layer = kv.block_units::<$element>(page).unwrap();
                kv.layer_base = layer;
                let device = Device::new(backend, Bytes::gib(1));
                let mut engine = Engine::open(&device);
                let spec =
                    PagesSpec { kv: pool(page, 2 * layer, batch * columns), table: TableSpec { rows: batch, columns } };
                let lines = engine.declare_bundle::<Pages>(spec);
                let stream = engine.declare(StreamSpec { scratch: Bytes::mib(128) });
                let mut engine = engine.plan(Limits::new(Cuda::NAME, Bytes::gib(1))).unwrap().carve(lines).unwrap();
                let mut stream = engine.open_stream(stream).unwrap();
                let mut engine = engine.serve::<Pages>().unwrap();
                let handle = engine.bundle().kv.handle();
                let mut tickets: Vec<_> =
                    (0..batch).map(|_| handle.open(Tokens::new((columns * page) as u64))).collect();
                for ticket in &mut tickets {
                    ticket.push(Blocks::new(columns as u64)).unwrap();
                }
                let gone = |row: usize, index: usize| *hole && index == 1 && lengths[row] > 2 * page;
                for (row, ticket) in tickets.iter_mut().enumerate() {
                    if gone(row, 1) {
                        ticket.evict(1);
                    }
                }

                let at: Vec<(u32, u32)> = lengths
                    .iter()
                    .enumerate()
                    .flat_map(|(row, length)| (0..*length).map(move |position| (row as u32, position as u32)))
                    .collect();
                let (tokens, all) = (at.len(), heads + 2 * kv_heads);
                let qkv = rows_of(rng, (tokens, all, head_dim), if *packed == PackedKv::Int8 { -6..6 } else { -36..4 });
                // A turn by a quarter: keys become (-second, first), exactly.
                let angles: Vec<f32> = (0..tokens * head_dim / 2).flat_map(|_| [0.0, 1.0]).collect();
                let q: Vec<f16> = (0..batch * heads * head_dim).map(|_| f16::from_f32(rng.normal())).collect();

                let mut step = engine.step(&mut stream).unwrap();
                let on = step.on;
                for (row, ticket) in tickets.iter_mut().enumerate() {
                    step.buffers.table.set(on, row, ticket).unwrap();
                    // What was there before is no number.
                    for index in (0..columns).filter(|index| !gone(row, *index)) {
                        let mut block = step.buffers.kv.block_mut(ticket, index).unwrap();
                        on.write(&mut block, &vec![<$element>::NO_NUMBER; 2 * layer]).unwrap();
                    }
                }
                let Step { buffers: PagesView { kv: pool, table }, scratch, .. } = &mut step;
                let mut numbers = |values: Vec<u32>| {
                    let mut span = scratch.take::<u32>(values.len()).unwrap();
                    on.write(&mut span, &values).unwrap();
                    span
                };
                let (rows, positions) =
                    (numbers(at.iter().map(|at| at.0).collect()), numbers(at.iter().map(|at| at.1).collect()));
                let batch_rows = numbers((0..batch as u32).collect());
                let last = numbers(lengths.iter().map(|length| length.wrapping_sub(1) as u32).collect());
                let shape = DecodeShape {
                    heads,
                    scale: 1.0 / (head_dim as f32).sqrt(),
                    window: *window,
                    softcap: *softcap,
                    shares: *shares,
                };
                let mut sees = numbers(vec![0; batch]);
                let mut arrived = numbers(vec![7; shape.counters(batch, kv_heads).unwrap()]);
                // The last tokens of each sequence, up to 70, as a pass over a prompt has them.
                let late: Vec<usize> =
                    (0..tokens).filter(|token| at[*token].1 as usize + 70 >= lengths[at[*token].0 as usize]).collect();
                let late_rows = numbers(late.iter().map(|token| at[*token].0).collect());
                let late_positions = numbers(late.iter().map(|token| at[*token].1).collect());
                let mut qkv_span = scratch.take::<bf16>(qkv.len()).unwrap();
                on.write(&mut qkv_span, &qkv).unwrap();
                let mut angle_span = scratch.take::<f32>(angles.len()).unwrap();
                on.write(&mut angle_span, &angles).unwrap();
                let mut turned = scratch.take::<f16>(tokens * heads * head_dim).unwrap();
                let mut q_span = scratch.take::<f16>(q.len()).unwrap();
                on.write(&mut q_span, &q).unwrap();
                let mut partial = scratch.take::<f32>(shape.partial_units(batch, head_dim).unwrap()).unwrap();
                let mut out = scratch.take::<bf16>(q.len()).unwrap();
                let rope = RopeShape { heads, pairs: head_dim / 2, style: RopeStyle::Halves };
                let pair = [&rows, &positions];
                rope_kv_write(
                    on,
                    &kernels,
                    &mut turned,
                    &mut pool.slab_mut(),
                    table.ids(),
                    &qkv_span,
                    &angle_span,
                    pair,
                    None,
                    (kv, rope),
                )
                .unwrap();
                begin_pass(on, &kernels, &mut sees, &mut arrived, &last).unwrap();
                let mut found = [vec![bf16::ZERO; q.len()], vec![bf16::ZERO; q.len()]];
                for found in &mut found {
                    on.write(&mut out, &vec![bf16::NAN; q.len()]).unwrap();
                    let work = DecodeWork { partial: &mut partial, arrived: &mut arrived };
                    let inputs = [&batch_rows, &sees];
                    paged_decode(on, &kernels, &mut out, work, &q_span, &pool.slab(), table.ids(), inputs, (kv, shape))
                        .unwrap();
                    on.read::<bf16>(&out, found).unwrap();
                }
                assert!(
                    found[0].iter().zip(&found[1]).all(|(a, b)| a.to_bits() == b.to_bits()),
                    "the same inputs gave other bits"
                );

                let many: Vec<f16> = (0..late.len() * heads * head_dim).map(|_| f16::from_f32(rng.normal())).collect();
                let mut many_span = scratch.take::<f16>(many.len()).unwrap();
                on.write(&mut many_span, &many).unwrap();
                let mut many_out = scratch.take::<bf16>(many.len()).unwrap();
                let of_many = PrefillShape { heads, scale: shape.scale, window: *window, softcap: *softcap };
                let mut prefilled = [vec![bf16::ZERO; many.len()], vec![bf16::ZERO; many.len()]];
                for found in &mut prefilled {
                    on.write(&mut many_out, &vec![bf16::NAN; many.len()]).unwrap();
                    let inputs = [&late_rows, &late_positions];
                    paged_prefill(
                        on,
                        &kernels,
                        &mut many_out,
                        &many_span,
                        &pool.slab(),
                        table.ids(),
                        inputs,
                        (kv, of_many),
                    )
                    .unwrap();
                    on.read::<bf16>(&many_out, found).unwrap();
                }
                assert!(
                    prefilled[0].iter().zip(&prefilled[1]).all(|(a, b)| a.to_bits() == b.to_bits()),
                    "other bits in prefill"
                );

                // What the pages hold, and how far it is from what was written.
                let mut held = vec![Vec::new(); batch];
                let mut apart: f64 = 0.0;
                for (row, ticket) in tickets.iter().enumerate() {
                    for index in 0..columns {
                        let mut block = vec![<$element>::NO_NUMBER; 2 * layer];
                        if !gone(row, index) {
                            on.read::<$element>(pool.block(ticket, index).unwrap(), &mut block).unwrap();
                        }
                        let bytes: Vec<u8> = block.iter().flat_map(|unit| unit.bytes()).collect();
                        let (other, ours) = bytes.split_at(layer * size_of::<$element>());
                        assert!(other.iter().all(|x| *x == 0xff), "the other layer was written");
                        held[row].push(vectors(ours, 2 * kv_heads * page, head_dim, *packed));
                    }
                }
                for (token, (row, position)) in at.iter().enumerate() {
                    let (row, position) = (*row as usize, *position as usize);
                    for part in (0..2 * kv_heads).filter(|_| !gone(row, position / page)) {
                        let given: Vec<f64> =
                            wide(&qkv[(token * all + heads + part) * head_dim..][..head_dim]).collect();
                        let half = head_dim / 2;
                        let turn = |i: usize| if i < half { -given[i + half] } else { given[i - half] };
                        let given: Vec<f64> = if part < kv_heads { (0..head_dim).map(turn).collect() } else { given };
                        let vector = &held[row][position / page][part * page + position % page];
                        apart = apart.max(distance(vector.iter().copied(), &given));
                    }
                }

                // What a query sees of the first `length` tokens of its sequence.
                let look = |q: &[f16], (row, length): (usize, usize), head: usize| -> Vec<f64> {
                    let start = window.map_or(0, |window| length.saturating_sub(window));
                    let of = |part: usize, token: usize| -> Vec<f64> {
                        held[row][token / page][part * page + token % page].clone()
                    };
                    let seen: Vec<_> = (start..length)
                        .filter(|token| !gone(row, token / page))
                        .map(|token| (of(head / group, token), of(kv_heads + head / group, token)))
                        .collect();
                    let query: Vec<f64> = q.iter().map(|x| x.to_f64()).collect();
                    attend(&query, &seen, f64::from(shape.scale), *softcap)
                };
                let mut expected = Vec::new();
                for (row, length) in lengths.iter().enumerate() {
                    for head in 0..heads {
                        expected.extend(look(&q[(row * heads + head) * head_dim..][..head_dim], (row, *length), head));
                    }
                }
                let decode = distance(wide(&found[0]), &expected);
                // Some of the many, each token and each head now and then.
                let (mut some, mut expected) = (Vec::new(), Vec::new());
                for (index, token) in late.iter().enumerate() {
                    let (row, position) = (at[*token].0 as usize, at[*token].1 as usize);
                    for head in (0..heads).filter(|head| late.len() * heads < 100 || (index * heads + head) % 7 == 0) {
                        let of = (index * heads + head) * head_dim..(index * heads + head + 1) * head_dim;
                        expected.extend(look(&many[of.clone()], (row, position + 1), head));
                        some.extend_from_slice(&prefilled[0][of]);
                    }
                }
                Some(Found { written: apart, decode, prefill: distance(wide(&some), &expected) })
            }
        }
    };
}
pages!(bytes, F8E4M3);
pages!(halves, f16);

/// How far what is written may be from what was given: three bits of mantissa are at most 1/16 off, about 0.026 in the mean; of eight bits a
/// step is 1/127 of the largest of 32, of NVFP4 up to a third of an element.
fn most_apart(packed: PackedKv) -> f64 {
    match packed {
        PackedKv::E4M3 => 0.045,
        PackedKv::Int8 => 0.012,
        _ => 0.16,
    }
}

fn random_shapes(packed: PackedKv, heads: &[usize], run: impl Fn(&Case, &mut Rng) -> Option<Found>) {
    let mut rng = Rng(71);
    let mut worst = [0.0f64; 3];
    for index in 0..rounds(18, 6) {
        let head_dim = heads[index % heads.len()];
        let batch = 1 + rng.below(4);
        let case = Case {
            packed,
            head_dim,
            kv_heads: rng.pick(&[1, 2, 3]),
            group: [1, 3, 8, 4, 9, 8][index % 6],
            page: rng.pick(&[16, 32, 64, 128]),
            window: rng.pick(&[None, None, Some(1), Some(40), Some(100)]),
            softcap: rng.pick(&[None, None, Some(20.0)]),
            shares: rng.pick(&[1, 2, 5, 16]),
            lengths: (0..batch).map(|_| rng.pick(&[1, 15, 16, 17, 63, 64, 65, 200, 511])).collect(),
            hole: index % 4 == 0,
        };
        let Some(Found { written, decode, prefill }) = run(&case, &mut rng) else { return };
        let Case { kv_heads, group, page, window, softcap, shares, lengths, hole, .. } = &case;
        println!(
            "{packed:?}, head_dim {head_dim}, {kv_heads} kv heads x {group}, page {page}, window {window:?}, softcap {softcap:?}, {shares} \
             shares, hole {hole}, lengths {lengths:?}: written {written:.1e}, decode {decode:.1e}, prefill {prefill:.1e}"
        );
        let near = written < most_apart(packed) && decode < 4e-3 && prefill < 4e-3;
        assert!(near, "{written}, {decode}, {prefill}");
        worst = [worst[0].max(written), worst[1].max(decode), worst[2].max(prefill)];
    }
    println!("{packed:?}, worst: written {:.2e}, decode {:.2e}, prefill {:.2e}", worst[0], worst[1], worst[2]);
}

#[test]
fn e4m3_pages_over_random_shapes() {
    random_shapes(PackedKv::E4M3, &[64, 128, 256], bytes::run);
}

#[test]
fn int8_pages_over_random_shapes() {
    random_shapes(PackedKv::Int8, &[64, 128, 256], halves::run);
}

#[test]
fn nvfp4_pages_over_random_shapes() {
    random_shapes(PackedKv::Nvfp4, &[128, 64], halves::run);
}

#[test]
fn a_long_sequence_of_e4m3_in_many_shares() {
    let mut rng = Rng(72);
    for head_dim in [64, 128, 256].into_iter().take(rounds(3, 2)) {
        let case = Case {
            packed: PackedKv::E4M3,
            head_dim,
            kv_heads: 1,
            group: 4,
            page: 64,
            window: None,
            softcap: None,
            shares: 40,
            lengths: vec![6000, 5, 1100],
            hole: false,
        };
        let Some(Found { written, decode, prefill }) = bytes::run(&case, &mut rng) else { return };
        assert!(written < 0.045 && decode < 4e-3 && prefill < 4e-3, "{written}, {decode}, {prefill}");
    }
}

/// Heads of 256 elements: a lane has two chunks of a key and four of its groups.
#[test]
fn nvfp4_pages_of_the_largest_heads() {
    random_shapes(PackedKv::Nvfp4, &[256], halves::run);
}
