//! Which instruction a statement is.

use super::{
    args::{Arg, Suffixes},
    body::Body,
};
use crate::ptx::code::{Mode, Op, Round};

impl<'a> Body<'a> {
    /// Adds the instruction, or says what of it is not known.
    pub(super) fn instruction(&mut self, opcode: &'a str, args: &[Arg<'a>]) -> Result<(), String> {
        let (base, mut suffixes) = Suffixes::of(opcode);
        let s = &mut suffixes;
        match base {
            "add" | "sub" | "mul" | "div" | "rem" | "min" | "max" | "and" | "or" | "xor" | "shl" | "shr"
            | "copysign" => self.two(base, s, args),
            "not" | "neg" | "abs" | "popc" | "clz" | "brev" | "cnot" => self.one(base, s, args),
            "rcp" | "sqrt" | "rsqrt" | "ex2" | "lg2" | "sin" | "cos" | "tanh" => self.one(base, s, args),
            "mad" | "fma" => self.multiply_add(base, s, args),
            "prmt" | "bfe" | "bfi" | "shf" | "lop3" => self.bits(base, s, args),
            "setp" => self.compare(s, args),
            "selp" => self.select(s, args),
            "mov" => self.mov(s, args),
            "cvt" => self.convert(s, args),
            "cvta" => self.convert_address(s, args),
            "ld" | "ldu" => self.load(s, args),
            "st" => self.store(s, args),
            "atom" | "red" => self.atomic(base, s, args),
            "cp" => self.copy(s, args),
            "createpolicy" => self.policy(s, args),
            "ldmatrix" => self.load_matrix(s, args),
            "movmatrix" => self.move_matrix(s, args),
            "mma" => self.multiply_matrices(s, args),
            "shfl" => self.shuffle(s, args),
            "vote" => self.vote(s, args),
            "activemask" => self.active_mask(s, args),
            "redux" => self.reduce(s, args),
            "bar" | "barrier" => self.barrier(s, args),
            "mapa" => self.map_address(s, args),
            "bra" => match args {
                [Arg::Word { text, not: false, minus: false }] => {
                    s.take("uni");
                    s.end()?;
                    self.branch(text);
                    Ok(())
                }
                _ => Err("a label belongs here".into()),
            },
            "ret" | "exit" => {
                s.take("uni");
                s.end()?;
                self.emit(Op::Exit, Vec::new());
                Ok(())
            }
            "trap" | "brkpt" => {
                self.emit(Op::Trap, Vec::new());
                Ok(())
            }
            // Launches wait for those before them, and memory is in order.
            "griddepcontrol" | "membar" | "fence" | "prefetch" | "prefetchu" | "nanosleep" | "applypriority"
            | "discard" | "setmaxnreg" => {
                self.emit(Op::Nop, Vec::new());
                Ok(())
            }
            _ => Err(format!("`{base}` is not known")),
        }
    }

    /// Rounding, `ftz` and `sat` of a float instruction.
    pub(super) fn mode(s: &mut Suffixes<'_>) -> Mode {
        Mode { round: rounding(s).unwrap_or(Round::Near), ftz: s.take("ftz"), sat: s.take("sat") }
    }
}

/// `rn`, `rz`, `rm` or `rp`.
pub(super) fn rounding(s: &mut Suffixes<'_>) -> Option<Round> {
    s.find(|word| {
        Some(match word {
            "rn" => Round::Near,
            "rz" => Round::Zero,
            "rm" => Round::Down,
            "rp" => Round::Up,
            _ => return None,
        })
    })
}
