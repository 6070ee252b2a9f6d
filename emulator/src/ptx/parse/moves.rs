//! Moves, choices, comparisons and conversions.

use super::{
    args::{Arg, Suffixes},
    body::{Body, class, ty},
    instruction::rounding,
};
use crate::ptx::code::{Cmp, Cvt, Logic, Op, Round, Set, Space, Special, Ty};

fn logic(word: &str) -> Option<Logic> {
    match word {
        "and" => Some(Logic::And),
        "or" => Some(Logic::Or),
        "xor" => Some(Logic::Xor),
        _ => None,
    }
}

fn comparison(word: &str) -> Option<Cmp> {
    Some(match word {
        "eq" => Cmp::Eq,
        "ne" => Cmp::Ne,
        "lt" | "lo" => Cmp::Lt,
        "le" | "ls" => Cmp::Le,
        "gt" | "hi" => Cmp::Gt,
        "ge" | "hs" => Cmp::Ge,
        "equ" => Cmp::Equ,
        "neu" => Cmp::Neu,
        "ltu" => Cmp::Ltu,
        "leu" => Cmp::Leu,
        "gtu" => Cmp::Gtu,
        "geu" => Cmp::Geu,
        "num" => Cmp::Num,
        "nan" => Cmp::Nan,
        _ => return None,
    })
}

fn special(name: &str) -> Option<Special> {
    let axis = |name: &str| match name {
        "x" => Some(0),
        "y" => Some(1),
        "z" => Some(2),
        _ => None,
    };
    let (base, rest) = name.strip_prefix('%')?.split_once('.').unwrap_or((&name[1..], ""));
    Some(match base {
        "tid" => Special::Tid(axis(rest)?),
        "ntid" => Special::Ntid(axis(rest)?),
        "ctaid" => Special::Ctaid(axis(rest)?),
        "nctaid" => Special::Nctaid(axis(rest)?),
        "laneid" => Special::Lane,
        "warpid" => Special::Warp,
        "nwarpid" => Special::Warps,
        "lanemask_eq" => Special::LaneMask(0),
        "lanemask_le" => Special::LaneMask(1),
        "lanemask_lt" => Special::LaneMask(2),
        "lanemask_ge" => Special::LaneMask(3),
        "lanemask_gt" => Special::LaneMask(4),
        "clock" => Special::Clock,
        "clock64" | "globaltimer" => Special::Clock64,
        "smid" | "gridid" => Special::Zero,
        _ => return None,
    })
}

impl<'a> Body<'a> {
    pub(super) fn logic(&mut self, base: &str, args: &[Arg<'a>]) -> Result<(), String> {
        match (base, args) {
            ("not", [d, a]) => {
                let operands = vec![self.def(d, Ty::Pred)?, self.predicate(a)?.0];
                self.emit(Op::PredNot, operands);
            }
            (_, [d, a, b]) => {
                let op = logic(base).ok_or("not an instruction for predicates")?;
                let ((a, not_a), (b, not_b)) = (self.predicate(a)?, self.predicate(b)?);
                if not_a || not_b {
                    return Err("`!` is not known here".into());
                }
                let operands = vec![self.def(d, Ty::Pred)?, a, b];
                self.emit(Op::Pred(op), operands);
            }
            _ => return Err("operands are missing".into()),
        }
        Ok(())
    }

    pub(super) fn compare(&mut self, s: &mut Suffixes<'a>, args: &[Arg<'a>]) -> Result<(), String> {
        let cmp = s.find(comparison).ok_or("a comparison is missing")?;
        let combined = s.find(logic);
        let ftz = s.take("ftz");
        let ty = Self::ty(s)?;
        s.end()?;
        if !matches!(ty, Ty::B(_) | Ty::U(_) | Ty::S(_) | Ty::F32 | Ty::F64 | Ty::F16 | Ty::Bf16) {
            return Err("not known with this type".into());
        }
        let (Some(d), Some(a), Some(b)) = (args.first(), args.get(1), args.get(2)) else {
            return Err("operands are missing".into());
        };
        let mut operands = Vec::new();
        let both = match *d {
            Arg::Pair(p, q) => {
                for text in [p, q] {
                    operands.push(self.def(&Arg::Word { text, not: false, minus: false }, Ty::Pred)?);
                }
                true
            }
            _ => {
                operands.push(self.def(d, Ty::Pred)?);
                false
            }
        };
        operands.extend([self.value(a, ty)?, self.value(b, ty)?]);
        let with = match (combined, args.get(3)) {
            (Some(logic), Some(c)) => {
                let (c, not) = self.predicate(c)?;
                operands.push(c);
                Some((logic, not))
            }
            (None, None) => None,
            _ => return Err("operands are missing".into()),
        };
        self.emit(Op::Setp(Set { cmp, ty, ftz, both, with }), operands);
        Ok(())
    }

