//! What is measured: a product of one shape in one form, launch after launch with other weights.

use memtier::{Bytes, Cuda, LaunchError, PackedFormat, Place, Recorder, ScratchFrame, StableSpan, StableSpanMut, bf16};
use memtier_cuda::{
    Kernels, LtPlans, LtProduct,
    kernels::{
        Activation, Inputs, Matrix, TiledMatrix, Tiling, gate, project, project_add, project_f32, project_gated,
        project_tiled, project_tiled_add, project_tiled_f32, project_tiled_gated, unpack_tiled,
    },
};

/// Bytes of all sets of weights of bf16, and of tiles, at most.
const WEIGHTS: usize = 512 << 20;
const TILES: usize = 330 << 20;
/// What keeps a set of weights out of the second-level cache until its turn comes again.
const PAST_CACHE: usize = 250 << 20;
/// What cuBLASLt may use.
pub(crate) const WORKSPACE: Bytes = Bytes::mib(32);
/// Random numbers; behind them they begin anew. A prime, so that no two rows of a matrix are alike: equal ones take less power.
pub(crate) const PATTERN: usize = 262_139;

/// What becomes of the sums.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Left {
    Bf16,
    F32,
    Add,
    /// Of two matrices.
    Gated(Activation),
    /// Stored in bf16; the inputs are normalised on the way.
    Normed,
}

/// Who multiplies, and with what.
#[derive(Clone)]
pub(crate) enum By {
    /// This crate's kernels, weights of bf16. A number: by that kernel of those for many rows.
    Own(Option<usize>),
    /// This crate's kernels, weights of few bits.
    Tiles(Tiling),
    /// The same weights as bf16 again in front of every product, which the library does where it has plans.
    Unpacked(Tiling, Option<LtPlans>),
    /// cuBLASLt, as a product and as the engine has it.
    Product(LtProduct),
    Plans(LtPlans),
}

#[derive(Clone)]
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    pub(crate) outputs: Vec<usize>,
    pub(crate) left: Left,
    pub(crate) by: By,
    pub(crate) invariant: bool,
}

impl Case {
    pub(crate) fn all(&self) -> usize {
        self.outputs.iter().sum()
    }

    /// What a row of outputs has.
    pub(crate) fn width(&self) -> usize {
        if matches!(self.left, Left::Gated(_)) { self.outputs[0] } else { self.all() }
    }

    /// How its weights of few bits lie.
    pub(crate) fn tiling(&self) -> Option<Tiling> {
        match self.by {
            By::Tiles(tiling) | By::Unpacked(tiling, _) => Some(tiling),
            By::Own(_) | By::Product(_) | By::Plans(_) => None,
        }
    }

    /// The library's plans, where it is to multiply by them.
    pub(crate) fn plans(&self) -> Option<&LtPlans> {
        match &self.by {
            By::Plans(plans) | By::Unpacked(_, Some(plans)) => Some(plans),
            By::Own(_) | By::Tiles(_) | By::Unpacked(_, None) | By::Product(_) => None,
        }
    }

    /// Whether its sums are left in f32.
    pub(crate) fn wide(&self) -> bool {
        matches!(self.left, Left::F32 | Left::Add)
    }

    /// Bytes of weights that a launch reads.
    pub(crate) fn bytes(&self) -> usize {
        match self.tiling() {
            Some(tiling) => self.outputs.iter().map(|outputs| tile_bytes(tiling, *outputs, self.columns)).sum(),
            None => self.all() * self.columns * 2,
        }
    }

    /// Sets of weights that one launch after the other takes.
    pub(crate) fn sets(&self) -> usize {
        let room = if self.tiling().is_some() { TILES } else { WEIGHTS };
        (room / self.bytes()).clamp(1, PAST_CACHE / self.bytes() + 2)
    }

    /// Launches in a graph.
    pub(crate) fn launches(&self) -> usize {
        match self.rows * self.all() * self.columns {
            products if products > 1 << 36 => 4,
            products if products > 1 << 31 && self.name.starts_with("kernel-") => 40,
            _ => self.sets().max(40),
        }
    }

