//! **The only table of tolerances.** Between backends the tolerance is 0 bits and is listed nowhere.
//!
//! Errors against the oracle are allowed in units of 2⁻²⁴ of the magnitude that [`expect`](crate::expect)
//! gives for the element. The lines are in the files of the ops
//! ([`ALLOWED`](crate::ops::OpTest::ALLOWED)). An unlisted output must be equal. A test fails if an entry is
//! more than [`SLACK`] times the measured error, which makes it too wide.

use crate::ops::AnyOp;

/// The guarantee for a sum of a million terms, relative to the sum of magnitudes
/// (docs/decisions/0003-f64-columns.md).
pub const MILLION_TERM_SUM: f64 = 1.0 / 4_194_304.0;

/// Absolute tolerance for the worked vectors of docs/maths/vectors.md: the accuracy of their printed digits.
pub const WORKED: f64 = 1e-6;

/// Panics unless each number is [close](WORKED) to its worked value.
pub fn assert_worked(got: &[f32], want: &[f64]) {
    let close = |(got, want): (&f32, &f64)| (f64::from(*got) - want).abs() <= WORKED;
    assert!(got.len() == want.len() && got.iter().zip(want).all(close), "{got:?}, not {want:?}");
}

/// Tolerance of central differences of the oracle's loss against Lockstep's coefficients, relative to the
/// largest. A step of 2⁻¹⁷ has a truncation error of about 1e-11 and a cancellation error of about 1e-11; the
/// rest is binary32's own error of a coefficient.
pub const FINITE_DIFFERENCE: f64 = 2e-6;

/// The step of the central differences.
pub const STEP: f64 = 1.0 / 131_072.0;

/// Tokens closer than this to a jump of the derivative are left out of finite differences.
pub const KINK: f64 = 1e-4;

/// The largest fraction of an output's elements, over all cases of its op, that may sit on a jump and be left
/// out; the same limit applies to its cases.
pub const MAX_DOUBTFUL: f64 = 0.01;

/// Differences below this are ignored: a gate weight below e^-87 (1.6e-38) is 0, and it multiplies a ratio of
/// about 88 and an advantage of at most 50.
pub const FLOOR: f64 = 1e-33;

/// Tolerance of a handful of binary64 operations on numbers near 1, compared with a calculation by hand.
pub const BY_HAND: f64 = 1e-14;

/// Tolerance of whole recipes against their composition in binary64, relative to the largest number of the
/// array. Stages pass binary32 to each other, at half a unit of 2⁻²⁴ each, and a ratio of e^d carries the
/// rounding of d, up to 16 units at |d| = 20.
pub const WHOLE_RECIPE: f64 = 2e-6;

/// How much wider than the measured error an allowance may be.
pub const SLACK: f64 = 100.0;

/// An allowed error of some outputs of an op.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Allowance {
    /// Op.
    pub op: &'static str,
    /// Outputs.
    pub outputs: &'static [&'static str],
    /// Units of 2⁻²⁴ of the magnitude.
    pub units: f64,
    /// The reason for this number.
    pub reason: &'static str,
}

pub(crate) const ROUNDED: &str = "binary64 inside, rounded to binary32 once: half an ULP is at most one unit";
pub(crate) const EXP: &str = "exp is within 1 ULP (two units); the rounding of d is in the magnitude";
pub(crate) const SUM64: &str = "binary64 columns: n/128 + 7 roundings of 2^-53, 2^-29 of a unit each";
pub(crate) const TERMS: &str = "a binary64 sum of binary32 terms, each as good as its own output";

/// A line of an op's table.
pub(crate) const fn allow(
    op: &'static str,
    outputs: &'static [&'static str],
    units: f64,
    reason: &'static str,
) -> Allowance {
    Allowance { op, outputs, units, reason }
}

/// The whole table: the lines of every op's file.
pub fn allowed() -> impl Iterator<Item = &'static Allowance> {
    AnyOp::allowed()
}

/// The units allowed for an output; 0 if it is not listed.
pub fn units(op: &str, output: &str) -> f64 {
    allowed().find(|a| a.op == op && a.outputs.contains(&output)).map_or(0.0, |a| a.units)
}
