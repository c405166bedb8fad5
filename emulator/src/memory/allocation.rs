//! One allocation: its bytes, and the state of each.

use super::races::Races;
use super::{PAGE, SPACE};
use std::collections::HashMap;
use std::ops::Range;

#[derive(Debug)]
pub(super) struct Allocation {
    pub(super) len: usize,
    /// All of it, or the pages touched so far.
    whole: Option<Block>,
    pages: HashMap<usize, Block>,
}

/// Bytes that are contiguous on the host.
#[derive(Debug)]
pub(super) struct Block {
    pub(super) bytes: Vec<u8>,
    pub(super) written: Vec<bool>,
    pub(super) races: Races,
}

impl Block {
    pub(super) fn new(len: usize) -> Block {
        // Not zeros: code that relies on zeros must not work by chance when the check for written bytes is
        // off.
        Block { bytes: vec![0xa5; len], written: vec![false; len], races: Races::new(len) }
    }
}

impl Allocation {
    pub(super) fn new(len: usize) -> Allocation {
        let whole = (len as u64 <= SPACE / 2).then(|| Block::new(len));
        Allocation { len, whole, pages: HashMap::new() }
    }

    /// Returns the block that contains byte `offset`, and the position of the byte in it.
    #[inline]
    pub(super) fn block(&mut self, offset: usize) -> (&mut Block, usize) {
        match &mut self.whole {
            Some(whole) => (whole, offset),
            None => (self.pages.entry(offset / PAGE).or_insert_with(|| Block::new(PAGE)), offset % PAGE),
        }
    }

    /// Calls `visit` with each block of the `bytes` bytes from `offset` on: the part in the block, and its
    /// position in the bytes.
    pub(super) fn each(
        &mut self,
        offset: usize,
        bytes: usize,
        mut visit: impl FnMut(&mut Block, Range<usize>, usize),
    ) {
        let mut done = 0;
        while done < bytes {
            let (block, at) = self.block(offset + done);
            let here = (block.bytes.len() - at).min(bytes - done);
            visit(block, at..at + here, done);
            done += here;
        }
    }
}
