//! The edges of attention: rows and tokens that a page table does not have, pages of odd sizes, queries that begin between 16 bytes.

mod support;

use memtier::bf16;
use memtier::{
    BlockPool, Blocks, Bytes, Cuda, Device, Engine, GlobalKv, LaunchError, Limits, PageTable, Serving, Space, Step,
    Stream, StreamSpec, TableSpec, Tokens, f16, graph_captured,
};
use memtier_cuda::{
    Kernels,
    kernels::{
        DecodeShape, DecodeWork, Inputs, Matrix, PackedKv, PagedKv, PrefillShape, RopeShape, RopeStyle, paged_decode,
        paged_prefill, project_rope_kv_write, rope_kv_write,
    },
};
use support::{Rng, backend, distance, kernels as load_kernels, pool, wide};

/// A pool of f16 and its table.
#[graph_captured]
struct Pages {
    kv: BlockPool<GlobalKv<f16>, Cuda>,
    table: PageTable<GlobalKv<f16>, Cuda>,
}

const DIM: usize = 64;
const COLUMNS: usize = 3;
const ROWS: usize = 2;

/// One head; pages of `page` tokens.
fn open(page: usize, dim: usize) -> Option<(Kernels, Engine<Serving<Pages>>, Stream<Cuda>)> {
    let backend = backend()?;
    let kernels = load_kernels(&backend);
    let device = Device::new(backend, Bytes::gib(1));
    let mut engine = Engine::open(&device);
    let table = TableSpec { rows: ROWS, columns: COLUMNS };
    let lines = engine.declare_bundle::<Pages>(PagesSpec { kv: pool(page, 2 * page * dim, ROWS * COLUMNS), table });
    let stream = engine.declare(StreamSpec { scratch: Bytes::mib(16) });
    let mut engine = engine.plan(Limits::new(Cuda::NAME, Bytes::gib(1))).unwrap().carve(lines).unwrap();
    let stream = engine.open_stream(stream).unwrap();
    Some((kernels, engine.serve::<Pages>().unwrap(), stream))
}

/// A span of these values in the step's scratch.
macro_rules! span {
    ($scratch:ident, $on:ident, $element:ty, $values:expr) => {{
        let values = &$values;
        let mut span = $scratch.take::<$element>(values.len()).unwrap();
        $on.write(&mut span, values).unwrap();
        span
    }};
}

/// One query in f64, over those of these tokens whose pages (of one head) are there.
fn attend(query: &[f16], pages: &[Option<Vec<f16>>], page: usize, length: usize) -> Vec<f64> {
    let row = |part: usize, token: usize| {
        let page_of = pages[token / page].as_ref()?;
        Some(page_of[(part * page + token % page) * DIM..][..DIM].iter().map(|x| x.to_f64()).collect::<Vec<_>>())
    };
    let score = |key: &[f64]| query.iter().zip(key).map(|(q, k)| q.to_f64() * k).sum::<f64>() / 8.0;
    let (mut out, mut total) = (vec![0.0; DIM], 0.0);
    for (key, value) in (0..length).filter_map(|token| Some((row(0, token)?, row(1, token)?))) {
        let weight = score(&key).exp();
        total += weight;
        out.iter_mut().zip(value).for_each(|(out, v)| *out += weight * v);
    }
    out.iter_mut().for_each(|out| *out /= if total > 0.0 { total } else { 1.0 });
    out
}

