//! Finds the argument and index behind a row's alarm, for the error.

use crate::{Batch, Error};
use lockstep_core::Error as Argument;
pub(crate) use lockstep_core::check::Domain;
use lockstep_core::ragged::{Mask, Offsets, flag};
use lockstep_core::require;

/// A per-token array and its domain. Nothing is wrong with an absent one.
pub(crate) struct Checked<'a> {
    name: &'static str,
    domain: Domain,
    values: Option<&'a [f32]>,
}

impl<'a> Checked<'a> {
    pub(crate) fn new(name: &'static str, domain: Domain, values: impl Into<Option<&'a [f32]>>) -> Self {
        Checked { name, domain, values: values.into() }
    }

    /// Log-probabilities.
    pub(crate) fn logp(name: &'static str, values: impl Into<Option<&'a [f32]>>) -> Self {
        Checked::new(name, Domain::LogProbability, values)
    }

    /// Finite numbers.
    pub(crate) fn finite(name: &'static str, values: impl Into<Option<&'a [f32]>>) -> Self {
        Checked::new(name, Domain::Finite, values)
    }
}

/// The error of the first array without one entry per token, if any.
pub(crate) fn lengths(batch: &Batch<'_>, arguments: &[Checked<'_>]) -> Result<(), Error> {
    for Checked { name, values, .. } in arguments {
        values.map_or(Ok(()), |values| batch.check_tokens(name, values.len()))?;
    }
    Ok(())
}

/// The error of the first row with an alarm, if any: its first live token with a bad argument, else its first
/// result that is not finite.
pub(crate) fn check(
    batch: &Batch<'_>,
    row_alarm: &[u32],
    arguments: &[Checked<'_>],
    results: &[Checked<'_>],
    hint: &'static str,
) -> Result<(), Error> {
    check_rows(batch.cu_seqlens(), batch.loss_mask(), row_alarm, arguments, results, hint)
}

/// Like [`check`], for any rows.
pub(crate) fn check_rows(
    offsets: Offsets<'_>,
    mask: Mask<'_>,
    row_alarm: &[u32],
    arguments: &[Checked<'_>],
    results: &[Checked<'_>],
    hint: &'static str,
) -> Result<(), Error> {
    let Some(row) = row_alarm.iter().position(|alarm| *alarm > flag::LIMIT) else {
        return Ok(());
    };
    let span = offsets.span(row);
    let live = || (span.start..span.end).filter(|i| mask.at(*i));
    for i in live() {
        for Checked { name, domain, values } in arguments {
            if let Some(values) = values
                && !domain.holds(values[i])
            {
                return Err(require::value(name, Some(i), domain.expected(), values[i]).into());
            }
        }
    }
    for i in live() {
        for Checked { name, domain, values } in results {
            if values.is_some_and(|values| !domain.holds(values[i])) {
                return Err(Argument::NotFinite { result: name, index: i, hint }.into());
            }
        }
    }
    // The cause is a result that the caller did not request: the token loss.
    let index = live().next().unwrap_or(span.start);
    Err(Argument::NotFinite { result: "loss of the sequence that starts at token", index, hint }.into())
}

/// The error of the first value of an argument that is not as expected, if any; `holds` also gets the index.
pub fn each<T: Copy + Into<f64>>(
    argument: &'static str,
    values: &[T],
    expected: &'static str,
    holds: impl Fn(usize, T) -> bool,
) -> Result<(), Error> {
    match values.iter().enumerate().position(|(i, x)| !holds(i, *x)) {
        None => Ok(()),
        Some(i) => Err(require::value(argument, Some(i), expected, values[i]).into()),
    }
}

/// [`each`] where a finite number is expected.
pub fn each_finite(argument: &'static str, values: &[f32]) -> Result<(), Error> {
    each(argument, values, "a finite number", |_, x| x.is_finite())
}

/// The error of an argument without one value per token, or of its first live value that is not as expected.
pub fn each_live<T: Copy + Into<f64>>(
    batch: &Batch<'_>,
    argument: &'static str,
    values: &[T],
    expected: &'static str,
    holds: impl Fn(T) -> bool,
) -> Result<(), Error> {
    batch.check_tokens(argument, values.len())?;
    each(argument, values, expected, |i, x| !batch.loss_mask().at(i) || holds(x))
}

/// [`each_live`] where values of the domain are expected.
pub fn live(batch: &Batch<'_>, argument: &'static str, values: &[f32], domain: Domain) -> Result<(), Error> {
    each_live(batch, argument, values, domain.expected(), |x| domain.holds(x))
}

/// The error of the first result that is not finite, if any.
pub fn finite(result: &'static str, values: &[f32], hint: &'static str) -> Result<(), Error> {
    match values.iter().position(|x| !x.is_finite()) {
        None => Ok(()),
        Some(index) => Err(Argument::NotFinite { result, index, hint }.into()),
    }
}
