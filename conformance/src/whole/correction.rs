//! Rollout correction, docs/maths/correction.md.

use super::Batch;
use crate::ops::same;
use crate::oracle::{normalize::normalize, weights};
use lockstep::recipe::{CorrectionChoice, K1Band, RejectChoice, WeightLevel, WeightRule};

/// Weights (0 where rejected), and the tokens that are kept.
pub(super) struct Correction {
    pub(super) weights: Vec<f64>,
    pub(super) kept: Vec<bool>,
}

pub(super) fn correct(choice: &CorrectionChoice, batch: &Batch, old: &[f64], rollout: &[f64]) -> Correction {
    let bound = choice.bound.map_or(f64::INFINITY, f64::from);
    let rule = same!(choice.rule, WeightRule => weights::Rule, Truncate Mask Plain);
    let passes = |reject: &RejectChoice, d: &[f64]| {
        let (name, on_rho) = (reject.statistic.name(), reject.band == K1Band::Rho);
        let [low, high] = weights::band(name, reject.low.map(f64::from), reject.high.into(), on_rho);
        (low..=high).contains(&weights::statistic(name, d, bound))
    };
    let (of_tokens, of_sequences): (Vec<&RejectChoice>, Vec<&RejectChoice>) =
        choice.reject.iter().partition(|reject| reject.statistic.name().starts_with("token"));
    let mut out = Correction { weights: vec![0.0; old.len()], kept: vec![false; old.len()] };
    // Sum and count for the normalising mean, taken before rejection.
    let (mut total, mut count) = (0.0, 0.0);
    for places in batch.rows() {
        let d: Vec<f64> = places.iter().map(|i| old[*i] - rollout[*i]).collect();
        let sum: f64 = d.iter().sum();
        let whole = of_sequences.iter().all(|reject| passes(reject, &d));
        for (i, d) in places.iter().zip(&d) {
            let log_rho = match choice.level {
                WeightLevel::One => 0.0,
                WeightLevel::Token => *d,
                WeightLevel::Sequence => sum,
                WeightLevel::Geometric => sum / places.len() as f64,
            };
            let rho = log_rho.clamp(-bound, bound).exp();
            let w = weights::weight(rho, rule, choice.low.map(f64::from), choice.high.into());
            let share = if choice.level == WeightLevel::Token { 1.0 } else { 1.0 / places.len() as f64 };
            (total, count) = (total + share * w, count + share);
            out.kept[*i] = whole && of_tokens.iter().all(|reject| passes(reject, &[*d]));
            out.weights[*i] = if out.kept[*i] { w } else { 0.0 };
        }
    }
    if let Some(threshold) = choice.m2_threshold {
        // Removes tokens one at a time, the largest first.
        let mut left: Vec<usize> = batch.rows().concat();
        let squared = |i: &usize| (old[*i] - rollout[*i]).powi(2);
        left.sort_by(|a, b| squared(a).total_cmp(&squared(b)).then(b.cmp(a)));
        while left.len() > 1 && left.iter().map(squared).sum::<f64>() / left.len() as f64 >= threshold {
            left.pop();
        }
        for i in (0..old.len()).filter(|i| !left.contains(i)) {
            (out.kept[i], out.weights[i]) = (false, 0.0);
        }
    }
    if choice.normalize {
        out.weights.iter_mut().for_each(|w| *w = normalize(*w, total, count));
    }
    out
}
