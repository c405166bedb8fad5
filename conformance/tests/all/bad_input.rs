//! Every refusal names the argument and the position in it; nothing panics.

use crate::prelude::*;
use lockstep::core::advantage::{Baseline, Scale, Singleton};
use lockstep::core::gate::Reinforce;
use lockstep::core::team::Direction;
use lockstep::ops::policy_loss::{PolicyInput, PolicyOutput, PolicyParams, policy_loss};
use lockstep::plan::{Calls, Capacity};
use lockstep_conformance::cases::values::NOT_FINITE;

#[test]
fn offsets() {
    for (seqlens, groups, mask, says) in [
        (&[][..], &[0, 1][..], None, "`cu_seqlens` is empty: …"),
        (&[0], &[0], None, "`cu_seqlens` is empty: …"),
        (&[0, 1], &[], None, "`cu_groups` is empty: …"),
        (&[1, 2], &[0, 1], None, "`cu_seqlens`[0] is 1: offsets must start at 0"),
        (&[0, 2], &[1, 1], None, "`cu_groups`[0] is 1: offsets must start at 0"),
        (&[0, 3, 2, 5], &[0, 3], None, "`cu_seqlens`[2] is 2: expected at least 3, the entry before it"),
        (&[0, 2, 4], &[0, 2], Some(&[1; 5][..]), "`loss_mask` has 5 entries: expected 4 (…"),
        (
            &[0, 2, 4],
            &[0, 3],
            None,
            "`cu_groups`[1] is 3: the last offset must be 2, the number of sequences",
        ),
        (&[0, 2, 2, 4], &[0, 3], None, "`cu_seqlens` gives sequence 1 no members: …"),
        (&[0, 2, 4], &[0, 0, 2], None, "`cu_groups` gives group 0 no members: …"),
    ] {
        refused(Batch::new(seqlens, groups, mask), says);
    }
    assert!(Batch::with_empty_rows(&[0, 2, 2], &[0, 0, 2], None).is_ok());
}

const OFFSETS: [u32; 3] = [0, 2, 4];
const GOOD: [f32; 4] = [-0.5, -1.0, -0.25, -2.0];

const PLAIN: Weight = Weight { per_row: PerRow::One, denominator: 1.0, scale: 1.0 };

fn batch() -> Batch<'static> {
    Batch::new(&OFFSETS, &[0, 2], None).unwrap()
}

/// Log-probabilities of both policies.
fn columns<'a>(logp: &'a [f32], logp_old: &'a [f32]) -> Rollouts<'a> {
    Rollouts { logp: Some(logp), logp_old: Some(logp_old), ..Rollouts::new(&OFFSETS, &[0, 2]) }
}

fn own() -> Credit {
    Credit::per_sequence(vec![1.0, -1.0])
}

fn weighted(weights: Vec<f32>) -> Credit {
    Credit { weights: Some(weights), ..own() }
}

/// GOOD with `x` at `index`.
fn with(index: usize, x: f32) -> [f32; 4] {
    let mut values = GOOD;
    values[index] = x;
    values
}

#[test]
fn lengths() {
    let device = Device::cpu();
    let recipe = Recipe::from_toml("kl = { estimator = 'k3', coef = 0.1 }\n").unwrap();
    let good = Rollouts { logp_ref: Some(&GOOD), ..columns(&GOOD, &GOOD) };
    for (rollouts, credit, says) in [
        (Rollouts { logp: Some(&GOOD[..3]), ..good }, own(), "`logp` has 3 entries: expected 4 (…"),
        (Rollouts { logp_old: Some(&[]), ..good }, own(), "`logp_old` has 0 entries: expected 4 (…"),
        (Rollouts { logp_ref: Some(&[]), ..good }, own(), "`logp_ref` has 0 entries: expected 4 (…"),
        (good, Credit::per_sequence(vec![1.0]), "`credit.advantage` has 1 entries: expected 2 (…"),
        (good, Credit::per_token(vec![1.0; 2]), "`credit.advantage` has 2 entries: expected 4 (…"),
        (good, weighted(vec![1.0]), "`credit.weights` has 1 entries: expected 4 (…"),
    ] {
        refused(recipe.loss(&device, &rollouts, &credit), says);
    }
    for (rewards, valid, says) in [
        (&[1.0][..], None, "`rewards` has 1 entries: expected 2 (…"),
        (&[1.0, 0.0], Some(&[1][..]), "`valid` has 1 entries: expected 2 (…"),
    ] {
        refused(recipe.advantages(&device, &Rollouts { rewards: Some(rewards), valid, ..good }), says);
    }
    let short = ops::row_scan(&device, &batch(), &[1.0], Direction::Prefix);
    refused(short, "`values` has 1 entries: expected 4 (…");
}

