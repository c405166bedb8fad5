//! Advantages over time: worked vectors, special cases, and invariants.

use lockstep::core::advantage::step_return::step_reward;
use lockstep::ops::gae::{Ends, GaeInput, GaeOutput, GaeParams, Lambda, gae, td_lambda};
use lockstep::ops::optimal_token_baseline::{Score, TokenBaselineParams, optimal_token_baseline};
use lockstep::ops::step_return::{StepParams, Steps, step_advantages, step_return};
use lockstep::ops::turns::{NormSet, RoleNorm, Turns, normalize_roles, spread, turn_return};
use lockstep::ops::vtrace::{VTraceInput, VTraceParams, vtrace};
use lockstep::ops::whiten::{WhitenParams, whiten};
use lockstep::{Advantage, Batch, Device, Recipe, Rollouts};
use lockstep_conformance::oracle::gae as oracle;
use lockstep_conformance::precision::{WORKED, assert_worked};
use lockstep_core::advantage::gae::length_adaptive_lambda;

fn params(gamma: f64, lambda: f64) -> GaeParams {
    GaeParams { gamma, lambda: Lambda::Fixed(lambda), lambda_critic: None }
}

const REWARDS: [f32; 3] = [0.0, 0.0, 1.0];
const VALUES: [f32; 3] = [0.2, 0.4, 0.7];

#[test]
fn worked_8_6_gae() {
    let batch = Batch::new(&[0, 3], &[0, 1], None).unwrap();
    let input = GaeInput { rewards: &REWARDS, values: &VALUES, ends: Ends::Terminated };
    let mut out = GaeOutput::default();
    gae(&Device::cpu(), &batch, &input, &params(1.0, 0.95), &mut out).unwrap();
    assert_worked(&out.advantage, &[0.75575, 0.585, 0.3]);
    assert_worked(&out.returns, &[0.95575, 0.985, 1.0]);
}

#[test]
fn worked_8_6_vtrace() {
    let batch = Batch::new(&[0, 3], &[0, 1], None).unwrap();
    // rho = (1.5, 0.5, 1).
    let logp_rollout = [-1.0f32, -0.5, -0.25];
    let logp = [-1.0 + 1.5f32.ln(), -0.5 + 0.5f32.ln(), -0.25];
    let (rewards, values) = (&REWARDS, &VALUES);
    let input =
        VTraceInput { logp: &logp, logp_rollout: &logp_rollout, rewards, values, ends: Ends::Terminated };
    let out = vtrace(&Device::cpu(), &batch, &input, &VTraceParams::default()).unwrap();
    assert_worked(&out.vs, &[0.7, 0.7, 1.0]);
    assert_worked(&out.advantage, &[0.5, 0.3, 0.3]);
}

#[test]
fn masked_tokens_take_what_comes_after_them() {
    let device = Device::cpu();
    let mask = [1, 0, 0, 1, 1, 0];
    let batch = Batch::new(&[0, 6], &[0, 1], Some(&mask)).unwrap();
    let (nan, inf) = (f32::NAN, f32::INFINITY);
    let input = GaeInput {
        rewards: &[0.0, nan, inf, 0.0, 1.0, nan],
        values: &[0.2, inf, nan, 0.4, 0.7, nan],
        ends: Ends::Flags { terminated: &[0], truncated: &[1], bootstrap: &[0.5] },
    };
    let mut out = GaeOutput::default();
    gae(&device, &batch, &input, &params(0.5, 0.5), &mut out).unwrap();
    let live = Batch::new(&[0, 3], &[0, 1], None).unwrap();
    let alone = GaeInput { rewards: &REWARDS, values: &VALUES, ..input };
    let mut want = GaeOutput::default();
    gae(&device, &live, &alone, &params(0.5, 0.5), &mut want).unwrap();
    let spread = |x: &[f32], behind: f32| vec![x[0], x[1], x[1], x[1], x[2], behind];
    assert_eq!(out.advantage, spread(&want.advantage, 0.0));
    assert_eq!(out.returns, spread(&want.returns, 0.5), "behind the last live token: the bootstrap");
    // delta_2 = 1 + 0.5 * 0.5 - 0.7
    assert!((want.advantage[2] - 0.55).abs() < 1e-6);
}