/// Decode and prefill by rows and lengths, each against f64. Row 0 has as many pages as there are columns, row 1 one less, but for those
/// that are gone; in a table that is not set, nobody has any.
fn look(page: usize, set: bool, gone: &[(usize, usize)], asked: &[(u32, u32)], shares: usize) {
    let Some((kernels, mut engine, mut stream)) = open(page, DIM) else { return };
    let mut rng = Rng(81);
    let handle = engine.bundle().kv.handle();
    let mut tickets = [COLUMNS, COLUMNS - 1].map(|pages| {
        let mut ticket = handle.open(Tokens::new((COLUMNS * page) as u64));
        ticket.push(Blocks::new(pages as u64)).unwrap();
        ticket
    });
    let mut contents = [COLUMNS, COLUMNS - 1].map(|pages| {
        let random = |_| Some((0..2 * page * DIM).map(|_| f16::from_f32(rng.normal())).collect::<Vec<_>>());
        (0..pages).map(random).collect::<Vec<_>>()
    });
    // Behind the last token that anybody sees of a row is no number.
    for (row, pages) in contents.iter_mut().enumerate() {
        let most = asked.iter().filter(|it| it.0 as usize == row).map(|it| it.1 as usize).max().unwrap_or(0);
        for token in most..pages.len() * page {
            let Some(content) = &mut pages[token / page] else { continue };
            for part in 0..2 {
                content[(part * page + token % page) * DIM..][..DIM].fill(f16::NAN);
            }
        }
    }
    for (row, index) in gone {
        tickets[*row].evict(*index);
        contents[*row][*index] = None;
    }
    let q: Vec<f16> = (0..asked.len() * DIM).map(|_| f16::from_f32(rng.normal())).collect();
    let mut step = engine.step(&mut stream).unwrap();
    let on = step.on;
    for (row, ticket) in tickets.iter_mut().enumerate() {
        if set {
            step.buffers.table.set(on, row, ticket).unwrap();
        }
        for (index, content) in contents[row].iter().enumerate() {
            let Some(content) = content else { continue };
            let mut block = step.buffers.kv.block_mut(ticket, index).unwrap();
            on.write(&mut block, content).unwrap();
        }
    }
    let Step { buffers: PagesView { kv: pool, table }, scratch, .. } = &mut step;
    let rows = span!(scratch, on, u32, asked.iter().map(|it| it.0).collect::<Vec<_>>());
    let lengths = span!(scratch, on, u32, asked.iter().map(|it| it.1).collect::<Vec<_>>());
    let positions = span!(scratch, on, u32, asked.iter().map(|it| it.1 - 1).collect::<Vec<_>>());
    let q_span = span!(scratch, on, f16, q);
    let kv = PagedKv { layer_base: 0, kv_heads: 1, head_dim: DIM, packed: None };
    let shape = DecodeShape { heads: 1, scale: 0.125, window: None, softcap: None, shares };
    let mut arrived = span!(scratch, on, u32, vec![0; shape.counters(asked.len(), 1).unwrap()]);
    let mut partial = scratch.take::<f32>(shape.partial_units(asked.len(), DIM).unwrap()).unwrap();
    let mut out = span!(scratch, on, bf16, vec![bf16::NAN; q.len()]);
    let work = DecodeWork { partial: &mut partial, arrived: &mut arrived };
    paged_decode(on, &kernels, &mut out, work, &q_span, &pool.slab(), table.ids(), [&rows, &lengths], (kv, shape))
        .unwrap();
    let mut decoded = vec![bf16::ZERO; q.len()];
    on.read::<bf16>(&out, &mut decoded).unwrap();
    on.write(&mut out, &vec![bf16::NAN; q.len()]).unwrap();
    let shape = PrefillShape { heads: 1, scale: 0.125, window: None, softcap: None };
    paged_prefill(on, &kernels, &mut out, &q_span, &pool.slab(), table.ids(), [&rows, &positions], (kv, shape))
        .unwrap();
    let mut prefilled = vec![bf16::ZERO; q.len()];
    on.read::<bf16>(&out, &mut prefilled).unwrap();
    for (index, (row, length)) in asked.iter().enumerate() {
        let held = contents.get(*row as usize).filter(|_| set);
        let length = held.map_or(0, |pages| pages.len() * page).min(*length as usize);
        let query = &q[index * DIM..][..DIM];
        let expected = held.map_or_else(|| vec![0.0; DIM], |pages| attend(query, pages, page, length));
        for (what, found) in [("decode", &decoded), ("prefill", &prefilled)] {
            let far = distance(wide(&found[index * DIM..][..DIM]), &expected);
            assert!(far < 4e-3, "{what}: row {row}, {length} tokens of pages of {page}, set {set}: {far}");
        }
    }
}

