//! The shared memory of a block.

use super::race::{Race, Who};
use crate::ptx::Trouble;

/// The bytes, which of them anybody wrote, and who did last.
pub(super) struct Shared {
    bytes: Vec<u8>,
    known: Vec<u8>,
    pub(super) race: Option<Race>,
}

impl Shared {
    pub(super) fn new(size: usize, racecheck: bool) -> Self {
        Self { bytes: vec![0; size], known: vec![0; size], race: racecheck.then(|| Race::new(size)) }
    }

    /// For the next block: nothing is known.
    pub(super) fn clear(&mut self) {
        self.known.fill(0);
        if let Some(race) = &mut self.race {
            race.clear();
        }
    }

    /// Where an access lies, if it is inside and aligned.
    #[inline(always)]
    fn place(&self, address: u64, bytes: usize, align: usize, write: bool) -> Result<usize, Trouble> {
        let size = self.bytes.len() as u64;
        if address > size || size - address < bytes as u64 {
            return Err(Trouble::Address { space: "shared", address, bytes, write });
        }
        if !address.is_multiple_of(align as u64) {
            return Err(Trouble::Misaligned { space: "shared", address, align });
        }
        Ok(address as usize)
    }

    /// Checks an access that reads, of one or more elements.
    #[inline(always)]
    pub(super) fn read(&mut self, address: u64, bytes: usize, who: Who) -> Result<usize, Trouble> {
        let at = self.place(address, bytes, bytes, false)?;
        if let Some(unknown) = self.known[at..at + bytes].iter().position(|it| *it == 0) {
            return Err(Trouble::Uninitialised { address: address + unknown as u64 });
        }
        if let Some(race) = &mut self.race {
            race.read(at, bytes, who)?;
        }
        Ok(at)
    }

    /// Checks a load of matrices. Kernels load fragments ahead that they may never use: what nobody wrote is read as NaN of every
    /// format, so that it shows in whatever is computed from it.
    pub(super) fn read_ahead(&mut self, address: u64, bytes: usize, who: Who) -> Result<usize, Trouble> {
        let at = self.place(address, bytes, bytes, false)?;
        for (byte, known) in self.bytes[at..at + bytes].iter_mut().zip(&self.known[at..at + bytes]) {
            *byte = if *known == 0 { 0xff } else { *byte };
        }
        if let Some(race) = &mut self.race {
            race.read(at, bytes, who)?;
        }
        Ok(at)
    }

    /// Checks an access that writes.
    #[inline(always)]
    pub(super) fn write(&mut self, address: u64, bytes: usize, who: Who) -> Result<usize, Trouble> {
        let at = self.place(address, bytes, bytes, true)?;
        self.known[at..at + bytes].fill(1);
        if let Some(race) = &mut self.race {
            race.write(at, bytes, who)?;
        }
        Ok(at)
    }

    /// Checks an atomic, which reads and writes and races with nobody.
    pub(super) fn atomic(&mut self, address: u64, bytes: usize) -> Result<usize, Trouble> {
        let at = self.place(address, bytes, bytes, true)?;
        match self.known[at..at + bytes].iter().position(|it| *it == 0) {
            Some(unknown) => Err(Trouble::Uninitialised { address: address + unknown as u64 }),
            None => Ok(at),
        }
    }

    /// Checks where a copy that is only begun will write.
    pub(super) fn begin(&mut self, address: u64, bytes: usize, who: Who) -> Result<(), Trouble> {
        let at = self.place(address, bytes, bytes, true)?;
        match &mut self.race {
            Some(race) => race.begin(at, bytes, who),
            None => Ok(()),
        }
    }

    /// Ends a copy.
    pub(super) fn end(&mut self, address: u64, bytes: &[u8], who: Who) {
        let at = address as usize;
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
        self.known[at..at + bytes.len()].fill(1);
        if let Some(race) = &mut self.race {
            race.end(at, bytes.len(), who);
        }
    }

    #[inline(always)]
    pub(super) fn get(&self, at: usize, bytes: usize) -> u64 {
        let mut value = [0; 8];
        match bytes {
            4 => value[..4].copy_from_slice(&self.bytes[at..at + 4]),
            8 => value.copy_from_slice(&self.bytes[at..at + 8]),
            2 => value[..2].copy_from_slice(&self.bytes[at..at + 2]),
            _ => value[0] = self.bytes[at],
        }
        u64::from_le_bytes(value)
    }

    #[inline(always)]
    pub(super) fn set(&mut self, at: usize, bytes: usize, value: u64) {
        match bytes {
            4 => self.bytes[at..at + 4].copy_from_slice(&(value as u32).to_le_bytes()),
            8 => self.bytes[at..at + 8].copy_from_slice(&value.to_le_bytes()),
            2 => self.bytes[at..at + 2].copy_from_slice(&(value as u16).to_le_bytes()),
            _ => self.bytes[at] = value as u8,
        }
    }
}