#[test]
fn a_bootstrap_counts_where_truncated_only() {
    let batch = Batch::new(&[0, 1, 2], &[0, 2], None).unwrap();
    let ends = Ends::Flags { terminated: &[1, 0], truncated: &[0, 1], bootstrap: &[f32::NAN, 8.0] };
    let input = GaeInput { rewards: &[1.0, 1.0], values: &[0.5, 0.5], ends };
    let mut out = GaeOutput::default();
    gae(&Device::cpu(), &batch, &input, &params(0.5, 1.0), &mut out).unwrap();
    assert_eq!(out.advantage, [0.5, 4.5]);
}

#[test]
fn both_ways_or_none_is_an_error() {
    let batch = Batch::new(&[0, 1, 2], &[0, 2], None).unwrap();
    let error = |terminated: [u8; 2], truncated: [u8; 2], bootstrap: [f32; 2]| {
        let ends = Ends::Flags { terminated: &terminated, truncated: &truncated, bootstrap: &bootstrap };
        let input = GaeInput { rewards: &[1.0, 1.0], values: &[0.5, 0.5], ends };
        gae(&Device::cpu(), &batch, &input, &params(1.0, 1.0), &mut GaeOutput::default())
            .unwrap_err()
            .to_string()
    };
    assert_eq!(
        error([1, 1], [0, 1], [0.0; 2]),
        "`truncated`[1] is 1: expected 0, because the sequence is terminated"
    );
    assert_eq!(
        error([1, 0], [0, 0], [0.0; 2]),
        "`truncated`[1] is 0: expected 1, because the sequence is not terminated"
    );
    assert_eq!(
        error([0, 1], [1, 0], [f32::NAN; 2]),
        "`bootstrap`[0] is NaN: expected a finite number, because the sequence is truncated"
    );
}

#[test]
fn bad_numbers_are_named() {
    let device = Device::cpu();
    let mask = [1, 0, 1];
    let batch = Batch::new(&[0, 3], &[0, 1], Some(&mask)).unwrap();
    let error = |rewards: [f32; 3], values: [f32; 3], params: GaeParams| {
        let input = GaeInput { rewards: &rewards, values: &values, ends: Ends::Terminated };
        gae(&device, &batch, &input, &params, &mut GaeOutput::default()).unwrap_err().to_string()
    };
    let nan = f32::NAN;
    assert!(error([0.0, nan, nan], [0.0; 3], params(1.0, 1.0)).starts_with("`token rewards`[2] is NaN"));
    assert!(error([0.0; 3], [f32::INFINITY, nan, 0.0], params(1.0, 1.0)).starts_with("`values`[0] is inf"));
    assert!(error([3e38; 3], [0.0; 3], params(1.0, 1.0)).starts_with("`advantage`[0] is not finite"));
    assert!(error([0.0; 3], [0.0; 3], params(1.5, 1.0)).starts_with("`gamma` is 1.5"));
    assert!(error([0.0; 3], [0.0; 3], params(1.0, -0.1)).starts_with("`lambda` is -0.1"));
    let alpha = GaeParams { lambda: Lambda::LengthAdaptive { alpha: 0.0 }, ..params(1.0, 1.0) };
    assert!(error([0.0; 3], [0.0; 3], alpha).starts_with("`length_alpha` is 0"));
}

