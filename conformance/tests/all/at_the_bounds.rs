//! Formulas on their bounds and just beyond, where a changed comparison shows and random cases seldom are.

use crate::gate_batch::one;
use crate::prelude::*;
use lockstep::core::advantage::{Baseline, Scale};
use lockstep::core::aggregate::exact::{ExactMoments, ExactSum};
use lockstep::core::aggregate::exact_sum::{CLASSES, NEGATIVE, POSITIVE, Summand};
use lockstep::core::correction::{K1Band, Rejections, Statistic};
use lockstep::core::gate::{Cispo, Divergence, Gate, MiniRl, PpoClip, Remix, Sample, TrustRegion};
use lockstep::core::logits::{LogitRows, OtrExact, OtrSampled};
use lockstep::core::num::{self, Soft};
use lockstep::core::policy_loss::SequenceRule;
use lockstep::core::ragged::{Mask, flag};
use lockstep::core::routing::{ChosenOut, GatingForward, Replay, Router, RouterKind, Trace};
use lockstep::ops::advantage::group_advantage;
use lockstep::ops::correction::{CorrectionParams, rollout_correction};
use lockstep::ops::logits::{Logits, otr_exact, otr_sampled};
use lockstep::ops::{gating_backward, gating_forward, sequence_weight};

fn near(got: &[f32], want: &[f32]) {
    let close = |(a, b): (&f32, &f32)| (a - b).abs() < 1e-6;
    assert!(got.len() == want.len() && got.iter().zip(want).all(close), "{got:?} is not {want:?}");
}

fn sample(ratio: f32, advantage: f32) -> Sample {
    let [logp, logp_old, logp_second] = [-1.0; 3];
    Sample { ratio, finite: false, advantage, logp, logp_old, logp_second, own_ratio: ratio }
}

#[test]
fn a_ratio_on_the_bound_is_inside() {
    let (clip_ratio_low, clip_ratio_high, clip_ratio_c) = (0.25, 0.25, 3.0);
    let ppo = PpoClip { clip_ratio_low, clip_ratio_high, clip_ratio_c };
    let mini_rl = MiniRl { clip_ratio_low, clip_ratio_high, clip_ratio_c };
    let remix = Remix { clip_ratio_low, clip_ratio_high };
    let cispo = Cispo { low: 0.75, high: 1.25 };
    for (ratio, advantage) in [(1.25, 1.0), (0.75, -1.0)] {
        let gates = |at| {
            [ppo.gate::<Soft>(at), mini_rl.gate::<Soft>(at), remix.gate::<Soft>(at), cispo.gate::<Soft>(at)]
        };
        let inside = gates(sample(ratio, advantage)).map(|gated| (gated.weight, gated.clipped));
        assert_eq!(inside, [(1.0, 0), (1.0, 0), (1.0, 0), (ratio, 0)]);
        let beyond = gates(sample(ratio + 0.01 * advantage, advantage));
        assert!(beyond.iter().all(|gated| gated.clipped != 0), "beyond {ratio}");
    }
    assert_eq!(ppo.gate::<Soft>(sample(3.0, -1.0)).clipped, 0);
}

#[test]
fn a_trust_region_keeps_what_is_on_its_bound() {
    let given = TrustRegion {
        divergence: Divergence::Given,
        clip_ratio_low: 0.5,
        clip_ratio_high: 0.5,
        clip_ratio_c: 10.0,
    };
    for (advantage, logp) in [(1.0, -0.5), (-1.0, -1.5)] {
        let at = |second| Sample { logp, logp_second: second, ..sample(1.0, advantage) };
        assert_eq!(given.gate::<Soft>(at(0.5)).clipped, 0);
        assert!(given.gate::<Soft>(at(0.51)).clipped != 0);
    }
    // A weight that underflows to 0 is a weight, and refuses nothing.
    let variation = TrustRegion { divergence: Divergence::TotalVariation, ..given };
    let far = Sample { logp: -110.0, logp_old: -110.0, logp_second: 0.0, ..sample(1.0, 1.0) };
    let gated = variation.gate::<Soft>(far);
    assert_eq!((gated.weight, gated.clipped), (0.0, 0));
}

#[test]
fn remix_centres_overflow_nowhere() {
    let remix = Remix { clip_ratio_low: 0.2, clip_ratio_high: 0.2 };
    let centre = |d: f32| remix.stage::<Soft>(Sample { logp_old: -d, logp_second: 0.0, ..sample(1.0, 1.0) });
    for d in [87.0, 87.5, 100.0] {
        assert_eq!(centre(d).to_bits(), num::exp::<Soft>(87.0).to_bits());
    }
    assert!(centre(86.5) < centre(87.0));
}

