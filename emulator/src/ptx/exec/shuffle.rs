//! Values that lanes of a warp give each other.

use super::{registers::Lanes, warp::Trap};
use crate::ptx::{
    Trouble,
    code::{Int, Shfl, Vote},
};

/// Each lane gets the value of another of its segment; where there is none, its own, and the predicate is false.
pub(super) fn shuffle(l: &mut Lanes<'_>, how: Shfl, both: bool, operands: &[u32], mask: u32) -> Result<(), Trap> {
    let sources = &operands[1 + usize::from(both)..];
    let (a, b, c) = (*l.a32(sources[0]), *l.a32(sources[1]), *l.a32(sources[2]));
    let (mut out, mut inside) = ([0; 32], 0);
    for lane in 0..32 {
        if mask >> lane & 1 == 0 {
            continue;
        }
        let (by, clamp, segment) = (b[lane] & 31, c[lane] & 31, c[lane] >> 8 & 31);
        let own = lane as u32;
        let (least, most) = (own & segment, own & segment | clamp & !segment);
        let (from, fits) = match how {
            Shfl::Up => (own.wrapping_sub(by), own as i32 - by as i32 >= most as i32),
            Shfl::Down => (own + by, own + by <= most),
            Shfl::Bfly => (own ^ by, own ^ by <= most),
            Shfl::Idx => (least | by & !segment, least | by & !segment <= most),
        };
        let from = if fits { from } else { own };
        if mask >> from & 1 == 0 {
            let what = format!("the value of lane {from}, which takes no part");
            return Err(Trap::new(lane, Trouble::Instruction(what)));
        }
        out[lane] = a[from as usize];
        inside |= u32::from(fits) << lane;
    }
    l.put32(operands[0], out, mask);
    if both {
        l.put_p(operands[1], inside, mask);
    }
    Ok(())
}

pub(super) fn vote(l: &mut Lanes<'_>, how: Vote, not: bool, r: &[u32; 5], mask: u32) {
    let bits = (l.p(r[1]) ^ if not { u32::MAX } else { 0 }) & mask;
    let result = match how {
        Vote::Ballot => return l.put32(r[0], [bits; 32], mask),
        Vote::All => bits == mask,
        Vote::Any => bits != 0,
        Vote::Uni => bits == 0 || bits == mask,
    };
    l.put_p(r[0], if result { u32::MAX } else { 0 }, mask);
}

/// A matrix of 8 x 8 elements of 16 bits, two of a row in each lane, transposed.
pub(super) fn transpose(l: &mut Lanes<'_>, r: &[u32; 5]) {
    let from = *l.a32(r[1]);
    let element = |row: usize, column: usize| from[row * 4 + column / 2] >> (column % 2 * 16) & 0xffff;
    let to = std::array::from_fn(|lane| {
        let (row, column) = (lane / 4, lane % 4 * 2);
        element(column, row) | element(column + 1, row) << 16
    });
    l.put32(r[0], to, u32::MAX);
}

pub(super) fn reduce(l: &mut Lanes<'_>, op: Int, r: &[u32; 5], mask: u32) {
    let values = super::memory::lanes(mask).map(|lane| l.a32(r[1])[lane]);
    let result = values.reduce(|a, b| match op {
        Int::Add => a.wrapping_add(b),
        Int::MinU => a.min(b),
        Int::MaxU => a.max(b),
        Int::MinS => (a as i32).min(b as i32) as u32,
        Int::MaxS => (a as i32).max(b as i32) as u32,
        Int::And => a & b,
        Int::Or => a | b,
        _ => a ^ b,
    });
    l.put32(r[0], [result.unwrap_or(0); 32], mask);
}
