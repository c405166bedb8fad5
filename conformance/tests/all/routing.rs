//! Routing replay: the worked vectors, finite differences, load balance. Traces are in routing_traces.rs.

use crate::differences::slopes;
use crate::peers::all_close;
use crate::prelude::*;
use lockstep::core::ragged::Mask;
use lockstep::core::routing::{Replay, Router, RouterKind};
use lockstep::ops::routing::Gating;
use lockstep::ops::{balance_loss, gating_backward, gating_forward};
use lockstep::routing::{Ids, LoadSum, RoutingTrace, load};
use lockstep_conformance::oracle::balance as oracle_balance;
use lockstep_conformance::oracle::gating_forward::{Of, Rule, gates, natural};

const SCORES: [f32; 4] = [1.0, 2.0, 0.5, -1.0];

/// The gates of the scores above by a record of experts.
fn replayed(kind: RouterKind, record: &[i32]) -> Gating {
    let trace = RoutingTrace::from_ids(record, 1, 4, 1, record.len()).unwrap();
    let replay = Replay { trace: trace.view(), mask: Mask::all() };
    let router = Router::new(kind, 4, record.len());
    gating_forward(&Device::cpu(), &router, &SCORES, None, Some(replay)).unwrap()
}

#[test]
fn worked_8_3_routing() {
    let router = Router::new(RouterKind::SoftmaxChosen, 4, 2);
    let own = gating_forward(&Device::cpu(), &router, &SCORES, None, None).unwrap();
    assert_eq!((&own.chosen, own.replayed), (&Ids::U8(vec![1, 0]), 0));
    all_close(&own.gates, &[0.731059, 0.268941], 1e-6);
    let gating = replayed(RouterKind::SoftmaxChosen, &[0, 2]);
    all_close(&gating.gates, &[0.622459, 0.377541], 1e-6);
    // The gates are in the record's order.
    all_close(&replayed(RouterKind::SoftmaxChosen, &[2, 0]).gates, &[0.377541, 0.622459], 1e-6);
    let gradient = gating_backward(&Device::cpu(), &router, &SCORES, &gating, &[1.0, 0.0]).unwrap();
    all_close(&gradient, &[0.235004, 0.0, -0.235004, 0.0], 1e-6);
}

#[test]
fn row_10_21_router_weights() {
    for (kind, want) in [
        (RouterKind::SoftmaxChosen, [0.622459, 0.377541]),
        (RouterKind::SoftmaxAll, [0.224208, 0.135989]),
        (RouterKind::SigmoidNormalized, [0.540117, 0.459883]),
        (RouterKind::Sigmoid, [0.731059, 0.622459]),
    ] {
        all_close(&replayed(kind, &[0, 2]).gates, &want, 1e-6);
    }
}

/// Sigmoids of scores above 17 are all 1 in binary32. Llama 4 chooses by the scores; so does any router
/// without a bias, alone and sixteen rows at a time.
#[test]
fn without_a_bias_scores_are_compared_not_their_sigmoids() {
    let row: Vec<f32> = (0..128).map(|e| if e % 16 == 7 { 18.0 + e as f32 } else { 17.5 }).collect();
    let best: Vec<u8> = (0..8).rev().map(|k| 16 * k + 7).collect();
    for (kind, gate) in [(RouterKind::Sigmoid, 1.0), (RouterKind::SigmoidNormalized, 0.125)] {
        for rows in [1, 16] {
            let router = Router::new(kind, 128, 8);
            let out = gating_forward(&Device::cpu(), &router, &row.repeat(rows), None, None).unwrap();
            assert_eq!(out.chosen, Ids::U8(best.repeat(rows)), "{kind:?}");
            assert_eq!(out.gates, vec![gate; 8 * rows], "{kind:?}");
        }
    }
}

