//! Every refusal names the argument and the position in it; nothing panics.

use lockstep::core::Error as Argument;
use lockstep::core::advantage::{Baseline, Scale, Singleton};
use lockstep::core::aggregate::{PerRow, Weight};
use lockstep::core::gate::Reinforce;
use lockstep::core::kl::{Kl, KlFormula};
use lockstep::core::ratio::{Guard, RatioGranularity};
use lockstep::core::team::Direction;
use lockstep::ops::policy_loss::{PolicyInput, PolicyOutput, PolicyParams, policy_loss};
use lockstep::ops::{self, advantage::GroupParams, whiten::WhitenParams};
use lockstep::plan::{Calls, Capacity};
use lockstep::{Advantage, Batch, Credit, Device, Error, Loss, Outputs, Recipe, Rollouts};

fn argument<T: std::fmt::Debug>(result: Result<T, Error>) -> Argument {
    match result {
        Err(Error::Argument(error)) => error,
        other => panic!("expected a refused argument, got {other:?}"),
    }
}

/// Name and index of a refused value.
fn value<T: std::fmt::Debug>(result: Result<T, Error>) -> (&'static str, Option<usize>) {
    match argument(result) {
        Argument::Value { argument, index, .. } => (argument, index),
        other => panic!("expected a refused value, got {other:?}"),
    }
}

#[test]
fn offsets() {
    let new = |seqlens: &[u32], groups: &[u32], mask: Option<&[u8]>| {
        argument(Batch::new(seqlens, groups, mask).map(|b| b.tokens()))
    };
    assert!(matches!(new(&[], &[0, 1], None), Argument::Empty { argument: "cu_seqlens", .. }));
    assert!(matches!(new(&[0], &[0], None), Argument::Empty { argument: "cu_seqlens", .. }));
    assert!(matches!(new(&[0, 1], &[], None), Argument::Empty { argument: "cu_groups", .. }));
    assert!(matches!(new(&[1, 2], &[0, 1], None), Argument::FirstOffset { argument: "cu_seqlens", got: 1 }));
    assert!(matches!(new(&[0, 2], &[1, 1], None), Argument::FirstOffset { argument: "cu_groups", got: 1 }));
    let decreasing = new(&[0, 3, 2, 5], &[0, 3], None);
    let want = Argument::Decreasing { argument: "cu_seqlens", index: 2, before: 3, got: 2 };
    assert_eq!(decreasing, want);
    let mask = new(&[0, 2, 4], &[0, 2], Some(&[1; 5]));
    assert!(matches!(mask, Argument::Length { argument: "loss_mask", expected: 4, got: 5, .. }));
    let last = new(&[0, 2, 4], &[0, 3], None);
    let want = Argument::LastOffset { argument: "cu_groups", index: 1, expected: 2, of: "sequences", got: 3 };
    assert_eq!(last, want);
    let empty = new(&[0, 2, 2, 4], &[0, 3], None);
    assert_eq!(empty, Argument::EmptyRow { argument: "cu_seqlens", index: 1, row: "sequence" });
    let empty = new(&[0, 2, 4], &[0, 0, 2], None);
    assert_eq!(empty, Argument::EmptyRow { argument: "cu_groups", index: 0, row: "group" });
    assert!(Batch::with_empty_rows(&[0, 2, 2], &[0, 0, 2], None).is_ok());
}

const OFFSETS: [u32; 3] = [0, 2, 4];
const GOOD: [f32; 4] = [-0.5, -1.0, -0.25, -2.0];

