//! The corpus: every op of the table with every variant of its arguments, over all shapes, masks and value
//! ranges.

use super::hash::Source;
use super::masks::{Mask, garbage};
use super::params::{
    AnyGate, Params, Policy, gates, guards, kls, kls_of_ops, score_gates, second_gates, trust_gates, weights,
};
use super::shapes::{Shape, large, named, small};
use super::values::{self, Range};
use super::{Case, Data, rewards};
use crate::ops::AnyOp;
use lockstep_core::advantage::Singleton;
use lockstep_core::ratio::RatioGranularity;
use lockstep_core::team::Direction;

/// Every case for this seed. Order, labels and values never change for a given seed, because the digest
/// depends on them.
pub fn corpus(seed: u64) -> Vec<Case> {
    let source = Source::new(seed);
    let mut cases = group_advantage(source.fork(100));
    cases.extend(token_ratio(source.fork(200)));
    cases.extend(policy_loss(source.fork(300)));
    cases.extend(score(source.fork(350)));
    let first: Vec<AnyGate> = gates().into_iter().chain(score_gates()).collect();
    cases.extend(entries(&first, source.fork(360)));
    cases.extend(sequences(&first, source.fork(370)));
    cases.extend(with_second(&second_gates(), source.fork(380)));
    cases.extend(with_second(&trust_gates(), source.fork(390)));
    cases.extend(kl(source.fork(400)));
    cases.extend(sums(source.fork(500)));
    cases.extend(fold_rows(source.fork(600)));
    cases.extend(AnyOp::corpus(source));
    cases
}

/// Log-probabilities of three policies, weights and advantages, with garbage where masked.
pub fn tokens(shape: &Shape, mask: Mask, range: Range, source: Source) -> Data {
    let offsets = shape.offsets();
    let bytes = mask.bytes(&offsets, source.fork(0));
    let n = offsets[offsets.len() - 1] as usize;
    let array = |f: &dyn Fn(usize) -> f32| -> Vec<f32> {
        let live = |i: usize| bytes.as_ref().is_none_or(|bytes| bytes[i] != 0);
        (0..n).map(|i| if live(i) { f(i) } else { garbage(i) }).collect()
    };
    let old = |i| range.base(source.fork(1), i);
    let element = vec![
        array(&|i| range.other(source.fork(2), i, old(i))),
        array(&old),
        array(&|i| range.other(source.fork(3), i, old(i))),
        array(&|i| values::weight(source.fork(4), i)),
        array(&|i| values::advantage(source.fork(5), i)),
        array(&|i| range.other(source.fork(8), i, old(i))),
    ];
    let rows = shape.lengths.len();
    let row = vec![(0..rows).map(|s| values::advantage(source.fork(6), s)).collect()];
    Data { offsets, mask: bytes, element, row, ..Data::default() }
}

/// The shape for the k-th variant of an op, cycling through the small ones.
fn shape(k: usize) -> Shape {
    small().swap_remove(k % 3)
}

fn case(params: Params, shape: &Shape, mask: Mask, range: Range, k: usize, source: Source) -> Case {
    let label = format!("{k}: {} {mask:?} {range:?}", shape.name);
    Case { label, catches: shape.catches, params, data: tokens(shape, mask, range, source.fork(k as u64)) }
}

fn group_advantage(source: Source) -> Vec<Case> {
    let mut cases = Vec::new();
    for norm_by_std in [true, false] {
        for (ddof, eps) in [(1, 1e-6), (0, 1e-4), (1, 0.0)] {
            for singleton in [Singleton::Zero, Singleton::RawReward] {
                let k = cases.len();
                let valid = k % 2 == 1;
                let data = rewards::groups(&rewards::sizes(), valid, source.fork(k as u64));
                cases.push(Case {
                    label: format!("{k}: all kinds of group, valid {valid}"),
                    catches: "see the kinds of group",
                    params: Params::GroupAdvantage { norm_by_std, ddof, eps, singleton },
                    data,
                });
            }
        }
    }
    cases
}

fn token_ratio(source: Source) -> Vec<Case> {
    let mut cases = Vec::new();
    for guard in guards() {
        for range in Range::ALL {
            let k = cases.len();
            let params = Params::TokenRatio { guard, outputs: k % 5 != 4 };
            cases.push(case(params, &shape(k), Mask::ALL[k % 6], range, k, source));
        }
    }
    for (shape, mask) in [("large", Mask::Random), ("one", Mask::Absent), ("nothing", Mask::Full)] {
        let params = Params::TokenRatio { guard: guards()[1], outputs: true };
        cases.push(case(params, &named(shape), mask, Range::Realistic, cases.len(), source));
    }
    cases
}

