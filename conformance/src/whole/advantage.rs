//! Estimators for outcome rewards: docs/maths/statistics.md, docs/maths/correction.md, docs/maths/trees.md,
//! docs/maths/advantages.md, docs/maths/rewards.md.

use super::reward::Seen;
use super::{Batch, wide};
use crate::oracle::aggregate::exact_sum;
use crate::oracle::baseline::{Baseline, Group, Member, Scale, group as of_members};
use crate::oracle::moments::Moments;
use crate::oracle::whiten::{Divisor, divisor};
use crate::oracle::{combine, pass_at_k, role_baseline, tree_advantage};
use lockstep::Rollouts;
use lockstep::recipe::{
    AdvantageEstimator as Estimator, Recipe, RobustChoice, RoleOrder, SingletonChoice, WhitenChoice,
};

/// The result of an estimator.
#[derive(Clone, Debug, Default)]
pub(super) struct Estimate {
    pub(super) advantage: Vec<f64>,
    pub(super) per_token: bool,
    pub(super) returns: Vec<f64>,
    pub(super) role_values: Vec<f64>,
}

/// A recipe's whitening: its own, or that of GDPO and REINFORCE++.
pub(super) fn whitening(recipe: &Recipe) -> Option<WhitenChoice> {
    let own = [Estimator::ReinforcePlusPlus, Estimator::ReinforcePlusPlusBaseline, Estimator::Gdpo];
    let own = recipe.advantage.over_time.is_none() && own.contains(&recipe.advantage.estimator);
    let whiten = recipe.advantage.whiten.or(own.then_some(WhitenChoice::Verl));
    whiten.filter(|choice| *choice != WhitenChoice::None)
}

fn over_sequences(choice: WhitenChoice) -> bool {
    matches!(choice, WhitenChoice::Trl | WhitenChoice::Mssr | WhitenChoice::NemoGdpo)
}

/// Centres and scales values by the moments of those present, each counted as often as `times` says; the
/// others become 0.
pub(super) fn whiten(choice: WhitenChoice, values: &[Option<f64>], times: &[usize]) -> Vec<f64> {
    let (kind, ddof, eps) = match choice {
        WhitenChoice::None => (Divisor::One, 0.0, 0.0),
        WhitenChoice::Verl => (Divisor::Inside, 1.0, 1e-8),
        WhitenChoice::Nemo => (Divisor::Floor, 0.0, 1e-8),
        WhitenChoice::Trl => (Divisor::Outside, 1.0, 1e-4),
        WhitenChoice::Mssr => (Divisor::Floor, 0.0, 1e-6),
        WhitenChoice::Areal => (Divisor::Outside, 1.0, 1e-5),
        WhitenChoice::NemoGdpo => (Divisor::Outside, 1.0, 0.0),
    };
    let counted = values.iter().zip(times);
    let all: Vec<f64> = counted.flat_map(|(x, n)| std::iter::repeat_n(*x, *n).flatten()).collect();
    let moments = Moments::of(&all);
    let by = divisor(kind, moments.variance(ddof), eps);
    let one = |x: &Option<f64>| {
        x.map_or(0.0, |x| crate::oracle::whiten::whiten(x, moments.mean, by, moments.low < moments.high))
    };
    values.iter().map(one).collect()
}

/// The advantages of one group of counted values.
pub(super) fn group(
    baseline: Baseline,
    scale: Scale,
    limits: [f64; 2],
    values: &[Option<f64>],
    weights: &[f64],
    given: f64,
    raw: bool,
) -> Group {
    let member = |(x, w): (&Option<f64>, &f64)| x.map(|reward| Member { reward, weight: *w });
    let members: Vec<Option<Member>> = values.iter().zip(weights).map(member).collect();
    of_members(baseline, scale, limits, &members, given, raw)
}

