//! Races in shared memory: two threads touch a byte, one of them writes, and nothing orders the two.
//!
//! A barrier of the block orders everything before with everything after. Inside a warp so do `bar.warp.sync` and
//! whatever else its lanes do together. Lanes that write with one instruction are no race.

use crate::ptx::Trouble;

/// A thread at an instruction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Who {
    pub(super) warp: u32,
    pub(super) lane: u32,
    /// Barriers of the block before; counted from one.
    pub(super) epoch: u32,
    /// Barriers of the warp before.
    pub(super) step: u32,
    /// The instruction.
    pub(super) at: u32,
    /// The instructions that the block had run before it, which tell one turn of a loop from the next.
    pub(super) when: u32,
}

impl Who {
    /// Whether nothing orders the two, of which `self` was first.
    fn unordered(self, later: Self) -> bool {
        if self.epoch != later.epoch || self.epoch == 0 {
            return false;
        }
        if self.warp != later.warp { true } else { self.lane != later.lane && self.step == later.step }
    }
}

/// What is known of a byte.
#[derive(Clone, Copy, Default)]
struct Byte {
    writer: Who,
    /// The last reader, and the last of another warp than that.
    readers: [Who; 2],
    /// The last reader of the same warp as the first, but of another lane.
    beside: Who,
    /// A copy is on its way here.
    pending: bool,
}

/// All bytes of a block.
pub(super) struct Race {
    bytes: Vec<Byte>,
}

fn found(earlier: Who, how: &str, later: &str, at: usize) -> Trouble {
    // Places of instructions are filled in where the text is at hand.
    let place = super::marked(earlier.at);
    Trouble::Race(format!(
        "byte {at:#x} of shared memory is {later}, and lane {} of warp {} {how} it at {place}, with nothing that orders the two",
        earlier.lane, earlier.warp
    ))
}

impl Race {
    pub(super) fn new(size: usize) -> Self {
        Self { bytes: vec![Byte::default(); size] }
    }

    pub(super) fn clear(&mut self) {
        self.bytes.fill(Byte::default());
    }

    pub(super) fn read(&mut self, at: usize, bytes: usize, who: Who) -> Result<(), Trouble> {
        for (at, byte) in (at..).zip(&mut self.bytes[at..at + bytes]) {
            if byte.pending || byte.writer.unordered(who) {
                let how = if byte.pending { "is still copying to" } else { "wrote" };
                return Err(found(byte.writer, how, "read here", at));
            }
            byte.note(who);
        }
        Ok(())
    }

    pub(super) fn write(&mut self, at: usize, bytes: usize, who: Who) -> Result<(), Trouble> {
        for (at, byte) in (at..).zip(&mut self.bytes[at..at + bytes]) {
            byte.check_write(at, who)?;
            byte.writer = who;
        }
        Ok(())
    }

    /// A copy begins: from now on, until it has ended, it may write.
    pub(super) fn begin(&mut self, at: usize, bytes: usize, who: Who) -> Result<(), Trouble> {
        for (at, byte) in (at..).zip(&mut self.bytes[at..at + bytes]) {
            byte.check_write(at, who)?;
            (byte.writer, byte.pending) = (who, true);
        }
        Ok(())
    }

    /// A copy has ended, for the thread that waited for it.
    pub(super) fn end(&mut self, at: usize, bytes: usize, who: Who) {
        for byte in &mut self.bytes[at..at + bytes] {
            (byte.writer, byte.pending) = (who, false);
        }
    }
}

impl Byte {
    fn note(&mut self, who: Who) {
        let [last, other] = self.readers;
        if last.warp == who.warp && last.epoch == who.epoch {
            if last.lane != who.lane || self.beside.epoch != who.epoch || self.beside.step != who.step {
                self.beside = last;
            }
        } else if last.epoch == who.epoch {
            self.readers[1] = last;
        } else if other.epoch != who.epoch {
            self.readers[1] = Who::default();
        }
        self.readers[0] = who;
    }

    fn check_write(&self, at: usize, who: Who) -> Result<(), Trouble> {
        if self.pending {
            return Err(found(self.writer, "is still copying to", "written here", at));
        }
        // One instruction of one warp.
        let together = self.writer.warp == who.warp && self.writer.when == who.when;
        if self.writer.unordered(who) && !together {
            return Err(found(self.writer, "wrote", "written here", at));
        }
        for reader in [self.readers[0], self.readers[1], self.beside] {
            if reader.unordered(who) {
                return Err(found(reader, "read", "written here", at));
            }
        }
        Ok(())
    }
}
