//! The oracle's expectation for a case: for every output a value, and the magnitude that its error is
//! measured against.
//!
//! An element's magnitude is chosen so that binary32 arithmetic with correctly rounded inputs errs by a few
//! units of 2⁻²⁴ of it. For example, d = logp − logp_old rounds once, so a ratio is uncertain by |d|·2⁻²⁴ of
//! itself however its exponential is computed; a sum is measured against the magnitudes of its terms.
//! Magnitude 0 requires equality. An infinite magnitude leaves the element out: it sits on a jump of the
//! formula, closer than the rounding of the inputs. A negative magnitude marks a count with that many tokens
//! on a jump: it may be off by as many.

mod advantage;
pub(crate) mod correction;
mod logits;
mod policy;
mod sums;
pub(crate) mod tokens;

use crate::cases::{Case, Params};

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

    pub(crate) fn push(&mut self, want: f64, magnitude: f64) {
        self.want.push(want);
        self.magnitude.push(magnitude);
    }
}

/// Expected outputs of a case, by name: all that a launch returns except `alarm`.
pub fn expect(case: &Case) -> Vec<Want> {
    match case.params {
        Params::GroupAdvantage { .. } => advantage::expect(case),
        Params::TokenRatio { guard, .. } => tokens::ratio(case, guard),
        Params::Policy(policy) => policy::expect(case, &policy),
        Params::Kl { kl, .. } => tokens::kl(case, kl),
        Params::Aggregate { values } => sums::aggregate(case, values),
        Params::RowScan { direction } => sums::scan(case, direction),
        Params::FoldRows => sums::fold(case),
        Params::Op(any) => any.expect(&case.data),
    }
}

/// A sum of values with magnitudes. What is rounded away in a sum of a million terms is restored with the
/// next term (Kahan).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sum(pub(crate) f64, pub(crate) f64, f64);

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
