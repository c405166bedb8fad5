//! Selections over a batch and sequence weights: KL-Cov, Clip-Cov, the top of the entropies, VESPO, TOPR,
//! masks, further KL terms.

use crate::gate_batch::{batch, close, data, input, one, run, run_with, summed};
use crate::prelude::*;
use lockstep::core::select::Order;
use lockstep::ops::policy_loss::add_kl;
use lockstep::ops::select::{Candidates, Pick, covariance, select, share, top_quantile};
use lockstep::recipe::MaskChoice;
use lockstep_conformance::oracle::top;

#[test]
fn selection_is_a_sort() {
    let device = Device::cpu();
    for seed in 0..40u64 {
        let source = Source::new(seed);
        let data = data(seed);
        // Few distinct values, so that ties cross rows, including NaN and both zeros.
        let few = [0.5, -0.0, 0.0, 1.5, -2.0, f32::NAN, f32::MAX, -f32::MAX, 1e-45, f32::INFINITY];
        let value = |i: usize| if seed % 2 == 0 { few[source.below(i, few.len())] } else { source.signed(i) };
        let values: Vec<f32> = (0..data.elements()).map(value).collect();
        let live: Vec<usize> =
            (0..data.elements()).filter(|i| data.live(*i) && !values[*i].is_nan()).collect();
        for n in [0, 1, 2, live.len() / 3, live.len() - 1, live.len(), live.len() + 7] {
            let batch = batch(&data);
            let chosen = select(&device, &batch, &Candidates::largest(&values), n as u32).unwrap();
            let (out, count) = chosen.choose(&device, &batch, Pick::All(1.0), Pick::All(-1.0)).unwrap();
            let mut want = live.clone();
            want.sort_by(|a, b| values[*b].partial_cmp(&values[*a]).unwrap().then(a.cmp(b)));
            want.truncate(n);
            want.sort_unstable();
            let got: Vec<usize> = (0..out.len()).filter(|i| out[*i] == 1.0).collect();
            assert_eq!((got, count), (want, n.min(live.len()) as u64), "seed {seed}, n {n}");
            assert!((0..out.len()).all(|i| data.live(i) != (out[i] == 0.0)), "masked tokens have 0");
        }
    }
    let keys = [5, 0, 7, 5, 7, 1];
    assert_eq!(top::largest(&keys, 3), [0, 2, 4], "the oracle's own ties");
}

#[test]
fn kl_cov_ties_go_to_the_lowest_index() {
    // Every covariance is 0: one of four tokens, the first.
    let mut recipe = summed("kl_cov");
    let (clip_ratio_low, clip_ratio_high) = (None, None);
    recipe.gate = GateChoice::KlCov { kl_cov_ratio: 0.25, ppo_kl_coef: 8.0, clip_ratio_low, clip_ratio_high };
    let out = one(&recipe, [&[-0.5; 4], &[-1.0; 4], &[]], 1.0);
    let r = 0.5f64.exp();
    assert!(close(out.coef[0].into(), 8.0 - r) && out.coef[1..].iter().all(|c| close((*c).into(), -r)));
}

#[test]
fn shares_of_a_batch() {
    let shares = [(2e-4, 0), (2e-4, 10), (2e-4, 100_000), (1.0, 7)];
    assert_eq!(shares.map(|(ratio, m)| share(ratio, m).unwrap()), [0, 1, 20, 7], "M = 0: nothing");
    refused(share(1.5, 7), "…ratio…");
    let all = (share(1.0, 1 << 32).unwrap(), top_quantile(1.0, 1 << 32).unwrap());
    assert_eq!(all, (u32::MAX, u32::MAX), "not the lower 32 bits");
    // 11 distinct values: the 0.8 quantile is at position 8, so 3 are at or above it.
    let quantiles = [(0.2, 11), (0.2, 12), (1.0, 5), (0.0, 5), (0.2, 0)];
    assert_eq!(quantiles.map(|(top, m)| top_quantile(top, m).unwrap()), [3, 3, 5, 1, 0]);
}

#[test]
fn clip_cov_drops_random_candidates() {
    let mut data = data(41);
    // With A = 0, a dropped token would look like a kept one.
    data.row[0].iter_mut().filter(|a| **a == 0.0).for_each(|a| *a = 0.5);
    let gate = GateChoice::ClipCov {
        clip_ratio_low: 0.2,
        clip_ratio_high: 0.2,
        clip_cov_ratio: 0.05,
        clip_cov_lb: 0.25,
        clip_cov_ub: 5.0,
    };
    let recipe = Recipe { gate, ..summed("clip_cov") };
    let plain = run(&summed("trl"), &data, &input(&data)).unwrap();
    let batch = batch(&data);
    let advantage = Advantage::PerSequence(&data.row[0]);
    let cov = covariance(&Device::cpu(), &batch, &data.element[slot::LOGP], advantage).unwrap();
    let clipped = |i: usize| plain.coef[i] == 0.0;
    let n = share(0.05, batch.counts(&Device::cpu()).unwrap().tokens).unwrap() as usize;
    let mut seen = std::collections::BTreeMap::<usize, usize>::new();
    let seeds = 400;
    for seed in 0..seeds {
        let out = run(&recipe, &data, &Rollouts { seed: Some(&[seed]), ..input(&data) }).unwrap();
        let dropped: Vec<usize> = (0..out.coef.len()).filter(|i| plain.coef[*i] != out.coef[*i]).collect();
        assert_eq!(dropped.len(), n, "seed {seed}");
        for i in dropped {
            assert!(out.coef[i] == 0.0 && out.token_loss[i] == 0.0 && !clipped(i));
            assert!(cov[i] > 0.25 && cov[i] < 5.0, "{}", cov[i]);
            *seen.entry(i).or_default() += 1;
        }
    }
    let is_candidate = |i: &usize| data.live(*i) && !clipped(*i) && cov[*i] > 0.25 && cov[*i] < 5.0;
    let candidates = (0..cov.len()).filter(is_candidate).count();
    assert!(candidates > 2 * n && seen.len() == candidates, "{} of {candidates} were chosen", seen.len());
    // Binomial: within five standard deviations.
    let p = n as f64 / candidates as f64;
    let (mean, deviation) = (p * seeds as f64, (p * (1.0 - p) * seeds as f64).sqrt());
    assert!(seen.values().all(|k| (*k as f64 - mean).abs() < 5.0 * deviation), "{mean} {seen:?}");
    let order = Order::Random { seed: 3, first: 0 };
    let all = Candidates { order, ..Candidates::largest(&cov) };
    let again = |n| select(&Device::cpu(), &batch, &all, n).unwrap();
    assert_eq!(again(9), again(9));
}