    fn kernels(&self, kernels: &Kernels) -> Kernels {
        let kernels = kernels.clone().batch_invariant(self.invariant);
        if let By::Own(Some(number)) = self.by { kernels.with_tile(number) } else { kernels }
    }
}

pub(crate) fn tile_bytes(tiling: Tiling, outputs: usize, columns: usize) -> usize {
    tiling.bytes(&[outputs, columns]).unwrap().count() as usize
}

/// Elements of everything that launches read and write; bytes of tiles and of the workspace.
#[derive(Clone, Copy)]
pub(crate) struct Room {
    pub(crate) weights: usize,
    pub(crate) tiles: usize,
    unpacked: usize,
    pub(crate) x: usize,
    out: usize,
    both: usize,
    sums: usize,
    pub(crate) wide: usize,
    pub(crate) norm: usize,
}

impl Room {
    /// What these cases take, each with its first `sets` sets of weights at most.
    pub(crate) fn of(cases: &[Case], sets: usize) -> Self {
        // A span of nothing begins nowhere.
        let most =
            |of: &dyn Fn(&Case) -> usize| cases.iter().map(of).max().unwrap_or(0).max(1).next_multiple_of(PATTERN);
        let tiled = |case: &Case| case.tiling().is_some();
        let sets = |case: &Case| case.sets().min(sets);
        let left = |case: &Case, here: bool| if here { case.rows * case.width() } else { 0 };
        Room {
            weights: most(&|case| if tiled(case) { 0 } else { sets(case) * case.all() * case.columns }),
            tiles: most(&|case| if tiled(case) { sets(case) * case.bytes() } else { 0 }),
            unpacked: most(&|case| if matches!(case.by, By::Unpacked(..)) { case.all() * case.columns } else { 0 }),
            x: most(&|case| case.rows * case.columns),
            out: most(&|case| left(case, !case.wide())),
            both: most(&|case| 2 * left(case, matches!(case.left, Left::Gated(_)))),
            sums: most(&|case| left(case, case.wide())),
            wide: most(&|case| if case.left == Left::Normed { case.rows * case.columns } else { 0 }),
            norm: most(&|case| if case.left == Left::Normed { case.columns } else { 0 }),
        }
    }

    /// Bytes of the stream's scratch.
    pub(crate) fn bytes(&self) -> Bytes {
        let halves = self.weights + self.unpacked + self.x + self.out + self.both;
        let words = self.sums + self.wide + self.norm;
        // Each of the spans begins at a place of its own.
        Bytes::new((halves * 2 + words * 4 + self.tiles) as u64 + WORKSPACE.count() + (1 << 20))
    }
}

/// Everything that launches read and write, from the stream's scratch: in the same order, so at the same place, in every step.
pub(crate) struct Spans<'f, P: Place> {
    pub(crate) weights: StableSpanMut<'f, bf16, P>,
    pub(crate) tiles: StableSpanMut<'f, u8, P>,
    unpacked: StableSpanMut<'f, bf16, P>,
    pub(crate) inputs: Ins<'f, P>,
    pub(crate) outs: Outs<'f, P>,
}

pub(crate) struct Ins<'f, P: Place> {
    pub(crate) x: StableSpanMut<'f, bf16, P>,
    pub(crate) wide: StableSpanMut<'f, f32, P>,
    pub(crate) norm: StableSpanMut<'f, f32, P>,
}

pub(crate) struct Outs<'f, P: Place> {
    pub(crate) out: StableSpanMut<'f, bf16, P>,
    both: StableSpanMut<'f, bf16, P>,
    pub(crate) sums: StableSpanMut<'f, f32, P>,
    workspace: StableSpanMut<'f, u8, P>,
}