#[test]
fn log_probabilities() {
    let device = Device::cpu();
    let recipe = Recipe::named("sapo").unwrap();
    let run = |rollouts: Rollouts<'_>| recipe.loss(&device, &rollouts, &own());
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 0.5, f32::MIN_POSITIVE] {
        for index in 0..4 {
            let (values, batch) = (with(index, bad), batch());
            let says = |argument: &str| format!("`{argument}`[{index}] is …: expected …");
            refused(run(columns(&values, &GOOD)), &says("logp"));
            refused(run(columns(&GOOD, &values)), &says("logp_old"));
            let ratio = ops::token_ratio(&device, &batch, &GOOD, &values, Guard::NONE, [0.5, 2.0]);
            refused(ratio, &says("logp_old"));
            refused(ops::kl(&device, &batch, &GOOD, &values, &Kl::new(KlFormula::K3)), &says("logp_ref"));
            refused(ops::ratio::mismatch(&device, &batch, &values, &GOOD), &says("logp_rollout"));
            // The same value at a masked token is accepted.
            let mut mask = [1; 4];
            mask[index] = 0;
            let masked = run(Rollouts { loss_mask: Some(&mask), ..columns(&values, &values) });
            assert!(masked.is_ok(), "{bad} at {index}, masked");
        }
    }
}

#[test]
fn advantages_weights_and_values() {
    let device = Device::cpu();
    let recipe = Recipe::named("grpo").unwrap();
    let good = columns(&GOOD, &GOOD);
    for bad in NOT_FINITE {
        let run = |credit: Credit| recipe.loss(&device, &good, &credit);
        refused(run(Credit::per_sequence(vec![1.0, *bad])), "`advantage`[1] is …");
        refused(run(Credit::per_token(vec![1.0, -1.0, *bad, 1.0])), "`advantage`[2] is …");
        let values = with(3, *bad);
        refused(ops::aggregate(&device, &batch(), &values, &PLAIN), "`values`[3] is …");
        refused(ops::row_scan(&device, &batch(), &values, Direction::Suffix), "`values`[3] is …");
    }
    for bad in [f32::NAN, f32::INFINITY, -1.0, -f32::MIN_POSITIVE] {
        let credit = weighted(vec![1.0, bad, 1.0, 1.0]);
        refused(recipe.loss(&device, &good, &credit), "`weights`[1] is …");
    }
    let zero = weighted(vec![0.0, -0.0, 1.0, 2.0]);
    let plain = recipe.loss(&device, &good, &zero).expect("a weight of 0 rejects a token");

    // A KL term reads a reference, which must then be present.
    let bad_ref = Rollouts { logp_ref: Some(&[-1.0, -1.0, -1.0, 1.0]), ..good };
    assert_eq!(recipe.loss(&device, &bad_ref, &zero).unwrap(), plain);
    let recipe = Recipe::from_toml("kl = { estimator = 'k3', coef = 0.1 }\n").unwrap();
    let missing = "recipe `grpo`: missing columns: logp_ref (for kl)";
    refused(recipe.loss(&device, &good, &zero), missing);
    refused(recipe.loss(&device, &bad_ref, &zero), "`logp_ref`[3] is …");
    // The op says the same of its arguments.
    for (kl, logp_ref) in [(None, Some(&GOOD[..])), (Some((Kl::new(KlFormula::K3), 0.1)), None)] {
        let params = PolicyParams {
            gate: Reinforce,
            level: RatioGranularity::Token,
            guard: Guard::NONE,
            kl,
            kl_weighted: false,
            weight: PLAIN,
            band: [0.5, 2.0],
        };
        let input =
            PolicyInput { logp_ref, ..PolicyInput::new(&GOOD, &GOOD, Advantage::PerSequence(&[1.0, -1.0])) };
        let out = &mut PolicyOutput::default();
        refused(policy_loss(&device, &batch(), &input, &params, out), "`logp_ref`: …");
    }
}

