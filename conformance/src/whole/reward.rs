//! Stages on rewards before the estimator and on advantages after it: docs/maths/advantages.md,
//! docs/maths/rewards.md.

use super::advantage::{self, Estimate};
use super::{Batch, wide};
use crate::oracle::{entropy_bonus, filter, novelty, shape, sharpen, variance_increase};
use lockstep::Rollouts;
use lockstep::core::reward::novelty::{INVALID, MAJORITY};
use lockstep::recipe::{
    AdvantageEstimator, EntropyKind, FilterChoice, Filtration, Recipe, ShapingChoice, SharpenChoice,
};

/// Rewards (NaN for none), and which of them count.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) rewards: Vec<f64>,
    pub(super) valid: Vec<bool>,
}

impl Seen {
    /// The rewards that count.
    pub(super) fn scores(&self) -> Vec<Option<f64>> {
        let score = |(r, v): (&f64, &bool)| (*v && !r.is_nan()).then_some(*r);
        self.rewards.iter().zip(&self.valid).map(score).collect()
    }
}

/// Advantages, and which responses are kept if there is a filter. `batches`: the batch as given, and as
/// rejection left it.
pub(super) fn outcome(
    recipe: &Recipe,
    batches: [&Batch; 2],
    rollouts: &Rollouts<'_>,
    input: &Seen,
) -> (Estimate, Option<Vec<bool>>) {
    let batch = batches[0];
    let shaped = Seen { rewards: shaped(recipe, batch, rollouts, input), valid: input.valid.clone() };
    let (mut out, spread) = advantage::outcome(recipe, batches, rollouts, &shaped);
    if recipe.advantage.estimator == AdvantageEstimator::Tempo {
        return (out, None);
    }
    sharpened(recipe, batch, rollouts, &input.scores(), &mut out.advantage);
    if let Some(choice) = recipe.reward.filtration {
        let scores = shaped.scores();
        for members in &batch.groups {
            let n = scores[members.clone()].iter().flatten().count() as f64;
            let drawn = filtration(choice, &scores[members.clone()]);
            members.clone().zip(drawn).for_each(|(s, p)| out.advantage[s] *= n * p);
        }
    }
    if let Some(cap) = recipe.reward.group_factor_cap {
        let good = spread.iter().filter(|std| **std > 0.0).count() as f64;
        let factor = if good == 0.0 { 0.0 } else { (batch.groups.len() as f64 / good).min(cap) };
        out.advantage.iter_mut().for_each(|a| *a *= factor);
    }
    let keep = recipe.reward.filter.map(|choice| {
        let metric: Vec<f64> = match choice {
            FilterChoice::Balanced { .. } => shaped.rewards.clone(),
            FilterChoice::NonzeroAdvantage {} => out.advantage.clone(),
            FilterChoice::AtMostTokens { .. } => {
                (0..input.valid.len()).map(|s| batch.length(s) as f64).collect()
            }
            _ => input.rewards.clone(),
        };
        kept(choice, batch, &Seen { rewards: metric, valid: input.valid.clone() }.scores())
    });
    if let Some(keep) = &keep {
        out.advantage.iter_mut().zip(keep).filter(|(_, keep)| !**keep).for_each(|(a, _)| *a = 0.0);
    }
    if let Some(choice) = recipe.reward.entropy {
        let (old, whole) = (wide(rollouts.logp_old), wide(rollouts.entropy));
        let mut tokens = vec![0.0; batch.live.len()];
        for (a, places) in out.advantage.iter().zip(batch.rows()) {
            for i in places {
                let h = match choice.of {
                    EntropyKind::Sampled => entropy_bonus::sampled(old[i]),
                    EntropyKind::Distribution => whole[i],
                };
                tokens[i] = a + entropy_bonus::bonus(*a, h, choice.alpha.into(), choice.kappa.into());
            }
        }
        (out.advantage, out.per_token) = (tokens, true);
    }
    (out, keep)
}

