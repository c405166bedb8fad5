//! Policy losses of several launches: changes to the inputs of the fused op.

use super::naming::Naming;
use super::reward::needed;
use super::top_entropy::finite_entropy;
use crate::ops::aggregate::sequence_means_into;
use crate::ops::policy_loss::{PolicyInput, Spare};
use crate::ops::select::{Candidates, Pick, covariance_into, select_into, share, top_quantile};
use crate::ops::sequence_weight::sequence_weight_into;
use crate::recipe::{Against, GateChoice, RatioAdvantage, Recipe};
use crate::{Advantage, Batch, Device, Error, Rollouts};
use lockstep_core::Error as Argument;
use lockstep_core::gate::{Divergence, PpoClip};
use lockstep_core::kl::{Kl, KlFormula};
use lockstep_core::policy_loss::SequenceRule;
use lockstep_core::select::Order;
use std::borrow::Cow;

/// Inputs of the fused op that are added to, or replace, those of the caller.
#[derive(Default)]
pub(super) struct Composed<'c> {
    /// Advantages per sequence.
    advantage: Option<Vec<f32>>,
    weights: Option<Vec<f32>>,
    logp_ref: Option<Vec<f32>>,
    /// Whether `logp_old` is the reference.
    old_is_ref: bool,
    /// The gate's second input besides `logp_old`, with its column.
    logp_second: Option<(&'static str, Cow<'c, [f32]>)>,
}

impl<'c> Composed<'c> {
    /// The inputs of the fused op.
    pub(super) fn input<'a>(&'a self, input: &PolicyInput<'a>) -> PolicyInput<'a>
    where
        'c: 'a,
    {
        PolicyInput {
            advantage: self.advantage.as_deref().map_or(input.advantage, Advantage::PerSequence),
            weights: self.weights.as_deref().or(input.weights),
            logp_ref: self.logp_ref.as_deref().or(if self.old_is_ref {
                Some(input.logp_old)
            } else {
                input.logp_ref
            }),
            logp_second: self.logp_second.as_ref().map(|(_, values)| &values[..]),
            ..*input
        }
    }

    /// The column of the gate's second input.
    pub(super) fn second(&self) -> &'static str {
        self.logp_second.as_ref().map_or("logp_second", |(column, _)| column)
    }

    /// Returns the buffers to `spare`.
    pub(super) fn spare(self, spare: &mut Spare) {
        spare.give(self.advantage);
        spare.give(self.weights);
        spare.give(self.logp_ref);
    }

    fn apply_rule(
        &mut self,
        (device, batch): (&Device, &Batch<'_>),
        input: &PolicyInput<'_>,
        (column, behave): (&'static str, Cow<'_, [f32]>),
        rule: SequenceRule,
        spare: &mut Spare,
    ) -> Result<(), Error> {
        let Advantage::PerSequence(advantage) = input.advantage else {
            let expected = "one per sequence, because its sign decides the weight of the sequence";
            return Err(Argument::Combination { argument: "advantage", expected }.into());
        };
        let weights = self.weights.as_deref().or(input.weights);
        let mut new = spare.take();
        sequence_weight_into(device, batch, [input.logp, &behave], advantage, weights, &rule, &mut new)
            .naming(&[("logp_behave", column)])?;
        spare.give(self.weights.replace(new));
        Ok(())
    }
}

