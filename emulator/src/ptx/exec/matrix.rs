//! Matrices: loads of fragments, and products.

use super::{
    memory::operands,
    registers::Lanes,
    warp::{Env, Trap, Warp},
};
use crate::ptx::{
    Trouble,
    code::{Access, Element, Inst, Mma, Scale},
    floats::{E2M1, E4M3, E5M2, canonical, from_bf16, from_f16},
};

impl Env<'_> {
    /// Lane l gives the address of row l % 8 of matrix l / 8; it gets elements 2 * (l % 4) and the next of row l / 4, or of
    /// column l / 4 where they are transposed.
    pub(super) fn load_matrices(
        &mut self,
        warp: &mut Warp,
        inst: &Inst,
        access: &Access,
        trans: bool,
        pc: usize,
    ) -> Result<(), Trap> {
        let count = usize::from(access.count);
        let places = operands(inst, count + 1);
        let addresses = warp.lanes(self).addresses(places[count], access.far, access.offset);
        let mut rows = [0; 32];
        for (lane, row) in rows.iter_mut().enumerate().take(8 * count) {
            let who = warp.who(self, lane, pc);
            *row = self.shared.read_ahead(addresses[lane], 16, who).map_err(|trouble| Trap::new(lane, trouble))?;
        }
        for matrix in 0..count {
            let rows = &rows[8 * matrix..8 * matrix + 8];
            let mut out = [0; 32];
            for (lane, out) in out.iter_mut().enumerate() {
                let (g, t) = (lane / 4, lane % 4);
                *out = if trans {
                    let one = |row: usize| self.shared.get(rows[row] + 2 * g, 2) as u32;
                    one(2 * t) | one(2 * t + 1) << 16
                } else {
                    self.shared.get(rows[g] + 4 * t, 4) as u32
                };
            }
            *warp.registers.row32(places[matrix]) = out;
        }
        Ok(())
    }
}

#[inline(always)]
fn decode(element: Element, bits: u32) -> f32 {
    match element {
        Element::F16 => from_f16(bits as u16),
        Element::Bf16 => from_bf16(bits as u16),
        Element::Tf32 => tf32(bits),
        Element::E4m3 => E4M3.decode(bits & 0xff) as f32,
        Element::E5m2 => E5M2.decode(bits & 0xff) as f32,
        Element::E2m1 => E2M1.decode(bits & 0xf) as f32,
        Element::S8 => f32::from(bits as u8 as i8),
        Element::U8 => f32::from(bits as u8),
    }
}

/// The lowest 13 bits of an f32 are not looked at.
fn tf32(bits: u32) -> f32 {
    f32::from_bits(bits & 0xffff_e000)
}

fn scale_value(scale: Scale, bits: u32) -> f32 {
    match scale {
        // A power of two, or a NaN.
        Scale::Ue8m0 if bits & 0xff == 0xff => f32::NAN,
        Scale::Ue8m0 => (f64::from(bits & 0xff) - 127.0).exp2() as f32,
        Scale::Ue4m3 => E4M3.decode(bits & 0x7f) as f32,
    }
}

/// The most elements along k.
const MOST: usize = 64;

/// Elements of small formats by their bits.
struct Table([f32; 256]);

impl Table {
    fn new(element: Element) -> Self {
        let mut table = [0.0; 256];
        for (bits, value) in (0..).zip(&mut table) {
            *value = decode(element, bits);
        }
        Self(table)
    }
}

/// The left matrix by rows, and the right one by rows too.
struct Pair {
    left: [[f32; MOST]; 16],
    right: [[f32; 8]; MOST],
}

/// With g = lane / 4, t = lane % 4 and P elements a register: register r of the left matrix has row g + 8 * (r % 2),
/// elements P * t .. from k / 2 * (r / 2); register r of the right one has column g, elements P * t .. from k / 2 * r.
#[inline(always)]
fn gather(
    l: &Lanes<'_>,
    places: &[u32],
    k: usize,
    bits: usize,
    left: impl Fn(u32) -> f32,
    right: impl Fn(u32) -> f32,
    to: &mut Pair,
) {
    let each = k / 8;
    for r in 0..4 {
        let row = l.a32(places[4 + r]);
        for lane in 0..32 {
            let (g, t) = (lane / 4 + 8 * (r & 1), lane % 4);
            for e in 0..each {
                to.left[g][k / 2 * (r >> 1) + each * t + e] = left(row[lane] >> (bits * e));
            }
        }
    }
    for r in 0..2 {
        let row = l.a32(places[8 + r]);
        for lane in 0..32 {
            let (g, t) = (lane / 4, lane % 4);
            for e in 0..each {
                to.right[k / 2 * r + each * t + e][g] = right(row[lane] >> (bits * e));
            }
        }
    }
}

