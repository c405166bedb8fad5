//! Routing traces: size, padding, parts, faults, and comparisons of two traces.

use crate::prelude::*;
use lockstep::core::ragged::Mask;
use lockstep::core::routing::{Place, Replay, Router, RouterKind, Trace, TraceFault, filler};
use lockstep::ops::correction::mean_abs_log_ratio;
use lockstep::ops::gating_forward;
use lockstep::routing::{Ids, RoutingTrace, gate_kl, mismatch, replay_kl};

#[test]
fn size_law() {
    let mut trace = RoutingTrace::new(128, 48, 8).unwrap();
    trace.append_padding(1000);
    assert_eq!(trace.bytes(), 384 * 1000);
    assert_eq!(trace.view().validate(1000, 128), Ok(48_000));
    let wide = RoutingTrace::new(257, 1, 8).unwrap();
    assert!(matches!(wide.ids(), Ids::U16(_)));
}

#[test]
fn filler_is_distinct_and_spreads() {
    for (experts, top_k) in [(128, 8), (8, 8), (60, 7), (1, 1), (5, 3)] {
        let mut load = vec![0; experts];
        for row in 0..experts {
            let ids: Vec<usize> = (0..top_k).map(|j| filler(row, j, top_k, experts)).collect();
            assert!((0..top_k).all(|j| !ids[..j].contains(&ids[j])));
            ids.iter().for_each(|e| load[*e] += 1);
        }
        assert!(load.iter().all(|n| *n == top_k), "{load:?}");
    }
}

#[test]
fn slices_of_layers_and_tokens_are_views() {
    for experts in [7, 300] {
        let ids: Vec<i32> = (0..5 * 3 * 2).map(|i| (i / 2 * 3 + i % 2) % 7).collect();
        let whole = RoutingTrace::from_ids(&ids, 5, experts, 3, 2).unwrap();
        let view = whole.view();
        let part = view.part(1, 3).unwrap().slice(1, 2).unwrap();
        assert_eq!((part.tokens(), part.layers(), part.rows()), (3, 2, 6));
        assert_eq!(part.validate(3, experts), Ok(6));
        for row in 0..part.rows() {
            let (token, layer) = (1 + row / 2, 1 + row % 2);
            for j in 0..2 {
                assert_eq!(part.at(part.position(row) + j), ids[(token * 3 + layer) * 2 + j] as u32);
            }
        }
        // In the other order too; an empty part at the end is allowed, one beyond it is not.
        assert_eq!(view.slice(1, 2).unwrap().part(1, 3).unwrap().position(5), part.position(5));
        assert_eq!(view.part(5, 0).unwrap().rows(), 0);
        assert!([view.part(3, 3), view.part(usize::MAX, 2), view.slice(2, 2)].iter().all(Option::is_none));
    }
}

#[test]
fn stitching_puts_parts_together() {
    let ids: Vec<i32> = (0..24).map(|i| (i / 2 + i % 2) % 7).collect();
    let whole = RoutingTrace::from_ids(&ids, 6, 7, 2, 2).unwrap();
    let mut parts = RoutingTrace::new(7, 2, 2).unwrap();
    parts.stitch(&whole, 0..2).unwrap();
    parts.stitch(&whole, 2..6).unwrap();
    assert_eq!(parts, whole);
    assert_eq!(mismatch(&parts.view(), &whole.view()).unwrap().differing, 0);
    assert!(parts.stitch(&whole, 5..7).is_err());
    assert!(parts.stitch(&RoutingTrace::new(8, 2, 2).unwrap(), 0..0).is_err());
    parts.append_absent(1);
    assert_eq!(parts.view().validate(7, 7), Ok(12), "a token without record is not counted");
}

fn fault(ids: &[i32], tokens: usize) -> TraceFault {
    match RoutingTrace::from_ids(ids, tokens, 256, 1, 2) {
        Err(Error::Trace(fault)) => fault,
        other => panic!("{other:?}"),
    }
}

#[test]
fn bad_traces_are_named() {
    let place = Place { token: 1, layer: 0, entry: 1 };
    assert_eq!(fault(&[0, 1, 5, 5], 2), TraceFault::Duplicate { place, expert: 5, other: 0 });
    // As a byte, the missing id would be expert 255.
    assert_eq!(fault(&[0, 1, 5, -1], 2), TraceFault::Partial { place });
    assert_eq!(fault(&[0, 1], 2), TraceFault::OneTokenShort { tokens: 2 });
    assert_eq!(fault(&[0, 1], 4), TraceFault::Shape { expected: 8, got: 2 });
    assert!(RoutingTrace::from_ids(&[255, 0, -1, -1], 2, 256, 1, 2).is_ok());
    refused(RoutingTrace::from_ids(&[0, 256], 1, 256, 1, 2), "…`trace`[1] is 256…");
    refused(RoutingTrace::from_ids(&[0, 1, 5, 5], 2, 256, 1, 2), "…`trace`[1, 0, 1] is 5…");
    // A trace made for more experts than the router has.
    let trace = RoutingTrace::from_ids(&[3, 9], 1, 16, 1, 2).unwrap();
    let replay = Replay { trace: trace.view(), mask: Mask::all() };
    let router = Router::new(RouterKind::SoftmaxAll, 4, 2);
    let run = |scores: [f32; 4], replay| gating_forward(&Device::cpu(), &router, &scores, None, replay);
    let error = run([1.0, 2.0, 0.5, -1.0], Some(replay)).unwrap_err();
    assert!(matches!(error, Error::Trace(TraceFault::Range { expert: 9, experts: 4, .. })), "{error}");
    refused(run([1.0, 2.0, f32::NAN, 0.0], None), "…`scores`[2]…");
}

