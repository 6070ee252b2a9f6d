//! A warp: 32 lanes, each with its own place in the code; those at the lowest place run together until others join them.

use super::{
    alu,
    cluster::Cluster,
    compare, cvt, float,
    memory::{Copy, LOCAL, Range, SHARED, lanes, operands},
    race::Who,
    raw,
    registers::{ALL, Constants, Lanes, Registers},
    shared::Shared,
    shuffle,
};
use crate::ptx::{
    Counts, Launch, Memory, Trouble,
    code::{Code, Inst, NONE, Op, Space},
};

/// What went wrong, and for which lane.
pub(super) struct Trap {
    pub(super) lane: usize,
    pub(super) trouble: Trouble,
}

impl Trap {
    pub(super) fn new(lane: usize, trouble: Trouble) -> Self {
        Self { lane, trouble }
    }
}

/// What the warps of a block run with.
pub(super) struct Env<'a> {
    pub(super) code: &'a Code,
    pub(super) constants: &'a Constants,
    pub(super) launch: &'a Launch<'a>,
    pub(super) memory: &'a dyn Memory,
    pub(super) shared: Shared,
    pub(super) cluster: Cluster,
    /// What each instruction touched last.
    pub(super) ranges: Vec<Range>,
    pub(super) local_bytes: usize,
    pub(super) block: [u32; 3],
    /// Barriers that the block has passed.
    pub(super) epoch: u32,
    pub(super) counts: Counts,
    /// Instructions that the block may still run.
    pub(super) left: u64,
}

/// Why a warp stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// All its lanes wait at a barrier of the block: the instruction.
    Barrier(u32),
    /// Of the cluster.
    Cluster(u32),
    Done,
}

/// One warp.
pub(super) struct Warp {
    pub(super) registers: Registers,
    pub(super) local: Vec<u8>,
    /// Copies on their way, and how many groups each lane has ended.
    pub(super) copies: Vec<Copy>,
    pub(super) committed: [u32; 32],
    pub(super) index: u32,
    /// Lanes that there are.
    pub(super) born: u32,
    /// And that have not ended.
    pub(super) live: u32,
    /// Where each lane is.
    pub(super) pcs: [u32; 32],
    /// Lanes that wait for others of the warp, and for the block.
    pub(super) parked: u32,
    pub(super) at_barrier: u32,
    /// Lanes that have arrived at a barrier of the cluster, and not waited there yet.
    pub(super) arrived: u32,
    step: u32,
}

/// What an instruction leaves to the loop around it.
enum Next {
    Go,
    /// Lanes are in different places, or all have gone elsewhere: choose again.
    Choose,
    /// All lanes that live go there.
    Jump(u32),
}

impl Warp {
    pub(super) fn new(code: &Code, index: u32, threads: u32, local_bytes: usize) -> Self {
        let born = if threads >= 32 { ALL } else { (1 << threads) - 1 };
        Self {
            registers: Registers::new(code),
            local: vec![0; 32 * local_bytes],
            copies: Vec::new(),
            committed: [0; 32],
            index,
            born,
            live: born,
            pcs: [0; 32],
            parked: 0,
            at_barrier: 0,
            arrived: 0,
            step: 0,
        }
    }

    /// For the next block.
    pub(super) fn reset(&mut self) {
        self.copies.clear();
        self.committed = [0; 32];
        self.live = self.born;
        self.pcs = [0; 32];
        (self.parked, self.at_barrier, self.arrived, self.step) = (0, 0, 0, 0);
    }

    #[inline(always)]
    pub(super) fn lanes<'a>(&'a mut self, env: &Env<'a>) -> Lanes<'a> {
        Lanes { registers: &mut self.registers, constants: env.constants }
    }

    #[inline(always)]
    pub(super) fn who(&self, env: &Env<'_>, lane: usize, pc: usize) -> Who {
        let when = env.counts.instructions as u32;
        Who { warp: self.index, lane: lane as u32, epoch: env.epoch, step: self.step, at: pc as u32, when }
    }

