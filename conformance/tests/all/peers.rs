//! Presets of peers and the options they consist of: what each computes, by hand.

use crate::gate_batch::{close, one, one_of, summed};
use lockstep::recipe::{AdvantageChoice, AdvantageEstimator, GateChoice, GmpoBounds, SingletonChoice, names};
use lockstep::{Credit, Device, Recipe, Rollouts};
use lockstep_core::policy_loss::gmpo::Mean;

fn named(name: &str) -> Recipe {
    Recipe::named(name).unwrap()
}

fn advantages(recipe: &Recipe, rollouts: &Rollouts<'_>) -> Credit {
    recipe.advantages(&Device::cpu(), rollouts).unwrap()
}

#[test]
fn every_framework_has_presets_and_they_survive_toml() {
    for peer in ["verl", "trl", "openrlhf", "slime", "areal", "nemo", "roll", "mlperf_v6_1"] {
        assert!(names().iter().any(|name| name == &peer), "{peer}");
    }
    for name in names() {
        let recipe = named(name);
        recipe.check().unwrap();
        assert_eq!(recipe.name, *name);
        assert_eq!(recipe, Recipe::from_toml(&recipe.to_toml().unwrap()).unwrap(), "{name}");
    }
    let unguarded = |name: &str| named(name).ratio.guard == named("trl").ratio.guard;
    assert!(["nemo", "slime", "areal", "roll", "mlperf_v6_1"].iter().all(|name| unguarded(name)));
    assert!(!unguarded("openrlhf") && !unguarded("verl"));
}

