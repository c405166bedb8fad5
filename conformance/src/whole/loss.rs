//! The loss and its derivatives: docs/maths/conventions.md, docs/maths/aggregation.md, docs/maths/kl.md,
//! docs/maths/entropy.md, docs/maths/gates.md, docs/maths/routing.md, docs/maths/correction.md,
//! docs/maths/advantages.md.

use super::{Batch, Credit, kl, wide};
use crate::expect::gate::{cispo, dppo, mini_rl, ppo, remix, sapo, trust_region};
use crate::ops::same;
use crate::oracle::aggregate::{Denominators, Mode};
use crate::oracle::covariance::covariance;
use crate::oracle::gmpo::{self, Gmpo};
use crate::oracle::kl::{Kl, KlFormula};
use crate::oracle::log_ratio_scan::{Kind, row};
use crate::oracle::policy_loss::{Gate, PolicyLoss, Token};
use crate::oracle::ppo_clip::{Clips, PpoClip};
use crate::oracle::token::Guard;
use crate::oracle::{key, kl_importance, sequence_weight, top, value_loss};
use lockstep::Rollouts;
use lockstep::recipe::{
    Against, Aggregation, AggregationMode, CountedSequences, CountsOf, EmptySequence, EntropyTokens,
    GateChoice, GmpoBounds, GuardChoice, Horizon, KlPlace, KlWeighting, LengthGuard, RatioAdvantage,
    RatioGradient, RatioLevel, Recipe,
};

/// The expected result of [`Recipe::loss`].
#[derive(Clone, Debug, Default)]
pub struct Loss {
    /// Policy, KL and entropy terms of each sequence.
    pub rows: Vec<f64>,
    /// Sums of the magnitudes of those terms.
    pub magnitude: Vec<f64>,
    /// dL/dlogp.
    pub coef: Vec<f64>,
    /// dL/dH.
    pub entropy: Option<Vec<f64>>,
    /// The critic's loss and dL/dV.
    pub value: Option<(f64, Vec<f64>)>,
}

/// M, N₊ and N.
type Counts = [f64; 3];

/// W of each sequence.
fn weights(choice: &Aggregation, batch: &Batch, [tokens, nonempty, all]: Counts) -> Vec<f64> {
    let sequences = if choice.sequences == CountedSequences::All { all } else { nonempty };
    let mode = match choice.mode {
        AggregationMode::TokenMean => Mode::TokenMean,
        AggregationMode::TokenSum => Mode::TokenSum,
        AggregationMode::SeqMeanTokenSum => Mode::SeqMeanTokenSum,
        AggregationMode::SeqMeanTokenMean => {
            Mode::SeqMeanTokenMean { at_least_one: choice.length == LengthGuard::AtLeastOne }
        }
        AggregationMode::SeqMeanTokenSumNorm => Mode::SeqMeanTokenSumNorm {
            horizon: match choice.horizon {
                Some(Horizon::Tokens(horizon)) => horizon,
                _ => batch.sequences.iter().map(|span| span.len()).max().unwrap_or(1) as f64,
            },
        },
    };
    let weight = |s| mode.weight(batch.length(s), Denominators { tokens, sequences });
    (0..batch.sequences.len()).map(weight).collect()
}

fn guard(recipe: &Recipe) -> Guard {
    let bound = f64::from(recipe.ratio.guard_bound);
    match recipe.ratio.guard {
        GuardChoice::None => Guard::None,
        GuardChoice::Clamp => Guard::Clamp(bound),
        GuardChoice::StraightThrough => Guard::StraightThrough(bound),
    }
}

