//! Presets of peers and the options they consist of: what each computes, by hand.

use crate::gate_batch::{close, one, one_of, summed};
use crate::prelude::*;
use lockstep::ops::turns::NormSet;
use lockstep::recipe::{AdvantageEstimator, GmpoBounds, RoleOrder, TimeChoice, WhitenChoice};
use lockstep_core::policy_loss::gmpo::Mean;

fn named(name: &str) -> Recipe {
    Recipe::named(name).unwrap()
}

pub(crate) fn all_close(got: &[f32], want: &[f64], by: f64) {
    let close = |(got, want): (&f32, &f64)| (f64::from(*got) - want).abs() < by;
    assert!(got.len() == want.len() && got.iter().zip(want).all(close), "{got:?}, not {want:?}");
}

fn advantages(recipe: &Recipe, rollouts: &Rollouts<'_>) -> Credit {
    recipe.advantages(&Device::cpu(), rollouts).unwrap()
}

#[test]
fn every_framework_has_presets() {
    for peer in ["verl", "trl", "openrlhf", "slime", "areal", "nemo", "roll", "mlperf_v6_1"] {
        assert!(names().iter().any(|name| name == &peer), "{peer}");
    }
    for name in names() {
        assert_eq!(named(name).name, *name);
    }
    let unguarded = |name: &str| named(name).ratio.guard == named("trl").ratio.guard;
    assert!(["nemo", "slime", "areal", "roll", "mlperf_v6_1"].iter().all(|name| unguarded(name)));
    assert!(!unguarded("openrlhf") && !unguarded("verl"));
}

#[test]
fn row_10_9_verl_rejects_by_the_inverse_ratio() {
    // ρ per token is e^0.0015: above 1.001, below 1.002; 1/ρ is below 0.999. With a band of 0.998 to 1.001
    // the two disagree.
    let rollouts = Rollouts {
        rewards: Some(&[1.0]),
        logp_old: Some(&[-1.0, -1.0]),
        logp_rollout: Some(&[-1.0015, -1.0015]),
        ..Rollouts::new(&[0, 2], &[0, 1])
    };
    let kept = |name: &str, low| {
        let mut recipe = named(name);
        recipe.advantage.singleton = SingletonChoice::Zero;
        recipe.correction.as_mut().unwrap().reject[0].low = Some(low);
        advantages(&recipe, &rollouts).loss_mask.unwrap()[0]
    };
    assert_eq!((kept("geo_rs", 0.999), kept("verl_geo_rs", 0.999)), (0, 0));
    assert_eq!((kept("geo_rs", 0.998), kept("verl_geo_rs", 0.998)), (0, 1));
}

#[test]
fn row_10_14_and_15_what_the_papers_say_by_name() {
    let order = |name: &str| named(name).advantage.role_order;
    assert!(matches!(order("spiral"), None | Some(RoleOrder::SubtractThenUpdate)));
    assert_eq!(order("spiral_paper"), Some(RoleOrder::UpdateThenSubtract));
    let set = |name: &str| match named(name).advantage.over_time {
        Some(TimeChoice::Mars { set, .. }) => set,
        other => panic!("{name}: {other:?}"),
    };
    assert_eq!([set("mars"), set("mars_paper")], [NormSet::UniqueValuesAndZero, NormSet::Samples]);
}

#[test]
fn vcpo_in_full_truncates_weights_of_sequences_at_8() {
    let rollouts = Rollouts {
        rewards: Some(&[1.0, 0.0]),
        baseline_weights: Some(&[1.0, 1.0]),
        logp_old: Some(&[-1.0; 4]),
        logp_rollout: Some(&[-3.0, -3.0, -1.25, -1.25]),
        ..Rollouts::new(&[0, 2, 4], &[0, 2])
    };
    let weights = advantages(&named("vcpo_full"), &rollouts).weights.unwrap();
    all_close(&weights, &[8.0, 8.0, 0.5f64.exp(), 0.5f64.exp()], 2e-6);
    assert!(named("vcpo").correction.is_none());
}