impl<'f, P: Place<Space = Cuda>> Spans<'f, P> {
    pub(crate) fn take(scratch: &mut ScratchFrame<'f, P>, room: &Room) -> Result<Self, LaunchError> {
        Ok(Spans {
            weights: scratch.take(room.weights)?,
            tiles: scratch.take(room.tiles)?,
            unpacked: scratch.take(room.unpacked)?,
            inputs: Ins { x: scratch.take(room.x)?, wide: scratch.take(room.wide)?, norm: scratch.take(room.norm)? },
            outs: Outs {
                out: scratch.take(room.out)?,
                both: scratch.take(room.both)?,
                sums: scratch.take(room.sums)?,
                workspace: scratch.take(WORKSPACE.count() as usize)?,
            },
        })
    }

    /// Queues `count` launches, beginning with the weights of the first set. `false` where the library left one to this crate's kernels.
    pub(crate) fn queue(
        &mut self,
        on: &Recorder<P>,
        kernels: &Kernels,
        case: &Case,
        count: usize,
    ) -> Result<bool, LaunchError> {
        let (kernels, mut taken) = (case.kernels(kernels), true);
        for set in (0..case.sets()).cycle().take(count) {
            let matrices = match case.tiling() {
                None => rows_of(self.weights.read(), case, set * case.all() * case.columns)?,
                Some(tiling) => {
                    let tiled = tiles_of(self.tiles.read(), case, (tiling, set * case.bytes()))?;
                    let By::Unpacked(..) = case.by else {
                        self.outs.tiled(on, &kernels, case, &self.inputs, &tiled)?;
                        continue;
                    };
                    let mut wide = self.unpacked.range(0..case.all() * case.columns).unwrap();
                    unpack_tiled(on, &kernels, &mut wide, &tiled)?;
                    rows_of(self.unpacked.read(), case, 0)?
                }
            };
            match (&case.by, case.plans()) {
                (_, Some(plans)) => {
                    taken &= self.outs.by_library(on, (&kernels, plans), case, &self.inputs, &matrices)?;
                }
                (By::Product(product), _) => self.outs.product(on, product, case, &self.inputs, matrices[0])?,
                _ => self.outs.own(on, &kernels, case, &self.inputs, &matrices)?,
            }
        }
        Ok(taken)
    }
}

/// The matrices of a case, one behind the other from element `first` on. Those that nothing unpacks may be read early.
fn rows_of<'a, P: Place>(
    weights: StableSpan<'a, bf16, P>,
    case: &Case,
    mut first: usize,
) -> Result<Vec<Matrix<'a, P>>, LaunchError> {
    let next = |outputs: &usize| {
        let span = weights.range(first..first + outputs * case.columns).unwrap();
        first += outputs * case.columns;
        let matrix = Matrix::new(span, *outputs, case.columns)?;
        Ok(if case.tiling().is_none() { matrix.at_rest() } else { matrix })
    };
    case.outputs.iter().map(next).collect()
}

fn tiles_of<'a, P: Place>(
    tiles: StableSpan<'a, u8, P>,
    case: &Case,
    (tiling, mut first): (Tiling, usize),
) -> Result<Vec<TiledMatrix<'a, P>>, LaunchError> {
    let next = |outputs: &usize| {
        let bytes = tile_bytes(tiling, *outputs, case.columns);
        let span = tiles.range(first..first + bytes).unwrap();
        first += bytes;
        Ok(TiledMatrix::new(span, tiling, *outputs, case.columns)?.at_rest())
    };
    case.outputs.iter().map(next).collect()
}

impl<P: Place<Space = Cuda>> Ins<'_, P> {
    fn plain(&self, case: &Case) -> StableSpan<'_, bf16, P> {
        self.x.read().range(0..case.rows * case.columns).unwrap()
    }
}