#[test]
fn mismatch_counts_routers_tokens_and_layers() {
    let a = RoutingTrace::from_ids(&[0, 1, 2, 3, 0, 1, 2, 3, 0, 1, -1, -1], 3, 5, 2, 2).unwrap();
    let b = RoutingTrace::from_ids(&[1, 0, 2, 4, 0, 1, 3, 2, 2, 3, 0, 1], 3, 5, 2, 2).unwrap();
    let found = mismatch(&a.view(), &b.view()).unwrap();
    assert_eq!((found.routers, found.differing, found.tokens, found.tokens_differing), (5, 2, 3, 2));
    assert_eq!((found.shared, &found.layers[..]), (7, &[(3, 1), (2, 1)][..]));
    assert!((found.overlap() - 0.7).abs() < 1e-12 && (found.layers_per_token() - 2.0 / 3.0).abs() < 1e-12);
    for (b, name) in [
        (RoutingTrace::from_ids(&[0, 1, 2, 3], 1, 5, 2, 2).unwrap(), "tokens"),
        (RoutingTrace::from_ids(&[0, 1, 2, 3, 0, 1], 3, 5, 1, 2).unwrap(), "layers"),
        (RoutingTrace::from_ids(&[0, 1, 2, 3, 0, 1], 3, 5, 2, 1).unwrap(), "top_k"),
    ] {
        refused(mismatch(&a.view(), &b.view()), &format!("…`{name} of the second trace`…"));
    }
    // A view of an engine's memory that has not been validated.
    let raw = [0u8, 1, 2, 3, 4, 4];
    let raw = Trace::narrow(In::new(&raw), 1, 2);
    refused(mismatch(&raw, &raw), "…`trace`[2, 0, 1] is 4, the same as entry 0…");
}

#[test]
fn kl_of_gates_by_hand() {
    let a = RoutingTrace::from_ids(&[0, 1, 2, 3, 0, 1, -1, -1], 2, 5, 2, 2).unwrap();
    let b = RoutingTrace::from_ids(&[1, 0, 2, 4, 0, 1, 3, 4], 2, 5, 2, 2).unwrap();
    // Token 0: the same experts in another order, not normalised; then other experts. Token 1: the same
    // gates; then no record.
    let (in_a, in_b) =
        ([0.75, 0.25, 0.5, 0.5, 0.6, 0.4, 0.0, 0.0], [1.0, 1.0, 0.5, 0.5, 0.3, 0.2, 9.0, f32::NAN]);
    let found = gate_kl((&a.view(), &in_a), (&b.view(), &in_b)).unwrap();
    let kl = 0.75 * (0.75f64 / 0.5).ln() + 0.25 * (0.25f64 / 0.5).ln();
    assert_eq!((found.routers, found.left_out), (2, 1));
    assert!((found.sum - kl).abs() < 1e-7 && (found.mean() - kl / 2.0).abs() < 1e-7, "{found:?}");
    assert!((found.layer_means()[0] - kl / 2.0).abs() < 1e-7 && found.layer_means()[1] == 0.0);
    let same = gate_kl((&a.view(), &in_a), (&a.view(), &in_a)).unwrap();
    assert_eq!((same.routers, same.sum), (3, 0.0));
    // A gate that underflowed in b does not make it infinite, and a gate of 0 in a has no weight.
    let one = RoutingTrace::from_ids(&[0, 1], 1, 5, 1, 2).unwrap();
    let kl = |a: [f32; 2], b: [f32; 2]| gate_kl((&one.view(), &a), (&one.view(), &b)).map(|found| found.sum);
    assert!((kl([0.5, 0.5], [1.0, 0.0]).unwrap() - (0.5f64.ln() + 0.5 * 126.0 * 2f64.ln())).abs() < 1e-6);
    assert!((kl([1.0, 0.0], [0.5, 0.5]).unwrap() - 2f64.ln()).abs() < 1e-12);
    for (a, b, says) in [
        (&[0.5, -0.5][..], &[0.5, 0.5], "…`first gates`[1] is -0.5…"),
        (&[0.5, 0.5], &[f32::NAN, 0.5], "…`second gates`[0] is NaN…"),
        (&[0.0, 0.0], &[0.5, 0.5], "…`first gates`[0] is 0…"),
        (&[1.0], &[0.5, 0.5], "…`first gates`…"),
    ] {
        refused(gate_kl((&one.view(), a), (&one.view(), b)), says);
    }
}

