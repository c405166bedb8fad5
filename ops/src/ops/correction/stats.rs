//! Statistics of rollout-correction weights, as verl logs them.

use super::CorrectionParams;
use lockstep_core::correction::normalize::{LEAST_MEAN, factor};
use lockstep_core::correction::weights::{Rule, WeightLevel, sum};

/// verl's addition to counts and to the mean of weights.
const EPS: f64 = 1e-8;

/// Statistics of the weights before rejection and normalisation, over live tokens. All are 0, and
/// `normalizer` is 1, for a batch without live tokens.
///
/// The formulas are those of verl 0.9.1's `rollout_is_*`, with its 1e-8; empty sequences are excluded.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct WeightStats {
    /// Mean weight.
    pub mean: f64,
    /// Population standard deviation.
    pub std: f64,
    /// Smallest weight; at sequence level, the smallest ρ.
    pub min: f64,
    /// Largest weight; at sequence level, the largest ρ.
    pub max: f64,
    /// Effective sample size as a fraction of the tokens: 1 / mean((w / (mean w + 1e-8))²); 0 if every weight
    /// is 0.
    pub ess: f64,
    /// Fraction with ρ above the band: of sequences if the weights are per sequence, otherwise of tokens.
    pub above_fraction: f64,
    /// The same fraction below the band.
    pub below_fraction: f64,
    /// Fraction of tokens whose ρ lies outside the band: their weight is truncated, or 0 with the rule
    /// `mask`.
    pub outside_fraction: f64,
    /// Mean over sequences of their mean weight.
    pub sequence_mean: f64,
    /// Standard deviation of the sequences' mean weights, ddof 1; 0 for one sequence.
    pub sequence_std: f64,
    /// The smallest mean weight of a sequence.
    pub sequence_min: f64,
    /// The largest mean weight of a sequence.
    pub sequence_max: f64,
    /// The largest distance of a sequence's mean weight from 1.
    pub sequence_max_deviation: f64,
    /// Fraction of sequences whose mean ρ is above the band.
    pub sequence_above_fraction: f64,
    /// Fraction of sequences whose mean ρ is below the band.
    pub sequence_below_fraction: f64,
    /// The number that the weights were divided by; 1 without normalisation.
    pub normalizer: f64,
    /// Fraction of tokens rejected.
    pub rejected_fraction: f64,
    /// Of the sequences with live tokens, the fraction that lost one token or more.
    pub touched_sequences_fraction: f64,
    /// Of the sequences with live tokens, the fraction that lost all of them.
    pub rejected_sequences_fraction: f64,
}

impl WeightStats {
    pub(super) fn new(
        sums: &[f64],
        maxima: &[f32],
        totals: &[f64],
        rows: usize,
        params: &CorrectionParams,
    ) -> Self {
        let (tokens, live) = (totals[sum::TOKENS], totals[sum::LIVE]);
        if tokens == 0.0 {
            return WeightStats { normalizer: 1.0, ..WeightStats::default() };
        }
        let (excess, squares) = (totals[sum::EXCESS], totals[sum::EXCESS_SQUARED]);
        let mean = totals[sum::WEIGHT] / (tokens + EPS);
        // Σw² = Σ(w−1)² + 2Σ(w−1) + n.
        let second = (tokens + 2.0 * excess + squares) / (tokens + EPS);
        // Near 1 the variance comes from w − 1, where nothing cancels.
        let centre = excess / (tokens + EPS);
        let variance = squares / (tokens + EPS) - centre * centre;
        let of_sequences = matches!(params.level, WeightLevel::Sequence | WeightLevel::Geometric);
        let (first, last) = if of_sequences { (2, 3) } else { (0, 1) };
        let extreme = |k: usize| {
            maxima[k * rows..(k + 1) * rows].iter().fold(f64::NEG_INFINITY, |m, x| m.max((*x).into()))
        };
        let mut out = WeightStats {
            mean,
            std: if tokens > 1.0 { variance.max(0.0).sqrt() } else { 0.0 },
            min: -extreme(last),
            max: extreme(first),
            ess: if second > 0.0 { (mean + EPS) * (mean + EPS) / second } else { 0.0 },
            outside_fraction: match params.rule {
                Rule::Plain => 0.0,
                _ if params.low.is_none() => totals[sum::ABOVE] / tokens,
                _ => (totals[sum::ABOVE] + totals[sum::BELOW]) / tokens,
            },
            above_fraction: totals[sum::ABOVE] / tokens,
            below_fraction: totals[sum::BELOW] / tokens,
            normalizer: 1.0,
            rejected_fraction: (tokens - totals[sum::KEPT]) / tokens,
            ..WeightStats::default()
        };
        out.of_sequences(sums, rows, live, params);
        if of_sequences {
            let with = |k: usize| (0..rows).filter(|row| sums[k * rows + row] > 0.0).count() as f64 / live;
            (out.above_fraction, out.below_fraction) = (with(sum::ABOVE), with(sum::BELOW));
        }
        if params.normalize {
            out.normalizer = match params.level {
                WeightLevel::Token => factor(totals[sum::WEIGHT], tokens),
                _ => factor(totals[sum::ROW_WEIGHT], live),
            };
            debug_assert!(out.normalizer > LEAST_MEAN);
        }
        out
    }

    fn of_sequences(&mut self, sums: &[f64], rows: usize, live: f64, params: &CorrectionParams) {
        let at = |k: usize, row: usize| sums[k * rows + row];
        let own = || (0..rows).filter(|row| at(sum::TOKENS, *row) > 0.0);
        // A row's mean weight minus 1, and its mean ρ minus 1.
        let excess = |k: usize, row: usize| (at(k, row) - EPS) / (at(sum::TOKENS, row) + EPS);
        let weight = |row: usize| at(sum::WEIGHT, row) / (at(sum::TOKENS, row) + EPS);
        let (high, low) = (f64::from(params.high), f64::from(params.low.unwrap_or(1.0 / params.high)));
        (self.sequence_min, self.sequence_max) = (f64::INFINITY, f64::NEG_INFINITY);
        let (mut total, mut centre) = (0.0, 0.0);
        for row in own() {
            let (mean, deviation, raw) =
                (weight(row), excess(sum::EXCESS, row), 1.0 + excess(sum::RAW_EXCESS, row));
            total += mean;
            centre += deviation;
            self.sequence_min = self.sequence_min.min(mean);
            self.sequence_max = self.sequence_max.max(mean);
            self.sequence_max_deviation = self.sequence_max_deviation.max(deviation.abs());
            self.sequence_above_fraction += f64::from(u8::from(raw > high)) / live;
            self.sequence_below_fraction += f64::from(u8::from(raw < low)) / live;
            let lost = at(sum::TOKENS, row) - at(sum::KEPT, row);
            self.touched_sequences_fraction += f64::from(u8::from(lost > 0.0)) / live;
            self.rejected_sequences_fraction += f64::from(u8::from(at(sum::KEPT, row) == 0.0)) / live;
        }
        self.sequence_mean = total / live;
        if live > 1.0 {
            let centre = centre / live;
            let squares: f64 =
                own().map(|row| excess(sum::EXCESS, row) - centre).map(|distance| distance * distance).sum();
            self.sequence_std = (squares / (live - 1.0)).sqrt();
        }
    }
}
