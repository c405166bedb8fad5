//! Advantages over time: worked vectors, special cases, and invariants.

use crate::prelude::*;
use lockstep::core::advantage::step_return::step_reward;
use lockstep::ops::gae::{Ends, GaeInput, GaeOutput, GaeParams, Lambda, gae, td_lambda};
use lockstep::ops::optimal_token_baseline::{Score, TokenBaselineParams, optimal_token_baseline};
use lockstep::ops::step_return::{StepParams, Steps, step_advantages, step_return};
use lockstep::ops::turns::{NormSet, RoleNorm, Turns, normalize_roles, spread, turn_return};
use lockstep::ops::vtrace::{VTraceInput, VTraceParams, vtrace};
use lockstep_conformance::oracle::gae as oracle;
use lockstep_core::advantage::gae::length_adaptive_lambda;

const REWARDS: [f32; 3] = [0.0, 0.0, 1.0];
const VALUES: [f32; 3] = [0.2, 0.4, 0.7];
/// One sequence of three tokens that ends.
const INPUT: GaeInput<'_> = GaeInput { rewards: &REWARDS, values: &VALUES, ends: Ends::Terminated };

fn params(gamma: f64, lambda: f64) -> GaeParams {
    GaeParams { gamma, lambda: Lambda::Fixed(lambda), lambda_critic: None }
}

/// Sequences of these lengths, each a group of its own.
fn try_gae(
    lengths: &[u32],
    mask: Option<&[u8]>,
    input: &GaeInput<'_>,
    params: &GaeParams,
) -> Result<GaeOutput, Error> {
    let (cu_seqlens, cu_groups) = (offsets_of(lengths.iter().copied()), [0, lengths.len() as u32]);
    let batch = Batch::new(&cu_seqlens, &cu_groups, mask).unwrap();
    let mut out = GaeOutput::default();
    gae(&Device::cpu(), &batch, input, params, &mut out).map(|()| out)
}

fn of_one(input: &GaeInput<'_>, params: &GaeParams) -> GaeOutput {
    try_gae(&[3], None, input, params).unwrap()
}

#[test]
fn worked_8_6_gae() {
    let out = of_one(&INPUT, &params(1.0, 0.95));
    assert_worked(&out.advantage, &[0.75575, 0.585, 0.3]);
    assert_worked(&out.returns, &[0.95575, 0.985, 1.0]);
}

#[test]
fn worked_8_6_vtrace() {
    let batch = Batch::new(&[0, 3], &[0, 1], None).unwrap();
    // rho = (1.5, 0.5, 1).
    let logp_rollout = &[-1.0f32, -0.5, -0.25];
    let logp = &[-1.0 + 1.5f32.ln(), -0.5 + 0.5f32.ln(), -0.25];
    let GaeInput { rewards, values, ends } = INPUT;
    let input = VTraceInput { logp, logp_rollout, rewards, values, ends };
    let out = vtrace(&Device::cpu(), &batch, &input, &VTraceParams::default()).unwrap();
    assert_worked(&out.vs, &[0.7, 0.7, 1.0]);
    assert_worked(&out.advantage, &[0.5, 0.3, 0.3]);
}

#[test]
fn masked_tokens_take_what_comes_after_them() {
    let (nan, inf) = (f32::NAN, f32::INFINITY);
    let input = GaeInput {
        rewards: &[0.0, nan, inf, 0.0, 1.0, nan],
        values: &[0.2, inf, nan, 0.4, 0.7, nan],
        ends: Ends::Flags { terminated: &[0], truncated: &[1], bootstrap: &[0.5] },
    };
    let out = try_gae(&[6], Some(&[1, 0, 0, 1, 1, 0]), &input, &params(0.5, 0.5)).unwrap();
    let want = of_one(&GaeInput { ends: input.ends, ..INPUT }, &params(0.5, 0.5));
    let spread = |x: &[f32], behind: f32| vec![x[0], x[1], x[1], x[1], x[2], behind];
    assert_eq!(out.advantage, spread(&want.advantage, 0.0));
    assert_eq!(out.returns, spread(&want.returns, 0.5), "behind the last live token: the bootstrap");
    // delta_2 = 1 + 0.5 * 0.5 - 0.7
    assert!((want.advantage[2] - 0.55).abs() < 1e-6);
}