#[test]
fn the_off_policy_mask_and_what_vespo_refuses() {
    let (old, logp) = ([-1.0f32, -1.0], [-0.7f32, -1.1]);
    let masked = |delta: f32, a: f32| {
        let mask = MaskChoice { opsm_delta: Some(delta), ..MaskChoice::default() };
        let recipe = Recipe { mask, ..summed("grpo") };
        one(&recipe, [&old, &logp, &[]], a).coef[1]
    };
    // mean(old - logp) = 0.1.
    assert!(masked(0.05, -1.0) == 0.0 && masked(0.15, -1.0) != 0.0 && masked(0.05, 1.0) != 0.0);
    let per_token = Credit::per_token(vec![1.0, 1.0]);
    refused(run_with(&summed("vespo"), &input_of(&logp, &old, &old), &per_token), "…advantage…");
}

fn input_of<'a>(logp: &'a [f32], old: &'a [f32], sampler: &'a [f32]) -> Rollouts<'a> {
    Rollouts {
        logp: Some(logp),
        logp_old: Some(old),
        logp_rollout: Some(sampler),
        ..Rollouts::new(&[0, 2], &[0, 1])
    }
}

/// The square is part of the formula and has no clamp: correct as long as binary32 holds it, otherwise an
/// error that says so.
#[test]
fn dro_far_away_is_its_formula_or_an_error() {
    let recipe = Recipe { gate: GateChoice::Dro { beta: 0.5 }, ..summed("dro") };
    for far in [1e4f32, 1e10, 1e19] {
        for [logp, old] in [[-far, 0.0], [0.0, -far]] {
            let out = one(&recipe, [&[logp], &[old], &[]], 2.0);
            let (x, d) = (f64::from(logp), f64::from(logp - old));
            let want = -(2.0 * x - 0.25 * d * d);
            assert!((out.loss.unwrap() / want - 1.0).abs() < 1e-6, "{logp} {old}: {:?}", out.loss);
            assert!((f64::from(out.coef[0]) / (0.5 * d - 2.0) - 1.0).abs() < 1e-6, "{logp} {old}");
        }
    }
    let run = |logp: &[f32], old: &[f32], mask: Option<&[u8]>| {
        let input = Rollouts { loss_mask: mask, ..input_of(logp, old, old) };
        run_with(&recipe, &input, &Credit::per_sequence(vec![1.0]))
    };
    let far = run(&[-0.5, -1e30], &[-0.5, -0.5], None);
    refused(far, "…[1]…DRO squares…loss_mask…");
    let masked = run(&[-0.5, -1e30], &[-0.5, -0.5], Some(&[1, 0])).unwrap();
    assert!(masked.coef == [-1.0, 0.0] && masked.loss.unwrap().is_finite());
}

#[test]
fn two_sided_clip_is_a_dual_clip() {
    let data = data(51);
    let of = |delta| {
        let gate = GateChoice::TwoSided { clip_ratio_low: 0.2, clip_ratio_high: 0.2, delta };
        Recipe { gate, ..summed("grpo") }
    };
    let dual = summed("grpo").rebuild("dual").ppo_clip(0.2, 0.2, Some(1.25)).build().unwrap();
    let [a, b] = [of(1.25), dual].map(|recipe| run(&recipe, &data, &input(&data)).unwrap());
    assert!(a.coef == b.coef && a.metrics.unwrap().clip_fraction_dual > 0.0);
    refused(of(1.1).check(), "…gate.delta is 1.1…");
}

#[test]
fn kl_convex_is_two_terms() {
    let data = data(71);
    let batch = batch(&data);
    let (kl, beta, lambda) = (Kl::new(KlFormula::K2), 0.5, 0.7);
    let (logp, base, previous) =
        (&data.element[slot::LOGP][..], &data.element[slot::LOGP_REF][..], &data.element[slot::LOGP_OLD][..]);
    let recipe = summed("remix");
    let mut out = run(&recipe, &data, &input(&data)).unwrap();
    let weight = recipe.weight(out.counts);
    for (reference, coef) in [(base, beta * lambda), (previous, beta * (1.0 - lambda))] {
        add_kl(&Device::cpu(), &batch, [logp, reference], (kl, coef), weight, &mut out).unwrap();
    }
    // The recipe's own are the same two.
    let toml = "[kl]\nestimator = \"k2\"\ncoef = 0.5\nplace = \"convex\"\n";
    let recipe = Recipe { kl: Recipe::from_toml(toml).unwrap().kl, ..recipe };
    let columns =
        Rollouts { logp_ref: Some(base), logp_previous: Some(previous), step: Some(&[75]), ..input(&data) };
    assert_eq!(run(&recipe, &data, &columns).unwrap(), out);
}
