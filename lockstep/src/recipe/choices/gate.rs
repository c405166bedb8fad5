//! The gate stage (ratio and advantage → loss and gradient), as written in TOML.

use super::Against;
use lockstep_core::gate::Divergence;
use lockstep_core::policy_loss::gmpo::Mean;
use serde::{Deserialize, Serialize};

/// The gate: ratio and advantage → loss and gradient.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum GateChoice {
    /// PPO clip, with clip-higher and dual clip.
    PpoClip {
        /// Distance of the lower bound from 1.
        #[serde(default = "default_clip")]
        clip_ratio_low: f32,
        /// Distance of the upper bound from 1.
        #[serde(default = "default_clip")]
        clip_ratio_high: f32,
        /// Constant c of the dual clip; absent = off.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        clip_ratio_c: Option<f32>,
    },
    /// CISPO: a clipped weight that is never differentiated. Bounds are absolute.
    Cispo {
        /// Smallest weight; 0 = none.
        #[serde(default)]
        low: f32,
        /// Largest weight.
        #[serde(default = "default_cispo_high")]
        high: f32,
    },
    /// REINFORCE without an importance weight (GPG).
    Reinforce {},
    /// DPPO with a trust region by total variation.
    DppoTv {
        /// Largest decrease of a probability.
        #[serde(default = "default_dppo")]
        clip_ratio_low: f32,
        /// Largest increase of a probability.
        #[serde(default = "default_dppo")]
        clip_ratio_high: f32,
        /// Largest importance weight.
        #[serde(default = "default_dppo_c")]
        clip_ratio_c: f32,
    },
    /// DPPO with a trust region by binary KL divergence.
    DppoKl {
        /// Largest divergence of a probability that falls.
        #[serde(default = "default_dppo")]
        clip_ratio_low: f32,
        /// Largest divergence of a probability that rises.
        #[serde(default = "default_dppo")]
        clip_ratio_high: f32,
        /// Largest importance weight.
        #[serde(default = "default_dppo_c")]
        clip_ratio_c: f32,
    },
    /// DPPO whose weight is relative to the sampler (`logp_rollout`) while the trust-region test is relative
    /// to `logp_old`; with `given` divergences, both are relative to `logp_old`.
    TrustRegion {
        /// The bounded divergence: computed from the token, or read from column `divergence`.
        divergence: Divergence,
        /// Largest divergence of a probability that falls.
        #[serde(default = "default_dppo")]
        clip_ratio_low: f32,
        /// Largest divergence of a probability that rises.
        #[serde(default = "default_dppo")]
        clip_ratio_high: f32,
        /// Largest importance weight.
        #[serde(default = "default_dppo_c")]
        clip_ratio_c: f32,
    },
    /// GMPO: the geometric mean over the sequence of ratios whose logarithms are clipped token by token.
    /// Divides by the number of all sequences, whatever the aggregation.
    Gmpo {
        /// Largest decrease of a log-ratio.
        #[serde(default = "default_gmpo")]
        clip_log_low: f32,
        /// Largest increase of a log-ratio.
        #[serde(default = "default_gmpo")]
        clip_log_high: f32,
        /// The quantity that the two bound.
        #[serde(default)]
        bounds: GmpoBounds,
        /// The mean of the ratios: the geometric mean, or that of its ablations or HMPO.
        #[serde(default, skip_serializing_if = "is_geometric")]
        mean: Mean,
    },
    /// MiniRL: a truncated weight relative to the sampler (`logp_rollout`), and PPO's clip as a mask.
    Minirl {
        /// Distance of the lower bound from 1.
        #[serde(default = "default_clip")]
        clip_ratio_low: f32,
        /// Distance of the upper bound from 1.
        #[serde(default = "default_minirl_high")]
        clip_ratio_high: f32,
        /// Largest weight.
        #[serde(default = "default_minirl_c")]
        clip_ratio_c: f32,
    },
    /// ReMix: PPO's clip around the ratio of the latest policy (`logp_latest`) to `logp_old`.
    Remix {
        /// Distance of the lower bound from the centre.
        #[serde(default = "default_clip")]
        clip_ratio_low: f32,
        /// Distance of the upper bound from the centre.
        #[serde(default = "default_clip")]
        clip_ratio_high: f32,
    },
    /// TRL's two-sided clip: PPO's clip, and a ratio of at most `delta` where A < 0 (a dual clip).
    TwoSided {
        /// Distance of the lower bound from 1.
        #[serde(default = "default_clip")]
        clip_ratio_low: f32,
        /// Distance of the upper bound from 1.
        #[serde(default = "default_clip")]
        clip_ratio_high: f32,
        /// Largest ratio.
        delta: f32,
    },
    /// KL-Cov: no clip, but a KL term on the tokens with the largest covariance of advantage and
    /// log-probability.
    KlCov {
        /// Share of live tokens with the KL term.
        #[serde(default = "default_cov_ratio")]
        kl_cov_ratio: f64,
        /// Coefficient of |logp − logp_old|.
        #[serde(default = "default_kl_cov_coef")]
        ppo_kl_coef: f32,
        /// PPO's clip in addition: distance of the lower bound from 1; absent = none (verl).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        clip_ratio_low: Option<f32>,
        /// Distance of the upper bound from 1; absent = none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        clip_ratio_high: Option<f32>,
    },
    /// Clip-Cov: PPO's clip, and no loss on a few random tokens with a large covariance of advantage and
    /// log-probability.
    ClipCov {
        /// Distance of the lower bound from 1.
        #[serde(default = "default_clip")]
        clip_ratio_low: f32,
        /// Distance of the upper bound from 1.
        #[serde(default = "default_clip")]
        clip_ratio_high: f32,
        /// Share of live tokens without a loss.
        #[serde(default = "default_cov_ratio")]
        clip_cov_ratio: f64,
        /// Only tokens with covariances above this.
        #[serde(default = "default_clip_cov_lb")]
        clip_cov_lb: f32,
        /// Only tokens with covariances below this.
        #[serde(default = "default_clip_cov_ub")]
        clip_cov_ub: f32,
    },
    /// DRO: −(A·logp − β/2·(logp − logp_old)²).
    Dro {
        /// Coefficient β.
        beta: f32,
    },
    /// VESPO: REINFORCE with a gamma-shaped weight of the sequence's ratio to the policy that `against`
    /// names.
    Vespo {
        /// k where A ≥ 0.
        #[serde(default = "two")]
        k_pos: f32,
        /// λ where A ≥ 0.
        #[serde(default = "three")]
        lambda_pos: f32,
        /// k where A < 0.
        #[serde(default = "three")]
        k_neg: f32,
        /// λ where A < 0.
        #[serde(default = "two")]
        lambda_neg: f32,
        /// The policy that the ratio is relative to. Weights of a correction enter the exponent either way,
        /// so choose one of the two ways to correct for the sampler: `old` with weights (TRL), or `rollout`,
        /// the sampler itself, without weights.
        #[serde(default = "rollout")]
        against: Against,
        /// Lower bound of λ for either sign; absent = none. TRL: 1e-4.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        lambda_floor: Option<f32>,
    },
    /// TOPR: REINFORCE, weighted where A < 0 by the sequence's ratio to the sampler (`logp_rollout`), at
    /// most 1.
    Topr {},
    /// SAPO's soft gate.
    Sapo {
        /// Temperature for positive advantages.
        #[serde(default = "default_tau_pos")]
        tau_pos: f32,
        /// Temperature for the other advantages.
        #[serde(default = "default_tau_neg")]
        tau_neg: f32,
    },
}

