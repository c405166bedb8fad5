//! Gradients of every gate against its surrogate objective, written out from the papers with explicit
//! stop-gradients and differentiated numerically. Nothing here is shared with the oracle.
//!
//! A surrogate gets each log-probability twice: `x`, which is differentiated, and `s` = sg[x], which is not.

use crate::prelude::*;
use lockstep::core::gate::Divergence;
use lockstep::core::policy_loss::gmpo::Mean;
use lockstep::recipe::{Against, Aggregation, GmpoBounds, MaskChoice, RatioGradient, RatioLevel};
use std::collections::HashSet;

/// One sequence; every token is live.
struct Sequence {
    advantage: f64,
    s: Vec<f64>,
    old: Vec<f64>,
    rollout: Vec<f64>,
    latest: Vec<f64>,
    divergence: Vec<f64>,
    log_ratio: Vec<f64>,
}

fn clip(x: f64, low: f64, high: f64) -> f64 {
    x.max(low).min(high)
}

/// The importance ratio of token `t`.
fn ratio(recipe: &Recipe, of: &Sequence, x: &[f64], t: usize) -> f64 {
    // On policy, the old log-probabilities are the frozen ones.
    let d = |i: usize| if recipe.ratio.on_policy { 0.0 } else { of.s[i] - of.old[i] };
    let bound = f64::from(recipe.ratio.guard_bound);
    let guarded = |frozen: f64, moved: f64| match recipe.ratio.guard {
        GuardChoice::None => frozen + moved,
        GuardChoice::Clamp => clip(frozen + moved, -bound, bound),
        GuardChoice::StraightThrough => clip(frozen, -bound, bound) + moved,
    };
    let moved = x[t] - of.s[t];
    match recipe.ratio.level {
        RatioLevel::Token => guarded(d(t), moved).exp(),
        RatioLevel::Given => guarded(of.log_ratio[t], moved).exp(),
        RatioLevel::MinPrefix => guarded((0..t).map(d).fold(0.0, f64::min) + d(t), moved).exp(),
        // GSPO: the mean of all log-ratios; GSPO-token: s_i · exp(x − sg[x]).
        // A sequence whose tokens are all live is one segment.
        RatioLevel::Sequence | RatioLevel::Segment => {
            let whole = recipe.ratio.gradient == RatioGradient::Mean;
            let live = |i: usize| if whole { x[i] - of.s[i] } else { 0.0 };
            let mean = (0..x.len()).map(|i| d(i) + live(i)).sum::<f64>() / x.len() as f64;
            let most = recipe.ratio.log_max.map_or(f64::INFINITY, f64::from);
            if mean > most { most.exp() } else { (mean + if whole { 0.0 } else { moved }).exp() }
        }
        RatioLevel::Product => (0..x.len()).map(|i| d(i) + x[i] - of.s[i]).sum::<f64>().exp(),
    }
}

/// The clipped surrogate of PPO: max(−A r, −A clip(r, low, high)).
fn clipped(a: f64, r: f64, low: f64, high: f64) -> f64 {
    (-a * r).max(-a * clip(r, low, high))
}

/// KL(Bernoulli(q) ‖ Bernoulli(p)).
fn binary_kl(logp: f64, old: f64) -> f64 {
    let (p, q) = (logp.exp(), old.exp());
    q * (old - logp) + (1.0 - q) * ((1.0 - q + 1e-8) / (1.0 - p + 1e-8)).ln()
}

