//! The oracle's expectation for a case: for every output a value, and the magnitude that its error is
//! measured against.
//!
//! An element's magnitude is chosen so that binary32 arithmetic with correctly rounded inputs errs by a few
//! units of 2⁻²⁴ of it. For example, d = logp − logp_old rounds once, so a ratio is uncertain by |d|·2⁻²⁴ of
//! itself however its exponential is computed; a sum is measured against the magnitudes of its terms.
//! Magnitude 0 requires equality. An infinite magnitude leaves the element out: it sits on a jump of the
//! formula, closer than the rounding of the inputs. A negative magnitude marks a count with that many tokens
//! on a jump: it may be off by as many.

pub(crate) mod correction;
pub(crate) mod gate;
mod logits;
pub(crate) mod tokens;

use crate::cases::{Case, Data};

/// The oracle's expectation for one output array.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Want {
    /// Name of the output.
    pub name: &'static str,
    /// Expected values.
    pub want: Vec<f64>,
    /// The magnitudes that errors are measured against.
    pub magnitude: Vec<f64>,
}

impl Want {
    pub(crate) fn new(name: &'static str) -> Want {
        Want { name, ..Want::default() }
    }

    /// `value`, with its magnitude, of every row.
    pub(crate) fn rows(name: &'static str, data: &Data, value: impl Fn(usize) -> (f64, f64)) -> Want {
        let mut want = Want::new(name);
        (0..data.rows()).map(value).for_each(|(value, magnitude)| want.push(value, magnitude));
        want
    }

    /// `value`, with its magnitude, of every row's every element; 0 where masked.
    pub(crate) fn live(name: &'static str, data: &Data, value: impl Fn(usize, usize) -> (f64, f64)) -> Want {
        let mut want = Want::new(name);
        for r in 0..data.rows() {
            for i in data.span(r) {
                let (value, magnitude) = if data.live(i) { value(r, i) } else { (0.0, 0.0) };
                want.push(value, magnitude);
            }
        }
        want
    }

    /// Values of all elements that are rounded once: the binary64 operations before that add 1e-6 of a unit
    /// of the magnitudes that come with them.
    pub(crate) fn rounded(name: &'static str, values: impl IntoIterator<Item = (f64, f64)>) -> Want {
        let mut want = Want::new(name);
        values.into_iter().for_each(|(value, size)| want.push(value, value.abs() + 1e-6 * size));
        want
    }

    /// A value that must be equal.
    pub(crate) fn exact(&mut self, want: impl Into<f64>) {
        self.push(want.into(), 0.0);
    }

    pub(crate) fn push(&mut self, want: f64, magnitude: f64) {
        self.want.push(want);
        self.magnitude.push(magnitude);
    }
}

/// Expected outputs of a case, by name: all that a launch returns except `alarm`.
pub fn expect(case: &Case) -> Vec<Want> {
    case.params.expect(&case.data)
}

/// Adds an entry to each expectation.
pub(crate) fn push_all(wants: &mut [Want], values: impl IntoIterator<Item = impl Into<(f64, f64)>>) {
    for (want, value) in wants.iter_mut().zip(values) {
        let (value, magnitude) = value.into();
        want.push(value, magnitude);
    }
}

/// A sum of values with magnitudes. What is rounded away in a sum of a million terms is restored with the
/// next term (Kahan).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sum(pub(crate) f64, pub(crate) f64, f64);

impl From<Sum> for (f64, f64) {
    fn from(sum: Sum) -> (f64, f64) {
        (sum.0, sum.1)
    }
}

impl Sum {
    pub(crate) fn add(&mut self, value: f64, magnitude: f64) {
        let before = self.0;
        let value = value + self.2;
        self.0 = before + value;
        self.2 = if self.0.is_finite() { value - (self.0 - before) } else { 0.0 };
        self.1 += magnitude;
    }

    /// Adds a 0 or 1 that is uncertain if the token sits on a jump, to a sum of only such terms.
    pub(crate) fn count(&mut self, yes: bool, uncertain: bool) {
        self.add(f64::from(u8::from(yes)), if uncertain { -1.0 } else { 0.0 });
    }
}
