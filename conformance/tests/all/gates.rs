//! Gates and clips: worked vectors of docs/maths/vectors.md, rows of docs/maths/disagreements.md, gradients
//! against differences, and what a recipe refuses.

use crate::differences::{Compared, slope};
use crate::gate_batch::{batch, close, credit, data, input, one, one_of, run, run_with, summed};
use crate::prelude::*;
use lockstep::core::gate::{Cispo, Gate, MiniRl, PpoClip, Reinforce, Remix, Sapo};
use lockstep::ops::policy_loss::{PolicyInput, PolicyOutput, PolicyParams, policy_loss};
use lockstep::recipe::{Against, GmpoBounds, MaskChoice, RatioLevel};
use lockstep_conformance::oracle::gmpo;
use lockstep_core::policy_loss::gmpo::Mean;

#[test]
fn worked_8_1_minirl() {
    let recipe = summed("minirl");
    let coef = |logp: f32, a| f64::from(one(&recipe, [&[logp], &[-1.0], &[-1.2]], a).coef[0]);
    assert!(close(coef(-0.9, 0.5), -0.674929), "{}", coef(-0.9, 0.5));
    assert_eq!(coef(-0.7, 0.5), 0.0, "r = 1.349859 is above 1.27");
    assert!(close(coef(-0.7, -0.5), 0.824361));
    // C = 5 truncates exp(2.2) but keeps the gradient.
    assert!(close(f64::from(one(&recipe, [&[-0.9], &[-0.9], &[-3.1]], 1.0).coef[0]), -5.0));
}

#[test]
fn a_mask_names_the_policy_that_is_missing() {
    let data = data(5);
    let without = Rollouts { logp_rollout: None, logp_latest: None, ..input(&data) };
    let masked = |opsm_against| {
        let mask = MaskChoice { opsm_delta: Some(0.1), opsm_against, ..MaskChoice::default() };
        Recipe { mask, ..summed("grpo") }
    };
    let against_rollout = masked(Against::Rollout);
    let missing = "recipe `summed`: missing columns: logp_rollout (for mask.opsm_delta)";
    refused(run(&against_rollout, &data, &without), missing);
    assert!(run(&against_rollout, &data, &input(&data)).is_ok());
    assert!(run(&masked(Against::Old), &data, &without).is_ok());
}

#[test]
fn worked_8_1_gmpo() {
    let recipe = Recipe::named("gmpo").unwrap();
    let (old, logp) = ([-1.0f32, -1.0, -1.0], [-0.4f32, -1.6, -0.9]);
    for (a, ratio, mask) in [(1.0, 0.967216, [0.0, 1.0, 1.0]), (-1.0, 1.105171, [1.0, 0.0, 1.0])] {
        let out = one(&recipe, [&logp, &old, &[]], a);
        assert!(close(out.loss.unwrap(), -f64::from(a) * ratio), "{:?}", out.loss);
        for (coef, kept) in out.coef.iter().zip(mask) {
            assert!(close((*coef).into(), -f64::from(a) * ratio / 3.0 * kept), "{:?}", out.coef);
        }
    }
}

/// A recipe with PPO's usual clip.
fn wide(name: &str) -> Recipe {
    Recipe::named(name).unwrap().rebuild("wide").ppo_clip(0.2, 0.2, None).build().unwrap()
}

/// AReaL's GSPO: advantages per token count as the mean over the sequence's live tokens.
#[test]
fn gspo_with_the_sequence_mean_of_the_advantage() {
    let [areal, gspo] = ["areal_gspo", "gspo"].map(wide);
    let rollouts = Rollouts {
        loss_mask: Some(&[1, 1, 0, 1, 1, 0, 0]),
        logp: Some(&[-0.9, -1.2, -7.0, -0.6, -1.0, -1.0, -1.0]),
        logp_old: Some(&[-1.0; 7]),
        ..Rollouts::new(&[0, 4, 5, 7], &[0, 3])
    };
    // Live tokens of the first: 3, −1 and 1, with mean 1. Masked values are not read.
    let token = [3.0f32, -1.0, f32::NAN, 1.0, -2.0, f32::INFINITY, 5.0];
    let run = |recipe: &Recipe, credit| run_with(recipe, &rollouts, &credit).unwrap();
    let means = run(&areal, Credit::per_token(token.to_vec()));
    let given = run(&areal, Credit::per_sequence(vec![1.0, -2.0, 0.0]));
    assert_eq!((&means.coef, means.loss), (&given.coef, given.loss));
    let s = 0.1f64.exp();
    assert!(close(means.coef[0].into(), -s / 4.0), "one of four live tokens of the batch: {:?}", means.coef);
    // verl and TRL use each token's own advantage; the second one's has the other sign.
    let finite = token.map(|a| if a.is_finite() { a } else { 0.0 });
    let own = run(&gspo, Credit::per_token(finite.to_vec()));
    assert!(own.coef[0] < 0.0 && own.coef[1] > 0.0 && means.coef[1] < 0.0);
    refused(Recipe::from_toml("ratio.advantage = 'sequence_mean'"), "…ratio.advantage…ratio.level…");
}

