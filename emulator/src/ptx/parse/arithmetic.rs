//! Arithmetic.

use super::{
    args::{Arg, Suffixes},
    body::{Body, ty},
};
use crate::ptx::code::{Float, Float1, Half, Int, Int1, Int3, Mode, Op, Round, Ty};

/// One or two halves.
fn half(ty: Ty) -> Option<(Half, u8)> {
    Some(match ty {
        Ty::F16 => (Half::F16, 1),
        Ty::Bf16 => (Half::Bf16, 1),
        Ty::F16x2 => (Half::F16, 2),
        Ty::Bf16x2 => (Half::Bf16, 2),
        _ => return None,
    })
}

fn integer(base: &str, ty: Ty, high: bool) -> Option<Int> {
    let signed = matches!(ty, Ty::S(_));
    Some(match (base, signed) {
        ("add", _) => Int::Add,
        ("sub", _) => Int::Sub,
        ("mul", _) if !high => Int::Mul,
        ("mul", false) => Int::MulHiU,
        ("mul", true) => Int::MulHiS,
        ("div", false) => Int::DivU,
        ("div", true) => Int::DivS,
        ("rem", false) => Int::RemU,
        ("rem", true) => Int::RemS,
        ("min", false) => Int::MinU,
        ("min", true) => Int::MinS,
        ("max", false) => Int::MaxU,
        ("max", true) => Int::MaxS,
        ("and", _) => Int::And,
        ("or", _) => Int::Or,
        ("xor", _) => Int::Xor,
        ("shl", _) => Int::Shl,
        ("shr", false) => Int::ShrU,
        ("shr", true) => Int::ShrS,
        _ => return None,
    })
}

impl<'a> Body<'a> {
    /// The type of an instruction.
    pub(super) fn ty(s: &mut Suffixes<'a>) -> Result<Ty, String> {
        s.find(ty).ok_or_else(|| "a type is missing".into())
    }

    /// An instruction with operands of one type.
    fn same(&mut self, op: Op, ty: Ty, args: &[Arg<'a>], sources: usize) -> Result<(), String> {
        if args.len() != sources + 1 {
            return Err(format!("{} operands, not {}", args.len(), sources + 1));
        }
        let mut operands = vec![self.def(&args[0], ty)?];
        for arg in &args[1..] {
            operands.push(self.value(arg, ty)?);
        }
        self.emit(op, operands);
        Ok(())
    }

    pub(super) fn two(&mut self, base: &str, s: &mut Suffixes<'a>, args: &[Arg<'a>]) -> Result<(), String> {
        if base == "mul" && s.take("wide") {
            return self.wide(false, s, args);
        }
        let nan = s.take("NaN");
        let approx = s.take("approx") || s.take("full");
        let mode = Self::mode(s);
        let (high, _low) = (s.take("hi"), s.take("lo"));
        let ty = Self::ty(s)?;
        s.end()?;
        let float = match base {
            "add" => Some(Float::Add),
            "sub" => Some(Float::Sub),
            "mul" => Some(Float::Mul),
            "div" if approx => Some(Float::DivApprox),
            "div" => Some(Float::Div),
            "min" => Some(if nan { Float::MinNan } else { Float::Min }),
            "max" => Some(if nan { Float::MaxNan } else { Float::Max }),
            "copysign" => Some(Float::Copysign),
            _ => None,
        };
        match (ty, float, half(ty)) {
            (Ty::Pred, ..) => self.logic(base, args),
            (Ty::F32, Some(op), _) => self.same(Op::F32(op, mode), ty, args, 2),
            (Ty::F64, Some(op), _) if op == Float::Copysign || mode.round == Round::Near => {
                self.same(Op::F64(op, mode), ty, args, 2)
            }
            (_, Some(op), Some((half, count))) if mode == Mode::PLAIN => {
                self.same(Op::Half(op, half, count), ty, args, 2)
            }
            (Ty::B(_) | Ty::U(_) | Ty::S(_), ..) if !approx && !nan && mode == Mode::PLAIN => {
                let op = integer(base, ty, high).ok_or("not an instruction for integers")?;
                if matches!(op, Int::Shl | Int::ShrU | Int::ShrS) {
                    return self.shift(op, ty, args);
                }
                self.same(integers(op, ty), ty, args, 2)
            }
            _ => Err("not known with these suffixes".into()),
        }
    }

    /// The count has 32 bits, whatever is shifted.
    fn shift(&mut self, op: Int, ty: Ty, args: &[Arg<'a>]) -> Result<(), String> {
        let [d, a, b] = args else { return Err("three operands belong here".into()) };
        let mut operands = vec![self.def(d, ty)?, self.value(a, ty)?];
        operands.push(self.value(b, Ty::U(4))?);
        self.emit(integers(op, ty), operands);
        Ok(())
    }

    fn wide(&mut self, add: bool, s: &mut Suffixes<'a>, args: &[Arg<'a>]) -> Result<(), String> {
        let ty = Self::ty(s)?;
        s.end()?;
        let signed = matches!(ty, Ty::S(_));
        let (op, result) = match (ty.bytes(), add) {
            (4, _) => (Op::MulWide { signed, add }, Ty::B(8)),
            (2, false) => (Op::MulWide16 { signed }, Ty::B(4)),
            _ => return Err("not known with this type".into()),
        };
        if args.len() != 3 + usize::from(add) {
            return Err("operands are missing".into());
        }
        let mut operands = vec![self.def(&args[0], result)?, self.value(&args[1], ty)?, self.value(&args[2], ty)?];
        if add {
            operands.push(self.value(&args[3], result)?);
        }
        self.emit(op, operands);
        Ok(())
    }

