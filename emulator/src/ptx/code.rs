//! Instructions as they are run: types resolved, registers and constants as places in dense arrays.

/// Set in the number of a register that holds a constant.
pub(crate) const CONSTANT: u32 = 1 << 31;
/// No register.
pub(crate) const NONE: u32 = u32::MAX;

/// How an instruction uses an operand. Registers of 8, 16 and 32 bits are one class; a predicate is a mask of lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Use32,
    Def32,
    Use64,
    Def64,
    UseP,
    DefP,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Int {
    Add,
    Sub,
    Mul,
    MulHiU,
    MulHiS,
    DivU,
    DivS,
    RemU,
    RemS,
    MinU,
    MinS,
    MaxU,
    MaxS,
    And,
    Or,
    Xor,
    Shl,
    ShrU,
    ShrS,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Int1 {
    Not,
    Neg,
    AbsS,
    Popc,
    Clz,
    Brev,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Int3 {
    Mad,
    MadHiU,
    MadHiS,
    Prmt,
    BfeU,
    BfeS,
    ShfL { clamp: bool },
    ShfR { clamp: bool },
    Lop3(u8),
}

/// Rounding; `Odd` is for steps in between.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Round {
    Near,
    Zero,
    Down,
    Up,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Float {
    Add,
    Sub,
    Mul,
    Div,
    DivApprox,
    Min,
    Max,
    MinNan,
    MaxNan,
    Copysign,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Float1 {
    Neg,
    Abs,
    Rcp,
    RcpApprox,
    Sqrt,
    SqrtApprox,
    RsqrtApprox,
    Ex2,
    Lg2,
    Sin,
    Cos,
    Tanh,
}

/// How a float instruction rounds, and whether subnormals are zeros (`ftz`) and results are in 0..=1 (`sat`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mode {
    pub(crate) round: Round,
    pub(crate) ftz: bool,
    pub(crate) sat: bool,
}

impl Mode {
    /// What most instructions have.
    pub(crate) const PLAIN: Self = Self { round: Round::Near, ftz: false, sat: false };
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Half {
    F16,
    Bf16,
}

/// A type of an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ty {
    Pred,
    /// Bits without a meaning, unsigned where it matters; bytes.
    B(u8),
    U(u8),
    S(u8),
    F16,
    Bf16,
    F32,
    F64,
    F16x2,
    Bf16x2,
    E4m3x2,
    E5m2x2,
    E2m1x2,
}

impl Ty {
    pub(crate) fn bytes(self) -> usize {
        match self {
            Self::Pred => 0,
            Self::B(n) | Self::U(n) | Self::S(n) => usize::from(n),
            Self::F16 | Self::Bf16 | Self::E4m3x2 | Self::E5m2x2 => 2,
            Self::F32 | Self::F16x2 | Self::Bf16x2 => 4,
            Self::F64 => 8,
            Self::E2m1x2 => 1,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cmp {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
    Equ,
    Neu,
    Ltu,
    Leu,
    Gtu,
    Geu,
    Num,
    Nan,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Logic {
    And,
    Or,
    Xor,
}

/// `setp`: what is compared, and with what the result is combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Set {
    pub(crate) cmp: Cmp,
    pub(crate) ty: Ty,
    pub(crate) ftz: bool,
    /// A second predicate gets the opposite.
    pub(crate) both: bool,
    /// Combined with a third source, negated or not.
    pub(crate) with: Option<(Logic, bool)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cvt {
    pub(crate) to: Ty,
    pub(crate) from: Ty,
    pub(crate) round: Round,
    /// To an integer, in whatever format.
    pub(crate) integral: bool,
    pub(crate) ftz: bool,
    /// `.sat`, or `.satfinite`.
    pub(crate) sat: bool,
    pub(crate) relu: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Space {
    Global,
    Shared,
    Local,
    Generic,
    /// Shared memory of the cluster's blocks; stores only.
    Cluster,
}

/// A load or a store of `count` elements: values, then the address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Access {
    pub(crate) space: Space,
    /// Of the memory.
    pub(crate) bytes: u8,
    /// Bytes of a signed element that a load extends; then those of its register.
    pub(crate) signed: Option<u8>,
    /// Registers of 64 bits.
    pub(crate) wide: bool,
    pub(crate) count: u8,
    /// The address is a register of 64 bits.
    pub(crate) far: bool,
    pub(crate) offset: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Atom {
    Add,
    AddF32,
    AddF64,
    MinU,
    MinS,
    MaxU,
    MaxS,
    And,
    Or,
    Xor,
    Exch,
    Inc,
    Dec,
    Cas,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shfl {
    Up,
    Down,
    Bfly,
    Idx,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Vote {
    All,
    Any,
    Uni,
    Ballot,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Special {
    Tid(u8),
    Ntid(u8),
    Ctaid(u8),
    Nctaid(u8),
    Lane,
    Warp,
    Warps,
    LaneMask(u8),
    Clock,
    Clock64,
    Zero,
}

/// Elements of a matrix product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Element {
    F16,
    Bf16,
    Tf32,
    E4m3,
    E5m2,
    E2m1,
    S8,
    U8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scale {
    Ue8m0,
    Ue4m3,
}

/// `mma.m16n8k*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mma {
    pub(crate) left: Element,
    pub(crate) right: Element,
    pub(crate) k: u8,
    /// Scales along k, and their type.
    pub(crate) scale: Option<(u8, Scale)>,
}

/// What an instruction does. Operands in the order of the comment, those in brackets where the fields say so.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Op {
    Nop,
    /// Where a branch goes.
    Branch(u32),
    Exit,
    Trap,
    /// d
    Special(Special),
    /// d a
    Mov32,
    Mov64,
    /// d, then parts from the low end; or parts, then a. Bytes of the whole and of a part.
    Pack(u8, u8),
    Unpack(u8, u8),
    /// d a b
    Int16(Int),
    Int32(Int),
    Int64(Int),
    /// d a
    Un16(Int1),
    Un32(Int1),
    Un64(Int1),
    /// d a b c
    Tri32(Int3),
    Mad64,
    /// Two of 32 bits to one of 64, signed or not: d a b [c]
    MulWide {
        signed: bool,
        add: bool,
    },
    /// Two of 16 bits to one of 32: d a b
    MulWide16 {
        signed: bool,
    },
    /// bfi: d a b c e
    Bfi,
    F32(Float, Mode),
    F64(Float, Mode),
    F32x1(Float1, Mode),
    F64x1(Float1),
    Fma32(Mode),
    Fma64(Mode),
    /// One or two halves: d a b
    Half(Float, Half, u8),
    /// d a b c
    HalfFma(Half, u8),
    /// d a
    Half1(Float1, Half, u8),
    /// p [q] a b [c]
    Setp(Set),
    /// d a b p
    Sel32,
    Sel64,
    /// p a b
    Pred(Logic),
    PredNot,
    PredMov,
    PredSet(bool),
    /// d a [b]
    Cvt(Cvt),
    /// Offset, bytes, and whether the register has 64 bits and gets a sign: d
    LoadParam {
        offset: u32,
        bytes: u8,
        wide: bool,
        signed: bool,
    },
    /// d.. address
    Load(Access),
    /// values.. address
    Store(Access),
    /// [d] a [b] address
    Atom {
        op: Atom,
        access: Access,
        returns: bool,
    },
    /// Generic addresses of a space and back: d a
    ToGeneric(Space),
    FromGeneric(Space),
    /// d.. address
    Ldmatrix {
        access: Access,
        trans: bool,
    },
    /// d*4 a.. b.. c*4 [scale-a byte-a thread-a scale-b byte-b thread-b]
    Mma(Mma),
    /// d [p] a b c mask
    Shfl {
        how: Shfl,
        both: bool,
    },
    /// d a mask
    Vote {
        how: Vote,
        not: bool,
    },
    Activemask,
    /// d a mask
    Redux(Int),
    /// d a: an 8x8 matrix of 16 bits, transposed
    Movmatrix,
    Barrier,
    /// Of a cluster; whether stores before it are published.
    ClusterArrive {
        release: bool,
    },
    ClusterWait,
    /// d address block: that address of another block's shared memory
    Mapa,
    /// mask
    WarpBarrier,
    /// to from [bytes]: bytes, offsets, whether the address of shared memory has 64 bits
    Copy {
        bytes: u8,
        to: i64,
        from: i64,
        far: bool,
        partial: bool,
    },
    Commit,
    /// At most so many groups may be on their way.
    Wait(u32),
}

/// An instruction.
#[derive(Clone, Debug)]
pub(crate) struct Inst {
    pub(crate) op: Op,
    /// The predicate it is run under, or [`NONE`].
    pub(crate) guard: u32,
    pub(crate) negated: bool,
    /// The first operands.
    pub(crate) r: [u32; 5],
    /// All of them, where there are more.
    pub(crate) more: Box<[u32]>,
    pub(crate) place: Place,
}

/// Where an instruction stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Place {
    /// Of the PTX.
    pub(crate) line: u32,
    /// Of the source: number of the file, line.
    pub(crate) source: (u32, u32),
}

/// A constant of 64 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Constant {
    Value(u64),
    /// The address of a variable of the module, and bytes behind it.
    Global(u32, i64),
}

/// A kernel, ready to run.
#[derive(Debug, Default)]
pub(crate) struct Code {
    pub(crate) instructions: Vec<Inst>,
    pub(crate) constants32: Vec<u32>,
    pub(crate) constants64: Vec<Constant>,
    pub(crate) registers32: u32,
    pub(crate) registers64: u32,
    pub(crate) predicates: u32,
}
