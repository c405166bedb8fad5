//! Group-relative advantages with any baseline and scale: docs/maths/statistics.md, docs/maths/correction.md,
//! docs/maths/advantages.md, docs/maths/rewards.md.

use super::aggregate::exact_sum;

/// The baseline that rewards are compared with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Baseline {
    /// Mean.
    Mean,
    /// Mean of the others.
    LeaveOneOut,
    /// Σ w R / (Σ w + eps).
    Weighted { eps: f64 },
    /// Lower median.
    Median,
    /// Second-largest reward.
    Second,
    /// The given number.
    Given,
    /// V0.5-style fusion of mean and prior, with the variance of the prior's error (0 stands for
    /// (mean − prior)², at least s²/n) or a Laplace-smoothed binary variance.
    Shrunk { tau2: f64, laplace: bool },
}

/// What the difference is divided by.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scale {
    /// 1.
    None { ddof: f64 },
    /// std + eps.
    Std { ddof: f64, eps: f64 },
    /// std of the others + eps, if that std is not 0.
    LeaveOneOutStd { ddof: f64, eps: f64 },
    /// Root mean square of R − b, + eps.
    RootMeanSquare { ddof: f64, eps: f64 },
    /// Median of |R − b|, + floor.
    Mad { floor: f64 },
    /// The mean plus eps.
    Mean { eps: f64 },
    /// A batch-wide deviation + eps.
    Batch { std: f64, eps: f64 },
    /// A batch-wide factor.
    Fraction { of: f64 },
}

/// One member.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Member {
    pub reward: f64,
    pub weight: f64,
}

/// One group.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Group {
    /// Advantage per member; 0 for those excluded.
    pub advantage: Vec<f64>,
    pub baseline: f64,
    /// The scale without its eps.
    pub spread: f64,
    /// Divisor of each member, for error bounds.
    pub divisor: Vec<f64>,
    /// The member that a median or second-best baseline depends on.
    pub pivot: Option<usize>,
}

fn mean(x: &[f64]) -> f64 {
    if x.is_empty() {
        return 0.0;
    }
    if x.iter().all(|y| *y == x[0]) { x[0] } else { exact_sum(x.iter().copied()) / x.len() as f64 }
}

fn deviation(x: &[f64], ddof: f64) -> f64 {
    if x.is_empty() || x.iter().all(|y| *y == x[0]) {
        return 0.0;
    }
    let centre = mean(x);
    (exact_sum(x.iter().map(|y| (y - centre).powi(2))) / (x.len() as f64 - ddof)).sqrt()
}

fn lower_median(x: &[f64]) -> f64 {
    let mut sorted = x.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[(sorted.len() - 1) / 2]
}

