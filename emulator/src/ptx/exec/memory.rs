//! Loads, stores, atomics and asynchronous copies.

use super::{
    raw,
    warp::{Env, Trap, Warp},
};
use crate::ptx::{
    Trouble,
    code::{Access, Atom, Inst, Space},
};

/// Where generic addresses of shared memory begin: no address of the process has these bits.
pub(super) const SHARED: u64 = 1 << 56;
/// And those of local memory.
pub(super) const LOCAL: u64 = 2 << 56;

/// An allocation that an instruction touched last.
#[derive(Clone, Copy, Default)]
pub(super) struct Range {
    first: u64,
    bytes: u64,
    writable: bool,
}

/// The space that an address is in, and the address there.
fn resolve(space: Space, address: u64) -> (Space, u64) {
    match (space, address >> 56) {
        (Space::Generic, 1) => (Space::Shared, address & (SHARED - 1)),
        (Space::Generic, 2) => (Space::Local, address & (SHARED - 1)),
        (Space::Generic, _) => (Space::Global, address),
        _ => (space, address),
    }
}

/// The lanes of a mask.
pub(super) fn lanes(mask: u32) -> impl Iterator<Item = usize> {
    let mut left = mask;
    std::iter::from_fn(move || {
        let lane = left.trailing_zeros() as usize;
        left &= left.wrapping_sub(1);
        (lane < 32).then_some(lane)
    })
}