#[test]
fn worked_8_1_gspo() {
    // d = (0.1, -0.2, 0.4): s = exp(0.1) = 1.105171 for all three tokens, and each gets a third of the
    // gradient.
    let out = one(&wide("gspo"), [&[-0.9, -1.2, -0.6], &[-1.0; 3], &[]], 1.0);
    assert!(close(out.loss.unwrap(), -1.105171), "{:?}", out.loss);
    for (coef, loss) in out.coef.iter().zip(&out.token_loss) {
        assert!(close((*coef).into(), -1.105171 / 3.0) && close((*loss).into(), -1.105171), "{out:?}");
    }
}

#[test]
fn worked_8_4_remix() {
    let recipe = summed("remix");
    let out = one(&recipe, [&[-0.5], &[-1.0], &[-0.8]], 1.0);
    assert_eq!(out.coef[0], 0.0, "r = 1.648721 is above c + eps = 1.421403");
    assert!(close(out.loss.unwrap(), -1.421403), "the clipped value");
    assert_eq!(out.metrics.unwrap().clip_fraction_high, 1.0);
    // Just inside, where PPO around 1 would have clipped; with the other sign there is no clip above.
    assert!(close(one(&recipe, [&[-0.65], &[-1.0], &[-0.8]], 1.0).coef[0].into(), -0.35f64.exp()));
    assert!(close(one(&recipe, [&[-0.5], &[-1.0], &[-0.8]], -1.0).coef[0].into(), 0.5f64.exp()));
    let low = one(&recipe, [&[-1.0], &[-1.0], &[-0.8]], -1.0);
    assert!(low.coef[0] == 0.0 && close(low.loss.unwrap(), 1.021403), "r = 1 is below c - eps");
}

#[test]
fn remix_of_the_latest_data_is_ppo() {
    let data = data(5);
    let [remix, ppo] = ["remix", "grpo"].map(|name| run(&summed(name), &data, &input(&data)).unwrap());
    assert_eq!(remix.coef, ppo.coef);
}

#[test]
fn worked_8_4_minpro_by_itself_and_through_given_ratios() {
    // Log-ratios (0.1, -0.3, 0.2, -0.5); MinPRO's w = (1.105171, 0.740818, 0.904837, 0.449329); CISPO's upper
    // bound is 1.28.
    let (logp, old) = ([-0.9f32, -1.3, -0.8, -1.5], [-1.0f32; 4]);
    let w = [0.1f32, -0.3, -0.1, -0.8];
    let credit = Credit::per_sequence(vec![2.0]);
    let own = one_of(&summed("minpro"), &Rollouts::default(), [&logp, &old], &credit);
    let columns = Rollouts { log_ratio: Some(&w), ..Rollouts::default() };
    let given = one_of(&given_minpro(), &columns, [&old, &old], &credit);
    for out in [own, given] {
        for (coef, want) in out.coef.iter().zip([1.105171, 0.740818, 0.904837, 0.449329]) {
            assert!(close((*coef).into(), -2.0 * want), "{:?}", out.coef);
        }
    }
}

/// MinPRO's gate on log-ratios provided by the caller.
fn given_minpro() -> Recipe {
    let mut recipe = summed("minpro");
    recipe.ratio.level = RatioLevel::Given;
    recipe
}

fn params<G: Gate>(gate: G, level: RatioGranularity) -> PolicyParams<G> {
    let weight = Weight { per_row: PerRow::AtLeastOne, denominator: 3.0, scale: 1.0 };
    let guard = Guard::clamp(0.25);
    PolicyParams { gate, level, guard, kl: None, kl_weighted: false, weight, band: [0.8, 1.2] }
}

/// The op's inputs.
fn of_op(data: &Data) -> PolicyInput<'_> {
    let [logp, old] = [slot::LOGP, slot::LOGP_OLD].map(|k| &data.element[k]);
    PolicyInput::new(logp, old, Advantage::PerSequence(&data.row[0]))
}

