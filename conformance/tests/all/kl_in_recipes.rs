//! `[kl] importance_weighted`: a recipe's loss and coefficients contain β·W·r·k and its gradient, checked by
//! hand with every aggregation.

use crate::refused::refused;
use lockstep::core::kl::{Kl, KlFormula};
use lockstep::ops::kl_importance::kl_in_reward;
use lockstep::recipe::{AggregationMode, KlWeighting, Reduction};
use lockstep::{Call, Column, Credit, Device, Loss, Outputs, PolicyOutput, Recipe, Rollouts};
use lockstep_conformance::precision::WORKED;

const LOGP: [f32; 4] = [-1.0, -2.0, f32::NAN, -0.5];
const OLD: [f32; 4] = [-1.25, -1.5, f32::NAN, -0.5];
const REF: [f32; 4] = [-1.5, -2.5, f32::NAN, -0.25];
const BETA: f64 = 0.25;

fn toml(text: &str) -> Recipe {
    Recipe::from_toml(text).unwrap()
}

fn recipe(name: &str, mode: AggregationMode, weighted: KlWeighting) -> Recipe {
    let mut kl = toml(&format!("[kl]\nestimator = \"k3\"\ncoef = {BETA}\n")).kl.unwrap();
    kl.importance_weighted = weighted;
    Recipe::named(name).unwrap().rebuild("weighted").kl(kl).aggregation(mode).build().unwrap()
}

fn run(recipe: &Recipe, outputs: Outputs) -> PolicyOutput {
    let rollouts = Rollouts {
        loss_mask: Some(&[1, 1, 0, 1]),
        logp: Some(&LOGP),
        logp_old: Some(&OLD),
        logp_ref: Some(&REF),
        ..Rollouts::new(&[0, 3, 4], &[0, 2])
    };
    let (credit, mut out) = (Credit::per_sequence(vec![1.0, -2.0]), Loss::default());
    recipe.loss_into(&Device::cpu(), &rollouts, &credit, outputs, &mut out).unwrap();
    out.policy
}

#[test]
fn importance_weighted_kl_by_hand() {
    // Ratios 1.284, 0.607, 1: the sequences have lengths 2 and 1, the batch 3.
    let modes = [
        (AggregationMode::TokenMean, [1.0 / 3.0, 1.0 / 3.0]),
        (AggregationMode::TokenSum, [1.0, 1.0]),
        (AggregationMode::SeqMeanTokenMean, [1.0 / 4.0, 1.0 / 2.0]),
        (AggregationMode::SeqMeanTokenSum, [1.0 / 2.0, 1.0 / 2.0]),
    ];
    let near = |got: f64, want: f64, at: &str| assert!((got - want).abs() < WORKED, "{at}: {got} {want}");
    for (name, (mode, w)) in ["ppo", "sapo", "gmpo"].into_iter().flat_map(|name| modes.map(|m| (name, m))) {
        let of_tokens = name != "gmpo";
        let mut plain = Recipe { kl: None, ..recipe(name, mode, KlWeighting::None) };
        if !of_tokens {
            // The mode is that of the KL term alone, which does not exist here.
            plain.aggregation.mode = AggregationMode::SeqMeanTokenMean;
        }
        let plain = run(&plain, Outputs::ALL);
        for weighted in [KlWeighting::ThroughRatio, KlWeighting::Detached] {
            let at = format!("{name} {mode:?} {weighted:?}");
            let recipe = recipe(name, mode, weighted);
            let out = run(&recipe, Outputs::ALL);
            let mut total = plain.loss.unwrap();
            for (i, row) in [(0, 0), (1, 0), (3, 1)] {
                let (x, d) = (f64::from(LOGP[i] - REF[i]), f64::from(LOGP[i] - OLD[i]));
                let (r, k3, slope) = (d.exp(), (-x).exp() + x - 1.0, 1.0 - (-x).exp());
                let gradient = if weighted == KlWeighting::Detached { r * slope } else { r * x };
                total += w[row] * BETA * r * k3;
                let coef = f64::from(plain.coef[i]) + w[row] * BETA * gradient;
                near(out.coef[i].into(), coef, &at);
                if of_tokens {
                    let token = f64::from(plain.token_loss[i]) + BETA * r * k3;
                    near(out.token_loss[i].into(), token, &at);
                }
            }
            near(out.loss.unwrap(), total, &at);
            near(out.row_loss.iter().sum(), total, &at);
            assert!(out.coef[2] == 0.0 && out.token_loss.get(2).is_none_or(|l| *l == 0.0), "{at}: masked");
            assert_eq!(run(&recipe, Outputs::COEF).coef, out.coef, "{at}: coefficients alone");
            let exact = recipe.rebuild("exact").reduction(Reduction::Exact).build().unwrap();
            near(run(&exact, Outputs::ALL).loss.unwrap(), total, &at);
            if of_tokens {
                assert!(out.metrics.unwrap().kl_ref_mean > 0.0, "measured, without the weight");
            }
        }
    }
}

