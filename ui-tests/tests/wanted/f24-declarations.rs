//! Declarations that look like mistakes and are none: storages called like something else, expressions of every kind, constants, generics,
//! attributes that come and go. What a macro refuses by its name or its form must let all of these pass.

#![forbid(unsafe_code)]

use memtier::*;
use ui_tests::{limits, loading};

pub type Error = std::boxed::Box<dyn std::error::Error + Send + Sync>;

#[derive(Clone, Copy)]
pub struct Rope {
    pub dim: usize,
}

#[derive(Clone, Copy)]
pub struct Size {
    pub hidden: usize,
    pub layers: usize,
    pub heads: [usize; 2],
    pub gated: bool,
    pub rope: Rope,
}

impl Size {
    fn doubled(&self, of: usize) -> usize {
        of * 2
    }
    fn layer(&self, index: usize) -> Size {
        Size { hidden: self.hidden + index, ..*self }
    }
    /// What a `?` would have left with.
    fn checked(&self) -> Option<usize> {
        self.hidden.checked_mul(2)
    }
}

const ROWS: usize = 3;

macro_rules! twice {
    ($of:expr) => {
        $of * 2
    };
}
macro_rules! rope {
    ($dims:expr) => {
        &$dims.rope
    };
}

// A recurrent network's, a detector's, a prompt's: names that hosts' containers and memtier's own types have, too.
#[tier(ModelResident, dims = Size)]
pub struct Cell {
    #[shape(hidden)]
    pub gate: f32,
}

#[tier(ModelResident, dims = Size)]
pub struct Box {
    #[shape(4, hidden)]
    pub corners: f32,
}

#[tier(EnginePersistent, dims = Size)]
pub struct Prefix {
    #[shape(hidden)]
    pub tokens: u32,
}

#[tier(EnginePersistent, dims = Size)]
pub struct Stream {
    #[shape(hidden)]
    pub residual: f32,
}

pub mod decoder {
    use super::*;

    #[tier(ModelResident, dims = Size)]
    pub struct Layer {
        #[shape(hidden)]
        pub norm: f32,
    }
}

/// It holds another module's storage of its own name.
#[tier(ModelResident, dims = Size)]
pub struct Layer {
    pub inner: decoder::Layer,
    pub cells: [Cell; layers],
    #[when(gated)]
    pub boxes: Box,
}

#[tier(ModelResident, dims = Rope)]
pub struct Angles {
    #[shape(dim / 2, 2)]
    pub table: f32,
}

#[tier(ModelResident, dims = Size)]
pub struct Expressions {
    #[shape({ let rows = hidden + 1; rows * 2 })]
    pub block: f32,
    #[shape(heads.iter().map(|each| each * 2).sum::<usize>())]
    pub closure: f32,
    #[shape({ let of = |rows: usize| { if rows > 1 { return rows; } 1 }; of(hidden) })]
    pub returns_from_a_closure: f32,
    #[shape((|| Some(dims.checked()? + 1))().unwrap_or(1))]
    pub asks_in_a_closure: f32,
    #[shape({ fn five() -> usize { let half = 2; return half * 2 + 1; } let _ = hidden; Self::FIVE.max(five()) })]
    pub function: f32,
    #[shape(if gated { hidden } else { 1 })]
    pub choice: f32,
    #[shape(match layers { 0 => 1, other => other })]
    pub matched: f32,
    #[shape({ let mut n = 0; loop { n += 1; if n > layers { break n } } })]
    pub looped: f32,
    #[shape({ let size = dims; twice!(size.hidden) }, { let size = dims; twice!(size.layers) + 1 })]
    pub by_macro: f32,
    #[shape(doubled(hidden), ROWS, ROWS * 2, u8::BITS as usize, (1), 0x2, 2_usize)]
    pub constants: f32,
    #[shape(heads[0], heads[1..].len())]
    pub indexed: f32,
    #[shape('rows: { if layers == 2 { break 'rows 3; } 4 })]
    pub labelled: f32,
    #[shape(hidden)]
    #[align(if gated { 512 } else { 256 })]
    #[when({ let there = gated; there && layers > 1 })]
    pub sometimes: bf16,
    #[dims(dims.rope)]
    pub nested_of_a_part: Angles,
    #[dims({ let size = dims; *rope!(size) })]
    pub nested_by_macro: Angles,
    #[dims(layer(index + 1))]
    pub each: [Cell; { layers + 1 }],
    #[cfg(any())]
    pub never: Vec<f32>,
    #[cfg(not(any()))]
    #[shape(hidden)]
    pub always: f32,
    #[cfg_attr(not(any()), shape(hidden, 2))]
    pub by_cfg_attr: u8,
}