/// The gate on tokens of a choice.
pub fn gate(choice: &GateChoice) -> Gate {
    match *choice {
        GateChoice::PpoClip { clip_ratio_low, clip_ratio_high, clip_ratio_c } => {
            ppo(clip_ratio_low, clip_ratio_high, clip_ratio_c.unwrap_or(f32::INFINITY))
        }
        GateChoice::TwoSided { clip_ratio_low, clip_ratio_high, delta } => {
            ppo(clip_ratio_low, clip_ratio_high, delta)
        }
        GateChoice::ClipCov { clip_ratio_low, clip_ratio_high, .. } => {
            ppo(clip_ratio_low, clip_ratio_high, f32::INFINITY)
        }
        GateChoice::KlCov { clip_ratio_low, clip_ratio_high, .. } => {
            let [low, high] = [clip_ratio_low, clip_ratio_high].map(|bound| bound.unwrap_or(f32::INFINITY));
            ppo(low, high, f32::INFINITY)
        }
        GateChoice::Sapo { tau_pos, tau_neg } => sapo(tau_pos, tau_neg),
        GateChoice::Cispo { low, high } => cispo(low, high),
        GateChoice::DppoTv { clip_ratio_low, clip_ratio_high, clip_ratio_c } => {
            dppo(clip_ratio_low, clip_ratio_high, clip_ratio_c, false)
        }
        GateChoice::DppoKl { clip_ratio_low, clip_ratio_high, clip_ratio_c } => {
            dppo(clip_ratio_low, clip_ratio_high, clip_ratio_c, true)
        }
        GateChoice::Minirl { clip_ratio_low, clip_ratio_high, clip_ratio_c } => {
            mini_rl(clip_ratio_low, clip_ratio_high, clip_ratio_c)
        }
        GateChoice::TrustRegion { divergence, clip_ratio_low, clip_ratio_high, clip_ratio_c } => {
            trust_region(divergence, clip_ratio_low, clip_ratio_high, clip_ratio_c)
        }
        GateChoice::Remix { clip_ratio_low, clip_ratio_high } => remix(clip_ratio_low, clip_ratio_high),
        // GMPO is not a gate on tokens; DRO adds a square to REINFORCE.
        GateChoice::Reinforce {}
        | GateChoice::Dro { .. }
        | GateChoice::Vespo { .. }
        | GateChoice::Topr {}
        | GateChoice::Gmpo { .. } => Gate::Reinforce,
    }
}

/// Everything that the terms of one loss share.
struct Inputs<'a> {
    recipe: &'a Recipe,
    batch: Batch,
    counts: Counts,
    logp: Vec<f64>,
    old: Vec<f64>,
    rollout: Vec<f64>,
    /// A of each token.
    advantage: Vec<f64>,
    /// The sequence of each token.
    of: Vec<usize>,
    /// Weights of the policy term.
    weights: Vec<f64>,
    weighted: bool,
}

impl Inputs<'_> {
    fn live(&self) -> impl Iterator<Item = usize> {
        (0..self.logp.len()).filter(|i| self.batch.live[*i])
    }

    fn against(&self, which: Against) -> &[f64] {
        match which {
            Against::Old => &self.old,
            Against::Rollout => &self.rollout,
        }
    }

    /// Replaces every sequence's weights by a function of its tokens (log-ratio, weight) and its advantage.
    fn by_sequence(&mut self, which: Against, rule: impl Fn(&[(f64, f64)], f64) -> f64, times: bool) {
        for places in self.batch.rows() {
            let Some(first) = places.first() else { continue };
            let behave = self.against(which);
            let tokens: Vec<(f64, f64)> =
                places.iter().map(|i| (self.logp[*i] - behave[*i], self.weights[*i])).collect();
            let w = rule(&tokens, self.advantage[*first]);
            places.iter().for_each(|i| self.weights[*i] = w * if times { self.weights[*i] } else { 1.0 });
        }
        self.weighted = true;
    }

    /// (A − mean A)·(logp − mean logp).
    fn covariances(&self) -> Vec<f64> {
        let n = self.live().count().max(1) as f64;
        let mean = |x: &[f64]| self.live().map(|i| x[i]).sum::<f64>() / n;
        let (a, logp) = (mean(&self.advantage), mean(&self.logp));
        (0..self.logp.len()).map(|i| covariance(self.advantage[i], a, self.logp[i], logp)).collect()
    }

    /// The n live tokens with the largest keys.
    fn largest(&self, n: usize, keys: impl Fn(usize) -> u32) -> Vec<bool> {
        let keys: Vec<u32> =
            (0..self.logp.len()).map(|i| if self.batch.live[i] { keys(i) } else { 0 }).collect();
        let mut chosen = vec![false; keys.len()];
        top::largest(&keys, n).into_iter().for_each(|i| chosen[i] = true);
        chosen
    }

    /// ⌊ratio·M⌋, but at least one, and no more than there are.
    fn share(&self, ratio: f64) -> usize {
        let live = self.live().count();
        ((ratio * live as f64).floor() as usize).max(1).min(live)
    }
}

