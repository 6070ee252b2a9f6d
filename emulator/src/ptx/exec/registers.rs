//! Registers of a warp: a row of 32 lanes each; a predicate is a mask.

use crate::ptx::code::{CONSTANT, Code, Constant, Ty};

/// All lanes.
pub(super) const ALL: u32 = u32::MAX;

/// Constants of a launch, one row each like registers.
pub(super) struct Constants {
    c32: Vec<[u32; 32]>,
    c64: Vec<[u64; 32]>,
}

impl Constants {
    /// With the addresses of the module's variables.
    pub(super) fn new(code: &Code, globals: &[u64]) -> Self {
        let value = |constant: &Constant| match constant {
            Constant::Value(value) => *value,
            Constant::Global(index, offset) => {
                globals.get(*index as usize).copied().unwrap_or(0).wrapping_add(*offset as u64)
            }
        };
        Self {
            c32: code.constants32.iter().map(|it| [*it; 32]).collect(),
            c64: code.constants64.iter().map(|it| [value(it); 32]).collect(),
        }
    }
}

/// What a warp remembers.
pub(super) struct Registers {
    r32: Vec<[u32; 32]>,
    r64: Vec<[u64; 32]>,
    p: Vec<u32>,
}

impl Registers {
    pub(super) fn new(code: &Code) -> Self {
        Self {
            r32: vec![[0; 32]; code.registers32 as usize],
            r64: vec![[0; 32]; code.registers64 as usize],
            p: vec![0; code.predicates as usize],
        }
    }

    /// The lanes where a predicate is true.
    #[inline(always)]
    pub(super) fn predicate(&self, place: u32) -> u32 {
        self.p[place as usize]
    }

    /// The row of a register, to write one lane at a time.
    #[inline(always)]
    pub(super) fn row32(&mut self, place: u32) -> &mut [u32; 32] {
        &mut self.r32[place as usize]
    }

    /// The same of 64 bits.
    #[inline(always)]
    pub(super) fn row64(&mut self, place: u32) -> &mut [u64; 32] {
        &mut self.r64[place as usize]
    }

    /// One lane of a register of 32 bits.
    pub(super) fn lane32(&self, constants: &Constants, place: u32, lane: usize) -> u32 {
        if place & CONSTANT == 0 {
            self.r32[place as usize][lane]
        } else {
            constants.c32[(place & !CONSTANT) as usize][lane]
        }
    }
}

/// Registers and constants, by their places.
pub(super) struct Lanes<'a> {
    pub(super) registers: &'a mut Registers,
    pub(super) constants: &'a Constants,
}

impl Lanes<'_> {
    #[inline(always)]
    pub(super) fn a32(&self, place: u32) -> &[u32; 32] {
        if place & CONSTANT == 0 {
            &self.registers.r32[place as usize]
        } else {
            &self.constants.c32[(place & !CONSTANT) as usize]
        }
    }

    #[inline(always)]
    pub(super) fn a64(&self, place: u32) -> &[u64; 32] {
        if place & CONSTANT == 0 {
            &self.registers.r64[place as usize]
        } else {
            &self.constants.c64[(place & !CONSTANT) as usize]
        }
    }

    #[inline(always)]
    pub(super) fn p(&self, place: u32) -> u32 {
        self.registers.p[place as usize]
    }

    #[inline(always)]
    pub(super) fn put32(&mut self, place: u32, values: [u32; 32], mask: u32) {
        let to = &mut self.registers.r32[place as usize];
        if mask == ALL {
            *to = values;
        } else {
            for lane in 0..32 {
                to[lane] = if mask >> lane & 1 != 0 { values[lane] } else { to[lane] };
            }
        }
    }

    #[inline(always)]
    pub(super) fn put64(&mut self, place: u32, values: [u64; 32], mask: u32) {
        let to = &mut self.registers.r64[place as usize];
        if mask == ALL {
            *to = values;
        } else {
            for lane in 0..32 {
                to[lane] = if mask >> lane & 1 != 0 { values[lane] } else { to[lane] };
            }
        }
    }

    #[inline(always)]
    pub(super) fn put_p(&mut self, place: u32, bits: u32, mask: u32) {
        let to = &mut self.registers.p[place as usize];
        *to = *to & !mask | bits & mask;
    }

    /// The values of an operand of a type, in 64 bits with zeros above.
    pub(super) fn values(&self, place: u32, ty: Ty) -> [u64; 32] {
        if ty.bytes() == 8 { *self.a64(place) } else { self.a32(place).map(u64::from) }
    }

    /// Writes values of a type.
    pub(super) fn put(&mut self, place: u32, values: [u64; 32], ty: Ty, mask: u32) {
        if ty.bytes() == 8 {
            self.put64(place, values, mask);
        } else {
            self.put32(place, values.map(|it| it as u32), mask);
        }
    }

    /// Addresses: a register, and an offset.
    pub(super) fn addresses(&self, place: u32, far: bool, offset: i64) -> [u64; 32] {
        if far {
            self.a64(place).map(|it| it.wrapping_add(offset as u64))
        } else {
            self.a32(place).map(|it| u64::from(it.wrapping_add(offset as u32)))
        }
    }

    #[inline(always)]
    pub(super) fn map32(&mut self, d: u32, a: u32, mask: u32, f: impl Fn(u32) -> u32) {
        let a = self.a32(a);
        let mut out = [0; 32];
        for lane in 0..32 {
            out[lane] = f(a[lane]);
        }
        self.put32(d, out, mask);
    }

    #[inline(always)]
    pub(super) fn two32(&mut self, r: &[u32; 5], mask: u32, f: impl Fn(u32, u32) -> u32) {
        let (a, b) = (self.a32(r[1]), self.a32(r[2]));
        let mut out = [0; 32];
        for lane in 0..32 {
            out[lane] = f(a[lane], b[lane]);
        }
        self.put32(r[0], out, mask);
    }

    #[inline(always)]
    pub(super) fn three32(&mut self, r: &[u32; 5], mask: u32, f: impl Fn(u32, u32, u32) -> u32) {
        let (a, b, c) = (self.a32(r[1]), self.a32(r[2]), self.a32(r[3]));
        let mut out = [0; 32];
        for lane in 0..32 {
            out[lane] = f(a[lane], b[lane], c[lane]);
        }
        self.put32(r[0], out, mask);
    }

    #[inline(always)]
    pub(super) fn map64(&mut self, d: u32, a: u32, mask: u32, f: impl Fn(u64) -> u64) {
        let a = self.a64(a);
        let mut out = [0; 32];
        for lane in 0..32 {
            out[lane] = f(a[lane]);
        }
        self.put64(d, out, mask);
    }

    #[inline(always)]
    pub(super) fn two64(&mut self, r: &[u32; 5], mask: u32, f: impl Fn(u64, u64) -> u64) {
        let (a, b) = (self.a64(r[1]), self.a64(r[2]));
        let mut out = [0; 32];
        for lane in 0..32 {
            out[lane] = f(a[lane], b[lane]);
        }
        self.put64(r[0], out, mask);
    }

    #[inline(always)]
    pub(super) fn three64(&mut self, r: &[u32; 5], mask: u32, f: impl Fn(u64, u64, u64) -> u64) {
        let (a, b, c) = (self.a64(r[1]), self.a64(r[2]), self.a64(r[3]));
        let mut out = [0; 32];
        for lane in 0..32 {
            out[lane] = f(a[lane], b[lane], c[lane]);
        }
        self.put64(r[0], out, mask);
    }
}