#[test]
fn returns_are_td_lambda() {
    let n = 300;
    let rewards: Vec<f32> = (0..n).map(|i| ((i * 37) % 11) as f32 / 8.0 - 0.5).collect();
    let values: Vec<f32> = (0..n).map(|i| ((i * 53) % 17) as f32 / 16.0).collect();
    let cu = [0, n as u32];
    let batch = Batch::new(&cu, &[0, 1], None).unwrap();
    let ends = Ends::Flags { terminated: &[0], truncated: &[1], bootstrap: &[0.75] };
    let input = GaeInput { rewards: &rewards, values: &values, ends };
    let wide = |x: &[f32]| -> Vec<f64> { x.iter().map(|x| (*x).into()).collect() };
    for (gamma, lambda) in [(1.0, 0.0), (0.9, 0.5), (0.99, 0.95), (0.7, 1.0)] {
        let got = td_lambda(&Device::cpu(), &batch, &input, gamma, Lambda::Fixed(lambda)).unwrap();
        assert_worked(&got, &oracle::td_lambda(&wide(&rewards), &wide(&values), 0.75, gamma, lambda));
    }
}

#[test]
fn a_lambda_for_the_critic_and_one_by_length() {
    let device = Device::cpu();
    let batch = Batch::new(&[0, 3], &[0, 1], None).unwrap();
    let input = GaeInput { rewards: &REWARDS, values: &VALUES, ends: Ends::Terminated };
    let mut vapo = GaeOutput::default();
    let both = GaeParams { lambda_critic: Some(Lambda::Fixed(1.0)), ..params(1.0, 0.5) };
    gae(&device, &batch, &input, &both, &mut vapo).unwrap();
    assert_worked(&vapo.returns, &[1.0, 1.0, 1.0]);
    assert_worked(&vapo.advantage, &[0.425, 0.45, 0.3]);
    // 1 − 1/(0.5 · 3) = 1/3.
    let adaptive = GaeParams { lambda: Lambda::LengthAdaptive { alpha: 0.5 }, ..params(1.0, 0.0) };
    let mut out = GaeOutput::default();
    gae(&device, &batch, &input, &adaptive, &mut out).unwrap();
    assert_worked(&out.advantage, &[0.2 + (0.3 + 0.1) / 3.0, 0.4, 0.3]);
    assert_eq!([0, 1, 20].map(|length| length_adaptive_lambda(0.05, length)), [0.0; 3]);
    assert_eq!(length_adaptive_lambda(0.05, 200), 0.9);
}

#[test]
fn vtrace_on_policy_is_td_lambda_and_saturates_far_from_it() {
    let device = Device::cpu();
    let batch = Batch::new(&[0, 3], &[0, 1], None).unwrap();
    let ends = Ends::Flags { terminated: &[0], truncated: &[1], bootstrap: &[0.25] };
    let logp = [-1.0f32, -0.5, -0.25];
    let (rewards, values) = (&REWARDS[..], &VALUES[..]);
    let run = |logp: &[f32], logp_rollout: &[f32]| {
        let input = VTraceInput { logp, logp_rollout, rewards, values, ends };
        vtrace(&device, &batch, &input, &VTraceParams { gamma: 0.9, lambda: 0.5, ..VTraceParams::default() })
            .unwrap()
    };
    let want =
        td_lambda(&device, &batch, &GaeInput { rewards, values, ends }, 0.9, Lambda::Fixed(0.5)).unwrap();
    assert_eq!(run(&logp, &logp).vs, want);
    // Ratios of e^10000 are truncated to 1; those of e^-10000 and e^-1e30 leave the critic's values.
    let far = [-1e4f32, -1e4, -1e30];
    assert_eq!(run(&logp, &far).vs, want);
    let none = run(&far, &logp);
    assert_eq!((none.vs, none.advantage), (values.to_vec(), vec![0.0; 3]));
}

#[test]
fn worked_8_6_ui_s1_row_10_19_first_mismatch() {
    let steps = Steps { cu_steps: &[0, 4], rewards: &[1.0, 1.0, 0.5, 1.0], matches: &[1, 1, 0, 1] };
    let run = |include| step_return(&Device::cpu(), &steps, 0.5, include).unwrap();
    assert_eq!(run(false), [1.5, 1.0, 0.5, 1.0], "code");
    assert_eq!(run(true), [1.625, 1.25, 0.5, 1.0], "paper");
}

