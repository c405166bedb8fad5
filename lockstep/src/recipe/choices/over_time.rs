//! Rewards over time → advantages per token, as TOML spells it.

use crate::ops::turns::NormSet;
use serde::{Deserialize, Serialize};

/// An estimator whose rewards have a place in time; formulas: [`gae`](lockstep_core::advantage::gae),
/// [`vtrace`](lockstep_core::advantage::vtrace), [`step_return`](lockstep_core::advantage::step_return),
/// [`optimal_token_baseline`](lockstep_core::advantage::optimal_token_baseline),
/// [`turns`](crate::ops::turns), [`signed_return`](lockstep_core::advantage::signed_return).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum TimeChoice {
    /// Generalised advantage estimation; wants values.
    Gae {
        /// Discount per token.
        #[serde(default = "one")]
        gamma: f64,
        /// λ.
        #[serde(default = "one")]
        lambda: f64,
        /// λ of the returns; absent = that of the advantages.
        #[serde(skip_serializing_if = "Option::is_none")]
        lambda_critic: Option<f64>,
        /// α of VAPO's λ, which depends on the length; instead of `lambda`.
        #[serde(skip_serializing_if = "Option::is_none")]
        length_alpha: Option<f64>,
    },
    /// V-trace; wants values and two sets of log-probabilities.
    Vtrace {
        /// Discount per token.
        #[serde(default = "one")]
        gamma: f64,
        /// λ.
        #[serde(default = "one")]
        lambda: f64,
        /// Largest weight of a TD error.
        #[serde(default = "one")]
        rho_bar: f64,
        /// Largest weight of an advantage.
        #[serde(default = "one")]
        rho_pg: f64,
        /// Largest weight that carries an error back.
        #[serde(default = "one")]
        c_bar: f64,
    },
    /// Turns of several roles, each normalised among its own; divides by the standard deviation where
    /// `norm_by_std` says so.
    Mars {
        /// Discount per turn.
        #[serde(default = "one")]
        gamma: f64,
        /// Normalised over what.
        #[serde(default)]
        set: NormSet,
    },
    /// Steps and episodes; divides by the standard deviations where `norm_by_std` says so.
    UiS1 {
        /// Discount per step.
        #[serde(default = "half")]
        gamma: f64,
        /// The paper's sum instead of the released code's.
        #[serde(default)]
        include_first_mismatch: bool,
        /// Weight of the steps beside the episode.
        #[serde(default = "one")]
        omega: f64,
    },
    /// Returns against a score-weighted mean at the same position.
    OptimalTokenBaseline {
        /// Discount per token.
        #[serde(default = "one")]
        gamma: f64,
        /// No baseline for the tail of a group's longest sequence, by live tokens, beyond the second longest.
        #[serde(default)]
        lone_tail_is_raw: bool,
    },
    /// Returns of outcome rewards, by the sign of the outcome: PSR, NSR and W-REINFORCE with a discount, as
    /// released.
    SignedReturn {
        /// Discount per token.
        #[serde(default = "one")]
        gamma: f64,
        /// Times the return where the reward is 1.
        #[serde(default = "one")]
        correct: f64,
        /// Added where the reward is 0.
        #[serde(default)]
        wrong: f64,
        /// Added wherever there is a reward.
        #[serde(default)]
        offset: f64,
        /// A return ends at a masked token (the released code).
        #[serde(default)]
        stop_at_mask: bool,
    },
}

fn one() -> f64 {
    1.0
}

fn half() -> f64 {
    0.5
}
