//! Expected outputs of the ops on rows of logits.

use super::Want;
use crate::cases::Data;
use crate::ops::logits::{COEF, COEF_ENTROPY, LABEL, LIVE, Logits, Which};
use crate::oracle::statistics::{Softmax, softmax};
use crate::oracle::{gradient, otr};
use lockstep_core::num::Suffix;

/// The loss of a binary64 sum of that many exponentials, in units: 2⁻⁵³ of the largest in each addition to
/// the one of 128 columns that holds it, and in each of the seven additions that fold the columns.
fn lost(terms: usize) -> f64 {
    (terms.div_ceil(128) + 7) as f64 / 536_870_912.0
}

/// A row's outputs by name, each value with its magnitude.
type OfRow = Vec<(&'static str, Vec<(f64, f64)>)>;

impl Logits {
    pub(crate) fn wants(&self, data: &Data) -> Vec<Want> {
        let mut wants: Vec<Want> = self.names().iter().map(|name| Want::new(name)).collect();
        for r in 0..data.rows() {
            let masked = data.row[LIVE][r] == 0.0 && self.masked;
            let of_row = if masked { Vec::new() } else { self.of_row(data, r) };
            for want in &mut wants {
                let found = of_row.iter().find(|(name, _)| *name == want.name);
                let zeros = vec![(0.0, 0.0); if want.name == "gradient" { data.span(r).len() } else { 1 }];
                let values = found.map_or(&zeros, |(_, values)| values);
                // The spacing of binary16 does not fall below that of its smallest normal number.
                let least = match (self.format, want.name) {
                    (Suffix::F16, "gradient") if !masked => 1.0 / 16384.0,
                    _ => 0.0,
                };
                values.iter().for_each(|(value, size)| want.push(*value, f64::max(*size, least)));
            }
        }
        wants
    }

    fn names(&self) -> &'static [&'static str] {
        match self.which {
            Which::Statistics { .. } => &["logp", "lse", "top", "entropy", "collision", "score_norm"],
            Which::Gradient { .. } => &["gradient"],
            Which::Otr { .. } => &["loss", "gradient"],
        }
    }

    fn of_row(&self, data: &Data, r: usize) -> OfRow {
        let logits: Vec<f64> = data.span(r).map(|i| data.element[0][i].into()).collect();
        let label = data.row[LABEL][r] as usize;
        let of = |slot: usize| f64::from(data.row[slot][r]);
        let t = f64::from(self.temperature);
        let s = softmax(&logits, t);
        let (spread, ln_z) = (s.spread() + lost(s.p.len()), -s.logp[s.top]);
        let sum = |f: &dyn Fn(f64, f64) -> f64| -> f64 {
            let terms = s.p.iter().zip(&s.below).filter(|(p, _)| **p > 0.0);
            terms.map(|(p, y)| f(*p, y.abs())).sum()
        };
        let mean = sum(&|p, y| p * y);
        let of_entropy = sum(&|p, y| p * y * (1.0 + y)) + ln_z + spread * (1.0 + mean);
        match self.which {
            Which::Statistics { .. } => {
                let entropy = s.entropy();
                let (collision, norm) = (s.collision(), s.score_norm(label));
                let squares = sum(&|p, y| p * p * (1.0 + y));
                let y = s.below[label].abs();
                let largest = (logits[s.top] / t).abs();
                let one = |value: f64, size: f64| vec![(value, size)];
                vec![
                    ("logp", one(s.logp[label], y + ln_z + spread)),
                    ("lse", one(s.lse, largest + ln_z + spread)),
                    ("top", one(s.top as f64, 0.0)),
                    ("entropy", one(entropy, of_entropy)),
                    ("collision", one(collision, collision * (1.0 + spread) + squares)),
                    ("score_norm", one(norm, norm * (1.0 + spread + y) + s.miss(label) * spread + squares)),
                ]
            }
            Which::Gradient { entropy } => {
                let (c, h) = (of(COEF), if entropy { of(COEF_ENTROPY) } else { 0.0 });
                let want = gradient::row(&s, label, (c, h), t);
                let miss = s.miss(label);
                let size = |v: usize| {
                    let (p, y) = (s.p[v], s.below[v].abs());
                    let inner = if p == 0.0 { 0.0 } else { h.abs() * (y + ln_z + of_entropy) };
                    let score = if v == label { c.abs() * (miss + spread) } else { c.abs() * p };
                    (score + p * inner) * (1.0 + if y < 1e3 { y } else { 0.0 } + spread) / t
                };
                vec![("gradient", want.into_iter().enumerate().map(|(v, want)| (want, size(v))).collect())]
            }
            Which::Otr { beta, .. } => {
                let (policy, beta, c) = (softmax(&logits, 1.0), f64::from(beta), of(COEF));
                otr_row(&policy, &s, label, beta, c)
            }
        }
    }
}

fn otr_row(policy: &Softmax, candidates: &Softmax, label: usize, beta: f64, c: f64) -> OfRow {
    let want = otr::loss(policy, candidates, label, beta);
    let (lost, lost2) =
        (policy.spread() + lost(policy.p.len()), candidates.spread() + lost(candidates.p.len()));
    let (spread, spread2) = (1.0 + lost, 1.0 + lost2);
    let ln_z = -policy.logp[policy.top];
    // The effect of the rounding of y on e^y; beyond the cut nothing depends on y.
    let rounding = |of: &Softmax, v: usize| 1.0 + if of.below[v] > -1e3 { -of.below[v] } else { 0.0 };
    let reward = |v: usize| if v == label { 1.0 } else { beta.abs() };
    let size = |v: usize| match candidates.p[v] {
        0.0 => 0.0,
        p => p * reward(v) * (policy.below[v].abs() + ln_z + lost) * rounding(policy, v) * spread2,
    };
    let loss = (want, (0..policy.p.len()).map(size).sum());
    // The label's candidate is a factor of every slope, with the rounding of its own y.
    let (hit, missed, miss) = (candidates.p[label], candidates.miss(label), policy.miss(label));
    let slopes = otr::gradient(policy, candidates, label, beta);
    let of_hit = hit * rounding(candidates, label);
    let sized = |(v, want): (usize, f64)| {
        let of_policy = rounding(policy, v);
        let terms = match v == label {
            true => (of_hit * (miss + lost) + beta.abs() * (missed + lost2)) * of_policy,
            false => {
                beta.abs() * candidates.p[v] * rounding(candidates, v)
                    + policy.p[v] * (of_hit + beta.abs() * missed) * of_policy
            }
        };
        (c * want, c.abs() * terms * (spread + spread2))
    };
    let slopes = slopes.into_iter().enumerate().map(sized).collect();
    vec![("loss", vec![loss]), ("gradient", slopes)]
}