fn shaped(recipe: &Recipe, batch: &Batch, rollouts: &Rollouts<'_>, input: &Seen) -> Vec<f64> {
    let (scores, threshold) = (input.scores(), f64::from(recipe.reward.threshold));
    let length = |s: usize| batch.length(s) as f64;
    let mut out: Vec<f64> = scores.iter().map(|r| r.unwrap_or(f64::NAN)).collect();
    for (g, members) in batch.groups.iter().enumerate() {
        let counted: Vec<usize> = members.clone().filter(|s| scores[*s].is_some()).collect();
        let own: Vec<f64> = counted.iter().map(|s| out[*s]).collect();
        let lengths: Vec<f64> = counted.iter().map(|s| length(*s)).collect();
        let new: Vec<f64> = match recipe.reward.shaping {
            None => own,
            Some(ShapingChoice::Signs { correct, wrong }) => {
                own.iter().map(|r| shape::signs(*r, correct, wrong)).collect()
            }
            Some(ShapingChoice::Fapo { lambda }) => {
                let flawed = |s: usize| rollouts.flawed.is_some_and(|flawed| flawed[s] != 0);
                counted.iter().map(|s| shape::flawed(out[*s] > threshold, flawed(*s), lambda)).collect()
            }
            Some(ShapingChoice::Conciser { limit }) => {
                shape::brevity(&own, &lengths, &vec![true; own.len()], threshold, limit.into())
            }
            Some(ShapingChoice::Brpo {}) => {
                let reference = members.start + rollouts.reference.map_or(0, |own| own[g] as usize);
                let preferred = |s: &usize| if out[*s] > threshold { 1.0 } else { -1.0 };
                counted.iter().map(|s| if *s == reference { 0.0 } else { preferred(s) }).collect()
            }
            Some(ShapingChoice::Grpovi { low, high, margin, merge_ties }) => {
                let reference = rollouts.logp_ref.map(|logp| wide(Some(logp)));
                let logp = reference.map(|logp| batch.sums(|i| logp[i]));
                let logp: Vec<f64> =
                    counted.iter().map(|s| logp.as_ref().map_or(0.0, |logp| logp[*s])).collect();
                let least = own.iter().copied().fold(f64::INFINITY, f64::min);
                let most = own.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                // A range that excludes rewards of the group would have no solution.
                let bounds =
                    [low.unwrap_or(least - margin).min(least), high.unwrap_or(most + margin).max(most)];
                let splits =
                    variance_increase::splits(&own, &variance_increase::softmax(&logp), bounds, merge_ties);
                match variance_increase::best(&splits) {
                    Some(best) if least < most => best.z.clone(),
                    _ => own,
                }
            }
            Some(ShapingChoice::EvolRl { mean_weight }) => evol(batch, rollouts, g, &counted, mean_weight),
        };
        counted.iter().zip(new).for_each(|(s, r)| out[*s] = r);
    }
    if let Some(choice) = recipe.reward.overlong {
        let (most, buffer) = (choice.max_length.into(), choice.buffer.into());
        for (s, r) in out.iter_mut().enumerate() {
            *r += shape::overlong(length(s), most, buffer, choice.factor, choice.saturate);
        }
    }
    out
}

/// EVOL-RL's bands for the counted members of a group.
fn evol(batch: &Batch, rollouts: &Rollouts<'_>, g: usize, counted: &[usize], mean_weight: f64) -> Vec<f64> {
    let (classes, pairs) = (rollouts.answer_class.unwrap_or_default(), wide(rollouts.similarity));
    let members = &batch.groups[g];
    let start: usize = batch.groups[..g].iter().map(|group| group.len().pow(2)).sum();
    let n = members.len();
    let matrix: Vec<Vec<f64>> = (0..n).map(|i| pairs[start + i * n..][..n].to_vec()).collect();
    let class: Vec<Option<u32>> = members
        .clone()
        .map(|s| (counted.contains(&s) && classes[s] != INVALID).then_some(classes[s]))
        .collect();
    let u: Vec<f64> = (0..n).map(|i| novelty::novelty(&matrix, &class, i, mean_weight)).collect();
    let reward = |s: &usize| {
        let i = s - members.start;
        let peers: Vec<f64> = (0..n).filter(|j| class[*j] == class[i]).map(|j| u[j]).collect();
        match class[i] {
            None => -1.0,
            Some(MAJORITY) => 0.5 + 0.5 * novelty::place(u[i], &peers),
            Some(_) => -1.0 + 0.5 * novelty::place(u[i], &peers),
        }
    };
    counted.iter().map(reward).collect()
}

