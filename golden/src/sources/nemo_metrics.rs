//! The terms of NeMo RL's policy loss other than the policy's, and its logged metrics: means over
//! `global_valid_toks` of ratios, weights and divergences.

use crate::numbers::{Got, Over, over, total};
use crate::outcome::{Outcome, Setup, text};
use crate::settings::Overlay;
use crate::terms;
use lockstep::ops::moments::{Moments, token_moments};
use lockstep::recipe::{KlChoice, KlEstimator, WeightLevel};
use lockstep::{Credit, Loss, Recipe, RolloutsBuf};
use std::rc::Rc;

/// The terms other than the policy's.
#[derive(Clone)]
pub(super) struct Parts {
    pub(super) kl: Recipe,
    /// Whether the KL term is a separate call.
    pub(super) apart: bool,
    /// Whether its weights are relative to the sampler.
    pub(super) to_sampler: bool,
    pub(super) nll: f64,
}

impl Parts {
    fn kl(&self, o: &Outcome<'_>, recipe: &Recipe) -> Result<Loss, String> {
        let mut columns = o.columns.clone();
        if self.to_sampler {
            columns.logp_old = columns.logp_rollout.clone();
        }
        alone(o, recipe, &columns, 0.0)
    }

    /// −logp of the tokens of samples with a reward, if there are any.
    fn nll(&self, o: &Outcome<'_>, weight: f64) -> Result<Option<Loss>, String> {
        let rewards = o.columns.rewards.as_deref().unwrap_or_default();
        let mut columns = RolloutsBuf { counts: None, ..o.columns.clone() };
        let mask = columns.loss_mask.as_mut().ok_or("input `loss_mask` is missing")?;
        for (span, _) in o.spans().iter().zip(rewards).filter(|(_, reward)| **reward <= 0.0) {
            mask[span.clone()].fill(0);
        }
        if self.nll <= 0.0 || mask.iter().all(|live| *live == 0) {
            return Ok(None);
        }
        let mut recipe = Overlay::new("nemo");
        recipe.set("gate", "{ kind = \"reinforce\" }");
        alone(o, &recipe.recipe()?, &columns, weight).map(Some)
    }

    pub(super) fn losses(&self, o: &Outcome<'_>) -> Result<Vec<Loss>, String> {
        let mut losses = Vec::from_iter(self.nll(o, self.nll)?);
        if self.apart {
            losses.push(self.kl(o, &self.kl)?);
        }
        Ok(losses)
    }

    pub(super) fn loss(&self, o: &Outcome<'_>) -> Result<Got, String> {
        let (mut sum, mut terms) = (total(o)?, terms::of_loss(o)?);
        for part in self.losses(o)? {
            let loss = part.loss.ok_or("no loss came back")?;
            (sum, terms) = (sum + loss, terms + loss.abs());
        }
        Ok(Got::Number(sum, terms))
    }
}

/// Runs a recipe by itself, with one advantage for all tokens.
fn alone(o: &Outcome<'_>, recipe: &Recipe, columns: &RolloutsBuf, advantage: f64) -> Result<Loss, String> {
    let credit = Credit::per_token(vec![advantage as f32; o.live().len()]);
    recipe.loss(o.device, &columns.view(), &credit).map_err(text)
}

/// What the metrics are computed from.
pub(super) struct Logged {
    pub(super) parts: Parts,
    /// The estimator that measures KL beside the loss.
    pub(super) kl: Recipe,
    /// A gate whose weight is the clipped ratio, and one whose weight is the ratio.
    pub(super) weights: [Recipe; 2],
    pub(super) correction: Recipe,
    /// The kind of truncation or mask.
    pub(super) kind: Option<String>,
    pub(super) counts: [f64; 2],
    /// Which sequences `sample_mask` keeps.
    pub(super) kept: Vec<bool>,
    pub(super) reinforce: bool,
}

