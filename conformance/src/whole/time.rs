//! Advantages for rewards placed in time: docs/maths/correction.md, docs/maths/advantages.md,
//! docs/maths/rewards.md.

use super::advantage::{Estimate, group, whiten};
use super::{Batch, spans, wide};
use crate::oracle::baseline::{Baseline, Scale};
use crate::oracle::moments::Moments;
use crate::oracle::optimal_token_baseline::{self as optimal, Token};
use crate::oracle::{discounted_return, gae, step_return, vtrace};
use lockstep::Rollouts;
use lockstep::recipe::{NormSet, Recipe, TimeChoice};
use std::ops::Range;

fn discounted(batch: &Batch, rewards: &[f64], gamma: f64) -> Vec<f64> {
    let row = |span: &Range<usize>| {
        discounted_return::row(&rewards[span.clone()], &batch.live[span.clone()], gamma)
    };
    batch.sequences.iter().flat_map(row).map(|(g, _)| g).collect()
}

/// Whitens over the live tokens if the recipe or its estimator asks for it.
fn over_tokens(recipe: &Recipe, batch: &Batch, advantage: Vec<f64>) -> Vec<f64> {
    let Some(choice) = super::advantage::whitening(recipe) else { return advantage };
    let values: Vec<Option<f64>> =
        (0..advantage.len()).map(|i| batch.live[i].then_some(advantage[i])).collect();
    whiten(choice, &values, &vec![1; values.len()])
}

/// REINFORCE++.
pub(super) fn returns(recipe: &Recipe, batch: &Batch, rewards: &[f64]) -> Estimate {
    let returns = discounted(batch, rewards, recipe.advantage.gamma.unwrap_or(1.0));
    let advantage = over_tokens(recipe, batch, returns.clone());
    Estimate { advantage, per_token: true, returns, ..Estimate::default() }
}

/// ReMax on token rewards.
pub(super) fn remax(recipe: &Recipe, batch: &Batch, rewards: &[f64], greedy: &[f64]) -> Estimate {
    let returns = discounted(batch, rewards, 1.0);
    let limit = recipe.advantage.limit.unwrap_or(f64::INFINITY);
    let mut advantage = vec![0.0; returns.len()];
    for (g, group) in batch.groups.iter().enumerate() {
        for i in group.clone().flat_map(|s| batch.of_sequence(s)) {
            advantage[i] = (returns[i] - greedy[g]).clamp(-limit, limit);
        }
    }
    Estimate {
        advantage: over_tokens(recipe, batch, advantage),
        per_token: true,
        returns,
        ..Estimate::default()
    }
}

/// Writes each span's value to its live tokens.
fn spread(batch: &Batch, spans: &[Range<usize>], values: &[f64]) -> Vec<f64> {
    let mut out = vec![0.0; batch.live.len()];
    for (span, value) in spans.iter().zip(values) {
        span.clone().filter(|i| batch.live[*i]).for_each(|i| out[i] = *value);
    }
    out
}