    pub(super) fn select(&mut self, s: &mut Suffixes<'a>, args: &[Arg<'a>]) -> Result<(), String> {
        let ty = Self::ty(s)?;
        s.end()?;
        let [d, a, b, p] = args else { return Err("four operands belong here".into()) };
        if ty == Ty::Pred {
            return Err("not known with this type".into());
        }
        let (p, not) = self.predicate(p)?;
        let (a, b) = if not { (b, a) } else { (a, b) };
        let operands = vec![self.def(d, ty)?, self.value(a, ty)?, self.value(b, ty)?, p];
        self.emit(if class(ty) == 1 { Op::Sel64 } else { Op::Sel32 }, operands);
        Ok(())
    }

    pub(super) fn mov(&mut self, s: &mut Suffixes<'a>, args: &[Arg<'a>]) -> Result<(), String> {
        let ty = Self::ty(s)?;
        s.end()?;
        let [d, a] = args else { return Err("two operands belong here".into()) };
        match (d, a) {
            (Arg::Vector(parts), _) => {
                let part = part(ty, parts.len())?;
                let mut operands = Vec::new();
                for arg in parts {
                    operands.push(self.def(arg, part)?);
                }
                operands.push(self.value(a, ty)?);
                self.emit(Op::Unpack(ty.bytes() as u8, part.bytes() as u8), operands);
            }
            (_, Arg::Vector(parts)) => {
                let part = part(ty, parts.len())?;
                let mut operands = vec![self.def(d, ty)?];
                for arg in parts {
                    operands.push(self.value(arg, part)?);
                }
                self.emit(Op::Pack(ty.bytes() as u8, part.bytes() as u8), operands);
            }
            (_, Arg::Word { text, .. }) if ty == Ty::Pred => match super::lexer::integer(text) {
                Some(value) => {
                    let operands = vec![self.def(d, ty)?];
                    self.emit(Op::PredSet(value != 0), operands);
                }
                None => {
                    let ((a, not), d) = (self.predicate(a)?, self.def(d, ty)?);
                    self.emit(if not { Op::PredNot } else { Op::PredMov }, vec![d, a]);
                }
            },
            (_, Arg::Word { text, .. }) if self.find(text).is_none() && text.starts_with('%') => {
                let special = special(text).ok_or_else(|| format!("`{text}` is not known"))?;
                let wide = class(ty) == 1;
                if wide != (special == Special::Clock64) {
                    return Err(format!("`{text}` has another size"));
                }
                let operands = vec![self.def(d, ty)?];
                self.emit(Op::Special(special), operands);
            }
            _ => {
                let operands = vec![self.def(d, ty)?, self.value(a, ty)?];
                self.emit(if class(ty) == 1 { Op::Mov64 } else { Op::Mov32 }, operands);
            }
        }
        Ok(())
    }

    pub(super) fn convert(&mut self, s: &mut Suffixes<'a>, args: &[Arg<'a>]) -> Result<(), String> {
        let integral = s.find(|word| {
            Some(match word {
                "rni" => Round::Near,
                "rzi" => Round::Zero,
                "rmi" => Round::Down,
                "rpi" => Round::Up,
                _ => return None,
            })
        });
        let round = integral.or_else(|| rounding(s)).unwrap_or(Round::Near);
        let (ftz, relu) = (s.take("ftz"), s.take("relu"));
        let sat = s.take("sat") | s.take("satfinite");
        let (to, from) = (Self::ty(s)?, s.find(ty).ok_or("the type of the source is missing")?);
        s.end()?;
        let packed = matches!(to, Ty::F16x2 | Ty::Bf16x2 | Ty::E4m3x2 | Ty::E5m2x2 | Ty::E2m1x2);
        let small = matches!(from, Ty::E4m3x2 | Ty::E5m2x2 | Ty::E2m1x2 | Ty::F16x2 | Ty::Bf16x2);
        let known = match (packed, small) {
            (true, true) => to == Ty::F16x2 && !matches!(from, Ty::F16x2 | Ty::Bf16x2),
            (true, false) => from == Ty::F32,
            (false, small) => !small && to != Ty::Pred && from != Ty::Pred,
        };
        if !known || args.len() != 2 + usize::from(packed && from == Ty::F32) {
            return Err("not known with these types".into());
        }
        let mut operands = vec![self.def(&args[0], to)?];
        for arg in &args[1..] {
            operands.push(self.value(arg, from)?);
        }
        self.emit(Op::Cvt(Cvt { to, from, round, integral: integral.is_some(), ftz, sat, relu }), operands);
        Ok(())
    }

    /// `cvta.to.global.u64`: a generic address of global memory is that address itself.
    pub(super) fn convert_address(&mut self, s: &mut Suffixes<'a>, args: &[Arg<'a>]) -> Result<(), String> {
        let to = s.take("to");
        let space = s
            .find(|word| match word {
                "global" | "const" | "param" => Some(Space::Global),
                "shared" | "shared::cta" => Some(Space::Shared),
                "local" => Some(Space::Local),
                _ => None,
            })
            .ok_or("a space is missing")?;
        let ty = Self::ty(s)?;
        s.end()?;
        let [d, a] = args else { return Err("two operands belong here".into()) };
        if ty != Ty::U(8) {
            return Err("addresses have 64 bits".into());
        }
        let operands = vec![self.def(d, ty)?, self.value(a, ty)?];
        self.emit(if to { Op::FromGeneric(space) } else { Op::ToGeneric(space) }, operands);
        Ok(())
    }
}

/// The type of each of so many parts of a value.
fn part(ty: Ty, parts: usize) -> Result<Ty, String> {
    match (ty.bytes(), parts) {
        (8, 2) => Ok(Ty::B(4)),
        (8, 4) | (4, 2) => Ok(Ty::B(2)),
        (4, 4) | (2, 2) => Ok(Ty::B(1)),
        (bytes, _) => Err(format!("{bytes} bytes in {parts} parts")),
    }
}
