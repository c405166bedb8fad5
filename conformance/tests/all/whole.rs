//! Whole recipes on the CPU against their composition in `f64` from docs/maths.

use lockstep::{Device, Recipe, Rollouts, RolloutsBuf, recipe};
use lockstep_conformance::cases::hash::Source;
use lockstep_conformance::precision::WHOLE_RECIPE;
use lockstep_conformance::whole::{batches::batches, credit, loss, unread};
use std::collections::BTreeMap;

/// Choices that no named recipe makes, or not in this combination.
const UNNAMED: &[&str] = &[
    "kl = { estimator = 'k1', coef = 0.1, place = 'reward' }",
    "extends = 'reinforce_plus_plus'\nkl = { estimator = 'low_var_kl', coef = 0.1, place = 'reward' }",
    "extends = 'dapo'\nkl = { estimator = 'k3', coef = 0.1, importance_weighted = 'through_ratio' }",
    "extends = 'gmpo'\ngate.bounds = 'ratio'\n\
     kl = { estimator = 'k2', coef = 0.1, importance_weighted = 'detached' }",
    "extends = 'sapo'\naggregation.mode = 'seq-mean-token-sum'\n\
     kl = { estimator = 'k3', coef = 0.25, importance_weighted = 'detached' }",
    "extends = 'gmpo'\naggregation.mode = 'token-sum'\n\
     kl = { estimator = 'k3', coef = 0.25, importance_weighted = 'through_ratio' }",
    "kl = { estimator = 'abs', coef = 0.1, straight_through = true }\naggregation.mode = 'token-sum'",
    "extends = 'dapo_full'\nadvantage.singleton = 'zero'\n\
     reward.overlong = { max_length = 30, buffer = 20, saturate = true }",
    "extends = 'pf_ppo'\nreward.filtration = { kind = 'best_of_n' }",
    "extends = 'pf_ppo'\nreward.filtration = { kind = 'best_worst' }",
    "extends = 'pf_ppo'\nreward.filtration = { kind = 'max_min' }",
    "extends = 'pf_ppo'\nreward.filtration = { kind = 'max_random' }\n\
     reward.filter = { kind = 'at_most_tokens', limit = 25 }",
    "extends = 'pf_ppo'\nreward.filtration = { kind = 'best_random' }\n\
     reward.filter = { kind = 'spread', eta = 0.4 }",
    "extends = 'ace'\nreward.sharpen = { kind = 'ace', relu = true, per_token = true }\n\
     advantage.limit = 0.9",
    "extends = 'mssr'\nreward.entropy = { of = 'distribution' }\nratio.level = 'sequence'\n\
     ratio.advantage = 'sequence_mean'",
    "extends = 'verl'\nmask = { opsm_delta = 0.05, top_entropy = 0.5 }\nentropy.coef = 0.01\n\
     correction = { level = 'geometric', rule = 'truncate', low = 0.9, high = 1.1, normalize = true, \
     denominator = 'after', reject = [{ statistic = 'token_k2', high = 0.5 }, { statistic = 'seq_max_k3', \
     high = 2.0 }] }",
    "extends = 'reinforce_plus_plus_baseline'\n\
     correction = { level = 'token', high = 2.0, normalize = true, denominator = 'after', reject = [{ \
     statistic = 'token_k1', low = 0.5, high = 2.0 }] }",
    "extends = 'ppo_critic'\nvalue = { coef = 0.5, cliprange_value = 0.2, huber_delta = 0.3, aggregation = { \
     mode = 'seq-mean-token-sum' } }\n\
     correction = { level = 'sequence', high = 3.0, reject = [{ statistic = 'seq_sum_k1', high = 3.0 }] }\n\
     advantage.limit = 1.5",
    "extends = 'optimal_token_baseline'\nadvantage.over_time.lone_tail_is_raw = true\n\
     advantage.over_time.gamma = 0.9\n\
     correction = { level = 'token', high = 2.0, denominator = 'before' }",
    "extends = 'mars'\nadvantage = { norm_by_std = false, limit = 0.75 }",
    "extends = 'tempo'\nadvantage.norm_by_std = false",
    "extends = 'evol_rl'\nreward.shaping.mean_weight = 0.3\nratio.guard = 'straight_through'\n\
     ratio.guard_bound = 0.2",
    "extends = 'grpovi'\nreward.shaping = { low = -0.5, high = 1.5, merge_ties = true }\n\
     advantage.estimator = 'v0_5'\n\
     advantage.tau2 = 0.05\nadvantage.laplace = true",
    "extends = 'psr'\nadvantage.estimator = 'grpo'\nreward.shaping = 'none'\n\
     advantage.over_time = { kind = 'signed_return', gamma = 0.9, correct = 0.25, wrong = -1.0, \
     offset = 0.125, stop_at_mask = true }",
    "extends = 'ppo'\nadvantage.over_time = { kind = 'signed_return', gamma = 0.8, wrong = -0.5 }",
    "extends = 'roll'\nadvantage.singleton = 'zero'\n\
     reward.weights = { length = [1.5, 0.5], difficulty = [0.5, 2.0] }",
    "extends = 'verl'\nreward.weights = { length = [0.25, 1.0] }\n\
     correction = { level = 'token', high = 2.0, denominator = 'after', reject = [{ statistic = 'token_k1', \
     low = 0.5, high = 2.0 }] }",
    "extends = 'trl_gdpo'\nadvantage.nan_reward = 'zero'",
    "extends = 'grpo'\nadvantage = { nan_reward = 'zero', singleton = 'zero' }",
    "extends = 'verl'\ncorrection = { level = 'token', high = 2.0, m2_threshold = 0.002, \
     denominator = 'after' }",
    "extends = 'gmpo'\ngate.mean = 'clipped_sum'\ngate.clip_log_low = 0.05\ngate.clip_log_high = 0.05",
    "extends = 'ppo'\nratio = { level = 'product' }\naggregation.mode = 'seq-mean-token-sum'",
    "extends = 'verl'\nmask.top_entropy = 0.5\nratio = { level = 'sequence', gradient = 'mean' }",
];