impl Logged {
    /// Mean, smallest and largest ratio, and the same after clipping; of log-probabilities where NeMo has no
    /// ratio.
    fn ratios(&self, o: &Outcome<'_>) -> Result<[f64; 6], String> {
        let share = live(o) / self.counts[0];
        if self.reinforce {
            let logp = o.columns.logp.as_deref().unwrap_or_default();
            let m = token_moments(o.device, &o.columns.batch().map_err(text)?, logp).map_err(text)?;
            return Ok([m.mean * share, m.low, m.high, m.mean * share, m.low, m.high]);
        }
        let loss = alone(o, &self.weights[0], &o.columns, 1.0)?;
        let m = loss.metrics.ok_or("no metrics came back")?;
        let mask = o.columns.loss_mask.as_deref().unwrap_or_default();
        let weights: Vec<f64> =
            loss.coef.iter().zip(mask).filter(|(_, live)| **live != 0).map(|(x, _)| -f64::from(*x)).collect();
        let of = |which| over(&weights, which);
        let clipped = [of(Over::Mean) * share, of(Over::Min), of(Over::Max)];
        Ok([m.ratio_mean * share, m.ratio_min, m.ratio_max, clipped[0], clipped[1], clipped[2]])
    }

    /// The KL between two policies, on samples of the first.
    fn between(&self, o: &Outcome<'_>, policies: [&Option<Vec<f32>>; 2]) -> Result<Got, String> {
        let [logp, logp_ref] = policies.map(Clone::clone);
        let columns =
            RolloutsBuf { logp_old: logp.clone(), logp, logp_ref, counts: None, ..o.columns.clone() };
        let mean = |recipe: &Recipe| {
            let loss = alone(o, recipe, &columns, 0.0)?;
            Ok::<_, String>(
                loss.metrics.ok_or("no metrics came back")?.kl_ref_mean * live(o) / self.counts[0],
            )
        };
        Ok(Got::Number(mean(&self.kl)?, magnitude(&self.kl).map_or(Ok(0.0), |recipe| mean(&recipe))?))
    }

    fn penalty(&self, o: &Outcome<'_>) -> Result<Got, String> {
        let Some(coef) = self.parts.kl.kl.as_ref().map(|kl| f64::from(kl.coef)) else {
            return Ok(Got::Number(0.0, 0.0));
        };
        let sum = |recipe: &Recipe| {
            let loss = self.parts.kl(o, recipe)?.loss.ok_or("no loss came back")?;
            Ok::<_, String>(loss / coef)
        };
        let recipe = &self.parts.kl;
        Ok(Got::Number(sum(recipe)?, magnitude(recipe).map_or(Ok(0.0), |recipe| sum(&recipe))?))
    }

    /// Mean of the weights, 0 where rejected. Sequence weights count once per sequence (1 for an empty one),
    /// and their sum once per sample: NeMo's broadcast.
    fn weights(&self, o: &Outcome<'_>) -> Result<f64, String> {
        let credit = self.correction.advantages(o.device, &o.columns.view()).map_err(text)?;
        let mask = o.columns.loss_mask.as_deref().unwrap_or_default();
        let weights = credit.weights.as_deref().ok_or("no weights came back")?;
        let left = credit.loss_mask.as_deref().unwrap_or(mask);
        let of = |i: usize| if left[i] == 0 { 0.0 } else { f64::from(weights[i]) };
        let level = self.correction.correction.as_ref().map(|c| c.level);
        if level == Some(WeightLevel::Token) {
            return Ok((0..mask.len()).filter(|i| mask[*i] != 0).map(of).sum::<f64>() / self.counts[0]);
        }
        let each = o.spans().iter().map(|span| span.clone().find(|i| mask[*i] != 0).map_or(1.0, of));
        Ok(each.sum::<f64>() * self.samples() / self.counts[1])
    }

    /// Fraction outside the band: of tokens, or of sequences that are rejected.
    fn outside(&self, o: &Outcome<'_>) -> Result<f64, String> {
        let report = o.credit.correction.ok_or("the recipe corrected nothing")?;
        if self.kind.as_deref() == Some("seq-mask-tis") {
            let sequences = report.counts_before.nonempty as f64;
            return Ok(report.stats.touched_sequences_fraction * sequences / self.counts[1]);
        }
        Ok(report.stats.outside_fraction * live(o) / self.counts[0])
    }