/// Given log-ratios that equal logp − logp_old change no bit of any output.
fn given_is_token<G: Gate>(gate: G)
where
    for<'a> lockstep_core::policy_loss::PolicyLoss<'a, G>: Compiled,
{
    let data = data(11);
    let d: Vec<f32> =
        (0..data.elements()).map(|i| data.element[slot::LOGP][i] - data.element[slot::LOGP_OLD][i]).collect();
    let device = Device::cpu();
    for outputs in [Outputs::COEF, Outputs::ALL] {
        let second = G::SECOND.then_some(&data.element[slot::SECOND][..]);
        let token = PolicyInput { outputs, logp_second: second, ..of_op(&data) };
        let given = PolicyInput { log_ratio: Some(&d), ..token };
        let mut outs = [PolicyOutput::default(), PolicyOutput::default()];
        let [a, b] = &mut outs;
        policy_loss(&device, &batch(&data), &token, &params(gate, RatioGranularity::Token), a).unwrap();
        policy_loss(&device, &batch(&data), &given, &params(gate, RatioGranularity::Given), b).unwrap();
        // Alarms are excluded: their exact values are unspecified.
        assert_eq!((&a.coef, &a.token_loss, &a.row_loss), (&b.coef, &b.token_loss, &b.row_loss), "{gate:?}");
        assert_eq!((a.loss, a.metrics), (b.loss, b.metrics), "{gate:?}");
    }
}

#[test]
fn given_log_ratios_have_the_bits_of_the_tokens_own() {
    given_is_token(PpoClip { clip_ratio_low: 0.2, clip_ratio_high: 0.28, clip_ratio_c: 3.0 });
    given_is_token(Sapo::new(1.0, 1.05));
    given_is_token(Cispo { low: 0.8, high: 1.28 });
    given_is_token(Reinforce);
    given_is_token(MiniRl { clip_ratio_low: 0.2, clip_ratio_high: 0.27, clip_ratio_c: 5.0 });
}

#[test]
fn given_log_ratios_are_refused_by_gates_that_read_logp_old() {
    let data = data(11);
    for gate in ["dppo_tv", "dppo_kl", "remix", "gmpo"] {
        let toml = format!("gate.kind = '{gate}'\nratio.level = 'given'\n");
        refused(Recipe::from_toml(&toml), "…ratio.level…");
    }
    let ratios = vec![0.0; data.elements()];
    let (device, batch) = (Device::cpu(), batch(&data));
    let of_op = PolicyInput { log_ratio: Some(&ratios), logp_second: Some(&ratios), ..of_op(&data) };
    let remix = params(Remix { clip_ratio_low: 0.1, clip_ratio_high: 0.1 }, RatioGranularity::Given);
    let out = &mut PolicyOutput::default();
    refused(policy_loss(&device, &batch, &of_op, &remix, out), "…ratio.level…logp_old…");
    let minirl = MiniRl { clip_ratio_low: 0.1, clip_ratio_high: 0.1, clip_ratio_c: 5.0 };
    let minirl = params(minirl, RatioGranularity::Token);
    // Given without its level; and a second policy that is absent.
    refused(policy_loss(&device, &batch, &of_op, &minirl, out), "…`log_ratio`…");
    let none = PolicyInput { logp_second: None, log_ratio: None, ..of_op };
    refused(policy_loss(&device, &batch, &none, &minirl, out), "…`logp_second`…");
    // MiniRL may use them, but then the sampler must be present.
    let given = Rollouts { log_ratio: Some(&ratios), ..input(&data) };
    let minirl = Recipe { ratio: given_minpro().ratio, ..summed("minirl") };
    assert!(run(&minirl, &data, &given).is_ok());
    let missing = "…missing columns: logp_rollout (for gate)";
    refused(run(&minirl, &data, &Rollouts { logp_rollout: None, ..given }), missing);
    // Other levels do not read them.
    let [with, without] = [given, input(&data)].map(|input| run(&summed("grpo"), &data, &input).unwrap());
    assert_eq!(with, without);
    let minpro = given_minpro();
    refused(run(&minpro, &data, &input(&data)), "…missing columns: log_ratio (for ratio)");
    assert!(run(&minpro, &data, &Rollouts { logp_old: None, ..given }).is_ok());
    let live = (0..data.elements()).find(|i| data.live(*i)).unwrap();
    let mut bad = ratios.clone();
    bad[live] = f32::NAN;
    let bad = run(&minpro, &data, &Rollouts { log_ratio: Some(&bad), ..input(&data) });
    refused(bad, &format!("`log_ratio`[{live}]…"));
}

