//! Memory of the emulated device: every access must be in bounds, aligned, of written bytes, and free of
//! races.
//!
//! Addresses are the emulator's own. An allocation's number is in the upper bits, so that an access that
//! leaves its allocation lands in no other, however far it strays within [`SPACE`], and no address is a host
//! address. A large allocation takes several numbers, and only its touched pages use host memory, so offsets
//! beyond 32 bits cost nothing.

mod allocation;
mod races;
mod shared;
mod trace;
mod view;

pub use shared::{SHARED_BASE, SHARED_BYTES};
pub use trace::LastStore;
pub use view::{Space, View, clash};

use crate::fault::{Access, FaultKind, Instruction};
use allocation::Allocation;
use races::Phases;
use shared::Shared;
use std::ops::Range;
use trace::Trace;

/// Bits of an address that count within one allocation.
const SPACE_BITS: u32 = 33;
/// Bytes of address space per number: half of the first number's space lies before its allocation, and at
/// least as much after it.
pub const SPACE: u64 = 1 << SPACE_BITS;
/// Bytes per page of an allocation larger than `SPACE / 2`.
const PAGE: usize = 1 << 16;
/// The first device address, far from null.
const BASE: u64 = 0x1000_0000_0000;
/// Maximum number of simultaneous allocations: addresses stay below 2^47.
const SLOTS: usize = 1 << 13;
/// Devices with distinct addresses.
pub const DEVICES: usize = 8;
/// Maximum number of simultaneous allocations of one device.
const PER_DEVICE: usize = SLOTS / DEVICES;
/// Alignment of allocations, as `cuMemAlloc` and `hipMalloc` promise.
pub const ALIGN: u64 = 256;

/// Device memory.
#[derive(Debug)]
pub struct Memory {
    /// Number of its first slot: every device has its own addresses.
    first: usize,
    slots: Vec<Option<Allocation>>,
    /// For each number, how many numbers back its allocation begins.
    back: Vec<usize>,
    free: Vec<usize>,
    limit: u64,
    used: u64,
    phases: Phases,
    shared: Shared,
    trace: Option<Trace>,
    /// Stores until one is corrupted; 0 for none.
    until_flip: u64,
}

impl Memory {
    /// Creates a device with this many bytes.
    pub fn new(limit: u64) -> Memory {
        Memory::of_device(0, limit)
    }

    /// Creates device number `device` (below [`DEVICES`]) with this many bytes.
    pub fn of_device(device: usize, limit: u64) -> Memory {
        let first = device.min(DEVICES - 1) * PER_DEVICE;
        Memory {
            first,
            slots: Vec::new(),
            back: Vec::new(),
            free: Vec::new(),
            limit,
            used: 0,
            phases: Phases::default(),
            shared: Shared::default(),
            trace: None,
            until_flip: 0,
        }
    }

    /// Adds one wrong store: the nth, counted from 1, stores its value with the lowest bit flipped.
    pub fn with_flipped(self, nth: Option<u64>) -> Memory {
        Memory { until_flip: nth.unwrap_or(0), ..self }
    }

    /// Returns the size of the device in bytes.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Returns the number of allocated bytes.
    pub fn used(&self) -> u64 {
        self.used
    }

    /// Returns the allocations that were not freed: first address and bytes.
    pub fn live(&self) -> Vec<(u64, u64)> {
        let sizes = self.slots.iter().enumerate();
        sizes.filter_map(|(slot, a)| a.as_ref().map(|a| (self.start(slot), a.len as u64))).collect()
    }

    /// Allocates unwritten memory; `None` if the device has too little, or for 0 bytes.
    pub fn alloc(&mut self, bytes: u64) -> Option<u64> {
        if bytes == 0 || self.used.checked_add(bytes)? > self.limit {
            return None;
        }
        let len = usize::try_from(bytes).ok()?;
        // Half of the first number's space lies before the allocation.
        let numbers = usize::try_from(bytes.checked_add(SPACE / 2)?.div_ceil(SPACE)).ok()?;
        let slot = match self.free.pop() {
            Some(slot) if numbers == 1 => slot,
            taken => {
                self.free.extend(taken);
                let slot = self.slots.len();
                if slot + numbers > PER_DEVICE {
                    return None;
                }
                self.slots.resize_with(slot + numbers, || None);
                self.back.extend(0..numbers);
                slot
            }
        };
        self.slots[slot] = Some(Allocation::new(len));
        self.used += bytes;
        Some(self.start(slot))
    }