pub(super) fn estimate(
    recipe: &Recipe,
    batch: &Batch,
    rollouts: &Rollouts<'_>,
    (rewards, weights): (&[f64], Option<&[f64]>),
    choice: TimeChoice,
) -> Estimate {
    let (values, old) = (wide(rollouts.values_old), wide(rollouts.logp_old));
    let behind = |s: usize| match (rollouts.truncated, rollouts.bootstrap) {
        (Some(truncated), Some(bootstrap)) if truncated[s] != 0 => f64::from(bootstrap[s]),
        _ => 0.0,
    };
    let each = |row: &dyn Fn(usize, Range<usize>) -> Vec<[f64; 2]>| -> [Vec<f64>; 2] {
        let rows = batch.sequences.iter().enumerate().flat_map(|(s, span)| row(s, span.clone()));
        let rows: Vec<[f64; 2]> = rows.collect();
        [0, 1].map(|k| rows.iter().map(|pair| pair[k]).collect())
    };
    let [mut advantage, returns] = match choice {
        TimeChoice::Gae { gamma, lambda, lambda_critic, length_alpha } => each(&|s, span| {
            let own =
                length_alpha.map_or(lambda, |alpha| gae::length_adaptive_lambda(alpha, batch.length(s)));
            let of = |lambda| {
                let (r, v, live) = (&rewards[span.clone()], &values[span.clone()], &batch.live[span.clone()]);
                gae::row(r, v, live, behind(s), gamma, lambda)
            };
            let critic = of(lambda_critic.unwrap_or(own));
            of(own).iter().zip(critic).map(|(policy, critic)| [policy.advantage, critic.returns]).collect()
        }),
        TimeChoice::Vtrace { gamma, lambda, rho_bar, rho_pg, c_bar } => {
            let rollout = wide(rollouts.logp_rollout);
            let constants = vtrace::Constants { gamma, lambda, rho_bar, rho_pg, c_bar };
            each(&|s, span| {
                let d: Vec<f64> = span.clone().map(|i| old[i] - rollout[i]).collect();
                let (r, v, live) = (&rewards[span.clone()], &values[span.clone()], &batch.live[span.clone()]);
                let rows = vtrace::row(&d, r, v, live, behind(s), &constants);
                rows.iter().map(|traced| [traced.advantage, traced.vs]).collect()
            })
        }
        TimeChoice::Mars { gamma, set } => mars(recipe, batch, rollouts, gamma, set),
        TimeChoice::UiS1 { gamma, include_first_mismatch, omega } => {
            ui_s1(recipe, batch, rollouts, gamma, include_first_mismatch, omega)
        }
        TimeChoice::OptimalTokenBaseline { gamma, lone_tail_is_raw } => {
            let returns = discounted(batch, rewards, gamma);
            let squares = wide(rollouts.sum_p_squared);
            let norm: Vec<f64> = match rollouts.score_norm {
                Some(norm) => wide(Some(norm)),
                None => (0..squares.len()).map(|i| 1.0 - 2.0 * old[i].exp() + squares[i]).collect(),
            };
            let tokens = |s: usize| {
                let mut running = 0.0;
                let token = |i: usize| {
                    let w = weights.map_or(1.0, |w| w[i]);
                    running += if batch.live[i] { norm[i] * w * w } else { 0.0 };
                    Token { live: batch.live[i], returns: returns[i], weight: running }
                };
                batch.sequences[s].clone().map(token).collect::<Vec<_>>()
            };
            let of_group = |group: &Range<usize>| {
                let sequences: Vec<Vec<Token>> = group.clone().map(tokens).collect();
                optimal::group(&sequences, 1e-8, lone_tail_is_raw).concat()
            };
            [batch.groups.iter().flat_map(of_group).map(|(a, _)| a).collect(), returns]
        }
        TimeChoice::SignedReturn { gamma, correct, wrong, offset, stop_at_mask } => {
            let outcomes = wide(rollouts.rewards);
            each(&|s, span| {
                let (live, reward) = (&batch.live[span.clone()], outcomes[s]);
                let last = live.iter().rposition(|live| *live).unwrap_or(0);
                let one = |t: usize| {
                    if !live[t] || reward.is_nan() {
                        return [0.0; 2];
                    }
                    let behind = live[t..=last].iter().filter(|live| **live).count() - 1;
                    let cut = stop_at_mask && behind < last - t;
                    let own = if cut { 0.0 } else { reward * gamma.powi(behind as i32) };
                    let sign = if reward == 1.0 { correct * own } else { own };
                    [sign + if reward == 0.0 { wrong } else { 0.0 } + offset, own]
                };
                (0..live.len()).map(one).collect()
            })
        }
    };
    if recipe.advantage.whiten.is_some() {
        advantage = over_tokens(recipe, batch, advantage);
    }
    let limit = recipe.advantage.limit.unwrap_or(f64::INFINITY);
    advantage.iter_mut().for_each(|a| *a = a.clamp(-limit, limit));
    Estimate { advantage, per_token: true, returns, ..Estimate::default() }
}