#[test]
fn gmpo_matches_finite_differences() {
    let data = data(21);
    let recipe = Recipe::named("gmpo").unwrap();
    let means = [
        (gmpo::Mean::Geometric, Mean::Geometric),
        (gmpo::Mean::ClippedSum, Mean::ClippedSum),
        (gmpo::Mean::Product, Mean::Product),
        (gmpo::Mean::Harmonic, Mean::Harmonic),
    ];
    let (clip_log_low, clip_log_high, bounds) = (0.1f32, 0.2f32, GmpoBounds::Log);
    for ((of_oracle, mean), per_token) in means.into_iter().flat_map(|mean| [(mean, false), (mean, true)]) {
        let clip = gmpo::Gmpo { mean: of_oracle, low: clip_log_low.into(), high: clip_log_high.into() };
        let gate = GateChoice::Gmpo { clip_log_low, clip_log_high, bounds, mean };
        let recipe = recipe.clone().rebuild("fd").gate(gate).build().unwrap();
        let weights = Some(data.element[slot::WEIGHTS].clone());
        let own = match per_token {
            true => Credit::per_token(data.element[slot::ADVANTAGE].clone()),
            false => credit(&data),
        };
        let coef = run_with(&recipe, &input(&data), &Credit { weights, ..own }).unwrap().coef;
        let at = |k: usize, i: usize| f64::from(data.element[k][i]);
        let log_ratio = |i: usize| at(slot::LOGP, i) - at(slot::LOGP_OLD, i);
        let tokens = |row: usize, moved: usize, step: f64| -> Vec<gmpo::Token> {
            let token = |i: usize| gmpo::Token {
                d: log_ratio(i) + if i == moved { step } else { 0.0 },
                a: if per_token { at(slot::ADVANTAGE, i) } else { data.row[0][row].into() },
                w: at(slot::WEIGHTS, i),
            };
            data.members(row).into_iter().map(token).collect()
        };
        let loss = |row: usize, moved: usize, step: f64| {
            clip.loss(&tokens(row, moved, step), true) / data.rows() as f64
        };
        let mut compared = Compared::default();
        for row in 0..data.rows() {
            for i in data.members(row) {
                let d = match mean {
                    Mean::ClippedSum => clip.sums(&tokens(row, i, 0.0)).0,
                    _ => log_ratio(i),
                };
                if (d - clip.high).abs().min((d + clip.low).abs()) < KINK {
                    continue;
                }
                let want = slope(|step| loss(row, i, step));
                compared.add(coef[i], want, want == 0.0);
            }
        }
        compared.check(&format!("{mean:?}"), 150, 11);
    }
}

#[test]
fn row_10_23_gmpo_bounds_are_of_the_logarithm() {
    let recipe = Recipe::named("gmpo").unwrap();
    // r = 1.45: inside e^0.4 = 1.4918, outside 1 + 0.4.
    let coef = one(&recipe, [&[1.45f32.ln() - 1.0], &[-1.0], &[]], 1.0).coef[0];
    assert!(close(coef.into(), -1.45), "{coef}");
}

#[test]
fn row_10_22_weights_come_after_the_clip() {
    // Everywhere: w times the clipped loss and gradient, never a clip of w·r.
    let data = data(31);
    let half = Credit { weights: Some(vec![0.5; data.elements()]), ..credit(&data) };
    for name in ["grpo", "minirl", "remix", "kl_cov", "dro", "trl_two_sided", "topr"] {
        let recipe = summed(name);
        let plain = run(&recipe, &data, &input(&data)).unwrap();
        let weighted = run_with(&recipe, &input(&data), &half).unwrap();
        for (a, b) in plain.coef.iter().zip(&weighted.coef) {
            assert_eq!(0.5 * a, *b, "{name}: {a} {b}");
        }
    }
}

#[test]
fn columns_that_a_recipe_does_not_read_change_nothing() {
    let data = data(91);
    let nan = vec![f32::NAN; data.elements()];
    // Not even their length is checked.
    let more = Rollouts {
        entropy: Some(&nan),
        logp_ref: Some(&nan[1..]),
        seed: Some(&[1, 2]),
        token_rewards: Some(&[]),
        ..input(&data)
    };
    for name in ["grpo", "kl_cov", "minirl", "dro", "gmpo"] {
        let recipe = Recipe::named(name).unwrap();
        let [with, without] = [more, input(&data)].map(|input| run(&recipe, &data, &input).unwrap());
        assert_eq!(with, without, "{name}");
    }
}
