//! Ratio and advantage → loss and gradient, as TOML spells it.

use serde::{Deserialize, Serialize};

/// Ratio and advantage → loss and gradient.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum GateChoice {
    /// PPO clip, clip-higher, dual clip.
    PpoClip {
        /// Distance of the lower bound from 1.
        #[serde(default = "default_clip")]
        clip_ratio_low: f32,
        /// Distance of the upper bound from 1.
        #[serde(default = "default_clip")]
        clip_ratio_high: f32,
        /// Dual-clip constant; absent = off.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        clip_ratio_c: Option<f32>,
    },
    /// CISPO: clipped weight, never differentiated. Bounds are absolute.
    Cispo {
        /// Least weight; 0 = none.
        #[serde(default)]
        low: f32,
        /// Greatest weight.
        #[serde(default = "default_cispo_high")]
        high: f32,
    },
    /// REINFORCE without importance weight (GPG).
    Reinforce {},
    /// DPPO, trust region by total variation.
    DppoTv {
        /// Most that a probability may fall.
        #[serde(default = "default_dppo")]
        clip_ratio_low: f32,
        /// Most that a probability may rise.
        #[serde(default = "default_dppo")]
        clip_ratio_high: f32,
        /// Greatest importance weight.
        #[serde(default = "default_dppo_c")]
        clip_ratio_c: f32,
    },
    /// DPPO, trust region by binary KL divergence.
    DppoKl {
        /// Greatest divergence of a probability that falls.
        #[serde(default = "default_dppo")]
        clip_ratio_low: f32,
        /// Greatest divergence of a probability that rises.
        #[serde(default = "default_dppo")]
        clip_ratio_high: f32,
        /// Greatest importance weight.
        #[serde(default = "default_dppo_c")]
        clip_ratio_c: f32,
    },
    /// GMPO: geometric mean over the sequence of log-ratios clipped token by token. Divides by all sequences, whatever
    /// aggregation is set.
    Gmpo {
        /// How far a log-ratio may fall.
        #[serde(default = "default_gmpo")]
        clip_log_low: f32,
        /// How far a log-ratio may rise.
        #[serde(default = "default_gmpo")]
        clip_log_high: f32,
    },
    /// SAPO's soft gate.
    Sapo {
        /// Temperature for positive advantages.
        #[serde(default = "default_tau_pos")]
        tau_pos: f32,
        /// Temperature for the others.
        #[serde(default = "default_tau_neg")]
        tau_neg: f32,
    },
}

fn default_cispo_high() -> f32 {
    1.28
}
fn default_dppo() -> f32 {
    0.15
}
fn default_dppo_c() -> f32 {
    3.0
}
fn default_gmpo() -> f32 {
    0.4
}
fn default_clip() -> f32 {
    0.2
}
fn default_tau_pos() -> f32 {
    1.0
}
fn default_tau_neg() -> f32 {
    1.05
}

impl Default for GateChoice {
    fn default() -> Self {
        GateChoice::PpoClip { clip_ratio_low: 0.2, clip_ratio_high: 0.2, clip_ratio_c: None }
    }
}
