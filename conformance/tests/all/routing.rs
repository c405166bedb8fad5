//! Routing replay: the worked vectors, finite differences, the same bits on every level, traces that are refused.

use lockstep::core::ragged::{In, Mask};
use lockstep::core::routing::{Place, Replay, Router, RouterKind, Trace, TraceFault, filler};
use lockstep::ops::correction::mean_abs_log_ratio;
use lockstep::ops::{balance_loss, gating_backward, gating_forward};
use lockstep::routing::{Ids, LoadSum, RoutingTrace, gate_kl, load, mismatch, replay_kl};
use lockstep::{Batch, Device, Error, Level};
use lockstep_conformance::accuracy::Measured;
use lockstep_conformance::cases::Case;
use lockstep_conformance::cases::hash::Source;
use lockstep_conformance::cases::random::random;
use lockstep_conformance::ops::{OpTest, balance, gating};
use lockstep_conformance::oracle::balance as oracle_balance;
use lockstep_conformance::oracle::gating_forward::{Rule, gates, natural};
use lockstep_conformance::precision::{FINITE_DIFFERENCE, STEP};
use lockstep_conformance::{launch, suite};

const SCORES: [f32; 4] = [1.0, 2.0, 0.5, -1.0];

fn near(got: &[f32], want: &[f64]) {
    assert_eq!(got.len(), want.len());
    for (got, want) in got.iter().zip(want) {
        assert!((f64::from(*got) - want).abs() < 1e-6, "{got} against {want}");
    }
}

fn replayed(kind: RouterKind, record: &[i32]) -> Vec<f32> {
    let trace = RoutingTrace::from_ids(record, 1, 4, 1, record.len()).unwrap();
    let replay = Replay { trace: trace.view(), mask: Mask::all() };
    let router = Router::new(kind, 4, record.len());
    gating_forward(&Device::cpu(), &router, &SCORES, None, Some(replay)).unwrap().gates
}

#[test]
fn worked_8_3_routing() {
    let device = Device::cpu();
    let router = Router::new(RouterKind::SoftmaxChosen, 4, 2);
    let own = gating_forward(&device, &router, &SCORES, None, None).unwrap();
    assert_eq!((own.chosen, own.replayed), (Ids::U8(vec![1, 0]), 0));
    near(&own.gates, &[0.731059, 0.268941]);
    near(&replayed(RouterKind::SoftmaxChosen, &[0, 2]), &[0.622459, 0.377541]);
    // The order of the record is the order of the gates.
    near(&replayed(RouterKind::SoftmaxChosen, &[2, 0]), &[0.377541, 0.622459]);
    let trace = RoutingTrace::from_ids(&[0, 2], 1, 4, 1, 2).unwrap();
    let replay = Replay { trace: trace.view(), mask: Mask::all() };
    let gating = gating_forward(&device, &router, &SCORES, None, Some(replay)).unwrap();
    let gradient = gating_backward(&device, &router, &SCORES, &gating, &[1.0, 0.0]).unwrap();
    near(&gradient, &[0.235004, 0.0, -0.235004, 0.0]);
}

#[test]
fn row_10_21_router_weights() {
    near(&replayed(RouterKind::SoftmaxChosen, &[0, 2]), &[0.622459, 0.377541]);
    near(&replayed(RouterKind::SoftmaxAll, &[0, 2]), &[0.224208, 0.135989]);
    near(&replayed(RouterKind::SigmoidNormalized, &[0, 2]), &[0.540117, 0.459883]);
    near(&replayed(RouterKind::Sigmoid, &[0, 2]), &[0.731059, 0.622459]);
}

