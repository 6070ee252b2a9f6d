//! Integers, bits, moves.

use super::registers::Lanes;
use crate::ptx::code::{Int, Int1, Int3, Logic};

#[inline(always)]
pub(super) fn int32(l: &mut Lanes<'_>, op: Int, r: &[u32; 5], mask: u32) {
    let signed = |f: fn(i32, i32) -> i32| move |a: u32, b: u32| f(a as i32, b as i32) as u32;
    match op {
        Int::Add => l.two32(r, mask, u32::wrapping_add),
        Int::Sub => l.two32(r, mask, u32::wrapping_sub),
        Int::Mul => l.two32(r, mask, u32::wrapping_mul),
        Int::MulHiU => l.two32(r, mask, |a, b| (u64::from(a) * u64::from(b) >> 32) as u32),
        Int::MulHiS => l.two32(r, mask, |a, b| (i64::from(a as i32) * i64::from(b as i32) >> 32) as u32),
        // What the devices make of a division by zero.
        Int::DivU => l.two32(r, mask, |a, b| a.checked_div(b).unwrap_or(!0)),
        Int::RemU => l.two32(r, mask, |a, b| a.checked_rem(b).unwrap_or(a)),
        Int::DivS => l.two32(r, mask, signed(|a, b| if b == 0 { -1 } else { a.wrapping_div(b) })),
        Int::RemS => l.two32(r, mask, signed(|a, b| if b == 0 { a } else { a.wrapping_rem(b) })),
        Int::MinU => l.two32(r, mask, u32::min),
        Int::MaxU => l.two32(r, mask, u32::max),
        Int::MinS => l.two32(r, mask, |a, b| (a as i32).min(b as i32) as u32),
        Int::MaxS => l.two32(r, mask, |a, b| (a as i32).max(b as i32) as u32),
        Int::And => l.two32(r, mask, |a, b| a & b),
        Int::Or => l.two32(r, mask, |a, b| a | b),
        Int::Xor => l.two32(r, mask, |a, b| a ^ b),
        // Counts of the width and more move everything out.
        Int::Shl => l.two32(r, mask, |a, b| if b < 32 { a << (b & 31) } else { 0 }),
        Int::ShrU => l.two32(r, mask, |a, b| if b < 32 { a >> (b & 31) } else { 0 }),
        Int::ShrS => l.two32(r, mask, |a, b| (a as i32 >> b.min(31)) as u32),
    }
}

#[inline(always)]
pub(super) fn int64(l: &mut Lanes<'_>, op: Int, r: &[u32; 5], mask: u32) {
    match op {
        Int::Add => l.two64(r, mask, u64::wrapping_add),
        Int::Sub => l.two64(r, mask, u64::wrapping_sub),
        Int::Mul => l.two64(r, mask, u64::wrapping_mul),
        Int::MulHiU => l.two64(r, mask, |a, b| (u128::from(a) * u128::from(b) >> 64) as u64),
        Int::MulHiS => l.two64(r, mask, |a, b| (i128::from(a as i64) * i128::from(b as i64) >> 64) as u64),
        Int::DivU => l.two64(r, mask, |a, b| a.checked_div(b).unwrap_or(!0)),
        Int::RemU => l.two64(r, mask, |a, b| a.checked_rem(b).unwrap_or(a)),
        Int::DivS => l.two64(r, mask, |a, b| if b == 0 { !0 } else { (a as i64).wrapping_div(b as i64) as u64 }),
        Int::RemS => l.two64(r, mask, |a, b| if b == 0 { a } else { (a as i64).wrapping_rem(b as i64) as u64 }),
        Int::MinU => l.two64(r, mask, u64::min),
        Int::MaxU => l.two64(r, mask, u64::max),
        Int::MinS => l.two64(r, mask, |a, b| (a as i64).min(b as i64) as u64),
        Int::MaxS => l.two64(r, mask, |a, b| (a as i64).max(b as i64) as u64),
        Int::And => l.two64(r, mask, |a, b| a & b),
        Int::Or => l.two64(r, mask, |a, b| a | b),
        Int::Xor => l.two64(r, mask, |a, b| a ^ b),
        Int::Shl | Int::ShrU | Int::ShrS => {
            let (a, b) = (l.a64(r[1]), l.a32(r[2]));
            let mut out = [0; 32];
            for lane in 0..32 {
                let (a, b) = (a[lane], b[lane]);
                out[lane] = match op {
                    Int::Shl => a.checked_shl(b).unwrap_or(0),
                    Int::ShrU => a.checked_shr(b).unwrap_or(0),
                    _ => (a as i64 >> b.min(63)) as u64,
                };
            }
            l.put64(r[0], out, mask);
        }
    }
}

