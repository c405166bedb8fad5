//! Every pair of choices of a recipe: refused with an error that names both keys, or a small batch has finite results.
//! docs/combinations.md is the table of what is refused.

use lockstep::ops::gae::{Ends, GaeInput};
use lockstep::ops::optimal_token_baseline::Score;
use lockstep::ops::sharpen::EntropyOf;
use lockstep::ops::tree::Outcomes;
use lockstep::ops::value_loss::ValueInput;
use lockstep::ops::vtrace::VTraceInput;
use lockstep::recipe::{
    Against, EntropyKind, Estimator, GateChoice, KlPlace, RatioLevel, Rewards, TimeChoice, refused,
};
use lockstep::{Advantage, Batch, Device, Error, PolicyInput, Recipe};
use lockstep_conformance::cases::hash::Source;
use std::collections::BTreeSet;

/// A choice in TOML, with the keys one of which an error about it must name.
type Choice = (&'static str, &'static [&'static str]);

/// Choices of one table in a dimension exclude each other.
const DIMENSIONS: &[&[Choice]] = &[
    &[
        ("[gate]\nkind = \"sapo\"\n", &["gate.kind"]),
        ("[gate]\nkind = \"cispo\"\n", &["gate.kind"]),
        ("[gate]\nkind = \"reinforce\"\n", &["gate.kind"]),
        ("[gate]\nkind = \"dppo_tv\"\n", &["gate.kind"]),
        ("[gate]\nkind = \"dppo_kl\"\n", &["gate.kind"]),
        ("[gate]\nkind = \"gmpo\"\n", &["gate.kind"]),
        ("[gate]\nkind = \"dro\"\nbeta = 0.1\n", &["gate.kind"]),
        ("[gate]\nkind = \"minirl\"\n", &["gate.kind"]),
        ("[gate]\nkind = \"remix\"\n", &["gate.kind"]),
        ("[gate]\nkind = \"two_sided\"\ndelta = 4.0\n", &["gate.kind"]),
        ("[gate]\nkind = \"topr\"\n", &["gate.kind"]),
        ("[gate]\nkind = \"kl_cov\"\nkl_cov_ratio = 0.25\n", &["gate.kind"]),
        ("[gate]\nkind = \"vespo\"\n", &["gate.kind"]),
        ("[gate]\nkind = \"vespo\"\nagainst = \"old\"\n", &["gate.kind"]),
        ("[gate]\nkind = \"gmpo\"\nbounds = \"ratio\"\n", &["gate.kind"]),
        ("[gate]\nkind = \"kl_cov\"\nclip_ratio_low = 0.2\nclip_ratio_high = 0.2\n", &["gate.kind"]),
        ("[gate]\nkind = \"clip_cov\"\nclip_cov_ratio = 0.25\nclip_cov_lb = -1.0\n", &["gate.kind"]),
    ],
    &[
        ("[ratio]\nlevel = \"sequence\"\nlog_max = 10.0\n", &["ratio.level"]),
        ("[ratio]\nlevel = \"sequence\"\nadvantage = \"sequence_mean\"\n", &["ratio.level"]),
        ("[ratio]\nlevel = \"given\"\n", &["ratio.level"]),
        ("[ratio]\nguard = \"none\"\n", &["ratio.guard"]),
        ("[ratio]\nguard = \"straight_through\"\nguard_bound = 0.5\n", &["ratio.guard"]),
    ],
    &[
        ("[correction]\nlevel = \"token\"\n", &["correction."]),
        ("[correction]\nlevel = \"token\"\nrule = \"mask\"\nlow = 0.9\n", &["correction."]),
        ("[correction]\nlevel = \"sequence\"\nrule = \"mask\"\nlow = 0.5\nbound = 20.0\n", &["correction."]),
        ("[correction]\nlevel = \"geometric\"\nrule = \"plain\"\nnormalize = true\n", &["correction."]),
        (
            "[correction]\nlevel = \"one\"\nrule = \"plain\"\ndenominator = \"before\"\n[[correction.reject]]\nstatistic = \"token_k1\"\nhigh = 1.1\n",
            &["correction."],
        ),
        (
            "[correction]\nlevel = \"one\"\nrule = \"plain\"\n[[correction.reject]]\nstatistic = \"token_k1\"\nhigh = 1.1\n",
            &["correction."],
        ),
        (
            "[correction]\ndenominator = \"before\"\n[[correction.reject]]\nstatistic = \"seq_mean_k3\"\nhigh = 0.5\n",
            &["correction."],
        ),
    ],
    &[
        ("[aggregation]\nmode = \"token-mean\"\n", &["aggregation."]),
        ("[aggregation]\nmode = \"token-sum\"\n", &["aggregation."]),
        ("[aggregation]\nmode = \"seq-mean-token-sum\"\n", &["aggregation."]),
        ("[aggregation]\nmode = \"seq-mean-token-sum-norm\"\nhorizon = 64.0\n", &["aggregation."]),
        ("[aggregation]\nmode = \"seq-mean-token-sum-norm-padded\"\n", &["aggregation."]),
        ("[aggregation]\nsequences = \"all\"\nlength = \"at-least-one\"\n", &["aggregation."]),
    ],
    &[
        ("[kl]\nestimator = \"k1\"\ncoef = 0.1\n", &["[kl]", "kl."]),
        ("[kl]\nestimator = \"abs\"\ncoef = 0.1\n", &["[kl]", "kl."]),
        ("[kl]\nestimator = \"k2\"\ncoef = 0.1\nstraight_through = true\n", &["[kl]", "kl."]),
        ("[kl]\nestimator = \"k3\"\ncoef = 0.1\nclamp_in = 20.0\nclamp_out = 10.0\n", &["[kl]", "kl."]),
        ("[kl]\nestimator = \"k3\"\ncoef = 0.1\nimportance_weighted = \"through_ratio\"\n", &["[kl]", "kl."]),
        ("[kl]\nestimator = \"k2\"\ncoef = 0.1\nimportance_weighted = \"detached\"\n", &["[kl]", "kl."]),
        ("[kl]\nestimator = \"k3\"\ncoef = 0.1\nimportance_weighted = \"score\"\n", &["[kl]", "kl."]),
        ("[kl]\nestimator = \"k2\"\ncoef = 0.1\nplace = \"convex\"\n", &["[kl]", "kl."]),
        (
            "[kl]\nestimator = \"k2\"\ncoef = 0.1\nplace = \"convex\"\nimportance_weighted = \"detached\"\n",
            &["[kl]", "kl."],
        ),
        ("[kl]\nestimator = \"low_var_kl\"\ncoef = 0.1\nplace = \"reward\"\n", &["[kl]", "kl."]),
        (
            "[kl]\nestimator = \"k3\"\ncoef = 0.1\nplace = \"reward\"\nimportance_weighted = \"detached\"\n",
            &["[kl]", "kl."],
        ),
        (
            "[kl]\nestimator = \"k3\"\ncoef = 0.1\nplace = \"reward\"\nstraight_through = true\n",
            &["[kl]", "kl."],
        ),
    ],
    &[
        ("[mask]\nopsm_delta = 0.05\n", &["mask."]),
        ("[mask]\nopsm_delta = 0.05\nopsm_against = \"second\"\n", &["mask."]),
        ("[mask]\nopsm_against = \"second\"\n", &["mask."]),
        ("[mask]\ntop_entropy = 0.5\n", &["mask."]),
    ],
    &[
        ("[advantage]\nnorm_by_std = false\n", &["advantage."]),
        ("[advantage]\nwhiten = \"verl\"\n", &["advantage."]),
        ("[advantage]\nlimit = 1.0\n", &["advantage."]),
        ("[advantage]\nleast_std = 0.1\n", &["advantage."]),
        ("[advantage]\nwhiten = \"areal\"\n", &["advantage."]),
        (
            "[advantage]\nestimator = \"gdpo\"\nleave_one_out = true\nwhiten = \"nemo_gdpo\"\n",
            &["advantage."],
        ),
        ("[advantage]\nestimator = \"tempo\"\npad_id = 1\n", &["advantage."]),
        ("[advantage]\nestimator = \"grpo_batch\"\n", &["advantage."]),
        ("[advantage]\nestimator = \"grpo_leave_one_out\"\n", &["advantage."]),
        ("[advantage]\nestimator = \"rloo\"\n", &["advantage."]),
        ("[advantage]\nestimator = \"opo\"\n", &["advantage."]),
        ("[advantage]\nestimator = \"gpg\"\n", &["advantage."]),
        ("[advantage]\nestimator = \"pass_k\"\n", &["advantage."]),
        ("[advantage]\nestimator = \"mc_grpo\"\n", &["advantage."]),
        ("[advantage]\nestimator = \"max_rl\"\n", &["advantage."]),
        ("[advantage]\nestimator = \"remax\"\n", &["advantage."]),
        ("[advantage]\nestimator = \"vcpo\"\n", &["advantage."]),
        ("[advantage]\nestimator = \"vcpo\"\nrobust = \"median\"\n", &["advantage."]),
        ("[advantage]\nestimator = \"reinforce_plus_plus\"\n", &["advantage."]),
        ("[advantage]\nestimator = \"reinforce_plus_plus_baseline\"\n", &["advantage."]),
        ("[advantage]\nestimator = \"reward\"\n", &["advantage."]),
        ("[advantage]\nestimator = \"pass_at_k\"\nk = 2\n", &["advantage."]),
        ("[advantage]\nestimator = \"pass_at_k\"\nk = 2\nwhiten = \"trl\"\n", &["advantage."]),
        ("[advantage]\nestimator = \"role_baseline\"\nlimit = 1.0\n", &["advantage."]),
        ("[advantage]\nestimator = \"gdpo\"\n", &["advantage."]),
        ("[advantage]\nestimator = \"v0_5\"\n", &["advantage."]),
        ("[advantage]\nestimator = \"role_baseline\"\n", &["advantage."]),
        ("[advantage]\nestimator = \"tempo\"\n", &["advantage."]),
        ("[advantage.over_time]\nkind = \"gae\"\nlambda = 0.95\n", &["advantage."]),
        ("[advantage.over_time]\nkind = \"vtrace\"\n", &["advantage."]),
        ("[advantage.over_time]\nkind = \"mars\"\n", &["advantage."]),
        ("[advantage.over_time]\nkind = \"ui_s1\"\n", &["advantage."]),
        ("[advantage.over_time]\nkind = \"optimal_token_baseline\"\n", &["advantage."]),
    ],
    &[
        ("[reward.shaping]\nkind = \"signs\"\ncorrect = 0.1\nwrong = -1.0\n", &["reward."]),
        ("[reward.shaping]\nkind = \"fapo\"\n", &["reward."]),
        ("[reward.shaping]\nkind = \"conciser\"\nlimit = 64\n", &["reward."]),
        ("[reward.shaping]\nkind = \"brpo\"\n", &["reward."]),
        ("[reward.shaping]\nkind = \"grpovi\"\nmargin = 0.5\n", &["reward."]),
        ("[reward.shaping]\nkind = \"evol_rl\"\n", &["reward."]),
        ("[reward.overlong]\nmax_length = 12\nbuffer = 8\n", &["reward."]),
        ("[reward.filter]\nkind = \"varied\"\n", &["reward."]),
        ("[reward.filter]\nkind = \"nonzero_advantage\"\n", &["reward."]),
        ("[reward.sharpen]\nkind = \"ace\"\n", &["reward."]),
        ("[reward.sharpen]\nkind = \"xrpo\"\n", &["reward."]),
        ("[reward.filtration]\nkind = \"power\"\n", &["reward."]),
        ("[reward]\nreplay_successes = true\n", &["reward."]),
        ("[reward]\ngroup_factor_cap = 4.0\n", &["reward."]),
        ("[reward.entropy]\nof = \"sampled\"\n", &["reward."]),
        ("[reward.entropy]\nof = \"distribution\"\n", &["reward."]),
    ],
    &[("[entropy]\ncoef = 0.01\n", &["entropy"])],
    &[("[value]\ncliprange_value = 0.2\n", &["value"])],
    &[("[metrics]\nreduction = \"exact\"\n", &["metrics."])],
];

const OFFSETS: [u32; 7] = [0, 5, 6, 15, 17, 20, 28];
const GROUPS: [u32; 3] = [0, 3, 6];
const TOKENS: usize = 28;

fn finite(what: &str, values: impl IntoIterator<Item = f32>) -> Result<(), String> {
    match values.into_iter().position(|x| !x.is_finite()) {
        None => Ok(()),
        Some(i) => Err(format!("{what}[{i}] is no number")),
    }
}

/// Everything that the recipe says, on one batch.
fn run(recipe: &Recipe, seed: u64) -> Result<(), String> {
    let text = |error: Error| error.to_string();
    let (device, source) = (Device::cpu(), Source::new(seed));
    let batch = Batch::new(&OFFSETS, &GROUPS, None).map_err(text)?;
    let logp_of = |k: u64, spread: f32| -> Vec<f32> {
        let base = |i: usize| -1.5 + source.signed(i);
        (0..TOKENS).map(|i| (base(i) + spread * source.fork(k).signed(i)).min(0.0)).collect()
    };
    let [logp, old, reference, rollout, second] =
        [(1, 0.1), (2, 0.1), (3, 0.3), (4, 0.1), (5, 0.1)].map(|(k, spread)| logp_of(k, spread));
    let entropy: Vec<f32> = (0..TOKENS).map(|i| source.fork(6).unit(i)).collect();
    let values: Vec<f32> = (0..TOKENS).map(|i| source.fork(7).signed(i)).collect();

    let (correction, mut weights, mut kept) = (recipe.correction.is_some(), None, None);
    let mut batch = batch;
    let corrected = match correction {
        true => Some(recipe.correct(&device, &batch, &old, &rollout).map_err(text)?),
        false => None,
    };
    let whole = batch;
    if let Some(corrected) = &corrected {
        finite("weight", corrected.weights.iter().copied())?;
        (weights, kept) = (Some(&corrected.weights[..]), Some(&corrected.kept[..]));
        batch = corrected.batch(&whole).map_err(text)?;
    }

    let estimator = recipe.advantage.estimator;
    let rewards = [1.0f32, 0.0, 0.75, 0.0, 1.0, 1.0];
    let (per_sequence, per_token);
    let of_token: Vec<f32> = match (recipe.advantage.over_time, estimator) {
        (Some(TimeChoice::Gae { .. }), _) => {
            let input = GaeInput { rewards: &entropy, values: &values, ends: Ends::Terminated };
            recipe.gae(&device, &whole, &input).map_err(text)?.advantage
        }
        (Some(TimeChoice::Vtrace { .. }), _) => {
            let input = VTraceInput {
                rewards: &entropy,
                values: &values,
                logp: &logp,
                logp_rollout: &old,
                ends: Ends::Terminated,
            };
            recipe.vtrace(&device, &whole, &input).map_err(text)?.advantage
        }
        (Some(TimeChoice::OptimalTokenBaseline { .. }), _) => {
            let score = Score::Norm(&entropy);
            recipe.token_baseline_advantages(&device, &whole, &entropy, score, None).map_err(text)?.advantage
        }
        // Turns and steps have tests of their own: tests/all/over_time.rs.
        (Some(TimeChoice::Mars { .. } | TimeChoice::UiS1 { .. }), _) => values.clone(),
        (None, Estimator::ReinforcePlusPlus) => {
            recipe.token_advantages(&device, &whole, &entropy).map_err(text)?.advantage
        }
        (None, Estimator::Tempo) => {
            let ids: Vec<u32> = (0..TOKENS).map(|i| source.fork(8).below(i, 3) as u32).collect();
            let outcomes = Outcomes::new(&rewards);
            recipe.tree_advantages(&device, &whole, (&ids[..]).into(), &outcomes).map_err(text)?.advantage
        }
        _ => Vec::new(),
    };
    let advantage = if of_token.is_empty() {
        let similarity: Vec<f32> = (0..18).map(|i| if i % 9 % 4 == 0 { 1.0 } else { 0.5 }).collect();
        let components: Vec<f32> = (0..12).map(|i| source.fork(9).unit(i)).collect();
        let input = Rewards {
            valid: kept,
            given: matches!(estimator, Estimator::ReMax | Estimator::V05).then_some(&[0.5, 0.25]),
            weights: (estimator == Estimator::Vcpo).then_some(&[1.0, 2.0, 0.5, 1.0, 1.0, 3.0]),
            flags: Some(&[0, 1, 0, 0, 1, 0]),
            reference: Some(&[0, 2]),
            classes: Some(&[1, 0, 1, 1, 1, 0]),
            similarity: Some(&similarity),
            logp: Some(&logp),
            logp_ref: Some(&reference),
            components: Some(&components),
            component_weights: Some(&[1.0, 0.5]),
            roles: Some(&[0, 1, 0, 1, 0, 1]),
            role_state: Some(&[0.25, 0.5]),
            ..Rewards::new(&rewards)
        };
        per_sequence = recipe.advantages_with(&device, &whole, &input).map_err(text)?.advantage;
        finite("advantage", per_sequence.iter().copied())?;
        match recipe.reward.entropy.map(|choice| choice.of) {
            None => Advantage::PerSequence(&per_sequence),
            Some(kind) => {
                let of = match kind {
                    EntropyKind::Sampled => EntropyOf::Sampled(&logp),
                    EntropyKind::Distribution => EntropyOf::Distribution(&entropy),
                };
                per_token = recipe.entropy_shaped(&device, &whole, &per_sequence, of).map_err(text)?;
                Advantage::PerToken(&per_token)
            }
        }
    } else {
        finite("advantage", of_token.iter().copied())?;
        Advantage::PerToken(&of_token)
    };
    if recipe.kl.is_some_and(|kl| kl.place == KlPlace::Reward) {
        let penalised =
            recipe.penalised_rewards(&device, &whole, &entropy, &old, &reference).map_err(text)?;
        finite("penalised reward", penalised)?;
    }
    if recipe.reward.replay_successes {
        recipe.replays(&whole, &rewards, &[1, 1], seed, 0).map_err(text)?;
    }

    let ratios: Vec<f32> = logp.iter().zip(&old).map(|(a, b)| a - b).collect();
    let reads_second = matches!(
        recipe.gate,
        GateChoice::Minirl { .. }
            | GateChoice::Remix { .. }
            | GateChoice::Vespo { against: Against::Second, .. }
            | GateChoice::Topr {}
    );
    let input = PolicyInput {
        logp_ref: recipe.kl_term().map(|_| &reference[..]),
        logp_second: reads_second.then_some(&second),
        log_ratio: (recipe.ratio.level == RatioLevel::Given).then_some(&ratios),
        entropy: recipe.mask.top_entropy.map(|_| &entropy[..]),
        seed: matches!(recipe.gate, GateChoice::ClipCov { .. }).then_some(seed),
        weights,
        ..PolicyInput::new(&logp, &old, advantage)
    };
    let mut out = recipe.policy_loss(&device, &batch, &input).map_err(text)?;
    if recipe.kl.is_some_and(|kl| kl.place == KlPlace::Convex) {
        let policies = [&logp[..], &reference, &second];
        recipe.add_kl_convex(&device, &batch, policies, 60, None, &mut out).map_err(text)?;
    }
    finite("coef", out.coef.iter().chain(&out.token_loss).copied())?;
    finite("loss", out.loss.map(|loss| loss as f32))?;
    if recipe.entropy.is_some() {
        finite("entropy", recipe.entropy_term(&device, &batch, &entropy, None).map_err(text)?.coef)?;
    }
    if recipe.value.is_some() {
        let input = ValueInput { values: &values, values_old: Some(&entropy), returns: &reference };
        finite("value", recipe.value_loss(&device, &batch, &input, None).map_err(text)?.gradient)?;
    }
    Ok(())
}

/// Reads both choices as one file: tables that they share are joined.
fn joined(a: &str, b: &str) -> String {
    let ([head_a, head_b], mut text) = ([a, b].map(|t| t.lines().next().unwrap_or("")), format!("{a}{b}"));
    if head_a == head_b {
        text = format!("{a}{}", b.split_once('\n').map_or("", |(_, rest)| rest));
    }
    text
}

#[test]
fn every_pair_of_choices_is_refused_by_both_keys_or_runs() {
    let (mut ran, mut said) = (0, BTreeSet::new());
    let mut failures = Vec::new();
    let mut attempt = |text: &str, keys: [&[&str]; 2]| match Recipe::from_toml(text) {
        Ok(recipe) => {
            ran += 1;
            assert_eq!(recipe, Recipe::from_toml(&recipe.to_toml().unwrap()).unwrap());
            if let Err(error) = run(&recipe, ran) {
                failures.push(format!("{text}: {error}"));
            }
        }
        Err(error) => {
            let error = error.to_string();
            if !keys.iter().all(|keys| keys.iter().any(|key| error.contains(key))) {
                failures.push(format!("{text}: refused, but not by both keys: {error}"));
            }
            said.insert(error);
        }
    };
    // A choice that already holds such a pair is tried alone.
    let whole = |(text, _): &&Choice| Recipe::from_toml(text).is_ok();
    for (k, dimension) in DIMENSIONS.iter().enumerate() {
        for (i, (a, keys)) in dimension.iter().enumerate() {
            attempt(a, [keys, keys]);
            // Of its own dimension those of another table.
            let near = dimension[i + 1..].iter().filter(|(b, _)| b.lines().next() != a.lines().next());
            let far = DIMENSIONS[k + 1..].iter().copied().flatten();
            let others = near.chain(far).filter(whole);
            if Recipe::from_toml(a).is_ok() {
                others.for_each(|(b, others)| attempt(&joined(a, b), [keys, others]));
            }
        }
    }
    println!("{ran} recipes ran, {} kinds of refusal", said.len());
    assert!(
        failures.is_empty(),
        "{} failures:\n{}",
        failures.len(),
        failures[..failures.len().min(25)].join("\n")
    );
    assert!(ran > 2500, "{ran}");
    let unseen: Vec<_> = refused()
        .filter(|(left, right, _)| !said.iter().any(|error| error.contains(left) && error.contains(right)))
        .collect();
    assert!(unseen.is_empty(), "no pair here is refused by {unseen:?}");
}

#[test]
fn the_document_is_the_table() {
    let mut table = String::from("| this | does not go with | because |\n|---|---|---|\n");
    refused().for_each(|(left, right, why)| table += &format!("| {left} | {right} | {why} |\n"));
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/combinations.md");
    match std::fs::read_to_string(path) {
        Ok(text) => assert!(text.contains(&table), "docs/combinations.md lacks this table:\n{table}"),
        Err(error) => println!("absent: {path}: {error}"),
    }
}
