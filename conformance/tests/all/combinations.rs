//! Every pair of choices of a recipe is either refused with an error that names both keys, or gives finite
//! results on a small batch. docs/combinations.md lists the refused pairs.

use crate::prelude::*;
use lockstep::recipe::refused;
use std::collections::BTreeSet;

/// Choices of a table: the table; keys of which an error about them must name one; the choices in TOML,
/// separated by `|`, and the keys of each by `;`.
type Choices = (&'static str, &'static [&'static str], &'static str);

/// Choices from the same table in a dimension exclude each other.
const DIMENSIONS: &[&[Choices]] = &[
    &[(
        "gate.",
        &["gate.kind"],
        "kind = 'sapo' | kind = 'cispo' | kind = 'reinforce' | kind = 'dppo_tv' | kind = 'dppo_kl' | \
         kind = 'gmpo' | kind = 'dro'; beta = 0.1 | kind = 'minirl' | kind = 'remix' | \
         kind = 'two_sided'; delta = 4.0 | kind = 'topr' | kind = 'kl_cov'; kl_cov_ratio = 0.25 | \
         kind = 'vespo' | kind = 'vespo'; against = 'old' | kind = 'vespo'; lambda_floor = 2.5 | \
         kind = 'gmpo'; bounds = 'ratio' | kind = 'kl_cov'; clip_ratio_low = 0.2; clip_ratio_high = 0.2 | \
         kind = 'clip_cov'; clip_cov_ratio = 0.25; clip_cov_lb = -1.0",
    )],
    &[
        (
            "ratio.",
            &["ratio.level"],
            "level = 'sequence'; log_max = 10.0 | level = 'sequence'; advantage = 'sequence_mean' | \
             level = 'given' | level = 'min_prefix' | level = 'product'",
        ),
        ("ratio.", &["ratio."], "level = 'sequence'; gradient = 'mean'"),
        ("ratio.", &["ratio.level"], "level = 'segment'"),
        (
            "ratio.",
            &["ratio."],
            "level = 'segment'; gradient = 'mean' | level = 'product'; gradient = 'mean' | \
             level = 'given'; gradient = 'mean'",
        ),
        (
            "",
            &["ratio.", "aggregation."],
            "ratio.level = 'product'; aggregation.empty = 'one'; aggregation.sequences = 'all' | \
             ratio.level = 'product'; aggregation.empty = 'one'; aggregation.sequences = 'nonempty' | \
             ratio.level = 'product'; aggregation.empty = 'one'; aggregation.sequences = 'all'; \
             aggregation.mode = 'token-mean'",
        ),
        ("ratio.", &["ratio.guard"], "guard = 'none'"),
        ("ratio.", &["ratio.on_policy"], "on_policy = true"),
        ("ratio.", &["ratio."], "level = 'given'; on_policy = true"),
        ("ratio.", &["ratio.guard"], "guard = 'straight_through'; guard_bound = 0.5"),
    ],
    &[(
        "correction.",
        &["correction."],
        "level = 'token' | nan_rollout = 'one' | group_statistics = 'all' | \
         level = 'token'; rule = 'mask'; low = 0.9 | \
         level = 'sequence'; rule = 'mask'; low = 0.5; bound = 20.0 | \
         level = 'geometric'; rule = 'plain'; normalize = true | \
         level = 'one'; rule = 'plain'; denominator = 'before'; \
         reject = [{ statistic = 'token_k1', high = 1.1 }] | \
         level = 'one'; rule = 'plain'; reject = [{ statistic = 'token_k1', high = 1.1 }] | \
         denominator = 'before'; reject = [{ statistic = 'seq_mean_k3', high = 0.5 }]",
    )],
    &[(
        "aggregation.",
        &["aggregation."],
        "mode = 'token-mean' | mode = 'token-sum' | mode = 'seq-mean-token-sum' | \
         mode = 'seq-mean-token-sum-norm'; horizon = 64.0 | \
         mode = 'seq-mean-token-sum-norm'; horizon = 'longest' | \
         sequences = 'all'; length = 'at-least-one' | empty = 'one'; sequences = 'all'",
    )],
    &[(
        "kl.",
        &["[kl]", "kl."],
        "estimator = 'k1'; coef = 0.1 | estimator = 'abs'; coef = 0.1 | \
         estimator = 'k2'; coef = 0.1; straight_through = true | \
         estimator = 'k3'; coef = 0.1; clamp_in = 20.0; clamp_out = 10.0 | \
         estimator = 'k3'; coef = 0.1; importance_weighted = 'through_ratio' | \
         estimator = 'k2'; coef = 0.1; importance_weighted = 'detached' | \
         estimator = 'k3'; coef = 0.1; importance_weighted = 'score' | \
         estimator = 'k3'; coef = 0.1; importance_weighted = 'through_ratio'; ratio = 'policy' | \
         estimator = 'k2'; coef = 0.1; importance_weighted = 'detached'; ratio = 'policy' | \
         estimator = 'k2'; coef = 0.1; ratio = 'policy' | estimator = 'k2'; coef = 0.1; place = 'convex' | \
         estimator = 'k2'; coef = 0.1; place = 'convex'; importance_weighted = 'detached' | \
         estimator = 'low_var_kl'; coef = 0.1; place = 'reward' | \
         estimator = 'k3'; coef = 0.1; place = 'reward'; importance_weighted = 'detached' | \
         estimator = 'k3'; coef = 0.1; place = 'reward'; straight_through = true",
    )],
    &[(
        "mask.",
        &["mask."],
        "opsm_delta = 0.05 | opsm_delta = 0.05; opsm_against = 'rollout' | opsm_against = 'rollout' | \
         top_entropy = 0.5 | top_entropy = 0.5; quantile = 'torch' | quantile = 'torch'",
    )],
    &[
        (
            "advantage.",
            &["advantage."],
            "norm_by_std = false | singleton = 'leave_out' | estimator = 'gdpo'; singleton = 'leave_out' | \
             whiten = 'verl' | limit = 1.0 | least_std = 0.1 | whiten = 'areal' | \
             estimator = 'gdpo'; leave_one_out = true; whiten = 'nemo_gdpo' | \
             estimator = 'tempo'; pad_id = 1 | estimator = 'grpo_batch' | estimator = 'grpo_leave_one_out' | \
             estimator = 'rloo' | estimator = 'opo' | estimator = 'gpg' | estimator = 'pass_k' | \
             estimator = 'mc_grpo' | estimator = 'max_rl' | estimator = 'remax' | estimator = 'vcpo' | \
             estimator = 'vcpo'; robust = 'median' | estimator = 'reinforce_plus_plus' | \
             estimator = 'reinforce_plus_plus'; whiten = 'none' | \
             estimator = 'reinforce_plus_plus_baseline'; whiten = 'none' | \
             estimator = 'gdpo'; whiten = 'none' | \
             estimator = 'reinforce_plus_plus_baseline' | estimator = 'reward' | \
             estimator = 'pass_at_k'; k = 2 | estimator = 'pass_at_k'; k = 2; whiten = 'trl' | \
             estimator = 'role_baseline'; limit = 1.0 | estimator = 'gdpo' | estimator = 'v0_5' | \
             estimator = 'role_baseline' | estimator = 'tempo'",
        ),
        (
            "advantage.over_time.",
            &["advantage."],
            "kind = 'gae'; lambda = 0.95 | kind = 'vtrace' | kind = 'mars' | kind = 'ui_s1' | \
             kind = 'optimal_token_baseline' | kind = 'signed_return'; gamma = 0.9",
        ),
    ],
    &[
        (
            "reward.shaping.",
            &["reward."],
            "kind = 'signs'; correct = 0.1; wrong = -1.0 | kind = 'fapo' | kind = 'conciser'; limit = 64 | \
             kind = 'brpo' | kind = 'grpovi'; margin = 0.5 | kind = 'evol_rl'",
        ),
        ("reward.overlong.", &["reward."], "max_length = 12; buffer = 8"),
        ("reward.filter.", &["reward."], "kind = 'varied' | kind = 'nonzero_advantage'"),
        ("reward.sharpen.", &["reward."], "kind = 'ace' | kind = 'xrpo'"),
        ("reward.filtration.", &["reward."], "kind = 'power'"),
        ("reward.weights.", &["reward."], "length = [1.5, 0.5]; difficulty = [0.5, 2.0]"),
        (
            "reward.",
            &["reward."],
            "components = 'sum' | clip = [0.25, 0.8] | replay_successes = true | group_factor_cap = 4.0",
        ),
        ("reward.entropy.", &["reward."], "of = 'sampled' | of = 'distribution'"),
    ],
    &[
        (
            "entropy.",
            &["entropy"],
            "coef = 0.01 | coef = 0.01; over = 'call' | coef = 0.01; of = 'positive' | \
             coef = 0.01; over = 'call'; of = 'kept' | coef = 0.01; aggregation.mode = 'token-mean'",
        ),
        (
            "",
            &["entropy", "mask."],
            "entropy.coef = 0.01; entropy.over = 'call'; entropy.of = 'kept'; mask.top_entropy = 0.5 | \
             entropy.coef = 0.01; entropy.of = 'kept'; mask.top_entropy = 0.5",
        ),
    ],
    &[("value.", &["value"], "cliprange_value = 0.2")],
    &[("metrics.", &["metrics."], "reduction = 'exact'")],
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

/// A choice as TOML with a dotted key per line, and keys of which an error about it must name one.
type Choice = (String, &'static [&'static str]);

fn choices(dimension: &[Choices]) -> Vec<Choice> {
    let spelled = |(table, keys, all): &Choices| {
        let line = |key: &str| format!("{table}{}\n", key.trim());
        let spell = |choice: &str| (choice.split(';').map(line).collect::<String>(), *keys);
        all.split('|').map(spell).collect::<Vec<_>>()
    };
    dimension.iter().flat_map(spelled).collect()
}

/// The table of each key of a choice.
fn tables(choice: &str) -> Vec<&str> {
    choice
        .lines()
        .map(|line| line.split(" = ").next().and_then(|key| key.rsplit_once('.')).unwrap().0)
        .collect()
}

/// Whether the two share no table but the first.
fn apart(a: &str, b: &str) -> bool {
    let (a, b) = (tables(a), tables(b));
    let shared = |own: &[&str], other: &[&str]| own.iter().any(|t| *t != own[0] && other.contains(t));
    !shared(&a, &b) && !shared(&b, &a)
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
    let whole = |text: &str| Recipe::from_toml(text).is_ok();
    let dimensions: Vec<Vec<Choice>> = DIMENSIONS.iter().map(|dimension| choices(dimension)).collect();
    for (k, dimension) in dimensions.iter().enumerate() {
        for (i, (a, keys)) in dimension.iter().enumerate() {
            attempt(a, [keys, keys]);
            if !whole(a) {
                continue;
            }
            // Within the same dimension, only choices from another table.
            let near = dimension[i + 1..].iter().filter(|(b, _)| tables(b)[0] != tables(a)[0]);
            for (b, others) in near.chain(dimensions[k + 1..].iter().flatten()) {
                if whole(b) && apart(a, b) {
                    attempt(&format!("{a}{b}"), [keys, others]);
                }
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
