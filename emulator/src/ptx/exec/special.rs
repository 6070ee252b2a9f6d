//! What a thread knows of itself and its launch: special registers, and parameters.

use super::warp::{Env, Trap, Warp};
use crate::ptx::{
    Trouble,
    code::{Inst, Op, Special},
};

impl Warp {
    pub(super) fn special(&mut self, env: &Env<'_>, special: Special, d: u32, mask: u32) {
        let block = env.launch.block;
        let first = self.index * 32;
        let thread = |lane: u32| {
            let thread = first + lane;
            [thread % block[0], thread / block[0] % block[1], thread / block[0] / block[1]]
        };
        let lanes_below = |lane: u32| (1_u32 << lane) - 1;
        let values: [u32; 32] = std::array::from_fn(|lane| {
            let lane = lane as u32;
            match special {
                Special::Tid(axis) => thread(lane)[usize::from(axis)],
                Special::Ntid(axis) => block[usize::from(axis)],
                Special::Ctaid(axis) => env.block[usize::from(axis)],
                Special::Nctaid(axis) => env.launch.grid[usize::from(axis)],
                Special::Lane => lane,
                Special::Warp => self.index,
                Special::Warps => (block[0] * block[1] * block[2]).div_ceil(32),
                Special::LaneMask(0) => 1 << lane,
                Special::LaneMask(1) => lanes_below(lane) | 1 << lane,
                Special::LaneMask(2) => lanes_below(lane),
                Special::LaneMask(3) => !lanes_below(lane),
                Special::LaneMask(_) => !lanes_below(lane) & !(1 << lane),
                Special::Clock | Special::Clock64 => env.counts.instructions as u32,
                Special::Zero => 0,
            }
        });
        if special == Special::Clock64 {
            self.lanes(env).put64(d, [env.counts.instructions; 32], mask);
        } else {
            self.lanes(env).put32(d, values, mask);
        }
    }

    pub(super) fn load_param(&mut self, env: &Env<'_>, inst: &Inst, mask: u32) -> Result<(), Trap> {
        let Op::LoadParam { offset, bytes, wide, signed } = inst.op else { return Ok(()) };
        let (at, size) = (offset as usize, usize::from(bytes));
        let Some(source) = env.launch.params.get(at..at + size) else {
            let first = mask.trailing_zeros() as usize;
            let trouble = Trouble::Address { space: "param", address: u64::from(offset), bytes: size, write: false };
            return Err(Trap::new(first.min(31), trouble));
        };
        let mut value = [0; 8];
        value[..size].copy_from_slice(source);
        let shift = 64 - 8 * u32::from(bytes);
        let value = u64::from_le_bytes(value);
        let value = if signed { ((value << shift) as i64 >> shift) as u64 } else { value };
        let d = inst.r[0];
        if wide {
            self.lanes(env).put64(d, [value; 32], mask);
        } else {
            self.lanes(env).put32(d, [value as u32; 32], mask);
        }
        Ok(())
    }
}