/// Largest error of each output, with its position.
type Worst = BTreeMap<&'static str, (f64, String)>;

fn add(worst: &mut Worst, output: &'static str, error: f64, at: &str) {
    let entry = worst.entry(output).or_default();
    if error > entry.0 {
        *entry = (error, at.into());
    }
}

/// The largest difference relative to the largest number; relative to `magnitude` where terms cancel.
fn error(got: &[f64], want: &[f64], magnitude: &[f64]) -> f64 {
    assert_eq!(got.len(), want.len());
    let largest = want.iter().chain(magnitude).fold(0.0f64, |most, x| most.max(x.abs()));
    let difference = got.iter().zip(want).map(|(got, want)| (got - want).abs());
    // A difference that is not finite counts as an infinite error.
    let most = difference.fold(0.0f64, |most, x| if x.is_finite() { most.max(x) } else { f64::INFINITY });
    if most == 0.0 { 0.0 } else { most / largest }
}

fn wide(values: &[f32]) -> Vec<f64> {
    values.iter().map(|x| f64::from(*x)).collect()
}

/// Compares one batch; differences that are not about rounding are reported at once.
fn compare(recipe: &Recipe, at: &str, rollouts: &RolloutsBuf, worst: &mut Worst) -> Result<(), String> {
    let view = rollouts.view();
    let (got, lost) = recipe.step(&Device::cpu(), &view).map_err(|e| format!("{at}: {e}"))?;
    let want = credit(recipe, &view);
    let before = rollouts.loss_mask.clone().unwrap_or_else(|| vec![1; want.live.len()]);
    let mask: Vec<bool> = got.loss_mask.as_ref().unwrap_or(&before).iter().map(|m| *m != 0).collect();
    let lost_of = loss(recipe, &view, &want);
    let same = [
        ("mask", mask == want.live),
        ("per_token", got.per_token == want.per_token),
        ("weights", got.weights.is_some() == want.weights.is_some()),
        ("entropy", lost.entropy.is_some() == lost_of.entropy.is_some()),
        ("value", lost.value.is_some() == lost_of.value.is_some()),
    ];
    if let Some((name, _)) = same.iter().find(|(_, same)| !same) {
        return Err(format!("{at}: {name}"));
    }
    let mut check = |name, error| add(worst, name, error, at);
    check("advantage", error(&wide(&got.advantage), &want.advantage, &[]));
    check("returns", error(&wide(&got.returns), &want.returns, &[]));
    check("role_values", error(&got.state.role_values, &want.role_values, &[]));
    let weights = (got.weights.as_deref().map(wide), want.weights);
    check("weights", error(&weights.0.unwrap_or_default(), &weights.1.unwrap_or_default(), &[]));
    check("coef", error(&wide(&lost.coef), &lost_of.coef, &[]));
    check("row_loss", error(&lost.row_loss, &lost_of.rows, &lost_of.magnitude));
    let (total, magnitude) = (lost_of.rows.iter().sum(), lost_of.magnitude.iter().sum());
    check("loss", error(&[lost.loss.unwrap_or(f64::NAN)], &[total], &[magnitude]));
    let entropy = lost.entropy.as_ref().map(|term| wide(&term.coef));
    check("entropy", error(&entropy.unwrap_or_default(), &lost_of.entropy.unwrap_or_default(), &[]));
    if let (Some(value), Some((total, gradient))) = (&lost.value, lost_of.value) {
        check("value_gradient", error(&wide(&value.gradient), &gradient, &[]));
        check("value_loss", error(&[value.loss], &[total], &[]));
    }
    Ok(())
}