impl Recipe {
    /// Runs the launches before the fused op.
    pub(super) fn compose<'c>(
        &self,
        device: &Device,
        batch: &Batch<'_>,
        (rollouts, input, kept): (&Rollouts<'c>, &PolicyInput<'_>, Option<&[u8]>),
        spare: &mut Spare,
    ) -> Result<Composed<'c>, Error> {
        let (mut composed, on) = (Composed::default(), (device, batch));
        let means = self.sequence_means(device, batch, input.advantage, spare)?;
        let own = *input;
        let advantage = means.as_deref().map_or(own.advantage, Advantage::PerSequence);
        let input = &PolicyInput { advantage, ..own };
        let against = |which| match which {
            Against::Old => needed(rollouts.logp_old, "logp_old").map(|logp| ("logp_old", logp.into())),
            Against::Rollout => {
                let column = "logp_rollout";
                needed(rollouts.logp_rollout, column).map(|logp| (column, self.sampler(logp, own.logp)))
            }
        };
        match self.gate {
            GateChoice::TrustRegion { divergence: Divergence::Given, .. } => {
                composed.logp_second =
                    Some(("divergence", needed(rollouts.divergence, "divergence")?.into()));
            }
            GateChoice::Minirl { .. } | GateChoice::TrustRegion { .. } => {
                composed.logp_second = Some(against(Against::Rollout)?)
            }
            GateChoice::Remix { .. } => {
                composed.logp_second =
                    Some(("logp_latest", needed(rollouts.logp_latest, "logp_latest")?.into()));
            }
            GateChoice::Dro { .. } => composed.old_is_ref = true,
            GateChoice::KlCov { kl_cov_ratio, .. } => {
                let mut values = spare.take();
                let live = covariance_into(device, batch, input.logp, input.advantage, &mut values)?;
                let n = share(kl_cov_ratio, live)?;
                select_into(device, batch, &Candidates::largest(&values), n, &mut spare.selection)?;
                spare.give(Some(values));
                // |logp − logp| is 0, with gradient 0.
                let (old, own) = (Pick::Each(input.logp_old), Pick::Each(input.logp));
                let mut chosen = spare.take();
                spare.selection.choose_live_into(device, batch, old, own, &mut chosen)?;
                composed.logp_ref = Some(chosen);
            }
            GateChoice::ClipCov {
                clip_ratio_low,
                clip_ratio_high,
                clip_cov_ratio,
                clip_cov_lb,
                clip_cov_ub,
            } => {
                let seed = *needed(rollouts.seed, "seed")?.first().unwrap_or(&0);
                let mut values = spare.take();
                let live = covariance_into(device, batch, input.logp, input.advantage, &mut values)?;
                let clip = PpoClip { clip_ratio_low, clip_ratio_high, clip_ratio_c: f32::INFINITY };
                let candidates = Candidates {
                    values: &values,
                    band: [clip_cov_lb, clip_cov_ub],
                    unclipped: Some((clip, input.logp, input.logp_old, input.advantage)),
                    order: Order::Random { seed, first: 0 },
                };
                let n = share(clip_cov_ratio, live)?;
                select_into(device, batch, &candidates, n, &mut spare.selection)?;
                spare.give(Some(values));
                let kept = input.weights.map_or(Pick::All(1.0), Pick::Each);
                let mut chosen = spare.take();
                spare.selection.choose_live_into(device, batch, Pick::All(0.0), kept, &mut chosen)?;
                composed.weights = Some(chosen);
            }
            _ => {}
        }
        for (rule, which) in self.sequence_rules().into_iter().flatten() {
            composed.apply_rule(on, input, against(which)?, rule, spare)?;
        }
        match kept {
            // GMPO excludes the other tokens altogether.
            Some(_) if matches!(self.gate, GateChoice::Gmpo { .. }) => {}
            Some(kept) => {
                let weights = composed.weights.as_deref().or(input.weights);
                let mut chosen = spare.take();
                chosen.clear();
                let weight = |i: usize| weights.map_or(1.0, |weights| weights[i]);
                chosen.extend(
                    kept.iter().enumerate().map(|(i, kept)| if *kept != 0 { weight(i) } else { 0.0 }),
                );
                spare.give(composed.weights.replace(chosen));
            }
            None => {}
        }
        if let (Some(top), None) = (self.mask.top_entropy, kept) {
            let entropy = finite_entropy(batch, rollouts)?;
            let n = top_quantile(top, batch.counts(device)?.tokens)?;
            select_into(device, batch, &Candidates::largest(entropy), n, &mut spare.selection)?;
            let weights = composed.weights.as_deref().or(input.weights);
            let kept = weights.map_or(Pick::All(1.0), Pick::Each);
            let mut chosen = spare.take();
            spare.selection.choose_live_into(device, batch, kept, Pick::All(0.0), &mut chosen)?;
            spare.give(composed.weights.replace(chosen));
        }
        composed.advantage = means;
        Ok(composed)
    }

    /// The rules that multiply the weights of sequences, the gate's before the mask's, each with the policy
    /// that it compares with.
    pub(crate) fn sequence_rules(&self) -> [Option<(SequenceRule, Against)>; 2] {
        let of_gate = match self.gate {
            GateChoice::Vespo { k_pos, lambda_pos, k_neg, lambda_neg, against, lambda_floor } => {
                let least = |lambda: f32| lambda_floor.map_or(lambda, |floor| lambda.max(floor));
                let (lambda_pos, lambda_neg) = (least(lambda_pos), least(lambda_neg));
                Some((SequenceRule::Vespo { k_pos, lambda_pos, k_neg, lambda_neg }, against))
            }
            GateChoice::Topr {} => Some((SequenceRule::Topr, Against::Rollout)),
            _ => None,
        };
        let of_mask = self.mask.opsm_delta.map(|delta| SequenceRule::OffPolicyMask { delta });
        [of_gate, of_mask.map(|rule| (rule, self.mask.opsm_against))]
    }

    /// Means of per-token advantages over the live tokens of each sequence, if `ratio.advantage` requires
    /// them.
    fn sequence_means(
        &self,
        device: &Device,
        batch: &Batch<'_>,
        advantage: Advantage<'_>,
        spare: &mut Spare,
    ) -> Result<Option<Vec<f32>>, Error> {
        let (RatioAdvantage::SequenceMean, Advantage::PerToken(advantage)) =
            (self.ratio.advantage, advantage)
        else {
            return Ok(None);
        };
        batch.check_tokens("advantage", advantage.len())?;
        let mut means = spare.take();
        sequence_means_into(device, batch, "advantage", advantage, &mut means)?;
        Ok(Some(means))
    }

    /// The KL term of the fused op, and whether it is multiplied by the weights: the recipe's term, or the
    /// one that implements its gate.
    pub(crate) fn composed_kl(&self) -> (Option<(Kl, f32)>, bool) {
        match self.gate {
            GateChoice::KlCov { ppo_kl_coef, .. } => (Some((Kl::new(KlFormula::Abs), ppo_kl_coef)), true),
            // β/2·d² is k2 to the proximal policy.
            GateChoice::Dro { beta } => (Some((Kl::new(KlFormula::K2), beta)), true),
            // A weighted term is added after the fused op, which only measures it.
            _ if self.weighted_kl().is_some() => (self.kl_term().map(|(kl, _)| (kl.measured(), 0.0)), false),
            _ => (self.kl_term(), false),
        }
    }

    /// Errors unless the parameters of gate and mask are in their domain.
    pub(crate) fn check_composed(&self) -> Result<(), Error> {
        let number = |name: &str, value: f64, ok: bool, expected: &str| match ok {
            true => Ok(()),
            false => Err(Error::Recipe(format!("{name} is {value}: expected {expected}"))),
        };
        let fraction =
            |name: &str, value: f64| number(name, value, (0.0..=1.0).contains(&value), "a number in 0..=1");
        let finite = |name: &str, value: f32| {
            number(name, value.into(), value >= 0.0 && value.is_finite(), "a finite number of at least 0")
        };
        match self.gate {
            GateChoice::KlCov { kl_cov_ratio, ppo_kl_coef, .. } => {
                fraction("gate.kl_cov_ratio", kl_cov_ratio)?;
                finite("gate.ppo_kl_coef", ppo_kl_coef)?;
            }
            GateChoice::ClipCov { clip_cov_ratio, clip_cov_lb, clip_cov_ub, .. } => {
                fraction("gate.clip_cov_ratio", clip_cov_ratio)?;
                number("gate.clip_cov_lb", clip_cov_lb.into(), !clip_cov_lb.is_nan(), "a number")?;
                let ok = clip_cov_ub > clip_cov_lb;
                number("gate.clip_cov_ub", clip_cov_ub.into(), ok, "a number above gate.clip_cov_lb")?;
            }
            GateChoice::Dro { beta } => {
                finite("gate.beta", beta)?;
            }
            GateChoice::Vespo { k_pos, lambda_pos, k_neg, lambda_neg, lambda_floor, .. } => {
                SequenceRule::Vespo { k_pos, lambda_pos, k_neg, lambda_neg }.check()?;
                finite("gate.lambda_floor", lambda_floor.unwrap_or(0.0))?;
            }
            GateChoice::TwoSided { clip_ratio_high, delta, .. } => {
                // A smaller bound would also cut into the upper clip of A > 0, which a dual clip does not do.
                let ok = delta >= 1.0 + clip_ratio_high;
                number("gate.delta", delta.into(), ok, "a number of at least 1 + gate.clip_ratio_high")?;
            }
            _ => {}
        }
        if let Some(delta) = self.mask.opsm_delta {
            number("mask.opsm_delta", delta.into(), delta.is_finite(), "a finite number")?;
        }
        self.mask.top_entropy.map_or(Ok(()), |top| fraction("mask.top_entropy", top))
    }
}
