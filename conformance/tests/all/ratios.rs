//! Log-ratio scans, proximal interpolation, staleness, effective sample sizes: worked vectors of
//! docs/maths/vectors.md, and properties.

use crate::correction::{K, cpu, pair};
use crate::prelude::*;
use lockstep::core::num::Soft;
use lockstep::core::ratio::ess::{LrRule, ess, lr_scale};
use lockstep::core::ratio::{Interpolation, ScanKind};
use lockstep::ops::{
    log_ratio_scan, proximal_logp, segment_log_ratio, sequence_sample_sizes, staleness, token_sample_sizes,
};

/// Ratios of one sequence.
fn ratios(d: &[f32], kind: ScanKind, cap: bool) -> Vec<f32> {
    let offsets = [0, d.len() as u32];
    let (logp, old) = pair(d);
    let batch = Batch::new(&offsets, &[0, 1], None).unwrap();
    let log = log_ratio_scan(&cpu(), &batch, &logp, &old, kind, cap).unwrap();
    log.into_iter().map(f32::exp).collect()
}

#[test]
fn worked_8_4_prefixes_and_sequences() {
    for (kind, want) in [
        (ScanKind::Prefix, [1.105171, 0.818731, 1.0, 0.606531]),
        (ScanKind::PrefixBefore, [1.0, 1.105171, 0.818731, 1.0]),
        (ScanKind::Sum, [0.606531; 4]),
        (ScanKind::Mean, [0.882497; 4]),
    ] {
        assert_worked(&ratios(&K, kind, false), &want);
    }
}

#[test]
fn worked_8_4_min_pro_style() {
    for (kind, cap, want) in [
        (ScanKind::MinBefore, true, [1.105171, 0.740818, 0.904837, 0.449329]),
        // Without the cap the first ratio of 1.105171 raises the second token; the minimum never rises.
        (ScanKind::MinBefore, false, [1.105171, 0.818731, 0.904837, 0.449329]),
        (ScanKind::Min, false, [1.105171, 0.740818, 0.740818, 0.606531]),
        (ScanKind::Min, true, [1.0, 0.740818, 0.740818, 0.606531]),
    ] {
        assert_worked(&ratios(&K, kind, cap), &want);
    }
}

#[test]
fn the_last_prefix_is_the_sequence_and_a_minimum_never_rises() {
    let d: Vec<f32> = (0..777).map(|i| ((i * 37 % 101) as f32 - 50.0) / 64.0).collect();
    let (logp, old) = pair(&d);
    let batch = Batch::new(&[0, 777], &[0, 1], None).unwrap();
    let run = |kind| log_ratio_scan(&cpu(), &batch, &logp, &old, kind, false).unwrap();
    let [prefix, before, sum, least] =
        [ScanKind::Prefix, ScanKind::PrefixBefore, ScanKind::Sum, ScanKind::Min].map(run);
    assert_eq!(prefix[776], sum[0], "multiples of 1/64: exact");
    assert!(least.windows(2).all(|pair| pair[1] <= pair[0]));
    assert!((1..777).all(|t| before[t] == prefix[t - 1]) && before[0] == 0.0);
}

#[test]
fn segments() {
    let batch = Batch::new(&[0, 3, 5], &[0, 1, 2], Some(&[1, 1, 1, 1, 0])).unwrap();
    let (logp, old) = pair(&[0.5, 0.25, -1.0, 0.125, 4.0]);
    let run = |segments: &[u32], kind| segment_log_ratio(&cpu(), &batch, segments, &logp, &old, kind);
    let turns = [0, 2, 3, 5];
    assert_eq!(run(&turns, ScanKind::Mean).unwrap(), [0.375, 0.375, -1.0, 0.125, 0.0]);
    assert_eq!(run(&turns, ScanKind::Sum).unwrap(), [0.75, 0.75, -1.0, 0.125, 0.0]);
    assert_eq!(run(&turns, ScanKind::Prefix).unwrap(), [0.5, 0.75, -1.0, 0.125, 0.0]);
    // Segments that are whole sequences give the sequences' log-ratios; one-token segments give the tokens'.
    let whole = log_ratio_scan(&cpu(), &batch, &logp, &old, ScanKind::Mean, false).unwrap();
    assert_eq!(run(&[0, 3, 5], ScanKind::Mean).unwrap(), whole);
    assert_eq!(run(&[0, 1, 2, 3, 4, 5], ScanKind::Mean).unwrap(), [0.5, 0.25, -1.0, 0.125, 0.0]);
    refused(run(&[0, 2, 4], ScanKind::Mean), "…`cu_segments`[2] is 4…");
    refused(run(&[0, 3, 2, 5], ScanKind::Mean), "…`cu_segments`[2] is 2…");
}

