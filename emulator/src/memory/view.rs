//! Loads and stores of a team.

use super::Memory;
use super::allocation::Block;
use super::races::Who;
use crate::fault::{Access, FaultKind};

/// An address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Space {
    /// Of the device.
    Global,
    /// Of a block of teams.
    Shared,
}

/// Memory as one team of a launch sees it.
#[derive(Debug)]
pub struct View<'m> {
    pub(super) memory: &'m mut Memory,
    pub(super) who: Who,
    pub(super) space: Space,
}

impl View<'_> {
    /// Returns the same team's view of another address space.
    #[inline]
    pub fn of(&mut self, space: Space) -> View<'_> {
        View { memory: self.memory, who: self.who, space }
    }

    /// Returns the address space.
    #[inline]
    pub fn space(&self) -> Space {
        self.space
    }

    /// Loads `N` bytes (1, 2, 4, 8 or 16), in memory order.
    #[inline]
    pub fn load<const N: usize>(&mut self, address: u64) -> Result<[u8; N], FaultKind> {
        let (block, at, who) = self.place(Access::Load, address, N)?;
        let range = at..at + N;
        if let Some(byte) = block.written[range.clone()].iter().position(|written| !written) {
            return Err(FaultKind::Unwritten { address, size: N as u32, byte: byte as u32 });
        }
        if let Some(other) = block.races.read(range.clone(), who) {
            return Err(self.race(Access::Load, address, N, other));
        }
        let mut value = [0; N];
        value.copy_from_slice(&block.bytes[range]);
        Ok(value)
    }

    /// Stores `N` bytes (1, 2, 4, 8 or 16).
    #[inline]
    pub fn store<const N: usize>(&mut self, address: u64, mut value: [u8; N]) -> Result<(), FaultKind> {
        // A wrong store is one of global memory: every check of results sees it.
        if self.memory.until_flip > 0 && self.space == Space::Global {
            self.memory.until_flip -= 1;
            value[0] ^= u8::from(self.memory.until_flip == 0);
        }
        let (block, at, who) = self.place(Access::Store, address, N)?;
        let range = at..at + N;
        if let Some(other) = block.races.write(range.clone(), who) {
            return Err(self.race(Access::Store, address, N, other));
        }
        block.written[range.clone()].fill(true);
        block.bytes[range].copy_from_slice(&value);
        Ok(())
    }

    /// Returns where an access of `size` bytes lies, and who makes it.
    #[inline(always)]
    fn place(
        &mut self,
        access: Access,
        address: u64,
        size: usize,
    ) -> Result<(&mut Block, usize, Who), FaultKind> {
        if !address.is_multiple_of(size as u64) {
            return Err(FaultKind::Misaligned { access, address, size: size as u32 });
        }
        if self.space == Space::Shared {
            let (block, at) = self.memory.shared.range(access, address, size)?;
            return Ok((block, at, self.who.in_block()));
        }
        let (allocation, offset) = self.memory.range(access, address, size as u64)?;
        // Aligned, so within one page.
        let (block, at) = allocation.block(offset);
        Ok((block, at, self.who))
    }

    #[cold]
    fn race(
        &self,
        access: Access,
        address: u64,
        size: usize,
        (stamp, did): (u64, &'static str),
    ) -> FaultKind {
        let other = u32::try_from(self.memory.phases.team(stamp)).unwrap_or(u32::MAX);
        FaultKind::Race { access, address, size: size as u32, other, did }
    }

    /// Returns whether stores are traced: those to global memory.
    #[inline]
    pub fn traced(&self) -> bool {
        self.memory.trace.is_some() && self.space == Space::Global
    }

    /// Records that a lane stored with instruction number `at`, if stores are traced.
    pub fn note(&mut self, address: u64, size: u32, lane: u32, at: u32) {
        if let Some(trace) = &mut self.memory.trace {
            trace.note(address, size, self.who.team, lane, at);
        }
    }
}

/// Checks that two lanes that store to one address in one instruction store the same. `stores` holds `(lane,
/// address, bytes)`.
pub fn clash(stores: &[(u32, u64, [u8; 16])], size: u32) -> Result<(), (u32, FaultKind)> {
    let increasing = stores.windows(2).all(|pair| pair[0].1 + u64::from(size) <= pair[1].1);
    if increasing {
        return Ok(());
    }
    for (at, (lane, address, value)) in stores.iter().enumerate() {
        for (other, theirs, bytes) in &stores[..at] {
            let overlap = *address < theirs + u64::from(size) && *theirs < address + u64::from(size);
            if overlap && (address != theirs || value[..size as usize] != bytes[..size as usize]) {
                return Err((*lane, FaultKind::Clash { address: *address, size, other: *other }));
            }
        }
    }
    Ok(())
}