#[test]
fn the_gradient_is_that_of_the_oracle_natural_and_replayed() {
    use RouterKind::{Sigmoid, SigmoidNormalized, SoftmaxAll, SoftmaxChosen};
    let source = Source::new(5);
    for kind in [SoftmaxChosen, SoftmaxAll, SigmoidNormalized, Sigmoid] {
        let router = Router { scale: 1.5, ..Router::new(kind, 10, 3) };
        let rule = Rule {
            sigmoid: kind.sigmoid(),
            over_chosen: matches!(kind, SoftmaxChosen | SigmoidNormalized),
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
            for e in 0..10 {
                let loss = |step: f64| -> f64 {
                    let mut moved = wide.clone();
                    moved[e] += step;
                    gates(&moved, &chosen, &rule).iter().zip(coef).map(|(g, c)| g * f64::from(c)).sum()
                };
                let want = (loss(STEP) - loss(-STEP)) / (2.0 * STEP);
                assert!((f64::from(got[e]) - want).abs() <= FINITE_DIFFERENCE, "{kind:?} {e}");
            }
            // Megatron #79: an expert that only the record has must not lose its gradient.
            assert!(chosen.iter().all(|e| got[*e] != 0.0));
        }
    }
}

fn cases() -> Vec<Case> {
    let mut cases = gating::Gating::corpus(Source::new(3));
    cases.extend(balance::Balance::corpus(Source::new(4)));
    for op in gating::Gating::OPS.iter().chain(balance::Balance::OPS) {
        cases.extend((0..60).map(|seed| random(op, seed).unwrap()));
    }
    cases
}

#[test]
fn accuracy() {
    let plain = Device::cpu_with(Some(Level::Plain), Some(1)).unwrap();
    let mut measured = Measured::default();
    for case in cases() {
        measured
            .add(&case, &launch::run(&plain, &case).unwrap())
            .unwrap_or_else(|failure| panic!("{failure}"));
    }
    for ((op, output), (units, label)) in measured.0 {
        println!("{op} {output}: {units:.2} units [{label}]");
    }
}