#[test]
fn step_rewards() {
    let cases = [
        ([0.0, 1.0, 1.0], 0.0),
        ([1.0, 0.0, 1.0], 0.1),
        ([1.0, 1.0, 0.0], 0.5),
        ([1.0, 1.0, 1.0], 1.0),
        ([1.0, 1.0, 0.5], 0.75),
    ];
    for ([format, action_type, accuracy], want) in cases {
        assert!(
            (step_reward(format, action_type, accuracy) - want).abs() <= WORKED,
            "{format} {action_type} {accuracy}"
        );
    }
}

#[test]
fn steps_are_compared_with_those_of_the_same_prompt_and_index() {
    // Two trajectories of one prompt with 2 and 3 steps, one of another prompt with 1.
    let batch = Batch::new(&[0, 2, 5, 6], &[0, 2, 3], None).unwrap();
    let steps = Steps {
        cu_steps: &[0, 2, 5, 6],
        rewards: &[1.0, 1.0, 0.5, 1.0, 0.25, 0.75],
        matches: &[1, 1, 0, 1, 1, 1],
    };
    let run = |params| step_advantages(&Device::cpu(), &batch, &steps, &[1.0, 0.0, 0.75], &params).unwrap();
    let out = run(StepParams { omega: 2.0, ..StepParams::default() });
    assert_eq!(out.returns, [1.5, 1.0, 0.5, 1.125, 0.25, 0.75]);
    assert_eq!(out.step, [0.5, -0.0625, -0.5, 0.0625, 0.0, 0.0], "alone at its index: 0");
    assert_eq!(out.episode, [0.5, -0.5, 0.75], "alone in its prompt: the reward");
    assert_eq!(out.advantage, [1.5, 0.375, -1.5, -0.375, -0.5, 0.75]);
    let by_std = run(StepParams { norm_by_std: true, eps: 0.0, ..StepParams::default() });
    let half = 0.5f64.sqrt();
    assert_worked(&by_std.step, &[half, -half, -half, half, 0.0, 0.0]);
    let error = step_advantages(
        &Device::cpu(),
        &batch,
        &Steps { cu_steps: &[0, 6], ..steps },
        &[0.0; 3],
        &StepParams::default(),
    );
    assert!(error.unwrap_err().to_string().starts_with("`cu_steps` has 2 entries"));
    let nan = Steps { rewards: &[0.0, f32::NAN, 0.0, 0.0, 0.0, 0.0], ..steps };
    assert!(
        step_return(&Device::cpu(), &nan, 0.5, true)
            .unwrap_err()
            .to_string()
            .starts_with("`step rewards`[1] is NaN")
    );
}

#[test]
fn turns_see_their_own_reward_and_what_follows() {
    let device = Device::cpu();
    let mask = [1, 0, 1, 1, 1, 1, 1];
    let batch = Batch::new(&[0, 4, 7], &[0, 2], Some(&mask)).unwrap();
    let turns = Turns { cu_turns: &[0, 2, 3, 4, 7], rewards: &[1.0, -1.0, 0.5, 2.0], roles: &[0, 1, 0, 1] };
    let returns = turn_return(&device, &batch, &turns, 1.0).unwrap();
    assert_eq!(returns, [0.5, -0.5, 0.5, 2.0]);
    assert_eq!(turn_return(&device, &batch, &turns, 0.5).unwrap(), [0.625, -0.75, 0.5, 2.0]);
    assert_eq!(spread(&batch, turns.cu_turns, &returns).unwrap(), [0.5, 0.0, -0.5, 0.5, 2.0, 2.0, 2.0]);
    let inside = Turns { cu_turns: &[0, 2, 3, 5, 7], ..turns };
    let error = turn_return(&device, &batch, &inside, 1.0).unwrap_err().to_string();
    assert_eq!(error, "`cu_seqlens`[1] is 4: expected an offset that is also in `cu_turns`");
    let empty = Turns { cu_turns: &[0, 2, 2, 4, 7], ..turns };
    assert!(turn_return(&device, &batch, &empty, 1.0).unwrap_err().to_string().contains("turn 1 no members"));
}

