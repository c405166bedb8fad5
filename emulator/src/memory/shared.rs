//! The shared memory of a block of teams.

use super::allocation::Block;
use crate::fault::{Access, FaultKind};
use std::ops::Range;

/// Where the variables begin, as on sm_90: code that takes the first address for 0 is caught.
pub const SHARED_BASE: u32 = 0x400;
/// Maximum number of bytes of an entry point's variables.
pub const SHARED_BYTES: u32 = 48 << 10;

/// Variables and their bytes.
#[derive(Debug)]
pub(super) struct Shared {
    /// Addresses, increasing.
    variables: Vec<Range<u32>>,
    block: Block,
}

impl Default for Shared {
    fn default() -> Self {
        Shared::new(&[])
    }
}

impl Shared {
    pub(super) fn new(variables: &[Range<u32>]) -> Shared {
        let len = variables.last().map_or(0, |last| last.end.saturating_sub(SHARED_BASE));
        Shared { variables: variables.to_vec(), block: Block::new(len as usize) }
    }

    /// Marks all bytes as unwritten. Stamps of earlier blocks need no clearing.
    pub(super) fn forget(&mut self) {
        self.block.written.fill(false);
    }

    /// Returns the bytes, and the position of an access that lies in one variable.
    #[inline]
    pub(super) fn range(
        &mut self,
        access: Access,
        address: u64,
        size: usize,
    ) -> Result<(&mut Block, usize), FaultKind> {
        let inside = |variable: &Range<u32>| {
            let (start, end) = (u64::from(variable.start), u64::from(variable.end));
            address >= start && address < end && size as u64 <= end - address
        };
        if self.variables.iter().any(inside) {
            return Ok((&mut self.block, (address - u64::from(SHARED_BASE)) as usize));
        }
        Err(self.stray(access, address, size))
    }

    #[cold]
    fn stray(&self, access: Access, address: u64, size: usize) -> FaultKind {
        let before = self.variables.iter().rfind(|variable| u64::from(variable.start) <= address);
        let nearest = match before.or(self.variables.first()) {
            None => "in no shared variable".to_owned(),
            Some(Range { start, end }) => {
                let (first, last) = (u64::from(*start), u64::from(*end));
                let (by, side) = match first.checked_sub(address) {
                    Some(by) if by > 0 => (by, "before"),
                    _ => (address.saturating_add(size as u64) - last, "past the end of"),
                };
                format!("{by} bytes {side} the shared variable of {} bytes at {start:#x}", end - start)
            }
        };
        FaultKind::OutOfBounds { access, address, size: size as u32, nearest }
    }
}
