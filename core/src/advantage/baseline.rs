//! Baselines and scales of group-relative advantages: what a reward is compared with, and what the difference
//! is divided by. [`GroupAdvantage`](super::GroupAdvantage) takes one of each.
//!
//! | in the literature | baseline | scale | source |
//! |---|---|---|---|
//! | GRPO | `Mean` | `Std` | 2402.03300 |
//! | Dr.GRPO | `Mean` | `None` | 2503.20783 |
//! | Lite-PPO, TRL's `scale_rewards=batch` | `Mean` | `Batch` | TRL |
//! | RLOO | `LeaveOneOut` | `None` | 2402.14740 |
//! | NeMo's GRPO | `LeaveOneOut` | `LeaveOneOutStd` | NeMo RL |
//! | OPO | `Length` | `None` | 2505.23585 |
//! | GPG | `Mean` | `Nonzero` | 2504.02546 |
//! | MaxRL | `Mean` | `Mean` | 2602.02710, its code |
//! | pass@k, verl's form | `Second` | `Std` or `None` | 2503.19595 |
//! | MC-GRPO | `Median` | `Mad` | 2601.22582 |
//! | ReMax (greedy reward), REINFORCE with any baseline | `Given` | `None` | 2310.10505 |
//! | AReaL without a mean | `Given` 0 | `RootMeanSquare` | AReaL |
//! | VCPO, minimum variance | `Weighted` | `Std` | 2602.17616 |
//! | V0.5-style (our reading) | `Shrunk` | `None` | 2603.10848 |

use crate::Error;
use crate::require;

/// The baseline b of A = (R − b) / scale, over the n counted members of a group, whose mean reward is r̄.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Baseline {
    /// The mean of the group, r̄.
    Mean,
    /// The mean of the other members, so that R_i − b_i = n/(n−1) · (R_i − r̄).
    LeaveOneOut,
    /// The weighted mean Σ w_j R_j / (Σ w_j + eps), with w from `weights` `[S]`; 0 when Σ w = 0.
    Weighted {
        /// Added to Σ w (VCPO: 1e-8).
        eps: f64,
    },
    /// The length-weighted mean Σ L_j R_j / Σ L_j, with L from `lengths` `[S]`; 0 when Σ L = 0.
    Length,
    /// The lower median: the value at position ⌊(n−1)/2⌋ of the sorted rewards. Of the members with that
    /// reward, the one with the lowest index is the *pivot*.
    Median,
    /// The second largest reward, applied only to the first member with the largest (the *pivot*); every
    /// other member has advantage 0.
    Second,
    /// A baseline per group that the caller supplies in `given` `[G]`.
    Given,
    /// λ v₀ + (1 − λ) r̄, with the prior v₀ = `given` `[G]` and s² the estimated variance of one reward:
    /// λ = (s²/n) / max((r̄ − v₀)², s²/n), or, where the prior's error is known, λ = (s²/n) / (s²/n + tau2).
    /// If numerator and denominator are both 0, λ = 1.
    Shrunk {
        /// Variance of the prior's error; 0 = estimate it from (r̄ − v₀)².
        tau2: f64,
        /// If set, s² = p (1 − p) with p = (Σ R + 1)/(n + 2) clamped to 0 to 1, for rewards of 0 and 1.
        /// Otherwise s² is the unbiased sample variance, and a group of one has λ = 1.
        laplace: bool,
    },
}

