//! `[kl] importance_weighted`: a recipe's loss and coefficients contain β·W·r·k and its gradient, checked by
//! hand with every aggregation.

use lockstep::core::kl::{Kl, KlFormula};
use lockstep::ops::kl_importance::kl_in_reward;
use lockstep::recipe::{AggregationMode, KlChoice, KlEstimator, KlPlace, KlRatio, KlWeighting, Reduction};
use lockstep::{Call, Column, Credit, Device, Loss, Outputs, PolicyOutput, Recipe, Rollouts};
use lockstep_conformance::precision::WORKED;

const OFFSETS: [u32; 3] = [0, 3, 4];
const MASK: [u8; 4] = [1, 1, 0, 1];
const LOGP: [f32; 4] = [-1.0, -2.0, f32::NAN, -0.5];
const OLD: [f32; 4] = [-1.25, -1.5, f32::NAN, -0.5];
const REF: [f32; 4] = [-1.5, -2.5, f32::NAN, -0.25];
const BETA: f64 = 0.25;

fn recipe(name: &str, mode: AggregationMode, weighted: KlWeighting) -> Recipe {
    let kl = KlChoice {
        estimator: KlEstimator::K3,
        coef: BETA as f32,
        clamp_in: None,
        clamp_out: None,
        straight_through: false,
        importance_weighted: weighted,
        ratio: KlRatio::Token,
        place: KlPlace::Loss,
    };
    Recipe::named(name).unwrap().rebuild("weighted").kl(kl).aggregation(mode).build().unwrap()
}