/// The loss of a batch with its credit.
pub fn loss(recipe: &Recipe, rollouts: &Rollouts<'_>, credit: &Credit) -> Loss {
    let batch = Batch::of(rollouts).with(credit.live.clone());
    let lengths: Vec<usize> = (0..batch.sequences.len()).map(|s| batch.length(s)).collect();
    let own = [lengths.iter().sum(), lengths.iter().filter(|n| **n > 0).count(), lengths.len()];
    let of: Vec<usize> =
        batch.sequences.iter().enumerate().flat_map(|(s, span)| span.clone().map(move |_| s)).collect();
    let mut advantage: Vec<f64> = match credit.per_token {
        true => credit.advantage.clone(),
        false => of.iter().map(|s| credit.advantage[*s]).collect(),
    };
    if credit.per_token && recipe.ratio.advantage == RatioAdvantage::SequenceMean {
        let sums = batch.sums(|i| advantage[i]);
        advantage = of.iter().map(|s| sums[*s] / lengths[*s].max(1) as f64).collect();
    }
    let logp = wide(rollouts.logp);
    let mut inputs = Inputs {
        recipe,
        counts: match rollouts.counts {
            Some(counts) => [0, 1, 2].map(|k| counts[k] as f64),
            None => own.map(|n| n as f64),
        },
        old: match rollouts.logp_old {
            Some(old) if !recipe.ratio.on_policy => wide(Some(old)),
            _ => logp.clone(),
        },
        rollout: wide(rollouts.logp_rollout),
        weights: credit.weights.clone().unwrap_or_else(|| vec![1.0; logp.len()]),
        weighted: credit.weights.is_some(),
        batch,
        logp,
        advantage,
        of,
    };
    let mut out = Loss {
        rows: vec![0.0; lengths.len()],
        magnitude: vec![0.0; lengths.len()],
        coef: vec![0.0; inputs.logp.len()],
        ..Loss::default()
    };
    policy(&mut inputs, rollouts, &mut out);
    if recipe.aggregation.empty == EmptySequence::One && !credit.per_token {
        for s in (0..lengths.len()).filter(|s| lengths[*s] == 0) {
            out.rows[s] -= credit.advantage[s] / inputs.counts[2].max(1.0);
        }
    }
    let weights = weights(&recipe.aggregation, &inputs.batch, inputs.counts);
    reference(&inputs, rollouts, &weights, &mut out);
    if let Some(choice) = recipe.entropy {
        let (entropy, beta) = (wide(rollouts.entropy), f64::from(choice.coef));
        let mut coef = vec![0.0; entropy.len()];
        let counts = if choice.over == CountsOf::Call { own.map(|n| n as f64) } else { inputs.counts };
        // Positive: an advantage above 0, of the token or of its sequence.
        let advantage = |i: usize| credit.advantage[if credit.per_token { i } else { inputs.of[i] }];
        let counted = |i: &usize| choice.of != EntropyTokens::Positive || advantage(*i) > 0.0;
        let live = (0..entropy.len()).map(|i| inputs.batch.live[i] && counted(&i)).collect();
        let batch = inputs.batch.with(live);
        let weights = self::weights(&choice.aggregation.unwrap_or(recipe.aggregation), &batch, counts);
        for i in inputs.live().filter(counted) {
            coef[i] = -beta * weights[inputs.of[i]];
            out.add(&inputs, i, coef[i] * entropy[i], 0.0);
        }
        out.entropy = Some(coef);
    }
    if let Some(choice) = &recipe.value {
        let (values, old) = (wide(rollouts.values), wide(rollouts.values_old));
        let range = choice.cliprange_value.map_or(f64::INFINITY, f64::from);
        let delta = choice.huber_delta.map_or(f64::INFINITY, f64::from);
        let weights = self::weights(&choice.aggregation, &inputs.batch, inputs.counts);
        let (mut loss, mut gradient) = (0.0, vec![0.0; values.len()]);
        for i in inputs.live() {
            let before = if range.is_finite() { old[i] } else { values[i] };
            let token = value_loss::token(values[i], before, credit.returns[i], range, delta);
            let w = choice.coef * weights[inputs.of[i]];
            (loss, gradient[i]) = (loss + w * token.loss, w * token.gradient);
        }
        out.value = Some((loss, gradient));
    }
    out
}