/// ReMax of token rewards, with masked tokens and two groups.
#[test]
fn remax_of_token_rewards() {
    let rollouts = Rollouts {
        loss_mask: Some(&[1, 0, 1, 1, 1, 1]),
        token_rewards: Some(&[0.5, f32::NAN, 1.0, 0.25, -1.0, 2.0]),
        baseline: Some(&[0.5, 1.0]),
        ..Rollouts::new(&[0, 3, 4, 6], &[0, 2, 3])
    };
    let remax = named("remax");
    let out = advantages(&remax, &rollouts);
    assert_eq!(out.advantage, [1.0, 0.0, 0.5, -0.25, 0.0, 1.0]);
    let mut limited = remax.clone();
    limited.advantage.limit = Some(0.75);
    assert_eq!(advantages(&limited, &rollouts).advantage, [0.75, 0.0, 0.5, -0.25, 0.0, 0.75]);
    // Sequence rewards take precedence over token rewards, and one of the two must be present.
    let whole = Rollouts { rewards: Some(&[1.0, 0.5, 3.0]), ..rollouts };
    let out = advantages(&remax, &whole);
    assert_eq!((out.per_token, &out.advantage[..]), (false, &[0.5, 0.0, 2.0][..]));
    let with =
        |baseline| remax.advantages(&Device::cpu(), &Rollouts { baseline: Some(baseline), ..rollouts });
    refused(with(&[0.5]), "`baseline` has 1 entries: expected 2…");
    refused(with(&[0.5, f32::NAN]), "`baseline`[1]…");
}

#[test]
fn row_10_19_the_paper_of_ui_s1_by_name() {
    let (code, paper) = (named("ui_s1"), named("ui_s1_paper"));
    assert!(!code.advantage.norm_by_std && paper.advantage.norm_by_std);
    let text = paper.to_toml().unwrap();
    assert!(text.contains("include_first_mismatch = true"), "{text}");
}

#[test]
fn row_10_20_kl_cov_with_a_clip() {
    // ln 1.5 above and below; without a clip the ratio; with PPO's, nothing beyond the band on the side that
    // A pushes to.
    let d = 1.5f32.ln();
    for (bounds, d, a, want) in [
        (None, d, 1.0, -1.5),
        (None, -d, -1.0, 1.0 / 1.5),
        (None, 2.9, 1.0, -2.9f64.exp()),
        (Some(0.2), d, 1.0, 0.0),
        (Some(0.2), -d, -1.0, 0.0),
        (Some(0.2), d, -1.0, 1.5),
        (Some(0.6), d, 1.0, -1.5),
    ] {
        let (clip_ratio_low, clip_ratio_high) = (bounds, bounds);
        let gate = GateChoice::KlCov { kl_cov_ratio: 0.0, ppo_kl_coef: 0.0, clip_ratio_low, clip_ratio_high };
        let out = one(&Recipe { gate, ..summed("kl_cov") }, [&[-1.0], &[-1.0 - d], &[]], a);
        let coef = f64::from(out.coef[0]);
        assert!(close(coef, want) && (coef == 0.0) == (want == 0.0), "{bounds:?} {d} {a}: {coef}");
        assert!(bounds.is_some() || out.metrics.unwrap().clip_fraction == 0.0);
    }
}

#[test]
fn row_10_23_gmpo_bounds_of_the_ratio() {
    let recipe = |bounds| {
        let gate = GateChoice::Gmpo { clip_log_low: 0.2, clip_log_high: 0.2, bounds, mean: Mean::Geometric };
        Recipe { gate, ..named("gmpo") }
    };
    // d = 0.19 is within ±0.2 in the logarithm and above ln 1.2 = 0.182; −0.21 is outside −0.2 and within ln
    // 0.8 = −0.223.
    let kept = |bounds, d: f32, a| one(&recipe(bounds), [&[-1.0], &[-1.0 - d], &[]], a).coef[0] != 0.0;
    assert!(kept(GmpoBounds::Log, 0.19, 1.0) && !kept(GmpoBounds::Ratio, 0.19, 1.0));
    assert!(!kept(GmpoBounds::Log, -0.21, -1.0) && kept(GmpoBounds::Ratio, -0.21, -1.0));
    let toml = "[gate]\nkind = \"gmpo\"\nbounds = \"ratio\"\nclip_log_low = 1.0\n";
    refused(Recipe::from_toml(toml), "…gate.clip_log_low…");
}

/// TRL and NeMo apply the batch step over sequences, NeMo compares each component with the other answers.
#[test]
fn row_10_24_gdpo_of_trl_and_nemo() {
    let of = |name: &str| {
        let own = named(name).advantage;
        assert_eq!(own.estimator, AdvantageEstimator::Gdpo);
        (own.whiten, own.leave_one_out.unwrap_or_default(), own.ddof, own.eps)
    };
    assert_eq!(of("trl_gdpo"), (Some(WhitenChoice::Trl), false, 1, 1e-4));
    assert_eq!(of("nemo_gdpo"), (Some(WhitenChoice::NemoGdpo), true, 1, 1e-6));
}