/// Advantages of one group, limited to `limit`; a deviation of at most `least_std` does not divide.
/// `members[i]` is `None` if excluded; `raw` selects the policy for a group of one: b := 0 and own scale
/// := 1.
pub fn group(
    baseline: Baseline,
    scale: Scale,
    [limit, least_std]: [f64; 2],
    members: &[Option<Member>],
    given: f64,
    raw: bool,
) -> Group {
    let indices: Vec<usize> = (0..members.len()).filter(|i| members[*i].is_some()).collect();
    let kept: Vec<Member> = members.iter().flatten().copied().collect();
    let rewards: Vec<f64> = kept.iter().map(|m| m.reward).collect();
    let n = kept.len();
    let zeros = || vec![0.0; members.len()];
    let mut out = Group { advantage: zeros(), divisor: vec![1.0; members.len()], ..Group::default() };
    let own = !matches!(baseline, Baseline::Given | Baseline::Shrunk { .. });
    let raw = raw && n == 1 && own;
    let centre = mean(&rewards);
    let of_batch = matches!(scale, Scale::Batch { .. } | Scale::Fraction { .. });

    let total_weight: f64 = exact_sum(kept.iter().map(|m| m.weight));
    let constant = n > 0 && rewards.iter().all(|r| *r == rewards[0]);
    let best = (0..n).fold(0, |best, i| if rewards[i] > rewards[best] { i } else { best });
    let mut second = None;
    out.baseline = match baseline {
        _ if raw => 0.0,
        Baseline::Given => given,
        Baseline::Shrunk { tau2, laplace } => shrunk(&rewards, given, tau2, laplace),
        _ if n == 0 => 0.0,
        Baseline::Mean | Baseline::LeaveOneOut => centre,
        Baseline::Weighted { .. } if total_weight == 0.0 => 0.0,
        Baseline::Weighted { .. } if constant => rewards[0],
        Baseline::Weighted { eps } => {
            exact_sum(kept.iter().map(|m| m.weight * m.reward)) / (total_weight + eps)
        }
        Baseline::Median => lower_median(&rewards),
        Baseline::Second => {
            second = Some(best);
            let others = (0..n).filter(|i| *i != best).map(|i| rewards[i]);
            if n == 1 { rewards[0] } else { others.fold(f64::NEG_INFINITY, f64::max) }
        }
    };
    if n > 0 {
        out.pivot = match baseline {
            Baseline::Median => {
                let median = lower_median(&rewards);
                rewards.iter().position(|r| *r == median).map(|k| indices[k])
            }
            Baseline::Second => Some(indices[best]),
            _ => None,
        };
    }
    let difference = |k: usize| match baseline {
        Baseline::LeaveOneOut if n > 1 => n as f64 / (n as f64 - 1.0) * (rewards[k] - centre),
        _ => rewards[k] - out.baseline,
    };
    out.spread = match scale {
        _ if raw && !of_batch => 1.0,
        Scale::None { ddof } | Scale::Std { ddof, .. } | Scale::LeaveOneOutStd { ddof, .. } => {
            deviation(&rewards, ddof)
        }
        Scale::Mad { .. } if n == 0 => 0.0,
        Scale::Mad { .. } => {
            lower_median(&rewards.iter().map(|r| (r - out.baseline).abs()).collect::<Vec<_>>())
        }
        Scale::RootMeanSquare { ddof, .. } if n as f64 <= ddof => 1.0,
        Scale::RootMeanSquare { ddof, .. } => {
            (exact_sum((0..n).map(|k| difference(k).powi(2))) / (n as f64 - ddof)).sqrt()
        }
        Scale::Mean { .. } => centre,
        Scale::Batch { std, .. } => std,
        Scale::Fraction { of } => of,
    };

    let weightless = matches!(baseline, Baseline::Weighted { .. }) && total_weight == 0.0;
    if (constant && own && !raw && !weightless) || (matches!(scale, Scale::Mean { .. }) && out.spread == 0.0)
    {
        return out;
    }
    for (k, &i) in indices.iter().enumerate() {
        if second.is_some_and(|best| best != k) && !raw {
            continue;
        }
        let others: Vec<f64> = (0..n).filter(|j| *j != k).map(|j| rewards[j]).collect();
        let difference = difference(k);
        let divisor = match scale {
            Scale::None { .. } => 1.0,
            Scale::LeaveOneOutStd { eps, .. } if raw => 1.0 + eps,
            Scale::LeaveOneOutStd { ddof, eps } => match deviation(&others, ddof) {
                0.0 => 1.0,
                std => std + eps,
            },
            Scale::Mad { floor } if out.spread + floor == 0.0 => 1.0,
            Scale::Mad { floor } => out.spread + floor,
            _ if out.spread == 0.0 => 1.0,
            Scale::Std { .. } | Scale::Batch { .. } if out.spread <= least_std => 1.0,
            Scale::Std { eps, .. } | Scale::Batch { eps, .. } | Scale::RootMeanSquare { eps, .. } => {
                out.spread + eps
            }
            Scale::Mean { eps } => out.spread + eps,
            Scale::Fraction { .. } => out.spread,
        };
        out.divisor[i] = divisor;
        out.advantage[i] = (difference / divisor).clamp(-limit, limit);
    }
    out
}

/// b = λ v₀ + (1 − λ) r̄.
fn shrunk(rewards: &[f64], prior: f64, tau2: f64, laplace: bool) -> f64 {
    let n = rewards.len() as f64;
    let centre = mean(rewards);
    let p = (exact_sum(rewards.iter().copied()) + 1.0) / (n + 2.0);
    let p = p.clamp(0.0, 1.0);
    let variance = if laplace { p * (1.0 - p) } else { deviation(rewards, 1.0).powi(2) };
    if n == 0.0 || (n == 1.0 && !laplace) {
        return prior;
    }
    let noise = variance / n;
    let whole = if tau2 > 0.0 { noise + tau2 } else { noise.max((centre - prior).powi(2)) };
    let trust = if whole == 0.0 { 1.0 } else { noise / whole };
    trust * prior + (1.0 - trust) * centre
}