/// Multiplies the elements of the left matrix by the scales of their rows, those of the right one by those of their
/// columns. Scales of row g come from lane 2 * thread of its four, those of row g + 8 from the next; those of column g
/// from lane `thread`. Where there is one scale, `byte` says which of the four; two begin there; four are all.
fn apply_scales(
    l: &Lanes<'_>,
    places: &[u32],
    count: usize,
    scale: Scale,
    k: usize,
    pair: &mut Pair,
) -> Result<(), Trouble> {
    let (left, right) = (l.a32(places[14]), l.a32(places[17]));
    let one = |place: u32| l.a32(place)[0] as usize & 0xffff;
    let (byte_a, thread_a, byte_b, thread_b) = (one(places[15]), one(places[16]), one(places[18]), one(places[19]));
    let fits = |byte: usize| byte + count <= 4 && byte.is_multiple_of(count);
    if !fits(byte_a) || !fits(byte_b) || thread_a > 1 || thread_b > 3 {
        return Err(Trouble::Instruction(format!(
            "scales of bytes {byte_a} and {byte_b} of lanes {thread_a} and {thread_b} do not exist"
        )));
    }
    let each = k / count;
    for row in 0..16 {
        let word = left[row % 8 * 4 + 2 * thread_a + row / 8];
        for at in 0..count {
            let factor = scale_value(scale, word >> (8 * (byte_a + at)));
            pair.left[row][at * each..(at + 1) * each].iter_mut().for_each(|it| *it *= factor);
        }
    }
    for column in 0..8 {
        let word = right[column * 4 + thread_b];
        for at in 0..count {
            let factor = scale_value(scale, word >> (8 * (byte_b + at)));
            pair.right[at * each..(at + 1) * each].iter_mut().for_each(|it| it[column] *= factor);
        }
    }
    Ok(())
}

/// Every sum begins with its old value and takes the products in order, one fused multiplication each: products are exact,
/// sums round to the nearest f32. Devices round elsewhere, and less often.
#[inline(always)]
pub(super) fn multiply(l: &mut Lanes<'_>, inst: &Inst, mma: Mma) -> Result<(), Trouble> {
    let places = &inst.more;
    let k = usize::from(mma.k);
    if matches!(mma.left, Element::S8 | Element::U8) {
        multiply_integers(l, places, mma);
        return Ok(());
    }
    let mut pair = Pair { left: [[0.0; MOST]; 16], right: [[0.0; 8]; MOST] };
    match (mma.left, mma.right) {
        (Element::Bf16, _) => {
            let one = |bits: u32| from_bf16(bits as u16);
            gather(l, places, 16, 16, one, one, &mut pair);
        }
        (Element::Tf32, _) => gather(l, places, 8, 32, tf32, tf32, &mut pair),
        (Element::F16, _) => {
            let one = |bits: u32| from_f16(bits as u16);
            gather(l, places, 16, 16, one, one, &mut pair);
        }
        (left, right) => {
            let (left, right) = (Table::new(left), Table::new(right));
            let size = if k == 64 { 4 } else { 8 };
            let field = (1 << size) - 1;
            let get = |table: &Table, bits: u32| table.0[(bits & field) as usize];
            gather(l, places, k, size, |bits| get(&left, bits), |bits| get(&right, bits), &mut pair);
        }
    }
    if let Some((count, scale)) = mma.scale {
        apply_scales(l, places, usize::from(count), scale, k, &mut pair)?;
    }
    let mut sums = [[0.0_f32; 8]; 16];
    for r in 0..4 {
        let row = l.a32(places[10 + r]);
        for lane in 0..32 {
            sums[lane / 4 + 8 * (r >> 1)][2 * (lane % 4) + (r & 1)] = f32::from_bits(row[lane]);
        }
    }
    for (sums, left) in sums.iter_mut().zip(&pair.left) {
        for (a, right) in left[..k].iter().zip(&pair.right) {
            for column in 0..8 {
                sums[column] = a.mul_add(right[column], sums[column]);
            }
        }
    }
    for r in 0..4 {
        let mut out = [0; 32];
        for lane in 0..32 {
            out[lane] = canonical(sums[lane / 4 + 8 * (r >> 1)][2 * (lane % 4) + (r & 1)]);
        }
        *l.registers.row32(places[r]) = out;
    }
    Ok(())
}

fn multiply_integers(l: &mut Lanes<'_>, places: &[u32], mma: Mma) {
    let mut pair = Pair { left: [[0.0; MOST]; 16], right: [[0.0; 8]; MOST] };
    gather(l, places, 32, 8, |bits| decode(mma.left, bits), |bits| decode(mma.right, bits), &mut pair);
    for r in 0..4 {
        let mut out = *l.a32(places[10 + r]);
        for lane in 0..32 {
            let (row, column) = (lane / 4 + 8 * (r >> 1), 2 * (lane % 4) + (r & 1));
            let products = (0..32).map(|at| pair.left[row][at] as i32 * pair.right[at][column] as i32);
            out[lane] = products.fold(out[lane], |sum, it| sum.wrapping_add(it as u32));
        }
        *l.registers.row32(places[r]) = out;
    }
}