#[test]
fn both_ways_or_none_is_an_error() {
    let run = |terminated: [u8; 2], truncated: [u8; 2], bootstrap: [f32; 2]| {
        let ends = Ends::Flags { terminated: &terminated, truncated: &truncated, bootstrap: &bootstrap };
        let input = GaeInput { rewards: &[1.0, 1.0], values: &[0.5, 0.5], ends };
        try_gae(&[1, 1], None, &input, &params(0.5, 1.0))
    };
    // A bootstrap counts where the sequence is truncated only.
    assert_eq!(run([1, 0], [0, 1], [f32::NAN, 8.0]).unwrap().advantage, [0.5, 4.5]);
    let is = "because the sequence is";
    for (terminated, truncated, bootstrap, says) in [
        ([1, 1], [0, 1], [0.0; 2], format!("`truncated`[1] is 1: expected 0, {is} terminated")),
        ([1, 0], [0, 0], [0.0; 2], format!("`truncated`[1] is 0: expected 1, {is} not terminated")),
        (
            [0, 1],
            [1, 0],
            [f32::NAN; 2],
            format!("`bootstrap`[0] is NaN: expected a finite number, {is} truncated"),
        ),
    ] {
        refused(run(terminated, truncated, bootstrap), &says);
    }
}

#[test]
fn bad_numbers_are_named() {
    let (nan, inf, zero, good) = (f32::NAN, f32::INFINITY, [0.0; 3], params(1.0, 1.0));
    let alpha = GaeParams { lambda: Lambda::LengthAdaptive { alpha: 0.0 }, ..good };
    for (rewards, values, params, says) in [
        ([0.0, nan, nan], zero, good, "`token rewards`[2] is NaN…"),
        (zero, [inf, nan, 0.0], good, "`values`[0] is inf…"),
        ([3e38; 3], zero, good, "`advantage`[0] is not finite…"),
        (zero, zero, params(1.5, 1.0), "`gamma` is 1.5…"),
        (zero, zero, params(1.0, -0.1), "`lambda` is -0.1…"),
        (zero, zero, alpha, "`length_alpha` is 0…"),
    ] {
        let input = GaeInput { rewards: &rewards, values: &values, ends: Ends::Terminated };
        refused(try_gae(&[3], Some(&[1, 0, 1]), &input, &params), says);
    }
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
    let both = GaeParams { lambda_critic: Some(Lambda::Fixed(1.0)), ..params(1.0, 0.5) };
    let vapo = of_one(&INPUT, &both);
    assert_worked(&vapo.returns, &[1.0, 1.0, 1.0]);
    assert_worked(&vapo.advantage, &[0.425, 0.45, 0.3]);
    // 1 − 1/(0.5 · 3) = 1/3.
    let adaptive = GaeParams { lambda: Lambda::LengthAdaptive { alpha: 0.5 }, ..params(1.0, 0.0) };
    assert_worked(&of_one(&INPUT, &adaptive).advantage, &[0.2 + (0.3 + 0.1) / 3.0, 0.4, 0.3]);
    assert_eq!([0, 1, 20, 200].map(|length| length_adaptive_lambda(0.05, length)), [0.0, 0.0, 0.0, 0.9]);
}

