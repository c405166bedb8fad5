//! Length checks of a kernel's arrays, made once by whatever runs the kernel.

use crate::Error;
use crate::ragged::{In, Mask, Out};
use crate::require;

/// An argument that has a length.
pub trait Length {
    /// Its number of entries; `None` if it is absent.
    fn length(&self) -> Option<usize>;
}

impl<T: Copy> Length for In<'_, T> {
    fn length(&self) -> Option<usize> {
        Some(self.len())
    }
}

impl<T: Copy> Length for Out<'_, T> {
    fn length(&self) -> Option<usize> {
        Some(self.len())
    }
}

impl Length for Mask<'_> {
    fn length(&self) -> Option<usize> {
        self.bytes().map(In::len)
    }
}

impl<L: Length> Length for Option<L> {
    fn length(&self) -> Option<usize> {
        self.as_ref().and_then(L::length)
    }
}

/// Checks that `argument`, if present, has `expected` entries.
#[doc(hidden)]
pub fn check_length<L: Length>(
    argument: &'static str,
    array: &L,
    expected: usize,
    because: &'static str,
) -> Result<(), Error> {
    require::length(argument, expected, because, array.length().unwrap_or(expected))
}

/// Checks that every entry of `indices` in `span` lies in `range`.
///
/// Errors: the first entry that does not, with its index.
pub fn check_indices(
    argument: &'static str,
    indices: In<'_, u32>,
    span: crate::ragged::Span,
    range: crate::ragged::Span,
    expected: &'static str,
) -> Result<(), Error> {
    for index in span.start..span.end {
        let got = indices.at(index) as usize;
        if got < range.start || got >= range.end {
            return Err(require::value(argument, Some(index), expected, got as f64));
        }
    }
    Ok(())
}

/// Checks the lengths of a kernel's fields, and returns from the function with the first error. Absent arrays
/// pass.
///
/// ```text
/// lengths!(self; tokens => loss_mask, logp, coef; sequences => row_tokens, row_alarm);
/// ```
#[macro_export]
macro_rules! lengths {
    ($of:expr; $($expected:expr => $($field:ident),+);+ $(;)?) => {$(
        let expected: usize = $expected;
        $($crate::op::check_length(stringify!($field), &$of.$field, expected, stringify!($expected))?;)+
    )+};
}
