//! DARS: extra rollouts for hard prompts, so that each gets the cumulative advantage of a prompt of medium
//! difficulty.
//!
//! **Formula** (2508.13755, official code; docs/maths/schedules.md), with p the accuracy after N first-stage
//! rollouts (0.5/N if p <= 1e-6):
//!
//! ```text
//! S = 2 p (1 − p), peak = N/2 (advantage without std);   S = 2 √(p (1 − p)), peak = N (with std)
//! equal treatment:   ΔN = (peak − N S)/S
//! hardness weighted: ΔN = (2 (1 − p) peak − N S)/S
//! ΔN ← min(⌈ΔN⌉, N_max − N);  0 where p >= 0.5
//! ```
//!
//! Second-stage samples join the first; statistics are computed over all of them, and groups whose accuracy
//! is above `upper_threshold` are dropped.
//!
//! **Special cases**: N_max <= N gives 0. Default N_max: 32 (equal treatment), 64 (hardness weighted).

use crate::numbers;
use lockstep_core::Error;
use lockstep_core::num::{Arith, Soft};
use lockstep_core::require;

/// The kind of advantage that the rollouts feed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deviation {
    /// Reward minus mean.
    Without,
    /// Reward minus mean, divided by the standard deviation.
    With,
}

/// The amount that a prompt with accuracy below one half receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Treatment {
    /// The cumulative advantage of a prompt with p = 1/2.
    Equal,
    /// 2 (1 − p) times that.
    HardnessWeighted,
}

impl Treatment {
    /// N_max in the official code.
    pub fn default_most(self) -> u32 {
        match self {
            Treatment::Equal => 32,
            Treatment::HardnessWeighted => 64,
        }
    }
}

/// Parameters of the allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dars {
    /// First-stage rollouts N, at least 1.
    pub rollouts: u32,
    /// Largest number of rollouts N_max, first stage included.
    pub most: u32,
    /// The kind of advantage.
    pub deviation: Deviation,
    /// The treatment of hard prompts.
    pub treatment: Treatment,
}

impl Dars {
    /// Computes ΔN, the number of extra rollouts, for a measured accuracy. Errors: an accuracy outside 0..=1;
    /// N of 0.
    pub fn extra(&self, accuracy: f64) -> Result<u32, Error> {
        require::unit("accuracy", accuracy)?;
        require::scalar("rollouts", self.rollouts > 0, "at least 1", 0.0)?;
        let n = f64::from(self.rollouts);
        let p = if accuracy <= 1e-6 { 0.5 / n } else { accuracy };
        if p >= 0.5 {
            return Ok(0);
        }
        let (s, peak) = match self.deviation {
            Deviation::Without => (2.0 * p * (1.0 - p), n / 2.0),
            Deviation::With => (2.0 * Soft::sqrt64(p * (1.0 - p)), n),
        };
        let goal = match self.treatment {
            Treatment::Equal => peak,
            Treatment::HardnessWeighted => 2.0 * (1.0 - p) * peak,
        };
        Ok(numbers::ceil((goal - n * s) / s).min(self.most.saturating_sub(self.rollouts)))
    }

    /// Whether a pooled group is used for training.
    pub fn keeps(accuracy: f64, upper_threshold: f64) -> bool {
        accuracy <= upper_threshold
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dars(deviation: Deviation, treatment: Treatment) -> Dars {
        Dars { rollouts: 8, most: treatment.default_most(), deviation, treatment }
    }

    #[test]
    fn worked_8_7_dars() {
        use {Deviation::*, Treatment::*};
        let columns = [
            dars(Without, Equal),
            dars(Without, HardnessWeighted),
            dars(With, Equal),
            dars(With, HardnessWeighted),
        ];
        let table = [
            (0.0, [24, 56, 9, 23]),
            (0.125, [11, 24, 5, 14]),
            (0.25, [3, 8, 2, 6]),
            (0.375, [1, 3, 1, 3]),
            (0.5, [0; 4]),
            (0.625, [0; 4]),
            (1.0, [0; 4]),
        ];
        for (accuracy, row) in table {
            assert_eq!(columns.map(|d| d.extra(accuracy).unwrap()), row, "{accuracy}");
        }
    }

    #[test]
    fn harder_prompts_never_get_fewer_and_the_bound_holds() {
        for deviation in [Deviation::Without, Deviation::With] {
            for treatment in [Treatment::Equal, Treatment::HardnessWeighted] {
                let d = dars(deviation, treatment);
                let mut before = u32::MAX;
                for i in 0..=1000 {
                    // Starting at 0.5/N, which replaces a measured 0.
                    let extra = d.extra(0.0625 + 0.0009 * f64::from(i)).unwrap();
                    assert!(extra <= before && extra <= d.most - 8);
                    before = extra;
                }
            }
        }
    }

    #[test]
    fn edges() {
        let d = dars(Deviation::Without, Treatment::Equal);
        assert_eq!(Dars { most: 8, ..d }.extra(0.0), Ok(0));
        assert_eq!(Dars { most: 4, ..d }.extra(0.0), Ok(0));
        assert_eq!(Dars { rollouts: 1, ..d }.extra(0.0), Ok(0), "0.5/N is one half");
        for bad in [-0.1, 1.1, f64::NAN] {
            assert!(matches!(d.extra(bad), Err(Error::Value { argument: "accuracy", .. })));
        }
        assert!(matches!(
            Dars { rollouts: 0, ..d }.extra(0.5),
            Err(Error::Value { argument: "rollouts", .. })
        ));
        assert!(Dars::keeps(0.8, 0.8) && !Dars::keeps(0.81, 0.8));
    }
}
