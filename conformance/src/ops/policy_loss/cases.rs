//! The fixed cases of the policy losses.

use super::gates::{gates, score_gates, second_gates, trust_gates};
use super::{AnyGate, Policy};
use crate::cases::corpus::{EXTREMES, cycled, token_case};
use crate::cases::hash::Source;
use crate::cases::masks::Mask;
use crate::cases::params::{guards, kls, weights};
use crate::cases::shapes::{named, small};
use crate::cases::values::Range;
use crate::cases::{Case, pairs};
use crate::ops::AnyOp;
use lockstep_core::gate::OWN_BOUND;
use lockstep_core::ratio::{Guard, RatioGranularity};

/// All of them.
pub(super) fn corpus(root: Source) -> Vec<Case> {
    let first: Vec<AnyGate> = gates().into_iter().chain(score_gates()).collect();
    let mut cases = policy_loss(root.fork(300));
    cases.extend(score(root.fork(350)));
    cases.extend(entries(&first, root.fork(360)));
    cases.extend(sequences(&first, root.fork(370)));
    cases.extend(with_second(&second_gates(), root.fork(380)));
    cases.extend(with_second(&trust_gates(), root.fork(390)));
    let all: Vec<AnyGate> = first.into_iter().chain(second_gates()).chain(trust_gates()).collect();
    cases.extend(usual(&all, root.fork(395)));
    cases
}

fn labelled(what: &str, cases: Vec<Case>) -> impl Iterator<Item = Case> {
    cases.into_iter().map(move |case| Case { label: format!("{what} {}", case.label), ..case })
}

fn policy_loss(source: Source) -> Vec<Case> {
    let mut cases = with_gates(&gates(), source);
    for gate in [gates()[0], gates()[4]] {
        for (shape, all) in [("large", true), ("large", false), ("one", true), ("nothing", true)] {
            let (k, mask) = (cases.len(), [Mask::Absent, Mask::Random][cases.len() % 2]);
            let kl = k.is_multiple_of(2).then(|| (kls()[6], 0.001));
            let params = Policy { kl, ..Policy::of(gate).with(all) };
            cases.push(token_case(params, &named(shape), mask, Range::Realistic, k, source));
        }
    }
    // The gate determines the op; keep each op's cases together.
    cases.sort_by_key(|case| matches!(case.params, AnyOp::Policy(Policy { gate: AnyGate::Sapo(_), .. })));
    cases
}

/// Every gate with every guard; the other arguments cycle.
fn with_gates(gates: &[AnyGate], source: Source) -> Vec<Case> {
    let mut cases = Vec::new();
    let mut terms = kls().into_iter().cycle();
    for ((&gate, guard), step) in pairs(pairs(gates, guards()), 0..3) {
        let k = cases.len();
        let kl = if step == 0 { None } else { terms.next() };
        let bits = source.fork(7).bits(k);
        let on = |bit: u32| bits >> bit & 1 == 1;
        let params = Policy {
            guard,
            kl: kl.map(|kl| (kl, [0.05, 0.0, 1.0][k % 3])),
            weight: weights()[k % 6],
            per_token: on(0),
            weights: on(1),
            loss: on(2),
            token_loss: on(3),
            metrics: on(4),
            ..Policy::of(gate)
        };
        let range = match Range::ALL[(bits >> 8) as usize % 4] {
            // The bounds at exactly 1 are there for exact ties; log-ratios of 1e-6 would all be in doubt
            // beside them.
            Range::Tiny if gate == super::gates::gates()[2] => Range::Ties,
            range => range,
        };
        let mask = Mask::ALL[(bits >> 16) as usize % 6];
        cases.push(token_case(params, &small()[k % 3], mask, range, k, source));
    }
    cases
}

fn first_of_each_op(gates: &[AnyGate]) -> impl Iterator<Item = AnyGate> {
    let first = |j: usize| gates[..j].iter().all(|before| before.op() != gates[j].op());
    (0..gates.len()).filter(move |j| first(*j)).map(|j| gates[j])
}

/// Every entry point of every gate: a GPU has separate code for each.
fn entries(gates: &[AnyGate], source: Source) -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    let terms = [(6, 0.05), (7, 1.0), (0, 0.05), (3, 0.5)].map(|(k, coef)| Some((kls()[k], coef)));
    let terms = [None].into_iter().chain(terms);
    for ((gate, kl), wants) in pairs(pairs(first_of_each_op(gates), terms), 0..4) {
        let k = cases.len();
        // Coefficients only, twice: on the fast path, and with weights. Then losses, then metrics.
        let (loss, token_loss, metrics) = match wants {
            0 | 1 => (false, false, false),
            2 => [(true, false, false), (true, true, false), (false, true, false)][(k / 4) % 3],
            _ => (k / 4 % 2 == 1, k / 8 % 2 == 1, true),
        };
        let params = Policy {
            kl,
            weight: weights()[k % 5],
            per_token: wants == 1 && (k / 4).is_multiple_of(2),
            weights: wants % 2 == 1,
            loss,
            token_loss,
            metrics,
            ..Policy::of(gate)
        };
        cases.push(cycled(params, [Range::Realistic, Range::Wide][k % 2], k, source));
    }
    labelled("entry", cases).collect()
}

/// The usual call of every op, with losses and with metrics: a GPU has loops for it.
fn usual(gates: &[AnyGate], source: Source) -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    for gate in first_of_each_op(gates) {
        for (metrics, range) in pairs([false, true], [Range::Realistic, Range::Wide]) {
            let (k, guard) = (cases.len(), Guard::clamp(OWN_BOUND));
            let params = Policy { guard, weight: weights()[k % 5], loss: true, metrics, ..Policy::of(gate) };
            cases.push(cycled(params, range, k, source));
        }
    }
    labelled("usual", cases).collect()
}

/// Sequence-level ratios: every gate, with and without a bound that is reached.
fn sequences(gates: &[AnyGate], source: Source) -> Vec<Case> {
    let mut cases = Vec::new();
    for (&gate, log_max) in pairs(gates, [10.0, 0.03125, f32::INFINITY]) {
        let k: usize = cases.len();
        let params = Policy {
            level: RatioGranularity::Sequence { log_max },
            guard: guards()[k % 5],
            kl: (k % 4 == 3).then(|| (kls()[k % 11], 0.05)),
            weight: weights()[k % 5],
            per_token: k.is_multiple_of(2),
            weights: k % 3 == 1,
            loss: k % 5 > 1,
            token_loss: k % 5 > 2,
            metrics: k % 5 == 4,
            ..Policy::of(gate)
        };
        let range = [Range::Realistic, Range::Wide, Range::Realistic, Range::Ties][k % 4];
        cases.push(cycled(params, range, k, source));
    }
    labelled("sequence", cases).collect()
}

/// Gates with a second policy.
fn with_second(gates: &[AnyGate], source: Source) -> Vec<Case> {
    let mut cases = with_gates(gates, source.fork(1));
    cases.extend(entries(gates, source.fork(2)));
    cases.extend(sequences(gates, source.fork(3)));
    labelled("second", cases).collect()
}

fn score(source: Source) -> Vec<Case> {
    let gates = score_gates();
    let mut cases = with_gates(&gates, source);
    for gate in [gates[0], gates[3], gates[4], gates[6]] {
        for (shape, mask) in EXTREMES {
            let k = cases.len();
            let params = Policy::of(gate).with(k.is_multiple_of(2));
            cases.push(token_case(params, &named(shape), mask, Range::Realistic, k, source));
        }
    }
    cases
}