#[test]
fn every_recipe_agrees_with_an_f64_composition() {
    let named = recipe::names().iter().map(|name| Recipe::named(name).unwrap());
    let unnamed = UNNAMED.iter().enumerate().map(|(k, text)| {
        Recipe::from_toml(&format!("name = 'unnamed {k}'\n{text}")).unwrap_or_else(|e| panic!("{text}: {e}"))
    });
    let (mut whole, mut wrong) = (Worst::new(), Vec::new());
    for recipe in named.chain(unnamed) {
        let name = &recipe.name;
        assert_eq!(unread(&recipe), None, "{name} has a choice that is not composed");
        assert_eq!(Recipe::from_toml(&recipe.to_toml().unwrap()).unwrap(), recipe);
        let batches = batches(&recipe).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert!(batches.len() >= 6, "{name}");
        let mut worst = Worst::new();
        for (label, rollouts) in &batches {
            wrong.extend(compare(&recipe, &format!("{name}, {label}"), rollouts, &mut worst).err());
        }
        for (output, (error, at)) in worst {
            if error > WHOLE_RECIPE {
                wrong.push(format!("{at}: {output} by {error:.1e}"));
            }
            add(&mut whole, output, error, &at);
        }
    }
    println!("{whole:#?}");
    assert!(wrong.is_empty(), "{} disagreements: {wrong:#?}", wrong.len());
}

/// Rewards that oppose each other leave a thousandth of themselves, which is whitened: it must be as accurate
/// as any other advantage.
#[test]
fn what_cancels_in_gdpo_is_accurate() {
    for (k, name) in ["gdpo", "trl_gdpo", "nemo_gdpo"].into_iter().enumerate() {
        let recipe = Recipe::named(name).unwrap();
        for case in 0..200 {
            let source = Source::new(k as u64).fork(case);
            let size = 2 + case as u32 % 3;
            let sequences = 4 * size as usize;
            let (cu_seqlens, cu_groups): (Vec<u32>, Vec<u32>) =
                ((0..=4 * size).collect(), (0..=4).map(|g| g * size).collect());
            let first: Vec<f32> = (0..sequences).map(|i| source.unit(i)).collect();
            let near = |i: usize| 0.75 - first[i] * (1.0 + 1e-3 * source.fork(1).unit(i));
            let second: Vec<f32> = (0..sequences).map(near).collect();
            let rollouts = Rollouts {
                reward_components: Some(&[first, second].concat()),
                reward_weights: Some(&[1.0, 1.0]),
                ..Rollouts::new(&cu_seqlens, &cu_groups)
            };
            let got = recipe.advantages(&Device::cpu(), &rollouts).unwrap().advantage;
            let want = credit(&recipe, &rollouts).advantage;
            let error = error(&wide(&got), &want, &[]);
            assert!(error <= WHOLE_RECIPE, "{name}, {case}: {error:e}");
        }
    }
}