fn run(recipe: &Recipe, outputs: Outputs) -> PolicyOutput {
    let rollouts = Rollouts {
        loss_mask: Some(&MASK),
        logp: Some(&LOGP),
        logp_old: Some(&OLD),
        logp_ref: Some(&REF),
        ..Rollouts::new(&OFFSETS, &[0, 2])
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
    for name in ["ppo", "sapo", "gmpo"] {
        for (mode, w) in modes {
            let mut plain = recipe(name, mode, KlWeighting::None);
            plain.kl = None;
            if name == "gmpo" {
                // The mode is that of the KL term alone, which does not exist here.
                plain.aggregation.mode = AggregationMode::SeqMeanTokenMean;
            }
            let plain = run(&plain, Outputs::ALL);
            for weighted in [KlWeighting::ThroughRatio, KlWeighting::Detached] {
                let recipe = recipe(name, mode, weighted);
                let out = run(&recipe, Outputs::ALL);
                let mut loss = 0.0;
                for (i, row) in [(0, 0), (1, 0), (3, 1)] {
                    let (x, d) = (f64::from(LOGP[i] - REF[i]), f64::from(LOGP[i] - OLD[i]));
                    let (r, k3, slope) = (d.exp(), (-x).exp() + x - 1.0, 1.0 - (-x).exp());
                    let gradient = if weighted == KlWeighting::Detached { r * slope } else { r * x };
                    loss += w[row] * BETA * r * k3;
                    let coef = f64::from(plain.coef[i]) + w[row] * BETA * gradient;
                    assert!(
                        (f64::from(out.coef[i]) - coef).abs() < WORKED,
                        "{name} {mode:?} {weighted:?} {i}"
                    );
                    if name == "gmpo" {
                        continue; // Its policy term is one of sequences.
                    }
                    let token = f64::from(plain.token_loss[i]) + BETA * r * k3;
                    assert!((f64::from(out.token_loss[i]) - token).abs() < WORKED, "{name} {mode:?} {i}");
                }
                let total = plain.loss.unwrap() + loss;
                assert!(
                    (out.loss.unwrap() - total).abs() < WORKED,
                    "{name} {mode:?}: {:?} {total}",
                    out.loss
                );
                assert!((out.row_loss.iter().sum::<f64>() - total).abs() < WORKED);
                assert_eq!(
                    (out.coef[2], out.token_loss.get(2).copied().unwrap_or(0.0)),
                    (0.0, 0.0),
                    "masked"
                );
                let coef = run(&recipe, Outputs::COEF).coef;
                assert_eq!(coef, out.coef, "{name}: coefficients alone");
                let exact = recipe.clone().rebuild("exact").reduction(Reduction::Exact).build().unwrap();
                let exact = run(&exact, Outputs::ALL);
                assert!((exact.loss.unwrap() - total).abs() < WORKED, "{name}: exact {:?}", exact.loss);
                if name != "gmpo" {
                    assert!(out.metrics.unwrap().kl_ref_mean > 0.0, "measured, without the weight");
                }
            }
        }
    }
}

#[test]
fn importance_weighted_kl_in_toml() {
    let toml = "[kl]\nestimator = \"k3\"\ncoef = 0.1\nimportance_weighted = \"through_ratio\"\n";
    let recipe = Recipe::from_toml(toml).unwrap();
    assert_eq!(recipe.kl.unwrap().importance_weighted, KlWeighting::ThroughRatio);
    assert_eq!(Recipe::from_toml(&recipe.to_toml().unwrap()).unwrap(), recipe);
    let given = format!("{toml}[ratio]\nlevel = \"given\"\n[gate]\nkind = \"cispo\"\n");
    let error = Recipe::from_toml(&given).unwrap_err().to_string();
    assert!(error.contains("importance_weighted") && error.contains("given"), "{error}");
    let unknown = Recipe::from_toml(&toml.replace("through_ratio", "yes")).unwrap_err().to_string();
    assert!(unknown.contains("through_ratio") && unknown.contains("detached"), "{unknown}");
}

/// The same estimator under two names: with clamps that the recipe may still set, and without clamps.
#[test]
fn low_var_kl_is_k3_with_clamps() {
    // A token with u = logp_ref − logp, without an advantage.
    let kl = |text: &str, u: f32| {
        let recipe = Recipe::from_toml(&format!("[kl]\ncoef = 0.5\n{text}")).unwrap();
        let logp = Some(&[-30.0f32][..]);
        let rollouts = Rollouts { logp, logp_old: logp, ..Rollouts::new(&[0, 1], &[0, 1]) };
        let rollouts = Rollouts { logp_ref: Some(&[u - 30.0]), ..rollouts };
        recipe.loss(&Device::cpu(), &rollouts, &Credit::per_sequence(vec![0.0])).unwrap().loss.unwrap()
    };
    let close =
        |got: f64, want: f64| assert!((got / (0.5 * want) - 1.0).abs() < 1e-6, "{got}, not half of {want}");
    let k3 = |u: f64| u.exp() - u - 1.0;
    close(kl("estimator = \"low_var_kl\"\n", 2.0), k3(2.0));
    close(kl("estimator = \"low_var_kl\"\n", 3.0), 10.0);
    close(kl("estimator = \"low_var_kl\"\nclamp_out = 5.0\n", 3.0), 5.0);
    close(kl("estimator = \"low_var_kl\"\nclamp_out = 1e10\n", 25.0), k3(20.0));
    close(kl("estimator = \"k3\"\n", 3.0), k3(3.0));
    close(kl("estimator = \"k3\"\n", 25.0), k3(25.0));
    let text =
        Recipe::from_toml("[kl]\nestimator = \"low_var_kl\"\ncoef = 0.5\n").unwrap().to_toml().unwrap();
    assert!(text.contains("low_var_kl"), "{text}");
}

/// PPO and REINFORCE++: the penalty is part of the rewards, so the loss has no such term and reads no
/// reference.
#[test]
fn a_kl_term_in_the_rewards_is_none_of_the_loss() {
    let toml = "[advantage]\nestimator = \"reinforce_plus_plus\"\n[kl]\nestimator = \"k2\"\ncoef = 0.5\n\
                place = \"reward\"\n";
    let recipe = Recipe::from_toml(toml).unwrap();
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
    // r − 0.5·x²/2.
    let k2 = Kl::new(KlFormula::K2);
    let batch = rollouts.batch().unwrap();
    let penalised =
        kl_in_reward(&device, &batch, &[0.0, 1.0], &[-1.0, -2.0], &[-1.5, -1.0], &k2, 0.5).unwrap();
    assert_eq!(penalised, [-0.0625, 0.75]);
    let credit = recipe.advantages(&device, &rollouts).unwrap();
    assert_eq!(credit.returns, [0.6875, 0.75]);
    let in_loss = recipe.loss(&device, &rollouts, &credit).unwrap();
    assert_eq!(in_loss, recipe.loss(&device, &Rollouts { logp_ref: None, ..rollouts }, &credit).unwrap());
    let error = recipe.advantages(&device, &Rollouts { logp_ref: None, ..rollouts }).unwrap_err().to_string();
    assert!(error.ends_with("missing columns: logp_ref (for kl)"), "{error}");
    // A term in the loss leaves the rewards unchanged.
    let in_loss = Recipe::from_toml(&toml.replace("place = \"reward\"\n", "")).unwrap();
    let credit = in_loss.advantages(&device, &Rollouts { logp_ref: None, ..rollouts }).unwrap();
    assert_eq!(credit.returns, [1.0, 1.0]);
}

/// Sequence rewards are reduced by the sum of the penalty over their live tokens.
#[test]
fn a_kl_term_in_rewards_of_sequences() {
    let toml =
        "[advantage]\nestimator = \"reward\"\n[kl]\nestimator = \"k2\"\ncoef = 0.5\nplace = \"reward\"\n";
    let rollouts = Rollouts {
        loss_mask: Some(&[1, 1, 0, 1]),
        rewards: Some(&[1.0, 0.5]),
        logp_old: Some(&[-1.0, -2.0, f32::NAN, -0.5]),
        logp_ref: Some(&[-1.5, -1.0, 0.0, -0.5]),
        ..Rollouts::new(&[0, 3, 4], &[0, 2])
    };
    let credit = Recipe::from_toml(toml).unwrap().advantages(&Device::cpu(), &rollouts).unwrap();
    assert_eq!(credit.advantage, [1.0 - 0.5 * (0.125 + 0.5), 0.5]);
}

/// ReMix: λ times the KL to the base policy plus 1 − λ times that to the previous one, with every
/// aggregation's weight, beside the policy term.
#[test]
fn the_kl_convex_term_moves_from_the_base_to_the_previous_policy() {
    let recipe = Recipe::named("remix_full").unwrap();
    let device = Device::cpu();
    let logp = Some(&[-1.0, f32::NAN, -2.0][..]);
    let rollouts = Rollouts {
        loss_mask: Some(&[1, 0, 1]),
        logp,
        logp_old: logp,
        logp_latest: logp,
        logp_ref: Some(&[-1.5, 0.0, -2.0]),
        logp_previous: Some(&[-0.8, 0.0, -2.5]),
        entropy: Some(&[0.5, f32::NAN, 0.25]),
        ..Rollouts::new(&[0, 2, 3], &[0, 2])
    };
    let credit = Credit::per_sequence(vec![1.0, -1.0]);
    let alone = Recipe { kl: None, ..recipe.clone() };
    let plain = alone.loss(&device, &rollouts, &credit).unwrap();
    for (step, lambda) in [(0, 1.0), (55, 0.9), (1000, 0.5)] {
        let out = recipe.loss(&device, &Rollouts { step: Some(&[step]), ..rollouts }, &credit).unwrap();
        // x of the two live tokens: 0.5 and 0 relative to the base, −0.2 and 0.5 relative to the previous
        // policy; k2 = x²/2, token-mean of two.
        let k2 = |x: f64| 0.5 * x * x;
        let want = 0.01 / 2.0 * (lambda * k2(0.5) + (1.0 - lambda) * (k2(-0.2) + k2(0.5)));
        assert!((out.loss.unwrap() - plain.loss.unwrap() - want).abs() < 1e-8, "{step}");
        let gradient = |x: f64, y: f64| 0.01 / 2.0 * (lambda * x + (1.0 - lambda) * y);
        for (i, want) in [(0, gradient(0.5, -0.2)), (2, gradient(0.0, 0.5))] {
            assert!((f64::from(out.coef[i]) - f64::from(plain.coef[i]) - want).abs() < 1e-7, "{step} {i}");
        }
        assert_eq!(out.coef[1], 0.0);
    }
    let none = Rollouts { logp_ref: None, logp_previous: None, ..rollouts };
    let error = recipe.loss(&device, &none, &credit).unwrap_err().to_string();
    let missing = "missing columns: logp_ref (for kl), logp_previous (for kl), step (for kl)";
    assert!(error.ends_with(missing), "{error}");
    let error = recipe.loss(&device, &Rollouts { step: Some(&[1, 2]), ..rollouts }, &credit).unwrap_err();
    assert!(error.to_string().starts_with("`step` has 2 entries: expected 1"), "{error}");
}
