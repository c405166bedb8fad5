//! Memory of the process, which only a caller with the vendor's guarantees about a pointer may touch.

/// Memory that copies read and write. Addresses are those of the process.
pub trait Host: Send + Sync {
    /// Reads from host memory.
    fn read(&self, from: u64, to: &mut [u8]);
    /// Writes to host memory.
    fn write(&self, to: u64, from: &[u8]);
    /// Allocates page-aligned memory with unspecified content; `None` if there is none.
    fn alloc(&self, bytes: u64) -> Option<u64>;
    /// Frees memory from `alloc`.
    fn free(&self, address: u64, bytes: u64);
}