#[test]
fn levels_agree_and_rows_are_their_own() {
    let cases = cases();
    let plain = Device::cpu_with(Some(Level::Plain), Some(1)).unwrap();
    for level in Level::available() {
        let device = Device::cpu_with(Some(level), Some(2)).unwrap();
        assert!(suite::same_bits(&device, &plain, &cases).unwrap() > 10_000);
        assert!(suite::row_alone(&device, &cases).unwrap() > 10_000);
        assert!(suite::faults_are_local(&device, &cases).unwrap() > 1000);
    }
    let cpu = lockstep_cpu::Cpu::new(Level::best(), 1).unwrap();
    assert!(suite::rows_are_disjoint(&cpu, &cases).unwrap() > 1000);
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
    // R2 in the first mini-batch: the target policy is unaltered.
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

#[test]
fn ties_go_to_the_lowest_index() {
    let router = Router::new(RouterKind::SoftmaxChosen, 6, 3);
    let out = gating_forward(&Device::cpu(), &router, &[-0.0, 1.0, 0.0, 1.0, 0.0, -0.0], None, None).unwrap();
    assert_eq!(out.chosen, Ids::U8(vec![1, 3, 0]));
}

/// Scores without order, with few values, all equal, zeros of both signs, as bf16, any bits that are finite.
fn scores_of(style: usize, source: Source, count: usize) -> Vec<f32> {
    let of = |i: usize| match style {
        0 => 4.0 * source.signed(i),
        1 => source.below(i, 5) as f32,
        2 => 0.25,
        3 => [0.0, -0.0, 1e-42, -1e-42][source.below(i, 4)],
        4 => f32::from_bits(source.signed(i).to_bits() & 0xffff_0000),
        _ => Some(f32::from_bits(source.bits(i) as u32)).filter(|x| x.is_finite()).unwrap_or(f32::MAX),
    };
    (0..count).map(of).collect()
}

#[test]
fn every_level_picks_what_sorting_picks() {
    let shapes = [
        (1, 1),
        (8, 2),
        (16, 16),
        (17, 3),
        (32, 4),
        (33, 32),
        (127, 8),
        (128, 8),
        (128, 1),
        (129, 9),
        (256, 8),
        (384, 8),
        (500, 17),
        (512, 10),
    ];
    for (experts, top_k) in shapes {
        for style in 0..6 {
            let (source, rows) = (Source::new(style as u64).fork(experts as u64), 5);
            let scores = scores_of(style, source, rows * experts);
            let mut want = Vec::new();
            for row in scores.chunks(experts) {
                let mut order: Vec<usize> = (0..experts).collect();
                // Stable: equal scores, zeros of both signs among them, by the lower index.
                order.sort_by(|a, b| row[*b].partial_cmp(&row[*a]).unwrap());
                want.extend(order[..top_k].iter().map(|e| *e as u16));
            }
            let router = Router::new(RouterKind::SoftmaxChosen, experts, top_k);
            let plain = Device::cpu_with(Some(Level::Plain), Some(1)).unwrap();
            let first = gating_forward(&plain, &router, &scores, None, None).unwrap();
            let ids = match &first.chosen {
                Ids::U8(ids) => ids.iter().map(|e| u16::from(*e)).collect(),
                Ids::U16(ids) => ids.clone(),
            };
            assert_eq!(ids, want, "{experts} {top_k} {style}");
            for level in Level::available() {
                let device = Device::cpu_with(Some(level), Some(2)).unwrap();
                let own = gating_forward(&device, &router, &scores, None, None).unwrap();
                assert_eq!(own.chosen, first.chosen, "{level} {experts} {top_k} {style}");
                assert!(own.gates.iter().zip(&first.gates).all(|(a, b)| a.to_bits() == b.to_bits()));
            }
        }
    }
}

#[test]
fn a_score_that_is_not_finite_is_named_at_every_level() {
    for level in Level::available() {
        let device = Device::cpu_with(Some(level), Some(1)).unwrap();
        for (at, bad) in [(0, f32::NAN), (127, f32::INFINITY), (200, f32::NEG_INFINITY), (255, -f32::NAN)] {
            let mut scores = scores_of(0, Source::new(1), 256);
            scores[at] = bad;
            for kind in [RouterKind::SoftmaxChosen, RouterKind::SoftmaxAll, RouterKind::Sigmoid] {
                let error =
                    gating_forward(&device, &Router::new(kind, 128, 8), &scores, None, None).unwrap_err();
                assert!(error.to_string().contains(&format!("`scores`[{at}]")), "{level}: {error}");
            }
        }
    }
}

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
    // As a byte, the missing one would be expert 255.
    assert_eq!(fault(&[0, 1, 5, -1], 2), TraceFault::Partial { place });
    assert_eq!(fault(&[0, 1], 2), TraceFault::OneTokenShort { tokens: 2 });
    assert_eq!(fault(&[0, 1], 4), TraceFault::Shape { expected: 8, got: 2 });
    assert!(RoutingTrace::from_ids(&[255, 0, -1, -1], 2, 256, 1, 2).is_ok());
    let error = RoutingTrace::from_ids(&[0, 256], 1, 256, 1, 2).unwrap_err().to_string();
    assert!(error.contains("`trace`[1] is 256"), "{error}");
    let error = fault(&[0, 1, 5, 5], 2).to_string();
    assert!(error.contains("`trace`[1, 0, 1] is 5"), "{error}");
    // A trace made for more experts than the router has.
    let trace = RoutingTrace::from_ids(&[3, 9], 1, 16, 1, 2).unwrap();
    let replay = Replay { trace: trace.view(), mask: Mask::all() };
    let router = Router::new(RouterKind::SoftmaxAll, 4, 2);
    let error = gating_forward(&Device::cpu(), &router, &SCORES, None, Some(replay)).unwrap_err();
    assert!(matches!(error, Error::Trace(TraceFault::Range { expert: 9, experts: 4, .. })), "{error}");
    let nan = [1.0, 2.0, f32::NAN, 0.0];
    let error = gating_forward(&Device::cpu(), &router, &nan, None, None).unwrap_err().to_string();
    assert!(error.contains("`scores`[2]"), "{error}");
}

