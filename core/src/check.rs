//! Checks of arguments that only a device can see. On the host, constructors and the ops' alarms check them.
//!
//! Each op writes one number per row, [`PASSED`] or the lower 32 bits of the position of the first fault in
//! the row: the first row that did not pass has the first fault of the whole argument ([`first_fault`]).
//! Nothing else may be launched on offsets that did not pass: a GPU reads and writes wherever they point.

use crate::Error;
use crate::op::Kernel;
use crate::ragged::{Cells, In, Mask, Out, Span};
use crate::team::Team;

/// No fault in this row.
pub const PASSED: u32 = u32::MAX;

/// Elements per row of a check.
pub const BLOCK: usize = 4096;

/// Position of the first fault that the rows of a check report, if there is one.
///
/// ```
/// use lockstep_core::check::{BLOCK, PASSED, first_fault};
/// assert_eq!(first_fault(&[PASSED, PASSED]), None);
/// assert_eq!(first_fault(&[PASSED, BLOCK as u32 + 7, 2 * BLOCK as u32]), Some(BLOCK + 7));
/// ```
pub fn first_fault(report: &[u32]) -> Option<usize> {
    let row = report.iter().position(|fault| *fault != PASSED)?;
    Some(row * BLOCK + report[row] as usize % BLOCK)
}

/// Rows that a check of `elements` elements has: the length of `first_fault`.
pub const fn rows(elements: usize) -> usize {
    elements.div_ceil(BLOCK)
}

#[inline(always)]
fn block(row: usize, elements: usize) -> Span {
    let end = (row + 1) * BLOCK;
    Span::new(row * BLOCK, if end < elements { end } else { elements })
}

/// Lowest position for which `bad` holds, written to `first_fault[row]`.
#[inline(always)]
fn report<T: Team>(
    team: &T,
    row: usize,
    span: Span,
    first_fault: Cells<'_, u32>,
    bad: impl Fn(usize) -> bool,
) {
    // Positions inside a block are below 2²⁴, exact in binary32.
    let least = team.min(span, |i| if bad(i) { (i - span.start) as f32 } else { f32::INFINITY });
    let none = least == f32::INFINITY;
    if team.leads() {
        // The lower 32 bits of the position; its place in the block alone where those are taken.
        let at = span.start as u32 + least as u32;
        first_fault.put(
            row,
            if none {
                PASSED
            } else if at == PASSED {
                BLOCK as u32 - 1
            } else {
                at
            },
        );
    }
}

/// The op `check_offsets`: offsets start at 0, never decrease and end at `elements`; a fault's position is an
/// index into them.
#[derive(Debug)]
pub struct CheckOffsets<'a> {
    /// Offsets, `[R+1]`.
    pub offsets: In<'a, u32>,
    /// What the last must be.
    pub elements: usize,
    /// `[rows(R+1)]`.
    pub first_fault: Out<'a, u32>,
}

crate::kernel_args!(unsafe CheckOffsets<'_> { offsets, elements, first_fault });

impl Kernel for CheckOffsets<'_> {
    const NAME: &'static str = "check_offsets";

    fn check_bounds(&self) -> Result<(), Error> {
        crate::lengths!(self; rows(self.offsets.len()) => first_fault);
        Ok(())
    }

    fn rows(&self) -> usize {
        rows(self.offsets.len())
    }

    fn work(&self, _row: usize) -> usize {
        BLOCK
    }

    #[inline(always)]
    fn row<T: Team>(&self, team: &T, row: usize) {
        let (offsets, last) = (self.offsets, self.offsets.len() - 1);
        report(team, row, block(row, last + 1), *self.first_fault, |i| {
            let own = offsets.at(i);
            // The entry before it, or 0, which the first must equal.
            let before = if i == 0 { 0 } else { offsets.at(i - 1) };
            (own < before) | (i == 0 && own != 0) | (i == last && own as usize != self.elements)
        });
    }
}

/// What a value must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Domain {
    /// Finite.
    Finite,
    /// Finite and at most 0.
    LogProbability,
    /// Finite and at least 0.
    Weight,
    /// Not infinite: a reward, for which NaN means excluded.
    Reward,
}

crate::launch_args!(
    enum Domain {
        Finite,
        LogProbability,
        Weight,
        Reward,
    }
);

impl Domain {
    /// Whether `x` is in it.
    #[inline(always)]
    pub fn holds(self, x: f32) -> bool {
        match self {
            Domain::Finite => x.is_finite(),
            Domain::LogProbability => x <= 0.0 && x.is_finite(),
            Domain::Weight => x >= 0.0 && x.is_finite(),
            Domain::Reward => !x.is_infinite(),
        }
    }

    /// In words, for an error.
    pub fn expected(self) -> &'static str {
        match self {
            Domain::Finite => "a finite number",
            Domain::LogProbability => "a log-probability: finite and at most 0",
            Domain::Weight => "a finite number of at least 0",
            Domain::Reward => "a finite number, or NaN to exclude it",
        }
    }
}

/// The op `check_values`: live values lie in their domain; a fault's position is an index into them.
#[derive(Debug)]
pub struct CheckValues<'a> {
    /// Values, `[N]`.
    pub values: In<'a, f32>,
    /// Which of them count, `[N]`.
    pub mask: Mask<'a>,
    /// What they must be.
    pub domain: Domain,
    /// `[rows(N)]`.
    pub first_fault: Out<'a, u32>,
}

crate::kernel_args!(unsafe CheckValues<'_> { values, mask, domain, first_fault });

impl Kernel for CheckValues<'_> {
    const NAME: &'static str = "check_values";

    fn check_bounds(&self) -> Result<(), Error> {
        crate::lengths!(self; self.values.len() => mask; rows(self.values.len()) => first_fault);
        Ok(())
    }

    fn rows(&self) -> usize {
        rows(self.values.len())
    }

    fn work(&self, _row: usize) -> usize {
        BLOCK
    }

    #[inline(always)]
    fn row<T: Team>(&self, team: &T, row: usize) {
        report(team, row, block(row, self.values.len()), *self.first_fault, |i| {
            self.mask.at(i) && !self.domain.holds(self.values.at(i))
        });
    }
}