fn batch(mask: Option<&'static [u8]>) -> Batch<'static> {
    Batch::new(&OFFSETS, &[0, 2], mask).unwrap()
}

/// Log-probabilities of both policies.
fn columns<'a>(logp: &'a [f32], logp_old: &'a [f32]) -> Rollouts<'a> {
    Rollouts { logp: Some(logp), logp_old: Some(logp_old), ..Rollouts::new(&OFFSETS, &[0, 2]) }
}

fn own() -> Credit {
    Credit::per_sequence(vec![1.0, -1.0])
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
    let length = |result: Result<Loss, Error>| match argument(result) {
        Argument::Length { argument, expected, got, .. } => (argument, expected, got),
        other => panic!("{other:?}"),
    };
    let recipe = Recipe::from_toml("[kl]\nestimator = \"k3\"\ncoef = 0.1\n").unwrap();
    let good = Rollouts { logp_ref: Some(&GOOD), ..columns(&GOOD, &GOOD) };
    let run = |rollouts: Rollouts<'_>, credit: Credit| length(recipe.loss(&device, &rollouts, &credit));
    assert_eq!(run(Rollouts { logp: Some(&GOOD[..3]), ..good }, own()), ("logp", 4, 3));
    assert_eq!(run(Rollouts { logp_old: Some(&[]), ..good }, own()), ("logp_old", 4, 0));
    assert_eq!(run(Rollouts { logp_ref: Some(&[]), ..good }, own()), ("logp_ref", 4, 0));
    assert_eq!(run(good, Credit::per_sequence(vec![1.0])), ("credit.advantage", 2, 1));
    assert_eq!(run(good, Credit::per_token(vec![1.0; 2])), ("credit.advantage", 4, 2));
    let weights = Some(vec![1.0]);
    assert_eq!(run(good, Credit { weights, ..own() }), ("credit.weights", 4, 1));
    let rewards = |rewards, valid| {
        let rollouts = Rollouts { rewards: Some(rewards), valid, ..good };
        argument(recipe.advantages(&device, &rollouts))
    };
    let short = rewards(&[1.0], None);
    assert!(matches!(short, Argument::Length { argument: "rewards", expected: 2, got: 1, .. }));
    let short = rewards(&[1.0, 0.0], Some(&[1]));
    assert!(matches!(short, Argument::Length { argument: "valid", expected: 2, got: 1, .. }));
    let values = argument(ops::row_scan(&device, &batch(None), &[1.0], Direction::Prefix));
    assert!(matches!(values, Argument::Length { argument: "values", expected: 4, got: 1, .. }));
}

#[test]
fn log_probabilities() {
    let device = Device::cpu();
    let recipe = Recipe::named("sapo").unwrap();
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 0.5, f32::MIN_POSITIVE] {
        for index in 0..4 {
            let values = with(index, bad);
            let run = |mask: Option<&[u8]>, logp: &[f32], old: &[f32]| {
                recipe.loss(&device, &Rollouts { loss_mask: mask, ..columns(logp, old) }, &own())
            };
            assert_eq!(value(run(None, &values, &GOOD)), ("logp", Some(index)), "{bad}");
            assert_eq!(value(run(None, &GOOD, &values)), ("logp_old", Some(index)), "{bad}");
            let ratio = ops::token_ratio(&device, &batch(None), &GOOD, &values, Guard::NONE, [0.5, 2.0]);
            assert_eq!(value(ratio), ("logp_old", Some(index)));
            let kl = ops::kl(&device, &batch(None), &GOOD, &values, &Kl::new(KlFormula::K3));
            assert_eq!(value(kl), ("logp_ref", Some(index)));
            assert_eq!(
                value(ops::ratio::mismatch(&device, &batch(None), &values, &GOOD)),
                ("logp_rollout", Some(index))
            );
            // The same value at a masked token is accepted.
            let masks: [&'static [u8]; 4] = [&[0, 1, 1, 1], &[1, 0, 1, 1], &[1, 1, 0, 1], &[1, 1, 1, 0]];
            assert!(run(Some(masks[index]), &values, &values).is_ok(), "{bad} at {index}, masked");
        }
    }
}

#[test]
fn advantages_weights_and_values() {
    let device = Device::cpu();
    let recipe = Recipe::named("grpo").unwrap();
    let good = columns(&GOOD, &GOOD);
    let run = |credit: Credit| value(recipe.loss(&device, &good, &credit));
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        assert_eq!(run(Credit::per_sequence(vec![1.0, bad])), ("advantage", Some(1)));
        assert_eq!(run(Credit::per_token(vec![1.0, -1.0, bad, 1.0])), ("advantage", Some(2)));
        let values = with(3, bad);
        let weight = Weight { per_row: PerRow::One, denominator: 1.0, scale: 1.0 };
        assert_eq!(value(ops::aggregate(&device, &batch(None), &values, &weight)), ("values", Some(3)));
        assert_eq!(
            value(ops::row_scan(&device, &batch(None), &values, Direction::Suffix)),
            ("values", Some(3))
        );
    }
    for bad in [f32::NAN, f32::INFINITY, -1.0, -f32::MIN_POSITIVE] {
        let weights = Some(vec![1.0, bad, 1.0, 1.0]);
        assert_eq!(run(Credit { weights, ..own() }), ("weights", Some(1)), "{bad}");
    }
    let zero = Credit { weights: Some(vec![0.0, -0.0, 1.0, 2.0]), ..own() };
    let plain = recipe.loss(&device, &good, &zero).expect("a weight of 0 rejects a token");

    // A KL term reads a reference, which must then be present.
    let bad_ref = Rollouts { logp_ref: Some(&[-1.0, -1.0, -1.0, 1.0]), ..good };
    assert_eq!(recipe.loss(&device, &bad_ref, &zero).unwrap(), plain);
    let recipe = Recipe::from_toml("[kl]\nestimator = \"k3\"\ncoef = 0.1\n").unwrap();
    let no_ref = recipe.loss(&device, &good, &zero).unwrap_err().to_string();
    assert_eq!(no_ref, "recipe `grpo`: missing columns: logp_ref (for kl)");
    assert_eq!(value(recipe.loss(&device, &bad_ref, &zero)), ("logp_ref", Some(3)));
    // The op says the same of its arguments.
    let run = |kl, logp_ref| {
        let params = PolicyParams {
            gate: Reinforce,
            level: RatioGranularity::Token,
            guard: Guard::NONE,
            kl,
            kl_weighted: false,
            weight: Weight { per_row: PerRow::One, denominator: 1.0, scale: 1.0 },
            band: [0.5, 2.0],
        };
        let input =
            PolicyInput { logp_ref, ..PolicyInput::new(&GOOD, &GOOD, Advantage::PerSequence(&[1.0, -1.0])) };
        argument(policy_loss(&device, &batch(None), &input, &params, &mut PolicyOutput::default()))
    };
    let no_kl = run(None, Some(&GOOD[..]));
    assert!(matches!(no_kl, Argument::Combination { argument: "logp_ref", .. }));
    let no_ref = run(Some((Kl::new(KlFormula::K3), 0.1)), None);
    assert!(matches!(no_ref, Argument::Combination { argument: "logp_ref", .. }));
}

