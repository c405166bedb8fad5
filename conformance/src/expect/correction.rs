//! Expected outputs of `rollout_mismatch` and `rollout_correction`.

use super::tokens::{UNIT, difference};
use super::{Sum, Want, push_all};
use crate::cases::Data;
use crate::ops::correction::{MAXIMA, MISMATCH, WEIGHTS, Weights};
use crate::ops::same;
use crate::oracle::mismatch::{self as apart, k3};
use crate::oracle::weights as oracle;
use lockstep_core::correction::K1Band;
use lockstep_core::correction::weights::{Rule, WeightLevel};

/// The trainer's and the sampler's log-probabilities of each live token of a row.
fn pairs(data: &Data, row: usize) -> Vec<[f32; 2]> {
    data.members(row).into_iter().map(|i| [data.element[0][i], data.element[1][i]]).collect()
}

/// Their log-ratios.
fn log_ratios(pairs: &[[f32; 2]]) -> Vec<f64> {
    pairs.iter().map(|[old, rollout]| difference(*old, *rollout).0).collect()
}

/// The magnitude of e², where e is uncertain by `error` units.
fn squared(e: f64, error: f64) -> f64 {
    if error.is_infinite() { error } else { 2.0 * e.abs() * error + e * e }
}

/// e^x − 1 and the magnitude of its error, where x is uncertain by `spread` units.
fn excess(x: f64, spread: f64) -> (f64, f64) {
    (x.exp_m1(), x.exp() * spread + x.exp_m1().abs())
}

pub(crate) fn mismatch(data: &Data, bound: f64) -> Vec<Want> {
    let mut wants = MISMATCH.map(Want::new);
    let [mut high, mut low, mut tokens] = ["max_d", "max_neg_d", "row_tokens"].map(Want::new);
    for row in 0..data.rows() {
        let (d, mut sums) = (log_ratios(&pairs(data, row)), [Sum::default(); MISMATCH.len()]);
        for &d in &d {
            let x = d.clamp(-bound, bound);
            sums[0].add(d, d.abs());
            sums[1].add(-x, x.abs());
            sums[2].add(0.5 * x * x, x * x);
            sums[3].add(k3(x), k3(x) + x.exp_m1().abs() * x.abs());
            let (value, error) = excess(x, x.abs());
            sums[4].add(value, error);
            sums[5].add(value * value, squared(value, error));
            for (j, tau) in apart::TAU.into_iter().enumerate() {
                let doubt = (d.abs() - tau.ln()).abs() < 4.0 * UNIT * (1.0 + d.abs());
                sums[6 + j].count(apart::extreme(d, tau), doubt);
            }
        }
        if !d.is_empty() {
            let (total, spread) = (d.iter().sum::<f64>(), d.iter().map(|d| d.abs()).sum::<f64>());
            let inside = total.abs() <= bound;
            let value = apart::sequence(&d, bound);
            let error = (value + 1.0) * if inside { spread } else { 0.0 } + value.abs();
            sums[10].add(value, error);
            sums[11].add(value * value, squared(value, error));
            let ppl = apart::perplexity(&d);
            sums[12].add(ppl, (ppl + 1.0) * spread / d.len() as f64 + ppl.abs());
            sums[13].add(1.0, 0.0);
        }
        push_all(&mut wants, sums);
        let max = |sign: f64| d.iter().map(|d| sign * d).fold(f64::NEG_INFINITY, f64::max);
        for (want, value) in [(&mut high, max(1.0)), (&mut low, max(-1.0))] {
            want.push(value, if value.is_finite() { value.abs() } else { 0.0 });
        }
        tokens.push(d.len() as f64, 0.0);
    }
    wants.into_iter().chain([high, low, tokens]).collect()
}

impl Weights {
    /// Whether a statistic of this prefix lets the tokens pass, and whether that is in doubt.
    fn passes(&self, of_token: bool, pairs: &[[f32; 2]]) -> (bool, bool) {
        let (d, bound) = (log_ratios(pairs), f64::from(self.bound));
        let wide: Vec<[f64; 2]> = pairs.iter().map(|pair| pair.map(f64::from)).collect();
        let (mut keeps, mut doubt) = (true, false);
        for (statistic, low, high, band) in self.reject.into_iter().flatten() {
            let name = statistic.name();
            if name.starts_with("token") != of_token {
                continue;
            }
            let of_probabilities = statistic.is_difference();
            let value = match of_probabilities {
                true => oracle::difference(name, &wide),
                false => oracle::statistic(name, &d, bound),
            };
            let [from, to] = oracle::band(name, low.map(f64::from), high.into(), band == K1Band::Rho);
            keeps &= (from..=to).contains(&value);
            // The possible error of the value: the rounding of each d times the slope of its estimate.
            let slope = |x: f64| match name.as_bytes()[name.len() - 1] {
                b'1' => x.abs(),
                b'2' => 2.0 * x * x,
                _ => 2.0 * k3(x) + x.exp_m1().abs() * x.abs(),
            };
            let error: f64 = match of_probabilities {
                true => wide.iter().flatten().map(|logp| logp.exp()).sum(),
                false => d.iter().map(|d| slope(d.clamp(-bound, bound))).sum(),
            };
            let error = if name.contains("mean") { error / d.len().max(1) as f64 } else { error };
            let near = |edge: f64| (value - edge).abs() < 4.0 * UNIT * (error + edge.abs());
            doubt |= (from.is_finite() && near(from)) || near(to);
        }
        (keeps, doubt)
    }