#[test]
fn rewards() {
    let device = Device::cpu();
    let params = GroupParams::grpo(true, 1, 1e-6);
    let (seqlens, groups) = ([0, 1, 2, 3, 4, 5], [0, 2, 4, 5]);
    let batch = Batch::new(&seqlens, &groups, None).unwrap();
    let run = |rewards: &[f32], valid: Option<&[u8]>, params: GroupParams<'_>| {
        ops::group_advantage(&device, &batch, rewards, valid, &params)
    };
    let zero = params.singleton(Singleton::Zero);
    let std = |ddof, eps| GroupParams { scale: Scale::Std { ddof, eps }, ..zero };
    let with_nan = [1.0, f32::NAN, 1.0, 0.0, 0.0];
    for (rewards, params, says) in [
        ([1.0, 0.0, 1.0, f32::INFINITY, 0.0], zero, "`rewards`[3] is …"),
        ([1.0, f32::NEG_INFINITY, 1.0, 0.0, 0.0], zero, "`rewards`[1] is …"),
        // A group of one; a group of which one member is left.
        ([1.0; 5], params, "`cu_groups`[2] is …"),
        (with_nan, params, "`cu_groups`[0] is …"),
        ([1.0; 5], std(2, 1e-6), "`ddof` is …"),
        ([1.0; 5], std(1, -1.0), "`eps` is …"),
        ([1.0; 5], std(1, f64::NAN), "`eps` is …"),
        ([1.0; 5], std(1, f64::INFINITY), "`eps` is …"),
        ([f32::MAX, f32::MIN, 1.0, 0.0, 0.0], zero, "`std`[0] is not finite: …"),
    ] {
        refused(run(&rewards, None, params), says);
    }
    let invalid = run(&[1.0, 0.0, 1.0, f32::INFINITY, 0.0], Some(&[1, 1, 1, 0, 1]), zero);
    assert_eq!(invalid.unwrap().counted, [2, 1, 1]);
    let excluded = run(&with_nan, None, zero).unwrap();
    assert_eq!((excluded.counted, excluded.advantage[1]), (vec![1, 2, 1], 0.0));
    let strict = Recipe::from_toml("advantage = { nan_reward = 'error', singleton = 'zero' }\n").unwrap();
    let nan = Rollouts { rewards: Some(&[1.0, 0.0, f32::NAN, 0.0, 0.0]), ..Rollouts::new(&seqlens, &groups) };
    refused(strict.advantages(&device, &nan), "`rewards`[2] is …");
    // Squares of 1e38 exceed binary32; mean, std and advantages do not.
    let huge = run(&[1e38, -1e38, 1.0, 0.0, 0.0], None, zero).unwrap();
    assert!(huge.std[0] > 1e38 && huge.advantage.iter().all(|a| a.is_finite()));
    // eps 0 and rewards one ULP apart: the divisor is 1e-8, not 0.
    let near = run(&[0.1, 0.1f32.next_up(), 1.0, 0.0, 0.0], None, std(1, 0.0)).unwrap();
    assert!(near.advantage[1] > 0.7 && near.advantage[0] < -0.7);
}