fn mars(recipe: &Recipe, batch: &Batch, rollouts: &Rollouts<'_>, gamma: f64, set: NormSet) -> [Vec<f64>; 2] {
    let (turns, mut returns) = (spans(rollouts.cu_turns), wide(rollouts.turn_rewards));
    let roles = rollouts.turn_roles.unwrap_or_default();
    for k in (0..turns.len().saturating_sub(1)).rev() {
        let last = batch.sequences.iter().any(|span| span.end == turns[k].end);
        returns[k] += if last { 0.0 } else { gamma * returns[k + 1] };
    }
    // The returns are a column and hence binary32. Compared as binary64, sums that differ only in rounding
    // order would be two values of a set.
    returns.iter_mut().for_each(|value| *value = f64::from(*value as f32));
    let normalised = |k: usize| {
        let own: Vec<f64> = (0..turns.len()).filter(|j| roles[*j] == roles[k]).map(|j| returns[j]).collect();
        let mut values = own;
        if set != NormSet::Samples {
            values.extend((set == NormSet::UniqueValuesAndZero).then_some(0.0));
            values.sort_by(f64::total_cmp);
            values.dedup();
        }
        let moments = Moments::of(&values);
        let std = moments.variance(1.0).sqrt() + recipe.advantage.eps;
        match (moments.low == moments.high, recipe.advantage.norm_by_std) {
            (true, _) => 0.0,
            (_, true) => (returns[k] - moments.mean) / std,
            (_, false) => returns[k] - moments.mean,
        }
    };
    let advantage: Vec<f64> = (0..turns.len()).map(normalised).collect();
    [spread(batch, &turns, &advantage), spread(batch, &turns, &returns)]
}

fn ui_s1(
    recipe: &Recipe,
    batch: &Batch,
    rollouts: &Rollouts<'_>,
    gamma: f64,
    include: bool,
    omega: f64,
) -> [Vec<f64>; 2] {
    let (rewards, steps) = (wide(rollouts.step_rewards), spans(rollouts.cu_steps));
    let ok: Vec<bool> = rollouts.step_matches.unwrap_or_default().iter().map(|ok| *ok != 0).collect();
    let of = if include { step_return::paper } else { step_return::code };
    let returns: Vec<f64> =
        steps.iter().flat_map(|span| of(&rewards[span.clone()], &ok[span.clone()], gamma)).collect();
    let scale = match recipe.advantage.norm_by_std {
        true => Scale::Std { ddof: 1.0, eps: recipe.advantage.eps },
        false => Scale::None { ddof: 1.0 },
    };
    let against = |values: &[f64], raw| {
        let values: Vec<Option<f64>> = values.iter().map(|x| (!x.is_nan()).then_some(*x)).collect();
        group(Baseline::Mean, scale, [f64::INFINITY, 0.0], &values, &vec![1.0; values.len()], 0.0, raw)
            .advantage
    };
    let episodes = wide(rollouts.rewards);
    let mut advantage = vec![0.0; returns.len()];
    for members in &batch.groups {
        let episode = against(&episodes[members.clone()], true);
        let longest = members.clone().map(|s| steps[s].len()).max().unwrap_or(0);
        for t in 0..longest {
            let here: Vec<usize> = members.clone().filter(|s| t < steps[*s].len()).collect();
            let values: Vec<f64> = here.iter().map(|s| returns[steps[*s].start + t]).collect();
            for (s, own) in here.iter().zip(against(&values, false)) {
                advantage[steps[*s].start + t] = episode[s - members.start] + omega * own;
            }
        }
    }
    let tokens = spans(rollouts.cu_step_tokens);
    [spread(batch, &tokens, &advantage), spread(batch, &tokens, &returns)]
}