/// 16 bits: registers hold zeros above them.
pub(super) fn int16(l: &mut Lanes<'_>, op: Int, r: &[u32; 5], mask: u32) {
    let s = |a: u32| i32::from(a as u16 as i16);
    l.two32(r, mask, |a, b| {
        let wide = match op {
            Int::Add => a.wrapping_add(b),
            Int::Sub => a.wrapping_sub(b),
            Int::Mul => a.wrapping_mul(b),
            Int::MulHiU => a * b >> 16,
            Int::MulHiS => (s(a) * s(b) >> 16) as u32,
            Int::DivU => a.checked_div(b).unwrap_or(!0),
            Int::RemU => a.checked_rem(b).unwrap_or(a),
            Int::DivS => s(a).checked_div(s(b)).unwrap_or(-1) as u32,
            Int::RemS => s(a).checked_rem(s(b)).unwrap_or(s(a)) as u32,
            Int::MinU => a.min(b),
            Int::MaxU => a.max(b),
            Int::MinS => s(a).min(s(b)) as u32,
            Int::MaxS => s(a).max(s(b)) as u32,
            Int::And => a & b,
            Int::Or => a | b,
            Int::Xor => a ^ b,
            Int::Shl => a.checked_shl(b).unwrap_or(0),
            Int::ShrU => a.checked_shr(b).unwrap_or(0),
            Int::ShrS => (s(a) >> b.min(31)) as u32,
        };
        wide & 0xffff
    });
}

pub(super) fn one32(l: &mut Lanes<'_>, op: Int1, r: &[u32; 5], mask: u32) {
    match op {
        Int1::Not => l.map32(r[0], r[1], mask, |a| !a),
        Int1::Neg => l.map32(r[0], r[1], mask, u32::wrapping_neg),
        Int1::AbsS => l.map32(r[0], r[1], mask, |a| (a as i32).wrapping_abs() as u32),
        Int1::Popc => l.map32(r[0], r[1], mask, u32::count_ones),
        Int1::Clz => l.map32(r[0], r[1], mask, u32::leading_zeros),
        Int1::Brev => l.map32(r[0], r[1], mask, u32::reverse_bits),
    }
}

pub(super) fn one16(l: &mut Lanes<'_>, op: Int1, r: &[u32; 5], mask: u32) {
    l.map32(r[0], r[1], mask, |a| match op {
        Int1::Not => !a & 0xffff,
        Int1::Neg => a.wrapping_neg() & 0xffff,
        Int1::AbsS => u32::from((a as u16 as i16).wrapping_abs() as u16),
        Int1::Popc => (a & 0xffff).count_ones(),
        Int1::Clz => (a as u16).leading_zeros(),
        Int1::Brev => u32::from((a as u16).reverse_bits()),
    });
}

pub(super) fn one64(l: &mut Lanes<'_>, op: Int1, r: &[u32; 5], mask: u32) {
    match op {
        Int1::Not => l.map64(r[0], r[1], mask, |a| !a),
        Int1::Neg => l.map64(r[0], r[1], mask, u64::wrapping_neg),
        Int1::AbsS => l.map64(r[0], r[1], mask, |a| (a as i64).wrapping_abs() as u64),
        Int1::Brev => l.map64(r[0], r[1], mask, u64::reverse_bits),
        Int1::Popc => {
            let counts = l.a64(r[1]).map(u64::count_ones);
            l.put32(r[0], counts, mask);
        }
        Int1::Clz => {
            let counts = l.a64(r[1]).map(u64::leading_zeros);
            l.put32(r[0], counts, mask);
        }
    }
}

#[inline(always)]
pub(super) fn three32(l: &mut Lanes<'_>, op: Int3, r: &[u32; 5], mask: u32) {
    match op {
        Int3::Mad => l.three32(r, mask, |a, b, c| a.wrapping_mul(b).wrapping_add(c)),
        Int3::MadHiU => l.three32(r, mask, |a, b, c| ((u64::from(a) * u64::from(b) >> 32) as u32).wrapping_add(c)),
        Int3::MadHiS => {
            l.three32(r, mask, |a, b, c| ((i64::from(a as i32) * i64::from(b as i32) >> 32) as u32).wrapping_add(c))
        }
        Int3::Prmt => l.three32(r, mask, prmt),
        Int3::BfeU => l.three32(r, mask, |a, b, c| bfe(i64::from(a), b, c, false)),
        Int3::BfeS => l.three32(r, mask, |a, b, c| bfe(i64::from(a as i32), b, c, true)),
        Int3::ShfL { clamp } => l.three32(r, mask, |low, high, by| {
            let by = if clamp { by.min(32) } else { by & 31 };
            ((u64::from(high) << 32 | u64::from(low)) << by >> 32) as u32
        }),
        Int3::ShfR { clamp } => l.three32(r, mask, |low, high, by| {
            let by = if clamp { by.min(32) } else { by & 31 };
            ((u64::from(high) << 32 | u64::from(low)) >> by) as u32
        }),
        Int3::Lop3(table) => l.three32(r, mask, |a, b, c| {
            (0..8).filter(|row| table >> row & 1 != 0).fold(0, |all, row| {
                let pick = |bits: u32, on: bool| if on { bits } else { !bits };
                all | pick(a, row & 4 != 0) & pick(b, row & 2 != 0) & pick(c, row & 1 != 0)
            })
        }),
    }
}