#[test]
fn row_10_14_mars_normalisation_set() {
    let device = Device::cpu();
    let (values, roles) = ([2.0, 2.0, 2.0, 0.5, 1.0, 4.0], [0, 0, 0, 0, 0, 9]);
    let run =
        |set, by_std| normalize_roles(&device, &values, &roles, &RoleNorm { set, by_std, eps: 0.0 }).unwrap();
    // Distinct values 2, 0.5, 1: mean 7/6, squares 7/6, variance 7/12.
    let unique = NormSet::UniqueValues;
    let std = (7.0f64 / 12.0).sqrt();
    let centred = [5.0 / 6.0, 5.0 / 6.0, 5.0 / 6.0, -2.0 / 3.0, -1.0 / 6.0, 0.0];
    assert_worked(&run(unique, false), &centred);
    assert_worked(&run(unique, true), &centred.map(|x| x / std));
    // With the padding's zero: mean 0.875; the lone 4 is compared with 0.
    assert_worked(&run(NormSet::UniqueValuesAndZero, false), &[1.125, 1.125, 1.125, -0.375, 0.125, 2.0]);
    // Samples: mean 1.5, variance 2/4.
    let half = 0.5f64.sqrt();
    assert_worked(&run(NormSet::Samples, true), &[half, half, half, -2.0 * half, -half, 0.0]);
}

#[test]
fn optimal_token_baseline_by_hand() {
    let device = Device::cpu();
    // A group of two, of 3 and 2 live tokens, and a group of one.
    let mask = [1, 1, 0, 1, 1, 1, 1];
    let batch = Batch::new(&[0, 4, 6, 7], &[0, 2, 3], Some(&mask)).unwrap();
    let nan = f32::NAN;
    let returns = [1.0, 1.0, nan, 2.0, 0.0, 0.5, 3.0];
    let norm = [0.25, 0.75, nan, 0.25, 0.75, 0.25, 0.5];
    let run = |score: Score<'_>, ratio: Option<&[f32]>, lone_tail_is_raw| {
        let params = TokenBaselineParams { eps: 0.0, lone_tail_is_raw };
        optimal_token_baseline(&device, &batch, &returns, score, ratio, &params).unwrap()
    };
    // Position 0: weights 0.25 and 0.75; position 1: 1 and 1; position 3: the first alone.
    assert_eq!(run(Score::Norm(&norm), None, false), [0.75, 0.25, 0.0, 0.0, -0.25, -0.25, 3.0]);
    assert_eq!(run(Score::Norm(&norm), None, true), [0.75, 0.25, 0.0, 2.0, -0.25, -0.25, 3.0]);
    // A ratio of 3 for the first token: weights 2.25 and 0.75, then 3 and 1.
    let ratio = [3.0, 1.0, nan, 1.0, 1.0, 1.0, 1.0];
    assert_eq!(run(Score::Norm(&norm), Some(&ratio), true)[..5], [0.25, 0.125, 0.0, 2.0, -0.75]);
    // p = Σp²: norm 1 - p.
    let p = [0.75, 0.25, nan, 0.75, 0.25, 0.75, 0.5];
    assert_eq!(
        run(Score::Probabilities { p: &p, sum_squares: &p }, None, false)[..5],
        [0.75, 0.25, 0.0, 0.0, -0.25]
    );
    // 3 live tokens, and 2 over as many positions: verl's tail begins at the third, which both reach.
    let holes = [1, 1, 1, 1, 0, 1];
    let both = Batch::new(&[0, 3, 6], &[0, 2], Some(&holes)).unwrap();
    let (quarter, reward) = ([0.25, 0.25, 0.25, 0.25, nan, 0.25], [1.0, 1.0, 2.0, 0.0, nan, 4.0]);
    let params = TokenBaselineParams { eps: 0.0, lone_tail_is_raw: true };
    let out = optimal_token_baseline(&device, &both, &reward, Score::Norm(&quarter), None, &params).unwrap();
    assert_worked(&out, &[0.5, 0.0, 2.0, -0.5, 0.0, 1.2]);
    let error = |score: Score<'_>| {
        let params = TokenBaselineParams::default();
        optimal_token_baseline(&device, &batch, &returns, score, None, &params).unwrap_err().to_string()
    };
    let negative = [0.25, 0.75, nan, -0.25, 0.75, 0.25, 0.5];
    assert!(error(Score::Norm(&negative)).starts_with("`score norms`[3] is -0.25"));
    let above = [0.25, 0.75, nan, 1.5, 0.75, 0.25, 0.5];
    assert!(error(Score::Probabilities { p: &above, sum_squares: &p }).starts_with("`p`[3] is 1.5"));
}

