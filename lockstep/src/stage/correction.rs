//! From a recipe's rollout correction to the ops, and the corrections that have a name.
//!
//! | recipe | level | rule | band | bound | rejection | denominator |
//! |---|---|---|---|---|---|---|
//! | `verl_tis_token`, `verl_tis_sequence` | token, sequence | truncate | 2 | 20 | | |
//! | `verl_mis_sequence` | sequence | mask | 0.5 to 2 | 20 | | |
//! | `icepop` | token | mask | 0.5 to 5 | none | | before |
//! | `geo_rs` | one | | | 20 | seq_mean_k1 on ρ, 0.999 to 1.001 | after |
//! | `trl_vllm` | sequence | mask | 3 | none | | before |
//! | `slime_tis` | token | truncate | 0 to 2 | none | | before |
//! | `nemo_seq_mask_tis` | token | plain | | none | seq_mean_k1 on ρ, 0.999 to 1.002 | before |
//! | `areal_decoupled` | token | plain | | none | | before |
//!
//! The rest of each is its framework's preset; the bands of `verl_mis_sequence` and `nemo_seq_mask_tis` are ours, for frameworks leave
//! them to the user. `areal_decoupled` is decoupled PPO: the weight is exp(prox − behave), PPO clips against prox, which is
//! `logp_old` here. Those of more peers: `recipe/named_peers.rs`.

use super::{
    CorrectionChoice, DenominatorChoice, K1BandChoice, Recipe, RejectChoice, WeightLevelChoice, WeightRule,
};
use crate::ops::correction::{Correction, CorrectionParams, Denominator, rollout_correction};
use crate::{Batch, Device, Error};
use lockstep_core::Error as Argument;
use lockstep_core::correction::{K1Band, LOG_BOUND, Rejections, Rule, Statistic, WeightLevel};

/// The correction of a named recipe.
pub(super) fn named(name: &str) -> Option<CorrectionChoice> {
    let tis = CorrectionChoice::default();
    let before = CorrectionChoice { denominator: DenominatorChoice::Before, ..CorrectionChoice::default() };
    let verl = CorrectionChoice { bound: Some(LOG_BOUND), ..CorrectionChoice::default() };
    let geometric = |low, high| {
        let (statistic, band) = (Statistic::SeqMeanK1, K1BandChoice::Rho);
        vec![RejectChoice { statistic, low: Some(low), high, band }]
    };
    Some(match name {
        "verl_tis_token" => verl,
        "verl_tis_sequence" => CorrectionChoice { level: WeightLevelChoice::Sequence, ..verl },
        "verl_mis_sequence" => CorrectionChoice {
            level: WeightLevelChoice::Sequence,
            rule: WeightRule::Mask,
            low: Some(0.5),
            ..verl
        },
        "icepop" => CorrectionChoice { rule: WeightRule::Mask, low: Some(0.5), high: 5.0, ..before },
        "geo_rs" => CorrectionChoice {
            level: WeightLevelChoice::One,
            rule: WeightRule::Plain,
            reject: geometric(0.999, 1.001),
            ..verl
        },
        "trl_vllm" => CorrectionChoice {
            level: WeightLevelChoice::Sequence,
            rule: WeightRule::Mask,
            high: 3.0,
            ..before
        },
        "slime_tis" => CorrectionChoice { low: Some(0.0), denominator: before.denominator, ..tis },
        "nemo_seq_mask_tis" => {
            CorrectionChoice { rule: WeightRule::Plain, reject: geometric(0.999, 1.002), ..before }
        }
        "areal_decoupled" => CorrectionChoice { rule: WeightRule::Plain, ..before },
        _ => return None,
    })
}

