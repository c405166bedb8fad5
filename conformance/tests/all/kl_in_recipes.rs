//! `[kl] importance_weighted`: loss and coefficients of a recipe have β·W·r·k and its gradient, by hand, with every aggregation.

use lockstep::recipe::{AggregationMode, KlChoice, KlEstimator, KlPlace, KlWeighting, Reduction};
use lockstep::{Advantage, Batch, Device, Outputs, PolicyInput, PolicyOutput, Recipe};
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
        place: KlPlace::Loss,
    };
    Recipe::named(name).unwrap().rebuild("weighted").kl(kl).aggregation(mode).build().unwrap()
}

fn run(recipe: &Recipe, outputs: Outputs, with_ref: bool) -> PolicyOutput {
    let batch = Batch::new(&OFFSETS, &[0, 2], Some(&MASK)).unwrap();
    let logp_ref = with_ref.then_some(&REF[..]);
    let advantage = Advantage::PerSequence(&[1.0, -2.0]);
    let input = PolicyInput { logp_ref, outputs, ..PolicyInput::new(&LOGP, &OLD, advantage) };
    recipe.policy_loss(&Device::cpu(), &batch, &input).unwrap()
}

#[test]
fn importance_weighted_kl_by_hand() {
    // Ratios 1.284, 0.607, 1: the lengths of the sequences are 2 and 1, of the batch 3.
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
                // The mode is that of the KL term alone, and there is none.
                plain.aggregation.mode = AggregationMode::SeqMeanTokenMean;
            }
            let plain = run(&plain, Outputs::ALL, false);
            for weighted in [KlWeighting::ThroughRatio, KlWeighting::Detached] {
                let recipe = recipe(name, mode, weighted);
                let out = run(&recipe, Outputs::ALL, true);
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
                let coef = run(&recipe, Outputs::COEF, true).coef;
                assert_eq!(coef, out.coef, "{name}: coefficients alone");
                let exact = recipe.clone().rebuild("exact").reduction(Reduction::Exact).build().unwrap();
                let exact = run(&exact, Outputs::ALL, true);
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

/// The same estimator under two names: with clamps that the recipe may still set, and without any.
#[test]
fn low_var_kl_is_k3_with_clamps() {
    let kl = |text: &str| Recipe::from_toml(&format!("[kl]\ncoef = 0.5\n{text}")).unwrap().kl_term().unwrap();
    let (clamped, plain) = (kl("estimator = \"low_var_kl\"\n"), kl("estimator = \"k3\"\n"));
    assert_eq!((clamped.0.clamp_in, clamped.0.clamp_out, clamped.1), (20.0, 10.0, 0.5));
    assert_eq!(plain.0.clamp_out, f32::INFINITY);
    assert_eq!(kl("estimator = \"low_var_kl\"\nclamp_out = 5.0\n").0.clamp_out, 5.0);
    let text =
        Recipe::from_toml("[kl]\nestimator = \"low_var_kl\"\ncoef = 0.5\n").unwrap().to_toml().unwrap();
    assert!(text.contains("low_var_kl"), "{text}");
}

/// PPO and REINFORCE++: the penalty is in the rewards, so the loss has no term and refuses a reference.
#[test]
fn a_kl_term_in_the_rewards_is_none_of_the_loss() {
    let toml = "[advantage]\nestimator = \"reinforce_plus_plus\"\n[kl]\nestimator = \"k2\"\ncoef = 0.5\nplace = \"reward\"\n";
    let recipe = Recipe::from_toml(toml).unwrap();
    assert!(recipe.kl_term().is_none());
    let (device, batch) = (Device::cpu(), Batch::new(&[0, 2], &[0, 1], None).unwrap());
    let (logp, reference) = ([-1.0f32, -2.0], [-1.5f32, -1.0]);
    // r − 0.5·x²/2.
    let rewards = recipe.penalised_rewards(&device, &batch, &[0.0, 1.0], &logp, &reference).unwrap();
    assert_eq!(rewards, [-0.0625, 0.75]);
    let input = PolicyInput::new(&logp, &logp, Advantage::PerToken(&rewards));
    assert!(recipe.policy_loss(&device, &batch, &input).is_ok());
    let with = PolicyInput { logp_ref: Some(&reference), ..input };
    assert!(recipe.policy_loss(&device, &batch, &with).unwrap_err().to_string().contains("logp_ref"));
    let in_loss = Recipe::from_toml("[kl]\nestimator = \"k2\"\ncoef = 0.5\n").unwrap();
    let error = in_loss.penalised_rewards(&device, &batch, &rewards, &logp, &reference).unwrap_err();
    assert!(error.to_string().contains("place reward"), "{error}");
}

/// ReMix: λ of the base policy and 1 − λ of the previous one, by every aggregation's weight, beside the policy term.
#[test]
fn the_kl_convex_term_moves_from_the_base_to_the_previous_policy() {
    let recipe = Recipe::named("remix_full").unwrap();
    let (device, batch) = (Device::cpu(), Batch::new(&[0, 2, 3], &[0, 2], Some(&[1, 0, 1])).unwrap());
    let (logp, base, previous) = ([-1.0f32, f32::NAN, -2.0], [-1.5f32, 0.0, -2.0], [-0.8f32, 0.0, -2.5]);
    let input = PolicyInput::new(&logp, &logp, Advantage::PerSequence(&[1.0, -1.0]));
    let plain = recipe.policy_loss(&device, &batch, &input).unwrap();
    for (step, lambda) in [(0, 1.0), (55, 0.9), (1000, 0.5)] {
        let mut out = plain.clone();
        let term =
            recipe.add_kl_convex(&device, &batch, [&logp, &base, &previous], step, None, &mut out).unwrap();
        // x of the two live tokens: 0.5 and 0 to the base, −0.2 and 0.5 to the previous policy; k2 = x²/2, token-mean of two.
        let k2 = |x: f64| 0.5 * x * x;
        let want = 0.01 / 2.0 * (lambda * k2(0.5) + (1.0 - lambda) * (k2(-0.2) + k2(0.5)));
        assert!((term - want).abs() < 1e-8, "{step}: {term} {want}");
        assert!((out.loss.unwrap() - plain.loss.unwrap() - want).abs() < 1e-8);
        let gradient = |x: f64, y: f64| 0.01 / 2.0 * (lambda * x + (1.0 - lambda) * y);
        for (i, want) in [(0, gradient(0.5, -0.2)), (2, gradient(0.0, 0.5))] {
            assert!((f64::from(out.coef[i]) - f64::from(plain.coef[i]) - want).abs() < 1e-7, "{step} {i}");
        }
        assert_eq!(out.coef[1], 0.0);
    }
    let other = Recipe::named("remix").unwrap();
    let error = other.add_kl_convex(&device, &batch, [&logp, &base, &previous], 0, None, &mut plain.clone());
    assert!(error.unwrap_err().to_string().contains("place convex"));
}