#[test]
fn a_sequence_at_the_mask_bound_is_kept() {
    let batch = Batch::new(&[0, 2, 4], &[0, 2], None).unwrap();
    // Means of logp_behave − logp: exactly 0.5, and above.
    let (logp, behave) = ([-1.0, -1.5, -1.0, -1.75], [-0.5, -1.0, -0.5, -1.0]);
    let rule = SequenceRule::OffPolicyMask { delta: 0.5 };
    let weights =
        sequence_weight(&Device::cpu(), &batch, [&logp, &behave], &[-1.0, -1.0], None, &rule).unwrap();
    assert_eq!(weights, [1.0, 1.0, 0.0, 0.0]);
}

#[test]
fn the_largest_k3_may_be_at_the_smallest_log_ratio() {
    // k3(−3) = 2.05 and k3(0.1) = 0.005; k3(3) would be 16.
    let batch = Batch::new(&[0, 2], &[0, 1], None).unwrap();
    let kept = |high: f32| {
        let reject = Rejections::NONE.with(Statistic::SeqMaxK3, None, high, K1Band::default()).unwrap();
        let params = CorrectionParams::NONE.reject(reject);
        rollout_correction(&Device::cpu(), &batch, &[-4.0, -0.5], &[-1.0, -0.6], &params).unwrap().kept[0]
    };
    assert_eq!((kept(2.1), kept(2.0)), (1, 0));
}

#[test]
fn a_prior_without_a_known_error_is_weighed_by_the_data() {
    // r̄ 0.75, s²/n 1/16, (r̄ − v₀)² 9/16: λ = 1/9, baseline 2/3.
    let batch = Batch::new(&[0, 1, 2, 3, 4], &[0, 4], None).unwrap();
    let advantage = |rewards: [f32; 4], given: f32| {
        let baseline = Baseline::Shrunk { tau2: 0.0, laplace: false };
        let params =
            GroupParams { given: Some(&[given]), ..GroupParams::new(baseline, Scale::None { ddof: 1 }) };
        group_advantage(&Device::cpu(), &batch, &rewards, None, &params).unwrap().advantage
    };
    let rewards = [1.0, 1.0, 0.0, 1.0];
    near(&advantage(rewards, 0.0), &rewards.map(|r| r - 2.0 / 3.0));
    // Rewards that all equal the prior say nothing against it.
    assert_eq!(advantage([0.5; 4], 0.5), [0.0; 4]);
}

#[test]
fn a_ratio_on_the_edge_of_the_band_is_in_it() {
    let fraction = |band: &str| {
        let recipe = Recipe::from_toml(&format!("extends = 'gmpo'\nmetrics.band = {band}\n")).unwrap();
        let logp = [-0.5, -1.0];
        one(&recipe, [&logp, &logp, &[]], 1.0).metrics.unwrap().in_band_fraction
    };
    assert_eq!(["[1.0, 1.2]", "[0.8, 1.0]", "[1.1, 1.2]"].map(fraction), [1.0, 1.0, 0.0]);
}

#[test]
fn labels_and_candidates_at_the_end_of_the_vocabulary_are_refused() {
    let z = [0.0f32, f32::NEG_INFINITY, 1.0, 0.5];
    let device = Device::cpu();
    let run = |label: u32| {
        let rows = Logits { logits: &z[..3], labels: &[label], loss_mask: None };
        let exact = otr_exact(&device, &rows, 1.0, 0.5, None, false).is_ok();
        (exact, otr_sampled(&device, &rows, &[0, 2], 0.5, None, false).is_ok())
    };
    assert_eq!([run(2), run(1), run(3)], [(true, true), (false, false), (false, false)]);
    // As a launch over device memory would, without the call's own look at the candidates.
    let alarm = |label: u32, candidates: Option<[u32; 2]>| {
        let (labels, mut loss, mut row_alarm) = ([label], [0.0], [0]);
        let rows = LogitRows { logits: In::new(&z), rows: 1, vocab: 4, live: Mask::new(None) };
        let (labels, coef, loss) = (In::new(&labels), In::new(&[1.0]), Out::new(&mut loss));
        let (beta, gradient, out) = (0.5, None, Out::new(&mut row_alarm));
        match candidates {
            Some(drawn) => {
                let (candidates, draws, row_alarm) = (In::new(&drawn), 2, out);
                let sampled =
                    OtrSampled { rows, labels, candidates, draws, beta, coef, loss, gradient, row_alarm };
                device.run(&sampled).unwrap();
            }
            None => {
                let (kappa, row_alarm) = (1.0, out);
                let exact = OtrExact { rows, labels, kappa, beta, coef, loss, gradient, row_alarm };
                device.run(&exact).unwrap();
            }
        }
        row_alarm[0] > flag::LIMIT
    };
    assert_eq!([3, 1, 4].map(|label| alarm(label, None)), [false, true, true]);
    let candidates = [[0, 3], [0, 4], [0, 1], [1, 4], [3, 0]];
    assert_eq!(candidates.map(|drawn| alarm(2, Some(drawn))), [false, true, true, true, true]);
}

