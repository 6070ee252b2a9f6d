//! Whose ids a page table holds, and which rows and columns it has: nothing else is read as an id, and no other page is written or seen.

mod support;

use memtier::{
    BlockPool, Blocks, Bytes, Cuda, Device, Engine, GlobalKv, LaunchError, Limits, PageTable, Place, ScratchFrame,
    Serving, Space, StableSpanMut, Step, Stream, StreamSpec, TableSpec, Ticket, Tokens, bf16, f16, graph_captured,
};
use memtier_cuda::{
    Kernels,
    kernels::{
        DecodeShape, DecodeWork, Inputs, Matrix, PagedKv, PrefillShape, RopeShape, RopeStyle, paged_decode,
        paged_prefill, project_rope_kv_write, rope_kv_write,
    },
};
use support::{backend, kernels as load_kernels, pool};

/// Two pools whose blocks are alike, and a table for those of one of them.
#[graph_captured]
struct Pages {
    kv: BlockPool<GlobalKv<f16>, Cuda>,
    other: BlockPool<GlobalKv<f16>, Cuda>,
    table: PageTable<GlobalKv<f16>, Cuda>,
}

const DIM: usize = 64;
const PAGE: usize = 16;
const COLUMNS: usize = 3;
const ROWS: usize = 2;
const BLOCK: usize = 2 * PAGE * DIM;
const MARK: f32 = 77.0;
const KV: PagedKv = PagedKv { layer_base: 0, kv_heads: 1, head_dim: DIM, packed: None };
const ROPE: RopeShape = RopeShape { heads: 1, pairs: DIM / 2, style: RopeStyle::Halves };
const DECODE: DecodeShape = DecodeShape { heads: 1, scale: 0.125, window: None, softcap: None, shares: 1 };
const PREFILL: PrefillShape = PrefillShape { heads: 1, scale: 0.125, window: None, softcap: None };

struct Rig {
    kernels: Kernels,
    engine: Engine<Serving<Pages>>,
    stream: Stream<Cuda>,
    /// All blocks of the pool, and of the other one: two requests, a row each.
    tickets: [[Ticket<GlobalKv<f16>>; ROWS]; 2],
}

fn rig() -> Option<Rig> {
    let backend = backend()?;
    let kernels = load_kernels(&backend);
    let device = Device::new(backend, Bytes::gib(1));
    let mut engine = Engine::open(&device);
    let pool = pool(PAGE, BLOCK, ROWS * COLUMNS);
    let spec = PagesSpec { kv: pool, other: pool, table: TableSpec { rows: ROWS, columns: COLUMNS } };
    let lines = engine.declare_bundle::<Pages>(spec);
    let stream = engine.declare(StreamSpec { scratch: Bytes::mib(1) });
    let limits = Limits { graphs: 1, graph_bytes: Bytes::mib(1), ..Limits::new(Cuda::NAME, Bytes::gib(1)) };
    let mut engine = engine.plan(limits).unwrap().carve(lines).unwrap();
    let stream = engine.open_stream(stream).unwrap();
    let engine = engine.serve::<Pages>().unwrap();
    let handles = [engine.bundle().kv.handle(), engine.bundle().other.handle()];
    let tickets = handles.map(|handle| {
        [(); ROWS].map(|()| {
            let mut ticket = handle.open(Tokens::new((COLUMNS * PAGE) as u64));
            ticket.push(Blocks::new(COLUMNS as u64)).unwrap();
            ticket
        })
    });
    Some(Rig { kernels, engine, stream, tickets })
}

/// Writes the mark to all blocks of both pools.
macro_rules! mark {
    ($step:ident, $tickets:ident) => {{
        let mark = vec![f16::from_f32(MARK); BLOCK];
        let [ours, others] = &mut $tickets;
        for index in 0..COLUMNS {
            for ticket in ours.iter_mut() {
                $step.on.write(&mut $step.buffers.kv.block_mut(ticket, index).unwrap(), &mark).unwrap();
            }
            for ticket in others.iter_mut() {
                $step.on.write(&mut $step.buffers.other.block_mut(ticket, index).unwrap(), &mark).unwrap();
            }
        }
    }};
}

/// That all of them are as they were.
macro_rules! unmoved {
    ($step:ident, $tickets:ident, $case:expr) => {{
        let mut found = vec![f16::ZERO; BLOCK];
        for (index, row) in (0..COLUMNS).flat_map(|index| [(index, 0), (index, 1)]) {
            let block = $step.buffers.kv.block(&$tickets[0][row], index).unwrap();
            $step.on.read::<f16>(block, &mut found).unwrap();
            assert!(found.iter().all(|x| x.to_f32() == MARK), "{}: page {index} of row {row} was written", $case);
            let block = $step.buffers.other.block(&$tickets[1][row], index).unwrap();
            $step.on.read::<f16>(block, &mut found).unwrap();
            assert!(found.iter().all(|x| x.to_f32() == MARK), "{}: page {index} of the other pool was written", $case);
        }
    }};
}

