//! Rewards: the worked vectors of docs/maths/vectors.md, filters, shaping and judges by hand.

use super::{columns, named, of_group, ones};
use crate::prelude::*;
use lockstep::core::advantage::Sharpening;
use lockstep::core::reward::{Criterion, Shaping};
use lockstep::ops::filter::Status;
use lockstep::ops::reward::{Bands, ShapeParams, VarianceParams, majority};
use lockstep::ops::sharpen::SharpenParams;
use lockstep::schedules::judge::{Verdict, solver, step_reward, verifier};
use lockstep::schedules::rapo_reward::{ToolUse, group_factor};
use lockstep_conformance::oracle::variance_increase as oracle;

#[test]
fn worked_8_6_grpovi() {
    let rewards = [0.9f32, 0.6, 0.5, 0.1];
    let want = [1.0, 1.0, 0.1, 0.0];
    // The oracle: uniform p, every (k, l); variance 0.226875 instead of 0.081875, at (2, 3).
    let (r, p) = (rewards.map(f64::from), [0.25; 4]);
    let splits = oracle::splits(&r, &p, [0.0, 1.0], false);
    let best = oracle::best(&splits).unwrap();
    let start = oracle::split(&r, &p, &oracle::order(&r), (0, 4), [0.0, 1.0]).unwrap();
    assert_eq!((best.k, best.l), (2, 3));
    assert!((best.variance - 0.226875).abs() < WORKED && start.variance == 0.0);
    let mean = r.iter().sum::<f64>() / 4.0;
    let before = r.iter().map(|r| (r - mean).powi(2)).sum::<f64>() / 4.0;
    assert!((before - 0.081875).abs() < WORKED);
    // The printed path (0,4) → (0,3) → (1,3) → (2,3): each step is feasible and better than the one before.
    let at = |k, l| splits.iter().find(|s| (s.k, s.l) == (k, l)).unwrap().variance;
    assert!(at(0, 4) < at(0, 3) && at(0, 3) < at(1, 3) && at(1, 3) < at(2, 3));

    let batch = Batch::new(&[0, 1, 2, 3, 4], &[0, 4], None).unwrap();
    let params = VarianceParams { low: 0.0, high: 1.0, ..VarianceParams::OWN };
    for merge_ties in [true, false] {
        let params = VarianceParams { merge_ties, ..params };
        let z = ops::variance_increase(&Device::cpu(), &batch, &rewards, None, &params).unwrap();
        assert_worked(&z, &want);
    }
    let toml = "[reward.shaping]\nkind = \"grpovi\"\nlow = 0.0\nhigh = 1.0\n";
    let got = of_group(&Recipe::from_toml(toml).unwrap(), &ones(4), &columns(&rewards)).unwrap();
    assert_worked(&got.advantage, &[0.863635, 0.863635, -0.772726, -0.954544]);
}

#[test]
fn worked_8_6_overlong() {
    let lengths = [100u32, 150, 200, 250];
    let batch = Batch::new(&[0, 100, 250, 450, 700], &[0, 4], None).unwrap();
    for (saturate, beyond) in [(false, -1.5), (true, -1.0)] {
        let shaping = Shaping::Overlong { max_length: 200, buffer: 100, factor: 1.0, saturate };
        for lengths in [None, Some(&lengths[..])] {
            let params = ShapeParams { lengths, ..ShapeParams::new(shaping) };
            let got = ops::shape_rewards(&Device::cpu(), &batch, &[0.0; 4], None, &params).unwrap();
            assert_worked(&got, &[0.0, -0.5, -1.0, beyond]);
        }
    }
}