fn policy_loss(source: Source) -> Vec<Case> {
    let mut cases = with_gates(&gates(), source);
    for gate in [gates()[0], gates()[4]] {
        for (shape, metrics) in
            [(large(), true), (large(), false), (named("one"), true), (named("nothing"), true)]
        {
            let k = cases.len();
            let params = Params::Policy(Policy {
                gate,
                level: RatioGranularity::Token,
                guard: guards()[1],
                kl: k.is_multiple_of(2).then(|| (kls()[6], 0.001)),
                weight: weights()[2],
                counted: None,
                per_token: false,
                weights: metrics,
                loss: metrics,
                token_loss: metrics,
                metrics,
            });
            let mask = [Mask::Absent, Mask::Random][k % 2];
            cases.push(case(params, &shape, mask, Range::Realistic, k, source));
        }
    }
    // The gate determines the op; keep each op's cases together.
    cases.sort_by_key(|case| matches!(case.params, Params::Policy(Policy { gate: AnyGate::Sapo(_), .. })));
    cases
}

/// Every gate with every guard; the other arguments cycle.
fn with_gates(gates: &[AnyGate], source: Source) -> Vec<Case> {
    let mut cases = Vec::new();
    let mut terms = kls().into_iter().cycle();
    for &gate in gates {
        for guard in guards() {
            for step in 0..3 {
                let k = cases.len();
                let kl = if step == 0 { None } else { terms.next() };
                let bits = source.fork(7).bits(k);
                let on = |bit: u32| bits >> bit & 1 == 1;
                let params = Params::Policy(Policy {
                    gate,
                    level: RatioGranularity::Token,
                    guard,
                    kl: kl.map(|kl| (kl, [0.05, 0.0, 1.0][k % 3])),
                    weight: weights()[k % 6],
                    counted: None,
                    per_token: on(0),
                    weights: on(1),
                    loss: on(2),
                    token_loss: on(3),
                    metrics: on(4),
                });
                let range = match Range::ALL[(bits >> 8) as usize % 4] {
                    // The bounds at exactly 1 are there for exact ties; log-ratios of 1e-6 would all be in
                    // doubt beside them.
                    Range::Tiny if gate == super::params::gates()[2] => Range::Ties,
                    range => range,
                };
                cases.push(case(params, &shape(k), Mask::ALL[(bits >> 16) as usize % 6], range, k, source));
            }
        }
    }
    cases
}

/// Every entry point of every gate: a GPU has separate code for each.
fn entries(gates: &[AnyGate], source: Source) -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    let mut of_op: Vec<&'static str> = Vec::new();
    for &gate in gates {
        if of_op.contains(&gate.op()) {
            continue;
        }
        of_op.push(gate.op());
        for kl in [
            None,
            Some((kls()[6], 0.05)),
            Some((kls()[7], 1.0)),
            Some((kls()[0], 0.05)),
            Some((kls()[3], 0.5)),
        ] {
            for wants in 0..4 {
                let k = cases.len();
                // Coefficients only, twice: on the fast path, and with weights. Then losses, then metrics.
                let (loss, token_loss, metrics) = match wants {
                    0 | 1 => (false, false, false),
                    2 => [(true, false, false), (true, true, false), (false, true, false)][(k / 4) % 3],
                    _ => (k / 4 % 2 == 1, k / 8 % 2 == 1, true),
                };
                let params = Params::Policy(Policy {
                    gate,
                    level: RatioGranularity::Token,
                    guard: guards()[1],
                    kl,
                    weight: weights()[k % 5],
                    counted: None,
                    per_token: wants == 1 && (k / 4).is_multiple_of(2),
                    weights: wants % 2 == 1,
                    loss,
                    token_loss,
                    metrics,
                });
                let (mask, range) = (Mask::ALL[k % 6], [Range::Realistic, Range::Wide][k % 2]);
                let case = case(params, &shape(k), mask, range, k, source);
                cases.push(Case { label: format!("entry {}", case.label), ..case });
            }
        }
    }
    cases
}