impl Recipe {
    /// The recipe's rollout correction: weights, what rejection left, statistics. Give `weights` to
    /// [`PolicyInput`](crate::PolicyInput), [`Correction::batch`] to the policy loss and `kept` to the advantages.
    ///
    /// Errors: a recipe without `[correction]`; see [`rollout_correction`].
    ///
    /// ```
    /// use lockstep::{Advantage, Batch, Device, PolicyInput, Recipe};
    /// let (device, recipe) = (Device::cpu(), Recipe::named("verl_tis_token")?);
    /// let batch = Batch::new(&[0, 2, 4], &[0, 2], None)?;
    /// let (logp_old, logp_rollout) = ([-0.5, -0.5, -1.0, -0.1], [-0.5, -3.5, -1.0, -0.6]);
    ///
    /// let correction = recipe.correct(&device, &batch, &logp_old, &logp_rollout)?;
    /// let adv = recipe.advantages_of(&device, &batch, &[1.0, 0.0], Some(&correction.kept))?;
    /// let input = PolicyInput {
    ///     weights: Some(&correction.weights),
    ///     ..PolicyInput::new(&logp_old, &logp_old, Advantage::PerSequence(&adv.advantage))
    /// };
    /// let out = recipe.policy_loss(&device, &correction.batch(&batch)?, &input)?;
    /// assert_eq!(out.coef[1], 2.0 * out.coef[0], "truncated at 2");
    /// # Ok::<(), lockstep::Error>(())
    /// ```
    pub fn correct(
        &self,
        device: &Device,
        batch: &Batch<'_>,
        logp_old: &[f32],
        logp_rollout: &[f32],
    ) -> Result<Correction, Error> {
        let Some(choice) = &self.correction else {
            let expected = "the recipe has no [correction]: add one";
            return Err(Argument::Combination { argument: "logp_rollout", expected }.into());
        };
        rollout_correction(device, batch, logp_old, logp_rollout, &choice.params()?)
    }
}

impl CorrectionChoice {
    /// The op's parameters; errors name the key.
    pub fn params(&self) -> Result<CorrectionParams, Error> {
        let refuse = |message: String| Err(Error::Recipe(message));
        let (low, high) = (self.low, self.high);
        if !(high > 0.0 && high.is_finite()) {
            return refuse(format!("correction.high is {high}: expected a positive finite number"));
        }
        if let Some(low) = low.filter(|low| !(*low >= 0.0 && *low <= high)) {
            return refuse(format!("correction.low is {low}: expected 0 to correction.high"));
        }
        if let (WeightRule::Plain, Some(_)) = (self.rule, low) {
            return refuse("correction.low is used by the rules truncate and mask only".into());
        }
        if self.level == WeightLevelChoice::One && (self.rule != WeightRule::Plain || self.normalize) {
            return refuse("correction.level one has no weights: rule plain, without normalize".into());
        }
        if let Some(bound) = self.bound.filter(|bound| bound.is_nan() || *bound <= 0.0) {
            return refuse(format!("correction.bound is {bound}: expected a positive number"));
        }
        let mut rejections = Rejections::NONE;
        for (k, reject) in self.reject.iter().enumerate() {
            if self.reject[..k].iter().any(|earlier| earlier.statistic == reject.statistic) {
                return refuse(format!("correction.reject has {} twice", reject.statistic.name()));
            }
            let band = match reject.band {
                K1BandChoice::Rho => K1Band::Rho,
                K1BandChoice::InverseRho => K1Band::InverseRho,
            };
            rejections = rejections
                .with(reject.statistic, reject.low, reject.high, band)
                .map_err(|e| Error::Recipe(format!("correction.reject: {}: {e}", reject.statistic.name())))?;
        }
        Ok(CorrectionParams {
            level: match self.level {
                WeightLevelChoice::One => WeightLevel::One,
                WeightLevelChoice::Token => WeightLevel::Token,
                WeightLevelChoice::Sequence => WeightLevel::Sequence,
                WeightLevelChoice::Geometric => WeightLevel::Geometric,
            },
            rule: match self.rule {
                WeightRule::Truncate => Rule::Truncate,
                WeightRule::Mask => Rule::Mask,
                WeightRule::Plain => Rule::Plain,
            },
            low,
            high,
            bound: self.bound.unwrap_or(f32::INFINITY),
            rejections,
            normalize: self.normalize,
            denominator: match self.denominator {
                DenominatorChoice::Before => Denominator::Before,
                DenominatorChoice::After => Denominator::After,
            },
        })
    }
}