#[test]
fn grpovi_finds_what_an_exhaustive_search_finds() {
    let (mut groups, mut moved) = (0, 0);
    for seed in 0..4000u64 {
        let source = Source::new(seed).fork(6);
        let n = 2 + source.below(0, 9);
        // Half of the groups have many ties, half a skewed p.
        let levels = [5, 1000][seed as usize % 2];
        let r: Vec<f32> = (0..n).map(|i| source.fork(1).below(i, levels) as f32 / levels as f32).collect();
        let skew = [0.0, 1.0, 4.0][seed as usize % 3];
        let logp: Vec<f64> = (0..n).map(|i| -500.0 + skew * f64::from(source.fork(2).signed(i))).collect();
        let (low, high) = [(-0.5, 1.5), (f64::NEG_INFINITY, f64::INFINITY)][source.below(1, 2)];
        let merge_ties = source.below(2, 2) == 0;
        let (cu_seqlens, cu_groups) = (ones(n), [0, n as u32]);
        let batch = Batch::new(&cu_seqlens, &cu_groups, None).unwrap();
        let params = VarianceParams { logp: Some(&logp), low, high, merge_ties, margin: 0.0 };
        let got = ops::variance_increase(&Device::cpu(), &batch, &r, None, &params).unwrap();
        let x: Vec<f64> = r.iter().map(|r| f64::from(*r)).collect();
        let most = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let least = x.iter().copied().fold(f64::INFINITY, f64::min);
        if most == least {
            assert_eq!(got, r, "nothing to tell apart");
            continue;
        }
        groups += 1;
        let (low, high) =
            (if low.is_finite() { low } else { least }, if high.is_finite() { high } else { most });
        let p = oracle::softmax(&logp);
        let splits = oracle::splits(&x, &p, [low, high], merge_ties);
        let best = oracle::best(&splits).unwrap().variance;
        let mean: f64 = x.iter().zip(&p).map(|(x, p)| x * p).sum();
        let z: Vec<f64> = got.iter().map(|z| f64::from(*z)).collect();
        let variance: f64 = z.iter().zip(&p).map(|(z, p)| p * (z - mean).powi(2)).sum();
        let kept: f64 = z.iter().zip(&p).map(|(z, p)| z * p).sum();
        let before: f64 = x.iter().zip(&p).map(|(x, p)| p * (x - mean).powi(2)).sum();
        assert!((variance - best).abs() <= 1e-6 * best.max(1.0), "seed {seed}: {variance}, not {best}");
        assert!((kept - mean).abs() <= 1e-6, "seed {seed}: the mean moved");
        for (i, j) in (0..n).flat_map(|i| (0..n).map(move |j| (i, j))) {
            assert!(r[i] <= r[j] || got[i] >= got[j], "seed {seed}: order {i} {j}");
            assert!(!merge_ties || r[i] != r[j] || got[i] == got[j], "seed {seed}: a tie parted");
        }
        moved += usize::from(variance > before + 1e-6);
    }
    assert!(groups > 3500 && moved > 2500, "{groups} groups, variance grew in {moved}");
}

#[test]
fn grpovi_at_the_edges() {
    let of = |rewards: &[f32], logp: Option<&[f64]>| {
        let (cu_seqlens, cu_groups) = (ones(rewards.len()), [0, rewards.len() as u32]);
        let batch = Batch::new(&cu_seqlens, &cu_groups, None).unwrap();
        let params = VarianceParams { logp, ..VarianceParams::OWN };
        ops::variance_increase(&Device::cpu(), &batch, rewards, None, &params)
    };
    let run = |rewards: &[f32], logp| of(rewards, logp).unwrap();
    assert_eq!(run(&[0.3], None), [0.3]);
    assert_eq!(run(&[1.0, 0.0], None), [1.0, 0.0], "the extremes cannot move");
    assert_eq!(run(&[1.0, 1.000_000_1], None), [1.0, 1.000_000_1]);
    // Log-probabilities 1e4 apart: those of the others underflow to 0, and nothing is NaN.
    let far = run(&[0.5, 0.0, 1.0], Some(&[0.0, -1e4, -1e30]));
    assert!(far.iter().all(|z| z.is_finite()) && far[0] == 0.5, "{far:?}");
    refused(of(&[1.0, 0.0], Some(&[0.0, f64::NAN])), "`logp`[1]…");
}

