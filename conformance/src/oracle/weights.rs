//! Rollout-correction weights and rejection over a sequence's live log-ratios d: docs/maths/correction.md.

use super::mismatch::k3;

/// How ρ becomes the weight.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rule {
    /// Clamped to the band.
    Truncate,
    /// 0 outside the band.
    Mask,
    Plain,
}

/// The weight for ρ under a rule with an optional lower bound.
pub fn weight(rho: f64, rule: Rule, low: Option<f64>, high: f64) -> f64 {
    let low = low.unwrap_or(0.0);
    match rule {
        Rule::Plain => rho,
        Rule::Truncate => rho.clamp(low, high),
        Rule::Mask if (low..=high).contains(&rho) => rho,
        Rule::Mask => 0.0,
    }
}

/// k1, k2 or k3 of a token.
pub fn estimate(k: usize, d: f64, bound: f64) -> f64 {
    let x = d.clamp(-bound, bound);
    match k {
        1 => -x,
        2 => 0.5 * x * x,
        _ => k3(x),
    }
}

/// The mean or sum of p_old − p_rollout over a sequence's live tokens, or the difference of one token, from
/// log-probabilities.
pub fn difference(name: &str, logp: &[[f64; 2]]) -> f64 {
    let sum: f64 = logp.iter().map(|[old, rollout]| old.exp() - rollout.exp()).sum();
    if name.contains("mean") { sum / logp.len().max(1) as f64 } else { sum }
}

/// A statistic, by verl's name, over a sequence's live tokens; the largest k1 is that of the largest ρ.
pub fn statistic(name: &str, d: &[f64], bound: f64) -> f64 {
    let k = usize::from(name.as_bytes()[name.len() - 1] - b'0');
    let values = d.iter().map(|d| estimate(k, *d, bound));
    match name {
        _ if d.is_empty() => 0.0,
        _ if name.starts_with("seq_sum") => values.sum(),
        _ if name.starts_with("seq_mean") => values.sum::<f64>() / d.len() as f64,
        "seq_max_k1" => values.fold(f64::INFINITY, f64::min),
        _ => values.fold(f64::NEG_INFINITY, f64::max),
    }
}

/// The band of a statistic: for k1 on ρ or, as in verl's code, on 1/ρ.
pub fn band(name: &str, low: Option<f64>, high: f64, on_rho: bool) -> [f64; 2] {
    if name.ends_with("diff") {
        return [low.unwrap_or(-high), high];
    }
    match name.ends_with("k1") {
        false => [f64::NEG_INFINITY, high],
        true => {
            let [low, high] = [low.unwrap_or(1.0 / high).ln(), high.ln()];
            if on_rho { [-high, -low] } else { [low, high] }
        }
    }
}