/// The quantity that GMPO's clip bounds (docs/maths/disagreements.md row 23).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GmpoBounds {
    /// The logarithm: the log-ratio is within −low to high (verl, the paper).
    #[default]
    Log,
    /// The ratio: it is within 1 − low to 1 + high.
    Ratio,
}

defaults! {
    default_cispo_high: f32 = 1.28;
    default_dppo: f32 = 0.15;
    default_dppo_c: f32 = 3.0;
    default_gmpo: f32 = 0.4;
    default_minirl_high: f32 = 0.27;
    default_minirl_c: f32 = 5.0;
    default_cov_ratio: f64 = 2e-4;
    default_kl_cov_coef: f32 = 1.0;
    default_clip_cov_lb: f32 = 1.0;
    default_clip_cov_ub: f32 = 5.0;
    rollout: Against = Against::Rollout;
    two: f32 = 2.0;
    three: f32 = 3.0;
    default_clip: f32 = 0.2;
    default_tau_pos: f32 = 1.0;
    default_tau_neg: f32 = 1.05;
}

fn is_geometric(mean: &Mean) -> bool {
    *mean == Mean::Geometric
}

impl GateChoice {
    /// Whether the gate weighs a sequence as a whole.
    pub(crate) fn weighs_sequences(&self) -> bool {
        matches!(self, GateChoice::Vespo { .. } | GateChoice::Topr {})
    }
}

impl Default for GateChoice {
    fn default() -> Self {
        GateChoice::PpoClip { clip_ratio_low: 0.2, clip_ratio_high: 0.2, clip_ratio_c: None }
    }
}
