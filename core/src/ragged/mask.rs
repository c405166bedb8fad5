//! The loss mask: which elements take part.

use super::In;
use crate::op::{Arg, Decoder, Encoder};

/// `loss_mask: [u8; N]`: 0 = the element takes no part (padding, tool output), anything else = it does.
/// Absent means that every element takes part. Masked elements are *selected away*: whatever stands there
/// (NaN, infinity, garbage) never enters an operation whose result is kept.
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
        // SAFETY: the caller's.
        Mask(unsafe { Option::decode(from) })
    }
}

impl<'a> Mask<'a> {
    /// Every element takes part.
    #[inline(always)]
    pub fn all() -> Self {
        Mask(None)
    }

    /// One byte per element; `None` is [`Mask::all`].
    #[inline(always)]
    pub fn new(mask: Option<&'a [u8]>) -> Self {
        Mask(mask.map(In::new))
    }

    /// One byte per element, as a view; `None` is [`Mask::all`].
    #[inline(always)]
    pub fn view(mask: Option<In<'a, u8>>) -> Self {
        Mask(mask)
    }

    /// The bytes, if there are any.
    #[inline(always)]
    pub fn bytes(self) -> Option<In<'a, u8>> {
        self.0
    }

    /// Whether element `i` takes part.
    #[inline(always)]
    pub fn at(self, i: usize) -> bool {
        match self.0 {
            Some(bytes) => bytes.at(i) != 0,
            None => true,
        }
    }
}
