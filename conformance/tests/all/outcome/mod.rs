//! Outcome advantages by recipe: the worked vectors of docs/maths/vectors.md, the rows of
//! docs/maths/disagreements.md, and properties.

mod rewards;

use crate::prelude::*;
use lockstep::core::advantage::{Baseline, Order, Scale};
use lockstep::core::num::Soft;
use lockstep::core::reward::Criterion;
use lockstep::ops::optimal_token_baseline::Score;
use lockstep::ops::sharpen::EntropyOf;
use lockstep::ops::vcpo::{SequenceScore, VcpoWeights};
use lockstep::recipe::EntropyKind;
use lockstep::schedules::mssr::{self, GlobalRho, ValueTracker};

/// Offsets of n rows of one.
fn ones(n: usize) -> Vec<u32> {
    (0..=n as u32).collect()
}

/// Rewards, to which a test adds its other columns.
fn columns(rewards: &[f32]) -> Rollouts<'_> {
    Rollouts { rewards: Some(rewards), ..Rollouts::default() }
}

/// The credit of one group of sequences under a named recipe.
fn named(name: &str, cu_seqlens: &[u32], columns: &Rollouts<'_>) -> Credit {
    of_group(&Recipe::named(name).unwrap(), cu_seqlens, columns).unwrap()
}

fn of_group(recipe: &Recipe, cu_seqlens: &[u32], columns: &Rollouts<'_>) -> Result<Credit, Error> {
    let cu_groups = [0, cu_seqlens.len() as u32 - 1];
    let rollouts = Rollouts { cu_seqlens: Some(cu_seqlens), cu_groups: Some(&cu_groups), ..*columns };
    recipe.advantages(&Device::cpu(), &rollouts)
}

#[test]
fn worked_8_6_mssr_rho() {
    for (drift, want) in [(0.01, 0.890899), (0.0, 0.96), (0.1, 0.875), (-3.0, 0.96)] {
        assert!((mssr::rho::<Soft>(Some(drift)) - want).abs() < WORKED, "{drift}");
    }
    for unknown in [None, Some(f64::NAN), Some(f64::INFINITY), Some(f64::NEG_INFINITY)] {
        assert_eq!(mssr::rho::<Soft>(unknown), 0.96);
    }
    let start = ValueTracker::default();
    assert_eq!((start.value(), start.good + start.bad), (0.5, 1.0 / (1.0 - 0.875)));
    let after = start.updated(1.0, 0.875);
    assert_eq!((after.good, after.bad), (4.5, 3.5));
    assert_eq!(after.updated(0.5, 1.0).bad, 4.5, "a score of exactly 0.5 is no success");
    assert!((start.sampling_weight::<Soft>() - 0.500001).abs() < 1e-12);
    let from = ValueTracker::starting_at(0.75);
    assert_eq!((from.good, from.bad), (6.0, 2.0));
    assert_eq!(ValueTracker::starting_at(f64::NAN), start);
    assert_eq!(ValueTracker::starting_at(-3.0).value(), 0.0);
}

#[test]
fn mssr_global_rho_falls_above_the_target_and_rises_below() {
    let (first, later) = (GlobalRho::FIRST, GlobalRho::LATER);
    // The mean covers the most recent values: nineteen of 0.05 and a final 0.15 give 0.055; earlier ones are
    // forgotten.
    let history = [&[9.0; 30][..], &[0.05; 19], &[0.15]].concat();
    for (rho, want) in [
        (GlobalRho::MIDDLE, 0.9175),
        (first.rho(&[0.01; 9]), 0.9175),
        (later.rho(&[]), 0.9175),
        // Below the target it rises with the KL: 0.875 at 0, 0.96 at the target.
        (first.rho(&[0.0; 10]), 0.875),
        (first.rho(&[0.05; 10]), 0.9175),
        (first.rho(&[0.1; 10]), 0.96),
        (later.rho(&[0.05]), 0.9175),
        // Above, it falls: half way just above the target, and all the way at twice the target; with more
        // history, all the way at once.
        (first.rho(&[0.15; 10]), 0.96 - 0.75 * 0.085),
        (first.rho(&[0.3; 10]), 0.875),
        (later.rho(&[0.11]), 0.875),
        (first.rho(&history), 0.875 + 0.55 * 0.085),
        (later.rho(&history), 0.875 + 0.6 * 0.085),
        // A negative estimate gives the end of the range, NaN the middle.
        (first.rho(&[-1.0; 10]), 0.875),
        (first.rho(&[f64::NAN; 10]), 0.9175),
        (first.rho(&[f64::INFINITY; 10]), 0.875),
    ] {
        assert!((rho - want).abs() < 1e-12, "{rho} for {want}");
    }
}