#[test]
fn dapo_filter_is_exact_and_reports_what_it_drops() {
    // Eight times 0.1, whose binary32 deviation is nonzero; 1.0 beside 1.0000001; a group of one; a NaN
    // beside a number.
    let mut rewards = vec![0.1f32; 8];
    rewards.extend([1.0, 1.000_000_1, 5.0, f32::NAN, 2.0, f32::NAN, f32::NAN]);
    let (cu_seqlens, cu_groups) = (ones(15), [0, 8, 10, 11, 13, 15]);
    let batch = Batch::new(&cu_seqlens, &cu_groups, None).unwrap();
    let out = ops::filter_groups(&Device::cpu(), &batch, &rewards, None, Criterion::Varied).unwrap();
    assert_eq!(out.kept, [0, 2, 1, 2, 0]);
    assert_eq!((out.dropped_groups(), out.dropped_sequences()), (2, 10));
    assert_eq!((out.status(3), out.status(5)), (Status::Complete, Status::Partial { missing: 2 }));
    let packed = out.pack(&batch, usize::MAX).unwrap();
    assert_eq!((&packed.groups[..], &packed.sequences[..]), (&[1, 2, 3][..], &[8, 9, 10, 11, 12][..]));
    assert_eq!((&packed.cu_groups[..], &packed.cu_seqlens[..]), (&[0, 2, 3, 5][..], &ones(5)[..]));
    assert_eq!(out.pack(&batch, 1).unwrap().sequences, [8, 9], "truncated in the order of arrival");

    let large: Vec<f32> = (0..4096).map(|i| if i == 4000 { 1.0 } else { 0.1 }).collect();
    let (cu_seqlens, cu_groups) = (ones(4096), [0, 4096]);
    let batch = Batch::new(&cu_seqlens, &cu_groups, None).unwrap();
    let rate = Criterion::SolveRate { threshold: 0.0, limit: 0.9 };
    for (criterion, kept) in [(Criterion::Varied, 4096), (rate, 0)] {
        assert_eq!(ops::filter_groups(&Device::cpu(), &batch, &large, None, criterion).unwrap().kept, [kept]);
    }
}

#[test]
fn fapo_conciser_and_brpo_by_hand() {
    let flags = [0u8, 1, 0];
    let fapo = Rollouts { flawed: Some(&flags), ..columns(&[1.0, 1.0, 0.0]) };
    assert_worked(&named("fapo", &ones(3), &fapo).advantage, &[0.999999, 0.0, -0.999999]);
    // All correct: 1 − L/4096 for lengths 1024 and 2048; a mixed group is plain GRPO; an all-wrong group
    // gets 0.
    let half = std::f64::consts::FRAC_1_SQRT_2;
    let lengths = [0u32, 1024, 3072];
    let close = |name: &str, rewards: &[f32], want: f64| {
        let got = named(name, &lengths, &columns(rewards)).advantage;
        assert!((f64::from(got[0]) - want).abs() < 1e-5 && got[0] == -got[1], "{rewards:?}: {got:?}");
    };
    close("conciser", &[1.0, 1.0], half);
    close("conciser", &[0.0, 1.0], -half);
    close("conciser", &[0.0, 0.0], 0.0);

    let brpo = |rewards: &[f32], reference: u32| {
        let input = Rollouts { reference: Some(&[reference]), ..columns(rewards) };
        named("brpo", &ones(rewards.len()), &input)
    };
    let balanced = brpo(&[1.0, 0.0, 1.0, 0.0, 1.0], 1);
    assert_eq!((&balanced.advantage[..], &balanced.keep[..]), (&[1.0, 0.0, 1.0, -1.0, 1.0][..], &[1; 5][..]));
    // Four of five won: |Σ R|/G = 0.8 > 0.6.
    let one_sided = brpo(&[1.0, 0.0, 1.0, 1.0, 1.0], 1);
    assert_eq!((&one_sided.advantage[..], &one_sided.keep[..]), (&[0.0; 5][..], &[0; 5][..]));
    let beyond = Rollouts { reference: Some(&[2]), ..columns(&[1.0, 0.0]) };
    refused(of_group(&Recipe::named("brpo").unwrap(), &ones(2), &beyond), "`reference`[0]…");
}