/// Sequence-level ratios: every gate, with and without a bound that is reached.
fn sequences(gates: &[AnyGate], source: Source) -> Vec<Case> {
    let mut cases = Vec::new();
    for &gate in gates {
        for log_max in [10.0, 0.03125, f32::INFINITY] {
            let k: usize = cases.len();
            let params = Params::Policy(Policy {
                gate,
                level: RatioGranularity::Sequence { log_max },
                guard: guards()[k % 5],
                kl: (k % 4 == 3).then(|| (kls()[k % 11], 0.05)),
                weight: weights()[k % 5],
                counted: None,
                per_token: k.is_multiple_of(2),
                weights: k % 3 == 1,
                loss: k % 5 > 1,
                token_loss: k % 5 > 2,
                metrics: k % 5 == 4,
            });
            let range = [Range::Realistic, Range::Wide, Range::Realistic, Range::Ties][k % 4];
            let case = case(params, &shape(k), Mask::ALL[k % 6], range, k, source);
            cases.push(Case { label: format!("sequence {}", case.label), ..case });
        }
    }
    cases
}

/// Gates with a second policy.
fn with_second(gates: &[AnyGate], source: Source) -> Vec<Case> {
    let named = |what: &str, cases: Vec<Case>| -> Vec<Case> {
        let label = |case: Case| Case { label: format!("{what} {}", case.label), ..case };
        cases.into_iter().map(label).collect()
    };
    let mut cases = named("second", with_gates(gates, source.fork(1)));
    cases.extend(named("second", entries(gates, source.fork(2))));
    cases.extend(named("second", sequences(gates, source.fork(3))));
    cases
}

fn score(source: Source) -> Vec<Case> {
    let gates = score_gates();
    let mut cases = with_gates(&gates, source);
    for gate in [gates[0], gates[3], gates[4], gates[6]] {
        for (shape, mask) in [("large", Mask::Random), ("one", Mask::Absent), ("nothing", Mask::Full)] {
            let (k, wants) = (cases.len(), cases.len().is_multiple_of(2));
            let params = Params::Policy(Policy {
                gate,
                level: RatioGranularity::Token,
                guard: guards()[1],
                kl: None,
                weight: weights()[2],
                counted: None,
                per_token: false,
                weights: wants,
                loss: wants,
                token_loss: wants,
                metrics: wants,
            });
            cases.push(case(params, &named(shape), mask, Range::Realistic, k, source));
        }
    }
    cases
}

fn kl(source: Source) -> Vec<Case> {
    let mut cases = Vec::new();
    for kl in kls_of_ops() {
        for range in Range::ALL {
            let k = cases.len();
            let params = Params::Kl { kl, outputs: k % 7 != 6 };
            cases.push(case(params, &shape(k), Mask::ALL[k % 6], range, k, source));
        }
    }
    for (shape, mask) in [("large", Mask::Random), ("one", Mask::Absent), ("nothing", Mask::Full)] {
        let params = Params::Kl { kl: kls()[8], outputs: true };
        cases.push(case(params, &named(shape), mask, Range::Realistic, cases.len(), source));
    }
    cases
}

fn sums(source: Source) -> Vec<Case> {
    let mut cases = Vec::new();
    let all = [
        Params::Aggregate { values: true },
        Params::Aggregate { values: false },
        Params::RowScan { direction: Direction::Prefix },
        Params::RowScan { direction: Direction::Suffix },
    ];
    for params in all {
        let mut shapes = small();
        shapes.push(large());
        for (j, shape) in shapes.iter().enumerate() {
            let k = cases.len();
            let mask = Mask::ALL[(k + j) % 6];
            let mut case = case(params, shape, mask, Range::Realistic, k, source);
            let (values, live) = (source.fork(1000 + k as u64), case.data.mask.clone());
            let value = |i: usize| match live.as_ref().is_none_or(|mask| mask[i] != 0) {
                true => values::spread(values, i),
                false => garbage(i),
            };
            case.data.element = vec![(0..case.data.elements()).map(value).collect()];
            case.data.row.clear();
            cases.push(case);
        }
    }
    cases
}

fn fold_rows(source: Source) -> Vec<Case> {
    let mut cases = Vec::new();
    for rows in [1usize, 2, 31, 33, 128, 129, 1000] {
        let k = cases.len();
        let statistics = 5;
        let value = |i: usize| {
            let source = source.fork(k as u64);
            f64::from(values::spread(source, i)) + f64::from(values::spread(source.fork(1), i)) / 16_777_216.0
        };
        cases.push(Case {
            label: format!("{k}: {statistics} statistics of {rows} rows"),
            catches: "partials indexed [row][statistic]; a sum that starts elsewhere",
            params: Params::FoldRows,
            data: Data {
                offsets: (0..=statistics as u32).map(|s| s * rows as u32).collect(),
                element64: (0..statistics * rows).map(value).collect(),
                ..Data::default()
            },
        });
    }
    cases
}
