//! Memory of the process, for copies.

use lockstep_emulator::runtime::Host;
use std::alloc::{Layout, alloc, dealloc};
use std::ptr::{with_exposed_provenance, with_exposed_provenance_mut};

/// Alignment of pinned memory.
const PAGE: usize = 4096;
/// Initial content of pinned memory: nobody may rely on zeros.
const GARBAGE: u8 = 0xa5;

/// Memory of this process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProcessMemory;

fn layout(bytes: u64) -> Option<Layout> {
    Layout::from_size_align(usize::try_from(bytes).ok().filter(|bytes| *bytes > 0)?, PAGE).ok()
}

impl Host for ProcessMemory {
    fn read(&self, from: u64, to: &mut [u8]) {
        let from = with_exposed_provenance::<u8>(from as usize);
        // SAFETY: whoever queued the copy vouched for the source until its stream is waited for; pinned
        // memory was exposed by `alloc`, other memory when its pointer came through the API.
        unsafe { from.copy_to_nonoverlapping(to.as_mut_ptr(), to.len()) };
    }

    fn write(&self, to: u64, from: &[u8]) {
        let to = with_exposed_provenance_mut::<u8>(to as usize);
        // SAFETY: as above, for the target.
        unsafe { to.copy_from_nonoverlapping(from.as_ptr(), from.len()) };
    }

    fn alloc(&self, bytes: u64) -> Option<u64> {
        let layout = layout(bytes)?;
        // SAFETY: not of size zero.
        let memory = unsafe { alloc(layout) };
        if memory.is_null() {
            return None;
        }
        // SAFETY: just allocated, of this size.
        unsafe { memory.write_bytes(GARBAGE, layout.size()) };
        Some(memory.expose_provenance() as u64)
    }

    fn free(&self, address: u64, bytes: u64) {
        if let Some(layout) = layout(bytes) {
            // SAFETY: the machine frees what `alloc` gave it, once, with its size.
            unsafe { dealloc(with_exposed_provenance_mut(address as usize), layout) };
        }
    }
}