/// AReaL: rewards are normalised within their group, then all advantages over tokens; weights above the cap
/// are masked, and the denominator is unchanged.
#[test]
fn areal_normalises_twice_and_keeps_the_denominator() {
    let recipe = named("areal");
    let rewards = [1.0f32, 0.0, 0.0, 1.0];
    // One token for each of the first three, three for the last: groups give ±0.7071, and the batch's token
    // mean is 2/6 of that.
    let logp = Some(&[-1.0f32; 6][..]);
    let rollouts = Rollouts {
        rewards: Some(&rewards),
        logp_old: logp,
        logp_rollout: logp,
        ..Rollouts::new(&[0, 1, 2, 3, 6], &[0, 2, 4])
    };
    let got = advantages(&recipe, &rollouts).advantage;
    let a = 0.5 / (0.5f64.sqrt() + 1e-5);
    let tokens = [a, -a, -a, a, a, a];
    let mean = tokens.iter().sum::<f64>() / 6.0;
    let std = (tokens.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / 5.0).sqrt();
    all_close(&got, &[a, -a, -a, a].map(|x| (x - mean) / (std + 1e-5)), 1e-5);

    let behave = [-1.0 - 4.0f32.ln(), -1.0 - 6.0f32.ln(), -1.0];
    let old = Some(&[-1.0f32; 3][..]);
    let rollouts = Rollouts {
        rewards: Some(&[1.0, 0.0]),
        logp: old,
        logp_old: old,
        logp_rollout: Some(&behave),
        ..Rollouts::new(&[0, 2, 3], &[0, 2])
    };
    let credit = Credit { advantage: vec![1.5, 0.0], ..advantages(&recipe, &rollouts) };
    let out = recipe.loss(&Device::cpu(), &rollouts, &credit).unwrap();
    assert!((out.coef[0] + 2.0).abs() < 1e-5 && out.coef[1] == 0.0, "1.5·4 of 3 tokens: {:?}", out.coef);
}

/// NeMo's KL term: the value is k3; its gradient is joined by that of the probability of having sampled the
/// token.
#[test]
fn nemo_kl_has_the_gradient_of_the_score() {
    let recipe = named("nemo_kl");
    let run = |logp: f32, old: f32, reference: f32| {
        let columns = Rollouts { logp_ref: Some(&[reference]), ..Rollouts::default() };
        let out = one_of(&recipe, &columns, [&[logp], &[old]], &Credit::per_sequence(vec![0.0]));
        (out.loss.unwrap(), f64::from(out.coef[0]))
    };
    // u = 0.5: k3 = e^0.5 − 1.5, with gradient 1 − e^0.5; logp_old does not matter.
    let k3 = 0.5f64.exp() - 1.5;
    for old in [-1.0, -1.7] {
        let (loss, coef) = run(-1.0, old, -0.5);
        assert!(close(loss, 0.01 * k3) && close(coef, 0.01 * (k3 + 1.0 - 0.5f64.exp())), "{loss} {coef}");
    }
    // u = 3: the weighted value is clamped at 10, so there is no gradient.
    let (loss, coef) = run(-3.5, -3.5, -0.5);
    assert!(close(loss, 0.1) && coef == 0.0, "{loss} {coef}");
}

#[test]
fn mlperf_is_on_policy_by_force_and_masks_sequences() {
    let recipe = named("mlperf_v6_1");
    // The second sequence's geometric mean is e^0.005, which is outside: all its tokens get weight 0 and stay
    // in the denominator.
    let rollouts = Rollouts {
        rewards: Some(&[1.0, 0.0]),
        logp: Some(&[-0.5; 4]),
        logp_old: Some(&[-1.0; 4]),
        logp_rollout: Some(&[-1.0, -1.001, -1.005, -1.005]),
        ..Rollouts::new(&[0, 2, 4], &[0, 2])
    };
    let credit = Credit { advantage: vec![2.0, -2.0], ..advantages(&recipe, &rollouts) };
    let out = recipe.loss(&Device::cpu(), &rollouts, &credit).unwrap();
    all_close(&out.coef, &[-2.0 / 4.0, -2.0 * 0.001f64.exp() / 4.0, 0.0, 0.0], 1e-6);
}