impl Env<'_> {
    /// Asks whether global memory is there; the answer for an instruction is remembered.
    #[inline(always)]
    fn check(&mut self, pc: usize, address: u64, bytes: usize, write: bool) -> Result<(), Trouble> {
        if !address.is_multiple_of(bytes as u64) {
            return Err(Trouble::Misaligned { space: "global", address, align: bytes });
        }
        let range = self.ranges[pc];
        let inside =
            address.wrapping_sub(range.first) < range.bytes && range.bytes - (address - range.first) >= bytes as u64;
        if inside && (range.writable || !write) {
            return Ok(());
        }
        self.ask(pc, address, bytes, write)
    }

    #[cold]
    fn ask(&mut self, pc: usize, address: u64, bytes: usize, write: bool) -> Result<(), Trouble> {
        let wrong = || Trouble::Address { space: "global", address, bytes, write };
        let (first, length, writable) = self.memory.range(address, bytes).ok_or_else(wrong)?;
        let inside = address >= first && length >= bytes as u64 && address - first <= length - bytes as u64;
        if !inside || write && !writable {
            return Err(wrong());
        }
        self.ranges[pc] = Range { first, bytes: length, writable };
        Ok(())
    }

    /// A place in the local memory of a lane.
    fn local(&self, address: u64, bytes: usize, lane: usize, write: bool) -> Result<usize, Trouble> {
        let size = self.local_bytes as u64;
        if address > size || size - address < bytes as u64 {
            return Err(Trouble::Address { space: "local", address, bytes, write });
        }
        if !address.is_multiple_of(bytes as u64) {
            return Err(Trouble::Misaligned { space: "local", address, align: bytes });
        }
        Ok(lane * self.local_bytes + address as usize)
    }

    /// Reads the elements of one lane.
    #[inline(always)]
    fn fetch(
        &mut self,
        warp: &mut Warp,
        pc: usize,
        access: &Access,
        address: u64,
        lane: usize,
        mut each: impl FnMut(&mut Warp, usize, u64),
    ) -> Result<(), Trouble> {
        let (bytes, count) = (usize::from(access.bytes), usize::from(access.count));
        let (space, address) = resolve(access.space, address);
        match space {
            Space::Shared => {
                let at = self.shared.read(address, bytes * count, warp.who(self, lane, pc))?;
                for element in 0..count {
                    each(warp, element, self.shared.get(at + element * bytes, bytes));
                }
            }
            Space::Local => {
                let at = self.local(address, bytes * count, lane, false)?;
                for element in 0..count {
                    let mut value = [0; 8];
                    let from = at + element * bytes;
                    value[..bytes].copy_from_slice(&warp.local[from..from + bytes]);
                    each(warp, element, u64::from_le_bytes(value));
                }
            }
            Space::Cluster => {
                return Err(Trouble::Instruction("a load from another block's shared memory".into()));
            }
            Space::Global | Space::Generic => {
                self.check(pc, address, bytes * count, false)?;
                for element in 0..count {
                    // SAFETY: `check` says that the bytes are there, and that the address is aligned; who calls `run` keeps
                    // them there, and nobody but kernels writes them.
                    each(warp, element, unsafe { raw::load(address + (element * bytes) as u64, bytes) });
                }
            }
        }
        Ok(())
    }

    pub(super) fn load(
        &mut self,
        warp: &mut Warp,
        inst: &Inst,
        access: &Access,
        mask: u32,
        pc: usize,
    ) -> Result<(), Trap> {
        let count = usize::from(access.count);
        let places = operands(inst, count + 1);
        let addresses = warp.lanes(self).addresses(places[count], access.far, access.offset);
        let shift = 64 - 8 * u32::from(access.bytes);
        for lane in lanes(mask) {
            self.fetch(warp, pc, access, addresses[lane], lane, |warp, element, value| {
                let value = match access.signed {
                    Some(held) => {
                        let extended = (((value << shift) as i64) >> shift) as u64;
                        if held == 2 { extended & 0xffff } else { extended }
                    }
                    None => value,
                };
                if access.wide {
                    warp.registers.row64(places[element])[lane] = value;
                } else {
                    warp.registers.row32(places[element])[lane] = value as u32;
                }
            })
            .map_err(|trouble| Trap::new(lane, trouble))?;
        }
        Ok(())
    }

    /// Writes the elements of one lane.
    #[inline(always)]
    fn put(
        &mut self,
        warp: &mut Warp,
        pc: usize,
        access: &Access,
        address: u64,
        lane: usize,
        value: impl Fn(usize) -> u64,
    ) -> Result<(), Trouble> {
        let (bytes, count) = (usize::from(access.bytes), usize::from(access.count));
        let (space, address) = resolve(access.space, address);
        match space {
            Space::Shared => {
                let at = self.shared.write(address, bytes * count, warp.who(self, lane, pc))?;
                for element in 0..count {
                    self.shared.set(at + element * bytes, bytes, value(element));
                }
            }
            Space::Local => {
                let at = self.local(address, bytes * count, lane, true)?;
                for element in 0..count {
                    let to = at + element * bytes;
                    warp.local[to..to + bytes].copy_from_slice(&value(element).to_le_bytes()[..bytes]);
                }
            }
            Space::Cluster => {
                let who = warp.who(self, lane, pc);
                self.cluster.store(address, (bytes, count), warp.arrived, who, value)?;
            }
            Space::Global | Space::Generic => {
                self.check(pc, address, bytes * count, true)?;
                for element in 0..count {
                    // SAFETY: as in `fetch`, and `check` says that they may be written.
                    unsafe { raw::store(address + (element * bytes) as u64, bytes, value(element)) };
                }
            }
        }
        Ok(())
    }

    pub(super) fn store(
        &mut self,
        warp: &mut Warp,
        inst: &Inst,
        access: &Access,
        mask: u32,
        pc: usize,
    ) -> Result<(), Trap> {
        let count = usize::from(access.count);
        let places = operands(inst, count + 1);
        let lanes_of = warp.lanes(self);
        let addresses = lanes_of.addresses(places[count], access.far, access.offset);
        let mut values = [[0; 32]; 8];
        for (row, place) in values.iter_mut().zip(&places[..count]) {
            *row = if access.wide { *lanes_of.a64(*place) } else { lanes_of.a32(*place).map(u64::from) };
        }
        for lane in lanes(mask) {
            self.put(warp, pc, access, addresses[lane], lane, |element| values[element][lane])
                .map_err(|trouble| Trap::new(lane, trouble))?;
        }
        Ok(())
    }

    /// Lanes one after the other. What a warp does to global memory is atomic among blocks.
    pub(super) fn atomic(
        &mut self,
        warp: &mut Warp,
        inst: &Inst,
        (op, access, returns): (Atom, &Access, bool),
        mask: u32,
        pc: usize,
    ) -> Result<(), Trap> {
        let sources = if op == Atom::Cas { 2 } else { 1 };
        let first = usize::from(returns);
        let places = operands(inst, first + sources + 1);
        let lanes_of = warp.lanes(self);
        let row = |place: u32| if access.wide { *lanes_of.a64(place) } else { lanes_of.a32(place).map(u64::from) };
        let a = row(places[first]);
        let b = if sources == 2 { row(places[first + 1]) } else { a };
        let addresses = lanes_of.addresses(places[first + sources], access.far, access.offset);
        let bytes = usize::from(access.bytes);
        for lane in lanes(mask) {
            let (space, address) = resolve(access.space, addresses[lane]);
            let change = |old| atom(op, bytes, old, a[lane], b[lane]);
            let old = match space {
                Space::Shared => self.atomic_shared(address, bytes, change),
                Space::Local | Space::Cluster => Err(Trouble::Instruction("an atomic in memory of this kind".into())),
                Space::Global | Space::Generic => self.check(pc, address, bytes, true).map(|()| {
                    // SAFETY: as in `put`.
                    unsafe { raw::update(address, bytes, change) }
                }),
            };
            let old = old.map_err(|trouble| Trap::new(lane, trouble))?;
            if returns && access.wide {
                warp.registers.row64(places[0])[lane] = old;
            } else if returns {
                warp.registers.row32(places[0])[lane] = old as u32;
            }
        }
        Ok(())
    }

    /// Atomics are ordered among themselves: no race, whoever else does them.
    fn atomic_shared(&mut self, address: u64, bytes: usize, change: impl Fn(u64) -> u64) -> Result<u64, Trouble> {
        let at = self.shared.atomic(address, bytes)?;
        let old = self.shared.get(at, bytes);
        self.shared.set(at, bytes, change(old));
        Ok(old)
    }

    /// Begins copies. They are made when somebody waits for them, and not before: who reads too early reads what was there.
    pub(super) fn copy(
        &mut self,
        warp: &mut Warp,
        inst: &Inst,
        (bytes, to, from, far, partial): (u8, i64, i64, bool, bool),
        mask: u32,
        pc: usize,
    ) -> Result<(), Trap> {
        let lanes_of = warp.lanes(self);
        let to = lanes_of.addresses(inst.r[0], far, to);
        let from = lanes_of.addresses(inst.r[1], true, from);
        let read = if partial { *lanes_of.a32(inst.r[2]) } else { [u32::from(bytes); 32] };
        for lane in lanes(mask) {
            let who = warp.who(self, lane, pc);
            let trap = |trouble| Trap::new(lane, trouble);
            if read[lane] > u32::from(bytes) {
                return Err(trap(Trouble::Instruction(format!("cp.async reads {} bytes of {bytes}", read[lane]))));
            }
            self.shared.begin(to[lane], usize::from(bytes), who).map_err(trap)?;
            if read[lane] != 0 {
                if !from[lane].is_multiple_of(u64::from(bytes)) {
                    let align = usize::from(bytes);
                    return Err(trap(Trouble::Misaligned { space: "global", address: from[lane], align }));
                }
                // Bytes that are not read need not be there.
                let range = self.ranges[pc];
                let inside = from[lane].wrapping_sub(range.first) < range.bytes
                    && range.bytes - (from[lane] - range.first) >= u64::from(read[lane]);
                if !inside {
                    self.ask(pc, from[lane], read[lane] as usize, false).map_err(trap)?;
                }
            }
            let group = warp.committed[lane];
            warp.copies.push(Copy {
                lane: lane as u8,
                bytes,
                read: read[lane] as u8,
                group,
                to: to[lane],
                from: from[lane],
                pc,
            });
        }
        Ok(())
    }

    /// Makes the copies of all groups of these lanes but the last `younger`.
    pub(super) fn wait(&mut self, warp: &mut Warp, younger: u32, mask: u32) {
        let mut copies = std::mem::take(&mut warp.copies);
        copies.retain(|copy| {
            let lane = usize::from(copy.lane);
            let due = mask >> lane & 1 != 0 && copy.group + younger < warp.committed[lane];
            if due {
                let mut bytes = [0; 16];
                // Words where only words are read: a copy is aligned to its size.
                let step = if copy.read.is_multiple_of(4) { 4 } else { 1 };
                for at in (0..usize::from(copy.read)).step_by(step) {
                    // SAFETY: `copy` asked for these bytes, aligned; who calls `run` keeps them there.
                    let value = unsafe { raw::load(copy.from + at as u64, step) };
                    bytes[at..at + step].copy_from_slice(&value.to_le_bytes()[..step]);
                }
                let who = warp.who(self, lane, copy.pc);
                self.shared.end(copy.to, &bytes[..usize::from(copy.bytes)], who);
            }
            !due
        });
        warp.copies = copies;
    }
}