/// ln(Σ_I p / Σ_I* p) is KL(g* ‖ p) − KL(g ‖ p), for every kind of router, and never negative without a bias.
#[test]
fn kl_of_replayed_gates_is_a_difference_of_divergences() {
    let device = Device::cpu();
    let source = Source::new(11);
    let (rows, experts, k) = (40usize, 10usize, 3usize);
    let scores: Vec<f32> = (0..rows * experts).map(|i| 3.0 * source.signed(i)).collect();
    let ids: Vec<i32> =
        (0..rows).flat_map(|row| (0..k).map(move |j| ((row * 3 + 7 * j) % 10) as i32)).collect();
    let trace = RoutingTrace::from_ids(&ids, rows / 2, experts, 2, k).unwrap();
    use RouterKind::{Sigmoid, SigmoidNormalized, SoftmaxAll, SoftmaxChosen};
    for kind in [SoftmaxChosen, SoftmaxAll, SigmoidNormalized, Sigmoid] {
        let router = Router { scale: 2.5, ..Router::new(kind, experts, k) };
        let found = replay_kl(&device, &router, &scores, None, &trace.view()).unwrap();
        let mut want = 0.0;
        for row in 0..rows {
            let wide: Vec<f64> = scores[row * experts..][..experts].iter().map(|s| f64::from(*s)).collect();
            let weight = |s: f64| if kind.sigmoid() { 1.0 / (1.0 + (-s).exp()) } else { s.exp() };
            let all: f64 = wide.iter().map(|s| weight(*s)).sum();
            let mut order: Vec<usize> = (0..experts).collect();
            order.sort_by(|a, b| wide[*b].total_cmp(&wide[*a]));
            let kl = |chosen: &[usize]| -> f64 {
                let of: Vec<f64> = chosen.iter().map(|e| weight(wide[*e])).collect();
                let part: f64 = of.iter().sum();
                of.iter().map(|w| w / part * ((w / part) / (w / all)).ln()).sum()
            };
            let record: Vec<usize> = ids[row * k..][..k].iter().map(|id| *id as usize).collect();
            want += kl(&record) - kl(&order[..k]);
        }
        assert!((found.sum - want).abs() < 1e-6 * want.abs().max(1.0), "{kind:?}: {} {want}", found.sum);
        assert!(found.routers == rows && found.layers.iter().all(|(n, sum)| *n == rows / 2 && *sum > 0.0));
        let live = RoutingTrace::live(&device, &router, 2, &scores, None).unwrap();
        assert_eq!(replay_kl(&device, &router, &scores, None, &live.view()).unwrap().sum, 0.0);
    }
    let router = Router::new(RouterKind::SoftmaxChosen, experts, k);
    refused(replay_kl(&device, &router, &scores[10..], None, &trace.view()), "…`trace`…");
    let few = RoutingTrace::from_ids(&ids[..2 * rows], rows / 2, experts, 2, 2).unwrap();
    refused(replay_kl(&device, &router, &scores, None, &few.view()), "…`top_k of the trace`…");
}

#[test]
fn recorded_choices_are_whole_tokens() {
    let mut trace = RoutingTrace::new(5, 2, 2).unwrap();
    trace.append_chosen(&Ids::U8(vec![0, 1, 2, 3])).unwrap();
    assert_eq!(trace.tokens(), 1);
    refused(trace.append_chosen(&Ids::U8(vec![0, 1])), "…`chosen`…whole tokens…");
    // 260 would be expert 4 as a byte.
    let beyond = Ids::U16(vec![0, 1, 260, 3]);
    refused(trace.append_chosen(&beyond), "`chosen`[2] is 260: expected an expert of the trace");
    assert_eq!(trace.tokens(), 1);
    refused(trace.view().validate(1, 0), "…expected an expert below 0…");
}

#[test]
fn mean_absolute_log_ratio() {
    let (cu_seqlens, cu_groups) = ([0, 2, 4], [0, 2]);
    let batch = Batch::new(&cu_seqlens, &cu_groups, Some(&[1, 1, 0, 1])).unwrap();
    let (old, rollout) = ([-1.0, -2.0, f32::NAN, -3.0], [-1.5, -1.5, 0.0, -3.25]);
    assert_eq!(mean_abs_log_ratio(&batch, &old, &rollout).unwrap(), 1.25 / 3.0);
    let above = mean_abs_log_ratio(&batch, &[-1.0, 0.5, 0.0, 0.0], &rollout);
    refused(above, "…`logp_old`[1] is 0.5…");
    refused(mean_abs_log_ratio(&batch, &[-1.0, 0.0, 0.0], &rollout), "…`logp_old`…");
    let none = Batch::new(&cu_seqlens, &cu_groups, Some(&[0; 4])).unwrap();
    assert_eq!(mean_abs_log_ratio(&none, &old, &rollout).unwrap(), 0.0);
}