/// Σ of the surrogate over the tokens of a sequence, with x in place of the live log-probabilities.
fn surrogate(recipe: &Recipe, of: &Sequence, x: &[f64]) -> f64 {
    let a = of.advantage;
    if let GateChoice::Gmpo { clip_log_low, clip_log_high, bounds, mean } = recipe.gate {
        // Clipped on the side to which A pushes.
        let [low, high] = match bounds {
            GmpoBounds::Log => [-f64::from(clip_log_low), f64::from(clip_log_high)],
            GmpoBounds::Ratio => {
                [(1.0 - f64::from(clip_log_low)).ln(), (1.0 + f64::from(clip_log_high)).ln()]
            }
        };
        let clip = |d: f64| if a > 0.0 { d.min(high) } else { d.max(low) };
        let (n, d) = (x.len() as f64, |t: usize| x[t] - of.old[t]);
        let sum = |f: &dyn Fn(f64) -> f64| (0..x.len()).map(|t| f(d(t))).sum::<f64>();
        return -a
            * match mean {
                Mean::Geometric => (sum(&clip) / n).exp(),
                Mean::ClippedSum => (clip(sum(&|d| d)) / n).exp(),
                Mean::Product => sum(&clip).exp(),
                Mean::Harmonic => n / sum(&|d| (-clip(d)).exp()),
            };
    }
    let weight_of_sequence = match recipe.gate {
        GateChoice::Vespo { k_pos, lambda_pos, k_neg, lambda_neg, against, lambda_floor } => {
            let other = if against == Against::Old { &of.old } else { &of.rollout };
            let log_w: f64 = of.s.iter().zip(other).map(|(s, o)| s - o).sum();
            let (k, lambda) = if a > 0.0 { (k_pos, lambda_pos) } else { (k_neg, lambda_neg) };
            let lambda = f64::from(lambda_floor.map_or(lambda, |floor| lambda.max(floor)));
            // W^k exp(λ (1 − W)).
            log_w.exp().powf(k.into()) * (lambda * (1.0 - log_w.exp())).exp()
        }
        GateChoice::Topr {} if a < 0.0 => {
            of.s.iter().zip(&of.rollout).map(|(s, o)| s - o).sum::<f64>().exp().min(1.0)
        }
        _ => 1.0,
    };
    let mut sum = 0.0;
    for t in 0..x.len() {
        let r = ratio(recipe, of, x, t);
        let still = ratio(recipe, of, &of.s, t);
        let (x, s, old, rollout) = (x[t], of.s[t], of.old[t], of.rollout[t]);
        let score = |weight: f64| -weight * a * x;
        sum += match recipe.gate {
            GateChoice::PpoClip { clip_ratio_low, clip_ratio_high, clip_ratio_c } => {
                let l = clipped(a, r, 1.0 - f64::from(clip_ratio_low), 1.0 + f64::from(clip_ratio_high));
                let dual = clip_ratio_c.filter(|_| a < 0.0).map_or(f64::INFINITY, |c| -a * f64::from(c));
                l.min(dual)
            }
            GateChoice::TwoSided { clip_ratio_low, clip_ratio_high, delta } => {
                // TRL: the unclipped term is bounded by delta.
                let clipped = clip(r, 1.0 - f64::from(clip_ratio_low), 1.0 + f64::from(clip_ratio_high));
                (-a * r.min(delta.into())).max(-a * clipped)
            }
            GateChoice::Sapo { tau_pos, tau_neg } => {
                let tau = f64::from(if a > 0.0 { tau_pos } else { tau_neg });
                -a * 4.0 / tau / (1.0 + (-tau * (r - 1.0)).exp())
            }
            GateChoice::Cispo { low, high } => score(clip(still, low.into(), high.into())),
            GateChoice::Reinforce {} => score(1.0),
            GateChoice::DppoTv { clip_ratio_low, clip_ratio_high, clip_ratio_c } => {
                let apart = s.exp() - old.exp();
                let refused =
                    if a > 0.0 { apart > clip_ratio_high.into() } else { -apart > clip_ratio_low.into() };
                score(if refused { 0.0 } else { still.min(clip_ratio_c.into()) })
            }
            GateChoice::DppoKl { clip_ratio_low, clip_ratio_high, clip_ratio_c } => {
                let (apart, bound) =
                    (binary_kl(s, old), if a > 0.0 { clip_ratio_high } else { clip_ratio_low });
                let refused = apart > bound.into() && (s - old) * a >= 0.0;
                score(if refused { 0.0 } else { still.min(clip_ratio_c.into()) })
            }
            GateChoice::TrustRegion { divergence, clip_ratio_low, clip_ratio_high, clip_ratio_c } => {
                let apart = match divergence {
                    Divergence::TotalVariation => (s.exp() - old.exp()).abs(),
                    Divergence::BinaryKl => binary_kl(s, old),
                    Divergence::Given => of.divergence[t],
                };
                let bound = if a > 0.0 { clip_ratio_high } else { clip_ratio_low };
                let refused = apart > bound.into() && (s - old) * a >= 0.0;
                let weight = if divergence == Divergence::Given { still } else { (s - rollout).exp() };
                score(if refused { 0.0 } else { weight.min(clip_ratio_c.into()) })
            }
            GateChoice::Minirl { clip_ratio_low, clip_ratio_high, clip_ratio_c } => {
                let high = a > 0.0 && still > 1.0 + f64::from(clip_ratio_high);
                let low = a < 0.0 && still < 1.0 - f64::from(clip_ratio_low);
                score(if high || low { 0.0 } else { (s - rollout).exp().min(clip_ratio_c.into()) })
            }
            GateChoice::Remix { clip_ratio_low, clip_ratio_high } => {
                let centre = (of.latest[t] - old).exp();
                clipped(a, r, centre - f64::from(clip_ratio_low), centre + f64::from(clip_ratio_high))
            }
            // Every token is selected: a term |x − old| each.
            GateChoice::KlCov { ppo_kl_coef, clip_ratio_low, clip_ratio_high, .. } => {
                let low = clip_ratio_low.map_or(0.0, |low| 1.0 - f64::from(low));
                let high = clip_ratio_high.map_or(f64::INFINITY, |high| 1.0 + f64::from(high));
                clipped(a, r, low, high) + f64::from(ppo_kl_coef) * (x - old).abs()
            }
            // No token is selected: PPO.
            GateChoice::ClipCov { clip_ratio_low, clip_ratio_high, .. } => {
                clipped(a, r, 1.0 - f64::from(clip_ratio_low), 1.0 + f64::from(clip_ratio_high))
            }
            GateChoice::Dro { beta } => score(1.0) + f64::from(beta) / 2.0 * (x - old) * (x - old),
            GateChoice::Vespo { .. } | GateChoice::Topr {} => score(weight_of_sequence),
            GateChoice::Gmpo { .. } => unreachable!("a mean over the sequence"),
        };
    }
    sum
}