    /// Frees an allocation; returns false if none begins at the address.
    pub fn release(&mut self, address: u64) -> bool {
        let Some((slot, offset)) = self.split(address) else { return false };
        let Some(found) = self.slots.get_mut(slot) else { return false };
        if offset != 0 {
            return false;
        }
        let Some(allocation) = found.take() else { return false };
        self.used -= allocation.len as u64;
        if let Some(trace) = &mut self.trace {
            trace.forget(address..address + allocation.len as u64);
        }
        // The oldest is reused first, so that a stale address stays wrong for as long as possible. Each
        // number of a large allocation becomes free.
        let mut number = slot;
        while number == slot || self.back.get(number).is_some_and(|back| *back > 0) {
            self.back[number] = 0;
            self.free.insert(0, number);
            number += 1;
        }
        true
    }

    /// Returns the allocation that contains an address: first address and bytes.
    pub fn owner(&self, address: u64) -> Option<(u64, u64)> {
        let (slot, offset) = self.split(address)?;
        let allocation = self.slots.get(slot)?.as_ref()?;
        let len = allocation.len as i64;
        (0..len).contains(&offset).then(|| (self.start(slot), len as u64))
    }

    /// Begins a launch of this many teams: earlier accesses are no races.
    pub fn launch(&mut self, teams: u64) {
        self.phases.launch(teams);
    }

    /// Declares the shared memory of each block of the launch: the addresses of its variables, in order.
    pub fn share(&mut self, variables: &[Range<u32>]) {
        self.shared = Shared::new(variables);
    }

    /// Begins a block whose teams share memory or meet at barriers: `teams` teams, of which `first` is the
    /// first. Its shared memory is unwritten.
    pub fn block(&mut self, first: u64, teams: u64) {
        self.phases.block(first, teams);
        self.shared.forget();
    }

    /// All teams of that block have met: what they did so far is no race with what they do from now on.
    pub fn barrier(&mut self, first: u64, teams: u64) {
        self.phases.barrier(first, teams);
    }

    /// Records from now on which instruction and lane stored each byte ([`Memory::last_store`]). Costs time
    /// and memory.
    pub fn trace_stores(&mut self) {
        self.trace.get_or_insert_default();
    }

    /// Returns the store that wrote a byte, if stores are traced and a kernel wrote it.
    pub fn last_store(&self, address: u64) -> Option<LastStore> {
        self.trace.as_ref()?.last(address)
    }

    /// Called at the end of a launch, however it ended: maps the numbers of [`View::note`] to instructions.
    pub fn explain_stores(
        &mut self,
        entry: &str,
        teams_of_block: u32,
        instruction: impl FnMut(u32) -> Instruction,
    ) {
        if let Some(trace) = &mut self.trace {
            trace.explain(entry, teams_of_block, instruction);
        }
    }