#[test]
fn parameters() {
    let (device, batch) = (Device::cpu(), batch());
    for bad in [0.0, -1.0, f32::NAN] {
        let k3 = Kl::new(KlFormula::K3);
        for (kl, says) in [
            (Kl { clamp_in: bad, ..k3 }, "`kl.clamp_in` is …"),
            (Kl { clamp_out: bad, ..k3 }, "`kl.clamp_out` is …"),
        ] {
            refused(ops::kl(&device, &batch, &GOOD, &GOOD, &kl), says);
        }
        let guard = ops::token_ratio(&device, &batch, &GOOD, &GOOD, Guard::clamp(bad), [0.5, 2.0]);
        refused(guard, "`guard` is …");
    }
    let aggregate = |weight, says| refused(ops::aggregate(&device, &batch, &GOOD, &weight), says);
    for bad in [f64::NAN, f64::INFINITY, -1.0] {
        aggregate(Weight { denominator: bad, ..PLAIN }, "`aggregation denominator` is …");
        aggregate(Weight { per_row: PerRow::Constant(bad), ..PLAIN }, "`aggregation horizon` is …");
        aggregate(Weight { per_row: PerRow::Length { eps: bad }, ..PLAIN }, "`aggregation eps` is …");
    }
    aggregate(Weight { scale: f64::NAN, ..PLAIN }, "`aggregation scale` is …");
    // 1e300 is no f32.
    aggregate(Weight { denominator: 1e-300, ..PLAIN }, "`aggregation weight` is …");
    let overflow = ops::row_scan(&device, &batch, &[f32::MAX; 4], Direction::Prefix);
    refused(overflow, "`scanned`[1] is not finite: …");
}