#[test]
fn the_gradient_is_that_of_the_oracle_natural_and_replayed() {
    use RouterKind::{Sigmoid, SigmoidNormalized, SoftmaxAll, SoftmaxChosen, SqrtSoftplus};
    let source = Source::new(5);
    for kind in [SoftmaxChosen, SoftmaxAll, SigmoidNormalized, Sigmoid, SqrtSoftplus] {
        let router = Router { scale: 1.5, ..Router::new(kind, 10, 3) };
        let rule = Rule {
            of: match kind {
                SoftmaxChosen | SoftmaxAll => Of::Softmax,
                SigmoidNormalized | Sigmoid => Of::Sigmoid,
                SqrtSoftplus => Of::SqrtSoftplus,
            },
            by_activation: false,
            over_chosen: !matches!(kind, SoftmaxAll | Sigmoid),
            scale: 1.5,
            top_k: 3,
            groups: 1,
            top_groups: 1,
        };
        let scores: Vec<f32> = (0..10).map(|e| 2.0 * source.signed(e)).collect();
        let wide: Vec<f64> = scores.iter().map(|s| f64::from(*s)).collect();
        let trace = RoutingTrace::from_ids(&[9, 0, 4], 1, 10, 1, 3).unwrap();
        let replay = Replay { trace: trace.view(), mask: Mask::all() };
        let coef = [0.5f32, -1.0, 0.25];
        for (replay, chosen) in [(None, natural(&wide, &[0.0; 10], &rule).0), (Some(replay), vec![9, 0, 4])] {
            let forward = gating_forward(&Device::cpu(), &router, &scores, None, replay).unwrap();
            assert_eq!(forward.chosen, Ids::U8(chosen.iter().map(|e| *e as u8).collect()));
            let got = gating_backward(&Device::cpu(), &router, &scores, &forward, &coef).unwrap();
            let loss = |scores: &[f64]| -> f64 {
                gates(scores, &chosen, &rule).iter().zip(coef).map(|(g, c)| g * f64::from(c)).sum()
            };
            for (got, want) in got.iter().zip(slopes(&scores, loss)) {
                assert!((f64::from(*got) - want).abs() <= FINITE_DIFFERENCE, "{kind:?}: {got} {want}");
            }
            // Megatron #79: an expert that only the record contains must not lose its gradient.
            assert!(chosen.iter().all(|e| got[*e] != 0.0));
        }
    }
}

#[test]
fn mask_and_absent_records_fall_back_to_the_live_router() {
    let router = Router::new(RouterKind::SoftmaxChosen, 4, 2);
    let scores: Vec<f32> = SCORES.repeat(6);
    // Two layers of three tokens; token 1 has no record in layer 0.
    let ids = [0, 2, 2, 3, -1, -1, 3, 0, 0, 3, 2, 0];
    let trace = RoutingTrace::from_ids(&ids, 3, 4, 2, 2).unwrap();
    let replay = Replay { trace: trace.view(), mask: Mask::new(Some(&[1, 1, 0])) };
    let out = gating_forward(&Device::cpu(), &router, &scores, None, Some(replay)).unwrap();
    assert_eq!(out.chosen, Ids::U8(vec![0, 2, 2, 3, 1, 0, 3, 0, 1, 0, 1, 0]));
    assert_eq!((out.row_replayed, out.replayed), (vec![1, 1, 0, 1, 0, 0], 3));
    // The second layer alone is a view with the same strides.
    let layer = trace.view().slice(1, 1).unwrap();
    let replay = Replay { trace: layer, mask: Mask::all() };
    let out = gating_forward(&Device::cpu(), &router, &scores[..12], None, Some(replay)).unwrap();
    assert_eq!(out.chosen, Ids::U8(vec![2, 3, 3, 0, 2, 0]));
    assert!(trace.view().slice(1, 2).is_none());
}

#[test]
fn replaying_the_natural_choice_changes_no_bit() {
    // R2 in the first mini-batch: the target policy is unchanged.
    let router = Router::QWEN3;
    let source = Source::new(9);
    let scores: Vec<f32> = (0..64 * 128).map(|i| 3.0 * source.signed(i)).collect();
    let own = gating_forward(&Device::cpu(), &router, &scores, None, None).unwrap();
    let mut trace = RoutingTrace::new(128, 1, 8).unwrap();
    trace.append_chosen(&own.chosen).unwrap();
    let replay = Replay { trace: trace.view(), mask: Mask::all() };
    let again = gating_forward(&Device::cpu(), &router, &scores, None, Some(replay)).unwrap();
    assert_eq!((own.chosen, own.gates, 64), (again.chosen, again.gates, again.replayed));
}