impl Loss {
    fn add(&mut self, inputs: &Inputs<'_>, i: usize, loss: f64, gradient: f64) {
        self.rows[inputs.of[i]] += loss;
        self.magnitude[inputs.of[i]] += loss.abs();
        self.coef[i] += gradient;
    }
}

/// Ratio, selection, sequence rules, gate, and the KL term that is part of some gates.
fn policy(inputs: &mut Inputs<'_>, rollouts: &Rollouts<'_>, out: &mut Loss) {
    let recipe = inputs.recipe;
    let n = inputs.logp.len();
    // The tokens with the gate's own KL term, its estimator and its coefficient.
    let mut own: Option<(Vec<bool>, KlFormula, f64)> = None;
    let mut second = vec![0.0; n];
    match recipe.gate {
        GateChoice::Vespo { k_pos, lambda_pos, k_neg, lambda_neg, against, lambda_floor } => {
            let (weighted, floor) = (inputs.weighted, lambda_floor.unwrap_or(f32::NEG_INFINITY));
            let rule = |tokens: &[(f64, f64)], a: f64| {
                let (k, lambda) = if a >= 0.0 { (k_pos, lambda_pos) } else { (k_neg, lambda_neg) };
                sequence_weight::vespo(tokens, k.into(), lambda.max(floor).into(), weighted)
            };
            inputs.by_sequence(against, rule, false);
        }
        GateChoice::Topr {} => inputs.by_sequence(Against::Rollout, sequence_weight::topr, true),
        GateChoice::TrustRegion { divergence: lockstep_core::gate::Divergence::Given, .. } => {
            second = wide(rollouts.divergence);
        }
        GateChoice::Minirl { .. } | GateChoice::TrustRegion { .. } => second.clone_from(&inputs.rollout),
        GateChoice::Remix { .. } => second = wide(rollouts.logp_latest),
        GateChoice::Dro { beta } => own = Some((vec![true; n], KlFormula::K2, beta.into())),
        GateChoice::KlCov { kl_cov_ratio, ppo_kl_coef, .. } => {
            let values = inputs.covariances();
            let chosen = inputs.largest(inputs.share(kl_cov_ratio), |i| key::ordered(values[i] as f32));
            own = Some((chosen, KlFormula::Abs, ppo_kl_coef.into()));
        }
        GateChoice::ClipCov { clip_ratio_low, clip_ratio_high, clip_cov_ratio, clip_cov_lb, clip_cov_ub } => {
            let values = inputs.covariances();
            let clip =
                PpoClip { low: clip_ratio_low.into(), high: clip_ratio_high.into(), dual: f64::INFINITY };
            let seed = rollouts.seed.map_or(0, |seed| seed[0]);
            let chosen = inputs.largest(inputs.share(clip_cov_ratio), |i| {
                let r = (inputs.logp[i] - inputs.old[i]).exp();
                let free = clip.clips(r, inputs.advantage[i]) == Clips::default();
                let inside = values[i] > f64::from(clip_cov_lb) && values[i] < f64::from(clip_cov_ub);
                if free && inside { key::hash(seed, i as u64) } else { 0 }
            });
            (0..n).filter(|i| chosen[*i]).for_each(|i| inputs.weights[i] = 0.0);
            inputs.weighted = true;
        }
        _ => {}
    }
    if let Some(delta) = recipe.mask.opsm_delta {
        let rule = |tokens: &[(f64, f64)], a: f64| sequence_weight::off_policy_mask(tokens, a, delta.into());
        inputs.by_sequence(recipe.mask.opsm_against, rule, true);
    }
    if let Some(share) = recipe.mask.top_entropy {
        // TRL: at or above the quantile 1 − share of the live entropies.
        let entropy = rollouts.entropy.unwrap_or_default();
        let live = inputs.live().count();
        let below = ((1.0 - share) * live.saturating_sub(1) as f64).ceil() as usize;
        let chosen = inputs.largest(live - below.min(live), |i| key::ordered(entropy[i]));
        (0..n).filter(|i| !chosen[*i]).for_each(|i| inputs.weights[i] = 0.0);
        inputs.weighted = true;
    }
    if let GateChoice::Gmpo { clip_log_low, clip_log_high, bounds, mean } = recipe.gate {
        return gmpo(inputs, [clip_log_low, clip_log_high].map(f64::from), (bounds, mean), out);
    }
    let given = match recipe.ratio.level {
        RatioLevel::Given => Some(wide(rollouts.log_ratio)),
        RatioLevel::MinPrefix => {
            let mut given = vec![0.0; n];
            for places in inputs.batch.rows() {
                let d: Vec<f64> = places.iter().map(|i| inputs.logp[*i] - inputs.old[*i]).collect();
                places.iter().zip(row(&d, Kind::MinBefore, true)).for_each(|(i, x)| given[*i] = x);
            }
            Some(given)
        }
        RatioLevel::Product => {
            let sums = inputs.batch.sums(|i| inputs.logp[i] - inputs.old[i]);
            Some(inputs.of.iter().map(|s| sums[*s]).collect())
        }
        RatioLevel::Segment => {
            let mut given = vec![0.0; n];
            for places in segments(&inputs.batch) {
                let sum: f64 = places.iter().map(|i| inputs.logp[*i] - inputs.old[*i]).sum();
                places.iter().for_each(|i| given[*i] = sum / places.len() as f64);
            }
            Some(given)
        }
        RatioLevel::Token | RatioLevel::Sequence => None,
    };
    let oracle = PolicyLoss {
        guard: guard(recipe),
        log_max: (recipe.ratio.level == RatioLevel::Sequence)
            .then_some(recipe.ratio.log_max.map_or(f64::INFINITY, f64::from)),
        gate: gate(&recipe.gate),
        kl: None,
    };
    let sums = inputs.batch.sums(|i| inputs.logp[i] - inputs.old[i]);
    let weights = weights(&recipe.aggregation, &inputs.batch, inputs.counts);
    for i in inputs.live() {
        let s = inputs.of[i];
        let computed = oracle.token(&Token {
            logp: inputs.logp[i],
            logp_old: given.as_ref().map_or(inputs.old[i], |given| inputs.logp[i] - given[i]),
            logp_ref: inputs.logp[i],
            logp_second: second[i],
            advantage: inputs.advantage[i],
            weight: inputs.weights[i],
            sequence: (sums[s] / inputs.batch.length(s) as f64, 0.0),
        });
        out.add(inputs, i, weights[s] * computed.policy, weights[s] * computed.policy_gradient);
        if let Some((_, estimator, beta)) = own.as_ref().filter(|(chosen, ..)| chosen[i]) {
            let (clamp_in, clamp_out) = (f64::INFINITY, f64::INFINITY);
            let kl = Kl { estimator: *estimator, clamp_in, clamp_out, straight_through: false };
            let (d, w) = (inputs.logp[i] - inputs.old[i], weights[s] * inputs.weights[i] * beta);
            out.add(inputs, i, w * kl.value(d), w * kl.gradient(d));
        }
    }
    let product = recipe.ratio.level == RatioLevel::Product;
    let mean = recipe.ratio.gradient == RatioGradient::Mean;
    let rows = match recipe.ratio.level {
        _ if oracle.gate.is_score() => vec![],
        RatioLevel::Segment if mean => segments(&inputs.batch),
        RatioLevel::Sequence if mean => inputs.batch.rows(),
        RatioLevel::Product => inputs.batch.rows(),
        _ => vec![],
    };
    for places in rows {
        // d ln s / dlogp is 1 for a product and 1/L for a geometric mean.
        let sum: f64 = places.iter().map(|i| out.coef[*i]).sum();
        places.iter().for_each(|i| out.coef[*i] = if product { sum } else { sum / places.len() as f64 });
    }
}