/// Behind the table's last row is who its ids belong to, and behind a row's last column is the next row: neither is a page.
#[test]
fn rows_and_tokens_that_the_table_does_not_have_are_not_seen() {
    let whole = (COLUMNS * 16) as u32;
    for shares in [1, 3] {
        look(
            16,
            true,
            &[],
            &[(0, whole + 1), (0, whole + 160), (1, whole), (2, 5), (u32::MAX, 5), (0, 1), (2, 40)],
            shares,
        );
    }
}

#[test]
fn a_table_that_is_not_set_has_no_pages() {
    look(16, false, &[], &[(0, 1), (0, 33), (1, 20), (2, 9)], 1);
}

/// Of shares that see no page at all, there is nothing to merge; others are not disturbed by them.
#[test]
fn sequences_of_many_shares_whose_pages_are_gone() {
    let all = [(0, 0), (0, 1), (0, 2), (1, 0)];
    // Pages of whole tiles, and others.
    for (page, shares) in [(192, 1), (192, 4), (176, 4)] {
        let (whole, first) = ((COLUMNS * page) as u32, page as u32);
        look(page, true, &all, &[(0, whole), (1, whole - first), (0, 1), (1, first + 1), (1, first)], shares);
        look(page, true, &all[..2], &[(0, whole), (0, whole - first + 1)], shares);
    }
}

/// Tiles of tokens begin and end within such pages.
#[test]
fn pages_of_an_odd_number_of_tiles() {
    for page in [48, 80, 112] {
        let whole = (COLUMNS * page) as u32;
        look(page, true, &[], &[(0, whole), (1, whole - page as u32), (0, 49), (0, 48), (1, 47), (0, whole - 1)], 2);
        look(page, true, &[], &[(0, 49), (0, 33), (1, 47)], 2);
    }
}

/// What 16 bytes at a time are read from begins at a multiple of them.
#[test]
fn queries_that_begin_between_16_bytes_are_refused() {
    let dim = 256;
    let Some((kernels, mut engine, mut stream)) = open(16, dim) else { return };
    let mut step = engine.step(&mut stream).unwrap();
    let on = step.on;
    let Step { buffers: PagesView { kv: pool, table }, scratch, .. } = &mut step;
    let q = scratch.take::<f16>(dim + 4).unwrap();
    let at = scratch.take::<u32>(1).unwrap();
    let mut out = scratch.take::<bf16>(dim).unwrap();
    let kv = PagedKv { layer_base: 0, kv_heads: 1, head_dim: dim, packed: None };
    let shape = PrefillShape { heads: 1, scale: 0.125, window: None, softcap: None };
    let mut from = |first: usize| {
        let q = q.read().range(first..first + dim).unwrap();
        paged_prefill(on, &kernels, &mut out, q, &pool.slab(), table.ids(), [&at, &at], (kv, shape))
    };
    let refused = from(4).unwrap_err();
    assert!(matches!(refused, LaunchError::Unsupported { what: "paged_prefill", .. }), "{refused}");
    from(0).unwrap();
}

