//! From a recipe's choices to the ops.

use super::{
    Aggregation, AggregationMode, CountedSequences, GateChoice, GmpoBounds, GuardChoice, KlPlace,
    KlWeighting, LengthGuard, RatioLevel, Recipe, Reduction,
};
use crate::ops::kl_importance::ThreePolicies;
use crate::ops::policy_loss::{self, GmpoParams, PolicyInput, PolicyOutput, PolicyParams};
use crate::{Batch, Compiled, Counts, Device, Error};
use lockstep_core::Error as Argument;
use lockstep_core::aggregate::{PerRow, Weight};
use lockstep_core::gate::{Cispo, DppoKl, DppoTv, Gate, MiniRl, PpoClip, Reinforce, Remix, Sapo};
use lockstep_core::num::Soft;
use lockstep_core::policy_loss::{PolicyLoss, gmpo};
use lockstep_core::ratio::{Guard, Level};

/// verl's addition to a sequence's length.
const EPS_COUNT: f64 = 1e-8;

/// Does something with core's gate of a choice; GMPO is an op of its own.
macro_rules! with_gate {
    ($choice:expr, gmpo => $gmpo:expr, |$gate:ident| $body:expr) => {
        match $choice {
            GateChoice::Gmpo { .. } => $gmpo,
            GateChoice::Minirl { clip_ratio_low, clip_ratio_high, clip_ratio_c } => {
                let $gate = MiniRl { clip_ratio_low, clip_ratio_high, clip_ratio_c };
                $body
            }
            GateChoice::Remix { clip_ratio_low, clip_ratio_high } => {
                let $gate = Remix { clip_ratio_low, clip_ratio_high };
                $body
            }
            GateChoice::TwoSided { clip_ratio_low, clip_ratio_high, delta } => {
                let $gate = PpoClip { clip_ratio_low, clip_ratio_high, clip_ratio_c: delta };
                $body
            }
            GateChoice::KlCov { clip_ratio_low, clip_ratio_high, .. } => {
                // Without a clip no bound that a ratio of binary32 reaches.
                let $gate = PpoClip {
                    clip_ratio_low: clip_ratio_low.unwrap_or(1.0),
                    clip_ratio_high: clip_ratio_high.unwrap_or(f32::MAX),
                    clip_ratio_c: f32::INFINITY,
                };
                $body
            }
            GateChoice::ClipCov { clip_ratio_low, clip_ratio_high, .. } => {
                let $gate = PpoClip { clip_ratio_low, clip_ratio_high, clip_ratio_c: f32::INFINITY };
                $body
            }
            GateChoice::Dro { .. } | GateChoice::Vespo { .. } | GateChoice::Topr {} => {
                let $gate = Reinforce;
                $body
            }
            GateChoice::PpoClip { clip_ratio_low, clip_ratio_high, clip_ratio_c } => {
                let clip_ratio_c = clip_ratio_c.unwrap_or(f32::INFINITY);
                let $gate = PpoClip { clip_ratio_low, clip_ratio_high, clip_ratio_c };
                $body
            }
            GateChoice::Sapo { tau_pos, tau_neg } => {
                let $gate = Sapo::new(tau_pos, tau_neg);
                $body
            }
            GateChoice::Cispo { low, high } => {
                let $gate = Cispo { low, high };
                $body
            }
            GateChoice::Reinforce {} => {
                let $gate = Reinforce;
                $body
            }
            GateChoice::DppoTv { clip_ratio_low, clip_ratio_high, clip_ratio_c } => {
                let $gate = DppoTv { clip_ratio_low, clip_ratio_high, clip_ratio_c };
                $body
            }
            GateChoice::DppoKl { clip_ratio_low, clip_ratio_high, clip_ratio_c } => {
                let $gate = DppoKl { clip_ratio_low, clip_ratio_high, clip_ratio_c };
                $body
            }
        }
    };
}

impl Recipe {
    /// Loss, dL/dlogp and metrics. Errors: see [`policy_loss::policy_loss`].
    pub fn policy_loss(
        &self,
        device: &Device,
        batch: &Batch<'_>,
        input: &PolicyInput<'_>,
    ) -> Result<PolicyOutput, Error> {
        let mut out = PolicyOutput::default();
        self.policy_loss_into(device, batch, input, &mut out)?;
        Ok(out)
    }

