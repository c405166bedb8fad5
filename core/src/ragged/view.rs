//! Views of a kernel's arguments: what it reads and what it writes.
//!
//! A view is an address, a length and the lifetime of the memory. Made from a slice it is always safe; made
//! from an address ([`In::from_raw`]) it may point to memory that only a device can reach. On a CPU every
//! access is bounds-checked (a backend that takes whole rows at once pays one check per row). A GPU has no
//! way to report a failure: lengths are checked before the launch, offsets by the `check` ops.

use super::Span;
use crate::num::Storage;
use core::cell::Cell;
use core::marker::PhantomData;

/// Whether accesses are bounds-checked: everywhere but on a GPU, which cannot report a failure.
const CHECKED: bool = cfg!(not(any(target_arch = "nvptx64", target_arch = "amdgpu")));

/// An input array.
pub struct In<'a, T> {
    first: *const T,
    len: usize,
    lifetime: PhantomData<&'a [T]>,
}

impl<T> Clone for In<'_, T> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for In<'_, T> {}
impl<T> core::fmt::Debug for In<'_, T> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "In[{}]", self.len)
    }
}

// SAFETY: an `In` is equivalent to a shared slice.
#[allow(unsafe_code)]
unsafe impl<T: Sync> Send for In<'_, T> {}
// SAFETY: as above.
#[allow(unsafe_code)]
unsafe impl<T: Sync> Sync for In<'_, T> {}

#[allow(unsafe_code)]
impl<'a, T: Copy> In<'a, T> {
    /// Views `values`.
    #[inline(always)]
    pub fn new(values: &'a [T]) -> Self {
        In { first: values.as_ptr(), len: values.len(), lifetime: PhantomData }
    }

    /// Views `len` elements at `first`.
    ///
    /// # Safety
    /// For `'a`, `first` is aligned and readable for `len` elements by every backend that receives the view,
    /// and nothing writes there. A view of a GPU's memory may only be passed to that GPU.
    #[inline(always)]
    pub const unsafe fn from_raw(first: *const T, len: usize) -> Self {
        In { first, len, lifetime: PhantomData }
    }

    /// Address of the first element.
    #[inline(always)]
    pub fn as_ptr(self) -> *const T {
        self.first
    }

    /// Number of elements.
    #[inline(always)]
    pub fn len(self) -> usize {
        self.len
    }

    /// Whether there are no elements.
    #[inline(always)]
    pub fn is_empty(self) -> bool {
        self.len == 0
    }

    /// The elements of `span` as a separate view.
    #[inline(always)]
    pub fn part(self, span: Span) -> Self {
        if CHECKED {
            assert!(span.start <= span.end && span.end <= self.len, "part {span:?} of {}", self.len);
        }
        // SAFETY: inside this view, or guaranteed by the launcher of the kernel.
        In { first: unsafe { self.first.add(span.start) }, len: span.len(), lifetime: PhantomData }
    }

    /// Element `i`.
    #[inline(always)]
    pub fn at(self, i: usize) -> T {
        if CHECKED {
            assert!(i < self.len, "element {i} of {}", self.len);
        }
        // SAFETY: in bounds, as checked above or guaranteed by the launcher of the kernel (see the module
        // docs); readable by the contract of the constructor.
        unsafe { *self.first.add(i) }
    }

    /// The elements of a row as a slice.
    #[inline(always)]
    pub fn row(self, span: Span) -> &'a [T] {
        assert!(span.start <= span.end && span.end <= self.len, "row {span:?} of {}", self.len);
        // SAFETY: in bounds; readable for 'a and not written, by the contract of the constructor.
        unsafe { core::slice::from_raw_parts(self.first.add(span.start), span.len()) }
    }
}

