//! Argument checks shared by the schedules; every error names argument and index.

use lockstep_core::Error;
use lockstep_core::num;

pub(super) fn value(argument: &'static str, index: Option<usize>, expected: &'static str, got: f64) -> Error {
    Error::Value { argument, index, expected, got }
}

/// Checks that a scalar parameter is valid; `holds` must be false for NaN.
pub(super) fn scalar(
    argument: &'static str,
    holds: bool,
    expected: &'static str,
    got: f64,
) -> Result<(), Error> {
    if holds { Ok(()) } else { Err(value(argument, None, expected, got)) }
}

/// Checks that every entry satisfies `holds`.
pub(super) fn each(
    argument: &'static str,
    entries: &[f64],
    expected: &'static str,
    holds: impl Fn(f64) -> bool,
) -> Result<(), Error> {
    match entries.iter().position(|x| !holds(*x)) {
        None => Ok(()),
        Some(i) => Err(value(argument, Some(i), expected, entries[i])),
    }
}

pub(super) fn length(
    argument: &'static str,
    expected: usize,
    because: &'static str,
    got: usize,
) -> Result<(), Error> {
    if got == expected { Ok(()) } else { Err(Error::Length { argument, expected, because, got }) }
}

/// Checks that there is room for at least `expected` entries.
pub(super) fn room(argument: &'static str, expected: usize, got: usize) -> Result<(), Error> {
    if got >= expected {
        return Ok(());
    }
    Err(Error::Length { argument, expected, because: "the minimum length of this scratch", got })
}

pub(super) fn some(argument: &'static str, expected: &'static str, got: usize) -> Result<(), Error> {
    if got == 0 { Err(Error::Empty { argument, expected }) } else { Ok(()) }
}

/// ⌈x⌉ for 0 <= x, at most `u32::MAX`; 0 if x is not above 0.
pub(super) fn ceil(x: f64) -> u32 {
    let whole = x as u32;
    if f64::from(whole) < x { whole.saturating_add(1) } else { whole }
}

/// x to the nearest integer, halves up, for 0 <= x.
pub(super) fn nearest(x: f64) -> u32 {
    (x + 0.5) as u32
}

/// ln Σ exp(xᵢ); −∞ if empty or all −∞.
pub(super) fn ln_sum_exp(entries: impl Iterator<Item = f64> + Clone) -> f64 {
    let top = entries.clone().fold(f64::NEG_INFINITY, |a, b| if b > a { b } else { a });
    if top == f64::NEG_INFINITY {
        return top;
    }
    let mut sum = 0.0;
    for x in entries {
        sum += num::exp64(x - top);
    }
    top + num::ln64(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounding_up_and_to_nearest() {
        assert_eq!(
            [ceil(0.0), ceil(-3.0), ceil(0.1), ceil(2.0), ceil(2.000001), ceil(1e30)],
            [0, 0, 1, 2, 3, u32::MAX]
        );
        assert_eq!([nearest(0.49), nearest(0.5), nearest(3.2)], [0, 1, 3]);
    }

    #[test]
    fn ln_sum_exp_does_not_overflow() {
        let sum = ln_sum_exp([1000.0, 1000.0].into_iter());
        assert!((sum - 1000.0 - core::f64::consts::LN_2).abs() < 1e-12);
        assert_eq!(ln_sum_exp([f64::NEG_INFINITY].into_iter()), f64::NEG_INFINITY);
    }
}