#[test]
fn recipes() {
    // (TOML, words that the message must contain)
    let table: &[(&str, &[&str])] = &[
        ("nmae = \"x\"", &["nmae", "line 1"]),
        ("[gate]\nkind = \"sapo\"\nclip_ratio_low = 0.2", &["clip_ratio_low"]),
        ("[gate]\nkind = \"spao\"", &["spao", "ppo_clip", "sapo"]),
        ("[advantage]\nddof = 2", &["advantage.ddof", "2", "0 or 1"]),
        ("[advantage]\neps = -1.0", &["advantage.eps"]),
        ("[advantage]\neps = nan", &["advantage.eps"]),
        ("[advantage]\nnorm_by_sdt = true", &["norm_by_sdt", "line 2"]),
        ("[advantage]\nsingleton = \"raw\"", &["raw", "raw_reward"]),
        ("[ratio]\nguard_bound = 0.0", &["ratio.guard_bound"]),
        ("[ratio]\nguard = \"clip\"", &["clip", "clamp"]),
        ("[ratio]\nlevel = \"group\"", &["group", "token", "sequence"]),
        ("[ratio]\nlog_max = 10.0", &["ratio.log_max", "sequence"]),
        ("[ratio]\nlevel = \"sequence\"\nlog_max = 0.0", &["ratio.log_max", "positive"]),
        ("[gate]\nkind = \"cispo\"\nlow = 2.0", &["cispo.high", "cispo.low"]),
        ("[gate]\nkind = \"ppo_clip\"\nclip_ratio_low = 1.5", &["clip_ratio_low", "1.5"]),
        ("[gate]\nkind = \"ppo_clip\"\nclip_ratio_high = -0.1", &["clip_ratio_high"]),
        ("[gate]\nkind = \"ppo_clip\"\nclip_ratio_c = 1.0", &["clip_ratio_c"]),
        ("[gate]\nkind = \"sapo\"\ntau_pos = 0.0", &["tau_pos"]),
        ("[gate]\nkind = \"sapo\"\ntau_neg = inf", &["tau_neg"]),
        ("[kl]\nestimator = \"k3\"", &["coef"]),
        ("[kl]\nestimator = \"k4\"\ncoef = 0.1", &["k4"]),
        ("[kl]\nestimator = \"k1\"\ncoef = 0.1\nclamp_in = 0.0", &["kl.clamp_in"]),
        ("[kl]\nestimator = \"k3\"\ncoef = 0.1\nclamp_out = -1.0", &["kl.clamp_out"]),
        ("[kl]\nestimator = \"k3\"\ncoef = nan", &["kl.coef"]),
        ("[aggregation]\nmode = \"seq-mean-token-sum-norm\"", &["aggregation.horizon"]),
        ("[aggregation]\nmode = \"seq-mean-token-sum-norm\"\nhorizon = 0.0", &["aggregation.horizon"]),
        ("[aggregation]\nhorizon = 10.0", &["aggregation.horizon", "seq-mean-token-sum-norm"]),
        ("[advantage]\nmad_floor = 0.1", &["advantage.mad_floor", "mc_grpo"]),
        ("[advantage]\nkind = \"mc_grpo\"\nmad_floor = -1.0", &["advantage.mad_floor", "at least 0"]),
        ("[advantage]\nkind = \"gpg\"\nf_norm = 0.0", &["advantage.f_norm", "positive"]),
        ("[advantage]\nkind = \"reinforce_plus_plus\"\ngamma = 1.5", &["advantage.gamma", "0 to 1"]),
        ("[advantage]\nlimit = 0.0", &["advantage.limit", "positive"]),
        ("[advantage]\nwhiten = \"batch\"", &["batch", "nemo"]),
        ("[aggregation]\nmode = \"mean\"", &["mean", "token-mean"]),
        ("[metrics]\nband = [2.0, 1.0]", &["metrics.band"]),
        ("[metrics]\nband = [0.5]", &["line 2"]),
        ("gate = { kind = 'dro', beta = -1.0 }", &["gate.beta"]),
        ("gate = { kind = 'gmpo', clip_log_low = -0.1 }", &["clip_log_low"]),
        ("gate = { kind = 'clip_cov', clip_cov_lb = 6.0 }", &["clip_cov_ub"]),
        ("gate = { kind = 'kl_cov', kl_cov_ratio = 1.5 }", &["kl_cov_ratio"]),
        ("gate = { kind = 'vespo', k_pos = -1.0 }", &["k_pos"]),
        ("mask.top_entropy = 2.0", &["mask.top_entropy"]),
        ("ratio = { level = 'given', log_max = 3.0 }", &["log_max"]),
        ("correction.high = -1.0", &["recipe: correction.high is -1"]),
        ("correction.low = 3.0", &["recipe: correction.low is 3"]),
        ("correction.bound = 0.0", &["recipe: correction.bound is 0"]),
        ("correction = { rule = 'plain', low = 0.5 }", &["truncate and mask only"]),
        ("correction.level = 'one'", &["has no weights"]),
        (
            "correction.reject = [{ statistic = 'token_k4', high = 1.0 }]",
            &["unknown variant `token_k4`, expected one of `token_k1`"],
        ),
        ("correction.reject = [{ statistic = 'token_k2', low = 0.5, high = 1.0 }]", &["only an upper bound"]),
        (
            "correction.reject = [{statistic='token_k2', high=1.0}, {statistic='token_k2', high=2.0}]",
            &["token_k2 twice"],
        ),
        ("[gate\n", &["line 1"]),
    ];
    for (toml, words) in table {
        let error = Recipe::from_toml(toml).unwrap_err();
        assert!(matches!(error, Error::Recipe(_) | Error::Argument(_)));
        let message = error.to_string();
        for word in *words {
            assert!(message.contains(word), "{toml:?}: no {word:?} in: {message}");
        }
    }
    let unknown = Recipe::named("gpro").unwrap_err().to_string();
    assert!(unknown.contains("`gpro`") && unknown.contains("grpo"), "{unknown}");
    refused(Recipe::builder("x").ppo_clip(0.2, 0.2, Some(0.5)).build(), "`clip_ratio_c` is …");
}

