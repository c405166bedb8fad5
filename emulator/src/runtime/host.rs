//! Memory of the process: only who has the vendor's promise about a pointer may touch it.

/// What copies read and write. Addresses are those of the process.
pub trait Host: Send + Sync {
    /// Reads from host memory.
    fn read(&self, from: u64, to: &mut [u8]);
    /// Writes to host memory.
    fn write(&self, to: u64, from: &[u8]);
    /// New page-aligned memory, which holds nothing in particular; none if there is none.
    fn alloc(&self, bytes: u64) -> Option<u64>;
    /// Gives back what `alloc` gave.
    fn free(&self, address: u64, bytes: u64);
}
