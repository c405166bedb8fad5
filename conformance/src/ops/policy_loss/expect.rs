//! The oracle's expectation.

use super::{AnyGate, MAXIMA, POLICY_SUMS, Policy};
use crate::cases::{Data, slot};
use crate::expect::tokens::{Ratios, UNIT, difference, doubtful, doubtful_ratio, estimator, guard, kl_token};
use crate::expect::{Sum, Want, gate, push_all};
use crate::oracle::aggregate::{Denominators, Mode};
use crate::oracle::dppo::Dppo;
use crate::oracle::policy_loss::{Gate, PolicyLoss, Token};
use crate::oracle::trust_region::Divergence;
use lockstep_core::aggregate::{PerRow, Weight};
use lockstep_core::ratio::RatioGranularity;

/// The oracle's policy loss.
pub(crate) fn oracle(policy: &Policy) -> PolicyLoss {
    PolicyLoss {
        log_max: match policy.level {
            RatioGranularity::Token | RatioGranularity::Given => None,
            RatioGranularity::Sequence { log_max } => Some(log_max.into()),
        },
        guard: guard(policy.guard),
        gate: match policy.gate {
            AnyGate::Ppo(of) => gate::ppo(of.clip_ratio_low, of.clip_ratio_high, of.clip_ratio_c),
            AnyGate::Sapo(of) => gate::sapo(of.tau_pos, of.tau_neg),
            AnyGate::Cispo(of) => gate::cispo(of.low, of.high),
            AnyGate::Reinforce(_) => Gate::Reinforce,
            AnyGate::DppoTv(of) => gate::dppo(of.clip_ratio_low, of.clip_ratio_high, of.clip_ratio_c, false),
            AnyGate::DppoKl(of) => gate::dppo(of.clip_ratio_low, of.clip_ratio_high, of.clip_ratio_c, true),
            AnyGate::MiniRl(of) => gate::mini_rl(of.clip_ratio_low, of.clip_ratio_high, of.clip_ratio_c),
            AnyGate::Remix(of) => gate::remix(of.clip_ratio_low, of.clip_ratio_high),
            AnyGate::TrustRegion(of) => {
                gate::trust_region(of.divergence, of.clip_ratio_low, of.clip_ratio_high, of.clip_ratio_c)
            }
        },
        kl: policy.kl.map(|(kl, coef)| (estimator(kl), coef.into())),
    }
}

/// W of a row: the oracle's modes, with the case's denominator as the count that the mode divides by.
fn row_weight(weight: &Weight, length: usize) -> f64 {
    let whole = Denominators { tokens: weight.denominator, sequences: weight.denominator };
    let mode = match weight.per_row {
        PerRow::One => Mode::SeqMeanTokenSum,
        PerRow::Length { .. } => Mode::SeqMeanTokenMean { at_least_one: false },
        PerRow::AtLeastOne => Mode::SeqMeanTokenMean { at_least_one: true },
        PerRow::Constant(horizon) => Mode::SeqMeanTokenSumNorm { horizon },
    };
    weight.scale * mode.weight(length, whole)
}

/// The oracle's inputs for token `i` of row `row`.
pub(crate) fn token(policy: &Policy, data: &Data, row: usize, i: usize) -> Token {
    let input = |k: usize| f64::from(data.element[k][i]);
    Token {
        logp: input(slot::LOGP),
        logp_old: input(slot::LOGP_OLD),
        logp_ref: input(slot::LOGP_REF),
        logp_second: input(policy.gate.second()),
        advantage: if policy.per_token { input(slot::ADVANTAGE) } else { data.row[0][row].into() },
        weight: if policy.weights { input(slot::WEIGHTS) } else { 1.0 },
        sequence: (0.0, 0.0),
    }
}

/// Mean log-ratio of a row's live tokens, and its mean magnitude.
fn sequence(data: &Data, row: usize) -> (f64, f64) {
    let input = |k: usize, i: usize| f64::from(data.element[k][i]);
    let live = data.span(row).filter(|i| data.live(*i));
    let d: Vec<f64> = live.map(|i| input(slot::LOGP, i) - input(slot::LOGP_OLD, i)).collect();
    let n = d.len().max(1) as f64;
    (d.iter().sum::<f64>() / n, d.iter().map(|d| d.abs()).sum::<f64>() / n)
}

