//! `sequence_weight`.

use super::prelude::*;
use crate::expect::tokens::UNIT;
use crate::oracle::sequence_weight as oracle;
use lockstep_core::policy_loss::{SequenceRule, SequenceWeight as Kernel};

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SequenceWeight {
    pub rule: SequenceRule,
    pub weights: bool,
}

const RULES: [SequenceRule; 5] = [
    SequenceRule::VESPO,
    SequenceRule::Vespo { k_pos: 0.5, lambda_pos: 0.5, k_neg: 1.0, lambda_neg: 0.25 },
    SequenceRule::Topr,
    SequenceRule::OffPolicyMask { delta: 0.02 },
    SequenceRule::OffPolicyMask { delta: -0.5 },
];

const REASON: &str = "rounded log-ratios summed in binary64, two exponentials, one product";

impl OpTest for SequenceWeight {
    const OPS: &'static [&'static str] = &["sequence_weight"];
    const ALLOWED: &'static [Allowance] = &[allow("sequence_weight", &["weight"], 2.0, REASON)];
    const CATCHES: &'static str = "a mean where a sum is meant; a sign of A; a weight counted twice";

    fn run(&self, backend: &dyn Backend, data: &Data, out: &mut Outputs<'_>) -> Result<(), String> {
        let input = |k: usize| In::new(&data.element[k][..]);
        self.rule.check().map_err(|e| e.to_string())?;
        backend.run(&Kernel {
            cu_seqlens: data.packed()?,
            loss_mask: data.masked(),
            logp: input(slot::LOGP),
            logp_behave: input(slot::LOGP_OLD),
            advantage: In::new(&data.row[0]),
            weights: self.weights.then(|| input(slot::WEIGHTS)),
            rule: self.rule,
            out: out.element("weight"),
            row_alarm: out.alarm(),
        })
    }

    fn expect(&self, data: &Data) -> Vec<Want> {
        let mut want = Want::new("weight");
        for r in 0..data.rows() {
            let at = |k: usize, i: usize| f64::from(data.element[k][i]);
            let own = |i: usize| if self.weights { at(slot::WEIGHTS, i) } else { 1.0 };
            let live = data.members(r);
            let d = |i: usize| at(slot::LOGP, i) - at(slot::LOGP_OLD, i);
            let tokens: Vec<(f64, f64)> = live.iter().map(|i| (d(*i), own(*i))).collect();
            let a = f64::from(data.row[0][r]);
            // Each log-ratio rounds once, and so does their sum.
            let sizes: f64 = tokens.iter().map(|(d, _)| d.abs()).sum();
            let (weight, magnitude, kept) = match self.rule {
                SequenceRule::Vespo { k_pos, lambda_pos, k_neg, lambda_neg } => {
                    let (k, lambda) = if a < 0.0 { (k_neg, lambda_neg) } else { (k_pos, lambda_pos) };
                    let (k, lambda) = (f64::from(k), f64::from(lambda));
                    let phi = oracle::vespo(&tokens, k, lambda, self.weights);
                    let clipped: f64 = tokens.iter().map(|(d, _)| d.abs().min(20.0)).sum();
                    let logs: f64 = tokens.iter().map(|(_, u)| u.ln().abs().min(20.0)).sum();
                    let size = clipped + if self.weights { logs } else { 0.0 };
                    // d ln φ = (k − λW) d ln W, and the exponent itself rounds.
                    let log_w = size_of(&tokens, self.weights);
                    let w = log_w.exp();
                    let moved = (k + lambda * w) * (1.0 + size) + (lambda + k * log_w - lambda * w).abs();
                    (phi, phi * (2.0 + moved), false)
                }
                SequenceRule::Topr => {
                    let weight = oracle::topr(&tokens, a);
                    (weight, if a < 0.0 { weight * (2.0 + sizes) } else { 0.0 }, true)
                }
                SequenceRule::OffPolicyMask { delta } => {
                    let mean = -tokens.iter().map(|(d, _)| d).sum::<f64>() / tokens.len().max(1) as f64;
                    let size = (1.0 + sizes) / tokens.len().max(1) as f64;
                    let doubt = a < 0.0 && (mean - f64::from(delta)).abs() < 4.0 * UNIT * size && mean != 0.0;
                    let weight = oracle::off_policy_mask(&tokens, a, delta.into());
                    (weight, if doubt { f64::INFINITY } else { 0.0 }, true)
                }
            };
            for i in data.span(r) {
                let u = if kept { own(i) } else { 1.0 };
                let size = magnitude * u + if magnitude > 0.0 { weight * u } else { 0.0 };
                let (value, size) = if data.live(i) { (weight * u, size) } else { (0.0, 0.0) };
                want.push(value, size);
            }
        }
        vec![want]
    }

    fn corpus(source: Source) -> Vec<Case> {
        let all = pairs(pairs(RULES, [false, true]), Range::ALL);
        numbered(all, source, |k, ((rule, weights), range), source| {
            let shape = if k == 16 { large() } else { short(&small()[k % 5], k) };
            case(SequenceWeight { rule, weights }, &shape, Mask::ALL[k % 6], range, source, k)
        })
    }

    fn random(_op: &str, draw: &mut Draw) -> Case {
        let rule = draw.pick(&RULES);
        let shape = draw.shape();
        let params = SequenceWeight { rule, weights: draw.yes() };
        case(params, &shape, draw.pick(&Mask::ALL), draw.pick(&Range::ALL), draw.source(), 0)
    }

    fn fault_slots(&self) -> Vec<Fault> {
        let mut slots = vec![(slot::LOGP, NO_LOGP), (slot::LOGP_OLD, NO_LOGP)];
        slots.extend(self.weights.then_some((slot::WEIGHTS, NO_WEIGHT)));
        slots
    }
}

/// ln W within its bounds.
fn size_of(tokens: &[(f64, f64)], weighted: bool) -> f64 {
    let low = 1e-8f64.ln();
    let each =
        |(d, u): &(f64, f64)| d.clamp(-20.0, 20.0) + if weighted { u.ln().clamp(low, 20.0) } else { 0.0 };
    tokens.iter().map(each).sum::<f64>().clamp(low, 20.0)
}

/// One case in three has sequences of a few tokens, whose ratios do not saturate.
fn short(shape: &Shape, k: usize) -> Shape {
    match k % 3 {
        0 => Shape { name: "few", catches: shape.catches, lengths: (0..40).map(|i| i % 7).collect() },
        _ => shape.clone(),
    }
}

fn case(params: SequenceWeight, shape: &Shape, mask: Mask, range: Range, source: Source, k: usize) -> Case {
    let label = format!("{k}: {} {mask:?} {range:?}", shape.name);
    Case::of(params, label, tokens(shape, mask, range, source))
}