#[allow(unsafe_code)]
impl<'a> In<'a, u8> {
    /// The elements of `span` as the bytes before the first aligned word, whole words, and the bytes after
    /// them; of either bytes there are at most three.
    #[inline(always)]
    pub fn words(self, span: Span) -> (Span, In<'a, u32>, Span) {
        let before = self.first.addr().wrapping_add(span.start).wrapping_neg() % 4;
        let start = span.start + if before < span.len() { before } else { span.len() };
        let end = span.end - (span.end - start) % 4;
        let whole = self.part(Span::new(start, end));
        let words = In { first: whole.first.cast(), len: whole.len / 4, lifetime: PhantomData };
        (Span::new(span.start, start), words, Span::new(end, span.end))
    }
}

impl<'a> In<'a, u32> {
    /// Views the bit patterns of `values`: token ids as tokenizers store them.
    #[inline(always)]
    pub fn bits_of(values: &'a [i32]) -> Self {
        In { first: values.as_ptr().cast(), len: values.len(), lifetime: PhantomData }
    }

    /// The same bits as `f32`, for a sweep, which reads `f32`. Only the bits may be used.
    #[inline(always)]
    pub fn as_numbers(self) -> In<'a, f32> {
        In { first: self.first.cast(), len: self.len, lifetime: PhantomData }
    }
}

/// An output array, as a launch argument: the only handle to its elements.
///
/// It cannot be copied, so two outputs of a kernel never alias, and it is not `Sync`: code that runs rows in
/// parallel relies on the promise that rows write different elements
/// ([`DisjointRows`](crate::op::DisjointRows)).
///
/// ```compile_fail,E0382
/// use lockstep_core::ragged::Out;
/// let mut values = [0.0_f32; 4];
/// let out = Out::new(&mut values);
/// let (first, second) = (out, out); // two outputs over one array
/// ```
pub struct Out<'a, T>(Cells<'a, T>);

impl<T> core::fmt::Debug for Out<'_, T> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Out[{}]", self.len)
    }
}

impl<'a, T> core::ops::Deref for Out<'a, T> {
    type Target = Cells<'a, T>;
    #[inline(always)]
    fn deref(&self) -> &Cells<'a, T> {
        &self.0
    }
}

#[allow(unsafe_code)]
impl<'a, T: Copy> Out<'a, T> {
    /// Views `values` for writing.
    #[inline(always)]
    pub fn new(values: &'a mut [T]) -> Self {
        let cells = Cell::from_mut(values).as_slice_of_cells();
        Out(Cells { first: cells.as_ptr(), len: cells.len(), lifetime: PhantomData })
    }

    /// Views `len` elements at `first` for writing.
    ///
    /// # Safety
    /// For `'a`, `first` is aligned and writable for `len` elements by every backend that receives the view,
    /// and nothing else reads or writes there. A view of a GPU's memory may only be passed to that GPU.
    #[inline(always)]
    pub const unsafe fn from_raw(first: *mut T, len: usize) -> Self {
        Out(Cells { first: first.cast(), len, lifetime: PhantomData })
    }
}

/// The elements of an [`Out`], as a row of a kernel writes them. Unlike an [`Out`] it can be copied and is
/// not a launch argument.
pub struct Cells<'a, T> {
    first: *const Cell<T>,
    len: usize,
    lifetime: PhantomData<&'a [Cell<T>]>,
}

impl<T> Clone for Cells<'_, T> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Cells<'_, T> {}
impl<T> core::fmt::Debug for Cells<'_, T> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Cells[{}]", self.len)
    }
}

#[allow(unsafe_code)]
impl<'a, T: Copy> Cells<'a, T> {
    /// Address of the first element.
    #[inline(always)]
    pub fn as_ptr(self) -> *mut T {
        self.first.cast_mut().cast()
    }

    /// Number of elements.
    #[inline(always)]
    pub fn len(self) -> usize {
        self.len
    }

    /// Whether there are no elements.
    #[inline(always)]
    pub fn is_empty(self) -> bool {
        self.len == 0
    }

    /// The elements of `span` as a separate view.
    #[inline(always)]
    pub fn part(self, span: Span) -> Self {
        if CHECKED {
            assert!(span.start <= span.end && span.end <= self.len, "part {span:?} of {}", self.len);
        }
        // SAFETY: inside this view, or guaranteed by the launcher of the kernel.
        Cells { first: unsafe { self.first.add(span.start) }, len: span.len(), lifetime: PhantomData }
    }