/// The runs of live tokens.
fn segments(batch: &Batch) -> Vec<Vec<usize>> {
    let mut runs: Vec<Vec<usize>> = Vec::new();
    for places in batch.rows() {
        let mut last = None;
        for i in places {
            match runs.last_mut() {
                Some(run) if last == i.checked_sub(1) => run.push(i),
                _ => runs.push(vec![i]),
            }
            last = Some(i);
        }
    }
    runs
}

/// GMPO.
fn gmpo(
    inputs: &Inputs<'_>,
    [low, high]: [f64; 2],
    (bounds, mean): (GmpoBounds, lockstep_core::policy_loss::gmpo::Mean),
    out: &mut Loss,
) {
    use lockstep_core::policy_loss::gmpo::Mean;
    let mean = same!(mean, Mean => gmpo::Mean, Geometric ClippedSum Product Harmonic);
    let (guard, whole) = (guard(inputs.recipe), inputs.counts[2]);
    let oracle = match bounds {
        GmpoBounds::Log => Gmpo { mean, low, high },
        GmpoBounds::Ratio => Gmpo { mean, low: -(-low).ln_1p(), high: high.ln_1p() },
    };
    for (s, places) in inputs.batch.rows().into_iter().enumerate() {
        let token = |i: &usize| gmpo::Token {
            d: guard.value(inputs.logp[*i] - inputs.old[*i]),
            a: inputs.advantage[*i],
            w: inputs.weights[*i],
        };
        let tokens: Vec<gmpo::Token> = places.iter().map(token).collect();
        let loss = if places.is_empty() { 0.0 } else { oracle.loss(&tokens, inputs.weighted) / whole };
        (out.rows[s], out.magnitude[s]) = (loss, loss.abs());
        for (i, slope) in places.iter().zip(oracle.slopes(&tokens)) {
            let through = guard.derivative(inputs.logp[*i] - inputs.old[*i]);
            out.coef[*i] = through * loss * slope.unwrap_or(0.0);
        }
    }
}