/// A copy on its way.
pub(super) struct Copy {
    lane: u8,
    bytes: u8,
    read: u8,
    group: u32,
    to: u64,
    from: u64,
    pc: usize,
}

/// The operands of an instruction, of which there are so many.
#[inline(always)]
pub(super) fn operands(inst: &Inst, count: usize) -> &[u32] {
    if count > 5 { &inst.more } else { &inst.r[..count] }
}

fn atom(op: Atom, bytes: usize, old: u64, a: u64, b: u64) -> u64 {
    let signed = |value: u64| if bytes == 4 { i64::from(value as u32 as i32) } else { value as i64 };
    match op {
        Atom::Add => old.wrapping_add(a),
        Atom::AddF32 => u64::from((f32::from_bits(old as u32) + f32::from_bits(a as u32)).to_bits()),
        Atom::AddF64 => (f64::from_bits(old) + f64::from_bits(a)).to_bits(),
        Atom::MinU => old.min(a),
        Atom::MaxU => old.max(a),
        Atom::MinS => {
            if signed(old) < signed(a) {
                old
            } else {
                a
            }
        }
        Atom::MaxS => {
            if signed(old) > signed(a) {
                old
            } else {
                a
            }
        }
        Atom::And => old & a,
        Atom::Or => old | a,
        Atom::Xor => old ^ a,
        Atom::Exch => a,
        Atom::Inc => {
            if old >= a {
                0
            } else {
                old + 1
            }
        }
        Atom::Dec => {
            if old == 0 || old > a {
                a
            } else {
                old - 1
            }
        }
        Atom::Cas => {
            if old == a {
                b
            } else {
                old
            }
        }
    }
}
