//! Gates and clips: worked vectors of maths.md §8, rows of §10, gradients against differences, and what a recipe refuses.

use lockstep::core::gate::{Cispo, Gate, MiniRl, PpoClip, Reinforce, Remix, Sapo, remix::kl_convex_lambda};
use lockstep::core::kl::{Estimator, Kl};
use lockstep::core::ratio::{Guard, Level};
use lockstep::core::select::Order;
use lockstep::ops::policy_loss::{PolicyParams, add_kl, policy_loss};
use lockstep::ops::select::{Candidates, Pick, covariance, select, share, top_quantile};
use lockstep::recipe::{Against, AggregationMode, GateChoice, GuardChoice, MaskChoice, RatioLevel};
use lockstep::{Advantage, Batch, Device, Error, Outputs, PolicyInput, PolicyOutput, Recipe};
use lockstep_conformance::cases::corpus::tokens;
use lockstep_conformance::cases::hash::Source;
use lockstep_conformance::cases::masks::Mask;
use lockstep_conformance::cases::shapes::Shape;
use lockstep_conformance::cases::values::Range;
use lockstep_conformance::cases::{Data, slot};
use lockstep_conformance::oracle::policy_loss::{Gate as OracleGate, PolicyLoss, Token};
use lockstep_conformance::oracle::{gmpo, mini_rl, remix, token, top};
use lockstep_conformance::precision::{FINITE_DIFFERENCE, KINK, STEP, WORKED};
use lockstep_core::aggregate::{PerRow, Weight};

fn data(seed: u64) -> Data {
    let lengths = vec![7, 1, 0, 40, 33, 129, 12, 3, 64, 25, 18, 2, 90];
    tokens(&Shape { name: "ragged", catches: "", lengths }, Mask::Random, Range::Realistic, Source::new(seed))
}

fn batch<'a>(data: &'a Data, groups: &'a [u32]) -> Batch<'a> {
    Batch::with_empty_rows(&data.offsets, groups, data.mask.as_deref()).unwrap()
}

/// The inputs that every gate reads.
fn input(data: &Data) -> PolicyInput<'_> {
    let advantage = Advantage::PerSequence(&data.row[0]);
    PolicyInput::new(&data.element[slot::LOGP], &data.element[slot::LOGP_OLD], advantage)
}

/// Each token of each sequence by itself: dL/dlogp is dl/dlogp.
fn summed(name: &str) -> Recipe {
    let recipe = Recipe::named(name).unwrap();
    recipe.rebuild("summed").aggregation(AggregationMode::TokenSum).build().unwrap()
}

fn run(recipe: &Recipe, data: &Data, input: &PolicyInput<'_>) -> Result<PolicyOutput, Error> {
    recipe.policy_loss(&Device::cpu(), &batch(data, &[0, data.rows() as u32]), input)
}

/// One sequence, its log-probabilities and one advantage.
fn one(recipe: &Recipe, logps: [&[f32]; 3], a: f32) -> PolicyOutput {
    let [logp, old, second] = logps;
    let (offsets, a) = ([0, logp.len() as u32], [a]);
    let batch = Batch::new(&offsets, &[0, 1], None).unwrap();
    let logp_second = (!second.is_empty()).then_some(second);
    let input = PolicyInput { logp_second, ..PolicyInput::new(logp, old, Advantage::PerSequence(&a)) };
    recipe.policy_loss(&Device::cpu(), &batch, &input).unwrap()
}

fn close(got: f64, want: f64) -> bool {
    (got - want).abs() <= WORKED * want.abs().max(1.0)
}

