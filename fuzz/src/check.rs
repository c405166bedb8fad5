//! Checks of results and of errors.

use lockstep::Error;
use lockstep::core::Error as Argument;

/// The domain of an argument's elements.
#[derive(Clone, Copy, Debug)]
pub enum Domain {
    /// Finite and at most 0.
    LogProbability,
    /// Finite and at least 0.
    Weight,
    /// Finite.
    Finite,
    /// Not infinite.
    NotInfinite,
}

impl Domain {
    fn holds(self, x: f32) -> bool {
        match self {
            Domain::LogProbability => x.is_finite() && x <= 0.0,
            Domain::Weight => x.is_finite() && x >= 0.0,
            Domain::Finite => x.is_finite(),
            Domain::NotInfinite => !x.is_infinite(),
        }
    }
}

/// Checks a result against an argument whose values may be outside its domain. If accepted, every element
/// that counts was inside; an error with an index into this argument means that the element there counts and
/// is outside.
pub fn assert_domain<T>(
    result: &Result<T, Error>,
    name: &str,
    values: &[f32],
    domain: Domain,
    counts: impl Fn(usize) -> bool,
) {
    match result {
        Ok(_) => {
            if let Some(i) = (0..values.len()).find(|i| counts(*i) && !domain.holds(values[*i])) {
                panic!("`{name}`[{i}] is {} and was accepted", values[i]);
            }
        }
        Err(Error::Argument(Argument::Value { argument, index: Some(i), got, .. })) if *argument == name => {
            assert!(counts(*i), "`{name}`[{i}] takes no part and was refused");
            assert!(!domain.holds(values[*i]), "`{name}`[{i}] is {} and was refused", values[*i]);
            assert_eq!(
                f64::from(values[*i]).to_bits() << 1,
                got.to_bits() << 1,
                "the error shows another value"
            );
        }
        Err(_) => {}
    }
}

/// Checks that every value is finite.
pub fn assert_finite(name: &str, values: impl IntoIterator<Item = f64>) {
    for (i, x) in values.into_iter().enumerate() {
        assert!(x.is_finite(), "result `{name}`[{i}] is {x}");
    }
}

/// Checks that elements that take no part are +0.
pub fn assert_masked_zero(name: &str, values: &[f32], live: impl Fn(usize) -> bool) {
    for (i, x) in values.iter().enumerate() {
        assert!(live(i) || x.to_bits() == 0, "result `{name}`[{i}] is masked and {x}");
    }
}

/// Checks bit equality.
pub fn assert_same_bits(
    name: &str,
    plain: impl IntoIterator<Item = u64>,
    other: impl IntoIterator<Item = u64>,
) {
    let (plain, other): (Vec<_>, Vec<_>) = (plain.into_iter().collect(), other.into_iter().collect());
    assert_eq!(plain.len(), other.len(), "lengths of `{name}`");
    for (i, (a, b)) in plain.iter().zip(&other).enumerate() {
        assert!(a == b, "`{name}`[{i}]: plain {a:#x}, faster level {b:#x}");
    }
}

/// Bit patterns of binary32 values.
pub fn bits32(values: &[f32]) -> impl Iterator<Item = u64> + '_ {
    values.iter().map(|x| x.to_bits().into())
}

/// Bit patterns of binary64 values.
pub fn bits64(values: &[f64]) -> impl Iterator<Item = u64> + '_ {
    values.iter().map(|x| x.to_bits())
}