    /// Returns the view of global memory of a team of the launch, from 0, for loads and stores.
    pub fn team(&mut self, team: u64) -> View<'_> {
        let who = self.phases.who(team);
        View { memory: self, who, space: Space::Global }
    }

    /// Copies from the host (`cuMemcpyHtoD`).
    pub fn upload(&mut self, address: u64, from: &[u8]) -> Result<(), FaultKind> {
        if from.is_empty() {
            return Ok(());
        }
        let (allocation, offset) = self.range(Access::Store, address, from.len() as u64)?;
        allocation.each(offset, from.len(), |block, range, at| {
            block.bytes[range.clone()].copy_from_slice(&from[at..at + range.len()]);
            block.written[range].fill(true);
        });
        self.host_wrote(address, from.len() as u64);
        Ok(())
    }

    /// Copies to the host (`cuMemcpyDtoH`). Unwritten bytes are copied too, as devices do: nothing computes
    /// with them.
    pub fn download(&mut self, address: u64, to: &mut [u8]) -> Result<(), FaultKind> {
        if to.is_empty() {
            return Ok(());
        }
        let (allocation, offset) = self.range(Access::Load, address, to.len() as u64)?;
        allocation.each(offset, to.len(), |block, range, at| {
            to[at..at + range.len()].copy_from_slice(&block.bytes[range]);
        });
        Ok(())
    }

    /// Copies within the device; unwritten bytes stay unwritten. The ranges must not overlap.
    pub fn copy(&mut self, to: u64, from: u64, bytes: u64) -> Result<(), FaultKind> {
        if bytes == 0 {
            return Ok(());
        }
        let (allocation, offset) = self.range(Access::Load, from, bytes)?;
        let (mut data, mut written) = (Vec::new(), Vec::new());
        allocation.each(offset, bytes as usize, |block, range, _| {
            data.extend_from_slice(&block.bytes[range.clone()]);
            written.extend_from_slice(&block.written[range]);
        });
        let (allocation, offset) = self.range(Access::Store, to, bytes)?;
        allocation.each(offset, bytes as usize, |block, range, at| {
            block.bytes[range.clone()].copy_from_slice(&data[at..at + range.len()]);
            block.written[range.clone()].copy_from_slice(&written[at..at + range.len()]);
        });
        self.host_wrote(to, bytes);
        Ok(())
    }

    /// Sets bytes (`cuMemsetD8`).
    pub fn fill(&mut self, address: u64, byte: u8, bytes: u64) -> Result<(), FaultKind> {
        if bytes == 0 {
            return Ok(());
        }
        let (allocation, offset) = self.range(Access::Store, address, bytes)?;
        allocation.each(offset, bytes as usize, |block, range, _| {
            block.bytes[range.clone()].fill(byte);
            block.written[range].fill(true);
        });
        self.host_wrote(address, bytes);
        Ok(())
    }

    fn host_wrote(&mut self, address: u64, bytes: u64) {
        if let Some(trace) = &mut self.trace {
            trace.forget(address..address + bytes);
        }
    }

    fn range(
        &mut self,
        access: Access,
        address: u64,
        bytes: u64,
    ) -> Result<(&mut Allocation, usize), FaultKind> {
        let found = self.split(address).and_then(|(slot, offset)| {
            let len = self.slots.get(slot)?.as_ref()?.len as u64;
            let offset = u64::try_from(offset).ok()?;
            (offset <= len && bytes <= len - offset).then_some((slot, offset as usize))
        });
        let Some((slot, offset)) = found else { return Err(self.stray(access, address, bytes)) };
        match self.slots[slot].as_mut() {
            Some(allocation) => Ok((allocation, offset)),
            None => Err(FaultKind::Unimplemented("an allocation that is not there".into())),
        }
    }

    /// Returns where an allocation begins.
    fn start(&self, slot: usize) -> u64 {
        BASE + SPACE * (self.first + slot) as u64 + SPACE / 2
    }

    /// Returns the allocation whose space contains an address, and the offset in it.
    fn split(&self, address: u64) -> Option<(usize, i64)> {
        let above = address.checked_sub(BASE)?;
        let slot = usize::try_from(above >> SPACE_BITS).ok()?.checked_sub(self.first)?;
        let offset = (above & (SPACE - 1)) as i64 - (SPACE / 2) as i64;
        let back = self.back.get(slot).copied().unwrap_or(0);
        (slot < PER_DEVICE).then(|| (slot - back, offset + (back as u64 * SPACE) as i64))
    }

    #[cold]
    fn stray(&self, access: Access, address: u64, bytes: u64) -> FaultKind {
        let nearest = match self.split(address).map(|(slot, offset)| (slot, offset, self.slots.get(slot))) {
            Some((slot, offset, Some(Some(allocation)))) => {
                let len = allocation.len as i64;
                let by = if offset < 0 { -offset } else { (offset + bytes as i64 - len).max(0) };
                let side = if offset < 0 { "before" } else { "past the end of" };
                format!("{by} bytes {side} the allocation of {len} bytes at {:#x}", self.start(slot))
            }
            Some((_, _, Some(None))) => "in memory that was freed".to_owned(),
            _ => "in no allocation".to_owned(),
        };
        FaultKind::OutOfBounds { access, address, size: u32::try_from(bytes).unwrap_or(u32::MAX), nearest }
    }
}

#[cfg(test)]
mod tests;
