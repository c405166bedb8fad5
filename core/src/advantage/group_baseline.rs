//! Computes the baseline of a group for each [`Baseline`]; formulas and sources are in [its
//! table](super::baseline).

use super::baseline::Baseline;
use super::grpo::{GroupAdvantage, NO_PIVOT};
use crate::num;
use crate::ragged::Span;
use crate::team::Team;

/// Statistics of a group that its baseline is computed from.
#[derive(Clone, Copy)]
pub(super) struct Summary {
    pub(super) n: f64,
    pub(super) total: f64,
    pub(super) high: f32,
    pub(super) low: f32,
    pub(super) mean: f64,
    pub(super) constant: bool,
}

impl GroupAdvantage<'_> {
    /// Σ w, Σ w R and the number of invalid weights, over the counted members.
    #[inline(always)]
    pub(super) fn weighted<T: Team>(&self, team: &T, span: Span) -> [f64; 3] {
        if !matches!(self.baseline, Baseline::Weighted { .. } | Baseline::Length) {
            return [0.0; 3];
        }
        let (members, weights, lengths) = (self.members(), self.weights, self.lengths);
        let by_length = self.baseline == Baseline::Length;
        team.sum(span, move |i| {
            let weight = match (by_length, weights, lengths) {
                (true, _, Some(lengths)) => f64::from(lengths.at(i)),
                (false, Some(weights), _) => f64::from(weights.at(i)),
                _ => 0.0,
            };
            let bad = !(0.0..f64::INFINITY).contains(&weight);
            let terms = [weight, weight * members.reward(i), f64::from(u8::from(bad))];
            if members.is(i) { terms } else { [0.0; 3] }
        })
    }

    /// λ v₀ + (1 − λ) r̄, computed as (r̄ − v₀) (1 − λ) + v₀.
    #[inline(always)]
    fn shrunk(prior: f64, summary: Summary, squares: f64, tau2: f64, laplace: bool) -> f64 {
        let n = summary.n;
        let p = num::div64(summary.total + 1.0, n + 2.0).clamp(0.0, 1.0);
        let variance = if laplace { p * (1.0 - p) } else { num::div64(squares, n - 1.0) };
        let noise = num::div64(variance, n);
        let apart = (summary.mean - prior) * (summary.mean - prior);
        let larger = if apart > noise { apart } else { noise };
        let whole = if tau2 > 0.0 { noise + tau2 } else { larger };
        let trust = if whole > 0.0 { num::div64(noise, whole) } else { 1.0 };
        let alone = n == 0.0 || (n == 1.0 && !laplace);
        if alone { prior } else { (summary.mean - prior) * (1.0 - trust) + prior }
    }

    /// The baseline of a group, and the position of its pivot or [`NO_PIVOT`].
    #[inline(always)]
    pub(super) fn baseline_of<const V: usize, T: Team>(
        &self,
        team: &T,
        span: Span,
        summary: Summary,
        [weight, weighted, given]: [f64; 3],
        squares: f64,
    ) -> (f64, u32) {
        let Summary { n, high, low, mean, constant, .. } = summary;
        let members = self.members();
        match self.baseline {
            Baseline::Mean | Baseline::LeaveOneOut => (mean, NO_PIVOT),
            Baseline::Weighted { .. } | Baseline::Length => {
                let eps = if let Baseline::Weighted { eps } = self.baseline { eps } else { 0.0 };
                let baseline = if weight == 0.0 {
                    0.0
                } else if constant {
                    f64::from(low)
                } else {
                    num::div64(weighted, weight + eps)
                };
                (baseline, NO_PIVOT)
            }
            Baseline::Median => {
                if V == 0 || n == 0.0 {
                    return (0.0, NO_PIVOT);
                }
                let pivot = members.median(team, span, n);
                (members.reward(span.start + pivot as usize), pivot)
            }
            Baseline::Second => {
                if n == 0.0 {
                    return (0.0, NO_PIVOT);
                }
                let position = move |i: usize| (i - span.start) as f32;
                let value = move |i: usize| members.rewards.at(i);
                let best = move |i: usize| members.is(i) && value(i) == high;
                let pivot = team.min(span, move |i| if best(i) { position(i) } else { f32::INFINITY }) as u32;
                let other = move |i: usize| members.is(i) && (i - span.start) as u32 != pivot;
                let second = team.max(span, move |i| if other(i) { value(i) } else { f32::NEG_INFINITY });
                (f64::from(if n == 1.0 { high } else { second }), pivot)
            }
            Baseline::Given => (given, NO_PIVOT),
            Baseline::Shrunk { tau2, laplace } => {
                (Self::shrunk(given, summary, squares, tau2, laplace), NO_PIVOT)
            }
        }
    }
}
