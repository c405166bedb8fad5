//! One allocation: its bytes, and what is known of each.

use super::races::Races;
use super::{PAGE, SPACE};
use std::collections::HashMap;
use std::ops::Range;

#[derive(Debug)]
pub(super) struct Allocation {
    pub(super) len: usize,
    /// All of it, or the pages that were touched.
    whole: Option<Block>,
    pages: HashMap<usize, Block>,
}

/// Bytes that lie in one piece on the host.
#[derive(Debug)]
pub(super) struct Block {
    pub(super) bytes: Vec<u8>,
    pub(super) written: Vec<bool>,
    pub(super) races: Races,
}

impl Block {
    fn new(len: usize) -> Block {
        // Not zeros: code that counts on zeros shall not work by chance where the check for written bytes is
        // off.
        Block { bytes: vec![0xa5; len], written: vec![false; len], races: Races::new(len) }
    }
}

impl Allocation {
    pub(super) fn new(len: usize) -> Allocation {
        let whole = (len as u64 <= SPACE / 2).then(|| Block::new(len));
        Allocation { len, whole, pages: HashMap::new() }
    }

    /// The block that holds byte `offset`, and where in it; bytes from there on that lie in the same one.
    #[inline]
    pub(super) fn block(&mut self, offset: usize) -> (&mut Block, usize) {
        match &mut self.whole {
            Some(whole) => (whole, offset),
            None => (self.pages.entry(offset / PAGE).or_insert_with(|| Block::new(PAGE)), offset % PAGE),
        }
    }

    /// Calls `visit` with the blocks of `bytes` bytes from `offset` on: the part of each, and where that is
    /// in the bytes.
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