    fn samples(&self) -> f64 {
        self.kept.iter().filter(|kept| **kept).count() as f64
    }

    fn nll(&self, o: &Outcome<'_>) -> Result<f64, String> {
        self.parts.nll(o, 1.0)?.map_or(Ok(0.0), |loss| loss.loss.ok_or_else(|| "no loss came back".into()))
    }

    /// −r·logp, with r relative to the sampler.
    fn entropy(&self, o: &Outcome<'_>) -> Result<f64, String> {
        let columns = RolloutsBuf { logp_old: o.columns.logp_rollout.clone(), ..o.columns.clone() };
        let loss = alone(o, &self.weights[1], &columns, 1.0)?;
        Ok(loss.loss.ok_or("no loss came back")? / self.counts[0])
    }
}

/// Number of live tokens, without those of sequences that `sample_mask` hides.
pub(super) fn live(o: &Outcome<'_>) -> f64 {
    let mask = o.columns.loss_mask.as_deref().unwrap_or_default();
    mask.iter().filter(|live| **live != 0).count() as f64
}

/// A statistic of the live values; NeMo adds terms of both signs.
pub(super) fn moments(o: &Outcome<'_>, values: &[f32], of: impl Fn(Moments) -> f64) -> Result<Got, String> {
    let batch = o.columns.batch().map_err(text)?;
    let m = token_moments(o.device, &batch, values).map_err(text)?;
    Ok(Got::Number(of(m), m.low.abs().max(m.high.abs())))
}

/// The recipe for the magnitudes of k1's terms, which may cancel.
fn magnitude(recipe: &Recipe) -> Option<Recipe> {
    let kl = recipe.kl.filter(|kl| kl.estimator == KlEstimator::K1)?;
    let kl = KlChoice { estimator: KlEstimator::Abs, clamp_in: None, clamp_out: None, ..kl };
    Some(Recipe { kl: Some(kl), ..recipe.clone() })
}

pub(super) fn metrics(to: &mut Setup, logged: Logged) {
    let logged = Rc::new(logged);
    for (name, why) in [
        ("metrics.token_mult_prob_error", "the mean of exp |difference|: logged, not in Lockstep"),
        ("metrics.js_divergence_error", "a divergence to a mixture: logged, not in Lockstep"),
    ] {
        to.expects.push(name);
        to.skips.push((name, why));
    }
    #[rustfmt::skip]
    let ratios = [
        "metrics.probs_ratio", "metrics.probs_ratio_min", "metrics.probs_ratio_max",
        "metrics.probs_ratio_clamped", "metrics.probs_ratio_clamped_min", "metrics.probs_ratio_clamped_max",
    ];
    for (k, name) in ratios.into_iter().enumerate() {
        let l = logged.clone();
        to.own(name, move |o| Ok(Got::Number(l.ratios(o)?[k], 0.0)));
    }
    let mut own = |name: &'static str, get: fn(&Logged, &Outcome<'_>) -> Result<Got, String>| {
        let l = logged.clone();
        to.own(name, move |o| get(&l, o));
    };
    own("metrics.kl_penalty", Logged::penalty);
    own("metrics.gen_kl_error", |l, o| l.between(o, [&o.columns.logp_rollout, &o.columns.logp_old]));
    own("metrics.policy_kl_error", |l, o| l.between(o, [&o.columns.logp_old, &o.columns.logp_rollout]));
    own("metrics.sampling_importance_ratio", |l, o| Ok(Got::Number(l.weights(o)?, 0.0)));
    own("metrics.num_valid_samples", |l, _| Ok(Got::Number(l.samples(), 0.0)));
    own("metrics.approx_entropy", |l, o| Ok(Got::Number(l.entropy(o)?, 0.0)));
    own("metrics.positive_nll_loss", |l, o| Ok(Got::Number(l.nll(o)?, 0.0)));
    if logged.kind.is_some() {
        own("metrics.is_oob_ratio", |l, o| Ok(Got::Number(l.outside(o)?, 0.0)));
    }
}
