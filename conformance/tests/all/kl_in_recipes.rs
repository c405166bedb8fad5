//! KL terms of recipes: importance weights, the place in the loss or in the rewards, names of estimators.

use crate::prelude::*;
use lockstep::ops::kl_importance::kl_in_reward;
use lockstep::recipe::{KlWeighting, Reduction};
use lockstep::{Call, Column};

fn toml(text: &str) -> Recipe {
    Recipe::from_toml(text).unwrap()
}

fn run(recipe: &Recipe, outputs: Outputs) -> PolicyOutput {
    let rollouts = Rollouts {
        loss_mask: Some(&[1, 1, 0, 1]),
        logp: Some(&[-1.0, -2.0, f32::NAN, -0.5]),
        logp_old: Some(&[-1.25, -1.5, f32::NAN, -0.5]),
        logp_ref: Some(&[-1.5, -2.5, f32::NAN, -0.25]),
        ..Rollouts::new(&[0, 3, 4], &[0, 2])
    };
    let (credit, mut out) = (Credit::per_sequence(vec![1.0, -2.0]), Loss::default());
    recipe.loss_into(&Device::cpu(), &rollouts, &credit, outputs, &mut out).unwrap();
    out.policy
}

/// Its values and gradients are those of the composition in whole.rs.
#[test]
fn an_importance_weighted_kl_is_the_same_in_every_output() {
    let near = |got: f64, want: f64, at: &str| assert!((got - want).abs() < WORKED, "{at}: {got} {want}");
    for name in ["ppo", "sapo", "gmpo"] {
        for weighted in [KlWeighting::ThroughRatio, KlWeighting::Detached] {
            let mut kl = toml("[kl]\nestimator = \"k3\"\ncoef = 0.25\n").kl.unwrap();
            kl.importance_weighted = weighted;
            let recipe = Recipe::named(name).unwrap().rebuild("weighted").kl(kl);
            let recipe = recipe.aggregation(AggregationMode::TokenSum).build().unwrap();
            let (at, out) = (format!("{name} {weighted:?}"), run(&recipe, Outputs::ALL));
            let total = out.loss.unwrap();
            near(out.row_loss.iter().sum(), total, &at);
            assert_eq!(run(&recipe, Outputs::COEF).coef, out.coef, "{at}: coefficients alone");
            let exact = recipe.rebuild("exact").reduction(Reduction::Exact).build().unwrap();
            near(run(&exact, Outputs::ALL).loss.unwrap(), total, &at);
            // GMPO's policy term is one of sequences.
            if name != "gmpo" {
                near(out.token_loss.iter().map(|loss| f64::from(*loss)).sum(), total, &at);
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
