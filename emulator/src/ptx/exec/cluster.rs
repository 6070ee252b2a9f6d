//! Blocks of a cluster, and their stores into each other's shared memory.
//!
//! A store is made when the blocks next meet at a barrier of the cluster at which its thread has released it, and not before: who reads too
//! early reads what was there.

use super::{memory::lanes, race::Who, warp::Trap};
use crate::ptx::Trouble;

/// Where the number of a block begins in an address of the cluster's shared memory; zero is the own one.
const BLOCK: u32 = 24;

/// A store on its way.
pub(super) struct Remote {
    pub(super) block: usize,
    pub(super) address: u64,
    pub(super) bytes: usize,
    pub(super) value: u64,
    pub(super) who: Who,
    released: bool,
}

/// What a block knows of its cluster.
#[derive(Default)]
pub(super) struct Cluster {
    /// Its number, of so many.
    rank: u32,
    blocks: u32,
    /// Barriers that were passed.
    barriers: u32,
    stores: Vec<Remote>,
}

impl Cluster {
    /// For the next block.
    pub(super) fn reset(&mut self, rank: u32, blocks: u32) {
        self.stores.clear();
        (self.rank, self.blocks, self.barriers) = (rank, blocks, 0);
    }

    /// Addresses of shared memory, as those of other blocks.
    pub(super) fn map(&self, from: &[u32; 32], block: &[u32; 32], mask: u32) -> Result<[u32; 32], Trap> {
        let mut to = [0; 32];
        for lane in lanes(mask) {
            let (from, block) = (from[lane], block[lane]);
            if block >= self.blocks || from >> BLOCK != 0 {
                let what = format!("address {from:#x} of block {block} of a cluster of {}", self.blocks);
                return Err(Trap::new(lane, Trouble::Instruction(what)));
            }
            to[lane] = from | (block + 1) << BLOCK;
        }
        Ok(to)
    }

    /// Begins a store of a lane. `arrived`: lanes that are between arrival and wait.
    pub(super) fn store(
        &mut self,
        address: u64,
        (bytes, count): (usize, usize),
        arrived: u32,
        who: Who,
        value: impl Fn(usize) -> u64,
    ) -> Result<(), Trouble> {
        if self.barriers == 0 {
            let what =
                "a store to another block's shared memory before a barrier of the cluster: it may not have begun";
            return Err(Trouble::Instruction(what.into()));
        }
        if arrived >> who.lane & 1 != 0 {
            let what = "a store to another block's shared memory between an arrival and its wait: neither orders it";
            return Err(Trouble::Instruction(what.into()));
        }
        let block = match (address >> BLOCK) as usize {
            0 => self.rank as usize,
            block => block - 1,
        };
        let inside = address & ((1 << BLOCK) - 1);
        if block >= self.blocks as usize {
            return Err(Trouble::Address { space: "shared", address, bytes: bytes * count, write: true });
        }
        if !inside.is_multiple_of((bytes * count) as u64) {
            return Err(Trouble::Misaligned { space: "shared", address: inside, align: bytes * count });
        }
        for element in 0..count {
            let address = inside + (element * bytes) as u64;
            self.stores.push(Remote { block, address, bytes, value: value(element), who, released: false });
        }
        Ok(())
    }

    /// What these lanes have stored is seen behind the next barrier.
    pub(super) fn release(&mut self, warp: u32, mask: u32) {
        for store in &mut self.stores {
            store.released |= store.who.warp == warp && mask >> store.who.lane & 1 != 0;
        }
    }

    /// Takes what the barrier publishes.
    pub(super) fn published(&mut self) -> Vec<Remote> {
        self.barriers += 1;
        let (released, kept) = std::mem::take(&mut self.stores).into_iter().partition(|it| it.released);
        self.stores = kept;
        released
    }

    /// Who made a store that no barrier has published.
    pub(super) fn lost(&self) -> Option<Who> {
        self.stores.first().map(|it| it.who)
    }
}