#[test]
fn slopes_of_routers_where_the_exponential_vanishes() {
    // ds = g (c − d) / 2 with c = (1, 0) and d = g: the slope of ln √softplus is 1/2.
    let router = Router::new(RouterKind::SqrtSoftplus, 2, 2);
    let gating = gating_forward(&Device::cpu(), &router, &[-85.0, -85.0], None, None).unwrap();
    let g = gating.gates[0];
    let slopes = gating_backward(&Device::cpu(), &router, &[-85.0, -85.0], &gating, &[1.0, 0.0]).unwrap();
    near(&slopes, &[0.5 * g * (1.0 - g), -0.5 * g * g]);
}

#[test]
fn a_record_that_names_no_expert_raises_the_alarm() {
    // As a launch over device memory would, without the trace's own validation.
    let alarm = |ids: [u8; 2]| {
        let (mut chosen, mut gates, mut row_replayed, mut row_alarm) = ([0; 2], [0.0; 2], [0], [0]);
        let kernel = GatingForward {
            router: Router::new(RouterKind::SoftmaxChosen, 4, 2),
            rows: 1,
            scores: In::new(&[0.5, 0.25, 1.0, -1.0]),
            bias: None,
            replay: Some(Replay { trace: Trace::narrow(In::new(&ids), 1, 2), mask: Mask::new(None) }),
            chosen: ChosenOut::narrow(Out::new(&mut chosen)),
            gates: Out::new(&mut gates),
            group_scores: None,
            row_replayed: Out::new(&mut row_replayed),
            row_alarm: Out::new(&mut row_alarm),
        };
        Device::cpu().run(&kernel).unwrap();
        row_alarm[0] > flag::LIMIT
    };
    assert_eq!([[3, 0], [0, 4], [1, 1]].map(alarm), [false, true, true]);
}

const PPO: &str = "gate = { kind = 'ppo_clip', clip_ratio_c = 3.0 }\n";

/// dL/dlogp of the only token of a batch.
fn slope(choices: &str, [logp, logp_old]: [f32; 2], advantage: f32, outputs: Outputs) -> f32 {
    let recipe = Recipe::from_toml(&format!("aggregation.mode = 'token-sum'\n{choices}\n")).unwrap();
    let (logp, logp_old, mut out) = ([logp], [logp_old], Loss::default());
    let rollouts =
        Rollouts { logp: Some(&logp), logp_old: Some(&logp_old), ..Rollouts::new(&[0, 1], &[0, 1]) };
    let credit = Credit::per_sequence(vec![advantage]);
    recipe.loss_into(&Device::cpu(), &rollouts, &credit, outputs, &mut out).unwrap();
    out.coef[0]
}

/// Where log r = 1, without and with the loss: a CPU has other loops for each.
fn slopes(choices: &str, advantage: f32) -> [f32; 2] {
    let loss = Outputs { loss: true, ..Outputs::COEF };
    [Outputs::COEF, loss].map(|outputs| slope(choices, [-1.0, -2.0], advantage, outputs))
}

#[test]
fn a_token_outside_the_guard_keeps_its_gradient_where_it_is_straight_through() {
    // Guarded to 0.5; a negative advantage, which the clip at 0.8 does not stop: dL/dlogp = −A·r.
    for (guard, want) in [("clamp", 0.0), ("straight_through", 0.5f32.exp())] {
        near(&slopes(&format!("{PPO}ratio = {{ guard = '{guard}', guard_bound = 0.5 }}"), -1.0), &[want; 2]);
    }
}

#[test]
fn a_sequence_beyond_its_bound_has_no_gradient() {
    // A negative advantage, which the clip at 0.8 does not stop: dL/dlogp = −A·r within the bound.
    for (log_max, want) in [(0.5, 0.0), (1.5, 1f32.exp())] {
        let choices = format!("{PPO}ratio = {{ level = 'sequence', log_max = {log_max} }}");
        near(&slopes(&choices, -1.0), &[want; 2]);
    }
}