/// Scores: unordered, few distinct values, all equal, zeros of both signs, rounded to bf16, arbitrary finite
/// bits.
fn scores_of(style: usize, source: Source, count: usize) -> Vec<f32> {
    let of = |i: usize| match style {
        0 => 4.0 * source.signed(i),
        1 => source.below(i, 5) as f32,
        2 => 0.25,
        3 => [0.0, -0.0, 1e-42, -1e-42][source.below(i, 4)],
        4 => f32::from_bits(source.signed(i).to_bits() & 0xffff_0000),
        _ => Some(source.pattern(i)).filter(|x| x.is_finite()).unwrap_or(f32::MAX),
    };
    (0..count).map(of).collect()
}

#[test]
fn every_level_picks_what_sorting_picks() {
    let experts = [1, 8, 16, 17, 32, 33, 127, 128, 128, 129, 256, 384, 500, 512];
    let top_k = [1, 2, 16, 3, 4, 32, 8, 8, 1, 9, 8, 8, 17, 10];
    for (experts, top_k) in experts.into_iter().zip(top_k) {
        for style in 0..6 {
            let (source, rows) = (Source::new(style as u64).fork(experts as u64), 5);
            let scores = scores_of(style, source, rows * experts);
            let mut want = Vec::new();
            for row in scores.chunks(experts) {
                let mut order: Vec<usize> = (0..experts).collect();
                // Stable: equal scores, including zeros of both signs, go by the lower index.
                order.sort_by(|a, b| row[*b].partial_cmp(&row[*a]).unwrap());
                want.extend(order[..top_k].iter().map(|e| *e as u16));
            }
            let router = Router::new(RouterKind::SoftmaxChosen, experts, top_k);
            let plain = Device::cpu_with(Some(SimdLevel::Plain), Some(1)).unwrap();
            let first = gating_forward(&plain, &router, &scores, None, None).unwrap();
            let ids = match &first.chosen {
                Ids::U8(ids) => ids.iter().map(|e| u16::from(*e)).collect(),
                Ids::U16(ids) => ids.clone(),
            };
            assert_eq!(ids, want, "{experts} {top_k} {style}");
            for level in SimdLevel::available() {
                let device = Device::cpu_with(Some(level), Some(2)).unwrap();
                let own = gating_forward(&device, &router, &scores, None, None).unwrap();
                assert_eq!(own.chosen, first.chosen, "{level} {experts} {top_k} {style}");
                assert!(own.gates.iter().zip(&first.gates).all(|(a, b)| a.to_bits() == b.to_bits()));
            }
        }
    }
}

#[test]
fn balance_loss_and_its_gradient() {
    let trace = RoutingTrace::from_ids(&[0, 1, 0, 2, 0, 1, -1, -1], 4, 3, 1, 2).unwrap();
    let f = load(&trace.view(), 3, LoadSum::One).unwrap();
    assert_eq!(f, [3.0 / 6.0, 2.0 / 6.0, 1.0 / 6.0]);
    // Hugging Face counts per token: the sum is K.
    assert_eq!(load(&trace.view(), 3, LoadSum::TopK).unwrap(), [1.0, 2.0 / 3.0, 1.0 / 3.0]);
    // Uniform scores: E Σ f/E = Σ f = 1, and the only slope is the load's.
    let even = balance_loss(&Device::cpu(), &[0.5; 12], &f, 1.0).unwrap();
    assert!((even.loss - 1.0).abs() < 1e-7 && even.gradient[0] > 0.0 && even.gradient[2] < 0.0);
    let source = Source::new(8);
    let scores: Vec<f32> = (0..12).map(|i| 2.0 * source.signed(i)).collect();
    let got = balance_loss(&Device::cpu(), &scores, &f, 0.25).unwrap();
    let f64s = |x: &[f32]| -> Vec<f64> { x.iter().map(|x| f64::from(*x)).collect() };
    let loss = |moved: &[f64]| -> f64 {
        moved.chunks(3).map(|row| oracle_balance::row(row, &f64s(&f), 0.25 * 3.0 / 4.0).0).sum()
    };
    assert!((got.loss - loss(&f64s(&scores))).abs() < 1e-6);
    for (got, want) in got.gradient.iter().zip(slopes(&scores, loss)) {
        assert!((f64::from(*got) - want).abs() <= FINITE_DIFFERENCE, "{got} {want}");
    }
    assert!(balance_loss(&Device::cpu(), &scores, &[f32::NAN, 0.0, 0.0], 1.0).is_err());
    assert!(balance_loss(&Device::cpu(), &scores[..11], &f, 1.0).is_err());
}