#[test]
fn row_10_1_ddof_by_name() {
    let ddof = |name: &str| Recipe::named(name).unwrap().advantage.ddof;
    assert_eq!([ddof("verl"), ddof("trl"), ddof("rapo"), ddof("vcpo")], [1, 1, 0, 0]);
    let rapo = named("rapo", &ones(5), &columns(&[1.0, 0.0, 0.0, 1.0, 0.0]));
    assert_worked(&rapo.advantage[..2], &[1.224742, -0.816495]);
    // Filters have ddof 0: (0, 0.6) has deviation 0.3, which is not above 0.3; with ddof 1 it would be 0.42.
    let batch = Batch::new(&[0, 1, 2], &[0, 2], None).unwrap();
    let spread =
        |eta| ops::filter_groups(&Device::cpu(), &batch, &[0.0, 0.5], None, Criterion::Spread { eta });
    assert_eq!((spread(0.25).unwrap().kept[0], spread(0.2499).unwrap().kept[0]), (0, 2));
}

#[test]
fn vcpo_divides_by_a_deviation_above_its_threshold_alone() {
    // Deviations (ddof 0) of half the difference, equal weights: b is the mean.
    let advantage = |difference: f32, name: &str| {
        let two = [0.0, difference];
        let columns = Rollouts { baseline_weights: Some(&[1.0, 1.0]), ..columns(&two) };
        named(name, &ones(2), &columns).advantage[1]
    };
    for name in ["vcpo", "vcpo_winsorised"] {
        let above = f64::from(advantage(4e-8, name));
        assert!((above - 1.0).abs() < 0.25, "{name}: {above}");
        let below = advantage(1.6e-8, name);
        assert!((f64::from(below) - 0.8e-8).abs() < 1e-9, "{name}: {below}");
    }
    let toml = "[advantage]\nkind = \"vcpo\"\nddof = 0\neps = 0.0\n";
    let columns = Rollouts { baseline_weights: Some(&[1.0, 1.0]), ..columns(&[0.0, 1.6e-8]) };
    let batch = Batch::new(&[0, 1, 2], &[0, 2], None).unwrap();
    let without = of_group(&Recipe::from_toml(toml).unwrap(), &ones(2), &columns).unwrap();
    assert!((without.advantage[1] - 1.0).abs() < 1e-5);
    let std = Scale::Std { ddof: 1, eps: 0.0 };
    for (scale, least_std) in [
        (Scale::LeaveOneOutStd { ddof: 1, eps: 0.0 }, 0.1),
        (Scale::None { ddof: 1 }, 0.1),
        (std, -0.1),
        (std, f64::NAN),
    ] {
        let params = GroupParams { least_std, ..GroupParams::new(Baseline::Mean, scale) };
        let got = ops::group_advantage(&Device::cpu(), &batch, &[0.0, 1.0], None, &params);
        refused(got, "…least_std…");
    }
    for text in [
        "kind = \"grpo_leave_one_out\"\nleast_std = 0.1",
        "kind = \"rloo\"\nleast_std = 0.1",
        "norm_by_std = false\nleast_std = 0.1",
        "least_std = -1.0",
    ] {
        refused(Recipe::from_toml(&format!("[advantage]\n{text}\n")), "…advantage.least_std…");
    }
}