#[test]
fn recipes_over_time() {
    let named = |name: &str| Recipe::named(name).unwrap();
    let run = |recipe: &Recipe, rollouts: &Rollouts<'_>| recipe.advantages(&Device::cpu(), rollouts).unwrap();
    let (rewards, values) = ([0.0, 0.0, 1.0, 0.0, 0.5], [0.2, 0.4, 0.7, 0.1, 0.3]);
    let rollouts = Rollouts {
        rewards: Some(&[1.0, 0.0]),
        token_rewards: Some(&rewards),
        values_old: Some(&values),
        logp_old: Some(&[-0.5; 5]),
        logp_rollout: Some(&[-0.5; 5]),
        score_norm: Some(&[0.5; 5]),
        ..Rollouts::new(&[0, 3, 5], &[0, 2])
    };
    let batch = rollouts.batch().unwrap();

    let out = run(&named("gae"), &rollouts);
    let by_op = |ends| {
        let (input, mut raw) = (GaeInput { rewards: &rewards, values: &values, ends }, GaeOutput::default());
        gae(&Device::cpu(), &batch, &input, &params(1.0, 0.95), &mut raw).unwrap();
        let advantage = Advantage::PerToken(&raw.advantage);
        (whiten(&Device::cpu(), &batch, advantage, &WhitenParams::VERL).unwrap(), raw.returns)
    };
    assert_eq!((out.advantage, out.returns), by_op(Ends::Terminated));
    // Truncated sequences.
    let (terminated, truncated, bootstrap) = ([1u8, 0], [0u8, 1], [0.0f32, 0.25]);
    let cut = Rollouts {
        terminated: Some(&terminated),
        truncated: Some(&truncated),
        bootstrap: Some(&bootstrap),
        ..rollouts
    };
    let ends = Ends::Flags { terminated: &terminated, truncated: &truncated, bootstrap: &bootstrap };
    let out = run(&named("gae"), &cut);
    assert_eq!((out.advantage, out.returns), by_op(ends));
    for (argument, part) in [
        ("terminated", Rollouts { terminated: None, ..cut }),
        ("truncated", Rollouts { truncated: None, ..cut }),
        ("bootstrap", Rollouts { bootstrap: None, ..cut }),
    ] {
        let error = named("gae").advantages(&Device::cpu(), &part).unwrap_err().to_string();
        assert!(error.starts_with(&format!("`{argument}`: ")) && error.contains("given together"), "{error}");
    }
    // 1/(0.05 L) exceeds 1: the policy's λ is 0, the critic's 1.
    let vapo = run(&named("vapo"), &rollouts);
    assert_eq!(vapo.returns, [1.0, 1.0, 1.0, 0.5, 0.5]);

    let out = run(&named("vtrace"), &rollouts);
    assert_worked(&out.returns, &[1.0, 1.0, 1.0, 0.5, 0.5]);

    let mars = Recipe::from_toml(
        "[advantage]\nnorm_by_std = false\nlimit = 0.75\n[advantage.over_time]\nkind = \"mars\"\n\
         set = \"samples\"\n",
    );
    let turns = Rollouts {
        cu_turns: Some(&[0, 1, 3, 4, 5]),
        turn_rewards: Some(&[1.0, 0.0, 2.0, 1.0]),
        turn_roles: Some(&[0, 1, 0, 1]),
        ..rollouts
    };
    let out = run(&mars.unwrap(), &turns);
    assert_eq!(out.returns, [1.0, 0.0, 0.0, 3.0, 1.0]);
    assert_eq!(out.advantage, [-0.75, -0.5, -0.5, 0.75, 0.5], "within ±1 before the limit");
    run(&named("mars"), &turns);

    let steps = Rollouts {
        cu_steps: Some(&[0, 2, 3]),
        cu_step_tokens: Some(&[0, 1, 3, 5]),
        step_rewards: Some(&[1.0, 0.5, 0.25]),
        step_matches: Some(&[1, 1, 1]),
        ..rollouts
    };
    let out = run(&named("ui_s1"), &steps);
    assert_eq!(out.returns, [1.25, 0.5, 0.5, 0.25, 0.25]);
    assert_eq!(out.advantage, [1.0, 0.5, 0.5, -1.0, -1.0]);

    let recipe = named("optimal_token_baseline");
    assert_worked(&run(&recipe, &rollouts).advantage, &[0.25, 0.25, 0.0, -0.25, -0.25]);
    // Probabilities in place of norms: 1 − 2p + Σp² with p = e^−0.5 at every token, so the weights are equal
    // everywhere.
    let proxy = Rollouts { score_norm: None, sum_p_squared: Some(&[0.75; 5]), ..rollouts };
    assert_worked(&run(&recipe, &proxy).advantage, &[0.25, 0.25, 0.0, -0.25, -0.25]);
}