    pub(super) fn one(&mut self, base: &str, s: &mut Suffixes<'a>, args: &[Arg<'a>]) -> Result<(), String> {
        let approx = s.take("approx");
        let mode = Self::mode(s);
        let ty = Self::ty(s)?;
        s.end()?;
        let float = match base {
            "neg" => Some(Float1::Neg),
            "abs" => Some(Float1::Abs),
            "rcp" if approx => Some(Float1::RcpApprox),
            "rcp" => Some(Float1::Rcp),
            "sqrt" if approx => Some(Float1::SqrtApprox),
            "sqrt" => Some(Float1::Sqrt),
            "rsqrt" => Some(Float1::RsqrtApprox),
            "ex2" => Some(Float1::Ex2),
            "lg2" => Some(Float1::Lg2),
            "sin" => Some(Float1::Sin),
            "cos" => Some(Float1::Cos),
            "tanh" => Some(Float1::Tanh),
            _ => None,
        };
        let integer = match base {
            "not" => Some(Int1::Not),
            "neg" => Some(Int1::Neg),
            "abs" => Some(Int1::AbsS),
            "popc" => Some(Int1::Popc),
            "clz" => Some(Int1::Clz),
            "brev" => Some(Int1::Brev),
            _ => None,
        };
        match (ty, float, integer, half(ty)) {
            (Ty::Pred, _, Some(Int1::Not), _) => self.logic(base, args),
            (Ty::F32, Some(op), ..) if mode.round == Round::Near => self.same(Op::F32x1(op, mode), ty, args, 1),
            (Ty::F64, Some(op), ..) if mode.round == Round::Near => self.same(Op::F64x1(op), ty, args, 1),
            (_, Some(op @ (Float1::Neg | Float1::Abs | Float1::Ex2 | Float1::Tanh)), _, Some((half, count))) => {
                self.same(Op::Half1(op, half, count), ty, args, 1)
            }
            (Ty::B(_) | Ty::U(_) | Ty::S(_), _, Some(op), _) => match (op, ty.bytes()) {
                // Counts have 32 bits.
                (Int1::Popc | Int1::Clz, 8) => {
                    let [d, a] = args else { return Err("two operands belong here".into()) };
                    let operands = vec![self.def(d, Ty::U(4))?, self.value(a, ty)?];
                    self.emit(Op::Un64(op), operands);
                    Ok(())
                }
                (_, 8) => self.same(Op::Un64(op), ty, args, 1),
                (_, 4) => self.same(Op::Un32(op), ty, args, 1),
                _ => self.same(Op::Un16(op), ty, args, 1),
            },
            _ => Err("not known with these suffixes".into()),
        }
    }

    pub(super) fn multiply_add(&mut self, base: &str, s: &mut Suffixes<'a>, args: &[Arg<'a>]) -> Result<(), String> {
        if base == "mad" && s.take("wide") {
            return self.wide(true, s, args);
        }
        let mode = Self::mode(s);
        let (high, _low) = (s.take("hi"), s.take("lo"));
        let ty = Self::ty(s)?;
        s.end()?;
        let op = match (ty, half(ty)) {
            (Ty::F32, _) => Op::Fma32(mode),
            (Ty::F64, _) if mode.round == Round::Near => Op::Fma64(mode),
            (_, Some((half, count))) if base == "fma" && mode == Mode::PLAIN => Op::HalfFma(half, count),
            (Ty::U(4) | Ty::B(4), _) if high => Op::Tri32(Int3::MadHiU),
            (Ty::S(4), _) if high => Op::Tri32(Int3::MadHiS),
            (Ty::U(4) | Ty::S(4), _) => Op::Tri32(Int3::Mad),
            (Ty::U(8) | Ty::S(8), _) if !high => Op::Mad64,
            _ => return Err("not known with these suffixes".into()),
        };
        self.same(op, ty, args, 3)
    }

    pub(super) fn bits(&mut self, base: &str, s: &mut Suffixes<'a>, args: &[Arg<'a>]) -> Result<(), String> {
        let (left, right, clamp) = (s.take("l"), s.take("r"), s.take("clamp"));
        s.take("wrap");
        let ty = Self::ty(s)?;
        s.end()?;
        if ty.bytes() != 4 {
            return Err("not known with this type".into());
        }
        match base {
            "prmt" => self.same(Op::Tri32(Int3::Prmt), ty, args, 3),
            "bfe" if matches!(ty, Ty::S(_)) => self.same(Op::Tri32(Int3::BfeS), ty, args, 3),
            "bfe" => self.same(Op::Tri32(Int3::BfeU), ty, args, 3),
            "bfi" => self.same(Op::Bfi, ty, args, 4),
            "shf" if left => self.same(Op::Tri32(Int3::ShfL { clamp }), ty, args, 3),
            "shf" if right => self.same(Op::Tri32(Int3::ShfR { clamp }), ty, args, 3),
            "lop3" => match args {
                [rest @ .., Arg::Word { text, not: false, minus: false }] if rest.len() == 4 => {
                    let table =
                        super::lexer::integer(text).filter(|it| *it < 256).ok_or("a table of 8 bits belongs here")?;
                    self.same(Op::Tri32(Int3::Lop3(table as u8)), ty, rest, 3)
                }
                _ => Err("five operands belong here".into()),
            },
            _ => Err(format!("`{base}` is not known")),
        }
    }
}

fn integers(op: Int, ty: Ty) -> Op {
    match ty.bytes() {
        8 => Op::Int64(op),
        4 => Op::Int32(op),
        _ => Op::Int16(op),
    }
}