#[test]
fn importance_weighted_kl_in_toml() {
    let text = "[kl]\nestimator = \"k3\"\ncoef = 0.1\nimportance_weighted = \"through_ratio\"\n";
    let recipe = toml(text);
    assert_eq!(recipe.kl.unwrap().importance_weighted, KlWeighting::ThroughRatio);
    assert_eq!(toml(&recipe.to_toml().unwrap()), recipe);
    let given = format!("{text}[ratio]\nlevel = \"given\"\n[gate]\nkind = \"cispo\"\n");
    let error = Recipe::from_toml(&given).unwrap_err().to_string();
    assert!(error.contains("importance_weighted") && error.contains("given"), "{error}");
    let unknown = Recipe::from_toml(&text.replace("through_ratio", "yes")).unwrap_err().to_string();
    assert!(unknown.contains("through_ratio") && unknown.contains("detached"), "{unknown}");
}

/// The same estimator under two names: with clamps that the recipe may still set, and without clamps.
#[test]
fn low_var_kl_is_k3_with_clamps() {
    let k3 = |u: f64| u.exp() - u - 1.0;
    for (estimator, clamp, u, want) in [
        ("low_var_kl", "", 2.0f32, k3(2.0)),
        ("low_var_kl", "", 3.0, 10.0),
        ("low_var_kl", "clamp_out = 5.0\n", 3.0, 5.0),
        ("low_var_kl", "clamp_out = 1e10\n", 25.0, k3(20.0)),
        ("k3", "", 3.0, k3(3.0)),
        ("k3", "", 25.0, k3(25.0)),
    ] {
        let recipe = toml(&format!("[kl]\ncoef = 0.5\nestimator = \"{estimator}\"\n{clamp}"));
        assert!(recipe.to_toml().unwrap().contains(estimator));
        // A token with u = logp_ref − logp, without an advantage.
        let logp = Some(&[-30.0f32][..]);
        let logp_ref = Some(&[u - 30.0][..]);
        let rollouts = Rollouts { logp, logp_old: logp, logp_ref, ..Rollouts::new(&[0, 1], &[0, 1]) };
        let loss = recipe.loss(&Device::cpu(), &rollouts, &Credit::per_sequence(vec![0.0])).unwrap().loss;
        assert!((loss.unwrap() / (0.5 * want) - 1.0).abs() < 1e-6, "{loss:?}, not half of {want}");
    }
}

/// PPO and REINFORCE++: the penalty is part of the rewards, so the loss has no such term and reads no
/// reference.
#[test]
fn a_kl_term_in_the_rewards_is_none_of_the_loss() {
    let text = "[advantage]\nestimator = \"reinforce_plus_plus\"\n[kl]\nestimator = \"k2\"\ncoef = 0.5\n\
                place = \"reward\"\n";
    let recipe = toml(text);
    assert!(recipe.needs().iter().all(|need| (need.column, need.call) != (Column::logp_ref, Call::Loss)));
    let device = Device::cpu();
    let old = Some(&[-1.0f32, -2.0][..]);
    let rollouts = Rollouts {
        token_rewards: Some(&[0.0, 1.0]),
        rewards: Some(&[1.0]),
        logp: old,
        logp_old: old,
        logp_ref: Some(&[-1.5, -1.0]),
        ..Rollouts::new(&[0, 2], &[0, 1])
    };
    let without = Rollouts { logp_ref: None, ..rollouts };
    // r − 0.5·x²/2.
    let k2 = Kl::new(KlFormula::K2);
    let batch = rollouts.batch().unwrap();
    let penalised = kl_in_reward(&device, &batch, &[0.0, 1.0], &[-1.0, -2.0], &[-1.5, -1.0], &k2, 0.5);
    assert_eq!(penalised.unwrap(), [-0.0625, 0.75]);
    let credit = recipe.advantages(&device, &rollouts).unwrap();
    assert_eq!(credit.returns, [0.6875, 0.75]);
    let [with, without_reference] =
        [rollouts, without].map(|rollouts| recipe.loss(&device, &rollouts, &credit).unwrap());
    assert_eq!(with, without_reference);
    refused(recipe.advantages(&device, &without), "…missing columns: logp_ref (for kl)");
    // A term in the loss leaves the rewards unchanged.
    let in_loss = toml(&text.replace("place = \"reward\"\n", ""));
    assert_eq!(in_loss.advantages(&device, &without).unwrap().returns, [1.0, 1.0]);
}