pub(super) fn expect(policy: &Policy, data: &Data) -> Vec<Want> {
    let oracle = oracle(policy);
    let names = ["coef", "token_loss", "row_loss", "row_tokens"];
    let [mut coef, mut token_loss, mut row_loss, mut row_tokens] = names.map(Want::new);
    let (mut sums, mut maxima) = (POLICY_SUMS.map(Want::new), MAXIMA.map(Want::new));
    for row in 0..data.rows() {
        let length = data.span(row).filter(|i| data.live(*i)).count();
        let weight = row_weight(&policy.weight, length);
        let mut total = [Sum::default(); POLICY_SUMS.len()];
        let mut ratios = Ratios::default();
        let shared = sequence(data, row);
        for i in data.span(row) {
            if !data.live(i) {
                coef.push(0.0, 0.0);
                token_loss.push(0.0, 0.0);
                continue;
            }
            let t = Token { sequence: shared, ..token(policy, data, row, i) };
            let c = oracle.token(&t);
            let m = Magnitudes::new(policy, data, &oracle, &t, i);
            let gradient = c.policy_gradient + c.kl_gradient;
            coef.push(weight * gradient, if m.jump { f64::INFINITY } else { weight * m.gradient });
            token_loss.push(c.loss, m.loss);
            // Statistics of log-ratios are per token; the doubt about the ratio comes from the log-ratio it
            // was computed from.
            let d = if oracle.log_max.is_some() { c.d } else { oracle.guard.value(c.d) };
            let spread = m.spread;
            let sample = oracle.sample(&t);
            let (gate_weight, clips) = (oracle.gate.weight(sample), oracle.gate.clips(sample));
            total[0].add(weight * c.loss, weight * m.loss);
            total[1].add(c.policy, m.policy);
            total[2].add(c.kl, m.kl);
            ratios.add(d, c.r, m.d);
            // A weight that is exactly 0 or 1 counts as exact.
            let steep = if m.steepness > 0.0 { gate_weight * (2.0 + m.steepness) * spread } else { 0.0 };
            total[6].add(gate_weight, if m.at_clip { f64::INFINITY } else { steep });
            for (k, yes) in [(7, clips.high), (8, clips.low), (9, clips.dual)] {
                total[k].count(yes, m.at_clip);
            }
            total[10].count(!oracle.inside(&t), m.at_guard);
            total[12].add(-t.logp, t.logp.abs());
        }
        row_loss.push(total[0].0, total[0].1);
        row_tokens.push(length as f64, 0.0);
        [total[3], total[4], total[5], total[11]] = ratios.sums;
        push_all(&mut sums, total);
        push_all(&mut maxima, ratios.maxima);
    }
    [coef, token_loss, row_loss, row_tokens].into_iter().chain(maxima).chain(sums).collect()
}

/// The magnitudes that a token's errors are measured against.
struct Magnitudes {
    /// Magnitude for the rounding of the log-ratio.
    d: f64,
    /// 1 + |d|: how uncertain the ratio is.
    spread: f64,
    /// How much faster than r the gate's weight changes; 0 for a step.
    steepness: f64,
    gradient: f64,
    loss: f64,
    policy: f64,
    kl: f64,
    at_guard: bool,
    at_clip: bool,
    /// Whether the gradient jumps here.
    jump: bool,
}