    /// As [`Recipe::policy_loss`], into `out`, whose buffers are reused.
    pub fn policy_loss_into(
        &self,
        device: &Device,
        batch: &Batch<'_>,
        input: &PolicyInput<'_>,
        out: &mut PolicyOutput,
    ) -> Result<(), Error> {
        self.check()?;
        let counts = match input.counts {
            Some(counts) => counts,
            None => batch.counts(device)?,
        };
        let composed = self.compose(device, batch, input, out.spare())?;
        let input = &composed.input(input);
        out.second_missing = composed.second_missing;
        let done = with_gate!(
            self.gate,
            gmpo => self.gmpo(device, batch, input, counts, out),
            |gate| self.run(device, batch, input, counts, gate, out)
        )
        .map_err(|error| self.explained(error));
        composed.spare(out.spare());
        done?;
        if self.metrics.reduction == Reduction::Exact {
            out.reduce_exactly();
        }
        Ok(())
    }

    /// The error of a result that is no number, with what can be done about it in this recipe.
    fn explained(&self, error: Error) -> Error {
        match (error, &self.gate) {
            (Error::Argument(Argument::NotFinite { result, index, .. }), GateChoice::Dro { .. }) => {
                let hint = "DRO squares logp - logp_old, which no guard bounds: beyond 1e19 leave the token out of loss_mask";
                Argument::NotFinite { result, index, hint }.into()
            }
            (error, _) => error,
        }
    }

    /// Whether the gate's parameters are in their domain.
    pub(super) fn check_gate(&self) -> Result<(), Error> {
        with_gate!(self.gate, gmpo => self.check_gmpo()?, |gate| gate.check()?);
        self.check_composed()
    }

    fn check_gmpo(&self) -> Result<(), Error> {
        let GateChoice::Gmpo { clip_log_low, clip_log_high, bounds } = self.gate else { return Ok(()) };
        if bounds == GmpoBounds::Ratio && !(0.0..1.0).contains(&clip_log_low) {
            return Err(Error::Recipe(format!(
                "gate.clip_log_low is {clip_log_low}: expected 0 to below 1, for gate.bounds is ratio"
            )));
        }
        Ok(gmpo::check_bounds(clip_log_low, clip_log_high)?)
    }

    fn gmpo(
        &self,
        device: &Device,
        batch: &Batch<'_>,
        input: &PolicyInput<'_>,
        counts: Counts,
        out: &mut PolicyOutput,
    ) -> Result<(), Error> {
        let GateChoice::Gmpo { clip_log_low, clip_log_high, bounds } = self.gate else { return Ok(()) };
        let [clip_log_low, clip_log_high] = match bounds {
            GmpoBounds::Log => [clip_log_low, clip_log_high],
            GmpoBounds::Ratio => gmpo::bounds_of_ratio::<Soft>(clip_log_low, clip_log_high),
        };
        let params = GmpoParams {
            clip_log_low,
            clip_log_high,
            guard: self.guard(),
            denominator: counts.sequences as f64,
            band: self.metrics.band,
        };
        let without = PolicyInput { logp_ref: None, ..*input };
        policy_loss::gmpo(device, batch, &without, &params, out)?;
        match (self.kl_term(), input.logp_ref) {
            (None, None) => Ok(()),
            (Some(_), Some(_)) if self.weighted_kl().is_some() => {
                self.add_weighted_kl(device, batch, input, counts, out)
            }
            (Some(term), Some(logp_ref)) => {
                let (arrays, weight) = ([input.logp, logp_ref], self.aggregation.weight_in(batch, counts));
                policy_loss::add_kl(device, batch, arrays, term, weight, out).map(drop)
            }
            (term, _) => Err(policy_loss::unmatched_ref(term.is_some())),
        }
    }

    fn run<G: Gate>(
        &self,
        device: &Device,
        batch: &Batch<'_>,
        input: &PolicyInput<'_>,
        counts: Counts,
        gate: G,
        out: &mut PolicyOutput,
    ) -> Result<(), Error>
    where
        for<'a> PolicyLoss<'a, G>: Compiled,
    {
        let (kl, kl_weighted) = self.composed_kl();
        out.second_missing |= G::SECOND && input.logp_second.is_none();
        let params = PolicyParams {
            gate,
            level: self.level(),
            guard: self.guard(),
            kl,
            kl_weighted,
            weight: self.aggregation.weight_in(batch, counts),
            band: self.metrics.band,
        };
        policy_loss::policy_loss(device, batch, input, &params, out)?;
        self.add_weighted_kl(device, batch, input, counts, out)
    }