    pub(crate) fn expect(&self, data: &Data) -> Vec<Want> {
        let (bound, high, low) = (f64::from(self.bound), f64::from(self.high), self.low.map(f64::from));
        let rule = same!(self.rule, Rule => oracle::Rule, Truncate Mask Plain);
        let [mut values, mut mask, mut row_kept] = ["weights", "kept_mask", "row_kept"].map(Want::new);
        let (mut wants, mut maxima) = (WEIGHTS.map(Want::new), MAXIMA.map(Want::new));
        for row in 0..data.rows() {
            let pairs = pairs(data, row);
            let d = log_ratios(&pairs);
            let (total, spread) = (d.iter().sum::<f64>(), d.iter().map(|d| d.abs()).sum::<f64>());
            let n = d.len().max(1) as f64;
            let (of_row, row_doubt) = self.passes(false, &pairs);
            let mut sums = [Sum::default(); WEIGHTS.len()];
            let mut certain = false;
            let mut largest = [(f64::NEG_INFINITY, 0.0); MAXIMA.len()];
            for i in data.span(row) {
                if !data.live(i) {
                    values.push(0.0, 0.0);
                    mask.push(0.0, 0.0);
                    continue;
                }
                let pair = [data.element[0][i], data.element[1][i]];
                let own = difference(pair[0], pair[1]).0;
                let (log, spread) = match self.level {
                    WeightLevel::One => (0.0, 0.0),
                    WeightLevel::Token => (own, own.abs()),
                    WeightLevel::Sequence => (total, spread),
                    WeightLevel::Geometric => (total / n, spread / n),
                };
                let clipped = log.clamp(-bound, bound);
                let spread = if clipped == log { spread } else { 0.0 };
                let (raw, raw_error) = excess(clipped, spread);
                let rho = clipped.exp();
                let near = |edge: f64| {
                    spread > 0.0 && (rho - edge).abs() < 4.0 * UNIT * (2.0 + spread) * rho.max(edge)
                };
                let bottom = low.unwrap_or(1.0 / high);
                let doubt = near(high) || near(bottom);
                let weight = oracle::weight(rho, rule, low, high);
                let jumps = doubt && self.rule == Rule::Mask;
                let error = if jumps { f64::INFINITY } else { weight * (1.0 + spread) };
                let error_of_excess = match weight == rho {
                    _ if jumps => f64::INFINITY,
                    true => raw_error,
                    false => (weight - 1.0).abs(),
                };
                let (token_keeps, token_doubt) = self.passes(true, &[pair]);
                let keeps = of_row && token_keeps;
                let kept_doubt = row_doubt || token_doubt;
                certain |= keeps && !kept_doubt;
                values.push(if keeps { weight } else { 0.0 }, if kept_doubt { f64::INFINITY } else { error });
                mask.push(f64::from(u8::from(keeps)), if kept_doubt { f64::INFINITY } else { 0.0 });
                let e = if weight == rho { raw } else { weight - 1.0 };
                sums[0].add(e, error_of_excess);
                sums[1].add(e * e, squared(e, error_of_excess));
                sums[2].add(weight, error);
                sums[3].add(raw, raw_error);
                sums[4].count(rho > high, doubt);
                sums[5].count(rho < bottom, doubt);
                sums[6].count(keeps, kept_doubt);
                for (k, value) in [weight, -weight, rho, -rho].into_iter().enumerate() {
                    if value > largest[k].0 {
                        largest[k] = (value, if k < 2 { error } else { rho * (1.0 + spread) });
                    }
                }
            }
            sums[7].add(d.len() as f64, 0.0);
            sums[8].add(sums[2].0 / n, sums[2].1 / n);
            sums[9].add(f64::from(u8::from(!d.is_empty())), 0.0);
            push_all(&mut wants, sums);
            let doubt = if sums[6].1 < 0.0 && !certain { f64::INFINITY } else { 0.0 };
            row_kept.push(f64::from(u8::from(sums[6].0 > 0.0)), doubt);
            push_all(&mut maxima, largest);
        }
        [values, mask, row_kept].into_iter().chain(wants).chain(maxima).collect()
    }
}