/// Sequences whose ratios are on both sides of the clip ranges, deterministic.
fn sequences() -> Vec<Sequence> {
    let mut state = 20_261_125u64;
    let mut draw = |low: f64, high: f64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        // What the library gets is binary32.
        f64::from((low + (high - low) * (state >> 11) as f64 / (1u64 << 53) as f64) as f32)
    };
    let advantages = [1.25, -0.75, 0.5, -1.5, 2.0, -0.25, 0.875, -2.25];
    let sequence = |(n, advantage): (usize, f64)| {
        let old: Vec<f64> = (0..3 + n).map(|_| draw(-3.0, -0.75)).collect();
        let mut near = |width: f64| old.iter().map(|x| f64::from((x + draw(-width, width)) as f32)).collect();
        let (s, rollout, latest) = (near(0.5), near(0.25), near(0.3));
        let mut each = |low: f64, high: f64| old.iter().map(|_| draw(low, high)).collect();
        let (divergence, log_ratio) = (each(0.0, 0.4), each(-0.5, 0.5));
        Sequence { advantage, s, old, rollout, latest, divergence, log_ratio }
    };
    advantages.into_iter().enumerate().map(sequence).collect()
}

/// The recipe with its gate and ratio alone: what comes in front and is added is differentiated elsewhere.
fn bare(name: &str) -> Recipe {
    let named = Recipe::named(name).unwrap();
    let gate = match named.gate {
        GateChoice::KlCov { ppo_kl_coef, clip_ratio_low, clip_ratio_high, .. } => {
            GateChoice::KlCov { kl_cov_ratio: 1.0, ppo_kl_coef, clip_ratio_low, clip_ratio_high }
        }
        // A band that no covariance is in.
        GateChoice::ClipCov { clip_ratio_low, clip_ratio_high, clip_cov_ratio, .. } => {
            let (clip_cov_lb, clip_cov_ub) = (1e9, 2e9);
            GateChoice::ClipCov { clip_ratio_low, clip_ratio_high, clip_cov_ratio, clip_cov_lb, clip_cov_ub }
        }
        gate => gate,
    };
    // GMPO is a mean over sequences whatever the mode, and says so.
    let mode = match gate {
        GateChoice::Gmpo { .. } => AggregationMode::SeqMeanTokenMean,
        _ => AggregationMode::TokenSum,
    };
    let aggregation = Aggregation { mode, ..Aggregation::default() };
    let mask = MaskChoice::default();
    Recipe { gate, mask, aggregation, kl: None, correction: None, entropy: None, value: None, ..named }
}