    /// Whether the gradient of an importance-weighted KL term flows through the ratio; none without such a term.
    pub(super) fn weighted_kl(&self) -> Option<bool> {
        match self.kl.filter(|kl| kl.place == KlPlace::Loss)?.importance_weighted {
            KlWeighting::None => None,
            KlWeighting::ThroughRatio | KlWeighting::Score => Some(true),
            KlWeighting::Detached => Some(false),
        }
    }

    /// Adds the KL term, where it is weighted by the importance ratio.
    fn add_weighted_kl(
        &self,
        device: &Device,
        batch: &Batch<'_>,
        input: &PolicyInput<'_>,
        counts: Counts,
        out: &mut PolicyOutput,
    ) -> Result<(), Error> {
        let (Some(through), Some(term)) = (self.weighted_kl(), self.kl_term()) else { return Ok(()) };
        let Some(logp_ref) = input.logp_ref else { return Err(policy_loss::unmatched_ref(true)) };
        let on_policy = self.kl.is_some_and(|kl| kl.importance_weighted == KlWeighting::Score);
        let logp_old = if on_policy { input.logp } else { input.logp_old };
        let policies = ThreePolicies { logp: input.logp, logp_old, logp_ref };
        let weight = self.aggregation.weight_in(batch, counts);
        policy_loss::add_kl_importance(device, batch, &policies, term, (self.guard(), through), weight, out)
            .map(drop)
    }

    /// The aggregation weight for these counts; see [`Aggregation::weight`].
    pub fn weight(&self, counts: Counts) -> Weight {
        self.aggregation.weight(counts)
    }

    /// Over what the ratio is taken.
    pub fn level(&self) -> Level {
        match self.ratio.level {
            RatioLevel::Token => Level::Token,
            RatioLevel::Given => Level::Given,
            RatioLevel::Sequence => Level::Sequence { log_max: self.ratio.log_max.unwrap_or(f32::INFINITY) },
        }
    }

    /// The guard of the log-ratio.
    pub fn guard(&self) -> Guard {
        match self.ratio.guard {
            GuardChoice::None => Guard::NONE,
            GuardChoice::Clamp => Guard::clamp(self.ratio.guard_bound),
            GuardChoice::StraightThrough => Guard::straight_through(self.ratio.guard_bound),
        }
    }
}

impl Aggregation {
    /// This aggregation with the constant of its mode read from the batch, where the mode is one of the padded width.
    pub fn for_batch(self, batch: &Batch<'_>) -> Aggregation {
        match self.mode {
            AggregationMode::SeqMeanTokenSumNormPadded => Aggregation {
                mode: AggregationMode::SeqMeanTokenSumNorm,
                horizon: Some(batch.longest().max(1) as f64),
                ..self
            },
            _ => self,
        }
    }

    /// The weight of every token's loss in `batch` for these counts.
    pub fn weight_in(&self, batch: &Batch<'_>, counts: Counts) -> Weight {
        self.for_batch(batch).weight(counts)
    }

    /// As [`Aggregation::weight_in`] for these counts alone; of a mode of the padded width only after [`Aggregation::for_batch`].
    pub fn weight(&self, counts: Counts) -> Weight {
        let sequences = match self.sequences {
            CountedSequences::Nonempty => counts.nonempty,
            CountedSequences::All => counts.sequences,
        } as f64;
        let length = match self.length {
            LengthGuard::AddEps => PerRow::Length { eps: EPS_COUNT },
            LengthGuard::AtLeastOne => PerRow::AtLeastOne,
        };
        let (per_row, denominator) = match self.mode {
            AggregationMode::TokenMean => (PerRow::One, counts.tokens as f64),
            AggregationMode::TokenSum => (PerRow::One, 1.0),
            AggregationMode::SeqMeanTokenSum => (PerRow::One, sequences),
            AggregationMode::SeqMeanTokenMean => (length, sequences),
            AggregationMode::SeqMeanTokenSumNorm => {
                (PerRow::Constant(self.horizon.unwrap_or(1.0)), sequences)
            }
            // Nobody said how long; `Weight::check` refuses it.
            AggregationMode::SeqMeanTokenSumNormPadded => (PerRow::Constant(f64::NAN), sequences),
        };
        Weight { per_row, denominator, scale: 1.0 }
    }
}