#[test]
fn evol_rl_by_hand() {
    // Majority 0, 1, 2; minority 3; invalid 4.
    let (cu_seqlens, cu_groups) = (ones(5), [0, 5]);
    let batch = Batch::new(&cu_seqlens, &cu_groups, None).unwrap();
    let answers = [Some(7), Some(7), Some(7), Some(1), None];
    let classes = majority(&batch, &answers).unwrap();
    assert_eq!(classes, [1, 1, 1, 0, 2]);
    let mut s = [[f32::NAN; 5]; 5];
    for (i, j, value) in [(0, 1, 0.5), (0, 2, 0.25), (1, 2, 0.75), (0, 3, 0.0), (1, 3, 0.0), (2, 3, 0.0)] {
        (s[i][j], s[j][i]) = (value, value);
    }
    let similarity = s.concat();
    let bands = |batch: &Batch<'_>, classes: &[u32], similarity: &[f32]| {
        ops::novelty_bands(&Device::cpu(), batch, classes, similarity, None, &Bands::EVOL_RL)
    };
    let out = bands(&batch, &classes, &similarity).unwrap();
    // u: 1 − (0.375 + 0.5)/2, 1 − (0.625 + 0.75)/2, 1 − (0.5 + 0.75)/2.
    assert_worked(&out.novelty, &[0.5625, 0.3125, 0.375, 1.0, 0.0]);
    assert_worked(&out.rewards, &[1.0, 0.5, 0.625, -0.5, -1.0]);
    // All equal: 0.75 and −0.75; alone: 1.0.
    let alike = bands(&batch, &[1, 1, 0, 0, 0], &[0.5; 25]).unwrap();
    assert_worked(&alike.rewards, &[0.75, 0.75, -0.75, -0.75, -0.75]);
    let one = Batch::new(&[0, 1], &[0, 1], None).unwrap();
    assert_eq!(bands(&one, &[1], &[f32::NAN]).unwrap().rewards, [1.0]);
    let tie = majority(&batch, &[Some(3), Some(1), Some(1), Some(3), None]).unwrap();
    assert_eq!(tie, [1, 0, 0, 1, 2], "a tie goes to the answer that came first");
    let mut bad = similarity;
    bad[1] = f32::INFINITY;
    refused(bands(&batch, &classes, &bad), "`similarity`[1]…");
}

#[test]
fn xrpo_and_ace_by_hand() {
    // Means −0.5, −1.5, and −1 for the group: η = e^0.5, e^−0.5. The second is correct; 2.5 · 0.393469 is
    // limited to 0.5 A.
    let batch = Batch::new(&[0, 2, 4], &[0, 2], None).unwrap();
    let logp = [-0.25f32, -0.75, -1.0, -2.0];
    let run = |rewards: &[f32; 2], advantage: &[f32; 2], lambda, kappa| {
        let sharpening = Sharpening::Novelty { lambda, kappa };
        let params =
            SharpenParams { sharpening, threshold: 0.5, logp: &logp, logp_ref: None, per_token: true };
        ops::sharpen(&Device::cpu(), &batch, advantage, rewards, None, &params).unwrap()
    };
    assert_worked(&run(&[0.0, 1.0], &[-1.0, 1.0], 2.5, 0.5), &[-1.0, 1.5]);
    assert_worked(&run(&[0.0, 1.0], &[-1.0, 1.0], 1.0, 0.5), &[-1.0, 1.393469]);
    assert_worked(&run(&[1.0, 0.0], &[1.0, -1.0], 2.5, 0.5), &[1.0, -1.0]);

    // ACE: c = −1.25 + 3.25 = 2 for the wrong one; softplus(2) = 2.126928.
    let logp_ref = [-1.0f32, -1.0, -3.0, -3.25];
    let ace = |relu, cap| {
        let sharpening = Sharpening::Overconfidence { alpha: 1.0, cap, relu };
        let logp = [-1.0f32, -1.0, -1.0, -3.25];
        let logp_ref = Some(&logp_ref[..]);
        let params = SharpenParams { sharpening, threshold: 0.5, logp: &logp, logp_ref, per_token: false };
        ops::sharpen(&Device::cpu(), &batch, &[1.0, -1.0], &[1.0, 0.0], None, &params).unwrap()
    };
    assert_worked(&ace(false, 5.0), &[1.0, -3.126928]);
    assert_worked(&ace(true, 5.0), &[1.0, -3.0]);
    assert_worked(&ace(false, 2.0), &[1.0, -2.0]);
}

