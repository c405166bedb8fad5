//! Estimators for rewards over time (rewards → advantages per token), as written in TOML.

use crate::ops::turns::NormSet;
use serde::{Deserialize, Serialize};

/// An estimator for rewards at points in time; formulas: [`gae`](lockstep_core::advantage::gae),
/// [`vtrace`](lockstep_core::advantage::vtrace), [`step_return`](lockstep_core::advantage::step_return),
/// [`optimal_token_baseline`](lockstep_core::advantage::optimal_token_baseline),
/// [`turns`](crate::ops::turns), [`signed_return`](lockstep_schedule::signed_return).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum TimeChoice {
    /// Generalised advantage estimation; needs values.
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
        /// α of VAPO's length-adaptive λ, which replaces `lambda`.
        #[serde(skip_serializing_if = "Option::is_none")]
        length_alpha: Option<f64>,
    },
    /// V-trace; needs values and two sets of log-probabilities.
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
        /// Largest weight that propagates an error to earlier tokens.
        #[serde(default = "one")]
        c_bar: f64,
    },
    /// MARS: turns of several roles, each normalised within its role; divides by the standard deviation if
    /// `norm_by_std`.
    Mars {
        /// Discount per turn.
        #[serde(default = "one")]
        gamma: f64,
        /// The values that the mean and standard deviation are over.
        #[serde(default)]
        set: NormSet,
    },
    /// UI-S1: steps and episodes; divides by the standard deviations if `norm_by_std`.
    UiS1 {
        /// Discount per step.
        #[serde(default = "half")]
        gamma: f64,
        /// Whether to use the paper's sum instead of the released code's.
        #[serde(default)]
        include_first_mismatch: bool,
        /// Weight of the step advantage relative to the episode advantage.
        #[serde(default = "one")]
        omega: f64,
    },
    /// Returns relative to a score-weighted mean at the same position.
    OptimalTokenBaseline {
        /// Discount per token.
        #[serde(default = "one")]
        gamma: f64,
        /// Whether a group's longest sequence, by live tokens, has no baseline at the positions beyond the
        /// second longest.
        #[serde(default)]
        lone_tail_is_raw: bool,
    },
    /// Returns of outcome rewards, by the sign of the outcome: PSR, NSR and W-REINFORCE with a discount, as
    /// released.
    SignedReturn {
        /// Discount per token.
        #[serde(default = "one")]
        gamma: f64,
        /// Factor of the return where the reward is 1.
        #[serde(default = "one")]
        correct: f64,
        /// Added where the reward is 0.
        #[serde(default)]
        wrong: f64,
        /// Added wherever there is a reward.
        #[serde(default)]
        offset: f64,
        /// Whether a return ends at a masked token (the released code).
        #[serde(default)]
        stop_at_mask: bool,
    },
}

defaults! {
    one: f64 = 1.0;
    half: f64 = 0.5;
}
