//! Checks of arguments that only a device can see. On the host, constructors and the ops' alarms check them.
//!
//! Each op writes one number per row: [`PASSED`], or the lower 32 bits of the position of the row's first
//! fault. The first row that did not pass holds the first fault of the whole argument ([`first_fault`]). If
//! offsets did not pass, launch nothing else on them: a GPU reads and writes wherever they point.

use crate::op::Kernel;
use crate::ragged::{Cells, In, Mask, Out, Span};
use crate::team::Team;

/// Report of a row without a fault.
pub const PASSED: u32 = u32::MAX;

/// Elements checked per row.
pub const BLOCK: usize = 4096;

/// Returns the position of the first fault in the report of a check, or `None` if every row passed.
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

/// Number of rows of a check of `elements` elements: the length of `first_fault`.
pub const fn rows(elements: usize) -> usize {
    elements.div_ceil(BLOCK)
}

#[inline(always)]
fn block(row: usize, elements: usize) -> Span {
    let end = (row + 1) * BLOCK;
    Span::new(row * BLOCK, if end < elements { end } else { elements })
}

/// Writes the lowest position for which `bad` holds to `first_fault[row]`.
#[inline(always)]
fn report<T: Team>(
    team: &T,
    row: usize,
    span: Span,
    first_fault: Cells<'_, u32>,
    bad: impl Fn(usize) -> bool,
) {
    // Positions within a block are below 2²⁴, exact in binary32.
    let least = team.min(span, |i| if bad(i) { (i - span.start) as f32 } else { f32::INFINITY });
    let none = least == f32::INFINITY;
    if team.leads() {
        // The lower 32 bits of the position, or only the position within the block if they equal `PASSED`.
        // Wrapping: without a fault, `least` is the largest u32.
        let at = (span.start as u32).wrapping_add(least as u32);
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

crate::kernel! {
    /// The op `check_offsets`: checks that offsets start at 0, never decrease and end at `elements`.
    ///
    /// The position of a fault is an index into `offsets`.
    pub struct CheckOffsets<'a> {
        /// Offsets, `[R+1]`.
        pub offsets: In<'a, u32>,
        /// Required value of the last offset.
        pub elements: usize,
        /// Report, `[rows(R+1)]`.
        pub first_fault: Out<'a, u32> [blocks],
    }
    unsafe "check_offsets", rows |k| rows(k.offsets.len()), work |_, _| BLOCK,
        let blocks = |k| rows(k.offsets.len());
}

impl Kernel for CheckOffsets<'_> {
    #[inline(always)]
    fn row<T: Team>(&self, team: &T, row: usize) {
        let (offsets, last) = (self.offsets, self.offsets.len() - 1);
        report(team, row, block(row, last + 1), *self.first_fault, |i| {
            let own = offsets.at(i);
            // The preceding entry, or the 0 that the first entry must equal.
            let before = if i == 0 { 0 } else { offsets.at(i - 1) };
            (own < before) | (i == 0 && own != 0) | (i == last && own as usize != self.elements)
        });
    }
}

/// The set of valid values.
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
    /// Whether `x` is valid.
    #[inline(always)]
    pub fn holds(self, x: f32) -> bool {
        match self {
            Domain::Finite => x.is_finite(),
            Domain::LogProbability => x <= 0.0 && x.is_finite(),
            Domain::Weight => x >= 0.0 && x.is_finite(),
            Domain::Reward => !x.is_infinite(),
        }
    }

    /// The domain in words, for an error message.
    pub fn expected(self) -> &'static str {
        match self {
            Domain::Finite => "a finite number",
            Domain::LogProbability => "a log-probability: finite and at most 0",
            Domain::Weight => "a finite number of at least 0",
            Domain::Reward => "a finite number, or NaN to exclude it",
        }
    }
}

crate::kernel! {
    /// The op `check_values`: checks that live values lie in their domain.
    ///
    /// The position of a fault is an index into `values`.
    pub struct CheckValues<'a> {
        /// Values, `[N]`.
        pub values: In<'a, f32>,
        /// Values to check, `[N]`.
        pub mask: Mask<'a> [values],
        /// The domain of the values.
        pub domain: Domain,
        /// Report, `[rows(N)]`.
        pub first_fault: Out<'a, u32> [blocks],
    }
    unsafe "check_values", rows |k| rows(k.values.len()), work |_, _| BLOCK,
        let values = |k| k.values.len(),
        let blocks = |_| rows(values);
}

impl Kernel for CheckValues<'_> {
    #[inline(always)]
    fn row<T: Team>(&self, team: &T, row: usize) {
        report(team, row, block(row, self.values.len()), *self.first_fault, |i| {
            self.mask.at(i) && !self.domain.holds(self.values.at(i))
        });
    }
}