#[test]
fn vtrace_on_policy_is_td_lambda_and_saturates_far_from_it() {
    let device = Device::cpu();
    let batch = Batch::new(&[0, 3], &[0, 1], None).unwrap();
    let ends = Ends::Flags { terminated: &[0], truncated: &[1], bootstrap: &[0.25] };
    let input = GaeInput { ends, ..INPUT };
    let GaeInput { rewards, values, .. } = INPUT;
    // Ratios of e^10000 are truncated to 1; those of e^-10000 and e^-1e30 leave the critic's values.
    let (near, far) = ([-1.0f32, -0.5, -0.25], [-1e4f32, -1e4, -1e30]);
    let run = |logp: &[f32], logp_rollout: &[f32]| {
        let input = VTraceInput { logp, logp_rollout, rewards, values, ends };
        let params = VTraceParams { gamma: 0.9, lambda: 0.5, ..VTraceParams::default() };
        vtrace(&device, &batch, &input, &params).unwrap()
    };
    let want = td_lambda(&device, &batch, &input, 0.9, Lambda::Fixed(0.5)).unwrap();
    assert_eq!(run(&near, &near).vs, want);
    assert_eq!(run(&near, &far).vs, want);
    let none = run(&far, &near);
    assert_eq!((none.vs, none.advantage), (VALUES.to_vec(), vec![0.0; 3]));
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
    for (format, action_type, accuracy, want) in [
        (0.0, 1.0, 1.0, 0.0),
        (1.0, 0.0, 1.0, 0.1),
        (1.0, 1.0, 0.0, 0.5),
        (1.0, 1.0, 1.0, 1.0),
        (1.0, 1.0, 0.5, 0.75),
    ] {
        let got = step_reward(format, action_type, accuracy);
        assert!((got - want).abs() <= WORKED, "{format} {action_type} {accuracy}: {got}");
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
    let one = Steps { cu_steps: &[0, 6], ..steps };
    let one = step_advantages(&Device::cpu(), &batch, &one, &[0.0; 3], &StepParams::default());
    refused(one, "`cu_steps` has 2 entries…");
    let params = StepParams { omega: f32::NAN, ..StepParams::default() };
    let nan = step_advantages(&Device::cpu(), &batch, &steps, &[0.0; 3], &params);
    refused(nan, "`omega` is NaN: expected a finite number");
    let nan = Steps { rewards: &[0.0, f32::NAN, 0.0, 0.0, 0.0, 0.0], ..steps };
    refused(step_return(&Device::cpu(), &nan, 0.5, true), "`step rewards`[1] is NaN…");
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
    for (cu_turns, says) in [
        (&[0, 2, 3, 5, 7], "`cu_seqlens`[1] is 4: expected an offset that is also in `cu_turns`"),
        (&[0, 2, 2, 4, 7], "…turn 1 no members…"),
    ] {
        refused(turn_return(&device, &batch, &Turns { cu_turns, ..turns }, 1.0), says);
    }
    let nan = Turns { rewards: &[1.0, -1.0, f32::NAN, 2.0], ..turns };
    refused(turn_return(&device, &batch, &nan, 1.0), "`turn rewards`[2] is NaN: expected a finite number");
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
    let params = |lone_tail_is_raw| TokenBaselineParams { eps: 0.0, lone_tail_is_raw };
    let run = |score: Score<'_>, ratio: Option<&[f32]>, lone_tail_is_raw| {
        optimal_token_baseline(&device, &batch, &returns, score, ratio, &params(lone_tail_is_raw))
    };
    // A ratio of 3 for the first token: weights 2.25 and 0.75, then 3 and 1. p = Σp²: norm 1 − p.
    let ratio = [3.0, 1.0, nan, 1.0, 1.0, 1.0, 1.0];
    let p = [0.75, 0.25, nan, 0.75, 0.25, 0.75, 0.5];
    let logp = p.map(f32::ln);
    let proxy = Score::Probabilities { logp: &logp, sum_squares: &p };
    // Position 0: weights 0.25 and 0.75; position 1: 1 and 1; position 3: the first alone.
    for (score, ratio, lone_tail_is_raw, want) in [
        (Score::Norm(&norm), None, false, [0.75, 0.25, 0.0, 0.0, -0.25, -0.25, 3.0]),
        (Score::Norm(&norm), None, true, [0.75, 0.25, 0.0, 2.0, -0.25, -0.25, 3.0]),
        (Score::Norm(&norm), Some(&ratio[..]), true, [0.25, 0.125, 0.0, 2.0, -0.75, -0.375, 3.0]),
    ] {
        assert_eq!(run(score, ratio, lone_tail_is_raw).unwrap(), want);
    }
    assert_worked(&run(proxy, None, false).unwrap(), &[0.75, 0.25, 0.0, 0.0, -0.25, -0.25, 3.0]);
    // A confident policy: with p = e^-0.0003 rounded to binary32 the norm would be a third too large.
    let (sure, sum) = ([-3e-4, -0.7], [(1.0 - 6e-4f32) + 1.62e-7, 0.35]);
    let score = Score::Probabilities { logp: &sure, sum_squares: &sum };
    let pair = Batch::new(&[0, 1, 2], &[0, 2], None).unwrap();
    let out = optimal_token_baseline(&device, &pair, &[1.0, 0.0], score, None, &params(false)).unwrap();
    let norm = |i: usize| 1.0 - 2.0 * f64::from(sure[i]).exp() + f64::from(sum[i]);
    let want = norm(1) / (norm(0) + norm(1));
    assert!((f64::from(out[0]) / want - 1.0).abs() < 1e-7, "{} {want}", out[0]);
    assert!((f64::from(out[1]) / (want - 1.0) - 1.0).abs() < 1e-6, "{} {want}", out[1]);
    // 3 live tokens, and 2 over as many positions: verl's tail begins at the third, which both reach.
    let holes = [1, 1, 1, 1, 0, 1];
    let both = Batch::new(&[0, 3, 6], &[0, 2], Some(&holes)).unwrap();
    let (quarter, reward) = ([0.25, 0.25, 0.25, 0.25, nan, 0.25], [1.0, 1.0, 2.0, 0.0, nan, 4.0]);
    let score = Score::Norm(&quarter);
    let out = optimal_token_baseline(&device, &both, &reward, score, None, &params(true)).unwrap();
    assert_worked(&out, &[0.5, 0.0, 2.0, -0.5, 0.0, 1.2]);
    let with = |x: f32| [0.25, 0.75, nan, x, 0.75, 0.25, 0.5];
    refused(run(Score::Norm(&with(-0.25)), None, false), "`score norms`[3] is -0.25…");
    let above = Score::Probabilities { logp: &with(1.5).map(|x| x - 1.0), sum_squares: &p };
    refused(run(above, None, false), "`logp`[3] is 0.5…");
}