/// Advantages of sequences, and each group's deviation.
pub(super) fn outcome(
    recipe: &Recipe,
    [batch, seen]: [&Batch; 2],
    rollouts: &Rollouts<'_>,
    input: &Seen,
) -> (Estimate, Vec<f64>) {
    let own = &recipe.advantage;
    let scores = input.scores();
    let mut out = Estimate { advantage: vec![0.0; scores.len()], ..Estimate::default() };
    let mut spread = Vec::new();
    match own.estimator {
        Estimator::PassAtK => {
            for members in &batch.groups {
                let right = |s: usize| scores[s].map(|r| r > f64::from(recipe.reward.threshold));
                let count = |is: bool| members.clone().filter(|s| right(*s) == Some(is)).count();
                let both = pass_at_k::group(count(true), count(false), own.k.unwrap_or(4), own.eps);
                let (_, positive, negative) = both.unwrap_or_default();
                for s in members.clone() {
                    out.advantage[s] = right(s).map_or(0.0, |right| if right { positive } else { negative });
                }
            }
        }
        Estimator::Gdpo => {
            let (all, kinds) = (wide(rollouts.reward_components), wide(rollouts.reward_weights));
            let normalised: Vec<Vec<Option<f64>>> = (0..kinds.len())
                .map(|k| {
                    let own = &all[k * scores.len()..][..scores.len()];
                    let one = |s: usize| (input.valid[s] && !own[s].is_nan()).then_some(own[s]);
                    let values: Vec<Option<f64>> = (0..scores.len()).map(one).collect();
                    let (advantage, _) = groups(recipe, batch, rollouts, &values);
                    values.iter().zip(advantage).map(|(x, a)| x.map(|_| a)).collect()
                })
                .collect();
            let sum = |s: usize| {
                let parts: Vec<f64> = normalised.iter().map(|own| own[s].unwrap_or(f64::NAN)).collect();
                let sum = combine::sum(&parts, &kinds).0;
                (!sum.is_nan()).then_some(sum)
            };
            let sums: Vec<Option<f64>> = (0..scores.len()).map(sum).collect();
            out.advantage = whitened(recipe, seen, &sums);
        }
        Estimator::RoleBaseline => {
            let roles = rollouts.roles.unwrap_or_default();
            let known = roles.iter().max().map_or(0, |last| *last as usize + 1);
            let start = rollouts.role_values.map_or(vec![0.0; known], <[f64]>::to_vec);
            let first = own.role_order != Some(RoleOrder::UpdateThenSubtract);
            for (role, start) in start.into_iter().enumerate() {
                let games: Vec<usize> = (0..scores.len()).filter(|s| roles[*s] as usize == role).collect();
                let rewards: Vec<Option<f64>> = games.iter().map(|s| scores[*s]).collect();
                let (advantage, (state, _)) =
                    role_baseline::role(&rewards, own.decay.unwrap_or(0.95), start, first);
                games.iter().zip(advantage).for_each(|(s, (a, _))| out.advantage[*s] = a);
                out.role_values.push(state);
            }
        }
        Estimator::Tempo => {
            let (advantage, deviations) = groups(recipe, batch, rollouts, &scores);
            out.advantage = tree(recipe, batch, rollouts, &scores, (&advantage, &deviations));
            (out.per_token, spread) = (true, deviations);
        }
        _ => {
            let (advantage, deviations) = groups(recipe, batch, rollouts, &scores);
            spread = deviations;
            let values: Vec<Option<f64>> =
                scores.iter().zip(&advantage).map(|(r, a)| r.map(|_| *a)).collect();
            let alone = values.iter().flatten().count() == 1;
            out.advantage = match whitening(recipe) {
                Some(WhitenChoice::Mssr) if alone => advantage,
                Some(_) => whitened(recipe, seen, &values),
                None => advantage,
            };
        }
    }
    (out, spread)
}

/// Whitens over the tokens that the loss sees, or over sequences.
fn whitened(recipe: &Recipe, seen: &Batch, values: &[Option<f64>]) -> Vec<f64> {
    let Some(choice) = whitening(recipe) else { return values.iter().map(|x| x.unwrap_or(0.0)).collect() };
    let times = |s| if over_sequences(choice) { 1 } else { seen.length(s) };
    whiten(choice, values, &(0..values.len()).map(times).collect::<Vec<_>>())
}

/// Advantages within groups, and each group's deviation.
fn groups(
    recipe: &Recipe,
    batch: &Batch,
    rollouts: &Rollouts<'_>,
    scores: &[Option<f64>],
) -> (Vec<f64>, Vec<f64>) {
    let own = &recipe.advantage;
    let (ddof, eps) = (f64::from(own.ddof), own.eps);
    let counted: Vec<f64> = scores.iter().flatten().copied().collect();
    let none = Scale::None { ddof };
    let by_std = |scale| if own.norm_by_std { scale } else { none };
    let std = by_std(Scale::Std { ddof, eps });
    let of_others = (Baseline::LeaveOneOut, by_std(Scale::LeaveOneOutStd { ddof, eps }));
    let (baseline, scale) = match own.estimator {
        Estimator::Gdpo if own.leave_one_out == Some(true) => of_others,
        Estimator::Grpo | Estimator::Tempo | Estimator::Gdpo => (Baseline::Mean, std),
        Estimator::GrpoBatch => {
            let std = Moments::of(&counted).variance(ddof).sqrt();
            (Baseline::Mean, by_std(Scale::Batch { std, eps }))
        }
        Estimator::GrpoLeaveOneOut => of_others,
        Estimator::Rloo => (Baseline::LeaveOneOut, none),
        Estimator::Opo => (Baseline::Weighted { eps: 0.0 }, none),
        Estimator::Gpg => {
            let nonzero = counted.iter().filter(|r| **r != 0.0).count().max(1) as f64;
            let of = own.f_norm.unwrap_or(1.0) * nonzero / counted.len().max(1) as f64;
            (Baseline::Mean, Scale::Fraction { of })
        }
        Estimator::PassK => (Baseline::Second, std),
        Estimator::McGrpo => (Baseline::Median, Scale::Mad { floor: own.mad_floor.unwrap_or(1e-3) }),
        Estimator::MaxRl => (Baseline::Mean, Scale::Mean { eps }),
        Estimator::Vcpo if own.robust.is_some() => (Baseline::Given, std),
        Estimator::Vcpo => (Baseline::Weighted { eps: 1e-8 }, std),
        Estimator::V05 => {
            let (tau2, laplace) = (own.tau2.unwrap_or(0.0), own.laplace.unwrap_or(false));
            (Baseline::Shrunk { tau2, laplace }, none)
        }
        Estimator::ReMax | Estimator::Reward => (Baseline::Given, none),
        Estimator::ReinforcePlusPlus
        | Estimator::ReinforcePlusPlusBaseline
        | Estimator::RoleBaseline
        | Estimator::PassAtK => (Baseline::Mean, none),
    };
    let weights: Vec<f64> = match own.estimator {
        Estimator::Opo => (0..scores.len()).map(|s| batch.length(s) as f64).collect(),
        Estimator::Vcpo => wide(rollouts.baseline_weights),
        _ => vec![1.0; scores.len()],
    };
    let baselines = wide(rollouts.baseline);
    let limits = [own.limit.unwrap_or(f64::INFINITY), own.least_std.unwrap_or(0.0)];
    let raw = own.singleton == SingletonChoice::RawReward;
    let (mut advantage, mut spread) = (Vec::new(), Vec::new());
    for (g, members) in batch.groups.iter().enumerate() {
        let (values, weights) = (&scores[members.clone()], &weights[members.clone()]);
        let given = match own.estimator {
            Estimator::Reward => 0.0,
            Estimator::Vcpo => own.robust.map_or(0.0, |rule| {
                robust(rule, own.winsor_share.unwrap_or(0.05), values, weights, own.singleton)
            }),
            _ => baselines.get(g).copied().unwrap_or(0.0),
        };
        let out = group(baseline, scale, limits, values, weights, given, raw);
        let nonzero = out.advantage.iter().filter(|a| **a != 0.0).count();
        let factor = match own.over_nonzero {
            Some(true) if nonzero > 0 => members.len() as f64 / nonzero as f64,
            _ => 1.0,
        };
        advantage.extend(out.advantage.iter().map(|a| a * factor));
        spread.push(out.spread);
    }
    (advantage, spread)
}