/// dL/dlogp of the library, sequence by sequence.
fn coefficients(recipe: &Recipe, all: &[Sequence]) -> Vec<f32> {
    let join =
        |of: fn(&Sequence) -> &Vec<f64>| -> Vec<f32> { all.iter().flat_map(of).map(|x| *x as f32).collect() };
    let cu_seqlens = offsets_of(all.iter().map(|one| one.s.len() as u32));
    let cu_groups = [0, all.len() as u32];
    let (logp, old, rollout) = (join(|s| &s.s), join(|s| &s.old), join(|s| &s.rollout));
    let (latest, divergence, log_ratio) =
        (join(|s| &s.latest), join(|s| &s.divergence), join(|s| &s.log_ratio));
    let rollouts = Rollouts {
        logp: Some(&logp),
        logp_old: Some(&old),
        logp_rollout: Some(&rollout),
        logp_latest: Some(&latest),
        divergence: Some(&divergence),
        log_ratio: Some(&log_ratio),
        seed: Some(&[1]),
        ..Rollouts::new(&cu_seqlens, &cu_groups)
    };
    let credit = Credit::per_sequence(all.iter().map(|one| one.advantage as f32).collect());
    let mut out = Loss::default();
    recipe.loss_into(&Device::cpu(), &rollouts, &credit, Outputs::COEF, &mut out).unwrap();
    out.policy.coef
}

/// Tokens at which the library's coefficient is not the surrogate's slope, of those that were compared and
/// that have a slope.
fn differ(coef: &[f32], recipe: &Recipe, all: &[Sequence]) -> [usize; 3] {
    const H: f64 = 1e-6;
    let scale = if matches!(recipe.gate, GateChoice::Gmpo { .. }) { all.len() as f64 } else { 1.0 };
    let (mut wrong, mut compared, mut sloped, mut i) = (0, 0, 0, 0);
    for one in all {
        let still = surrogate(recipe, one, &one.s);
        for t in 0..one.s.len() {
            let moved = |by: f64| {
                let mut x = one.s.clone();
                x[t] += by;
                surrogate(recipe, one, &x)
            };
            let (up, down) = ((moved(H) - still) / H, (still - moved(-H)) / H);
            // A bound between the two: no slope.
            if (up - down).abs() < 1e-3 {
                let (slope, got) = ((up + down) / 2.0 / scale, f64::from(coef[i]));
                compared += 1;
                sloped += usize::from(slope.abs() > 1e-6);
                wrong += usize::from((slope - got).abs() > 2e-6 + 2e-5 * slope.abs());
            }
            i += 1;
        }
    }
    [wrong, compared, sloped]
}

#[test]
fn every_recipe_has_the_slope_of_its_surrogate() {
    let all = sequences();
    let (mut seen, mut gates) = (HashSet::new(), HashSet::new());
    for name in names() {
        let recipe = bare(name);
        if !seen.insert(format!("{:?} {:?}", recipe.gate, recipe.ratio)) {
            continue;
        }
        let coef = coefficients(&recipe, &all);
        let [wrong, compared, sloped] = differ(&coef, &recipe, &all);
        assert_eq!(wrong, 0, "{name}: of {compared} tokens, {:?} {:?}", recipe.gate, recipe.ratio);
        let enough = compared >= coef.len() - 3 && sloped >= 8;
        assert!(enough, "{name}: {compared} compared, {sloped} with a slope");
        gates.insert(std::mem::discriminant(&recipe.gate));
        // Another gate's surrogate is noticed; on policy, PPO's slope is REINFORCE's.
        let other = match recipe.gate {
            GateChoice::Reinforce {} => GateChoice::Sapo { tau_pos: 1.0, tau_neg: 1.05 },
            _ if recipe.ratio.on_policy => continue,
            _ => GateChoice::Reinforce {},
        };
        let [wrong, ..] = differ(&coef, &Recipe { gate: other, ..recipe }, &all);
        assert!(wrong > 0, "{name}: the slope of {other:?} would pass too");
    }
    assert!(seen.len() > 40 && gates.len() == 16, "{} combinations, {} gates", seen.len(), gates.len());
}