#[test]
fn recipes_over_time_say_what_they_want() {
    let rollouts = Rollouts { rewards: Some(&[1.0, 0.0]), ..Rollouts::new(&[0, 1, 2], &[0, 2]) };
    for (name, missing) in [
        ("gae", "token_rewards, values_old"),
        ("vapo", "token_rewards, values_old"),
        ("vtrace", "logp_old, logp_rollout, token_rewards, values_old"),
        ("mars", "cu_turns, turn_rewards, turn_roles"),
        ("ui_s1", "cu_steps, cu_step_tokens, step_rewards, step_matches"),
        ("optimal_token_baseline", "token_rewards, logp_old, score_norm or sum_p_squared"),
    ] {
        let recipe = Recipe::named(name).unwrap();
        recipe.check().unwrap();
        assert_eq!(Recipe::from_toml(&recipe.to_toml().unwrap()).unwrap(), recipe, "{name}");
        let error = recipe.advantages(&Device::cpu(), &rollouts).unwrap_err().to_string();
        let with_stages: Vec<String> =
            missing.split(", ").map(|column| format!("{column} (for advantage.over_time)")).collect();
        assert_eq!(error, format!("recipe `{name}`: missing columns: {}", with_stages.join(", ")));
    }
    let wrong =
        |text: &str| Recipe::from_toml(&format!("[advantage.over_time]\n{text}")).unwrap_err().to_string();
    assert!(wrong("kind = \"gae\"\nlambda = 1.5\n").contains("over_time.lambda is 1.5"));
    assert!(wrong("kind = \"vtrace\"\nrho_bar = 0.0\n").contains("over_time.rho_bar is 0"));
    assert!(wrong("kind = \"ui_s1\"\nlambda = 1.0\n").contains("lambda"), "not a key of ui_s1");
    let both = "[advantage]\nestimator = \"rloo\"\n[advantage.over_time]\nkind = \"gae\"\n";
    assert!(Recipe::from_toml(both).unwrap_err().to_string().contains("leave one out"));
}
