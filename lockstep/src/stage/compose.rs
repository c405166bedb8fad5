//! Policy losses that are a few launches: what a recipe adds to the inputs of the fused op.

use super::{Against, GateChoice, RatioAdvantage, Recipe};
use crate::ops::aggregate::sequence_means_into;
use crate::ops::policy_loss::{PolicyInput, Spare, unmatched_ref};
use crate::ops::select::{Candidates, Pick, covariance_into, select_into, share, top_quantile};
use crate::ops::sequence_weight::sequence_weight_into;
use crate::{Advantage, Batch, Device, Error};
use lockstep_core::Error as Argument;
use lockstep_core::gate::PpoClip;
use lockstep_core::kl::{Estimator, Kl};
use lockstep_core::policy_loss::SequenceRule;
use lockstep_core::select::Order;

/// What the fused op gets in addition to, or in place of, what the caller brought.
#[derive(Default)]
pub(super) struct Composed {
    /// Advantages per sequence.
    advantage: Option<Vec<f32>>,
    weights: Option<Vec<f32>>,
    logp_ref: Option<Vec<f32>>,
    /// `logp_old` is the reference.
    old_is_ref: bool,
    /// The second policy was read before the fused op.
    second_read: bool,
    /// A second policy was wanted and `logp_old` stood in.
    pub(super) second_missing: bool,
}

impl Composed {
    /// The inputs of the fused op.
    pub(super) fn input<'a>(&'a self, input: &PolicyInput<'a>) -> PolicyInput<'a> {
        PolicyInput {
            advantage: self.advantage.as_deref().map_or(input.advantage, Advantage::PerSequence),
            weights: self.weights.as_deref().or(input.weights),
            logp_ref: self.logp_ref.as_deref().or(if self.old_is_ref {
                Some(input.logp_old)
            } else {
                input.logp_ref
            }),
            logp_second: input.logp_second.filter(|_| !self.second_read),
            ..*input
        }
    }

    /// Gives the buffers back.
    pub(super) fn spare(self, spare: &mut Spare) {
        spare.give(self.advantage);
        spare.give(self.weights);
        spare.give(self.logp_ref);
    }

    /// The policy that something is measured against.
    fn against<'a>(&mut self, which: Against, input: &PolicyInput<'a>) -> &'a [f32] {
        match which {
            Against::Old => input.logp_old,
            Against::Second => self.second(input),
        }
    }

    /// `logp_second`, or `logp_old` where there is none.
    fn second<'a>(&mut self, input: &PolicyInput<'a>) -> &'a [f32] {
        self.second_read = true;
        self.second_missing |= input.logp_second.is_none();
        input.logp_second.unwrap_or(input.logp_old)
    }

    fn apply_rule(
        &mut self,
        (device, batch): (&Device, &Batch<'_>),
        input: &PolicyInput<'_>,
        behave: &[f32],
        rule: SequenceRule,
        spare: &mut Spare,
    ) -> Result<(), Error> {
        let Advantage::PerSequence(advantage) = input.advantage else {
            let expected = "one per sequence: the weight of a whole sequence depends on its sign";
            return Err(Argument::Combination { argument: "advantage", expected }.into());
        };
        let weights = self.weights.as_deref().or(input.weights);
        let mut new = spare.take();
        sequence_weight_into(device, batch, [input.logp, behave], advantage, weights, &rule, &mut new)?;
        spare.give(self.weights.replace(new));
        Ok(())
    }
}