/// Four bytes of eight, each by four bits of the selector: three of the number, one to copy its sign.
fn prmt(a: u32, b: u32, selector: u32) -> u32 {
    let bytes = u64::from(b) << 32 | u64::from(a);
    (0..4).fold(0, |all, at| {
        let choice = selector >> (4 * at) & 15;
        let byte = (bytes >> (8 * (choice & 7))) as u8;
        let byte = if choice & 8 == 0 { byte } else { (byte as i8 >> 7) as u8 };
        all | u32::from(byte) << (8 * at)
    })
}

/// `len` bits from `pos`; beyond the top there is the sign, or zeros.
fn bfe(value: i64, pos: u32, len: u32, signed: bool) -> u32 {
    let (pos, len) = (pos & 255, len & 255);
    if len == 0 {
        return 0;
    }
    let shifted = value >> pos.min(63);
    if len >= 32 {
        return shifted as u32;
    }
    let field = (shifted as u32) & ((1 << len) - 1);
    // The sign of the field is its highest bit that is inside the value.
    let top = (pos + len - 1).min(31);
    let negative = signed && value as u32 >> top & 1 != 0;
    if negative { field | !0 << len } else { field }
}

pub(super) fn bfi(l: &mut Lanes<'_>, r: &[u32; 5], mask: u32) {
    let (a, b, pos, len) = (*l.a32(r[1]), *l.a32(r[2]), *l.a32(r[3]), *l.a32(r[4]));
    let mut out = [0; 32];
    for lane in 0..32 {
        let (pos, len) = (pos[lane] & 255, len[lane] & 255);
        let field = if len >= 32 { u64::from(u32::MAX) } else { (1 << len) - 1 };
        let place = if pos < 32 { (field << pos) as u32 } else { 0 };
        out[lane] = b[lane] & !place | (u64::from(a[lane]) << pos.min(32)) as u32 & place;
    }
    l.put32(r[0], out, mask);
}

#[inline(always)]
pub(super) fn multiply_wide(l: &mut Lanes<'_>, signed: bool, add: bool, r: &[u32; 5], mask: u32) {
    let (a, b) = (l.a32(r[1]), l.a32(r[2]));
    let mut out = [0; 32];
    if signed {
        for lane in 0..32 {
            out[lane] = (i64::from(a[lane] as i32) * i64::from(b[lane] as i32)) as u64;
        }
    } else {
        for lane in 0..32 {
            out[lane] = u64::from(a[lane]) * u64::from(b[lane]);
        }
    }
    if add {
        let c = l.a64(r[3]);
        for lane in 0..32 {
            out[lane] = out[lane].wrapping_add(c[lane]);
        }
    }
    l.put64(r[0], out, mask);
}

pub(super) fn multiply_wide16(l: &mut Lanes<'_>, signed: bool, r: &[u32; 5], mask: u32) {
    l.two32(r, mask, |a, b| {
        if signed {
            (i32::from(a as u16 as i16) * i32::from(b as u16 as i16)) as u32
        } else {
            (a & 0xffff) * (b & 0xffff)
        }
    });
}

#[inline(always)]
pub(super) fn select(l: &mut Lanes<'_>, wide: bool, r: &[u32; 5], mask: u32) {
    let p = l.p(r[3]);
    if wide {
        let (a, b) = (l.a64(r[1]), l.a64(r[2]));
        let mut out = [0; 32];
        for lane in 0..32 {
            out[lane] = if p >> lane & 1 != 0 { a[lane] } else { b[lane] };
        }
        l.put64(r[0], out, mask);
    } else {
        let (a, b) = (l.a32(r[1]), l.a32(r[2]));
        let mut out = [0; 32];
        for lane in 0..32 {
            out[lane] = if p >> lane & 1 != 0 { a[lane] } else { b[lane] };
        }
        l.put32(r[0], out, mask);
    }
}

pub(super) fn logic(op: Logic, a: u32, b: u32) -> u32 {
    match op {
        Logic::And => a & b,
        Logic::Or => a | b,
        Logic::Xor => a ^ b,
    }
}

/// Parts of a value put together: d, then the parts from the low end.
pub(super) fn pack(l: &mut Lanes<'_>, bytes: u8, part: u8, operands: &[u32], mask: u32) {
    let mut out = [0_u64; 32];
    let field = (1_u64 << (8 * part)) - 1;
    for (index, place) in operands[1..].iter().enumerate() {
        let row = l.a32(*place);
        for lane in 0..32 {
            out[lane] |= (u64::from(row[lane]) & field) << (index * usize::from(part) * 8);
        }
    }
    if bytes == 8 {
        l.put64(operands[0], out, mask);
    } else {
        l.put32(operands[0], out.map(|it| it as u32), mask);
    }
}

/// A value taken apart: parts from the low end, then the value.
pub(super) fn unpack(l: &mut Lanes<'_>, bytes: u8, part: u8, operands: &[u32], mask: u32) {
    let (parts, value) = operands.split_at(operands.len() - 1);
    let values = if bytes == 8 { *l.a64(value[0]) } else { l.a32(value[0]).map(u64::from) };
    let field = (1_u64 << (8 * part)) - 1;
    for (index, place) in parts.iter().enumerate() {
        l.put32(*place, values.map(|it| (it >> (index * usize::from(part) * 8) & field) as u32), mask);
    }
}
