//! Rollout correction, as TOML spells it.

use lockstep_core::correction::Statistic;
use serde::{Deserialize, Serialize};

/// Over what the importance weight is taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WeightLevelChoice {
    /// No weights: rejection alone.
    One,
    /// Each token by itself.
    #[default]
    Token,
    /// The product over the sequence.
    Sequence,
    /// The geometric mean over the sequence.
    Geometric,
}

/// From the importance ratio to the weight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WeightRule {
    /// Clipped to the band (TIS).
    #[default]
    Truncate,
    /// 0 outside of the band (IcePop, MIS).
    Mask,
    /// As it is.
    Plain,
}

/// Which tokens divide the loss when some were rejected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DenominatorChoice {
    /// All that were there (TRL, NeMo RL, AReaL).
    Before,
    /// Those that are left (verl).
    #[default]
    After,
}

/// What a band of k1 is a band on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum K1BandChoice {
    /// ρ = p_old / p_rollout.
    #[default]
    Rho,
    /// 1/ρ: verl's code.
    InverseRho,
}

/// What a NaN in column `logp_rollout` means, at a live token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NanRollout {
    /// It is an error.
    #[default]
    Error,
    /// The sampler gave none: the ratio is 1 there, whoever takes it (TRL). The token counts like any other.
    One,
}

/// A rejection.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RejectChoice {
    /// verl's name of the statistic.
    #[serde(with = "statistic")]
    pub statistic: Statistic,
    /// Lower bound of a k1, as a ratio; absent = 1/high.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub low: Option<f32>,
    /// Upper bound: of a k1 as a ratio, of k2 and k3 as they are.
    pub high: f32,
    /// What the band of a k1 is on.
    #[serde(default)]
    pub band: K1BandChoice,
}

/// Importance weights and rejection of what the sampler produced under other probabilities.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CorrectionChoice {
    /// Over what the importance weight is taken.
    pub level: WeightLevelChoice,
    /// From the ratio to the weight.
    pub rule: WeightRule,
    /// Lower end of the band; absent = none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub low: Option<f32>,
    /// Upper end of the band; infinite = none.
    pub high: f32,
    /// Bound of log-ratios; absent = none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bound: Option<f32>,
    /// Divide weights by their mean: over tokens at level token, over sequences at the others.
    pub normalize: bool,
    /// Which tokens divide the loss.
    pub denominator: DenominatorChoice,
    /// What a NaN in `logp_rollout` means, here, for gates and for the off-policy sequence mask.
    pub nan_rollout: NanRollout,
    /// Rejections; all must hold.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub reject: Vec<RejectChoice>,
}

impl Default for CorrectionChoice {
    /// min(ρ, 2) per token.
    fn default() -> Self {
        CorrectionChoice {
            level: WeightLevelChoice::Token,
            rule: WeightRule::Truncate,
            low: None,
            high: 2.0,
            bound: None,
            normalize: false,
            denominator: DenominatorChoice::After,
            nan_rollout: NanRollout::Error,
            reject: Vec::new(),
        }
    }
}

/// Statistics by name.
mod statistic {
    use super::Statistic;
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

    pub(super) fn serialize<S: Serializer>(value: &Statistic, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(value.name())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Statistic, D::Error> {
        let name = String::deserialize(from)?;
        let names = || Statistic::ALL.map(Statistic::name).join(", ");
        let found = Statistic::ALL.into_iter().find(|statistic| statistic.name() == name);
        found.ok_or_else(|| {
            D::Error::custom(format!("no statistic is called `{name}`: known are {}", names()))
        })
    }
}