#[test]
fn row_10_2_singletons_of_rloo_by_name() {
    let rollouts = Rollouts { rewards: Some(&[0.75]), ..Rollouts::new(&[0, 1], &[0, 1]) };
    let one = |name: &str| advantages(&named(name), &rollouts).advantage[0];
    assert_eq!(
        (one("rloo"), one("verl_rloo_vectorized")),
        (0.75, 0.0),
        "verl's list version, its vectorised one"
    );
    assert_eq!(named("verl_rloo_vectorized").advantage.singleton, SingletonChoice::Zero);
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
fn row_10_13_the_released_tempo_compares_padding() {
    // The first response ends where the second continues with token 0: padding with the same id matches it.
    let rollouts = Rollouts {
        tokens: Some(&[7, 7, 0]),
        rewards: Some(&[1.0, 0.0]),
        ..Rollouts::new(&[0, 1, 3], &[0, 2])
    };
    let run = |name: &str| advantages(&named(name), &rollouts).advantage;
    let (ours, released) = (run("tempo"), run("tempo_released"));
    assert_ne!(ours[2], released[2]);
    // Ours branches at the token after the first response's end: A = (R − mean + V after − V before) / std =
    // (−0.5 − 0.5)/0.7071.
    let std = 0.5f64.sqrt() + 1e-6;
    assert!(
        close(ours[2].into(), -1.0 / std) && close(released[2].into(), -0.5 / std),
        "{ours:?} {released:?}"
    );
    let error = Recipe::from_toml("[advantage]\npad_id = 0\n").unwrap_err().to_string();
    assert!(error.contains("advantage.pad_id") && error.contains("tempo"), "{error}");
}

#[test]
fn row_10_14_and_15_what_the_papers_say_by_name() {
    let games = Rollouts {
        rewards: Some(&[1.0, 0.0]),
        roles: Some(&[0, 0]),
        role_values: Some(&[0.0]),
        ..Rollouts::new(&[0, 1, 2], &[0, 2])
    };
    let of = |name: &str| advantages(&named(name), &games).advantage;
    // γ 0.95: b is 0 and 0.05 before the games, 0.05 and 0.0475 after them.
    let (code, paper) = (of("spiral"), of("spiral_paper"));
    assert!(close(code[0].into(), 1.0) && close(code[1].into(), -0.05), "{code:?}");
    assert!(close(paper[0].into(), 0.95) && close(paper[1].into(), -0.0475), "{paper:?}");
    let turns = Rollouts {
        cu_turns: Some(&[0, 1, 2, 3]),
        turn_rewards: Some(&[1.0, 1.0, 4.0]),
        turn_roles: Some(&[0, 0, 0]),
        ..Rollouts::new(&[0, 1, 2, 3], &[0, 3])
    };
    let run = |name: &str| advantages(&named(name), &turns).advantage;
    // Over the samples (1, 1, 4): mean 2, deviation √3; over the distinct values and 0, (0, 1, 4): mean 5/3,
    // deviation 2.0817.
    let (code, paper) = (run("mars"), run("mars_paper"));
    let (samples, distinct) = (3.0f64.sqrt() + 1e-6, (13.0f64 / 3.0).sqrt() + 1e-6);
    assert!(close(paper[0].into(), -1.0 / samples) && close(paper[2].into(), 2.0 / samples), "{paper:?}");
    assert!(close(code[0].into(), (-2.0 / 3.0) / distinct), "{code:?}");
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
    let want = [8.0, 8.0, 0.5f64.exp(), 0.5f64.exp()];
    assert!(weights.iter().zip(want).all(|(w, x)| close((*w).into(), x)), "{weights:?}");
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
    let choice = AdvantageChoice { limit: Some(0.75), ..remax.advantage };
    let limited = remax.clone().rebuild("limited").advantage(choice).build().unwrap();
    let out = advantages(&limited, &rollouts);
    assert_eq!(out.advantage, [0.75, 0.0, 0.5, -0.25, 0.0, 0.75]);
    // Sequence rewards take precedence over token rewards, and one of the two must be present.
    let whole = Rollouts { rewards: Some(&[1.0, 0.5, 3.0]), ..rollouts };
    let out = advantages(&remax, &whole);
    assert_eq!((out.per_token, &out.advantage[..]), (false, &[0.5, 0.0, 2.0][..]));
    let error = |rollouts| remax.advantages(&Device::cpu(), &rollouts).unwrap_err().to_string();
    let with = |baseline| error(Rollouts { baseline: Some(baseline), ..rollouts });
    assert!(with(&[0.5]).starts_with("`baseline` has 1 entries: expected 2"));
    assert!(with(&[0.5, f32::NAN]).starts_with("`baseline`[1]"));
    let none = error(Rollouts { token_rewards: None, baseline: None, ..rollouts });
    let missing = "baseline (for advantage), rewards or token_rewards (for advantage)";
    assert_eq!(none, format!("recipe `remax`: missing columns: {missing}"));
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
    let with = |bounds: Option<f32>| {
        let gate = GateChoice::KlCov {
            kl_cov_ratio: 0.0,
            ppo_kl_coef: 0.0,
            clip_ratio_low: bounds,
            clip_ratio_high: bounds,
        };
        Recipe { gate, ..summed("kl_cov") }
    };
    // ln 1.5 above and below; without a clip the ratio; with PPO's, nothing beyond the band on the side that
    // A pushes to.
    let coef =
        |recipe: &Recipe, d: f32, a: f32| f64::from(one(recipe, [&[-1.0], &[-1.0 - d], &[]], a).coef[0]);
    let d = 1.5f32.ln();
    assert!(close(coef(&with(None), d, 1.0), -1.5) && close(coef(&with(None), -d, -1.0), 1.0 / 1.5));
    assert!(coef(&with(Some(0.2)), d, 1.0) == 0.0 && coef(&with(Some(0.2)), -d, -1.0) == 0.0);
    assert!(close(coef(&with(Some(0.2)), d, -1.0), 1.5) && close(coef(&with(Some(0.6)), d, 1.0), -1.5));
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
    let error = Recipe::from_toml(toml).unwrap_err().to_string();
    assert!(error.contains("gate.clip_log_low"), "{error}");
}

/// Two rewards for three answers: TRL and NeMo apply the batch step over sequences, NeMo compares each
/// component with the other answers.
#[test]
fn row_10_24_gdpo_of_trl_and_nemo() {
    let components = [1.0f32, 0.0, 0.0, 0.5, 0.5, 1.0];
    let rollouts = Rollouts {
        reward_components: Some(&components),
        reward_weights: Some(&[1.0, 2.0]),
        ..Rollouts::new(&[0, 1, 5, 7], &[0, 3])
    };
    let run = |name: &str| advantages(&named(name), &rollouts).advantage;
    let normalised = |sums: [f64; 3], eps: f64| {
        let mean = sums.iter().sum::<f64>() / 3.0;
        let std = (sums.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / 2.0).sqrt();
        sums.map(|x| (x - mean) / (std + eps))
    };
    // TRL: (1, 0, 0): mean 1/3, deviation 0.57735; (0.5, 0.5, 1): mean 2/3, deviation 0.288675.
    let (a, b) = (1.0 / 3.0f64.sqrt() + 1e-4, 0.5 / 3.0f64.sqrt() + 1e-4);
    let trl = normalised(
        [2.0 / 3.0 / a - 1.0 / 3.0 / b, -1.0 / 3.0 / a - 1.0 / 3.0 / b, -1.0 / 3.0 / a + 2.0 / 3.0 / b],
        1e-4,
    );
    // NeMo compares with the other answers, and divides if their deviation is nonzero: that of (0, 0) is 0;
    // (1, 0): 0.707107, (0.5, 1): 0.353553.
    let (c, d) = (0.5f64.sqrt() + 1e-6, 0.125f64.sqrt() + 1e-6);
    let nemo = normalised([1.0 - 0.5 / d, -0.5 / c - 0.5 / d, -0.5 / c + 2.0 * 0.5], 0.0);
    for (name, want) in [("trl_gdpo", trl), ("nemo_gdpo", nemo)] {
        let got = run(name);
        assert!(
            got.iter().zip(want).all(|(g, w)| (f64::from(*g) - w).abs() < 1e-5),
            "{name}: {got:?} {want:?}"
        );
    }
    assert_eq!(named("nemo_gdpo").advantage.estimator, AdvantageEstimator::Gdpo);
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
    let want = [a, -a, -a, a].map(|x| (x - mean) / (std + 1e-5));
    assert!(got.iter().zip(want).all(|(g, w)| (f64::from(*g) - w).abs() < 1e-5), "{got:?} {want:?}");

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
    let want = [-2.0 / 4.0, -2.0 * 0.001f64.exp() / 4.0, 0.0, 0.0];
    assert!(out.coef.iter().zip(want).all(|(c, w)| (f64::from(*c) - w).abs() < 1e-6), "{:?}", out.coef);
}