#[test]
fn dppo_bounds_the_move_of_the_token_itself_whatever_the_guard() {
    // p − q = e^−1 − e^−2 = 0.2325, whatever the guard: dL/dlogp = −A·r, with the guarded r = e^0.5, within.
    for (high, want) in [(0.2, 0.0), (0.25, -(0.5f32.exp()))] {
        let gate =
            format!("kind = 'dppo_tv', clip_ratio_low = 0.2, clip_ratio_high = {high}, clip_ratio_c = 20.0");
        near(&slopes(&format!("gate = {{ {gate} }}\nratio.guard_bound = 0.5"), 1.0), &[want; 2]);
    }
}

#[test]
fn a_guard_beyond_87_lets_a_ratio_be_subnormal() {
    // e^−87.8 and its power of two, 2^−127, are subnormal. dL/dlogp = −A·r, times 2^64 to be normal again.
    let choices = format!("{PPO}ratio.guard_bound = 87.85");
    let got = slope(&choices, [-88.8, -1.0], 2f32.powi(64), Outputs::ALL);
    let want = -(f64::from(-88.8f32 + 1.0)).exp() * 2f64.powi(64);
    assert!((f64::from(got) / want - 1.0).abs() < 1e-5, "{got} is not {want}");
}

#[test]
fn one_clamp_is_enough_to_leave_the_fused_loss() {
    let with =
        |estimator, clamp_in, clamp_out| Kl { clamp_in, clamp_out, ..Kl::new(estimator) }.clamps_apart();
    let none = f32::INFINITY;
    assert_eq!([with(KlFormula::K1, 1.0, none), with(KlFormula::K2, none, 1.0)], [true, true]);
    assert_eq!([with(KlFormula::K1, none, none), with(KlFormula::K3, 1.0, 1.0)], [false, false]);
}

#[test]
fn infinities_and_squares_of_exact_sums() {
    let planes = <f32 as Summand>::PLANES;
    for (class, sum) in [(POSITIVE, f64::INFINITY), (NEGATIVE, f64::NEG_INFINITY)] {
        let mut digits = vec![0.0; planes];
        digits[planes - CLASSES + class] = 1.0;
        let (found, count) = ExactSum::from_digits::<f32>(&digits).unwrap();
        assert_eq!((found.finish(), count), (sum, 1));
    }
    for values in
        [&[f64::INFINITY][..], &[f64::NEG_INFINITY], &[f64::NAN], &[f64::INFINITY, f64::NEG_INFINITY]]
    {
        let sum: ExactSum = values.iter().copied().collect();
        let again = ExactSum::from_bytes(&sum.to_bytes()).unwrap();
        assert_eq!((again, again.finish().to_bits()), (sum, sum.finish().to_bits()));
    }
    let mut moments = ExactMoments::NONE;
    let values = [1.1, 2.3, -0.7, 0.3];
    values.iter().for_each(|x| moments.add64(*x).unwrap());
    let mean = values.iter().sum::<f64>() / 4.0;
    let squares: f64 = values.iter().map(|x| (x - mean) * (x - mean)).sum();
    assert!((moments.squares() - squares).abs() < 1e-14, "{} {squares}", moments.squares());
}

/// A few hundred thousand inputs of the functions whose bounds other tests hold over many more, in more time.
#[test]
fn logarithms_within_their_bounds() {
    let ulps = |got: f32, want: f64| {
        let size = want.abs() as f32;
        (f64::from(got) - want).abs() / (f64::from(size.next_up()) - f64::from(size))
    };
    for bits in (1u32..f32::INFINITY.to_bits()).step_by(10_007) {
        let x = f32::from_bits(bits);
        let wide = f64::from(x);
        let mut all = vec![
            ("ln", num::ln::<Soft>(x), wide.ln(), 0.8),
            ("log1p", num::log1p::<Soft>(x), wide.ln_1p(), 0.85),
        ];
        if x > 88.0 && x < 88.7 {
            all.push(("expm1mx", num::expm1mx::<Soft>(x), wide.exp_m1() - wide, 2.5));
        }
        if x < 0.999 {
            all.push(("log1p of minus", num::log1p::<Soft>(-x), (-wide).ln_1p(), 0.85));
        }
        for (name, got, want, bound) in all {
            assert!(ulps(got, want) < bound, "{name} {x:e} is {got:e}");
        }
    }
}