/// Rotated keys go nowhere when nobody has set the table.
#[test]
fn nothing_is_written_by_a_table_that_is_not_set() {
    let Some((kernels, mut engine, mut stream)) = open(16, DIM) else { return };
    let handle = engine.bundle().kv.handle();
    // All blocks of the pool: whichever an unset table seems to name.
    let mut ticket = handle.open(Tokens::new((ROWS * COLUMNS * 16) as u64));
    ticket.push(Blocks::new((ROWS * COLUMNS) as u64)).unwrap();
    let mut step = engine.step(&mut stream).unwrap();
    let on = step.on;
    let mark = vec![f16::from_f32(77.0); 2 * 16 * DIM];
    for index in 0..ROWS * COLUMNS {
        on.write(&mut step.buffers.kv.block_mut(&mut ticket, index).unwrap(), &mark).unwrap();
    }
    let Step { buffers: PagesView { kv: pool, table }, scratch, .. } = &mut step;
    let qkv = span!(scratch, on, bf16, vec![bf16::from_f32(1.0); 3 * DIM]);
    let angles = span!(scratch, on, f32, vec![1.0; DIM]);
    let zero = span!(scratch, on, u32, [0]);
    let mut q = scratch.take::<f16>(DIM).unwrap();
    let kv = PagedKv { layer_base: 0, kv_heads: 1, head_dim: DIM, packed: None };
    let shapes = (kv, RopeShape { heads: 1, pairs: DIM / 2, style: RopeStyle::Halves });
    let at = [&zero, &zero];
    rope_kv_write(on, &kernels, &mut q, &mut pool.slab_mut(), table.ids(), &qkv, &angles, at, None, shapes).unwrap();
    // And with their projection in one kernel.
    let (x, weights) = (span!(scratch, on, f32, vec![1.0; DIM]), span!(scratch, on, bf16, vec![bf16::ONE; DIM * DIM]));
    let matrix = Matrix::new(weights.read(), DIM, DIM).unwrap();
    let input = Inputs::Normed { x: x.read(), weight: x.read(), epsilon: 0.0 };
    let slab = &mut pool.slab_mut();
    project_rope_kv_write(on, &kernels, &mut q, slab, table.ids(), [matrix; 3], input, &angles, at, shapes).unwrap();
    for index in 0..ROWS * COLUMNS {
        let mut found = vec![f16::ZERO; mark.len()];
        on.read::<f16>(step.buffers.kv.block(&ticket, index).unwrap(), &mut found).unwrap();
        assert!(found == mark, "block {index} of no row was written");
    }
}

/// The bytes of a page of 16 tokens behind the write of a value (64 elements; its key is zeros) to its first slot.
fn written(packed: PackedKv, value: &[f32]) -> Option<Vec<u8>> {
    let (kernels, mut engine, mut stream) = open(16, DIM)?;
    let handle = engine.bundle().kv.handle();
    let mut ticket = handle.open(Tokens::new(16));
    ticket.push(Blocks::new(1)).unwrap();
    let mut step = engine.step(&mut stream).unwrap();
    let on = step.on;
    step.buffers.table.set(on, 0, &ticket).unwrap();
    let Step { buffers: PagesView { kv: pool, table }, scratch, .. } = &mut step;
    let qkv: Vec<bf16> = [0.0; 2 * DIM].iter().chain(value).map(|x| bf16::from_f32(*x)).collect();
    assert!(qkv[2 * DIM..].iter().zip(value).all(|(x, given)| x.to_f32() == *given), "not a bf16");
    let (qkv, angles) = (span!(scratch, on, bf16, qkv), span!(scratch, on, f32, vec![1.0; DIM]));
    let zero = span!(scratch, on, u32, [0]);
    let mut q = scratch.take::<f16>(DIM).unwrap();
    let kv = PagedKv { layer_base: 0, kv_heads: 1, head_dim: DIM, packed: Some(packed) };
    let shapes = (kv, RopeShape { heads: 1, pairs: DIM / 2, style: RopeStyle::Halves });
    let at = [&zero, &zero];
    rope_kv_write(on, &kernels, &mut q, &mut pool.slab_mut(), table.ids(), &qkv, &angles, at, None, shapes).unwrap();
    let mut found = vec![f16::ZERO; 2 * 16 * DIM];
    on.read::<f16>(step.buffers.kv.block(&ticket, 0).unwrap(), &mut found).unwrap();
    Some(found.iter().flat_map(|x| x.to_bits().to_le_bytes()).collect())
}