#[test]
fn balance_loss_and_its_gradient() {
    let trace = RoutingTrace::from_ids(&[0, 1, 0, 2, 0, 1, -1, -1], 4, 3, 1, 2).unwrap();
    let f = load(&trace.view(), 3, LoadSum::One).unwrap();
    assert_eq!(f, [3.0 / 6.0, 2.0 / 6.0, 1.0 / 6.0]);
    // Hugging Face counts per token: the sum is K.
    assert_eq!(load(&trace.view(), 3, LoadSum::TopK).unwrap(), [1.0, 2.0 / 3.0, 1.0 / 3.0]);
    // Uniform scores: E Σ f/E = Σ f = 1, and no slope but that of the load.
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
    for i in 0..12 {
        let moved = |step: f64| {
            let mut scores = f64s(&scores);
            scores[i] += step;
            loss(&scores)
        };
        let want = (moved(STEP) - moved(-STEP)) / (2.0 * STEP);
        assert!((f64::from(got.gradient[i]) - want).abs() <= FINITE_DIFFERENCE, "{i}");
    }
    assert!(balance_loss(&Device::cpu(), &scores, &[f32::NAN, 0.0, 0.0], 1.0).is_err());
    assert!(balance_loss(&Device::cpu(), &scores[..11], &f, 1.0).is_err());
}

#[test]
fn mismatch_counts_routers_tokens_and_layers() {
    let a = RoutingTrace::from_ids(&[0, 1, 2, 3, 0, 1, 2, 3, 0, 1, -1, -1], 3, 5, 2, 2).unwrap();
    let b = RoutingTrace::from_ids(&[1, 0, 2, 4, 0, 1, 3, 2, 2, 3, 0, 1], 3, 5, 2, 2).unwrap();
    let found = mismatch(&a.view(), &b.view()).unwrap();
    assert_eq!((found.routers, found.differing, found.tokens, found.tokens_differing), (5, 2, 3, 2));
    assert_eq!((found.shared, &found.layers[..]), (7, &[(3, 1), (2, 1)][..]));
    assert!((found.overlap() - 0.7).abs() < 1e-12 && (found.layers_per_token() - 2.0 / 3.0).abs() < 1e-12);
    let wrong = |b: &RoutingTrace| mismatch(&a.view(), &b.view()).unwrap_err().to_string();
    for (other, expected) in [
        (RoutingTrace::from_ids(&[0, 1, 2, 3], 1, 5, 2, 2).unwrap(), "`tokens of the second trace`"),
        (RoutingTrace::from_ids(&[0, 1, 2, 3, 0, 1], 3, 5, 1, 2).unwrap(), "`layers of the second trace`"),
        (RoutingTrace::from_ids(&[0, 1, 2, 3, 0, 1], 3, 5, 2, 1).unwrap(), "`top_k of the second trace`"),
    ] {
        let error = wrong(&other);
        assert!(error.contains(expected), "{error}");
    }
    // A view of an engine's memory, which nobody has validated.
    let raw = [0u8, 1, 2, 3, 4, 4];
    let raw = Trace::narrow(In::new(&raw), 1, 2);
    let error = mismatch(&raw, &raw).unwrap_err().to_string();
    assert!(error.contains("`trace`[2, 0, 1] is 4, as entry 0 is"), "{error}");
}