/// Probabilities of being drawn, PF-PPO style (our reading).
fn filtration(choice: Filtration, scores: &[Option<f64>]) -> Vec<f64> {
    let there = || (0..scores.len()).filter_map(|i| scores[i].map(|r| (i, r)));
    let most = there().map(|(_, r)| r).fold(f64::NEG_INFINITY, f64::max);
    let least = there().map(|(_, r)| r).fold(f64::INFINITY, f64::min);
    let first = there().find(|(_, r)| *r == most).map(|(i, _)| i);
    let last = there().rfind(|(_, r)| *r == least).map(|(i, _)| i);
    let others = (there().count().max(2) - 1) as f64;
    let share = |i: usize, r: f64| match choice {
        Filtration::BestOfN {} => f64::from(u8::from(Some(i) == first)),
        Filtration::BestRandom {} if Some(i) == first => 1.0,
        Filtration::BestRandom {} => 1.0 / others,
        Filtration::BestWorst {} => f64::from(u8::from([first, last].contains(&Some(i)))),
        Filtration::MaxMin {} => f64::from(u8::from(r == most || r == least)),
        Filtration::MaxRandom {} if r == most => 0.4,
        Filtration::MaxRandom {} => 0.1,
        Filtration::Power { power } => r.abs().powi(power as i32),
    };
    let mut out = vec![0.0; scores.len()];
    there().for_each(|(i, r)| out[i] = share(i, r));
    if out.iter().all(|p| *p == 0.0) {
        there().for_each(|(i, _)| out[i] = 1.0);
    }
    let whole: f64 = out.iter().sum();
    out.iter().map(|p| if whole == 0.0 { 0.0 } else { p / whole }).collect()
}

/// XRPO-style novelty, or ACE.
fn sharpened(
    recipe: &Recipe,
    batch: &Batch,
    rollouts: &Rollouts<'_>,
    raw: &[Option<f64>],
    advantage: &mut [f64],
) {
    let Some(choice) = recipe.reward.sharpen else { return };
    let (old, reference) = (wide(rollouts.logp_old), wide(rollouts.logp_ref));
    let per_token = match choice {
        SharpenChoice::Xrpo { .. } => true,
        SharpenChoice::Ace { per_token, .. } => per_token,
    };
    let sums = match choice {
        SharpenChoice::Xrpo { .. } => batch.sums(|i| old[i]),
        SharpenChoice::Ace { .. } => batch.sums(|i| old[i] - reference[i]),
    };
    let by = |s: usize| if per_token { batch.length(s).max(1) as f64 } else { 1.0 };
    let x: Vec<f64> = sums.iter().enumerate().map(|(s, sum)| sum / by(s)).collect();
    for members in &batch.groups {
        let counted: Vec<usize> = members.clone().filter(|s| raw[*s].is_some()).collect();
        let mean = counted.iter().map(|s| x[*s]).sum::<f64>() / counted.len() as f64;
        for s in members.clone() {
            let Some(reward) = raw[s] else { continue };
            let a = advantage[s];
            advantage[s] = match choice {
                SharpenChoice::Xrpo { lambda, kappa } if reward > f64::from(recipe.reward.threshold) => {
                    sharpen::novelty(a, x[s], mean, lambda, kappa)
                }
                SharpenChoice::Ace { alpha, cap, relu, .. } if a < 0.0 => {
                    a * sharpen::factor(x[s], alpha, cap, relu)
                }
                _ => a,
            };
        }
    }
}

/// Which sequences are kept.
pub(super) fn kept(choice: FilterChoice, batch: &Batch, metric: &[Option<f64>]) -> Vec<bool> {
    let mut keep = vec![false; metric.len()];
    for members in &batch.groups {
        let x: Vec<f64> = metric[members.clone()].iter().flatten().copied().collect();
        let whole = match choice {
            FilterChoice::Varied {} if x.is_empty() => members.len() <= 1,
            FilterChoice::Varied {} => x.len() == 1 || !filter::is_constant(&x),
            FilterChoice::Spread { eta } => !x.is_empty() && filter::std(&x) > eta,
            FilterChoice::SolveRate { threshold, limit } => {
                !x.is_empty() && filter::fraction(&x, |x| x > threshold) < limit
            }
            FilterChoice::Balanced { tau } => {
                !x.is_empty() && x.iter().sum::<f64>().abs() / x.len() as f64 <= tau
            }
            _ => true,
        };
        for s in members.clone() {
            keep[s] = whole
                && match choice {
                    FilterChoice::Equal { value } => metric[s] == Some(value),
                    FilterChoice::NonzeroAdvantage {} => metric[s].is_some_and(|a| a != 0.0),
                    FilterChoice::AtMostTokens { limit } => metric[s].is_some_and(|n| n <= f64::from(limit)),
                    _ => true,
                };
        }
    }
    keep
}