impl Magnitudes {
    fn new(policy: &Policy, data: &Data, oracle: &PolicyLoss, t: &Token, i: usize) -> Magnitudes {
        let input = |k: usize| data.element[k][i];
        let (raw, exact) = difference(input(slot::LOGP), input(slot::LOGP_OLD));
        let c = oracle.token(t);
        let d = if oracle.log_max.is_some() { t.sequence.1 } else { oracle.guard.value(raw) };
        let spread = 1.0 + d.abs();
        let (steepness, at_clip) = match oracle.gate {
            Gate::Sapo(gate) => (gate.tau(t.advantage) * (c.r + 1.0), false),
            Gate::Ppo(gate) => {
                let bounds = [1.0 - gate.low, 1.0 + gate.high, gate.dual];
                (0.0, bounds.into_iter().any(|b| doubtful_ratio(d, c.r, b)))
            }
            // The weight changes as fast as r.
            Gate::Cispo(gate) => (1.0, [gate.low, gate.high].into_iter().any(|b| doubtful_ratio(d, c.r, b))),
            Gate::Reinforce => (0.0, false),
            Gate::MiniRl(gate) => {
                let x = t.logp - t.logp_second;
                let bounds = [1.0 - gate.low, 1.0 + gate.high];
                let masked = bounds.into_iter().any(|b| doubtful_ratio(d, c.r, b));
                (x.abs(), masked || doubtful_ratio(x, x.exp(), gate.c))
            }
            Gate::Remix(gate) => {
                let (centre, x) = (oracle.sample(t).centre(), t.logp_second - t.logp_old);
                let of =
                    |moved: f64, ratio: f64| if moved == 0.0 { 0.0 } else { (2.0 + moved.abs()) * ratio };
                let size = of(d, c.r) + of(x, centre);
                let at = |bound: f64| (c.r - bound).abs() < 4.0 * UNIT * (size + bound.abs());
                // Two exponentials of the same number are exactly equal.
                (0.0, d != x && (at(centre - gate.low) || at(centre + gate.high)))
            }
            Gate::TrustRegion(gate) => {
                let given = gate.divergence == Divergence::Given;
                let x = if given { d } else { t.logp - t.logp_second };
                let near = match gate.divergence {
                    Divergence::Given => false,
                    Divergence::BinaryKl => doubtful_divergence(&gate.binary(), t),
                    Divergence::TotalVariation => {
                        // A product of two functions of one rounded number each; below it vanishes.
                        let size = 1.0 + (t.logp - t.logp_old).abs();
                        let moved = gate.moved(t.logp, t.logp_old, t.logp_second);
                        let bound = gate.bound(t.advantage);
                        moved != 0.0
                            && ((moved - bound).abs() < 16.0 * UNIT * size * moved
                                || moved < 1e-37 && bound == 0.0)
                    }
                };
                (1.0 + x.abs(), near || doubtful_ratio(x, gate.free(c.r, t.logp, t.logp_second), gate.c))
            }
            Gate::Dppo(gate) => (1.0, doubtful_divergence(&gate, t) || doubtful_ratio(d, c.r, gate.c)),
        };
        let at_guard = match oracle.log_max {
            None => doubtful(raw, exact, oracle.guard.distance_to_kink(raw)),
            Some(max) => doubtful(d, d == 0.0, (t.sequence.0 - max).abs()),
        };
        let [value, gradient] = match policy.kl {
            Some((kl, _)) => kl_token(&estimator(kl), input(slot::LOGP), input(slot::LOGP_REF)),
            None => [(0.0, 0.0); 2],
        };
        let beta = oracle.kl.map_or(0.0, |(_, beta)| beta);
        // dl/dlogp of the unguarded gate tells how the rounding of d moves the loss.
        let sample = oracle.sample(t);
        let slope = match oracle.gate.is_score() {
            true => c.policy.abs(),
            false => (t.weight * oracle.gate.gradient(sample)).abs(),
        };
        // SAPO's z = tau (r − 1) rounds too, which moves f by f' (r − 1).
        let gate_weight = oracle.gate.weight(sample);
        let by_z = match oracle.gate {
            // A weight that has vanished stays 0, however large r is.
            Gate::Sapo(_) if gate_weight == 0.0 => 0.0,
            Gate::Sapo(_) => t.weight * t.advantage.abs() * gate_weight * (1.0 + c.r),
            Gate::MiniRl(_) | Gate::TrustRegion(_) => c.policy.abs() * steepness,
            // The centre rounds like a ratio.
            Gate::Remix(_) if gate_weight == 0.0 => {
                let x = (t.logp_second - t.logp_old).abs();
                t.weight * t.advantage.abs() * (sample.centre() * (1.0 + x) + 1.0)
            }
            _ => 0.0,
        };
        let policy_loss = 2.0 * c.policy.abs() + slope * spread + by_z;
        let kl_gradient = if beta == 0.0 { 0.0 } else { beta * gradient.1 };
        let grown = match c.policy_gradient.abs() {
            0.0 => 0.0,
            policy => policy * (2.0 + spread) * (1.0 + steepness),
        };
        Magnitudes {
            d,
            spread,
            steepness,
            gradient: grown + 2.0 * kl_gradient,
            loss: policy_loss + 2.0 * beta * value.1,
            policy: policy_loss,
            kl: value.1,
            at_guard,
            at_clip,
            jump: at_guard || at_clip || kl_gradient.is_infinite(),
        }
    }
}

/// Whether the decision of a trust region may go either way: within the error of exponentials, logarithms and
/// products.
fn doubtful_divergence(gate: &Dppo, t: &Token) -> bool {
    let (logp, logp_old) = (t.logp, t.logp_old);
    let (p, q) = (logp.exp(), logp_old.exp());
    let d = (logp - logp_old).abs();
    let size = match gate.kl {
        false => (1.0 + d) * p.max(q),
        true => {
            let ln = |x: f64| (-x.exp_m1() + 1e-8).ln().abs();
            q * d + (1.0 - q) * (4.0 + ln(logp) + ln(logp_old))
        }
    };
    let bound = match t.advantage > 0.0 {
        true => gate.high,
        false if gate.kl => gate.low,
        false => -gate.low,
    };
    let moved = gate.divergence(logp, logp_old);
    logp != logp_old && (moved - bound).abs() < 16.0 * UNIT * size
}