#[test]
fn kl_of_gates_by_hand() {
    let a = RoutingTrace::from_ids(&[0, 1, 2, 3, 0, 1, -1, -1], 2, 5, 2, 2).unwrap();
    let b = RoutingTrace::from_ids(&[1, 0, 2, 4, 0, 1, 3, 4], 2, 5, 2, 2).unwrap();
    // Token 0: the same experts in another order and not normalised; other experts. Token 1: the same gates; no record.
    let (in_a, in_b) =
        ([0.75, 0.25, 0.5, 0.5, 0.6, 0.4, 0.0, 0.0], [1.0, 1.0, 0.5, 0.5, 0.3, 0.2, 9.0, f32::NAN]);
    let found = gate_kl((&a.view(), &in_a), (&b.view(), &in_b)).unwrap();
    let kl = 0.75 * (0.75f64 / 0.5).ln() + 0.25 * (0.25f64 / 0.5).ln();
    assert_eq!((found.routers, found.left_out), (2, 1));
    assert!((found.sum - kl).abs() < 1e-7 && (found.mean() - kl / 2.0).abs() < 1e-7, "{found:?}");
    assert!((found.layer_means()[0] - kl / 2.0).abs() < 1e-7 && found.layer_means()[1] == 0.0);
    let same = gate_kl((&a.view(), &in_a), (&a.view(), &in_a)).unwrap();
    assert_eq!((same.routers, same.sum), (3, 0.0));
    // A gate that underflowed in b does not make it infinite, one of 0 in a weighs nothing.
    let one = RoutingTrace::from_ids(&[0, 1], 1, 5, 1, 2).unwrap();
    let kl = |a: [f32; 2], b: [f32; 2]| gate_kl((&one.view(), &a), (&one.view(), &b)).map(|found| found.sum);
    assert!((kl([0.5, 0.5], [1.0, 0.0]).unwrap() - (0.5f64.ln() + 0.5 * 126.0 * 2f64.ln())).abs() < 1e-6);
    assert!((kl([1.0, 0.0], [0.5, 0.5]).unwrap() - 2f64.ln()).abs() < 1e-12);
    for (a, b, expected) in [
        ([0.5, -0.5], [0.5, 0.5], "`first gates`[1] is -0.5"),
        ([0.5, 0.5], [f32::NAN, 0.5], "`second gates`[0] is NaN"),
        ([0.0, 0.0], [0.5, 0.5], "`first gates`[0] is 0"),
    ] {
        let error = kl(a, b).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    let error = gate_kl((&one.view(), &[1.0]), (&one.view(), &[0.5, 0.5])).unwrap_err().to_string();
    assert!(error.contains("`first gates`"), "{error}");
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
    for kind in [
        RouterKind::SoftmaxChosen,
        RouterKind::SoftmaxAll,
        RouterKind::SigmoidNormalized,
        RouterKind::Sigmoid,
    ] {
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
                let part: f64 = chosen.iter().map(|e| weight(wide[*e])).sum();
                chosen
                    .iter()
                    .map(|e| weight(wide[*e]))
                    .map(|w| w / part * ((w / part) / (w / all)).ln())
                    .sum()
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
    let error = replay_kl(&device, &router, &scores[10..], None, &trace.view()).unwrap_err().to_string();
    assert!(error.contains("`trace`"), "{error}");
    let few = RoutingTrace::from_ids(&ids[..2 * rows], rows / 2, experts, 2, 2).unwrap();
    let error = replay_kl(&device, &router, &scores, None, &few.view()).unwrap_err().to_string();
    assert!(error.contains("`top_k of the trace`"), "{error}");
}

#[test]
fn recorded_choices_are_whole_tokens() {
    let mut trace = RoutingTrace::new(5, 2, 2).unwrap();
    trace.append_chosen(&Ids::U8(vec![0, 1, 2, 3])).unwrap();
    assert_eq!(trace.tokens(), 1);
    let error = trace.append_chosen(&Ids::U8(vec![0, 1])).unwrap_err().to_string();
    assert!(error.contains("`chosen`") && error.contains("whole tokens"), "{error}");
}

#[test]
fn mean_absolute_log_ratio() {
    let (cu_seqlens, cu_groups) = ([0, 2, 4], [0, 2]);
    let batch = Batch::new(&cu_seqlens, &cu_groups, Some(&[1, 1, 0, 1])).unwrap();
    let (old, rollout) = ([-1.0, -2.0, f32::NAN, -3.0], [-1.5, -1.5, 0.0, -3.25]);
    assert_eq!(mean_abs_log_ratio(&batch, &old, &rollout).unwrap(), 1.25 / 3.0);
    let wrong = |old: &[f32]| mean_abs_log_ratio(&batch, old, &rollout).unwrap_err().to_string();
    assert!(wrong(&[-1.0, 0.5, 0.0, 0.0]).contains("`logp_old`[1] is 0.5"));
    assert!(wrong(&[-1.0, 0.0, 0.0]).contains("`logp_old`"));
    let none = Batch::new(&cu_seqlens, &cu_groups, Some(&[0; 4])).unwrap();
    assert_eq!(mean_abs_log_ratio(&none, &old, &rollout).unwrap(), 0.0);
}