#[test]
fn saturation_of_scans() {
    let batch = Batch::new(&[0, 3], &[0, 1], None).unwrap();
    let run = |logp: [f32; 3], kind| log_ratio_scan(&cpu(), &batch, &logp, &[0.0; 3], kind, true);
    for kind in [ScanKind::MinBefore, ScanKind::Prefix] {
        assert_eq!(run([-1e4, -1e30, 0.0], kind).unwrap(), [-1e4, -1e30, -1e30]);
    }
    refused(run([-3e38, -3e38, 0.0], ScanKind::Prefix), "`log_ratio`[1] is not finite…");
    let nan = "`logp`[1] is NaN: expected a log-probability: finite and at most 0";
    refused(run([0.0, f32::NAN, 0.0], ScanKind::Min), nan);
}

#[test]
fn worked_8_4_proximal_interpolation() {
    let alpha = lockstep::core::ratio::proximal::alpha;
    // A version later than the current one is treated as current.
    let versions = [(3, 4), (2, 4), (0, 4), (4, 4), (-1, 4), (9, 4)];
    let alphas = versions.map(|(behave, current)| alpha(behave, current));
    assert_eq!(alphas, [0.0, 0.5, 0.75, 0.0, 0.0, 0.0]);
    assert!(alpha(0, i32::MAX) < 1.0);
    let batch = Batch::new(&[0, 3], &[0, 1], None).unwrap();
    let run = |interpolation| {
        let (behave, logp) = ([-1.0; 3], [-2.0; 3]);
        proximal_logp(&cpu(), &batch, &[2, 3, -1], 4, &behave, &logp, interpolation).unwrap()
    };
    assert_worked(&run(Interpolation::Loglinear), &[-1.5, -1.0, -1.0]);
    assert_worked(&run(Interpolation::Linear), &[-1.379885, -1.0, -1.0]);
}

#[test]
fn proximal_log_probabilities_stay_log_probabilities() {
    let batch = Batch::new(&[0, 4], &[0, 1], None).unwrap();
    let (behave, logp) = ([0.0, -0.0, -1e4, -1e30], [0.0, -1e-7, 0.0, -1e30]);
    for interpolation in [Interpolation::Loglinear, Interpolation::Linear] {
        let prox = proximal_logp(&cpu(), &batch, &[1; 4], 10, &behave, &logp, interpolation).unwrap();
        assert!(prox.iter().all(|p| p.is_finite() && *p <= 0.0), "{prox:?}");
    }
    // The result can serve as the `logp_old` of decoupled PPO: at staleness 1 it is the sampler's policy, and
    // all weights are 1.
    let behave = [-1.0, -0.5, -2.0, -0.25];
    let prox = proximal_logp(&cpu(), &batch, &[9; 4], 10, &behave, &logp, Interpolation::Loglinear).unwrap();
    assert_eq!(prox, behave);
    let recipe = Recipe::named("decoupled_ppo").unwrap();
    let recipe = recipe.rebuild("alone").singleton(SingletonChoice::Zero).build().unwrap();
    let rollouts = Rollouts {
        rewards: Some(&[1.0]),
        logp_old: Some(&prox),
        logp_rollout: Some(&behave),
        ..Rollouts::new(&[0, 4], &[0, 1])
    };
    assert_eq!(recipe.advantages(&cpu(), &rollouts).unwrap().weights.unwrap(), [1.0; 4]);
}

#[test]
fn staleness_masks_what_is_too_old() {
    let mask = [1, 1, 1, 0, 1, 1];
    let batch = Batch::new(&[0, 4, 6], &[0, 2], Some(&mask)).unwrap();
    let run = |max| staleness(&cpu(), &batch, &[3, 5, 7, 0, -1, 4], 7, max).unwrap();
    let found = run(2);
    assert_eq!(found.kept_mask, [0, 1, 1, 0, 1, 0]);
    assert_eq!((&found.start_version[..], &found.kept[..]), (&[3, 4][..], &[1, 1][..]));
    assert_eq!((found.off_policy_fraction, found.too_old_fraction), (0.6, 0.4));
    assert_eq!(run(0).kept_mask, [0, 0, 1, 0, 1, 0], "slime's mask of off-policy tokens");
    assert_eq!(run(i32::MAX).kept_mask, mask);
    for (versions, current, max, says) in [
        ([3, 5, -2, 0, 1, 4], 7, 1, "`versions`[2] is -2…"),
        ([0; 6], -1, 1, "…`current` is -1…"),
        ([0; 6], 1, -1, "…`max_staleness` is -1…"),
    ] {
        refused(staleness(&cpu(), &batch, &versions, current, max), says);
    }
}