#[test]
fn rapo_by_hand() {
    let tools = ToolUse { calls: 4, redundant_searches: 1, unique_searches: 3, ..ToolUse::default() };
    let wasteful = ToolUse { calls: 4, redundant_searches: 2, redundant_queries: 2, ..ToolUse::default() };
    let busy = ToolUse { calls: 99, unique_searches: 50, unique_queries: 49, ..ToolUse::default() };
    for (tools, correct, share, want) in [
        (tools, true, 1.0, 0.1 + 0.75),
        (tools, false, 0.0, 0.2 * 2.0 / 8.0),
        (ToolUse::default(), true, 0.0, 1.0),
        (wasteful, true, 0.0, 0.5),
        (wasteful, false, 0.0, -0.2 * 2.0 / 8.0 - 0.2 * 2.0 / 16.0),
        (busy, false, 1.0, 0.5),
    ] {
        let got = tools.reward(correct, share);
        assert!((got - want).abs() < 1e-12, "{got}, not {want}");
    }
    let factors = [(8, 2, f64::INFINITY), (8, 1, 4.0), (8, 0, 4.0)];
    assert_eq!(factors.map(|(groups, good, cap)| group_factor(groups, good, cap)), [4.0, 4.0, 0.0]);
    // Two groups, one of them constant: the other's advantages are doubled.
    let rapo = Recipe::named("rapo").unwrap();
    let run = |rewards: [f32; 4]| {
        let rollouts = Rollouts { rewards: Some(&rewards), ..Rollouts::new(&[0, 1, 2, 3, 4], &[0, 2, 4]) };
        rapo.advantages(&Device::cpu(), &rollouts).unwrap()
    };
    let double = 2.0 * 0.999998;
    assert_worked(&run([1.0, 0.0, 1.0, 1.0]).advantage, &[double, -double, 0.0, 0.0]);
    assert_eq!(run([1.0; 4]).advantage, [0.0; 4]);
}

#[test]
fn judges_by_hand() {
    assert_eq!([solver(true), solver(false)], [1.0, 0.0]);
    let verdicts =
        [(Some(true), true), (Some(false), false), (Some(false), true), (Some(true), false), (None, true)];
    assert_eq!(verdicts.map(|(says, is)| verifier(says, is)), [1.0, 1.0, 0.0, 0.0, 0.0]);
    assert_eq!(step_reward(Verdict::FlawedAt(3), Some(3), 10), 1.0);
    assert_eq!(step_reward(Verdict::FlawedAt(1), Some(6), 10), 0.5);
    let minus = [
        (Verdict::Clean, Some(2)),
        (Verdict::FlawedAt(0), None),
        (Verdict::Unreadable, None),
        (Verdict::Unreadable, Some(1)),
    ];
    assert!(minus.iter().all(|(said, truth)| step_reward(*said, *truth, 10) == -1.0));
    assert_eq!(step_reward(Verdict::Clean, None, 0), 1.0);
}