#[test]
fn advantages() {
    let device = Device::cpu();
    let (seqlens, groups) = ([0, 1, 2, 3, 4], [0, 2, 4]);
    let batch = Batch::new(&seqlens, &groups, None).unwrap();
    let (rewards, infinite) = ([1.0, 0.0, 1.0, 0.0], [1.0, 0.0, f32::INFINITY, 0.0]);
    let given = GroupParams::new(Baseline::Given, Scale::None { ddof: 1 });
    let weighted = GroupParams::new(Baseline::Weighted { eps: 0.0 }, Scale::None { ddof: 1 });
    let of_batch = GroupParams::new(Baseline::Mean, Scale::Batch { ddof: 1, eps: 1e-4 });
    let floored = GroupParams::new(Baseline::Median, Scale::Mad { floor: -1.0 });
    for (rewards, params, says) in [
        (rewards, given, "`given`: …"),
        (rewards, GroupParams { given: Some(&[0.5, f32::NAN]), ..given }, "`given`[1] is …"),
        (rewards, GroupParams { given: Some(&[0.5]), ..given }, "`given` has 1 entries: expected 2 (…"),
        (rewards, GroupParams { weights: Some(&[1.0, 1.0, 2.0, -1.0]), ..weighted }, "`weights`[3] is …"),
        (rewards, GroupParams { weights: Some(&[1.0, 1.0, 2.0, f32::NAN]), ..weighted }, "`weights`[3] is …"),
        (rewards, GroupParams { weights: Some(&infinite), ..weighted }, "`weights`[2] is …"),
        (rewards, GroupParams { limit: 0.0, ..GroupParams::grpo(true, 1, 1e-6) }, "`limit` is …"),
        (rewards, floored, "`floor` is …"),
        (infinite, of_batch, "`rewards`[2] is …"),
    ] {
        refused(ops::group_advantage(&device, &batch, &rewards, None, &params), says);
    }
    refused(ops::discounted_return(&device, &batch, &rewards, 1.5), "`gamma` is …");
    refused(ops::discounted_return(&device, &batch, &infinite, 1.0), "`token rewards`[2] is …");
    refused(ops::pass_at_k(&device, &batch, &rewards, None, 3, 0.5, 1e-6), "`cu_groups`[0] is …");
    refused(ops::pass_at_k(&device, &batch, &rewards, None, 0, 0.5, 1e-6), "`k` is …");
    refused(ops::combine(&device, &batch, &infinite, &[1.0]), "`components`[2] is …");
    refused(ops::combine(&device, &batch, &rewards, &[f32::NAN]), "`weights`[0] is …");
    for values in [Advantage::PerToken(&infinite), Advantage::PerSequence(&infinite)] {
        refused(ops::whiten(&device, &batch, values, &WhitenParams::VERL), "`values`[2] is …");
    }
    refused(ops::token_moments(&device, &batch, &infinite), "`values`[2] is …");

    // A plan refuses what the call refuses; the unused groups of a smaller batch do not matter.
    let bare = Rollouts::new(&seqlens, &groups);
    let few = Rollouts { rewards: Some(&rewards), ..bare };
    let plan_of = |few: &Rollouts<'_>, k: u32, groups: usize| {
        let recipe = Recipe::from_toml(&format!("extends = \"pass_at_k\"\n[advantage]\nk = {k}\n")).unwrap();
        let capacity = Capacity { tokens: 4, sequences: 4, groups };
        let padded = few.padded(&capacity).unwrap();
        let plan = recipe.plan(capacity, Calls::Advantages, Outputs::COEF).unwrap();
        plan.run(&device, &padded.view(), None).unwrap().map(|(credit, _)| credit.groups.counted)
    };
    let plan = |k, groups| plan_of(&few, k, groups);
    assert_eq!((plan(3, 2), plan(2, 2)), (None, Some(vec![2, 2])));
    assert_eq!(plan(2, 3), Some(vec![2, 2, 0]));
    // But a group of the batch without a counted sequence does.
    let valid = Some(&[1, 1, 0, 0][..]);
    refused(ops::pass_at_k(&device, &batch, &rewards, valid, 2, 0.5, 1e-6), "`cu_groups`[1] is 0: …");
    assert_eq!(plan_of(&Rollouts { valid, ..few }, 2, 3), None);

    // Rewards of sequences cannot serve as token rewards, or vice versa.
    for (recipe, rollouts, missing) in [
        ("reinforce_plus_plus", few, "…missing columns: token_rewards (for advantage)"),
        (
            "grpo",
            Rollouts { token_rewards: Some(&rewards), ..bare },
            "…missing columns: rewards (for advantage)",
        ),
    ] {
        refused(Recipe::named(recipe).unwrap().advantages(&device, &rollouts), missing);
    }
}
