//! What the lanes of a warp, or the warps of a block, do together.

use super::{
    args::{Arg, Suffixes},
    body::Body,
    lexer::integer,
};
use crate::ptx::code::{Element, Int, Kind, Mma, Op, Scale, Shfl, Ty, Vote};

fn element(word: &str) -> Option<Element> {
    Some(match word {
        "f16" => Element::F16,
        "bf16" => Element::Bf16,
        "tf32" => Element::Tf32,
        "e4m3" => Element::E4m3,
        "e5m2" => Element::E5m2,
        "e2m1" => Element::E2m1,
        "s8" => Element::S8,
        "u8" => Element::U8,
        _ => return None,
    })
}

impl<'a> Body<'a> {
    pub(super) fn barrier(&mut self, s: &mut Suffixes<'a>, args: &[Arg<'a>]) -> Result<(), String> {
        if s.take("warp") {
            if !s.take("sync") {
                return Err("only bar.warp.sync is known".into());
            }
            s.end()?;
            let [mask] = args else { return Err("a mask belongs here".into()) };
            let mask = self.value(mask, Ty::B(4))?;
            self.emit(Op::WarpBarrier, vec![mask]);
            return Ok(());
        }
        if s.take("cluster") {
            return self.cluster_barrier(s, args);
        }
        s.take("cta");
        s.take("aligned");
        if !s.take("sync") {
            return Err("only bar.sync is known".into());
        }
        s.end()?;
        match args {
            [Arg::Word { text, .. }] if integer(text) == Some(0) => {
                self.emit(Op::Barrier, Vec::new());
                Ok(())
            }
            _ => Err("only barrier 0, of all threads, is known".into()),
        }
    }

    /// `barrier.cluster.arrive` and `.wait`, of all threads.
    fn cluster_barrier(&mut self, s: &mut Suffixes<'a>, args: &[Arg<'a>]) -> Result<(), String> {
        let (arrive, wait) = (s.take("arrive"), s.take("wait"));
        let relaxed = s.take("relaxed");
        s.take(if arrive { "release" } else { "acquire" });
        s.take("aligned");
        s.end()?;
        if arrive == wait || !args.is_empty() || wait && relaxed {
            return Err("only arrive and wait are known".into());
        }
        self.emit(if arrive { Op::ClusterArrive { release: !relaxed } } else { Op::ClusterWait }, Vec::new());
        Ok(())
    }

    /// `mapa.shared::cluster.u32`.
    pub(super) fn map_address(&mut self, s: &mut Suffixes<'a>, args: &[Arg<'a>]) -> Result<(), String> {
        if !(s.take("shared::cluster") & s.take("u32")) {
            return Err("only addresses of 32 bits in shared memory are known".into());
        }
        s.end()?;
        let [d, address, block] = args else { return Err("three operands belong here".into()) };
        let ty = Ty::U(4);
        let operands = vec![self.def(d, ty)?, self.value(address, ty)?, self.value(block, ty)?];
        self.emit(Op::Mapa, operands);
        Ok(())
    }

    pub(super) fn shuffle(&mut self, s: &mut Suffixes<'a>, args: &[Arg<'a>]) -> Result<(), String> {
        let how = s.find(|word| {
            Some(match word {
                "up" => Shfl::Up,
                "down" => Shfl::Down,
                "bfly" => Shfl::Bfly,
                "idx" => Shfl::Idx,
                _ => return None,
            })
        });
        let how = how.ok_or("which lanes?")?;
        if !s.take("sync") || !s.take("b32") {
            return Err("only .sync and .b32 are known".into());
        }
        s.end()?;
        let [d, a, b, c, mask] = args else { return Err("five operands belong here".into()) };
        let ty = Ty::B(4);
        let mut operands = Vec::new();
        let both = match *d {
            Arg::Pair(d, p) => {
                operands.push(self.def(&Arg::Word { text: d, not: false, minus: false }, ty)?);
                operands.push(self.def(&Arg::Word { text: p, not: false, minus: false }, Ty::Pred)?);
                true
            }
            _ => {
                operands.push(self.def(d, ty)?);
                false
            }
        };
        for arg in [a, b, c, mask] {
            operands.push(self.value(arg, ty)?);
        }
        self.emit(Op::Shfl { how, both }, operands);
        Ok(())
    }

    pub(super) fn vote(&mut self, s: &mut Suffixes<'a>, args: &[Arg<'a>]) -> Result<(), String> {
        let how = s.find(|word| {
            Some(match word {
                "all" => Vote::All,
                "any" => Vote::Any,
                "uni" => Vote::Uni,
                "ballot" => Vote::Ballot,
                _ => return None,
            })
        });
        let how = how.ok_or("which vote?")?;
        if !s.take("sync") {
            return Err("only .sync is known".into());
        }
        let ty = Self::ty(s)?;
        s.end()?;
        if ty != if how == Vote::Ballot { Ty::B(4) } else { Ty::Pred } {
            return Err("not known with this type".into());
        }
        let [d, a, mask] = args else { return Err("three operands belong here".into()) };
        let (a, not) = self.predicate(a)?;
        let operands = vec![self.def(d, ty)?, a, self.value(mask, Ty::B(4))?];
        self.emit(Op::Vote { how, not }, operands);
        Ok(())
    }

    pub(super) fn active_mask(&mut self, s: &mut Suffixes<'a>, args: &[Arg<'a>]) -> Result<(), String> {
        s.take("b32");
        s.end()?;
        let [d] = args else { return Err("one operand belongs here".into()) };
        let d = self.def(d, Ty::B(4))?;
        self.emit(Op::Activemask, vec![d]);
        Ok(())
    }

    /// `movmatrix.sync.aligned.m8n8.trans.b16`.
    pub(super) fn move_matrix(&mut self, s: &mut Suffixes<'a>, args: &[Arg<'a>]) -> Result<(), String> {
        if !(s.take("sync") & s.take("aligned") & s.take("m8n8") & s.take("trans") & s.take("b16")) {
            return Err("only 8x8 matrices of 16 bits, transposed, are known".into());
        }
        s.end()?;
        let [d, a] = args else { return Err("two operands belong here".into()) };
        let operands = vec![self.def(d, Ty::B(4))?, self.value(a, Ty::B(4))?];
        self.emit(Op::Movmatrix, operands);
        Ok(())
    }

    pub(super) fn reduce(&mut self, s: &mut Suffixes<'a>, args: &[Arg<'a>]) -> Result<(), String> {
        s.take("sync");
        let name = s.find(|word| ["add", "min", "max", "and", "or", "xor"].into_iter().find(|it| *it == word));
        let ty = Self::ty(s)?;
        s.end()?;
        let signed = matches!(ty, Ty::S(_));
        if !matches!(ty, Ty::B(4) | Ty::U(4) | Ty::S(4)) {
            return Err("not known with this type".into());
        }
        let op = match name.ok_or("which reduction?")? {
            "add" => Int::Add,
            "min" if signed => Int::MinS,
            "min" => Int::MinU,
            "max" if signed => Int::MaxS,
            "max" => Int::MaxU,
            "and" => Int::And,
            "or" => Int::Or,
            _ => Int::Xor,
        };
        let [d, a, mask] = args else { return Err("three operands belong here".into()) };
        let operands = vec![self.def(d, ty)?, self.value(a, ty)?, self.value(mask, Ty::B(4))?];
        self.emit(Op::Redux(op), operands);
        Ok(())
    }

    /// `mma.sync.aligned.m16n8k*.row.col`, sums in f32 (or s32 of 8-bit integers), plain or with scales of blocks.
    pub(super) fn multiply_matrices(&mut self, s: &mut Suffixes<'a>, args: &[Arg<'a>]) -> Result<(), String> {
        if !(s.take("sync") & s.take("aligned") & s.take("row") & s.take("col")) {
            return Err("only rows by columns are known".into());
        }
        let k = s.find(|word| word.strip_prefix("m16n8k").and_then(|it| it.parse::<u8>().ok()));
        let k = k.ok_or("only 16 rows by 8 columns are known")?;
        let kind = s.find(|word| {
            ["mxf8f6f4", "mxf4nvf4", "mxf4"].into_iter().find(|it| word.strip_prefix("kind::") == Some(it))
        });
        let scaled = s.take("block_scale");
        let vector = s.find(|word| word.strip_prefix("scale_vec::")?.strip_suffix('X')?.parse::<u8>().ok());
        let saturate = s.take("satfinite");
        let result = if s.take("s32") { "s32" } else { "f32" };
        s.take("f32");
        let (left, right) = (s.find(element), s.find(element));
        let (Some(left), Some(right)) = (left, right) else {
            return Err("the types of the matrices are missing".into());
        };
        s.take(result);
        let scale_type = s.find(|word| match word {
            "ue8m0" => Some(Scale::Ue8m0),
            "ue4m3" => Some(Scale::Ue4m3),
            _ => None,
        });
        s.end()?;
        let scale = match (scaled, kind, scale_type) {
            (false, None, None) => None,
            (true, Some(kind), Some(ty)) => Some((vector.unwrap_or(if kind == "mxf8f6f4" { 1 } else { 2 }), ty)),
            _ => return Err("kind, scales and their type belong together".into()),
        };
        let integers = matches!(left, Element::S8 | Element::U8);
        let elements = match (left, right) {
            (Element::F16, Element::F16) | (Element::Bf16, Element::Bf16) => 16,
            (Element::Tf32, Element::Tf32) if k == 4 => 4,
            (Element::Tf32, Element::Tf32) => 8,
            (Element::S8 | Element::U8, Element::S8 | Element::U8) => 32,
            (Element::E4m3 | Element::E5m2, Element::E4m3 | Element::E5m2) => 32,
            (Element::E2m1, Element::E2m1) if kind.is_some_and(|it| it != "mxf8f6f4") => 64,
            // Others of mxf8f6f4 lie in bytes in a way that no kernel here uses.
            _ => 0,
        };
        let scales = matches!(
            (kind, scale),
            (None, _)
                | (Some("mxf8f6f4"), Some((1, Scale::Ue8m0)))
                | (Some("mxf4"), Some((2, Scale::Ue8m0)))
                | (Some("mxf4nvf4"), Some((2, Scale::Ue8m0) | (4, Scale::Ue4m3)))
        );
        if k != elements || !scales || saturate || integers != (result == "s32") {
            return Err("not known with these types".into());
        }
        self.matrices(Mma { left, right, k, scale }, args)
    }

    fn matrices(&mut self, mma: Mma, args: &[Arg<'a>]) -> Result<(), String> {
        let expected = match (mma.scale, mma.k) {
            (Some(_), _) => &[4, 4, 2, 4, 1, 2, 1, 2][..],
            (None, 4) => &[4, 2, 1, 4],
            (None, _) => &[4, 4, 2, 4],
        };
        if args.len() != expected.len() {
            return Err(format!("{} operands, not {}", args.len(), expected.len()));
        }
        let mut operands = Vec::new();
        for (index, (arg, count)) in args.iter().zip(expected).enumerate() {
            let parts = match arg {
                Arg::Vector(parts) if parts.len() == *count => parts.as_slice(),
                _ => return Err(format!("{count} registers in braces belong here")),
            };
            for part in parts {
                operands.push(match index {
                    0 => self.def(part, Ty::B(4))?,
                    // Which bytes and lanes: 16 bits.
                    5 | 7 => self.value(part, Ty::U(2))?,
                    _ => self.value(part, Ty::B(4))?,
                });
            }
        }
        let mut mma = mma;
        if mma.k == 4 {
            // As eight elements, of which the others are zero.
            let zero = (Kind::Use32, self.constant(0, Ty::B(4)));
            operands.splice(6..7, [zero, zero, operands[6], zero]);
            mma.k = 8;
        }
        self.emit(Op::Mma(mma), operands);
        Ok(())
    }
}
