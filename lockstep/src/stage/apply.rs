//! Runs a recipe's policy loss with the ops.

use super::naming::Naming;
use super::shared_ratio::{by_segment, pass_on};
use crate::ops::kl;
use crate::ops::kl_importance::ThreePolicies;
use crate::ops::policy_loss::{self, GmpoParams, PolicyInput, PolicyOutput, PolicyParams};
use crate::recipe::{
    Aggregation, AggregationMode, CountedSequences, GateChoice, GmpoBounds, GuardChoice, Horizon, KlPlace,
    KlRatio, KlWeighting, LengthGuard, RatioLevel, Recipe, ensure,
};
use crate::{Batch, Compiled, Counts, Device, Error, Rollouts};
use lockstep_core::Error as Argument;
use lockstep_core::aggregate::{PerRow, Weight};
use lockstep_core::gate::Gate;
use lockstep_core::num::Soft;
use lockstep_core::policy_loss::{PolicyLoss, gmpo};
use lockstep_core::ratio::{Guard, RatioGranularity};

/// The number that verl adds to a sequence's length.
const EPS_COUNT: f64 = 1e-8;

/// Evaluates an expression with core's gate of a choice; GMPO has its own op.
macro_rules! with_gate {
    ($choice:expr, gmpo => $gmpo:expr, |$gate:ident| $body:expr) => {{
        use lockstep_core::gate;
        use $crate::recipe::GateChoice as Choice;
        match $choice {
            Choice::Gmpo { .. } => $gmpo,
            Choice::Minirl { clip_ratio_low, clip_ratio_high, clip_ratio_c } => {
                let $gate = gate::MiniRl { clip_ratio_low, clip_ratio_high, clip_ratio_c };
                $body
            }
            Choice::TrustRegion { divergence, clip_ratio_low, clip_ratio_high, clip_ratio_c } => {
                let $gate = gate::TrustRegion { divergence, clip_ratio_low, clip_ratio_high, clip_ratio_c };
                $body
            }
            Choice::Remix { clip_ratio_low, clip_ratio_high } => {
                let $gate = gate::Remix { clip_ratio_low, clip_ratio_high };
                $body
            }
            Choice::TwoSided { clip_ratio_low, clip_ratio_high, delta } => {
                let $gate = gate::PpoClip { clip_ratio_low, clip_ratio_high, clip_ratio_c: delta };
                $body
            }
            Choice::KlCov { clip_ratio_low, clip_ratio_high, .. } => {
                // Without a clip, use bounds that no binary32 ratio reaches.
                let $gate = gate::PpoClip {
                    clip_ratio_low: clip_ratio_low.unwrap_or(1.0),
                    clip_ratio_high: clip_ratio_high.unwrap_or(f32::MAX),
                    clip_ratio_c: f32::INFINITY,
                };
                $body
            }
            Choice::ClipCov { clip_ratio_low, clip_ratio_high, .. } => {
                let $gate = gate::PpoClip { clip_ratio_low, clip_ratio_high, clip_ratio_c: f32::INFINITY };
                $body
            }
            Choice::PpoClip { clip_ratio_low, clip_ratio_high, clip_ratio_c } => {
                let clip_ratio_c = clip_ratio_c.unwrap_or(f32::INFINITY);
                let $gate = gate::PpoClip { clip_ratio_low, clip_ratio_high, clip_ratio_c };
                $body
            }
            Choice::Sapo { tau_pos, tau_neg } => {
                let $gate = gate::Sapo::new(tau_pos, tau_neg);
                $body
            }
            Choice::Cispo { low, high } => {
                let $gate = gate::Cispo { low, high };
                $body
            }
            Choice::Dro { .. } | Choice::Vespo { .. } | Choice::Topr {} | Choice::Reinforce {} => {
                let $gate = gate::Reinforce;
                $body
            }
            Choice::DppoTv { clip_ratio_low, clip_ratio_high, clip_ratio_c } => {
                let $gate = gate::DppoTv { clip_ratio_low, clip_ratio_high, clip_ratio_c };
                $body
            }
            Choice::DppoKl { clip_ratio_low, clip_ratio_high, clip_ratio_c } => {
                let $gate = gate::DppoKl { clip_ratio_low, clip_ratio_high, clip_ratio_c };
                $body
            }
        }
    }};
}

pub(crate) use with_gate;

