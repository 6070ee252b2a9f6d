//! The body of a kernel: declarations, labels, instructions.

use std::collections::HashMap;

use super::{
    args::{Arg, arguments},
    lexer::{Token, float, integer, wrong},
};
use crate::ptx::{
    PtxError,
    code::{CONSTANT, Constant, Kind, NONE, Op, Place, Ty},
};

/// A register before it has a place.
#[derive(Clone, Copy, Debug)]
pub(super) struct Register {
    pub(super) ty: Ty,
    pub(super) number: u32,
}

/// What a name that is no register stands for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Symbol {
    Shared(u32),
    Local(u32),
    Global(u32),
    /// Offset in the parameters.
    Param(u32),
}

/// An instruction before its registers have places.
#[derive(Clone, Debug)]
pub(crate) struct Raw {
    pub(crate) op: Op,
    pub(crate) guard: u32,
    pub(crate) negated: bool,
    pub(crate) operands: Vec<(Kind, u32)>,
    pub(crate) place: Place,
}

/// A body as it is read.
#[derive(Default)]
pub(crate) struct Body<'a> {
    pub(crate) raws: Vec<Raw>,
    pub(crate) constants32: Vec<u32>,
    pub(crate) constants64: Vec<Constant>,
    /// How many registers there are of 32 bits, of 64 bits, and predicates.
    pub(crate) counts: [u32; 3],
    pub(crate) shared: u32,
    pub(crate) shared_align: u32,
    pub(crate) local: u32,
    pub(super) symbols: HashMap<&'a str, Symbol>,
    /// Shared arrays whose size the launch gives.
    pub(super) dynamic: Vec<(&'a str, u32)>,
    scopes: Vec<HashMap<String, Register>>,
    ranges: Vec<(String, u32, Ty, u32)>,
    labels: HashMap<&'a str, u32>,
    gotos: Vec<(usize, &'a str)>,
    place: Place,
    guard: u32,
    negated: bool,
    known32: HashMap<u32, u32>,
    known64: HashMap<Constant, u32>,
}

impl<'a> Body<'a> {
    /// Reads what stands between the braces.
    pub(super) fn read(&mut self, tokens: &[Token<'a>]) -> Result<(), PtxError> {
        self.scopes.push(HashMap::new());
        let mut at = 0;
        while at < tokens.len() {
            let token = tokens[at];
            self.place.line = token.line;
            match token.text {
                "{" => {
                    self.scopes.push(HashMap::new());
                    at += 1;
                }
                "}" => {
                    self.scopes.pop();
                    at += 1;
                }
                ";" => at += 1,
                ".loc" => at = self.location(tokens, at),
                _ if tokens.get(at + 1).is_some_and(|it| it.text == ":") => {
                    self.labels.insert(token.text, self.raws.len() as u32);
                    at += 2;
                }
                _ => {
                    let end = tokens[at..].iter().position(|it| it.text == ";");
                    let end = end.map_or(tokens.len(), |it| at + it);
                    let statement = &tokens[at..end];
                    self.statement(statement).map_err(|what| {
                        let text: Vec<_> = statement.iter().map(|it| it.text).collect();
                        wrong(token.line, what, text.join(" "))
                    })?;
                    at = end + 1;
                }
            }
        }
        self.place_dynamic();
        self.emit_plain(Op::Exit);
        for (at, label) in std::mem::take(&mut self.gotos) {
            let target = *self.labels.get(label).ok_or_else(|| {
                wrong(self.raws[at].place.line, "a branch to a label that is not there", label.to_owned())
            })?;
            self.raws[at].op = Op::Branch(target);
        }
        Ok(())
    }

    /// `.loc file line column[, function_name name, inlined_at file line column]`: ends without a sign.
    fn location(&mut self, tokens: &[Token<'a>], at: usize) -> usize {
        let number = |at: usize| tokens.get(at).and_then(|it| integer(it.text)).unwrap_or(0) as u32;
        let word = |at: usize| tokens.get(at).map_or("", |it| it.text);
        // Line 0 means: none of its own.
        if number(at + 2) != 0 {
            self.place.source = (number(at + 1), number(at + 2));
        }
        let mut end = at + 4;
        while word(end) == "," {
            end += match word(end + 1) {
                "function_name" if word(end + 3) == "+" => 5,
                "function_name" => 3,
                _ => 5,
            };
        }
        end
    }

    fn statement(&mut self, tokens: &[Token<'a>]) -> Result<(), String> {
        let words: Vec<_> = tokens.iter().map(|it| it.text).collect();
        match words[0] {
            ".reg" => return self.registers(&words[1..]),
            ".shared" | ".local" => return self.variable(words[0], &words[1..]),
            ".pragma" => return Ok(()),
            _ => {}
        }
        let mut at = 0;
        (self.guard, self.negated) = (NONE, false);
        if words[0] == "@" {
            self.negated = words.get(1) == Some(&"!");
            at = if self.negated { 3 } else { 2 };
            let name = words.get(at - 1).copied().unwrap_or_default();
            self.guard = self.register(name, |it| it == Ty::Pred)?.number;
        }
        let opcode = words.get(at).copied().ok_or("an instruction is missing")?;
        let args = arguments(&tokens[at + 1..])?;
        self.instruction(opcode, &args)
    }

    /// `.reg .b32 %r<8>` or `.reg .b16 l, h`.
    fn registers(&mut self, words: &[&'a str]) -> Result<(), String> {
        let ty = ty(words.first().and_then(|it| it.strip_prefix('.')).unwrap_or_default())
            .ok_or("registers of a type that is not known")?;
        let class = class(ty);
        let mut at = 1;
        while at < words.len() {
            let name = words[at];
            if words.get(at + 1) == Some(&"<") {
                let count = words.get(at + 2).and_then(|it| integer(it)).filter(|it| *it < 1 << 20);
                let count = count.ok_or("how many registers?")? as u32;
                self.ranges.push((name.to_owned(), count, ty, self.counts[class]));
                self.counts[class] += count;
                if self.counts[class] > 1 << 20 {
                    return Err("more registers than a million".into());
                }
                at += 4;
            } else {
                let register = Register { ty, number: self.counts[class] };
                self.counts[class] += 1;
                let scope = self.scopes.last_mut().ok_or("a register outside a body")?;
                scope.insert(name.to_owned(), register);
                at += 1;
            }
            if words.get(at).is_some_and(|it| *it != ",") {
                return Err("a comma is missing".into());
            }
            at += 1;
        }
        Ok(())
    }

    /// `.shared .align 4 .b8 name[512]`.
    fn variable(&mut self, space: &str, words: &[&'a str]) -> Result<(), String> {
        let declared = declaration(words)?;
        let (bytes, align) = (declared.size.ok_or("an array without a size")? as u32, declared.align as u32);
        let used = if space == ".shared" { &mut self.shared } else { &mut self.local };
        let at = used.next_multiple_of(align);
        // No device has as much.
        *used = at.checked_add(bytes).filter(|it| *it <= 1 << 24).ok_or("more memory than 16 MiB")?;
        let symbol = if space == ".shared" {
            self.shared_align = self.shared_align.max(align);
            Symbol::Shared(at)
        } else {
            Symbol::Local(at)
        };
        self.symbols.insert(declared.name, symbol);
        Ok(())
    }

    /// Dynamic shared memory begins behind the declared. Constants that name it were made with an offset of zero.
    fn place_dynamic(&mut self) {
        let align = self.dynamic.iter().map(|it| it.1).max().unwrap_or(1).max(16);
        self.shared_align = align.max(self.shared_align);
        for constant in &mut self.constants64 {
            if let Constant::Global(u32::MAX, offset) = *constant {
                *constant = Constant::Value(u64::from(self.shared.next_multiple_of(align)).wrapping_add(offset as u64));
            }
        }
    }

    /// Adds an instruction.
    pub(super) fn emit(&mut self, op: Op, operands: Vec<(Kind, u32)>) {
        let (guard, negated, place) = (self.guard, self.negated, self.place);
        self.raws.push(Raw { op, guard, negated, operands, place });
    }

    fn emit_plain(&mut self, op: Op) {
        (self.guard, self.negated) = (NONE, false);
        self.emit(op, Vec::new());
    }

    /// Adds a branch.
    pub(super) fn branch(&mut self, label: &'a str) {
        self.gotos.push((self.raws.len(), label));
        self.emit(Op::Branch(0), Vec::new());
    }

    /// The register of this name.
    pub(super) fn find(&self, name: &str) -> Option<Register> {
        if let Some(register) = self.scopes.iter().rev().find_map(|scope| scope.get(name)) {
            return Some(*register);
        }
        let digits = name.len() - name.bytes().rev().take_while(u8::is_ascii_digit).count();
        let index: u32 = name[digits..].parse().ok()?;
        let (_, _, ty, first) = self.ranges.iter().rev().find(|it| it.0 == name[..digits] && index < it.1)?;
        Some(Register { ty: *ty, number: first + index })
    }

    fn register(&self, name: &str, fits: impl Fn(Ty) -> bool) -> Result<Register, String> {
        let register = self.find(name).ok_or_else(|| format!("`{name}` is no register"))?;
        if fits(register.ty) { Ok(register) } else { Err(format!("`{name}` has the wrong size")) }
    }

    /// A register that is written, of the class of this type.
    pub(super) fn def(&mut self, arg: &Arg<'a>, ty: Ty) -> Result<(Kind, u32), String> {
        let kind = [Kind::Def32, Kind::Def64, Kind::DefP][class(ty)];
        match arg {
            Arg::Word { text: "_", .. } => {
                let number = self.counts[class(ty)];
                self.counts[class(ty)] += 1;
                Ok((kind, number))
            }
            Arg::Word { text, not: false, minus: false } => {
                Ok((kind, self.register(text, |it| class(it) == class(ty))?.number))
            }
            _ => Err("a register belongs here".into()),
        }
    }

    /// A register, a number or the address of a symbol that is read, of this type.
    pub(super) fn value(&mut self, arg: &Arg<'a>, ty: Ty) -> Result<(Kind, u32), String> {
        let kind = [Kind::Use32, Kind::Use64, Kind::UseP][class(ty)];
        match *arg {
            Arg::Word { text, not: false, minus } => {
                if !minus && let Some(register) = self.find(text) {
                    let fits = class(register.ty) == class(ty);
                    return if fits {
                        Ok((kind, register.number))
                    } else {
                        Err(format!("`{text}` has the wrong size"))
                    };
                }
                if let Some(bits) = number(text, minus, ty) {
                    return Ok((kind, self.constant(bits, ty)));
                }
                self.symbol(text, 0, ty)
            }
            Arg::Symbol { text, offset } => self.symbol(text, offset, ty),
            _ => Err("a register or a number belongs here".into()),
        }
    }

    /// A predicate that is read, and whether `!` is before it.
    pub(super) fn predicate(&self, arg: &Arg<'a>) -> Result<((Kind, u32), bool), String> {
        match *arg {
            Arg::Word { text, not, minus: false } => {
                Ok(((Kind::UseP, self.register(text, |it| it == Ty::Pred)?.number), not))
            }
            _ => Err("a predicate belongs here".into()),
        }
    }

    /// The address of a symbol; 32 bits of it where it is in shared or local memory.
    pub(super) fn symbol(&mut self, name: &'a str, offset: i64, ty: Ty) -> Result<(Kind, u32), String> {
        if let Some((name, _)) = self.dynamic.iter().find(|it| it.0 == name) {
            return if class(ty) == 1 {
                let place = self.constant64(Constant::Global(u32::MAX, offset));
                Ok((Kind::Use64, place))
            } else {
                Err(format!("the address of `{name}` in 32 bits"))
            };
        }
        let at = match self.symbols.get(name) {
            Some(Symbol::Shared(at) | Symbol::Local(at)) => u64::from(*at).wrapping_add(offset as u64),
            Some(Symbol::Global(index)) if class(ty) == 1 => {
                let index = *index;
                return Ok((Kind::Use64, self.constant64(Constant::Global(index, offset))));
            }
            _ => return Err(format!("`{name}` is not known")),
        };
        Ok(([Kind::Use32, Kind::Use64, Kind::UseP][class(ty)], self.constant(at, ty)))
    }

    /// A constant of the class of this type.
    pub(super) fn constant(&mut self, bits: u64, ty: Ty) -> u32 {
        if class(ty) == 1 {
            return self.constant64(Constant::Value(bits));
        }
        let next = self.constants32.len() as u32;
        let place = *self.known32.entry(bits as u32).or_insert(next);
        if place == next {
            self.constants32.push(bits as u32);
        }
        place | CONSTANT
    }

    fn constant64(&mut self, constant: Constant) -> u32 {
        let next = self.constants64.len() as u32;
        let place = *self.known64.entry(constant).or_insert(next);
        if place == next {
            self.constants64.push(constant);
        }
        place | CONSTANT
    }
}

/// 0: 32 bits and fewer, 1: 64 bits, 2: predicates.
pub(super) fn class(ty: Ty) -> usize {
    match ty {
        Ty::Pred => 2,
        _ if ty.bytes() == 8 => 1,
        _ => 0,
    }
}

/// The bits of a number as an operand of this type has them.
fn number(text: &str, minus: bool, ty: Ty) -> Option<u64> {
    let sign = |value: f64| if minus { -value } else { value };
    if let Some(value) = float(text) {
        return match ty {
            Ty::F64 => Some(sign(value).to_bits()),
            // `0f` of a NaN keeps its bits.
            _ if text.starts_with("0f") && !minus => u64::from_str_radix(&text[2..], 16).ok(),
            _ if text.starts_with("0d") && ty.bytes() == 8 => Some(sign(value).to_bits()),
            Ty::F32 | Ty::B(4) => Some(u64::from((sign(value) as f32).to_bits())),
            _ => None,
        };
    }
    let value = if minus { integer(text)?.wrapping_neg() } else { integer(text)? };
    match ty {
        Ty::F32 | Ty::F64 | Ty::Pred => None,
        _ if ty.bytes() >= 8 => Some(value),
        _ => Some(value & ((1 << (8 * ty.bytes())) - 1)),
    }
}

/// A type by its word.
pub(super) fn ty(word: &str) -> Option<Ty> {
    Some(match word {
        "pred" => Ty::Pred,
        "b8" => Ty::B(1),
        "b16" => Ty::B(2),
        "b32" => Ty::B(4),
        "b64" => Ty::B(8),
        "u8" => Ty::U(1),
        "u16" => Ty::U(2),
        "u32" => Ty::U(4),
        "u64" => Ty::U(8),
        "s8" => Ty::S(1),
        "s16" => Ty::S(2),
        "s32" => Ty::S(4),
        "s64" => Ty::S(8),
        "f16" => Ty::F16,
        "bf16" => Ty::Bf16,
        "f32" => Ty::F32,
        "f64" => Ty::F64,
        "f16x2" => Ty::F16x2,
        "bf16x2" => Ty::Bf16x2,
        "e4m3x2" => Ty::E4m3x2,
        "e5m2x2" => Ty::E5m2x2,
        "e2m1x2" => Ty::E2m1x2,
        _ => return None,
    })
}

/// A variable: `.align 4 .b8 name[512]`, and the words behind it.
pub(super) struct Declaration<'a> {
    pub(super) name: &'a str,
    pub(super) ty: Ty,
    pub(super) align: usize,
    /// Bytes; none where the array has no length.
    pub(super) size: Option<usize>,
    /// Words that it took.
    pub(super) words: usize,
}

/// Reads a declaration of a variable or a parameter.
pub(super) fn declaration<'a>(words: &[&'a str]) -> Result<Declaration<'a>, String> {
    let (mut at, mut align, mut kind) = (0, 0, None);
    while let Some(word) = words.get(at).and_then(|it| it.strip_prefix('.')) {
        if word == "align" {
            let value = words.get(at + 1).and_then(|it| integer(it)).filter(|it| it.is_power_of_two());
            let value = value.filter(|it| *it <= 1 << 16).ok_or("an alignment that is no power of two")? as usize;
            // That of a pointer is what it points to.
            if kind.is_none() {
                align = value;
            }
            at += 1;
        } else if let Some(found) = ty(word) {
            kind = Some(found);
        }
        at += 1;
    }
    let ty = kind.filter(|it| it.bytes() != 0).ok_or("a variable without a type")?;
    let name = *words.get(at).ok_or("a variable without a name")?;
    at += 1;
    let mut size = Some(ty.bytes());
    while words.get(at) == Some(&"[") {
        if words.get(at + 1) == Some(&"]") {
            size = None;
            at += 2;
        } else {
            let count = words.get(at + 1).and_then(|it| integer(it)).filter(|it| *it < 1 << 31);
            let count = count.ok_or("an array without a length")? as usize;
            size = size.and_then(|it| it.checked_mul(count));
            at += 3;
        }
    }
    if size.is_some_and(|it| it > 1 << 28) {
        return Err("an array that is too long".into());
    }
    Ok(Declaration { name, ty, align: align.max(ty.bytes()), size, words: at })
}
