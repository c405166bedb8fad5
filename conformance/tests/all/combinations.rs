//! Every pair of choices of a recipe is either refused with an error that names both keys, or gives finite
//! results on a small batch. docs/combinations.md lists the refused pairs.

use lockstep::recipe::{SingletonChoice, refused};
use lockstep::{Device, Error, Recipe, Rollouts};
use lockstep_conformance::cases::hash::Source;
use std::collections::BTreeSet;

/// A choice in TOML, with keys of which an error about it must name one.
type Choice = (&'static str, &'static [&'static str]);

/// Choices from the same table in a dimension exclude each other.
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
        ("[gate]\nkind = \"vespo\"\nlambda_floor = 2.5\n", &["gate.kind"]),
        ("[gate]\nkind = \"gmpo\"\nbounds = \"ratio\"\n", &["gate.kind"]),
        ("[gate]\nkind = \"kl_cov\"\nclip_ratio_low = 0.2\nclip_ratio_high = 0.2\n", &["gate.kind"]),
        ("[gate]\nkind = \"clip_cov\"\nclip_cov_ratio = 0.25\nclip_cov_lb = -1.0\n", &["gate.kind"]),
    ],
    &[
        ("[ratio]\nlevel = \"sequence\"\nlog_max = 10.0\n", &["ratio.level"]),
        ("[ratio]\nlevel = \"sequence\"\nadvantage = \"sequence_mean\"\n", &["ratio.level"]),
        ("[ratio]\nlevel = \"given\"\n", &["ratio.level"]),
        ("[ratio]\nlevel = \"min_prefix\"\n", &["ratio.level"]),
        ("[ratio]\nlevel = \"product\"\n", &["ratio.level"]),
        ("[ratio]\nlevel = \"sequence\"\ngradient = \"mean\"\n", &["ratio."]),
        ("[ratio]\nlevel = \"segment\"\n", &["ratio.level"]),
        ("[ratio]\nlevel = \"segment\"\ngradient = \"mean\"\n", &["ratio."]),
        ("[ratio]\nlevel = \"product\"\ngradient = \"mean\"\n", &["ratio."]),
        ("[ratio]\nlevel = \"given\"\ngradient = \"mean\"\n", &["ratio."]),
        (
            "[ratio]\nlevel = \"product\"\n[aggregation]\nempty = \"one\"\nsequences = \"all\"\n",
            &["ratio.", "aggregation."],
        ),
        (
            "[ratio]\nlevel = \"product\"\n[aggregation]\nempty = \"one\"\nsequences = \"nonempty\"\n",
            &["ratio.", "aggregation."],
        ),
        (
            "[ratio]\nlevel = \"product\"\n[aggregation]\nempty = \"one\"\nsequences = \"all\"\n\
             mode = \"token-mean\"\n",
            &["ratio.", "aggregation."],
        ),
        ("[ratio]\nguard = \"none\"\n", &["ratio.guard"]),
        ("[ratio]\non_policy = true\n", &["ratio.on_policy"]),
        ("[ratio]\nlevel = \"given\"\non_policy = true\n", &["ratio."]),
        ("[ratio]\nguard = \"straight_through\"\nguard_bound = 0.5\n", &["ratio.guard"]),
    ],
    &[
        ("[correction]\nlevel = \"token\"\n", &["correction."]),
        ("[correction]\nnan_rollout = \"one\"\n", &["correction."]),
        ("[correction]\ngroup_statistics = \"all\"\n", &["correction."]),
        ("[correction]\nlevel = \"token\"\nrule = \"mask\"\nlow = 0.9\n", &["correction."]),
        ("[correction]\nlevel = \"sequence\"\nrule = \"mask\"\nlow = 0.5\nbound = 20.0\n", &["correction."]),
        ("[correction]\nlevel = \"geometric\"\nrule = \"plain\"\nnormalize = true\n", &["correction."]),
        (
            "[correction]\nlevel = \"one\"\nrule = \"plain\"\ndenominator = \"before\"\n\
             [[correction.reject]]\nstatistic = \"token_k1\"\nhigh = 1.1\n",
            &["correction."],
        ),
        (
            "[correction]\nlevel = \"one\"\nrule = \"plain\"\n[[correction.reject]]\n\
             statistic = \"token_k1\"\nhigh = 1.1\n",
            &["correction."],
        ),
        (
            "[correction]\ndenominator = \"before\"\n[[correction.reject]]\nstatistic = \"seq_mean_k3\"\n\
             high = 0.5\n",
            &["correction."],
        ),
    ],
    &[
        ("[aggregation]\nmode = \"token-mean\"\n", &["aggregation."]),
        ("[aggregation]\nmode = \"token-sum\"\n", &["aggregation."]),
        ("[aggregation]\nmode = \"seq-mean-token-sum\"\n", &["aggregation."]),
        ("[aggregation]\nmode = \"seq-mean-token-sum-norm\"\nhorizon = 64.0\n", &["aggregation."]),
        ("[aggregation]\nmode = \"seq-mean-token-sum-norm\"\nhorizon = \"longest\"\n", &["aggregation."]),
        ("[aggregation]\nsequences = \"all\"\nlength = \"at-least-one\"\n", &["aggregation."]),
        ("[aggregation]\nempty = \"one\"\nsequences = \"all\"\n", &["aggregation."]),
    ],
    &[
        ("[kl]\nestimator = \"k1\"\ncoef = 0.1\n", &["[kl]", "kl."]),
        ("[kl]\nestimator = \"abs\"\ncoef = 0.1\n", &["[kl]", "kl."]),
        ("[kl]\nestimator = \"k2\"\ncoef = 0.1\nstraight_through = true\n", &["[kl]", "kl."]),
        ("[kl]\nestimator = \"k3\"\ncoef = 0.1\nclamp_in = 20.0\nclamp_out = 10.0\n", &["[kl]", "kl."]),
        ("[kl]\nestimator = \"k3\"\ncoef = 0.1\nimportance_weighted = \"through_ratio\"\n", &["[kl]", "kl."]),
        ("[kl]\nestimator = \"k2\"\ncoef = 0.1\nimportance_weighted = \"detached\"\n", &["[kl]", "kl."]),
        ("[kl]\nestimator = \"k3\"\ncoef = 0.1\nimportance_weighted = \"score\"\n", &["[kl]", "kl."]),
        (
            "[kl]\nestimator = \"k3\"\ncoef = 0.1\nimportance_weighted = \"through_ratio\"\n\
             ratio = \"policy\"\n",
            &["[kl]", "kl."],
        ),
        (
            "[kl]\nestimator = \"k2\"\ncoef = 0.1\nimportance_weighted = \"detached\"\nratio = \"policy\"\n",
            &["[kl]", "kl."],
        ),
        ("[kl]\nestimator = \"k2\"\ncoef = 0.1\nratio = \"policy\"\n", &["[kl]", "kl."]),
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
        ("[mask]\nopsm_delta = 0.05\nopsm_against = \"rollout\"\n", &["mask."]),
        ("[mask]\nopsm_against = \"rollout\"\n", &["mask."]),
        ("[mask]\ntop_entropy = 0.5\n", &["mask."]),
        ("[mask]\ntop_entropy = 0.5\nquantile = \"torch\"\n", &["mask."]),
        ("[mask]\nquantile = \"torch\"\n", &["mask."]),
    ],
    &[
        ("[advantage]\nnorm_by_std = false\n", &["advantage."]),
        ("[advantage]\nsingleton = \"leave_out\"\n", &["advantage."]),
        ("[advantage]\nestimator = \"gdpo\"\nsingleton = \"leave_out\"\n", &["advantage."]),
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
        ("[advantage.over_time]\nkind = \"signed_return\"\ngamma = 0.9\n", &["advantage."]),
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
        ("[reward.weights]\nlength = [1.5, 0.5]\ndifficulty = [0.5, 2.0]\n", &["reward."]),
        ("[reward]\ncomponents = \"sum\"\n", &["reward."]),
        ("[reward]\nclip = [0.25, 0.8]\n", &["reward."]),
        ("[reward]\nreplay_successes = true\n", &["reward."]),
        ("[reward]\ngroup_factor_cap = 4.0\n", &["reward."]),
        ("[reward.entropy]\nof = \"sampled\"\n", &["reward."]),
        ("[reward.entropy]\nof = \"distribution\"\n", &["reward."]),
    ],
    &[
        ("[entropy]\ncoef = 0.01\n", &["entropy"]),
        ("[entropy]\ncoef = 0.01\nover = \"call\"\n", &["entropy"]),
        ("[entropy]\ncoef = 0.01\nof = \"positive\"\n", &["entropy"]),
        ("[entropy]\ncoef = 0.01\nover = \"call\"\nof = \"kept\"\n", &["entropy"]),
        ("[entropy]\ncoef = 0.01\n[entropy.aggregation]\nmode = \"token-mean\"\n", &["entropy"]),
        (
            "[entropy]\ncoef = 0.01\nover = \"call\"\nof = \"kept\"\n[mask]\ntop_entropy = 0.5\n",
            &["entropy", "mask."],
        ),
        ("[entropy]\ncoef = 0.01\nof = \"kept\"\n[mask]\ntop_entropy = 0.5\n", &["entropy", "mask."]),
    ],
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

/// Computes everything that the recipe returns, on one batch.
fn run(recipe: &Recipe, seed: u64) -> Result<(), String> {
    let text = |error: Error| error.to_string();
    let (device, source) = (Device::cpu(), Source::new(seed));
    let logp_of = |k: u64, spread: f32| -> Vec<f32> {
        let base = |i: usize| -1.5 + source.signed(i);
        (0..TOKENS).map(|i| (base(i) + spread * source.fork(k).signed(i)).min(0.0)).collect()
    };
    let [logp, old, reference, rollout, latest] =
        [(1, 0.1), (2, 0.1), (3, 0.3), (4, 0.1), (5, 0.1)].map(|(k, spread)| logp_of(k, spread));
    let entropy: Vec<f32> = (0..TOKENS).map(|i| source.fork(6).unit(i)).collect();
    let values: Vec<f32> = (0..TOKENS).map(|i| source.fork(7).signed(i)).collect();
    let ids: Vec<u32> = (0..TOKENS).map(|i| source.fork(8).below(i, 3) as u32).collect();
    let components: Vec<f32> = (0..12).map(|i| source.fork(9).unit(i)).collect();
    let similarity: Vec<f32> = (0..18).map(|i| if i % 9 % 4 == 0 { 1.0 } else { 0.5 }).collect();
    let ratios: Vec<f32> = logp.iter().zip(&old).map(|(a, b)| a - b).collect();
    let rollouts = Rollouts {
        tokens: Some(&ids),
        logp: Some(&logp),
        logp_old: Some(&old),
        logp_rollout: Some(&rollout),
        logp_ref: Some(&reference),
        logp_latest: Some(&latest),
        logp_previous: Some(&latest),
        log_ratio: Some(&ratios),
        divergence: Some(&entropy),
        entropy: Some(&entropy),
        score_norm: Some(&entropy),
        rewards: Some(&[1.0, 0.0, 0.75, 0.0, 1.0, 1.0]),
        token_rewards: Some(&entropy),
        reward_components: Some(&components),
        reward_weights: Some(&[1.0, 0.5]),
        baseline: Some(&[0.5, 0.25]),
        baseline_weights: Some(&[1.0, 2.0, 0.5, 1.0, 1.0, 3.0]),
        flawed: Some(&[0, 1, 0, 0, 1, 0]),
        reference: Some(&[0, 2]),
        answer_class: Some(&[1, 0, 1, 1, 1, 0]),
        similarity: Some(&similarity),
        difficulty: Some(&[0.0, 0.25, 0.5, 1.0, 0.75, 0.5]),
        roles: Some(&[0, 1, 0, 1, 0, 1]),
        role_values: Some(&[0.25, 0.5]),
        values: Some(&values),
        values_old: Some(&entropy),
        cu_turns: Some(&[0, 2, 5, 6, 15, 16, 17, 20, 28]),
        turn_rewards: Some(&[1.0, 0.0, 0.5, 1.0, 0.0, 2.0, 1.0, 0.25]),
        turn_roles: Some(&[0, 1, 0, 1, 0, 1, 0, 1]),
        cu_steps: Some(&[0, 2, 3, 4, 6, 7, 8]),
        cu_step_tokens: Some(&[0, 2, 5, 6, 15, 16, 17, 20, 28]),
        step_rewards: Some(&[1.0, 0.0, 0.5, 1.0, 0.0, 0.5, 1.0, 0.25]),
        step_matches: Some(&[1, 0, 1, 1, 1, 1, 0, 1]),
        seed: Some(&[seed]),
        step: Some(&[60]),
        ..Rollouts::new(&OFFSETS, &GROUPS)
    };
    // Rejection may leave a group with a single member.
    let mut recipe = recipe.clone();
    if recipe.advantage.singleton == SingletonChoice::Error {
        recipe.advantage.singleton = SingletonChoice::Zero;
    }
    let mut credit = recipe.advantages(&device, &rollouts).map_err(text)?;
    finite("advantage", credit.advantage.iter().copied())?;
    finite("weight", credit.weights.iter().flatten().copied())?;
    finite("return", credit.returns.iter().copied())?;
    if credit.returns.is_empty() {
        // The estimator provides no returns, so others are used.
        credit.returns = reference.clone();
    }
    let out = recipe.loss(&device, &rollouts, &credit).map_err(text)?;
    finite("coef", out.coef.iter().chain(&out.token_loss).copied())?;
    finite("loss", out.loss.map(|loss| loss as f32))?;
    assert_eq!(
        (out.entropy.is_some(), out.value.is_some()),
        (recipe.entropy.is_some(), recipe.value.is_some())
    );
    finite("entropy", out.entropy.iter().flat_map(|term| &term.coef).copied())?;
    finite("value", out.value.iter().flat_map(|value| &value.gradient).copied())
}

/// Joins both choices into one file; tables that they share are merged.
fn joined(a: &str, b: &str) -> String {
    let ([head_a, head_b], mut text) = ([a, b].map(|t| t.lines().next().unwrap_or("")), format!("{a}{b}"));
    if head_a == head_b {
        text = format!("{a}{}", b.split_once('\n').map_or("", |(_, rest)| rest));
    }
    text
}

/// Whether the two share no table but the first.
fn apart(a: &str, b: &str) -> bool {
    fn tables(text: &str) -> Vec<&str> {
        text.lines().filter(|line| line.starts_with('[')).collect()
    }
    let (a, b) = (tables(a), tables(b));
    !a[1..].iter().any(|table| b.contains(table)) && !b[1..].iter().any(|table| a.contains(table))
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
    // A choice that already contains such a pair is tried alone.
    let whole = |(text, _): &&Choice| Recipe::from_toml(text).is_ok();
    for (k, dimension) in DIMENSIONS.iter().enumerate() {
        for (i, (a, keys)) in dimension.iter().enumerate() {
            attempt(a, [keys, keys]);
            // Within the same dimension, only choices from another table.
            let near = dimension[i + 1..].iter().filter(|(b, _)| b.lines().next() != a.lines().next());
            let far = DIMENSIONS[k + 1..].iter().copied().flatten();
            let others = near.chain(far).filter(whole).filter(|(b, _)| apart(a, b));
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
    let mut table = String::from("| this | cannot be combined with | because |\n|---|---|---|\n");
    refused().for_each(|(left, right, why)| table += &format!("| {left} | {right} | {why} |\n"));
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/combinations.md");
    match std::fs::read_to_string(path) {
        Ok(text) => assert!(text.contains(&table), "docs/combinations.md lacks this table:\n{table}"),
        Err(error) => println!("absent: {path}: {error}"),
    }
}