impl Recipe {
    /// Launches what comes before the fused op.
    pub(super) fn compose(
        &self,
        device: &Device,
        batch: &Batch<'_>,
        input: &PolicyInput<'_>,
        spare: &mut Spare,
    ) -> Result<Composed, Error> {
        let (mut composed, on) = (Composed::default(), (device, batch));
        let means = self.sequence_means(device, batch, input.advantage, spare)?;
        let own = *input;
        let advantage = means.as_deref().map_or(own.advantage, Advantage::PerSequence);
        let input = &PolicyInput { advantage, ..own };
        let own_kl = matches!(self.gate, GateChoice::KlCov { .. } | GateChoice::Dro { .. });
        if own_kl && input.logp_ref.is_some() {
            return Err(unmatched_ref(false));
        }
        if input.seed.is_some() && !matches!(self.gate, GateChoice::ClipCov { .. }) {
            let expected = "given, but nothing of the recipe is chosen at random: leave it out";
            return Err(Argument::Combination { argument: "seed", expected }.into());
        }
        match self.gate {
            GateChoice::Vespo { k_pos, lambda_pos, k_neg, lambda_neg, against } => {
                let rule = SequenceRule::Vespo { k_pos, lambda_pos, k_neg, lambda_neg };
                let behave = composed.against(against, input);
                composed.apply_rule(on, input, behave, rule, spare)?;
            }
            GateChoice::Topr {} => {
                let behave = composed.second(input);
                composed.apply_rule(on, input, behave, SequenceRule::Topr, spare)?;
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
                let Some(seed) = input.seed else {
                    let expected =
                        "needed by gate.kind clip_cov, which chooses at random: another one for every call";
                    return Err(Argument::Combination { argument: "seed", expected }.into());
                };
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
        if let Some(delta) = self.mask.opsm_delta {
            let behave = composed.against(self.mask.opsm_against, input);
            composed.apply_rule(on, input, behave, SequenceRule::OffPolicyMask { delta }, spare)?;
        }
        match (self.mask.top_entropy, input.entropy) {
            (None, None) => {}
            (Some(top), Some(entropy)) => {
                let n = top_quantile(top, batch.counts(device)?.tokens)?;
                select_into(device, batch, &Candidates::largest(entropy), n, &mut spare.selection)?;
                let weights = composed.weights.as_deref().or(input.weights);
                let kept = weights.map_or(Pick::All(1.0), Pick::Each);
                let mut chosen = spare.take();
                spare.selection.choose_live_into(device, batch, kept, Pick::All(0.0), &mut chosen)?;
                spare.give(composed.weights.replace(chosen));
            }
            (top, _) => {
                let expected = match top {
                    Some(_) => "needed by mask.top_entropy",
                    None => "given, but the recipe has no mask.top_entropy: leave it out",
                };
                return Err(Argument::Combination { argument: "entropy", expected }.into());
            }
        }
        composed.advantage = means;
        Ok(composed)
    }

    /// Means of advantages per token over the live tokens of each sequence, where `ratio.advantage` asks for them.
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

    /// The KL term of the fused op and whether it carries the weights: the recipe's, or what its gate is made of.
    pub(super) fn composed_kl(&self) -> (Option<(Kl, f32)>, bool) {
        match self.gate {
            GateChoice::KlCov { ppo_kl_coef, .. } => (Some((Kl::new(Estimator::Abs), ppo_kl_coef)), true),
            // β/2·d² is k2 to the proximal policy.
            GateChoice::Dro { beta } => (Some((Kl::new(Estimator::K2), beta)), true),
            // What is weighted is added after the fused op, which only measures it.
            _ if self.weighted_kl().is_some() => (self.kl_term().map(|(kl, _)| (kl, 0.0)), false),
            _ => (self.kl_term(), false),
        }
    }

    /// Whether the numbers of gate and mask are in their domain.
    pub(super) fn check_composed(&self) -> Result<(), Error> {
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
            GateChoice::Vespo { k_pos, lambda_pos, k_neg, lambda_neg, .. } => {
                SequenceRule::Vespo { k_pos, lambda_pos, k_neg, lambda_neg }.check()?;
            }
            GateChoice::TwoSided { clip_ratio_high, delta, .. } => {
                // Below it the bound would cut the upper clip of A > 0 too, which a dual clip does not.
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