/// W = w² ‖g‖² / L², and inputs that are too large, too long or without a score.
#[test]
fn vcpo_weights_from_norms_and_from_tokens() {
    let batch = Batch::new(&[0, 2, 5], &[0, 2], Some(&[1, 1, 1, 0, 1])).unwrap();
    let (old, rollout) = ([-1.0f32; 5], [-1.25f32, -1.25, -0.5, f32::NAN, -0.5]);
    let run = |score, per_length, most| {
        let params = VcpoWeights { per_length, most };
        ops::vcpo_weights(&Device::cpu(), &batch, [&old, &rollout], score, &params).unwrap()
    };
    let want = [0.5f64.exp().powi(2) * 3.0, (-1.0f64).exp().powi(2) * 5.0];
    let norm = SequenceScore::Norm(&[3.0, 5.0]);
    // The proxy: live tokens of 1 − 2p + Σp².
    let tokens = SequenceScore::Tokens(Score::Norm(&[1.0, 2.0, 3.0, f32::NAN, 2.0]));
    assert_worked(&run(norm, false, None), &want);
    assert_worked(&run(norm, true, None), &want.map(|w| w / 4.0));
    assert_worked(&run(norm, false, Some(1.0)), &[3.0, want[1]]);
    assert_worked(&run(tokens, false, None), &want);
    let far = Batch::new(&[0, 1, 2], &[0, 2], None).unwrap();
    let run = |norm: &[f32], most| {
        let params = VcpoWeights { per_length: false, most };
        let policies: [&[f32]; 2] = [&[-1.0, -1.0], &[-1e4, -1e4]];
        ops::vcpo_weights(&Device::cpu(), &far, policies, SequenceScore::Norm(norm), &params)
    };
    refused(run(&[0.0, 1.0], None), "…most…");
    assert_eq!(run(&[0.0, 2.0], Some(8.0)).unwrap(), [0.0, 128.0]);
    refused(run(&[-1.0, 2.0], None), "…score norms…");
}

#[test]
fn row_10_3_eps_outside_the_root_in_groups_and_inside_in_whitening() {
    // Two values 0 and 2e: deviation (ddof 1) √2 e.
    let e = 1e-4f32;
    let deviation = f64::from(e) * std::f64::consts::SQRT_2;
    let batch = Batch::new(&[0, 1, 2], &[0, 2], None).unwrap();
    let outside = named("grpo", &ones(2), &columns(&[0.0, 2.0 * e])).advantage[1];
    assert_worked(&[outside], &[f64::from(e) / (deviation + 1e-6)]);
    let inside = lockstep::ops::whiten::WhitenParams::VERL;
    let values = Advantage::PerSequence(&[0.0, 2e-4]);
    let got = ops::whiten(&Device::cpu(), &batch, values, &inside).unwrap();
    assert_worked(&got[1..], &[f64::from(e) / (deviation.powi(2) + 1e-8).sqrt()]);
}

#[test]
fn row_10_4_empty_sequences_in_the_count() {
    // Three sequences, one of them fully masked: verl counts two, TRL three.
    let logp = Some(&[-1.0f32; 3][..]);
    let loss_mask = Some(&[1, 1, 0][..]);
    let rollouts = Rollouts { loss_mask, logp, logp_old: logp, ..Rollouts::new(&[0, 1, 2, 3], &[0, 3]) };
    let loss = |name: &str| {
        let credit = Credit::per_sequence(vec![1.0; 3]);
        Recipe::named(name).unwrap().loss(&Device::cpu(), &rollouts, &credit).unwrap().loss.unwrap()
    };
    assert!((loss("grpo") + 1.0).abs() < WORKED && (loss("trl_grpo") + 2.0 / 3.0).abs() < WORKED);
}

