//! Every named recipe at the extremes: finite results, or an error that says where and what to choose.

use crate::wanted::{wanted, with_returns};
use lockstep::recipe::{GuardChoice, RatioLevel, names};
use lockstep::{Device, Loss, Outputs, Recipe, Rollouts};

/// Log-ratios of ±1e4 and of 1e30, ordinary ones, and none.
const LOGP: [f32; 8] = [0.0, -1e4, -0.0, -1e4, -0.5, -1e4, -1e30, -0.5];
const OLD: [f32; 8] = [-1e4, 0.0, -1e4, -1e-30, -0.5, -1e4, -0.5, -1.0];

#[test]
fn every_recipe_with_far_policies() {
    let device = Device::cpu();
    let ratios: Vec<f32> = LOGP.iter().zip(OLD).map(|(logp, old)| (logp - old).clamp(-1e4, 1e4)).collect();
    let rollouts =
        Rollouts { logp: Some(&LOGP), logp_old: Some(&OLD), ..Rollouts::new(&[0, 2, 4, 8], &[0, 3]) };
    let rollouts = wanted(rollouts, [&[0.0; 8], &ratios]);
    let mut refused = Vec::new();
    for name in names() {
        let recipe = Recipe::named(name).unwrap();
        for advantage in [[1.0f32, 2.0, -1.0], [-1.0, -3.0, 0.0], [1.0, 1.000_000_1, 1.0]] {
            for outputs in [Outputs::ALL, Outputs::COEF] {
                let (credit, mut out) = (with_returns(&advantage, 8), Loss::default());
                match recipe.loss_into(&device, &rollouts, &credit, outputs, &mut out) {
                    Ok(()) => {
                        let values = out.coef.iter().chain(&out.token_loss);
                        let finite =
                            values.copied().all(f32::is_finite) && out.loss.is_none_or(f64::is_finite);
                        assert!(finite, "{name}: {out:?}");
                    }
                    Err(error) => {
                        let text = error.to_string();
                        assert!(text.contains("guard") && text.contains('['), "{name}: {text}");
                        refused.push((*name, recipe.ratio.guard, recipe.ratio.level));
                    }
                }
            }
        }
    }
    refused.dedup();
    println!("refused: {refused:?}");
    assert!(!refused.is_empty(), "TRL has no guard: e^10000 is no number");
    for (name, guard, level) in refused {
        // DRO's own term is the square of a log-ratio that no guard bounds, and so is ReMix's KL-convex term:
        // 1e30² exceeds binary32.
        let square = ["dro", "remix_full"].contains(&name);
        let free = guard == GuardChoice::None || level != RatioLevel::Token || square;
        assert!(free, "{name} has a guard");
    }
}

#[test]
fn every_estimator_in_groups_of_1_and_4096() {
    let mut compared = 0;
    for n in [1usize, 4096] {
        let offsets: Vec<u32> = (0..=n as u32).collect();
        let groups = [0, n as u32];
        let (ones, logp, zeros) = (vec![1.0f32; n], vec![-1.0f32; n], vec![0; n]);
        let near: Vec<f32> = (0..n).map(|i| if i % 3 == 0 { 1.000_000_1 } else { 1.0 }).collect();
        for rewards in [&ones, &near] {
            let rollouts = Rollouts {
                rewards: Some(rewards),
                token_rewards: Some(rewards),
                reward_components: Some(rewards),
                reward_weights: Some(&[1.0]),
                baseline: Some(&[0.5]),
                baseline_weights: Some(&ones),
                tokens: Some(&offsets[1..]),
                roles: Some(&offsets[..n]),
                flawed: Some(&zeros),
                reference: Some(&[0]),
                logp_old: Some(&logp),
                logp_ref: Some(&logp),
                logp_rollout: Some(&logp),
                entropy: Some(&ones),
                values_old: Some(&ones),
                score_norm: Some(&ones),
                ..Rollouts::new(&offsets, &groups)
            };
            for name in names() {
                let out = match Recipe::named(name).unwrap().advantages(&Device::cpu(), &rollouts) {
                    Ok(out) => out.advantage,
                    // A group of one, or an input that the recipe needs: each error names it.
                    Err(error) => {
                        let text = error.to_string();
                        assert!(text.contains('`') || text.contains("recipe"), "{name}: {text}");
                        continue;
                    }
                };
                assert!(out.iter().all(|a| a.is_finite()), "{name} {n}: {:?}", &out[..1]);
                if *name == "grpo" && std::ptr::eq(rewards, &near) {
                    // The deviation of these rewards is 5.6e-8 beside an eps of 1e-6.
                    let mean = out.iter().map(|a| f64::from(*a)).sum::<f64>() / n as f64;
                    let most = out.iter().fold(0.0f32, |most, a| most.max(a.abs()));
                    assert!(mean.abs() < 1e-7 && most > 0.07 && most < 0.08, "{mean} {most}");
                }
                compared += n;
            }
        }
    }
    assert!(compared > 40 * 4096, "only {compared}");
}