/// Of two as near, the even one; of what is between, the nearest.
#[test]
fn elements_of_nvfp4_are_the_nearest() {
    // Where a step is 256: numbers in the middle of two, and beside that.
    let pairs = [
        (64.0, 0.0),
        (192.0, 1.0),
        (320.0, 1.0),
        (448.0, 2.0),
        (640.0, 2.0),
        (896.0, 4.0),
        (1280.0, 4.0),
        (1536.0, 6.0),
        (64.5, 0.5),
        (191.0, 0.5),
        (322.0, 1.5),
        (446.0, 1.5),
        (644.0, 3.0),
        (892.0, 3.0),
        (1288.0, 6.0),
        (1272.0, 4.0),
    ];
    for sign in [1.0, -1.0] {
        // The largest of the first group makes the scale of the whole vector 1, and that of the second group is 256.
        let mut value = vec![0.0; DIM];
        value[3] = 6.0 * 448.0;
        value[16..32].iter_mut().zip(&pairs).for_each(|(x, (given, _))| *x = given * sign);
        let Some(page) = written(PackedKv::Nvfp4, &value) else { return };
        // Values are behind the keys of 16 tokens, the scales of groups behind all of them, those of vectors behind these.
        let (row, groups, scale) = (&page[16 * 32..][..32], &page[32 * 32 + 16 * 4..][..4], 32 * 36 + 16 * 4);
        assert_eq!(page[scale..scale + 4], 1f32.to_le_bytes());
        assert_eq!(groups[..2], [0x7e, 0x78]);
        for (i, (given, expected)) in pairs.iter().enumerate() {
            let (at, place) = ((16 + i) / 8 * 4 + i % 2 * 2, i % 8 / 2);
            let half = u16::from_le_bytes([row[at], row[at + 1]]);
            let size = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0][usize::from(half >> (9 - 3 * place) & 7)];
            let negative = half >> [15, 12, 14, 13][place] & 1 == 1;
            assert_eq!((size, negative), (*expected, sign < 0.0), "{given}");
        }
    }
}

/// What is more than f16 has scales for becomes the largest that there is; halves go away from zero.
#[test]
fn elements_of_int8_are_the_nearest_and_no_more_than_the_largest() {
    let mut value = vec![0.0; DIM];
    let large = 153.0 * 65_536.0;
    value[..6].copy_from_slice(&[large, large, -large, -large, 1_048_576.0, -1_048_576.0]);
    value[32..42].copy_from_slice(&[127.0, -127.0, 0.5, -0.5, 1.5, 2.5, -2.5, 126.5, 0.498_046_88, 3.0]);
    let Some(page) = written(PackedKv::Int8, &value) else { return };
    let (row, groups) = (&page[16 * 64..][..64], &page[32 * 64 + 16 * 4..][..4]);
    assert_eq!(groups, [f16::from_f32(65_504.0), f16::ONE].map(|x| x.to_bits().to_le_bytes()).concat());
    let row: Vec<i8> = row.iter().map(|x| x.cast_signed()).collect();
    assert_eq!(row[..7], [127, 127, -128, -128, 16, -16, 0]);
    assert_eq!(row[32..43], [127, -127, 1, -1, 2, 3, -3, 127, 0, 3, 0]);
}