#[test]
fn worked_8_4_effective_sample_size() {
    for (w, want, scale) in [
        ([1.0f32, 1.0, 1.0, 1.0], 4.0, 1.0),
        ([4.0, 1.0, 1.0, 1.0], 2.578947, 0.802955),
        ([100.0, 1.0, 1.0, 1.0], 1.060582, 0.514923),
    ] {
        let batch = Batch::new(&[0, 1, 2, 3, 4], &[0, 4], None).unwrap();
        let sizes = sequence_sample_sizes(&cpu(), &batch, &w, None).unwrap();
        assert!((sizes.batch - want).abs() <= WORKED && sizes.rows == [sizes.batch]);
        assert!((sizes.lr_scale(1.0, LrRule::Sqrt).unwrap() - scale).abs() <= WORKED);
        assert!((sizes.lr_scale(1.0, LrRule::Linear).unwrap() - scale * scale).abs() <= 2.0 * WORKED);
    }
    // From ρ_base on the step is no longer scaled.
    assert_eq!(lr_scale::<Soft>(2.0, 4.0, 0.5, LrRule::Sqrt), 1.0);
    assert_eq!(lr_scale::<Soft>(4.0, 4.0, 0.5, LrRule::Linear), 1.0, "never above 1");
    assert_eq!(lr_scale::<Soft>(0.0, 0.0, 1.0, LrRule::Sqrt), 0.0, "no samples");
}

#[test]
fn worked_8_4_vcpo_baseline() {
    // w (1, 2, 0.5) and squared norms (4, 1, 9): W = w²·norm² = (4, 4, 2.25), b* = 6.25/10.25.
    let weights: Vec<f32> = [(1.0f32, 4.0f32), (2.0, 1.0), (0.5, 9.0)].map(|(w, norm)| w * w * norm).to_vec();
    assert_eq!(weights, [4.0, 4.0, 2.25]);
    let rollouts = Rollouts {
        rewards: Some(&[1.0, 0.0, 1.0]),
        baseline_weights: Some(&weights),
        ..Rollouts::new(&[0, 1, 2, 3], &[0, 3])
    };
    let vcpo = Recipe::named("vcpo").unwrap().rebuild("centred").norm_by_std(false).build().unwrap();
    let got = vcpo.advantages(&cpu(), &rollouts).unwrap();
    assert_worked(&got.groups.mean, &[0.609756]);
    assert_worked(&got.advantage, &[0.390244, -0.609756, 0.390244]);
}

#[test]
fn sample_sizes_of_groups_and_of_what_is_valid() {
    let batch = Batch::new(&[0, 2, 3, 4, 5], &[0, 2, 4], None).unwrap();
    let weights = [3.0, 1.0, 2.0, 2.0];
    let sizes = sequence_sample_sizes(&cpu(), &batch, &weights, None).unwrap();
    assert!((sizes.rows[0] - 1.6).abs() < WORKED && (sizes.rows[1] - 2.0).abs() < WORKED);
    assert!((sizes.batch - 64.0 / 18.0).abs() < WORKED);
    let valid = sequence_sample_sizes(&cpu(), &batch, &weights, Some(&[0, 1, 0, 0])).unwrap();
    assert!((valid.rows[0] - 1.0).abs() < WORKED && valid.rows[1] == 0.0);
    assert_eq!(valid.count, 1);
    // Scaling all weights changes nothing; weights as large as binary32 allows overflow nothing.
    let large = weights.map(|w| w * 1e38);
    let large = sequence_sample_sizes(&cpu(), &batch, &large, None).unwrap();
    assert!((large.batch - sizes.batch).abs() < WORKED);
    let tokens = token_sample_sizes(&cpu(), &batch, &[1.0, 3.0, 1.0, 1.0, 0.0]).unwrap();
    assert!((tokens.rows[0] - 1.6).abs() < WORKED && tokens.rows[3] == 0.0);
    let negative = token_sample_sizes(&cpu(), &batch, &[1.0, -3.0, 1.0, 1.0, 0.0]);
    refused(negative, "`weights`[1] is -3…");
    refused(sizes.lr_scale(0.0, LrRule::Sqrt), "…`rho_base` is 0…");
    assert_eq!(ess(0.0, 0.0, 0.0), 0.0);
}