#[test]
fn row_10_15_rae_both_orders_and_resumed() {
    // γ 0.5, b 0: 0, 0.5, 0.25 before the games and 0.5, 0.25, 0.625 after them.
    let (rewards, roles) = ([1.0f32, 0.0, 1.0], [0u32; 3]);
    let cpu = Device::cpu();
    let run = |order| ops::role_baseline(&cpu, &rewards, &roles, &[0.0], 0.5, order).unwrap();
    let (code, state) = run(Order::SubtractThenUpdate);
    let (paper, same) = run(Order::UpdateThenSubtract);
    assert_eq!((&code[..], &paper[..]), (&[1.0, -0.5, 0.75][..], &[0.5, -0.25, 0.375][..]));
    assert_eq!((&state[..], &same[..]), (&[0.625][..], &[0.625][..]));

    // Two interleaved roles, in one call and in two calls that pass the state on; 600 games, so that a scan
    // has many blocks.
    let source = Source::new(15);
    let rewards: Vec<f32> = (0..600).map(|i| source.signed(i)).collect();
    let roles: Vec<u32> = (0..600).map(|i| source.below(i, 2) as u32).collect();
    for order in [Order::SubtractThenUpdate, Order::UpdateThenSubtract] {
        let run = |part: std::ops::Range<usize>, state: &[f64]| {
            ops::role_baseline(&cpu, &rewards[part.clone()], &roles[part], state, 0.95, order).unwrap()
        };
        let (whole, end) = run(0..600, &[0.0, 0.0]);
        let (head, middle) = run(0..250, &[0.0, 0.0]);
        let (tail, resumed) = run(250..600, &middle);
        let parts: Vec<f64> = head.iter().chain(&tail).map(|a| f64::from(*a)).collect();
        assert_worked(&whole, &parts);
        assert!(end.iter().zip(&resumed).all(|(a, b)| (a - b).abs() < 1e-12));
    }
    // By recipe: a game with advantage exactly 0 is dropped; before the first batch every average is 0.
    let input = Rollouts { roles: Some(&[0, 1, 0]), ..columns(&[1.0, 0.0, 0.5]) };
    let got = named("spiral", &ones(3), &input);
    assert_worked(&got.advantage, &[1.0, 0.0, 0.45]);
    assert_eq!(got.keep, [1, 0, 1]);
    assert_eq!(named("spiral", &ones(3), &Rollouts { role_values: Some(&[0.0, 0.0]), ..input }), got);
}

#[test]
fn row_10_18_mssr_entropy_of_the_sampled_token_or_the_distribution() {
    let batch = Batch::new(&[0, 2, 3], &[0, 2], Some(&[1, 1, 0])).unwrap();
    let (logp, entropy) = ([-1.0f32, -0.5, f32::NAN], [2.0f32, 0.25, -7.0]);
    let advantage = Advantage::PerSequence(&[-1.0, 3.0]);
    let run = |of| ops::entropy_bonus(&Device::cpu(), &batch, advantage, of, 0.4, 2.0).unwrap();
    // −p log p: 0.367879, 0.303265; times α, below |A|/κ = 0.5.
    assert_worked(&run(EntropyOf::Sampled(&logp)), &[-1.0 + 0.4 * 0.36787944, -1.0 + 0.4 * 0.30326533, 0.0]);
    // 0.8 is limited to 0.5, so that the sign stays.
    assert_worked(&run(EntropyOf::Distribution(&entropy)), &[-0.5, -0.9, 0.0]);
    let mut recipe = Recipe::named("mssr").unwrap();
    recipe.reward.entropy.as_mut().unwrap().of = EntropyKind::Distribution;
    let columns = Rollouts { baseline: Some(&[0.5]), ..columns(&[0.0, 1.0]) };
    refused(of_group(&recipe, &[0, 2, 3], &columns), "…missing columns: entropy (for reward.entropy)");
}

