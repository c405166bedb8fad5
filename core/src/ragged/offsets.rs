//! Row offsets (`cu_seqlens`, `cu_groups`) and their validation.

use super::{In, Span};
use crate::Error;
use crate::op::{Arg, Decoder, Encoder, Partition};

/// Offsets of R rows: `[u32; R+1]`, starting at 0 and never decreasing; row r is `offsets[r]..offsets[r+1]`.
///
/// Validated on construction, so rows never overlap; backends rely on that to run them in parallel.
#[derive(Clone, Copy, Debug)]
pub struct Offsets<'a>(In<'a, u32>);

#[allow(unsafe_code)]
impl Arg for Offsets<'_> {
    const POINTERS: usize = 1;
    const WORDS: usize = 1;
    #[inline(always)]
    fn encode<E: Encoder>(&self, to: &mut E) {
        self.0.encode(to);
    }
    #[inline(always)]
    unsafe fn decode(from: &mut Decoder) -> Self {
        // SAFETY: guaranteed by the caller.
        Offsets(unsafe { In::decode(from) })
    }
}

impl<'a> Offsets<'a> {
    /// Wraps `offsets` after [`check_offsets`].
    ///
    /// Errors: those of [`check_offsets`].
    pub fn new(
        argument: &'static str,
        offsets: &'a [u32],
        elements: usize,
        of: &'static str,
    ) -> Result<Self, Error> {
        check_offsets(argument, offsets, elements, of)?;
        Ok(Offsets(In::new(offsets)))
    }

    /// Wraps offsets without validation: those of a device, which the host cannot read.
    ///
    /// # Safety
    /// They would pass [`check_offsets`] for the arrays that they partition; the op
    /// [`CheckOffsets`](crate::check::CheckOffsets) checks this on the device.
    #[allow(unsafe_code)]
    pub const unsafe fn unchecked(offsets: In<'a, u32>) -> Self {
        Offsets(offsets)
    }

    /// Number of rows.
    #[inline(always)]
    pub fn rows(self) -> usize {
        self.0.len().saturating_sub(1)
    }

    /// Number of elements and number of rows.
    pub fn sizes(self) -> (usize, usize) {
        let rows = self.rows();
        (if rows == 0 { 0 } else { self.0.at(rows) as usize }, rows)
    }

    /// Elements of row `row`.
    #[inline(always)]
    pub fn span(self, row: usize) -> Span {
        Span::new(self.0.at(row) as usize, self.0.at(row + 1) as usize)
    }
}

impl Partition for Offsets<'_> {
    #[inline(always)]
    fn rows(&self) -> usize {
        Offsets::rows(*self)
    }

    fn len(&self, row: usize) -> usize {
        self.span(row).len()
    }

    fn sizes(&self) -> Result<(usize, usize), Error> {
        Ok(Offsets::sizes(*self))
    }
}

/// Checks that `offsets` starts at 0, never decreases and ends at `elements`.
///
/// `argument` is the name to report, `of` what the elements are (`tokens`, `sequences`).
///
/// Errors: no row; a first entry other than 0; an entry below its predecessor; a last entry other than
/// `elements`.
///
/// ```
/// use lockstep_core::{Error, ragged::check_offsets};
/// assert!(check_offsets("cu_seqlens", &[0, 3, 5], 5, "tokens").is_ok());
/// let error = check_offsets("cu_seqlens", &[0, 3, 2, 5], 5, "tokens").unwrap_err();
/// assert_eq!(error, Error::Decreasing { argument: "cu_seqlens", index: 2, before: 3, got: 2 });
/// ```
pub fn check_offsets(
    argument: &'static str,
    offsets: &[u32],
    elements: usize,
    of: &'static str,
) -> Result<(), Error> {
    let (Some(&first), Some(&last)) = (offsets.first(), offsets.last()) else {
        return Err(Error::Empty { argument, expected: "at least [0, n]" });
    };
    if first != 0 {
        return Err(Error::FirstOffset { argument, got: first });
    }
    if offsets.len() < 2 {
        return Err(Error::Empty { argument, expected: "at least one row: [0, n]" });
    }
    for (i, pair) in offsets.windows(2).enumerate() {
        if pair[1] < pair[0] {
            return Err(Error::Decreasing { argument, index: i + 1, before: pair[0], got: pair[1] });
        }
    }
    if last as usize != elements {
        return Err(Error::LastOffset {
            argument,
            index: offsets.len() - 1,
            expected: elements,
            of,
            got: last,
        });
    }
    Ok(())
}