#[test]
fn rewards() {
    let device = Device::cpu();
    let params = GroupParams::grpo(true, 1, 1e-6);
    let batch = Batch::new(&[0, 1, 2, 3, 4, 5], &[0, 2, 4, 5], None).unwrap();
    let run = |rewards: &[f32], valid: Option<&[u8]>, params: GroupParams<'_>| {
        ops::group_advantage(&device, &batch, rewards, valid, &params)
    };
    let zero = params.singleton(Singleton::Zero);
    let std = |ddof, eps| GroupParams { scale: Scale::Std { ddof, eps }, ..zero };
    assert_eq!(value(run(&[1.0, 0.0, 1.0, f32::INFINITY, 0.0], None, zero)), ("rewards", Some(3)));
    assert_eq!(value(run(&[1.0, f32::NEG_INFINITY, 1.0, 0.0, 0.0], None, zero)), ("rewards", Some(1)));
    let invalid = run(&[1.0, 0.0, 1.0, f32::INFINITY, 0.0], Some(&[1, 1, 1, 0, 1]), zero);
    assert_eq!(invalid.unwrap().counted, [2, 1, 1]);
    assert_eq!(value(run(&[1.0; 5], None, params)), ("cu_groups", Some(2)), "a group of one");
    let excluded = run(&[1.0, f32::NAN, 1.0, 0.0, 0.0], None, zero).unwrap();
    assert_eq!((excluded.counted, excluded.advantage[1]), (vec![1, 2, 1], 0.0));
    let nan = run(&[1.0, f32::NAN, 1.0, 0.0, 0.0], None, params);
    assert_eq!(value(nan), ("cu_groups", Some(0)), "one member is left");
    assert_eq!(value(run(&[1.0; 5], None, std(2, 1e-6))), ("ddof", None));
    for eps in [-1.0, f64::NAN, f64::INFINITY] {
        assert_eq!(value(run(&[1.0; 5], None, std(1, eps))), ("eps", None));
    }
    let strict = Recipe::from_toml("[advantage]\nnan_reward = \"error\"\nsingleton = \"zero\"\n").unwrap();
    let nan = Rollouts {
        rewards: Some(&[1.0, 0.0, f32::NAN, 0.0, 0.0]),
        ..Rollouts::new(&[0, 1, 2, 3, 4, 5], &[0, 2, 4, 5])
    };
    let refused = strict.advantages(&device, &nan);
    assert_eq!(value(refused), ("rewards", Some(2)));
    // Squares of 1e38 exceed binary32; mean, std and advantages do not.
    let huge = run(&[1e38, -1e38, 1.0, 0.0, 0.0], None, zero).unwrap();
    assert!(huge.std[0] > 1e38 && huge.advantage.iter().all(|a| a.is_finite()));
    let too_large = argument(run(&[f32::MAX, f32::MIN, 1.0, 0.0, 0.0], None, zero));
    assert!(matches!(too_large, Argument::NotFinite { result: "std", index: 0, .. }), "{too_large:?}");
    // eps 0 and rewards one ULP apart: the divisor is 1e-8, not 0.
    let near = run(&[0.1, 0.1f32.next_up(), 1.0, 0.0, 0.0], None, std(1, 0.0)).unwrap();
    assert!(near.advantage[1] > 0.7 && near.advantage[0] < -0.7);
}