/// What one token is made of: in the same order, so at the same place, in every step.
struct Spans<'f, P: Place> {
    at: [StableSpanMut<'f, u32, P>; 3],
    qkv: StableSpanMut<'f, bf16, P>,
    x: StableSpanMut<'f, f32, P>,
    weights: StableSpanMut<'f, bf16, P>,
    q: StableSpanMut<'f, f16, P>,
    arrived: StableSpanMut<'f, u32, P>,
    partial: StableSpanMut<'f, f32, P>,
    out: [StableSpanMut<'f, bf16, P>; 2],
}

impl<'f, P: Place<Space = Cuda>> Spans<'f, P> {
    fn take(scratch: &mut ScratchFrame<'f, P>) -> Result<Self, LaunchError> {
        Ok(Spans {
            at: [scratch.take(1)?, scratch.take(1)?, scratch.take(1)?],
            qkv: scratch.take(3 * DIM)?,
            x: scratch.take(DIM)?,
            weights: scratch.take(DIM * DIM)?,
            q: scratch.take(DIM)?,
            arrived: scratch.take(DECODE.counters(1, 1).unwrap())?,
            partial: scratch.take(DECODE.partial_units(1, DIM).unwrap())?,
            out: [scratch.take(DIM)?, scratch.take(DIM)?],
        })
    }
}

/// Writes a token at this row and position, of which nothing is to be written.
macro_rules! given {
    ($on:expr, $spans:ident, $row:expr, $position:expr) => {{
        let on = $on;
        for (span, value) in $spans.at.iter_mut().zip([$row, $position, $position + 1]) {
            on.write(span, &[value]).unwrap();
        }
        on.write(&mut $spans.qkv, &[bf16::ONE; 3 * DIM]).unwrap();
        on.write(&mut $spans.x, &[1.0; DIM]).unwrap();
        on.write(&mut $spans.weights, &[bf16::ONE; DIM * DIM]).unwrap();
        let zeros = vec![0; $spans.arrived.len()];
        on.write(&mut $spans.arrived, &zeros).unwrap();
        $spans.out.iter_mut().for_each(|out| on.write(out, &[bf16::NAN; DIM]).unwrap());
    }};
}

/// Both ways for a token to its page in this pool.
macro_rules! write_token {
    ($on:expr, $kernels:ident, $spans:ident, $pool:expr, $table:expr) => {{
        let [row, position, _] = &$spans.at;
        let (at, slab, ids) = ([row, position], &mut $pool.slab_mut(), $table.ids());
        rope_kv_write($on, &$kernels, &mut $spans.q, slab, ids, &$spans.qkv, &$spans.x, at, None, (KV, ROPE))?;
        let matrix = Matrix::new($spans.weights.read(), DIM, DIM)?;
        let input = Inputs::Normed { x: $spans.x.read(), weight: $spans.x.read(), epsilon: 0.0 };
        let ids = $table.ids();
        let how = (KV, ROPE);
        project_rope_kv_write($on, &$kernels, &mut $spans.q, slab, ids, [matrix; 3], input, &$spans.x, at, how)
    }};
}

#[test]
fn rows_and_columns_that_the_table_does_not_have_are_no_pages_to_write() {
    let Some(Rig { kernels, mut engine, mut stream, mut tickets }) = rig() else { return };
    // Behind a row's columns is the next row; behind the last one, whose ids they are: a small number, and zero, which are blocks, too.
    let (end, rows) = ((COLUMNS * PAGE) as u32, ROWS as u32);
    for (row, position) in [(0, end), (0, end + 20), (1, end + 16), (rows, 0), (rows, 20), (rows + 1, 3), (u32::MAX, 0)]
    {
        let mut step = engine.step(&mut stream).unwrap();
        mark!(step, tickets);
        for (row, ticket) in tickets[0].iter_mut().enumerate() {
            step.buffers.table.set(step.on, row, ticket).unwrap();
        }
        let Step { buffers: PagesView { kv, table, .. }, scratch, on, .. } = &mut step;
        let mut spans = Spans::take(scratch).unwrap();
        given!(*on, spans, row, position);
        let mut launch = || -> Result<(), LaunchError> { write_token!(on, kernels, spans, kv, table) };
        launch().unwrap();
        unmoved!(step, tickets, format!("a token at row {row}, {position}"));
        step.finish().unwrap().wait().unwrap();
    }
}

/// A graph that was recorded over a table which named no pool, for one pool; the table then was set for another: its ids are none of the
/// first one's.
#[test]
fn ids_of_another_pool_are_no_pages() {
    let Some(Rig { kernels, mut engine, mut stream, mut tickets }) = rig() else { return };
    let graph = engine
        .record::<Pages, LaunchError, _>(&mut stream, |step| {
            let Step { buffers: PagesView { other, table, .. }, scratch, on, .. } = step;
            let mut spans = Spans::take(scratch)?;
            write_token!(on, kernels, spans, other, table)?;
            let [row, position, sees] = &spans.at;
            let (work, [decoded, prefilled]) =
                (DecodeWork { partial: &mut spans.partial, arrived: &mut spans.arrived }, &mut spans.out);
            let (slab, q) = (other.slab(), spans.q.read());
            paged_decode(on, &kernels, decoded, work, q, &slab, table.ids(), [row, sees], (KV, DECODE))?;
            paged_prefill(on, &kernels, prefilled, q, &slab, table.ids(), [row, position], (KV, PREFILL))
        })
        .unwrap();
    let mut step = engine.step(&mut stream).unwrap();
    mark!(step, tickets);
    for (row, ticket) in tickets[0].iter_mut().enumerate() {
        step.buffers.table.set(step.on, row, ticket).unwrap();
    }
    {
        let mut scratch = step.scratch.nested();
        let mut spans = Spans::take(&mut scratch).unwrap();
        given!(step.on, spans, 1, 20);
    }
    step.replay(graph).unwrap();
    let spans = Spans::take(&mut step.scratch).unwrap();
    for (what, out) in ["decode", "prefill"].iter().zip(&spans.out) {
        let mut found = vec![bf16::NAN; DIM];
        step.on.read::<bf16>(out, &mut found).unwrap();
        assert!(found.iter().all(|x| x.to_f32() == 0.0), "{what} sees {found:?}");
    }
    unmoved!(step, tickets, "ids of another pool");
}