fn text(result: Result<impl std::fmt::Debug, Error>) -> String {
    result.unwrap_err().to_string()
}

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
fn given_is_token<G: Gate>(gate: G) {
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
        GateChoice::Gmpo { clip_log_low: 0.1, clip_log_high: 0.1 },
    ] {
        let mut recipe = Recipe::named("minpro").unwrap();
        recipe.gate = gate;
        assert!(text(recipe.check()).contains("token"), "{gate:?}");
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
        .gate(GateChoice::Gmpo { clip_log_low: 0.1, clip_log_high: 0.2 })
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
fn row_10_20_kl_cov_has_no_clip() {
    let mut recipe = summed("kl_cov");
    recipe.gate = GateChoice::KlCov { kl_cov_ratio: 0.0, ppo_kl_coef: 0.0 };
    let out = one(&recipe, [&[-0.1, -5.0], &[-3.0, -0.5], &[]], 1.0);
    for (coef, d) in out.coef.iter().zip([2.9f64, -4.5]) {
        assert!(close((*coef).into(), -d.exp()), "{:?}", out.coef);
    }
    assert_eq!(out.metrics.unwrap().clip_fraction, 0.0);
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
fn selection_is_a_sort() {
    let device = Device::cpu();
    for seed in 0..40u64 {
        let source = Source::new(seed);
        let data = data(seed);
        let groups = [0, data.rows() as u32];
        // Few values, so that ties cross rows; NaN and both zeros among them.
        let few = [0.5, -0.0, 0.0, 1.5, -2.0, f32::NAN, f32::MAX, -f32::MAX, 1e-45, f32::INFINITY];
        let value = |i: usize| if seed % 2 == 0 { few[source.below(i, few.len())] } else { source.signed(i) };
        let values: Vec<f32> = (0..data.elements()).map(value).collect();
        let live: Vec<usize> =
            (0..data.elements()).filter(|i| data.live(*i) && !values[*i].is_nan()).collect();
        for n in [0, 1, 2, live.len() / 3, live.len() - 1, live.len(), live.len() + 7] {
            let batch = batch(&data, &groups);
            let chosen = select(&device, &batch, &Candidates::largest(&values), n as u32).unwrap();
            let (out, count) = chosen.choose(&device, &batch, Pick::All(1.0), Pick::All(-1.0)).unwrap();
            let mut want = live.clone();
            want.sort_by(|a, b| values[*b].partial_cmp(&values[*a]).unwrap().then(a.cmp(b)));
            want.truncate(n);
            want.sort_unstable();
            let got: Vec<usize> = (0..out.len()).filter(|i| out[*i] == 1.0).collect();
            assert_eq!((got, count), (want, n.min(live.len()) as u64), "seed {seed}, n {n}");
            assert!((0..out.len()).all(|i| data.live(i) != (out[i] == 0.0)), "masked tokens have 0");
        }
    }
    let keys = [5, 0, 7, 5, 7, 1];
    assert_eq!(top::largest(&keys, 3), [0, 2, 4], "the oracle's own ties");
}

#[test]
fn kl_cov_ties_go_to_the_lowest_index() {
    // Every covariance is 0: one of four tokens, the first.
    let recipe =
        Recipe { gate: GateChoice::KlCov { kl_cov_ratio: 0.25, ppo_kl_coef: 8.0 }, ..summed("kl_cov") };
    let out = one(&recipe, [&[-0.5; 4], &[-1.0; 4], &[]], 1.0);
    let r = 0.5f64.exp();
    assert!(close(out.coef[0].into(), 8.0 - r) && out.coef[1..].iter().all(|c| close((*c).into(), -r)));
}

#[test]
fn shares_of_a_batch() {
    assert_eq!((share(2e-4, 0).unwrap(), share(2e-4, 10).unwrap()), (0, 1), "M = 0: nothing");
    assert_eq!((share(2e-4, 100_000).unwrap(), share(1.0, 7).unwrap()), (20, 7));
    assert!(text(share(1.5, 7)).contains("ratio"));
    // 11 distinct values: the 0.8 quantile is at position 8, so 3 are at or above it.
    assert_eq!((top_quantile(0.2, 11).unwrap(), top_quantile(0.2, 12).unwrap()), (3, 3));
    assert_eq!(
        (top_quantile(1.0, 5).unwrap(), top_quantile(0.0, 5).unwrap(), top_quantile(0.2, 0).unwrap()),
        (5, 1, 0)
    );
}

#[test]
fn clip_cov_drops_random_candidates() {
    let mut data = data(41);
    // Where A = 0 a dropped token could not be told from a kept one.
    data.row[0].iter_mut().filter(|a| **a == 0.0).for_each(|a| *a = 0.5);
    let gate = GateChoice::ClipCov {
        clip_ratio_low: 0.2,
        clip_ratio_high: 0.2,
        clip_cov_ratio: 0.05,
        clip_cov_lb: 0.25,
        clip_cov_ub: 5.0,
    };
    let recipe = Recipe { gate, ..summed("clip_cov") };
    let plain = run(&summed("trl"), &data, &input(&data)).unwrap();
    let groups = [0, data.rows() as u32];
    let batch = batch(&data, &groups);
    let advantage = Advantage::PerSequence(&data.row[0]);
    let cov = covariance(&Device::cpu(), &batch, &data.element[slot::LOGP], advantage).unwrap();
    let clipped = |i: usize| plain.coef[i] == 0.0;
    let n = share(0.05, batch.counts(&Device::cpu()).unwrap().tokens).unwrap() as usize;
    let mut seen = std::collections::BTreeMap::<usize, usize>::new();
    let seeds = 400;
    for seed in 0..seeds {
        let out = run(&recipe, &data, &PolicyInput { seed: Some(seed), ..input(&data) }).unwrap();
        let dropped: Vec<usize> = (0..out.coef.len()).filter(|i| plain.coef[*i] != out.coef[*i]).collect();
        assert_eq!(dropped.len(), n, "seed {seed}");
        for i in dropped {
            assert!(out.coef[i] == 0.0 && out.token_loss[i] == 0.0 && !clipped(i));
            assert!(cov[i] > 0.25 && cov[i] < 5.0, "{}", cov[i]);
            *seen.entry(i).or_default() += 1;
        }
    }
    let candidates =
        (0..cov.len()).filter(|i| data.live(*i) && !clipped(*i) && cov[*i] > 0.25 && cov[*i] < 5.0);
    let candidates = candidates.count();
    assert!(
        candidates > 2 * n && seen.len() == candidates,
        "{} of {candidates} were ever chosen",
        seen.len()
    );
    // Binomial: within five standard deviations.
    let p = n as f64 / candidates as f64;
    let (mean, deviation) = (p * seeds as f64, (p * (1.0 - p) * seeds as f64).sqrt());
    assert!(seen.values().all(|k| (*k as f64 - mean).abs() < 5.0 * deviation), "{mean} {seen:?}");
    assert!(text(run(&recipe, &data, &input(&data))).contains("seed"));
    let order = Order::Random { seed: 3, first: 0 };
    let all = Candidates { order, ..Candidates::largest(&cov) };
    let again = |n| select(&Device::cpu(), &batch, &all, n).unwrap();
    assert_eq!(again(9), again(9));
}

/// One sequence against a naive formula of its own.
#[test]
fn vespo_topr_and_the_off_policy_mask() {
    let (old, logp) = ([-1.0f32, -1.0], [-0.7f32, -1.1]);
    let w = 0.2f64.exp();
    let phi = |k: f64, lambda: f64| (lambda + k * w.ln() - lambda * w).exp();
    let coef = |recipe: &Recipe, a: f32| f64::from(one(recipe, [&logp, &old, &old], a).coef[0]);
    assert!(close(coef(&summed("vespo"), 2.0), -2.0 * phi(2.0, 3.0)));
    assert!(close(coef(&summed("vespo"), -2.0), 2.0 * phi(3.0, 2.0)));
    // The sequence went up: truncated at 1; down: its ratio.
    assert!(close(coef(&summed("topr"), 2.0), -2.0) && close(coef(&summed("topr"), -2.0), 2.0));
    let down = f64::from(one(&summed("topr"), [&old, &logp, &logp], -2.0).coef[0]);
    assert!(close(down, 2.0 / w), "{down}");
    let masked = |delta: f32, a: f32| {
        let mask = MaskChoice { opsm_delta: Some(delta), opsm_against: Against::Old, top_entropy: None };
        let recipe = Recipe { mask, ..summed("grpo") };
        one(&recipe, [&old, &logp, &[]], a).coef[1]
    };
    // mean(old - logp) = 0.1.
    assert!(masked(0.05, -1.0) == 0.0 && masked(0.15, -1.0) != 0.0 && masked(0.05, 1.0) != 0.0);
    let mut per_token = input_of(&logp, &old);
    per_token.advantage = Advantage::PerToken(&[1.0, 1.0]);
    let batch = Batch::new(&[0, 2], &[0, 1], None).unwrap();
    let error = text(summed("vespo").policy_loss(&Device::cpu(), &batch, &per_token));
    assert!(error.contains("advantage"), "{error}");
}

fn input_of<'a>(logp: &'a [f32], old: &'a [f32]) -> PolicyInput<'a> {
    PolicyInput::new(logp, old, Advantage::PerSequence(&[1.0]))
}

#[test]
fn dro_is_its_formula() {
    let recipe = Recipe { gate: GateChoice::Dro { beta: 0.5 }, ..summed("dro") };
    let (logp, old, a) = (-0.7f64, -1.1f64, 2.0);
    let loss = |x: f64| -(a * x - 0.25 * (x - old).powi(2));
    let out = one(&recipe, [&[logp as f32], &[old as f32], &[]], 2.0);
    assert!(close(out.loss.unwrap(), loss(logp)));
    let difference = (loss(logp + STEP) - loss(logp - STEP)) / (2.0 * STEP);
    assert!((f64::from(out.coef[0]) - difference).abs() <= FINITE_DIFFERENCE * difference.abs());
    assert!(close(out.coef[0].into(), -a + 0.5 * (logp - old)));
}

#[test]
fn two_sided_clip_is_a_dual_clip() {
    let data = data(51);
    let gate = GateChoice::TwoSided { clip_ratio_low: 0.2, clip_ratio_high: 0.2, delta: 1.25 };
    let dual = summed("grpo").rebuild("dual").ppo_clip(0.2, 0.2, Some(1.25)).build().unwrap();
    let two = Recipe { gate, ..summed("grpo") };
    let (a, b) = (run(&two, &data, &input(&data)).unwrap(), run(&dual, &data, &input(&data)).unwrap());
    assert!(a.coef == b.coef && a.metrics.unwrap().clip_fraction_dual > 0.0);
    let gate = GateChoice::TwoSided { clip_ratio_low: 0.2, clip_ratio_high: 0.2, delta: 1.1 };
    assert!(text(Recipe { gate, ..summed("grpo") }.check()).contains("gate.delta is 1.1"));
}

#[test]
fn top_entropy_keeps_the_largest() {
    let data = data(61);
    let plain = run(&summed("dapo"), &data, &input(&data)).unwrap();
    let entropy: Vec<f32> = (0..data.elements()).map(|i| Source::new(6).unit(i)).collect();
    let recipe = summed("top_entropy");
    let out = run(&recipe, &data, &PolicyInput { entropy: Some(&entropy), ..input(&data) }).unwrap();
    let mut live: Vec<usize> = (0..entropy.len()).filter(|i| data.live(*i)).collect();
    live.sort_by(|a, b| entropy[*b].total_cmp(&entropy[*a]));
    let n = top_quantile(0.2, live.len() as u64).unwrap() as usize;
    assert!(live[..n].iter().all(|i| out.coef[*i] == plain.coef[*i]));
    assert!(live[n..].iter().all(|i| out.coef[*i] == 0.0) && n > 30);
    assert!(text(run(&recipe, &data, &input(&data))).contains("mask.top_entropy"));
}

#[test]
fn kl_convex_is_two_terms() {
    let data = data(71);
    let groups = [0, data.rows() as u32];
    let batch = batch(&data, &groups);
    let (kl, beta) = (Kl::new(Estimator::K2), 0.5f32);
    let lambda = kl_convex_lambda(75) as f32;
    assert_eq!(lambda, 0.7);
    let (logp, base, previous) =
        (&data.element[slot::LOGP][..], &data.element[slot::LOGP_REF][..], &data.element[slot::LOGP_OLD][..]);
    let recipe = summed("remix");
    let mut out = run(&recipe, &data, &input(&data)).unwrap();
    let before = out.clone();
    let weight = recipe.weight(out.counts);
    for (reference, coef) in [(base, beta * lambda), (previous, beta * (1.0 - lambda))] {
        add_kl(&Device::cpu(), &batch, [logp, reference], (kl, coef), weight, &mut out).unwrap();
    }
    let (mut loss, mut scale) = (before.loss.unwrap(), 1.0);
    for i in (0..data.elements()).filter(|i| data.live(*i)) {
        let at = |values: &[f32]| f64::from(values[i]);
        let [b, p] = [base, previous].map(|q| at(logp) - at(q));
        let (b_coef, p_coef) = (f64::from(beta * lambda), f64::from(beta * (1.0 - lambda)));
        let want = at(&before.coef) + b_coef * b + p_coef * p;
        assert!((at(&out.coef) - want).abs() <= WORKED * (1.0 + want.abs() + b.abs() + p.abs()));
        loss += b_coef * b * b / 2.0 + p_coef * p * p / 2.0;
        scale += at(&before.token_loss).abs();
    }
    assert!((out.loss.unwrap() - loss).abs() <= WORKED * scale);
}

#[test]
fn gmpo_takes_its_kl_term_from_a_second_launch() {
    let data = data(81);
    let mut recipe = Recipe::named("gmpo").unwrap();
    let alone = run(&recipe, &data, &input(&data)).unwrap();
    let kl = "estimator = \"k2\"\ncoef = 0.5\n";
    recipe.kl = Recipe::from_toml(&format!("[kl]\n{kl}")).unwrap().kl;
    let reference = Some(&data.element[slot::LOGP_REF][..]);
    let out = run(&recipe, &data, &PolicyInput { logp_ref: reference, ..input(&data) }).unwrap();
    assert!(out.loss.unwrap() > alone.loss.unwrap() && out.coef != alone.coef);
    assert!(text(run(&recipe, &data, &input(&data))).contains("logp_ref"));
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