#[test]
fn parameters() {
    let device = Device::cpu();
    let kl = |kl: Kl| value(ops::kl(&device, &batch(None), &GOOD, &GOOD, &kl));
    for bad in [0.0, -1.0, f32::NAN] {
        assert_eq!(kl(Kl { clamp_in: bad, ..Kl::new(KlFormula::K3) }), ("kl.clamp_in", None));
        assert_eq!(kl(Kl { clamp_out: bad, ..Kl::new(KlFormula::K3) }), ("kl.clamp_out", None));
        let guard = ops::token_ratio(&device, &batch(None), &GOOD, &GOOD, Guard::clamp(bad), [0.5, 2.0]);
        assert_eq!(value(guard), ("guard", None));
    }
    let weight = |per_row, denominator, scale| {
        value(ops::aggregate(&device, &batch(None), &GOOD, &Weight { per_row, denominator, scale }))
    };
    for bad in [f64::NAN, f64::INFINITY, -1.0] {
        assert_eq!(weight(PerRow::One, bad, 1.0), ("aggregation denominator", None));
        assert_eq!(weight(PerRow::Constant(bad), 1.0, 1.0), ("aggregation horizon", None));
        assert_eq!(weight(PerRow::Length { eps: bad }, 1.0, 1.0), ("aggregation eps", None));
    }
    assert_eq!(weight(PerRow::One, 1.0, f64::NAN), ("aggregation scale", None));
    assert_eq!(weight(PerRow::One, 1e-300, 1.0), ("aggregation weight", None), "1e300 is no f32");
    let overflow = argument(ops::row_scan(&device, &batch(None), &[f32::MAX; 4], Direction::Prefix));
    assert!(matches!(overflow, Argument::NotFinite { result: "scanned", index: 1, .. }), "{overflow:?}");
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
    let unusable = Recipe::builder("x").ppo_clip(0.2, 0.2, Some(0.5)).build();
    assert_eq!(value(unusable), ("clip_ratio_c", None));
}

