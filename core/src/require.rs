//! Checks of arguments. Every error names the argument, the index, and what was expected.

use crate::Error;

/// The error of a value outside its domain; `index` is `None` for a scalar argument.
// Cold, so that a loop that checks its elements stays small.
#[cold]
pub fn value(
    argument: &'static str,
    index: Option<usize>,
    expected: &'static str,
    got: impl Into<f64>,
) -> Error {
    Error::Value { argument, index, expected, got: got.into() }
}

/// Checks a scalar argument; `holds` must be false for NaN.
pub fn scalar(
    argument: &'static str,
    holds: bool,
    expected: &'static str,
    got: impl Into<f64>,
) -> Result<(), Error> {
    if holds { Ok(()) } else { Err(value(argument, None, expected, got)) }
}

/// Checks that a scalar argument is finite.
pub fn finite(argument: &'static str, got: impl Into<f64>) -> Result<(), Error> {
    let got = got.into();
    scalar(argument, got.is_finite(), "a finite number", got)
}

/// Checks that a scalar argument is positive and finite.
pub fn positive(argument: &'static str, got: impl Into<f64>) -> Result<(), Error> {
    let got = got.into();
    scalar(argument, got > 0.0 && got.is_finite(), "a positive finite number", got)
}

/// Checks that a bound is positive; infinity means no bound.
pub fn bound(argument: &'static str, got: impl Into<f64>) -> Result<(), Error> {
    let got = got.into();
    scalar(argument, got > 0.0, "a positive number (or none)", got)
}

/// Checks that a scalar argument is finite and at least 0.
pub fn not_negative(argument: &'static str, got: impl Into<f64>) -> Result<(), Error> {
    let got = got.into();
    scalar(argument, got >= 0.0 && got.is_finite(), "a finite number of at least 0", got)
}

/// Checks that a scalar argument is within 0 to 1.
pub fn unit(argument: &'static str, got: impl Into<f64>) -> Result<(), Error> {
    let got = got.into();
    scalar(argument, (0.0..=1.0).contains(&got), "0 to 1", got)
}

/// Checks that every entry satisfies `holds`.
pub fn each<T: Copy + Into<f64>>(
    argument: &'static str,
    entries: &[T],
    expected: &'static str,
    holds: impl Fn(T) -> bool,
) -> Result<(), Error> {
    match entries.iter().position(|x| !holds(*x)) {
        None => Ok(()),
        Some(i) => Err(value(argument, Some(i), expected, entries[i])),
    }
}

/// Checks the number of entries of an argument.
pub fn length(
    argument: &'static str,
    expected: usize,
    because: &'static str,
    got: usize,
) -> Result<(), Error> {
    if got == expected { Ok(()) } else { Err(Error::Length { argument, expected, because, got }) }
}

/// Checks that a scratch buffer has room for at least `expected` entries.
pub fn room(argument: &'static str, expected: usize, got: usize) -> Result<(), Error> {
    if got >= expected {
        return Ok(());
    }
    Err(Error::Length { argument, expected, because: "the minimum length of this scratch", got })
}

/// Checks that an argument has at least one entry.
pub fn some(argument: &'static str, expected: &'static str, got: usize) -> Result<(), Error> {
    if got == 0 { Err(Error::Empty { argument, expected }) } else { Ok(()) }
}