/// One query of `heads` heads, all of ones, over keys and values that are constants: what it sees of token `t` is `score(t)`, to base 2.
fn grown(packed: Option<PackedKv>, heads: usize, score: impl Fn(usize) -> f64) {
    let (page, scale) = (112, 0.125);
    let Some((kernels, mut engine, mut stream)) = open(page, DIM) else { return };
    let tokens = COLUMNS * page - 7;
    let handle = engine.bundle().kv.handle();
    let mut ticket = handle.open(Tokens::new(tokens as u64));
    ticket.push(Blocks::new(COLUMNS as u64)).unwrap();
    let mut step = engine.step(&mut stream).unwrap();
    let on = step.on;
    step.buffers.table.set(on, 0, &ticket).unwrap();
    let Step { buffers: PagesView { kv: pool, table }, scratch, .. } = &mut step;
    // Products of 64 elements, times the scale: eight times a key's element, natural.
    let key = |token: usize| bf16::from_f32((score(token) * std::f64::consts::LN_2 / 8.0) as f32);
    let value = |token: usize| bf16::from_f32((token * 37 % 101) as f32 / 8.0 + 1.0);
    let qkv: Vec<bf16> = (0..tokens)
        .flat_map(|token| [vec![bf16::ONE; heads * DIM], vec![key(token); DIM], vec![value(token); DIM]].concat())
        .collect();
    let angles: Vec<f32> = (0..tokens * DIM / 2).flat_map(|_| [1.0, 0.0]).collect();
    let (qkv, angles) = (span!(scratch, on, bf16, qkv), span!(scratch, on, f32, angles));
    let rows = span!(scratch, on, u32, vec![0; tokens]);
    let positions = span!(scratch, on, u32, (0..tokens as u32).collect::<Vec<_>>());
    let mut q = scratch.take::<f16>(tokens * heads * DIM).unwrap();
    let kv = PagedKv { layer_base: 0, kv_heads: 1, head_dim: DIM, packed };
    let shapes = (kv, RopeShape { heads, pairs: DIM / 2, style: RopeStyle::Interleaved });
    let at = [&rows, &positions];
    rope_kv_write(on, &kernels, &mut q, &mut pool.slab_mut(), table.ids(), &qkv, &angles, at, None, shapes).unwrap();

    let (row, length) = (span!(scratch, on, u32, [0]), span!(scratch, on, u32, [tokens as u32]));
    let last = span!(scratch, on, u32, [tokens as u32 - 1]);
    let query = q.read().range(0..heads * DIM).unwrap();
    let shape = DecodeShape { heads, scale, window: None, softcap: None, shares: 1 };
    let mut arrived = span!(scratch, on, u32, vec![0; shape.counters(1, 1).unwrap()]);
    let mut partial = scratch.take::<f32>(shape.partial_units(1, DIM).unwrap()).unwrap();
    let mut out = span!(scratch, on, bf16, vec![bf16::NAN; heads * DIM]);
    let work = DecodeWork { partial: &mut partial, arrived: &mut arrived };
    paged_decode(on, &kernels, &mut out, work, query, &pool.slab(), table.ids(), [&row, &length], (kv, shape)).unwrap();
    let mut decoded = vec![bf16::ZERO; heads * DIM];
    on.read::<bf16>(&out, &mut decoded).unwrap();
    on.write(&mut out, &vec![bf16::NAN; heads * DIM]).unwrap();
    let shape = PrefillShape { heads, scale, window: None, softcap: None };
    paged_prefill(on, &kernels, &mut out, query, &pool.slab(), table.ids(), [&row, &last], (kv, shape)).unwrap();
    let mut prefilled = vec![bf16::ZERO; heads * DIM];
    on.read::<bf16>(&out, &mut prefilled).unwrap();

    let weight = |token: usize| (8.0 * f64::from(key(token).to_f32())).exp();
    let (mut sum, mut all) = (0.0, 0.0);
    for token in 0..tokens {
        sum += weight(token) * f64::from(value(token).to_f32());
        all += weight(token);
    }
    let expected = vec![sum / all; heads * DIM];
    for (what, found) in [("decode", decoded), ("prefill", prefilled)] {
        let far = distance(wide(&found), &expected);
        // Constants are exact but for their scales: those of int8 are f16, by which large scores shift.
        assert!(far < 8e-3, "{what}, {packed:?}, {heads} heads: {far}");
    }
}

/// Weights are relative to the largest score so far, nearly: what was summed is made smaller when it grows by much, and nothing
/// overflows while it grows by less, whatever weights are multiplied with.
#[test]
fn scores_that_grow_along_a_sequence() {
    for packed in [None, Some(PackedKv::E4M3), Some(PackedKv::Int8), Some(PackedKv::Nvfp4)] {
        // By tiles of a warp, of 128 and of 256 tokens; and all along.
        grown(packed, 1, |token| 7.6 * (token / 256) as f64);
        grown(packed, 5, |token| 3.0 * (token / 16) as f64);
    }
    grown(None, 1, |token| 11.0 * (token / 128) as f64);
    grown(Some(PackedKv::Nvfp4), 1, |token| 5.5 * (token / 128) as f64);
}