impl<S: Space> Expressions<S> {
    const FIVE: usize = 5;
}

/// A count that is a parameter, a space that is one, and no dims.
#[tier(EnginePersistent, dims = (), space = S)]
pub struct Fixed<const N: usize, S: Space = Host> {
    #[shape(N, N + 1, { N })]
    pub numbers: i32,
    #[shape(const { 4 * ROWS })]
    pub block: u8,
}

#[repr(C)]
#[derive(Debug)]
#[tier(EnginePersistent, dims = &'static Size, space = memtier::Host)]
pub struct Lent {
    #[shape(hidden)]
    pub r#type: u32,
}

#[graph_captured]
pub struct Model {
    pub layer: Layer,
    pub prefix: Prefix,
    pub stream: self::Stream<Host>,
    pub cells: Vec<Cell>,
    pub maybe: Option<Prefix>,
    pub pair: [Cell; 2],
    pub expressions: Expressions,
    pub fixed: Fixed<3>,
    pub lent: Lent,
    #[cfg(any())]
    pub never: Box,
    pub kv: BlockPool<GlobalKv<f32>>,
}

const SIZE: Size = Size { hidden: 8, layers: 2, heads: [2, 3], gated: true, rope: Rope { dim: 4 } };

pub fn main() -> Result<(), Error> {
    static LENT: Size = SIZE;
    let mut engine = loading();
    let lines = engine.declare_bundle::<Model>(ModelSpec {
        layer: SIZE,
        prefix: SIZE,
        stream: SIZE,
        cells: vec![SIZE; 3],
        maybe: None,
        pair: [SIZE; 2],
        expressions: SIZE,
        fixed: (),
        lent: &LENT,
        kv: PoolSpec::fixed(Tokens::new(4), 8, Blocks::new(2)),
    });
    let stream = engine.declare(StreamSpec { scratch: Bytes::kib(4) });
    let mut engine = engine.plan(limits::<Host>())?.carve(lines)?;
    let mut stream = engine.open_stream(stream)?;
    let mut engine = engine.serve::<Model>()?;
    let step = engine.step::<Model>(&mut stream)?;
    let found = &step.buffers.expressions;
    let lengths = [
        found.block.len(),
        found.closure.len(),
        found.returns_from_a_closure.len(),
        found.asks_in_a_closure.len(),
        found.function.len(),
        found.choice.len(),
        found.matched.len(),
        found.looped.len(),
        found.by_macro.len(),
        found.indexed.len(),
        found.labelled.len(),
        found.always.len(),
        found.by_cfg_attr.len(),
    ];
    assert_eq!(lengths, [18, 10, 8, 17, 5, 8, 2, 3, 16 * 5, 2, 3, 8, 16]);
    assert_eq!(found.constants.len(), 16 * 3 * 6 * 8 * 2 * 2);
    let each: Vec<_> = found.each.iter().map(|cell| cell.gate.len()).collect();
    assert_eq!(each, [9, 10, 11]);
    assert_eq!((step.buffers.layer.cells.len(), step.buffers.fixed.numbers.len()), (2, 36));
    Ok(())
}
