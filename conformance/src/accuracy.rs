//! Compares a launch's outputs with the oracle.

use crate::cases::Case;
use crate::expect::tokens::UNIT;
use crate::expect::{Want, expect};
use crate::output::Output;
use crate::precision;
use std::collections::BTreeMap;

/// Measured errors per op and output.
#[derive(Clone, Debug, Default)]
pub struct Measured(pub BTreeMap<(&'static str, &'static str), Tally>);

/// Measurements of one output of an op over all cases.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Largest error in units.
    pub units: f64,
    /// The case with that error.
    pub label: String,
    /// Number of elements, and how many of them sat on a jump and were not compared.
    pub elements: [usize; 2],
    /// Number of cases with elements, and how many of them had no element compared.
    pub cases: [usize; 2],
}

/// The worst element of an output.
#[derive(Clone, Debug, PartialEq)]
pub struct Worst {
    /// Error in units of 2⁻²⁴ of the magnitude; infinite where equality was required.
    pub units: f64,
    /// Index of the element.
    pub index: usize,
    /// Number of elements that sat on a jump and were not compared.
    pub doubtful: usize,
}

/// The largest error of `output` against `want`.
pub fn worst(output: &Output, want: &Want) -> Worst {
    assert_eq!((output.name, output.len()), (want.name, want.want.len()));
    let mut worst = Worst { units: 0.0, index: 0, doubtful: 0 };
    for i in 0..output.len() {
        let (got, want, magnitude) = (output.number(i), want.want[i], want.magnitude[i]);
        if magnitude == f64::INFINITY {
            worst.doubtful += 1;
            continue;
        }
        let difference = (got - want).abs();
        // Equal infinities differ by NaN; an unexpected NaN must never pass.
        let units = if got == want || difference < precision::FLOOR || difference <= -magnitude {
            // A negative magnitude belongs to a count: the number of its tokens that sat on a jump.
            0.0
        } else if magnitude > 0.0 && difference.is_finite() {
            difference / (UNIT * magnitude)
        } else {
            f64::INFINITY
        };
        if units > worst.units {
            worst = Worst { units, index: i, ..worst };
        }
    }
    worst
}

impl Measured {
    /// Adds a case. Errors: the first output whose error is not allowed.
    pub fn add(&mut self, case: &Case, outputs: &[Output]) -> Result<(), String> {
        let wants = expect(case);
        for output in outputs {
            let at = || format!("{} [{}] `{}`", case.op(), case.label, output.name);
            if output.name == "alarm" {
                // A case has valid inputs, so an alarm is an error.
                match (0..output.len()).find(|i| output.bits(*i) != 0) {
                    Some(row) => return Err(format!("{}[{row}]: an alarm without a fault", at())),
                    None => continue,
                }
            }
            let want = wants.iter().find(|want| want.name == output.name);
            let want = want.ok_or_else(|| format!("{}: the oracle says nothing of it", at()))?;
            let Worst { units, index, doubtful } = worst(output, want);
            let allowed = precision::units(case.op(), output.name);
            if units > allowed {
                let (got, want) = (output.number(index), want.want[index]);
                return Err(format!(
                    "{}[{index}]: {got:e}, oracle {want:e}: {units:.3} units, allowed {allowed}",
                    at()
                ));
            }
            let tally = self.0.entry((case.op(), output.name)).or_default();
            if units > tally.units {
                (tally.units, tally.label) = (units, case.label.clone());
            }
            let blind = doubtful > 0 && doubtful == output.len();
            for (sum, more) in [
                (&mut tally.elements, [output.len(), doubtful]),
                (&mut tally.cases, [usize::from(!output.is_empty()), usize::from(blind)]),
            ] {
                *sum = [sum[0] + more[0], sum[1] + more[1]];
            }
        }
        Ok(())
    }

    /// The outputs that were not compared often enough: too many elements sat on a jump, or too many cases
    /// had no element compared.
    pub fn unseen(&self) -> Vec<String> {
        let too_many = |[all, out]: [usize; 2]| all == 0 || out as f64 > all as f64 * precision::MAX_DOUBTFUL;
        let bad = self.0.iter().filter(|(_, tally)| too_many(tally.elements) || too_many(tally.cases));
        let say = |((op, output), Tally { elements, cases, .. }): (&(&str, &str), &Tally)| {
            format!(
                "{op} `{output}`: {} of {} elements are left out, all of them in {} of {} cases",
                elements[1], elements[0], cases[1], cases[0]
            )
        };
        bad.map(say).collect()
    }
}
