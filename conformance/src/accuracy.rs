//! A launch's outputs against the oracle.

use crate::cases::Case;
use crate::expect::{Want, expect};
use crate::output::Output;
use crate::precision;
use std::collections::BTreeMap;

const UNIT: f64 = 1.0 / 16_777_216.0;

/// What was measured, per op and output.
#[derive(Clone, Debug, Default)]
pub struct Measured(pub BTreeMap<(&'static str, &'static str), Tally>);

/// One output of an op over all cases.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Largest error in units.
    pub units: f64,
    /// The case it came from.
    pub label: String,
    /// Elements, and how many of them sat on a jump and were not compared.
    pub elements: [usize; 2],
    /// Cases with elements, and those without a compared one.
    pub cases: [usize; 2],
}

/// The worst element of an output.
#[derive(Clone, Debug, PartialEq)]
pub struct Worst {
    /// Error in units of 2⁻²⁴ of the magnitude; infinite where equality was asked for.
    pub units: f64,
    /// Index of the element.
    pub index: usize,
    /// How many elements sat on a jump and were not compared.
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
        // Equal infinities differ by NaN; a NaN that is not wanted must never pass.
        let units = if got == want || difference < precision::FLOOR || difference <= -magnitude {
            // A negative magnitude is that of a count: how many of its tokens sat on a jump.
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
    /// Adds a case; an `Err` names the first output whose error is not allowed.
    pub fn add(&mut self, case: &Case, outputs: &[Output]) -> Result<(), String> {
        let wants = expect(case);
        for output in outputs {
            let at = || format!("{} [{}] `{}`", case.op(), case.label, output.name);
            if output.name == "alarm" {
                // The inputs of a case are fit to be used.
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

    /// The outputs that were not compared often enough: too many of their elements sat on a jump, or all of them in too many cases.
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