#[test]
fn recipes_over_time_say_what_they_want() {
    let cut = Rollouts {
        rewards: Some(&[1.0, 0.0]),
        token_rewards: Some(&[0.0, 1.0]),
        values_old: Some(&[0.2, 0.4]),
        terminated: Some(&[1, 0]),
        truncated: Some(&[0, 1]),
        bootstrap: Some(&[0.0, 0.25]),
        ..Rollouts::new(&[0, 1, 2], &[0, 2])
    };
    for (argument, part) in [
        ("terminated", Rollouts { terminated: None, ..cut }),
        ("truncated", Rollouts { truncated: None, ..cut }),
        ("bootstrap", Rollouts { bootstrap: None, ..cut }),
    ] {
        let says = format!("`{argument}`: …given together…");
        refused(Recipe::named("gae").unwrap().advantages(&Device::cpu(), &part), &says);
    }
    for (text, says) in [
        ("[advantage.over_time]\nkind = \"gae\"\nlambda = 1.5\n", "…over_time.lambda is 1.5…"),
        ("[advantage.over_time]\nkind = \"vtrace\"\nrho_bar = 0.0\n", "…over_time.rho_bar is 0…"),
        // Not a key of ui_s1.
        ("[advantage.over_time]\nkind = \"ui_s1\"\nlambda = 1.0\n", "…lambda…"),
        ("[advantage]\nestimator = \"rloo\"\n[advantage.over_time]\nkind = \"gae\"\n", "…leave one out…"),
    ] {
        refused(Recipe::from_toml(text), says);
    }
}