impl Recipe {
    /// The policy term with its KL term: the fused op, and the launches before and after it. `kept` are the
    /// tokens that `mask.top_entropy` keeps, if they are needed as a mask.
    pub(super) fn policy_term(
        &self,
        device: &Device,
        batch: &Batch<'_>,
        (rollouts, input, kept): (&Rollouts<'_>, &PolicyInput<'_>, Option<&[u8]>),
        counts: Counts,
        out: &mut PolicyOutput,
    ) -> Result<(), Error> {
        let composed = self.compose(device, batch, (rollouts, input, kept), out.spare())?;
        let input = &composed.input(input);
        let done = with_gate!(
            self.gate,
            gmpo => self.gmpo(device, batch, (input, kept), counts, out),
            |gate| self.run(device, batch, input, counts, gate, out)
        )
        .map_err(|error| self.explained(error))
        .naming(&[("logp_second", composed.second())]);
        composed.spare(out.spare());
        done
    }

    /// Adds to the error of a result that is not finite what can be done about it in this recipe.
    fn explained(&self, error: Error) -> Error {
        match (error, &self.gate) {
            (Error::Argument(Argument::NotFinite { result, index, .. }), GateChoice::Dro { .. }) => {
                let hint = "DRO squares logp - logp_old without a guard: exclude tokens beyond 1e19 with \
                            loss_mask";
                Argument::NotFinite { result, index, hint }.into()
            }
            (error, _) => error,
        }
    }

    /// Errors unless the gate's parameters are in their domain.
    pub(crate) fn check_gate(&self) -> Result<(), Error> {
        with_gate!(self.gate, gmpo => self.check_gmpo()?, |gate| gate.check()?);
        self.check_composed()
    }

    /// GMPO's bounds of the log-ratio.
    pub(crate) fn gmpo_bounds(&self) -> [f32; 2] {
        match self.gate {
            GateChoice::Gmpo { clip_log_low, clip_log_high, bounds: GmpoBounds::Ratio, .. } => {
                gmpo::bounds_of_ratio::<Soft>(clip_log_low, clip_log_high)
            }
            GateChoice::Gmpo { clip_log_low, clip_log_high, .. } => [clip_log_low, clip_log_high],
            _ => [0.0; 2],
        }
    }

    /// The mean that GMPO takes of ratios.
    pub(crate) fn gmpo_mean(&self) -> gmpo::Mean {
        if let GateChoice::Gmpo { mean, .. } = self.gate { mean } else { gmpo::Mean::Geometric }
    }

    fn check_gmpo(&self) -> Result<(), Error> {
        let GateChoice::Gmpo { clip_log_low, clip_log_high, bounds, .. } = self.gate else { return Ok(()) };
        ensure!(
            bounds != GmpoBounds::Ratio || (0.0..1.0).contains(&clip_log_low),
            "gate.clip_log_low is {clip_log_low}: expected at least 0 and below 1 with gate.bounds ratio"
        );
        Ok(gmpo::check_bounds(clip_log_low, clip_log_high)?)
    }