#[test]
fn advantages() {
    let device = Device::cpu();
    let batch = Batch::new(&[0, 1, 2, 3, 4], &[0, 2, 4], None).unwrap();
    let rewards = [1.0, 0.0, 1.0, 0.0];
    let none = Scale::None { ddof: 1 };
    let run = |params: GroupParams<'_>| ops::group_advantage(&device, &batch, &rewards, None, &params);
    let missing = argument(run(GroupParams::new(Baseline::Given, none)));
    assert!(matches!(missing, Argument::Combination { argument: "given", .. }), "{missing:?}");
    let given = GroupParams { given: Some(&[0.5, f32::NAN]), ..GroupParams::new(Baseline::Given, none) };
    assert_eq!(value(run(given)), ("given", Some(1)));
    let short = GroupParams { given: Some(&[0.5]), ..given };
    assert!(matches!(argument(run(short)), Argument::Length { argument: "given", expected: 2, got: 1, .. }));
    let weighted = GroupParams::new(Baseline::Weighted { eps: 0.0 }, none);
    for bad in [-1.0, f32::NAN, f32::INFINITY] {
        let weights = [1.0, 1.0, 2.0, bad];
        assert_eq!(value(run(GroupParams { weights: Some(&weights), ..weighted })), ("weights", Some(3)));
    }
    let limit = GroupParams { limit: 0.0, ..GroupParams::grpo(true, 1, 1e-6) };
    assert_eq!(value(run(limit)), ("limit", None));
    assert_eq!(value(run(GroupParams::new(Baseline::Median, Scale::Mad { floor: -1.0 }))), ("floor", None));
    let batch_std = Scale::Batch { ddof: 1, eps: 1e-4 };
    let infinite = [1.0, 0.0, f32::INFINITY, 0.0];
    let params = GroupParams::new(Baseline::Mean, batch_std);
    assert_eq!(value(ops::group_advantage(&device, &batch, &infinite, None, &params)), ("rewards", Some(2)));

    assert_eq!(value(ops::discounted_return(&device, &batch, &rewards, 1.5)), ("gamma", None));
    assert_eq!(value(ops::discounted_return(&device, &batch, &infinite, 1.0)), ("token rewards", Some(2)));
    assert_eq!(value(ops::pass_at_k(&device, &batch, &rewards, None, 3, 0.5)), ("cu_groups", Some(0)));
    assert_eq!(value(ops::pass_at_k(&device, &batch, &rewards, None, 0, 0.5)), ("k", None));
    assert_eq!(value(ops::combine(&device, &batch, &infinite, &[1.0])), ("components", Some(2)));
    assert_eq!(value(ops::combine(&device, &batch, &rewards, &[f32::NAN])), ("weights", Some(0)));
    let whiten = |values| ops::whiten(&device, &batch, values, &WhitenParams::VERL);
    assert_eq!(value(whiten(Advantage::PerToken(&infinite))), ("values", Some(2)));
    assert_eq!(value(whiten(Advantage::PerSequence(&infinite))), ("values", Some(2)));
    assert_eq!(value(ops::token_moments(&device, &batch, &infinite)), ("values", Some(2)));

    // A plan refuses what the call refuses; the unused groups of a smaller batch do not matter.
    let few = Rollouts { rewards: Some(&rewards), ..Rollouts::new(&[0, 1, 2, 3, 4], &[0, 2, 4]) };
    let plan = |k: u32, groups: usize| {
        let recipe = Recipe::from_toml(&format!("extends = \"pass_at_k\"\n[advantage]\nk = {k}\n")).unwrap();
        let capacity = Capacity { tokens: 4, sequences: 4, groups };
        let padded = few.padded(&capacity).unwrap();
        let plan = recipe.plan(capacity, Calls::Advantages, Outputs::COEF).unwrap();
        plan.run(&device, &padded.view(), None).unwrap().map(|(credit, _)| credit.groups.counted)
    };
    assert_eq!((plan(3, 2), plan(2, 2)), (None, Some(vec![2, 2])));
    assert_eq!(plan(2, 3), Some(vec![2, 2, 0]));

    // Rewards of sequences cannot serve as token rewards, or vice versa.
    let bare = Rollouts::new(&[0, 1, 2, 3, 4], &[0, 2, 4]);
    let run = |recipe: Recipe, rollouts| recipe.advantages(&device, &rollouts).unwrap_err().to_string();
    let plus = Recipe::named("reinforce_plus_plus").unwrap();
    let per_sequence = run(plus, Rollouts { rewards: Some(&rewards), ..bare });
    assert!(per_sequence.ends_with("missing columns: token_rewards (for advantage)"), "{per_sequence}");
    let per_token = run(Recipe::default(), Rollouts { token_rewards: Some(&rewards), ..bare });
    assert!(per_token.ends_with("missing columns: rewards (for advantage)"), "{per_token}");
}
