//! The elements of one row.

/// The half-open range `start..end` of one row in a packed array. The bounds are `usize`, 64 bits on a 64-bit
/// machine, because the product of a token index and a width may exceed 2³².
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// First element.
    pub start: usize,
    /// One past the last element.
    pub end: usize,
}

impl Span {
    /// The range `start..end`; empty if `end <= start`.
    #[inline(always)]
    pub fn new(start: usize, end: usize) -> Self {
        Span { start, end: if end < start { start } else { end } }
    }

    /// Number of elements.
    #[inline(always)]
    pub fn len(self) -> usize {
        self.end - self.start
    }

    /// Whether the row has no element.
    #[inline(always)]
    pub fn is_empty(self) -> bool {
        self.end == self.start
    }
}
