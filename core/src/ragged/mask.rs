//! The loss mask: which elements count.

use super::In;
use crate::op::{Arg, Decoder, Encoder};

/// A mask `[u8; N]`: 0 means that the element does not count (padding, tool output), anything else that it
/// does.
///
/// Without bytes every element counts. Masked elements are *deselected*: their contents (NaN, infinity,
/// garbage) never enter an operation whose result is kept.
#[derive(Clone, Copy, Debug)]
pub struct Mask<'a>(Option<In<'a, u8>>);

#[allow(unsafe_code)]
impl Arg for Mask<'_> {
    const POINTERS: usize = 1;
    const WORDS: usize = 2;
    #[inline(always)]
    fn encode<E: Encoder>(&self, to: &mut E) {
        self.0.encode(to);
    }
    #[inline(always)]
    unsafe fn decode(from: &mut Decoder) -> Self {
        // SAFETY: guaranteed by the caller.
        Mask(unsafe { Option::decode(from) })
    }
}

impl<'a> Mask<'a> {
    /// The mask under which every element counts.
    #[inline(always)]
    pub fn all() -> Self {
        Mask(None)
    }

    /// A mask of one byte per element; `None` is [`Mask::all`].
    #[inline(always)]
    pub fn new(mask: Option<&'a [u8]>) -> Self {
        Mask(mask.map(In::new))
    }

    /// A mask of one byte per element, as a view; `None` is [`Mask::all`].
    #[inline(always)]
    pub fn view(mask: Option<In<'a, u8>>) -> Self {
        Mask(mask)
    }

    /// The bytes, or `None` for [`Mask::all`].
    #[inline(always)]
    pub fn bytes(self) -> Option<In<'a, u8>> {
        self.0
    }

    /// Whether element `i` counts.
    #[inline(always)]
    pub fn at(self, i: usize) -> bool {
        match self.0 {
            Some(bytes) => bytes.at(i) != 0,
            None => true,
        }
    }
}