impl<P: Place<Space = Cuda>> Outs<'_, P> {
    fn own(
        &mut self,
        on: &Recorder<P>,
        kernels: &Kernels,
        case: &Case,
        inputs: &Ins<'_, P>,
        matrices: &[Matrix<'_, P>],
    ) -> Result<(), LaunchError> {
        let (rows, all) = (case.rows, 0..case.rows * case.width());
        let x = Inputs::Plain(inputs.plain(case));
        match case.left {
            Left::Bf16 => project(on, kernels, &mut self.out.range(all).unwrap(), matrices, x, rows),
            Left::F32 => project_f32(on, kernels, &mut self.sums.range(all).unwrap(), matrices, x, rows),
            Left::Add => project_add(on, kernels, &mut self.sums.range(all).unwrap(), matrices[0], x, rows),
            Left::Gated(how) => {
                let pair = [matrices[0], matrices[1]];
                project_gated(on, kernels, &mut self.out.range(all).unwrap(), pair, x, (rows, how))
            }
            Left::Normed => {
                let (x, weight) = (inputs.wide.read(), inputs.norm.read());
                let (x, weight) = (x.range(0..rows * case.columns).unwrap(), weight.range(0..case.columns).unwrap());
                let x = Inputs::Normed { x, weight, epsilon: 1e-5 };
                project(on, kernels, &mut self.out.range(all).unwrap(), matrices, x, rows)
            }
        }
    }

    fn tiled(
        &mut self,
        on: &Recorder<P>,
        kernels: &Kernels,
        case: &Case,
        inputs: &Ins<'_, P>,
        matrices: &[TiledMatrix<'_, P>],
    ) -> Result<(), LaunchError> {
        let (x, rows, all) = (inputs.plain(case), case.rows, 0..case.rows * case.width());
        match case.left {
            Left::Bf16 => project_tiled(on, kernels, &mut self.out.range(all).unwrap(), matrices, x, rows),
            Left::F32 => project_tiled_f32(on, kernels, &mut self.sums.range(all).unwrap(), matrices, x, rows),
            Left::Add => project_tiled_add(on, kernels, &mut self.sums.range(all).unwrap(), matrices[0], x, rows),
            Left::Gated(how) => {
                let pair = [matrices[0], matrices[1]];
                project_tiled_gated(on, kernels, &mut self.out.range(all).unwrap(), pair, x, (rows, how))
            }
            Left::Normed => unreachable!("{}: no case normalises on the way into tiles", case.name),
        }
    }

    /// What becomes of a prompt's rows in the engine: gated ones are stored, then gated.
    fn by_library(
        &mut self,
        on: &Recorder<P>,
        (kernels, plans): (&Kernels, &LtPlans),
        case: &Case,
        inputs: &Ins<'_, P>,
        matrices: &[Matrix<'_, P>],
    ) -> Result<bool, LaunchError> {
        let (x, all) = ((inputs.plain(case), case.rows), 0..case.rows * case.width());
        let (first, workspace) = (matrices[0], &mut self.workspace);
        let taken = match case.left {
            Left::Bf16 => plans.project(on, &mut self.out.range(all).unwrap(), matrices, x, workspace)?,
            Left::F32 => plans.project_f32(on, &mut self.sums.range(all).unwrap(), first, x, workspace)?,
            Left::Add => plans.project_add(on, &mut self.sums.range(all).unwrap(), first, x, workspace)?,
            Left::Gated(how) => {
                let mut both = self.both.range(0..2 * all.end).unwrap();
                let taken = plans.project(on, &mut both, matrices, x, workspace)?;
                if taken {
                    gate(on, kernels, &mut self.out.range(all).unwrap(), &both, case.width(), how)?;
                }
                taken
            }
            Left::Normed => unreachable!("{}: the library normalises nothing", case.name),
        };
        if !taken {
            self.own(on, kernels, case, inputs, matrices)?;
        }
        Ok(taken)
    }

    fn product(
        &mut self,
        on: &Recorder<P>,
        product: &LtProduct,
        case: &Case,
        inputs: &Ins<'_, P>,
        matrix: Matrix<'_, P>,
    ) -> Result<(), LaunchError> {
        let mut out = self.out.range(0..case.rows * case.width()).unwrap();
        product.launch(on, &mut out, matrix, inputs.plain(case), &mut self.workspace)
    }
}