    /// Runs until all lanes wait for the block, or have ended.
    pub(super) fn run(&mut self, env: &mut Env<'_>) -> Result<Stop, Trap> {
        #[cfg(target_arch = "x86_64")]
        if std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma") {
            // SAFETY: the processor has what the function asks for, just looked up.
            return unsafe { self.run_avx2(env) };
        }
        self.run_lanes(env)
    }

    /// The same, compiled for processors with wide vectors.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,fma")]
    fn run_avx2(&mut self, env: &mut Env<'_>) -> Result<Stop, Trap> {
        self.run_lanes(env)
    }

    #[inline(always)]
    fn run_lanes(&mut self, env: &mut Env<'_>) -> Result<Stop, Trap> {
        loop {
            let (mut pc, active, other) = match self.choose(env)? {
                Ok(chosen) => chosen,
                Err(stop) => return Ok(stop),
            };
            loop {
                let code = env.code;
                let inst = &code.instructions[pc as usize];
                let mask = self.guarded(inst, active);
                env.counts.instructions += 1;
                env.counts.lanes += u64::from(mask.count_ones());
                if env.left == 0 {
                    self.leave(active, pc);
                    return Err(Trap::new(active.trailing_zeros() as usize, Trouble::Steps(0)));
                }
                env.left -= 1;
                if mask == 0 {
                    pc += 1;
                } else {
                    match self.step(env, inst, pc, active, mask).inspect_err(|_| self.leave(active, pc))? {
                        Next::Go => pc += 1,
                        Next::Jump(target) => {
                            pc = target;
                            continue;
                        }
                        Next::Choose => break,
                    }
                }
                // Others wait there: run on together.
                if pc == other {
                    self.leave(active, pc);
                    break;
                }
            }
        }
    }

    /// Notes where lanes are.
    fn leave(&mut self, mask: u32, pc: u32) {
        for lane in lanes(mask) {
            self.pcs[lane] = pc;
        }
    }

    #[inline(always)]
    fn guarded(&self, inst: &Inst, active: u32) -> u32 {
        if inst.guard == NONE {
            return active;
        }
        let p = self.registers.predicate(inst.guard);
        active & if inst.negated { !p } else { p }
    }

    /// The lanes that run next: their place, who they are, and the next place where somebody waits to run.
    #[allow(clippy::type_complexity, reason = "told once, just above")]
    fn choose(&mut self, env: &Env<'_>) -> Result<Result<(u32, u32, u32), Stop>, Trap> {
        let mut runnable = self.live & !self.parked & !self.at_barrier;
        if runnable == 0 {
            if self.live == 0 {
                return Ok(Err(Stop::Done));
            }
            if self.parked == 0 {
                return self.all_wait(env).map(Err);
            }
            runnable = self.unpark(env)?;
        }
        let (mut pc, mut active, mut other) = (u32::MAX, 0, u32::MAX);
        for lane in lanes(runnable) {
            let at = self.pcs[lane];
            if at < pc {
                other = pc;
                (pc, active) = (at, 1 << lane);
            } else if at == pc {
                active |= 1 << lane;
            } else {
                other = other.min(at);
            }
        }
        Ok(Ok((pc, active, other)))
    }

    /// Every lane that there still is waits for the block.
    fn all_wait(&mut self, env: &Env<'_>) -> Result<Stop, Trap> {
        let first = self.live.trailing_zeros() as usize;
        let at = self.pcs[first];
        if let Some(lane) = lanes(self.live).find(|lane| self.pcs[*lane] != at) {
            let (one, two) = (super::marked(at), super::marked(self.pcs[lane]));
            let what = format!("lane {first} of warp {} waits at {one}, lane {lane} at {two}", self.index);
            return Err(Trap::new(first, Trouble::Deadlock(what)));
        }
        let cluster = matches!(env.code.instructions[at as usize].op, Op::ClusterWait);
        debug_assert!(cluster || matches!(env.code.instructions[at as usize].op, Op::Barrier));
        self.at_barrier = 0;
        self.leave(self.live, at + 1);
        if cluster {
            self.arrived = 0;
        }
        Ok(if cluster { Stop::Cluster(at) } else { Stop::Barrier(at) })
    }

    /// Nobody can run, and lanes wait for others of the warp: those whose others have ended go on.
    fn unpark(&mut self, env: &Env<'_>) -> Result<u32, Trap> {
        for lane in lanes(self.parked) {
            let at = self.pcs[lane];
            let group = lanes(self.parked).filter(|it| self.pcs[*it] == at).fold(0, |all, it| all | 1 << it);
            let inst = &env.code.instructions[at as usize];
            if self.needed(env, inst, lane) & self.live & !group == 0 {
                self.parked &= !group;
                return Ok(group);
            }
        }
        let lane = self.parked.trailing_zeros() as usize;
        let at = self.pcs[lane];
        let group = lanes(self.parked).filter(|it| self.pcs[*it] == at).fold(0_u32, |all, it| all | 1 << it);
        let missing = self.needed(env, &env.code.instructions[at as usize], lane) & self.live & !group;
        let elsewhere = lanes(missing)
            .next()
            .map_or(String::new(), |it| format!("; lane {it} waits at {}", super::marked(self.pcs[it])));
        let what = format!("lanes {group:#010x} of warp {} wait here for lanes {missing:#010x}{elsewhere}", self.index);
        Err(Trap::new(lane, Trouble::Deadlock(what)))
    }

    /// The lanes without which an instruction cannot run.
    fn needed(&self, env: &Env<'_>, inst: &Inst, lane: usize) -> u32 {
        let lanes = |place: u32| self.registers.lane32(env.constants, place, lane);
        match inst.op {
            Op::Shfl { both, .. } => lanes(operands(inst, 5 + usize::from(both))[4 + usize::from(both)]),
            Op::Vote { .. } | Op::Redux(_) => lanes(inst.r[2]),
            Op::WarpBarrier => lanes(inst.r[0]),
            _ => ALL,
        }
    }

    /// Gathers the lanes that an instruction of the warp needs. None: they wait.
    fn together(&mut self, env: &Env<'_>, inst: &Inst, pc: u32, active: u32, mask: u32) -> Option<u32> {
        let waiting = lanes(self.parked).filter(|it| self.pcs[*it] == pc).fold(0, |all, it| all | 1 << it);
        let group = mask | waiting;
        let needed = self.needed(env, inst, mask.trailing_zeros() as usize) & self.live;
        if needed & !group == 0 {
            if waiting != 0 || mask != active {
                self.parked &= !waiting;
                self.leave(group | active, pc + 1);
            }
            self.step += 1;
            return Some(group);
        }
        self.parked |= mask;
        self.leave(mask, pc);
        self.leave(active & !mask, pc + 1);
        None
    }

    #[inline(always)]
    fn step(&mut self, env: &mut Env<'_>, inst: &Inst, pc: u32, active: u32, mask: u32) -> Result<Next, Trap> {
        let at = pc as usize;
        let r = &inst.r;
        let l = &mut Lanes { registers: &mut self.registers, constants: env.constants };
        match inst.op {
            Op::Branch(target) => return Ok(self.branch(target, pc, active, mask)),
            Op::Exit => {
                self.live &= !mask;
                self.leave(active & !mask, pc + 1);
                return Ok(Next::Choose);
            }
            Op::Nop => {}
            Op::Mov32 => l.map32(r[0], r[1], mask, |a| a),
            Op::Mov64 => l.map64(r[0], r[1], mask, |a| a),
            Op::Int32(op) => alu::int32(l, op, r, mask),
            Op::Int64(op) => alu::int64(l, op, r, mask),
            Op::Int16(op) => alu::int16(l, op, r, mask),
            Op::Un16(op) => alu::one16(l, op, r, mask),
            Op::Un32(op) => alu::one32(l, op, r, mask),
            Op::Un64(op) => alu::one64(l, op, r, mask),
            Op::Tri32(op) => alu::three32(l, op, r, mask),
            Op::Mad64 => l.three64(r, mask, |a, b, c| a.wrapping_mul(b).wrapping_add(c)),
            Op::MulWide { signed, add } => alu::multiply_wide(l, signed, add, r, mask),
            Op::MulWide16 { signed } => alu::multiply_wide16(l, signed, r, mask),
            Op::Bfi => alu::bfi(l, r, mask),
            Op::Pack(bytes, part) => alu::pack(l, bytes, part, operands(inst, 1 + usize::from(bytes / part)), mask),
            Op::Unpack(bytes, part) => alu::unpack(l, bytes, part, operands(inst, 1 + usize::from(bytes / part)), mask),
            Op::F32(op, mode) => float::float32(l, op, mode, r, mask),
            Op::F64(op, _) => float::float64(l, op, r, mask),
            Op::F32x1(op, mode) => float::one32(l, op, mode, r, mask),
            Op::F64x1(op) => float::one64(l, op, r, mask),
            Op::Fma32(mode) => float::fma32(l, mode, r, mask),
            Op::Fma64(_) => float::fma64(l, r, mask),
            Op::Half(op, half, count) => float::half(l, op, half, count, r, mask),
            Op::HalfFma(half, count) => float::half_fma(l, half, count, r, mask),
            Op::Half1(op, half, count) => float::half_one(l, op, half, count, r, mask),
            Op::Setp(set) => compare::set(l, set, r, mask),
            Op::Sel32 => alu::select(l, false, r, mask),
            Op::Sel64 => alu::select(l, true, r, mask),
            Op::Pred(op) => {
                let bits = alu::logic(op, l.p(r[1]), l.p(r[2]));
                l.put_p(r[0], bits, mask);
            }
            Op::PredNot => l.put_p(r[0], !l.p(r[1]), mask),
            Op::PredMov => l.put_p(r[0], l.p(r[1]), mask),
            Op::PredSet(value) => l.put_p(r[0], if value { ALL } else { 0 }, mask),
            Op::Cvt(cvt) => cvt::convert(l, cvt, r, mask),
            Op::ToGeneric(space) => l.map64(r[0], r[1], mask, |a| a | base(space)),
            Op::FromGeneric(space) => l.map64(r[0], r[1], mask, |a| a & !base(space)),
            Op::Load(ref access) => env.load(self, inst, access, mask, at)?,
            Op::Store(ref access) => env.store(self, inst, access, mask, at)?,
            Op::Atom { op, ref access, returns } => env.atomic(self, inst, (op, access, returns), mask, at)?,
            Op::Copy { bytes, to, from, far, partial } => {
                env.copy(self, inst, (bytes, to, from, far, partial), mask, at)?;
            }
            Op::Commit => lanes(mask).for_each(|lane| self.committed[lane] += 1),
            Op::Wait(younger) => env.wait(self, younger, mask),
            _ => return self.rare(env, inst, pc, active, mask),
        }
        Ok(Next::Go)
    }

    /// What lanes do together, and what is seldom.
    #[inline(always)]
    fn rare(&mut self, env: &mut Env<'_>, inst: &Inst, pc: u32, active: u32, mask: u32) -> Result<Next, Trap> {
        let (at, r) = (pc as usize, &inst.r);
        match inst.op {
            Op::Special(special) => self.special(env, special, r[0], mask),
            Op::LoadParam { .. } => self.load_param(env, inst, mask)?,
            Op::Activemask => self.lanes(env).put32(r[0], [mask; 32], mask),
            Op::Trap => {
                return Err(Trap::new(mask.trailing_zeros() as usize, Trouble::Instruction("a trap".into())));
            }
            Op::ClusterArrive { release } => {
                self.arrive(mask)?;
                if release {
                    env.cluster.release(self.index, mask);
                }
            }
            Op::Mapa => {
                let lanes_of = self.lanes(env);
                let (from, block) = (lanes_of.a32(r[1]), lanes_of.a32(r[2]));
                let to = env.cluster.map(from, block, mask)?;
                self.lanes(env).put32(r[0], to, mask);
            }
            Op::Barrier | Op::ClusterWait => {
                if matches!(inst.op, Op::ClusterWait) && mask & !self.arrived != 0 {
                    let lane = (mask & !self.arrived).trailing_zeros() as usize;
                    return Err(Trap::new(
                        lane,
                        Trouble::Instruction("a wait for the cluster without an arrival".into()),
                    ));
                }
                self.at_barrier |= mask;
                self.leave(mask, pc);
                self.leave(active & !mask, pc + 1);
                raw::fence();
                return Ok(Next::Choose);
            }
            Op::Shfl { .. }
            | Op::Vote { .. }
            | Op::Redux(_)
            | Op::WarpBarrier
            | Op::Movmatrix
            | Op::Ldmatrix { .. }
            | Op::Mma(_) => {
                let Some(group) = self.together(env, inst, pc, active, mask) else { return Ok(Next::Choose) };
                self.collective(env, inst, at, group)?;
                // Lanes that waited run on from here as well.
                return Ok(if group == active { Next::Go } else { Next::Choose });
            }
            _ => {}
        }
        Ok(Next::Go)
    }

    #[inline(always)]
    fn collective(&mut self, env: &mut Env<'_>, inst: &Inst, at: usize, group: u32) -> Result<(), Trap> {
        let first = group.trailing_zeros() as usize;
        match inst.op {
            Op::Shfl { how, both } => {
                shuffle::shuffle(&mut self.lanes(env), how, both, operands(inst, 5 + usize::from(both)), group)
            }
            Op::Vote { how, not } => {
                shuffle::vote(&mut self.lanes(env), how, not, &inst.r, group);
                Ok(())
            }
            Op::Redux(op) => {
                shuffle::reduce(&mut self.lanes(env), op, &inst.r, group);
                Ok(())
            }
            Op::Movmatrix | Op::Ldmatrix { .. } | Op::Mma(_) if group != ALL => Err(Trap::new(
                first,
                Trouble::Instruction(format!("only lanes {group:#010x} take part, and all 32 must")),
            )),
            Op::Movmatrix => {
                shuffle::transpose(&mut self.lanes(env), &inst.r);
                Ok(())
            }
            Op::Ldmatrix { ref access, trans } => env.load_matrices(self, inst, access, trans, at),
            Op::Mma(mma) => {
                super::matrix::multiply(&mut self.lanes(env), inst, mma).map_err(|trouble| Trap::new(first, trouble))
            }
            _ => Ok(()),
        }
    }

    #[inline(always)]
    fn branch(&mut self, target: u32, pc: u32, active: u32, mask: u32) -> Next {
        if mask == self.live {
            return Next::Jump(target);
        }
        self.leave(mask, target);
        self.leave(active & !mask, pc + 1);
        Next::Choose
    }

    /// Arrives at a barrier of the cluster.
    fn arrive(&mut self, mask: u32) -> Result<(), Trap> {
        let again = mask & self.arrived;
        if again != 0 {
            let trouble = Trouble::Instruction("a second arrival at the cluster's barrier before a wait".into());
            return Err(Trap::new(again.trailing_zeros() as usize, trouble));
        }
        self.arrived |= mask;
        raw::fence();
        Ok(())
    }
}

fn base(space: Space) -> u64 {
    match space {
        Space::Shared => SHARED,
        Space::Local => LOCAL,
        Space::Global | Space::Generic | Space::Cluster => 0,
    }
}