/// VCPO's weighted median, or its weighted mean between two quantiles; a lone member gets 0 or its reward.
fn robust(
    rule: RobustChoice,
    share: f64,
    values: &[Option<f64>],
    weights: &[f64],
    singleton: SingletonChoice,
) -> f64 {
    let mut pairs: Vec<(f64, f64)> =
        values.iter().zip(weights).filter_map(|(r, w)| r.map(|r| (r, *w))).collect();
    pairs.sort_by(|a, b| a.0.total_cmp(&b.0));
    let whole = exact_sum(pairs.iter().map(|(_, w)| *w));
    match &pairs[..] {
        _ if whole == 0.0 => return 0.0,
        [(reward, _)] => return if singleton == SingletonChoice::RawReward { 0.0 } else { *reward },
        _ => {}
    }
    let quantile = |share: f64| {
        let reached = |k: &usize| exact_sum(pairs[..=*k].iter().map(|(_, w)| *w)) >= share * whole;
        let found = (0..pairs.len()).find(|k| pairs[*k].1 > 0.0 && reached(k));
        pairs[found.unwrap_or(pairs.len() - 1)].0
    };
    match rule {
        RobustChoice::Median => quantile(0.5),
        RobustChoice::Winsorised => {
            let (low, high) = (quantile(share), quantile(1.0 - share));
            exact_sum(pairs.iter().map(|(r, w)| w * r.clamp(low, high))) / (whole + 1e-8)
        }
    }
}

/// TEMPO: the group's advantage, corrected where responses diverge.
fn tree(
    recipe: &Recipe,
    batch: &Batch,
    rollouts: &Rollouts<'_>,
    scores: &[Option<f64>],
    (advantage, spread): (&[f64], &[f64]),
) -> Vec<f64> {
    let own = &recipe.advantage;
    let tokens = rollouts.tokens.unwrap_or_default();
    let weights = rollouts.outcome_weights.map_or(vec![1.0; scores.len()], |w| wide(Some(w)));
    let mut out = vec![0.0; batch.live.len()];
    for (g, members) in batch.groups.iter().enumerate() {
        let responses: Vec<Vec<u32>> =
            members.clone().map(|s| tokens[batch.sequences[s].clone()].to_vec()).collect();
        let rewards: Vec<f64> = members.clone().map(|s| scores[s].unwrap_or(f64::NAN)).collect();
        let corrections =
            tree_advantage::corrections(&responses, &rewards, &weights[members.clone()], own.pad_id);
        let by = if own.norm_by_std && spread[g] > 0.0 { spread[g] + own.eps } else { 1.0 };
        for (s, row) in members.clone().zip(corrections).filter(|(s, _)| scores[*s].is_some()) {
            let span = batch.sequences[s].clone();
            let first_masked = span.clone().find(|i| !batch.live[*i]).unwrap_or(span.end);
            for (i, (correction, _)) in span.zip(row).filter(|(i, _)| batch.live[*i]) {
                let plain = own.stop_at_mask == Some(true) && i > first_masked;
                out[i] = advantage[s] + if plain { 0.0 } else { correction / by };
            }
        }
    }
    out
}
