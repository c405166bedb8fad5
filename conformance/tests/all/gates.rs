//! Gates and clips: worked vectors of maths.md §8, rows of §10, gradients against differences, and what a recipe refuses.

use crate::gate_batch::{batch, close, data, input, one, run, summed, text};
use lockstep::core::gate::{Cispo, Gate, MiniRl, PpoClip, Reinforce, Remix, Sapo};
use lockstep::core::ratio::{Guard, Level};
use lockstep::ops::policy_loss::{PolicyParams, policy_loss};
use lockstep::recipe::{GateChoice, GmpoBounds, GuardChoice, RatioLevel};
use lockstep::{Advantage, Batch, Compiled, Device, Outputs, PolicyInput, PolicyOutput, Recipe};
use lockstep_conformance::cases::slot;
use lockstep_conformance::oracle::policy_loss::{Gate as OracleGate, PolicyLoss, Token};
use lockstep_conformance::oracle::{gmpo, mini_rl, remix, token};
use lockstep_conformance::precision::{FINITE_DIFFERENCE, KINK, STEP};
use lockstep_core::aggregate::{PerRow, Weight};

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
fn minirl_without_a_sampler_truncates_the_ratio_and_says_so() {
    let recipe = summed("minirl");
    let out = one(&recipe, [&[-0.9], &[-1.0], &[]], 1.0);
    assert!(out.second_missing && close(out.coef[0].into(), -(0.1f64.exp())));
    assert!(!one(&recipe, [&[-0.9], &[-1.0], &[-1.2]], 1.0).second_missing);
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

/// AReaL's GSPO: advantages per token count as the mean over the sequence's live tokens.
#[test]
fn gspo_with_the_sequence_mean_of_the_advantage() {
    let recipe =
        Recipe::named("areal_gspo").unwrap().rebuild("wide").ppo_clip(0.2, 0.2, None).build().unwrap();
    let batch = Batch::new(&[0, 4, 5, 7], &[0, 3], Some(&[1, 1, 0, 1, 1, 0, 0])).unwrap();
    let logp = [-0.9f32, -1.2, -7.0, -0.6, -1.0, -1.0, -1.0];
    let old = [-1.0f32; 7];
    // Live tokens of the first: 3, −1 and 1: the mean is 1. What is masked is not read.
    let token = [3.0f32, -1.0, f32::NAN, 1.0, -2.0, f32::INFINITY, 5.0];
    let run = |recipe: &Recipe, advantage| {
        recipe.policy_loss(&Device::cpu(), &batch, &PolicyInput::new(&logp, &old, advantage)).unwrap()
    };
    let means = run(&recipe, Advantage::PerToken(&token));
    let given = run(&recipe, Advantage::PerSequence(&[1.0, -2.0, 0.0]));
    assert_eq!((&means.coef, means.loss), (&given.coef, given.loss));
    let s = 0.1f64.exp();
    assert!(close(means.coef[0].into(), -s / 4.0), "one of four live tokens of the batch: {:?}", means.coef);
    // verl and TRL: each token its own; the second one's has the other sign.
    let own = Recipe::named("gspo").unwrap().rebuild("wide").ppo_clip(0.2, 0.2, None).build().unwrap();
    let finite = token.map(|a| if a.is_finite() { a } else { 0.0 });
    let own = run(&own, Advantage::PerToken(&finite));
    assert!(own.coef[0] < 0.0 && own.coef[1] > 0.0 && means.coef[1] < 0.0);
    let error = Recipe::from_toml("[ratio]\nadvantage = \"sequence_mean\"\n").unwrap_err().to_string();
    assert!(error.contains("ratio.advantage") && error.contains("ratio.level"), "{error}");
}

#[test]
fn worked_8_1_gspo() {
    // d = (0.1, -0.2, 0.4): s = exp(0.1) = 1.105171 for all three tokens, and each has a third of the gradient.
    let recipe = Recipe::named("gspo").unwrap().rebuild("wide").ppo_clip(0.2, 0.2, None).build().unwrap();
    let out = one(&recipe, [&[-0.9, -1.2, -0.6], &[-1.0; 3], &[]], 1.0);
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
    // Just inside, where PPO around 1 would have clipped; and the other sign is not clipped above.
    assert!(close(one(&recipe, [&[-0.65], &[-1.0], &[-0.8]], 1.0).coef[0].into(), -0.35f64.exp()));
    assert!(close(one(&recipe, [&[-0.5], &[-1.0], &[-0.8]], -1.0).coef[0].into(), 0.5f64.exp()));
    let low = one(&recipe, [&[-1.0], &[-1.0], &[-0.8]], -1.0);
    assert!(low.coef[0] == 0.0 && close(low.loss.unwrap(), 1.021403), "r = 1 is below c - eps");
}

#[test]
fn remix_of_the_latest_data_is_ppo() {
    let (data, ppo) = (data(5), summed("grpo"));
    let (remix, plain) =
        (run(&summed("remix"), &data, &input(&data)).unwrap(), run(&ppo, &data, &input(&data)));
    assert!(remix.second_missing);
    assert_eq!(remix.coef, plain.unwrap().coef);
}

#[test]
fn worked_8_4_minpro_weights_through_given_ratios() {
    // MinPRO's w = (1.105171, 0.740818, 0.904837, 0.449329) as log-ratios; CISPO's upper bound is 1.28.
    let (w, logp) = ([0.1f32, -0.3, -0.1, -0.8], [-0.5f32; 4]);
    let batch = Batch::new(&[0, 4], &[0, 1], None).unwrap();
    let input =
        PolicyInput { log_ratio: Some(&w), ..PolicyInput::new(&logp, &logp, Advantage::PerSequence(&[2.0])) };
    let out = summed("minpro").policy_loss(&Device::cpu(), &batch, &input).unwrap();
    for (coef, want) in out.coef.iter().zip([1.105171, 0.740818, 0.904837, 0.449329]) {
        assert!(close((*coef).into(), -2.0 * want), "{:?}", out.coef);
    }
}

fn params<G: Gate>(gate: G, level: Level) -> PolicyParams<G> {
    let weight = Weight { per_row: PerRow::AtLeastOne, denominator: 3.0, scale: 1.0 };
    let guard = Guard::clamp(0.25);
    PolicyParams { gate, level, guard, kl: None, kl_weighted: false, weight, band: [0.8, 1.2] }
}

/// Given log-ratios that are logp − logp_old change no bit of any output.
fn given_is_token<G: Gate>(gate: G)
where
    for<'a> lockstep_core::policy_loss::PolicyLoss<'a, G>: Compiled,
{
    let data = data(11);
    let d: Vec<f32> =
        (0..data.elements()).map(|i| data.element[slot::LOGP][i] - data.element[slot::LOGP_OLD][i]).collect();
    let (device, groups) = (Device::cpu(), [0, data.rows() as u32]);
    for outputs in [Outputs::COEF, Outputs::ALL] {
        let second = G::SECOND.then_some(&data.element[slot::SECOND][..]);
        let token = PolicyInput { outputs, logp_second: second, ..input(&data) };
        let given = PolicyInput { log_ratio: Some(&d), ..token };
        let mut outs = [PolicyOutput::default(), PolicyOutput::default()];
        let [a, b] = &mut outs;
        policy_loss(&device, &batch(&data, &groups), &token, &params(gate, Level::Token), a).unwrap();
        policy_loss(&device, &batch(&data, &groups), &given, &params(gate, Level::Given), b).unwrap();
        // Not the alarms, whose values promise nothing.
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
    let ratios = vec![0.0; data.elements()];
    let given = PolicyInput { log_ratio: Some(&ratios), ..input(&data) };
    for gate in [
        GateChoice::DppoTv { clip_ratio_low: 0.1, clip_ratio_high: 0.1, clip_ratio_c: 3.0 },
        GateChoice::DppoKl { clip_ratio_low: 0.1, clip_ratio_high: 0.1, clip_ratio_c: 3.0 },
        GateChoice::Remix { clip_ratio_low: 0.1, clip_ratio_high: 0.1 },
        GateChoice::Gmpo { clip_log_low: 0.1, clip_log_high: 0.1, bounds: GmpoBounds::Log },
    ] {
        let mut recipe = Recipe::named("minpro").unwrap();
        recipe.gate = gate;
        assert!(text(recipe.check()).contains("ratio.level"), "{gate:?}");
    }
    let remix = params(Remix { clip_ratio_low: 0.1, clip_ratio_high: 0.1 }, Level::Given);
    let groups = [0, data.rows() as u32];
    let out = &mut PolicyOutput::default();
    let error = text(policy_loss(&Device::cpu(), &batch(&data, &groups), &given, &remix, out));
    assert!(error.contains("ratio.level") && error.contains("logp_old"), "{error}");
    // MiniRL may, but then the sampler must be there: logp_old cannot stand in for it.
    let error = text(run(
        &Recipe { ratio: Recipe::named("minpro").unwrap().ratio, ..summed("minirl") },
        &data,
        &given,
    ));
    assert!(error.contains("logp_old"), "{error}");
    assert!(text(run(&summed("grpo"), &data, &given)).contains("log_ratio"));
    assert!(text(run(&summed("minpro"), &data, &input(&data))).contains("log_ratio"));
    let mut bad = ratios.clone();
    let live = (0..data.elements()).find(|i| data.live(*i)).unwrap();
    bad[live] = f32::NAN;
    let error = text(run(&summed("minpro"), &data, &PolicyInput { log_ratio: Some(&bad), ..input(&data) }));
    assert!(error.contains(&format!("`log_ratio`[{live}]")), "{error}");
}

/// Coefficients of gates with a second policy against differences of the oracle.
#[test]
fn second_gates_match_finite_differences() {
    let mini = mini_rl::MiniRl { low: f64::from(0.05f32), high: f64::from(0.1f32), c: f64::from(1.25f32) };
    let mix = remix::Remix { low: f64::from(0.1f32), high: f64::from(0.05f32) };
    let choices = [
        (
            OracleGate::MiniRl(mini),
            GateChoice::Minirl { clip_ratio_low: 0.05, clip_ratio_high: 0.1, clip_ratio_c: 1.25 },
        ),
        (OracleGate::Remix(mix), GateChoice::Remix { clip_ratio_low: 0.1, clip_ratio_high: 0.05 }),
    ];
    for (k, (gate, choice)) in choices.into_iter().enumerate() {
        for (guard, kind) in
            [(token::Guard::None, GuardChoice::None), (token::Guard::Clamp(0.25), GuardChoice::Clamp)]
        {
            let data = data(k as u64);
            let recipe = summed("grpo").rebuild("fd").gate(choice).guard(kind, 0.25).build().unwrap();
            let input = PolicyInput {
                weights: Some(&data.element[slot::WEIGHTS]),
                logp_second: Some(&data.element[slot::SECOND]),
                ..input(&data)
            };
            let coef = run(&recipe, &data, &input).unwrap().coef;
            let oracle = PolicyLoss { guard, log_max: None, gate, kl: None };
            let (mut compared, mut flat, mut largest, mut worst) = (0, 0, 0.0f64, 0.0f64);
            for row in 0..data.rows() {
                for i in data.span(row).filter(|i| data.live(*i)) {
                    let at = |k: usize| f64::from(data.element[k][i]);
                    let t = Token {
                        logp: at(slot::LOGP),
                        logp_old: at(slot::LOGP_OLD),
                        logp_ref: 0.0,
                        logp_second: at(slot::SECOND),
                        advantage: data.row[0][row].into(),
                        weight: at(slot::WEIGHTS),
                        sequence: (0.0, 0.0),
                    };
                    if oracle.distance_to_kink(&t) < KINK {
                        continue;
                    }
                    let difference = (oracle.moved(&t, STEP) - oracle.moved(&t, -STEP)) / (2.0 * STEP);
                    largest = largest.max(difference.abs());
                    worst = worst.max((difference - f64::from(coef[i])).abs());
                    flat += usize::from(difference == 0.0 && t.advantage * t.weight != 0.0);
                    compared += 1;
                }
            }
            assert!(worst <= FINITE_DIFFERENCE * largest, "{choice:?}: {worst:e} of {largest:e}");
            assert!(compared > 150 && flat > 10, "{choice:?}: {compared} compared, {flat} clipped");
        }
    }
}

#[test]
fn gmpo_matches_finite_differences() {
    let data = data(21);
    let recipe = Recipe::named("gmpo").unwrap();
    let clip = gmpo::Gmpo { low: f64::from(0.1f32), high: f64::from(0.2f32) };
    let recipe = recipe
        .rebuild("fd")
        .gate(GateChoice::Gmpo { clip_log_low: 0.1, clip_log_high: 0.2, bounds: GmpoBounds::Log })
        .build()
        .unwrap();
    for per_token in [false, true] {
        let weights = Some(&data.element[slot::WEIGHTS][..]);
        let advantage = Advantage::PerToken(&data.element[slot::ADVANTAGE]);
        let advantage = if per_token { advantage } else { Advantage::PerSequence(&data.row[0]) };
        let input = PolicyInput { weights, advantage, ..input(&data) };
        let coef = run(&recipe, &data, &input).unwrap().coef;
        let loss = |row: usize, moved: usize, step: f64| {
            let at = |k: usize, i: usize| f64::from(data.element[k][i]);
            let live = data.span(row).filter(|i| data.live(*i));
            let token = |i: usize| gmpo::Token {
                d: at(slot::LOGP, i) - at(slot::LOGP_OLD, i) + if i == moved { step } else { 0.0 },
                a: if per_token { at(slot::ADVANTAGE, i) } else { data.row[0][row].into() },
                w: at(slot::WEIGHTS, i),
            };
            clip.loss(&live.map(token).collect::<Vec<_>>(), true) / data.rows() as f64
        };
        let (mut compared, mut flat, mut largest, mut worst) = (0, 0, 0.0f64, 0.0f64);
        for row in 0..data.rows() {
            for i in data.span(row).filter(|i| data.live(*i)) {
                let d = f64::from(data.element[slot::LOGP][i]) - f64::from(data.element[slot::LOGP_OLD][i]);
                if (d - clip.high).abs().min((d + clip.low).abs()) < KINK {
                    continue;
                }
                let difference = (loss(row, i, STEP) - loss(row, i, -STEP)) / (2.0 * STEP);
                largest = largest.max(difference.abs());
                worst = worst.max((difference - f64::from(coef[i])).abs());
                flat += usize::from(difference == 0.0);
                compared += 1;
            }
        }
        assert!(worst <= FINITE_DIFFERENCE * largest, "{worst:e} of {largest:e}");
        assert!(compared > 150 && flat > 10 && flat < compared, "{compared} compared, {flat} clipped");
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
    let half = vec![0.5; data.elements()];
    for name in ["grpo", "minirl", "remix", "kl_cov", "dro", "trl_two_sided", "topr"] {
        let recipe = summed(name);
        let plain = run(&recipe, &data, &input(&data)).unwrap();
        let weighted = run(&recipe, &data, &PolicyInput { weights: Some(&half), ..input(&data) }).unwrap();
        for (a, b) in plain.coef.iter().zip(&weighted.coef) {
            assert_eq!(0.5 * a, *b, "{name}: {a} {b}");
        }
    }
}

#[test]
fn impossible_combinations_are_named() {
    let refused = |toml: &str| text(Recipe::from_toml(toml));
    let kl = "[kl]\nestimator = \"k3\"\ncoef = 0.1\n";
    for (toml, name) in [
        (format!("[gate]\nkind = \"kl_cov\"\n{kl}"), "kl_cov"),
        (format!("[gate]\nkind = \"dro\"\nbeta = 0.1\n{kl}"), "dro"),
        ("[gate]\nkind = \"dro\"\nbeta = -1.0\n".into(), "gate.beta"),
        ("[gate]\nkind = \"gmpo\"\n[ratio]\nlevel = \"sequence\"\n".into(), "gmpo"),
        ("[gate]\nkind = \"gmpo\"\n[mask]\nopsm_delta = 0.1\n".into(), "gmpo"),
        ("[gate]\nkind = \"gmpo\"\nclip_log_low = -0.1\n".into(), "clip_log_low"),
        ("[gate]\nkind = \"remix\"\n[ratio]\nlevel = \"sequence\"\n".into(), "remix"),
        ("[gate]\nkind = \"clip_cov\"\nclip_cov_lb = 6.0\n".into(), "clip_cov_ub"),
        ("[gate]\nkind = \"kl_cov\"\nkl_cov_ratio = 1.5\n".into(), "kl_cov_ratio"),
        ("[gate]\nkind = \"vespo\"\nk_pos = -1.0\n".into(), "k_pos"),
        ("[mask]\ntop_entropy = 2.0\n".into(), "mask.top_entropy"),
        ("[ratio]\nlevel = \"given\"\nlog_max = 3.0\n".into(), "log_max"),
    ] {
        assert!(refused(&toml).contains(name), "{toml}: {}", refused(&toml));
    }
    let data = data(91);
    let second = Some(&data.element[slot::SECOND][..]);
    assert!(
        text(run(&summed("grpo"), &data, &PolicyInput { logp_second: second, ..input(&data) }))
            .contains("logp_second")
    );
    assert!(
        text(run(&summed("grpo"), &data, &PolicyInput { seed: Some(1), ..input(&data) })).contains("seed")
    );
    let entropy = Some(&data.element[slot::LOGP][..]);
    assert!(text(run(&summed("grpo"), &data, &PolicyInput { entropy, ..input(&data) })).contains("entropy"));
    let reference = Some(&data.element[slot::LOGP_REF][..]);
    assert!(
        text(run(&summed("kl_cov"), &data, &PolicyInput { logp_ref: reference, ..input(&data) }))
            .contains("logp_ref")
    );
    assert_eq!(summed("minpro").ratio.level, RatioLevel::Given);
}

/// Log-ratios of ±1e4, log-probabilities of −1e30, rows of one and of many tokens: finite, or an error that names the token.
#[test]
fn saturation() {
    let names =
        ["gmpo", "kl_cov", "clip_cov", "minirl", "remix", "trl_two_sided", "dro", "vespo", "topr", "opsm"];
    let long = 20_000usize;
    let pairs = [(-1.0f32, -1e4f32), (-1e4, -1.0), (-1e30, -1.0), (-1.0, -1e30), (0.0, 0.0), (-1e30, -1e30)];
    for name in names {
        let recipe =
            Recipe::named(name).unwrap().rebuild(name).guard(GuardChoice::Clamp, 20.0).build().unwrap();
        let seed = (name == "clip_cov").then_some(1);
        for (logp, old) in pairs {
            for n in [1, long] {
                let (offsets, logps, olds) = ([0, n as u32], vec![logp; n], vec![old; n]);
                let batch = Batch::new(&offsets, &[0, 1], None).unwrap();
                for a in [1.0f32, -1.0, 0.0] {
                    let a = [a];
                    let input = PolicyInput {
                        seed,
                        outputs: Outputs { metrics: false, ..Outputs::ALL },
                        ..PolicyInput::new(&logps, &olds, Advantage::PerSequence(&a))
                    };
                    match recipe.policy_loss(&Device::cpu(), &batch, &input) {
                        Ok(out) => {
                            assert!(out.coef.iter().all(|c| c.is_finite()), "{name} {logp} {old}");
                            assert!(out.loss.unwrap().is_finite(), "{name} {logp} {old}");
                        }
                        Err(error) => {
                            // DRO squares the difference.
                            let huge = (logp - old).abs() > 1e19;
                            assert!(huge && name == "dro", "{name} {logp} {old}: {error}");
                            assert!(error.to_string().contains('0'), "{error}");
                        }
                    }
                }
            }
        }
    }
}