    /// Writes element `i`.
    #[inline(always)]
    pub fn put(self, i: usize, value: T) {
        if CHECKED {
            assert!(i < self.len, "element {i} of {}", self.len);
        }
        // SAFETY: in bounds, as checked above or guaranteed by the launcher of the kernel; writable by the
        // contract of the constructor. Written through a raw pointer, because no reference to a GPU's memory
        // may exist.
        unsafe { self.as_ptr().add(i).write(value) };
    }

    /// Writes element `i`, an index that comes from data, in a row that owns the elements of `span`. On a CPU
    /// it panics if `i` is outside `span`, so another row's element is never written.
    #[inline(always)]
    pub fn put_in(self, span: Span, i: usize, value: T) {
        if CHECKED {
            assert!(span.start <= i && i < span.end, "element {i} of a row that owns {span:?}");
        }
        self.put(i, value);
    }

    /// Reads element `i`, which the same thread of the same row must have written before: writes of other
    /// threads need not be visible.
    #[inline(always)]
    pub fn get(self, i: usize) -> T {
        if CHECKED {
            assert!(i < self.len, "element {i} of {}", self.len);
        }
        // SAFETY: in bounds as above; whatever is writable is readable.
        unsafe { *self.as_ptr().add(i) }
    }

    /// The elements of a row as a slice of cells.
    #[inline(always)]
    pub fn row(self, span: Span) -> &'a [Cell<T>] {
        assert!(span.start <= span.end && span.end <= self.len, "row {span:?} of {}", self.len);
        // SAFETY: in bounds; writable for 'a by the contract of the constructor; cells may be shared.
        unsafe { core::slice::from_raw_parts(self.first.add(span.start), span.len()) }
    }
}

/// An input of a sweep, which reads it as `f32`: an array with one element per token, or one constant for the
/// whole row (an absent optional argument, a per-sequence value).
#[derive(Clone, Copy, Debug)]
pub enum Stream<'a, S = f32> {
    /// One element per token.
    Array(In<'a, S>),
    /// The same value for every token.
    Constant(f32),
}

impl<'a, S: Storage> Stream<'a, S> {
    /// The array if present, otherwise the constant `absent`.
    #[inline(always)]
    pub fn or(array: Option<In<'a, S>>, absent: f32) -> Self {
        match array {
            Some(array) => Stream::Array(array),
            None => Stream::Constant(absent),
        }
    }

    /// Element `i`.
    #[inline(always)]
    pub fn at(self, i: usize) -> f32 {
        match self {
            Stream::Array(array) => array.at(i).widen(),
            Stream::Constant(value) => value,
        }
    }
}

/// An output of a sweep that the caller may omit.
pub type Sink<'a, S = f32> = Option<Cells<'a, S>>;

/// The cells that a row writes, if the caller wants the output.
#[inline(always)]
pub fn sink<'a>(out: &Option<Out<'a, f32>>) -> Sink<'a> {
    out.as_deref().copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_the_bytes_around_them_are_the_span() {
        let bytes: [u8; 40] = core::array::from_fn(|i| i as u8);
        let view = In::new(&bytes);
        for start in 0..20 {
            for end in start..40 {
                let (before, words, after) = view.words(Span::new(start, end));
                assert!(
                    before.len() < 4 && after.len() < 4 && (words.is_empty() || words.first.is_aligned())
                );
                let mut i = start;
                let mut same = |byte: u8| {
                    assert_eq!(usize::from(byte), i, "{start}..{end}");
                    i += 1;
                };
                (before.start..before.end).for_each(|i| same(view.at(i)));
                (0..words.len()).flat_map(|w| words.at(w).to_ne_bytes()).for_each(&mut same);
                (after.start..after.end).for_each(|i| same(view.at(i)));
                assert_eq!(i, end);
            }
        }
    }
}