#[test]
fn an_invalid_response_of_gdpo_has_no_scores() {
    let mut components = [1.0f32, 0.0, 1.0, 0.0, 0.3, 0.3, 0.1, 0.1];
    let cu_seqlens = ones(4);
    let run = |components: &[f32], valid| {
        let reward_weights = Some(&[1.0, 0.5][..]);
        let input =
            Rollouts { reward_components: Some(components), reward_weights, valid, ..Rollouts::default() };
        named("gdpo", &cu_seqlens, &input).advantage
    };
    let valid = run(&components, Some(&[1, 0, 1, 1]));
    (components[1], components[5]) = (f32::NAN, f32::NAN);
    assert_eq!(run(&components, None), valid);
}

#[test]
fn dapo_full_penalises_and_drops() {
    // Lengths 20480 and 1: both correct, but one is overlong by the whole buffer; the filter looks at the
    // rewards before shaping.
    let cu_seqlens = [0, 20480, 20481];
    let kept = named("dapo_full", &cu_seqlens, &columns(&[1.0, 0.0]));
    // 1 − 1 and 0: nothing to learn after shaping.
    assert_eq!((&kept.keep[..], kept.groups.std[0]), (&[1, 1][..], 0.0));
    let dropped = named("dapo_full", &cu_seqlens, &columns(&[1.0, 1.0]));
    assert_eq!((&dropped.keep[..], &dropped.advantage[..]), (&[0, 0][..], &[0.0, 0.0][..]));
    let toml = "[reward.filter]\nkind = \"at_most_tokens\"\nlimit = 20479\n";
    let got = of_group(&Recipe::from_toml(toml).unwrap(), &cu_seqlens, &columns(&[1.0, 0.0])).unwrap();
    assert_eq!((&got.keep[..], got.advantage[0]), (&[0, 1][..], 0.0));
    // What is dropped is also dropped from the loss.
    let live =
        |credit: &Credit| credit.loss_mask.as_ref().unwrap().iter().map(|m| usize::from(*m)).sum::<usize>();
    assert_eq!([live(&kept), live(&dropped), live(&got)], [20481, 0, 1]);
}

#[test]
fn impossible_rewards_and_advantages_are_named() {
    for (toml, says) in [
        ("[reward.overlong]\nmax_length = 10\nbuffer = 0\n", "…buffer…"),
        ("[reward.filter]\nkind = \"spread\"\neta = -1.0\n", "…eta…"),
        ("[reward.sharpen]\nkind = \"ace\"\ncap = 0.5\n", "…cap…"),
        ("[reward.shaping]\nkind = \"evol_rl\"\nmean_weight = 2.0\n", "…mean_weight…"),
        ("[reward.entropy]\nkappa = 0.0\n", "…kappa…"),
        ("[reward]\ngroup_factor_cap = 0.5\n", "…group_factor_cap…"),
        ("[reward]\nshape = 1\n", "…shape…"),
        ("[advantage]\nk = 3\n", "…pass_at_k…"),
        ("[advantage]\nkind = \"role_baseline\"\ndecay = 1.5\n", "…decay…"),
    ] {
        refused(Recipe::from_toml(toml), says);
    }
}

#[test]
fn a_row_of_a_million_tokens_and_games() {
    let n = 1_000_000;
    let cu_seqlens = [0, n as u32];
    let batch = Batch::new(&cu_seqlens, &[0, 1], None).unwrap();
    assert_eq!(ops::mask_sequences(&Device::cpu(), &batch, &[0]).unwrap(), vec![0; n]);
    let (rewards, roles) = (vec![1.0f32; n], vec![0u32; n]);
    let order = Order::SubtractThenUpdate;
    let (_, state) = ops::role_baseline(&Device::cpu(), &rewards, &roles, &[0.0], 0.95, order).unwrap();
    assert!((state[0] - 1.0).abs() < 1e-12);
}
