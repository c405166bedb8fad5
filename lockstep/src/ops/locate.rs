//! From a row's flag to the argument and index to report.

use crate::{Batch, Error};
use lockstep_core::Error as Argument;
use lockstep_core::policy_loss::flag;

/// A per-token argument that a flag bit speaks of.
pub(crate) struct Checked<'a> {
    pub(crate) bit: u32,
    pub(crate) argument: &'static str,
    pub(crate) values: &'a [f32],
}

impl Checked<'_> {
    fn expected(&self) -> &'static str {
        match self.bit {
            flag::LOGP | flag::LOGP_OLD | flag::LOGP_REF => "a finite log-probability (at most 0)",
            flag::WEIGHTS => "a finite weight of at least 0",
            _ => "a finite number",
        }
    }

    fn is_bad(&self, x: f32) -> bool {
        match self.bit {
            flag::LOGP | flag::LOGP_OLD | flag::LOGP_REF => flag::bad_logp(x, 1) != 0,
            flag::WEIGHTS => !(x >= 0.0 && x.is_finite()),
            _ => !x.is_finite(),
        }
    }
}

/// The error of the first flagged row, if any: the first live token with a bad argument, else the first result that is not
/// finite.
pub(crate) fn check(
    batch: &Batch<'_>,
    row_flags: &[u32],
    arguments: &[Checked<'_>],
    results: &[Checked<'_>],
    hint: &'static str,
) -> Result<(), Error> {
    let Some(row) = row_flags.iter().position(|bits| *bits != 0) else {
        return Ok(());
    };
    let span = batch.cu_seqlens().span(row);
    for i in (span.start..span.end).filter(|i| batch.loss_mask().at(*i)) {
        for checked in arguments.iter().filter(|c| row_flags[row] & c.bit != 0) {
            let got = checked.values[i];
            if checked.is_bad(got) {
                let (argument, expected) = (checked.argument, checked.expected());
                return Err(Argument::Value { argument, index: Some(i), expected, got: got.into() }.into());
            }
        }
        for checked in results {
            if !checked.values[i].is_finite() {
                return Err(Argument::NotFinite { result: checked.argument, index: i, hint }.into());
            }
        }
    }
    // A flag without a culprit: a per-sequence argument.
    let result = results.first().map_or("result", |checked| checked.argument);
    Err(Argument::NotFinite { result, index: span.start, hint }.into())
}