    /// GMPO over the kept tokens, then the KL term over all live tokens.
    fn gmpo(
        &self,
        device: &Device,
        batch: &Batch<'_>,
        (input, kept): (&PolicyInput<'_>, Option<&[u8]>),
        counts: Counts,
        out: &mut PolicyOutput,
    ) -> Result<(), Error> {
        let [clip_log_low, clip_log_high] = self.gmpo_bounds();
        let params = GmpoParams {
            mean: self.gmpo_mean(),
            clip_log_low,
            clip_log_high,
            guard: self.guard(),
            denominator: counts.sequences as f64,
            band: self.metrics.band,
        };
        let without = PolicyInput { logp_ref: None, ..*input };
        let left = match kept {
            Some(kept) => batch.with_mask(kept)?,
            None => *batch,
        };
        policy_loss::gmpo(device, &left, &without, &params, out)?;
        self.add_empty(device, &left, input.advantage, counts, out)?;
        // The op has no KL term, so its mean is measured here, over all live tokens.
        if let (Some((term, _)), Some(logp_ref), Some(_)) = (self.kl_term(), input.logp_ref, out.metrics) {
            let measured = kl(device, batch, input.logp, logp_ref, &term)?;
            out.measure_kl(device, &measured.row_sum, batch.counts(device)?.tokens)?;
        }
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
        // Only the coefficients of the policy term are combined over a sequence, so the op just measures the
        // KL, and the term is added afterwards.
        let passed = self.passed().filter(|_| !G::SCORE);
        let (kl, kl_weighted) = match (self.composed_kl(), passed) {
            ((Some((kl, _)), false), Some(_)) => (Some((kl, 0.0)), false),
            (own, _) => own,
        };
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
        if let Some(passed) = passed {
            match self.ratio.level {
                RatioLevel::Segment => by_segment(batch, |of| pass_on(of, passed, &mut out.coef))?,
                _ => pass_on(batch, passed, &mut out.coef)?,
            }
            if let (None, Some(term), Some(logp_ref)) = (self.weighted_kl(), self.kl_term(), input.logp_ref) {
                policy_loss::add_kl(device, batch, [input.logp, logp_ref], term, params.weight, out)?;
            }
        }
        self.add_empty(device, batch, input.advantage, counts, out)?;
        self.add_weighted_kl(device, batch, input, counts, out)
    }

    /// Whether the gradient of an importance-weighted KL term flows through the ratio; `None` without such a
    /// term.
    pub(crate) fn weighted_kl(&self) -> Option<bool> {
        match self.kl.filter(|kl| kl.place == KlPlace::Loss)?.importance_weighted {
            KlWeighting::None if self.clamps_apart() => Some(false),
            KlWeighting::None => None,
            KlWeighting::ThroughRatio | KlWeighting::Score => Some(true),
            KlWeighting::Detached => Some(false),
        }
    }

    /// Whether the estimator has clamps that the fused op does not support; the term is then added after it.
    pub(super) fn clamps_apart(&self) -> bool {
        self.kl_term().is_some_and(|(kl, _)| kl.clamps_apart())
    }

    /// Adds the KL term if it is weighted by the importance ratio, or has clamps that the fused op does not
    /// support.
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
        let weight = self.aggregation.weight_in(batch, counts);
        let of_policy = self.kl.is_some_and(|kl| kl.ratio == KlRatio::Policy);
        if of_policy && matches!(self.ratio.level, RatioLevel::Sequence | RatioLevel::Product) {
            return self.add_kl_of_sequences(device, batch, input, (logp_ref, term), (through, weight), out);
        }
        let unweighted = [KlWeighting::None, KlWeighting::Score];
        let on_policy = self.kl.is_some_and(|kl| unweighted.contains(&kl.importance_weighted));
        let logp_old = if on_policy { input.logp } else { input.logp_old };
        let policies = ThreePolicies { logp: input.logp, logp_old, logp_ref };
        policy_loss::add_kl_importance(device, batch, &policies, term, (self.guard(), through), weight, out)?;
        // The fused op has measured the estimate without these clamps.
        if of_policy || (on_policy && self.clamps_apart()) {
            let values = std::mem::take(&mut out.spare().kl);
            out.measure_kl(device, &values.row_sum, out.counts.tokens)?;
            out.spare().kl = values;
        }
        Ok(())
    }

    /// The aggregation weight for these counts; see [`Aggregation::weight`].
    pub fn weight(&self, counts: Counts) -> Weight {
        self.aggregation.weight(counts)
    }

    /// The level at which the ratio is computed.
    pub fn level(&self) -> RatioGranularity {
        match self.ratio.level {
            RatioLevel::Token => RatioGranularity::Token,
            RatioLevel::Given | RatioLevel::MinPrefix | RatioLevel::Product | RatioLevel::Segment => {
                RatioGranularity::Given
            }
            RatioLevel::Sequence => {
                RatioGranularity::Sequence { log_max: self.ratio.log_max.unwrap_or(f32::INFINITY) }
            }
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
    /// This aggregation, with its constant read from the batch if the horizon is the longest sequence.
    pub fn for_batch(self, batch: &Batch<'_>) -> Aggregation {
        if self.is_longest() { self.over(batch.longest()) } else { self }
    }

    /// Whether the constant is the longest sequence.
    pub(crate) fn is_longest(&self) -> bool {
        self.horizon == Some(Horizon::Longest)
    }

    /// This aggregation with `longest` tokens as its constant, if the constant is the longest sequence.
    pub(crate) fn over(self, longest: usize) -> Aggregation {
        let horizon =
            if self.is_longest() { Some(Horizon::Tokens(longest.max(1) as f64)) } else { self.horizon };
        Aggregation { horizon, ..self }
    }

    /// The weight of every token's loss in `batch` for these counts.
    pub fn weight_in(&self, batch: &Batch<'_>, counts: Counts) -> Weight {
        self.for_batch(batch).weight(counts)
    }

    /// The weight of every token's loss for these counts. If the horizon is the longest sequence, call
    /// [`Aggregation::for_batch`] first, or [`Aggregation::weight_in`] instead.
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
            AggregationMode::SeqMeanTokenSumNorm => match self.horizon {
                Some(Horizon::Tokens(tokens)) => (PerRow::Constant(tokens), sequences),
                // The horizon is unknown; `Weight::check` rejects NaN.
                Some(Horizon::Longest) | None => (PerRow::Constant(f64::NAN), sequences),
            },
        };
        Weight { per_row, denominator, scale: 1.0 }
    }
}
