//! Loads, stores, atomics and copies.

use super::{
    args::{Arg, Suffixes},
    body::{Body, Symbol, class},
    lexer::integer,
};
use crate::ptx::code::{Access, Atom, Kind, Op, Space, Ty};

/// Takes the words that tell caches what to do, and who may see it when: nothing here depends on them.
fn take_hints(s: &mut Suffixes<'_>) {
    const HINTS: &[&str] = &[
        "ca",
        "cg",
        "cs",
        "lu",
        "cv",
        "wb",
        "wt",
        "nc",
        "volatile",
        "weak",
        "relaxed",
        "acquire",
        "release",
        "acq_rel",
        "cta",
        "cluster",
        "gpu",
        "sys",
        "L1::no_allocate",
        "L1::evict_first",
        "L1::evict_last",
        "L1::evict_normal",
        "L1::evict_unchanged",
        "L2::64B",
        "L2::128B",
        "L2::256B",
        "L2::evict_first",
        "L2::evict_last",
        "L2::evict_normal",
        "noftz",
    ];
    for hint in HINTS {
        s.take(hint);
    }
}

fn space(s: &mut Suffixes<'_>) -> Space {
    s.find(|word| match word {
        "global" | "const" => Some(Space::Global),
        "shared" | "shared::cta" => Some(Space::Shared),
        "local" => Some(Space::Local),
        _ => None,
    })
    .unwrap_or(Space::Generic)
}

impl<'a> Body<'a> {
    /// The base of an address, whether it has 64 bits, and the offset.
    fn address(&mut self, arg: &Arg<'a>) -> Result<((Kind, u32), bool, i64), String> {
        let Arg::Address { base, offset } = *arg else { return Err("an address belongs here".into()) };
        if base.is_empty() {
            return Ok(((Kind::Use64, self.constant(0, Ty::B(8))), true, offset));
        }
        match self.find(base) {
            Some(register) if class(register.ty) == 1 => Ok(((Kind::Use64, register.number), true, offset)),
            Some(register) if register.ty.bytes() == 4 => Ok(((Kind::Use32, register.number), false, offset)),
            Some(_) => Err(format!("`{base}` holds no address")),
            None => Ok((self.symbol(base, offset, Ty::B(8))?, true, 0)),
        }
    }

    /// Parts of a vector, or the one operand.
    fn parts<'s>(arg: &'s Arg<'a>, count: usize) -> Result<&'s [Arg<'a>], String> {
        let parts = match arg {
            Arg::Vector(parts) => parts.as_slice(),
            _ => std::slice::from_ref(arg),
        };
        if parts.len() == count { Ok(parts) } else { Err(format!("{} values, not {count}", parts.len())) }
    }

    fn count(s: &mut Suffixes<'a>) -> usize {
        s.find(|word| match word {
            "v2" => Some(2),
            "v4" => Some(4),
            "v8" => Some(8),
            _ => None,
        })
        .unwrap_or(1)
    }

    /// Loads and stores take registers that are wider than the memory: the type of the register decides.
    fn held(&self, arg: &Arg<'a>, ty: Ty) -> Result<Ty, String> {
        match arg {
            Arg::Word { text, .. } => match self.find(text) {
                Some(register) if register.ty != Ty::Pred && register.ty.bytes() >= ty.bytes() => Ok(register.ty),
                Some(_) => Err(format!("`{text}` is too small")),
                None => Ok(ty),
            },
            _ => Ok(ty),
        }
    }