/// The scale of A = (R − b) / scale.
///
/// If a deviation is exactly 0 but R − b is not (the baseline comes from outside the group), R − b is not
/// divided. If the MAD is 0, the divisor is its floor, unless that is 0 too.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scale {
    /// No division; the standard deviation is still reported.
    None {
        /// For the reported deviation: 1 = unbiased, 0 = population.
        ddof: u32,
    },
    /// std + eps of the group, with the variance Σ (R − r̄)² / (n − ddof).
    Std {
        /// 1 = unbiased, 0 = population.
        ddof: u32,
        /// Added outside the root.
        eps: f64,
    },
    /// std + eps of the other members, for each member. The deviation is exactly 0 when the others have equal
    /// rewards, which is decided on the inputs.
    LeaveOneOutStd {
        /// 1 = unbiased, 0 = population.
        ddof: u32,
        /// Added outside the root.
        eps: f64,
    },
    /// MAD + floor, where the median absolute deviation is the lower median of |R − b| (not multiplied by
    /// 1.4826).
    Mad {
        /// Added to the MAD. MC-GRPO uses 1e-3: with binary rewards and a majority, the MAD is 0 and the
        /// minority gets ±1/floor. Recommended: 0.1 to 1.
        floor: f64,
    },
    /// r̄ + eps, with the mean reward r̄; if it is 0, every advantage is 0.
    Mean {
        /// Added to the mean; MaxRL's code has 1e-6.
        eps: f64,
    },
    /// std + eps of the whole batch, from `moments` `[6]`.
    Batch {
        /// 1 = unbiased, 0 = population.
        ddof: u32,
        /// Added outside the root.
        eps: f64,
    },
    /// norm · max(nonzero, 1) / count, from `moments` `[6]`: a multiple of the fraction of rewards that are
    /// not 0.
    Nonzero {
        /// GPG's f_norm.
        norm: f64,
    },
    /// sqrt(Σ (R_i − b_i)² / (n − ddof)) + eps: the deviation around the baseline instead of the mean
    /// (AReaL). 1 + eps if n ≤ ddof.
    RootMeanSquare {
        /// 1 = unbiased, 0 = population.
        ddof: u32,
        /// Added outside the root.
        eps: f64,
    },
}

impl Baseline {
    /// Whether the baseline reads `weights`.
    pub fn needs_weights(self) -> bool {
        matches!(self, Baseline::Weighted { .. })
    }

    /// Whether the baseline reads `given`.
    pub fn needs_given(self) -> bool {
        matches!(self, Baseline::Given | Baseline::Shrunk { .. })
    }

    /// Whether the baseline is a statistic of the group, so that a group of equal rewards has advantages of
    /// exactly 0.
    #[inline(always)]
    pub fn is_of_the_group(self) -> bool {
        !matches!(self, Baseline::Given | Baseline::Shrunk { .. })
    }

    /// Checks the baseline's parameter.
    ///
    /// Errors: [`Error::Value`] if `eps` or `tau2` is negative or not finite.
    pub fn check(self) -> Result<(), Error> {
        match self {
            Baseline::Weighted { eps } => require::not_negative("baseline eps", eps),
            Baseline::Shrunk { tau2, .. } => require::not_negative("baseline tau2", tau2),
            _ => Ok(()),
        }
    }
}

impl Scale {
    /// Whether the scale reads `moments`.
    pub fn needs_moments(self) -> bool {
        matches!(self, Scale::Batch { .. } | Scale::Nonzero { .. })
    }

    /// Checks the scale's parameters.
    ///
    /// Errors: [`Error::Value`] if `ddof` is above 1, `eps` or `floor` is negative or not finite, or `norm`
    /// is not a positive finite number.
    pub fn check(self) -> Result<(), Error> {
        match self {
            Scale::Mean { eps } => require::not_negative("eps", eps),
            Scale::None { ddof } => Scale::Std { ddof, eps: 0.0 }.check(),
            Scale::Std { ddof, eps }
            | Scale::LeaveOneOutStd { ddof, eps }
            | Scale::Batch { ddof, eps }
            | Scale::RootMeanSquare { ddof, eps } => {
                require::scalar("ddof", ddof <= 1, "0 or 1", ddof)?;
                require::not_negative("eps", eps)
            }
            Scale::Mad { floor } => require::not_negative("floor", floor),
            Scale::Nonzero { norm } => require::positive("norm", norm),
        }
    }
}

crate::launch_args!(enum Baseline (number: f64) {
    0 => Mean, 1 => LeaveOneOut, 2 => Weighted { eps: number }, 3 => Length, 4 => Median, 5 => Second,
    6 => Given,
    7 => Shrunk { tau2: number, laplace: false }, 8 => Shrunk { tau2: number, laplace: true }
});

crate::launch_args!(enum Scale (ddof: u32, number: f64) {
    0 => None { ddof }, 1 => Std { ddof, eps: number }, 2 => LeaveOneOutStd { ddof, eps: number },
    3 => Mad { floor: number }, 4 => Mean { eps: number }, 5 => Batch { ddof, eps: number },
    6 => Nonzero { norm: number },
    7 => RootMeanSquare { ddof, eps: number }
});
