//! Views of a kernel's arguments: what it reads and what it writes.
//!
//! Inputs are shared slices, outputs slices of cells (the rows of one launch hold the same output and each writes
//! its own part). Both are bounded; a backend that takes whole rows at once pays one bounds check per row.

use super::Span;
use core::cell::Cell;

/// An input array.
#[derive(Debug)]
pub struct In<'a, T>(&'a [T]);

impl<T> Clone for In<'_, T> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for In<'_, T> {}

impl<'a, T: Copy> In<'a, T> {
    /// Views `values`.
    #[inline(always)]
    pub fn new(values: &'a [T]) -> Self {
        In(values)
    }

    /// Number of elements.
    #[inline(always)]
    pub fn len(self) -> usize {
        self.0.len()
    }

    /// Whether there are no elements.
    #[inline(always)]
    pub fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    /// Element `i`.
    #[inline(always)]
    pub fn at(self, i: usize) -> T {
        self.0[i]
    }

    /// The elements of a row.
    #[inline(always)]
    pub fn row(self, span: Span) -> &'a [T] {
        &self.0[span.start..span.end]
    }
}

/// An output array. Not `Sync`: who runs rows in parallel vouches that they write different elements.
pub struct Out<'a, T>(&'a [Cell<T>]);

impl<T> Clone for Out<'_, T> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Out<'_, T> {}
impl<T> core::fmt::Debug for Out<'_, T> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Out[{}]", self.0.len())
    }
}

impl<'a, T: Copy> Out<'a, T> {
    /// Views `values` for writing.
    #[inline(always)]
    pub fn new(values: &'a mut [T]) -> Self {
        Out(Cell::from_mut(values).as_slice_of_cells())
    }

    /// Number of elements.
    #[inline(always)]
    pub fn len(self) -> usize {
        self.0.len()
    }

    /// Whether there are no elements.
    #[inline(always)]
    pub fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    /// Writes element `i`.
    #[inline(always)]
    pub fn put(self, i: usize, value: T) {
        self.0[i].set(value);
    }

    /// The elements of a row.
    #[inline(always)]
    pub fn row(self, span: Span) -> &'a [Cell<T>] {
        &self.0[span.start..span.end]
    }
}

/// An `f32` input of a sweep: an array with one element per token, or one constant for the whole row (an absent
/// optional argument, a value per sequence).
#[derive(Clone, Copy, Debug)]
pub enum Stream<'a> {
    /// One element per token.
    Array(In<'a, f32>),
    /// The same value for every token.
    Constant(f32),
}

impl<'a> Stream<'a> {
    /// The array if there is one, otherwise `absent` everywhere.
    #[inline(always)]
    pub fn or(array: Option<In<'a, f32>>, absent: f32) -> Self {
        match array {
            Some(array) => Stream::Array(array),
            None => Stream::Constant(absent),
        }
    }

    /// Element `i`.
    #[inline(always)]
    pub fn at(self, i: usize) -> f32 {
        match self {
            Stream::Array(array) => array.at(i),
            Stream::Constant(value) => value,
        }
    }
}

/// An `f32` output of a sweep that the caller may not want.
pub type Sink<'a> = Option<Out<'a, f32>>;