    pub(super) fn load(&mut self, s: &mut Suffixes<'a>, args: &[Arg<'a>]) -> Result<(), String> {
        take_hints(s);
        let param = s.take("param") || s.take("param::entry");
        let (space, count, ty) = (space(s), Self::count(s), Self::ty(s)?);
        s.end()?;
        let [to, from] = args else { return Err("two operands belong here".into()) };
        if ty == Ty::Pred {
            return Err("predicates are in no memory".into());
        }
        let parts = Self::parts(to, count)?;
        let held = self.held(&parts[0], ty)?;
        let (wide, signed) = (class(held) == 1, matches!(ty, Ty::S(_)).then_some(held.bytes() as u8));
        if param {
            let Arg::Address { base, offset } = *from else { return Err("an address belongs here".into()) };
            let Some(Symbol::Param(at)) = self.symbols.get(base).copied() else {
                return Err(format!("`{base}` is no parameter"));
            };
            for (index, part) in (0..).zip(parts) {
                let d = self.def(part, held)?;
                let offset = i64::from(at).wrapping_add(offset) as u32;
                let offset = offset.wrapping_add(index * ty.bytes() as u32);
                self.emit(Op::LoadParam { offset, bytes: ty.bytes() as u8, wide, signed: signed.is_some() }, vec![d]);
            }
            return Ok(());
        }
        let mut operands = Vec::new();
        for part in parts {
            operands.push(self.def(part, held)?);
        }
        let (base, far, offset) = self.address(from)?;
        operands.push(base);
        let (bytes, count) = (ty.bytes() as u8, count as u8);
        self.emit(Op::Load(Access { space, bytes, signed, wide, count, far, offset }), operands);
        Ok(())
    }

    pub(super) fn store(&mut self, s: &mut Suffixes<'a>, args: &[Arg<'a>]) -> Result<(), String> {
        take_hints(s);
        let space = if s.take("shared::cluster") { Space::Cluster } else { space(s) };
        let (count, ty) = (Self::count(s), Self::ty(s)?);
        s.end()?;
        let [to, from] = args else { return Err("two operands belong here".into()) };
        if ty == Ty::Pred {
            return Err("predicates are in no memory".into());
        }
        let parts = Self::parts(from, count)?;
        let held = self.held(&parts[0], ty)?;
        let mut operands = Vec::new();
        for part in parts {
            operands.push(self.value(part, held)?);
        }
        let (base, far, offset) = self.address(to)?;
        operands.push(base);
        let (bytes, count, wide) = (ty.bytes() as u8, count as u8, class(held) == 1);
        self.emit(Op::Store(Access { space, bytes, signed: None, wide, count, far, offset }), operands);
        Ok(())
    }

    pub(super) fn atomic(&mut self, base: &str, s: &mut Suffixes<'a>, args: &[Arg<'a>]) -> Result<(), String> {
        take_hints(s);
        let space = space(s);
        let name = s
            .find(|word| match word {
                "add" | "min" | "max" | "and" | "or" | "xor" | "exch" | "inc" | "dec" | "cas" => Some(word.to_owned()),
                _ => None,
            })
            .ok_or("what it does is missing")?;
        let ty = Self::ty(s)?;
        s.end()?;
        let signed = matches!(ty, Ty::S(_));
        let op = match (name.as_str(), ty) {
            ("add", Ty::F32) => Atom::AddF32,
            ("add", Ty::F64) => Atom::AddF64,
            ("exch", Ty::F32) => Atom::Exch,
            (_, Ty::F32 | Ty::F64) => return Err("not known with this type".into()),
            ("add", _) => Atom::Add,
            ("min", _) if signed => Atom::MinS,
            ("min", _) => Atom::MinU,
            ("max", _) if signed => Atom::MaxS,
            ("max", _) => Atom::MaxU,
            ("and", _) => Atom::And,
            ("or", _) => Atom::Or,
            ("xor", _) => Atom::Xor,
            ("inc", _) => Atom::Inc,
            ("dec", _) => Atom::Dec,
            ("cas", _) => Atom::Cas,
            _ => Atom::Exch,
        };
        if !matches!(ty.bytes(), 4 | 8) || !matches!(space, Space::Global | Space::Shared | Space::Generic) {
            return Err("not known with this type and space".into());
        }
        let (to, args) = match (base, args) {
            ("atom", [to, rest @ ..]) => (Some(to), rest),
            _ => (None, args),
        };
        let [address, values @ ..] = args else { return Err("operands are missing".into()) };
        if values.len() != 1 + usize::from(op == Atom::Cas) {
            return Err("operands are missing".into());
        }
        let mut operands = Vec::new();
        // `_`: nobody wants the old value.
        if let Some(to) = to {
            operands.push(self.def(to, ty)?);
        }
        for value in values {
            operands.push(self.value(value, ty)?);
        }
        let (base, far, offset) = self.address(address)?;
        operands.push(base);
        let access =
            Access { space, bytes: ty.bytes() as u8, signed: None, wide: class(ty) == 1, count: 1, far, offset };
        self.emit(Op::Atom { op, access, returns: to.is_some() }, operands);
        Ok(())
    }

    /// `cp.async`: a copy, the end of a group, or a wait.
    pub(super) fn copy(&mut self, s: &mut Suffixes<'a>, args: &[Arg<'a>]) -> Result<(), String> {
        if !s.take("async") {
            return Err("only cp.async is known".into());
        }
        let number = |arg: Option<&Arg<'a>>| match arg {
            Some(Arg::Word { text, not: false, minus: false }) => integer(text).filter(|it| *it <= 1 << 20),
            _ => None,
        };
        if s.take("commit_group") {
            s.end()?;
            self.emit(Op::Commit, Vec::new());
        } else if s.take("wait_group") {
            s.end()?;
            let groups = number(args.first()).ok_or("how many groups?")? as u32;
            self.emit(Op::Wait(groups), Vec::new());
        } else if s.take("wait_all") {
            s.end()?;
            self.emit(Op::Commit, Vec::new());
            self.emit(Op::Wait(0), Vec::new());
        } else {
            take_hints(s);
            let policy = s.take("L2::cache_hint");
            if !(s.take("shared") | s.take("shared::cta")) || !s.take("global") {
                return Err("from global to shared memory only".into());
            }
            s.end()?;
            let [to, from, bytes, rest @ ..] = args else { return Err("operands are missing".into()) };
            let rest = match rest {
                [rest @ .., last] if policy => {
                    self.value(last, Ty::B(8))?;
                    rest
                }
                _ if policy => return Err("a policy belongs here".into()),
                _ => rest,
            };
            let bytes = number(Some(bytes)).filter(|it| matches!(it, 4 | 8 | 16)).ok_or("4, 8 or 16 bytes")? as u8;
            let (to, far, to_offset) = self.address(to)?;
            let (from, true, from_offset) = self.address(from)? else {
                return Err("global addresses have 64 bits".into());
            };
            let mut operands = vec![to, from];
            if let Some(arg) = rest.first() {
                operands.push(self.value(arg, Ty::U(4))?);
            }
            let partial = !rest.is_empty();
            self.emit(Op::Copy { bytes, to: to_offset, from: from_offset, far, partial }, operands);
        }
        Ok(())
    }

    /// `createpolicy`: how long caches keep what is read by it, which means nothing here.
    pub(super) fn policy(&mut self, s: &mut Suffixes<'a>, args: &[Arg<'a>]) -> Result<(), String> {
        take_hints(s);
        let known = s.take("fractional") & s.take("b64");
        s.end()?;
        let ([d] | [d, _]) = args else { return Err("a register, and perhaps a fraction".into()) };
        if !known {
            return Err("only fractional policies are known".into());
        }
        let operands = vec![self.def(d, Ty::B(8))?, (Kind::Use64, self.constant(0, Ty::B(8)))];
        self.emit(Op::Mov64, operands);
        Ok(())
    }

    pub(super) fn load_matrix(&mut self, s: &mut Suffixes<'a>, args: &[Arg<'a>]) -> Result<(), String> {
        let shape = s.take("sync") & s.take("aligned") & s.take("m8n8") & s.take("b16");
        if !shape || !(s.take("shared") | s.take("shared::cta")) {
            return Err("only 8x8 matrices of 16 bits in shared memory are known".into());
        }
        let trans = s.take("trans");
        let count = s.find(|word| match word {
            "x1" => Some(1),
            "x2" => Some(2),
            "x4" => Some(4),
            _ => None,
        });
        let count = count.ok_or("how many matrices?")?;
        s.end()?;
        let [to, from] = args else { return Err("two operands belong here".into()) };
        let mut operands = Vec::new();
        for part in Self::parts(to, count)? {
            operands.push(self.def(part, Ty::B(4))?);
        }
        let (base, far, offset) = self.address(from)?;
        operands.push(base);
        let access =
            Access { space: Space::Shared, bytes: 16, signed: None, wide: false, count: count as u8, far, offset };
        self.emit(Op::Ldmatrix { access, trans }, operands);
        Ok(())
    }
}