/// KL to the reference in the loss, in one part or in ReMix's two.
fn reference(inputs: &Inputs<'_>, rollouts: &Rollouts<'_>, weights: &[f64], out: &mut Loss) {
    let Some(choice) = inputs.recipe.kl else { return };
    let (base, estimator, beta) = (wide(rollouts.logp_ref), kl(&choice), f64::from(choice.coef));
    let previous = wide(rollouts.logp_previous);
    let step = rollouts.step.map_or(0, |step| step[0]) as f64;
    let lambda = f64::max(1.0 - 0.1 * (f64::max(step - 50.0, 0.0) / 10.0).ceil(), 0.5);
    for i in inputs.live() {
        let x = |reference: &[f64]| inputs.logp[i] - reference[i];
        let (value, gradient) = match (choice.place, choice.importance_weighted) {
            (KlPlace::Reward, _) => continue,
            (KlPlace::Convex, _) => {
                let pair = [(x(&base), lambda), (x(&previous), 1.0 - lambda)];
                pair.iter().fold((0.0, 0.0), |(k, g), (x, share)| {
                    (k + share * estimator.value(*x), g + share * estimator.gradient(*x))
                })
            }
            (KlPlace::Loss, KlWeighting::None) => (estimator.value(x(&base)), estimator.gradient(x(&base))),
            (KlPlace::Loss, weighting) => {
                let d = if weighting == KlWeighting::Score { 0.0 } else { inputs.logp[i] - inputs.old[i] };
                let through = weighting != KlWeighting::Detached;
                kl_importance::token(&estimator, guard(inputs.recipe), through, x(&base), d)
            }
        };
        let w = beta * weights[inputs.of[i]];
        out.add(inputs, i, w * value, w * gradient);
    }
}
