//! Regenerates the binary seeds, byte for byte: `cargo run --example seeds` in `fuzz`. The text seeds are
//! written by hand.
//!
//! A seed for op arguments lists the choices that the target draws, in order; missing ones are 0.
#![forbid(unsafe_code)]

use lockstep::RolloutsBuf;
use lockstep::core::aggregate::{ExactMoments, ExactSum};
use lockstep::ops::exact::PolicyTotals;
use lockstep::routing::RoutingTrace;
use std::fs;
use std::path::Path;

/// Bytes with a special meaning to [`lockstep_fuzz::Draw`].
const NAN: u8 = 0xe0;
const INFINITE: u8 = 0xe1;
const NEGATIVE_INFINITE: u8 = 0xe2;
const LARGEST: u8 = 0xe4;
const LOWEST: u8 = 0xe5;
const SUBNORMAL: u8 = 0xe8;
/// Length bytes for rows of 24, 129 and 257 elements.
const ROW_129: u8 = 0x80 | 3;
const ROW_257: u8 = 0x80 | 6;
const YES: u8 = 1;
const NO: u8 = 0;

fn write(target: &str, name: &str, parts: &[&[u8]]) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("seeds").join(target);
    fs::create_dir_all(&folder).expect("a folder for seeds");
    fs::write(folder.join(name), parts.concat()).expect("a seed");
}

/// A batch: (length byte, whether it ends its group) per sequence, mask kind, whether empty rows are allowed.
fn packed(rows: &[(u8, bool)], mask: &[u8], empty_rows: u8) -> Vec<u8> {
    let mut bytes = vec![rows.len() as u8];
    for (length, last) in rows {
        bytes.extend([*length, u8::from(*last)]);
    }
    bytes.extend(mask);
    bytes.push(empty_rows);
    bytes
}

fn main() {
    batches();
    advantages();
    per_token();
    policy_loss();
    rollouts();
    routing();
    schedules();
    exact_bytes();
    any_op();
}

/// Every op once as drawn, and once with a few changes.
fn any_op() {
    for (k, op) in lockstep::core::op::OPS.iter().enumerate() {
        let changes: Vec<u8> = (0..96).map(|i| (i * 37 + k * 11) as u8).collect();
        write("any_op", op.name, &[&[k as u8], &[k as u8, 1, 0, 0, 0, 0, 0, 0]]);
        write(
            "any_op",
            &format!("{}_changed", op.name),
            &[&[k as u8], &[k as u8, 2, 0, 0, 0, 0, 0, 0], &changes],
        );
    }
}

fn batches() {
    // Empty rows, raw offsets?, steps + 8, groups, mask.
    write("batch_offsets", "good", &[&[NO, NO, 3, 11, 9, 13, 3, 0, 2, 3, 0]]);
    write("batch_offsets", "good_with_mask", &[&[NO, NO, 3, 11, 9, 13, 3, 0, 2, 3, 1]]);
    write("batch_offsets", "decreasing", &[&[NO, NO, 3, 11, 5, 13, 3, 0, 2, 3, 0]]);
    write("batch_offsets", "empty_sequence_allowed", &[&[YES, NO, 3, 11, 8, 13, 3, 0, 2, 3, 0]]);
    write("batch_offsets", "empty_group", &[&[NO, NO, 2, 11, 12, 3, 0, 2, 2, 0]]);
    write("batch_offsets", "mask_too_long", &[&[NO, NO, 2, 11, 12, 2, 0, 2, 2, 1, 200]]);
    write("batch_offsets", "largest_offset", &[&[NO, YES, 2], &[0; 4], &[0xff; 4], &[2, 0, 1, 0]]);
    write(
        "batch_offsets",
        "does_not_start_at_0",
        &[&[NO, YES, 2], &[1, 0, 0, 0], &[3, 0, 0, 0], &[2, 0, 1, 0]],
    );
}

fn advantages() {
    let two_groups = packed(&[(1, false), (2, false), (3, true), (1, false), (1, true)], &[0], NO);
    // Division, ddof, eps, singleton, valid, length of the rewards, rewards.
    let rewards: &[u8] = &[0, 128, 112, 112, 112, 112];
    write("advantage_args", "grpo", &[&two_groups, &[YES, 0, 0, 0, NO], rewards]);
    write(
        "advantage_args",
        "dr_grpo_with_nan",
        &[&two_groups, &[NO, 1, 0, 0, NO, 0, 128, NAN, 112, 100, 90]],
    );
    write(
        "advantage_args",
        "infinite_reward",
        &[&two_groups, &[YES, 0, 0, 0, NO, 0, 128, 1, INFINITE, 100, 90]],
    );
    write(
        "advantage_args",
        "largest_rewards",
        &[&two_groups, &[YES, 0, 0, 0, NO, 0, LARGEST, LOWEST, LARGEST]],
    );
    write(
        "advantage_args",
        "subnormal_rewards_eps_0",
        &[&two_groups, &[YES, 0, 1, 0, NO, 0, SUBNORMAL, 0xe9, 115]],
    );
    write("advantage_args", "wrong_length", &[&two_groups, &[YES, 0, 0, 0, NO, 0xff, 128, 112]]);
    let singles = packed(&[(1, true), (1, true), (1, true)], &[0], NO);
    write("advantage_args", "group_of_one_raw_reward", &[&singles, &[YES, 0, 0, 2, NO, 0, 128, 100, 50]]);
    write("advantage_args", "group_of_one_refused", &[&singles, &[YES, 0, 0, 0, NO, 0, 128, 100, 50]]);
    write("advantage_args", "nobody_valid", &[&singles, &[YES, 0, 0, 1, YES, 0, 1, 1, 1, 0, 128, 100, 50]]);
}

fn per_token() {
    let ragged = packed(&[(7, false), (ROW_129, true), (ROW_257, false), (1, true)], &[0], NO);
    let masked = packed(&[(9, false), (33, true)], &[1], NO);
    let short = packed(&[(3, false), (2, true)], &[0], NO);
    let empty = packed(&[(0, false), (3, true)], &[0], YES);
    let usual: Vec<u8> = (0..800u32).map(|i| (i * 37 % 0xe0) as u8).collect();
    // Estimator, clamp in, clamp out, straight through, then both arrays, each with its length byte.
    for (name, estimator) in [("k1", 0), ("abs", 1), ("k2", 2), ("k3", 3)] {
        write("kl_args", name, &[&ragged, &[estimator, NO, NO, NO, 0], &usual]);
    }
    write("kl_args", "k3_clamped_straight_through", &[&ragged, &[3, YES, 100, YES, 200, YES, 0], &usual]);
    write("kl_args", "all_masked", &[&masked, &[3, NO, NO, NO, 0], &usual]);
    write("kl_args", "lowest_k2", &[&short, &[2, NO, NO, NO, 0, LOWEST, 0, 0, 0, 0, 0]]);
    write("kl_args", "nan", &[&short, &[3, NO, NO, NO, 0, 1, NAN, 3, 4, 5, 0, 9, 9, 9, 9, 9]]);
    write("kl_args", "empty_row", &[&empty, &[3, NO, NO, NO, 0, 1, 2, 3, 0, 3, 2, 1]]);
    // Guard (and its bound), band, both arrays.
    write("ratio_args", "clamped", &[&ragged, &[1, 50, 80, 0], &usual]);
    write(
        "ratio_args",
        "unguarded_overflow",
        &[&short, &[0, 50, 80, 0, 0, 0, 0, 0, 0, 0, LOWEST, 0xec, 0xeb, 0, 0]],
    );
    write("ratio_args", "negative_infinite", &[&short, &[1, 50, 80, 0, 1, 2, NEGATIVE_INFINITE, 4, 5]]);
    write("ratio_args", "all_masked", &[&masked, &[1, 50, 80, 0], &usual]);
    write("ratio_args", "straight_through", &[&ragged, &[3, 10, 50, 80, 0], &usual]);
    // Weight kind (and constant), denominator, direction, values; partials, rows.
    write("aggregate_args", "token_mean", &[&ragged, &[0, 100, 0, 0], &usual]);
    write("aggregate_args", "sequence_mean_suffix", &[&ragged, &[1, 4, 1, 0], &usual]);
    write(
        "aggregate_args",
        "largest_values",
        &[&short, &[0, 1, 0, 0, LARGEST, LARGEST, LARGEST, LARGEST, LOWEST]],
    );
    write("aggregate_args", "constant_all_masked", &[&masked, &[3, 7, 2, 0, 0], &usual]);
    write("aggregate_args", "wrong_length", &[&short, &[0, 1, 0, 0xfe, 1, 2, 3, 4, 5, 6]]);
}

fn policy_loss() {
    let ragged = packed(&[(7, false), (ROW_129, true), (ROW_257, false), (1, true)], &[0], NO);
    let masked = packed(&[(9, false), (33, true)], &[1], NO);
    let short = packed(&[(3, false), (2, true)], &[0], NO);
    let usual: Vec<u8> = (0..1600u32).map(|i| (i * 29 % 0xe0) as u8).collect();
    let near: Vec<u8> = (0..1600u32).map(|i| 40 + (i * 7 % 11) as u8).collect();
    let by_recipe = 0;
    // Recipe: mode, horizon's flip, guard, its bound?, gate, ...
    let ppo: &[u8] = &[0, 0, 0, NO, NO, NO, NO, NO];
    let ppo_dual: &[u8] = &[0, 0, 0, NO, NO, NO, NO, YES, 127];
    let sapo: &[u8] = &[3, 0, 1, NO, YES, 63, 66];
    // ... KL?, sequences, length (and the horizon of mode 4), band?
    let no_kl: &[u8] = &[NO, 0, 0, NO];
    let k3: &[u8] = &[YES, 0, 1, YES, 200, NO, NO, 1, 1, NO];
    let norm: &[u8] = &[NO, 0, 0, 0, 0xff, NO];
    // Parameters of the op itself, drawn even if the recipe is used: nine numbers, gate, guard, KL, weight.
    let params: &[u8] = &[12, 12, 127, 200, 3, 200, 200, 50, 80, YES, YES, NO, 0, 0, 63, 0, 63];
    // Advantage per token, token loss, metrics, loss, counts, flip of the reference, weights, length of the
    // advantages.
    let all: &[u8] = &[NO, YES, YES, YES, NO, 0, NO, 0];
    let coef_only: &[u8] = &[YES, NO, NO, NO, NO, 0, YES, 0];
    let part = |name: &str, parts: &[&[u8]]| write("policy_loss_args", name, parts);
    part("ppo_on_policy", &[&ragged, &[by_recipe], ppo, no_kl, params, all, &near]);
    part("ppo_dual_off_policy", &[&ragged, &[by_recipe], ppo_dual, no_kl, params, all, &usual]);
    part("sapo_unguarded", &[&ragged, &[by_recipe], sapo, no_kl, params, all, &usual]);
    part("sapo_coef_only_weights", &[&ragged, &[by_recipe], sapo, no_kl, params, coef_only, &near]);
    part("ppo_k3", &[&ragged, &[by_recipe], ppo, k3, params, all, &near]);
    part("all_masked", &[&masked, &[by_recipe], sapo, k3, params, all, &usual]);
    part("dr_grpo_horizon", &[&short, &[by_recipe, 4, 0, 0, NO, NO, NO, NO, NO], norm, params, all, &near]);
    part("op_parameters", &[&ragged, &[0xc0], ppo, no_kl, params, all, &near]);
    for (name, gate) in [("op_mini_rl", 6), ("op_remix", 7), ("op_gmpo", 8)] {
        let own: Vec<u8> = [&params[..9], &[gate], &params[10..]].concat();
        part(name, &[&ragged, &[0xc0], ppo, no_kl, &own, all, &near]);
    }
    part("nan_logp", &[&short, &[by_recipe], ppo, no_kl, params, all, &[128, 100, 0, 1, NAN]]);
    part("infinite_advantage", &[&short, &[by_recipe], ppo, no_kl, params, all, &[128, INFINITE, 0, 1, 2]]);
    let unguarded: &[u8] = &[0, 0, 1, NO, NO, NO, NO, NO];
    let overflow: &[u8] = &[128, 100, 0, 0, 0, 0, 0, 0, 0, LOWEST, LOWEST, 0xec, 0xeb, 0];
    part("ratio_overflow_unguarded", &[&short, &[by_recipe], unguarded, no_kl, params, all, overflow]);
}

fn rollouts() {
    let good = RolloutsBuf {
        cu_seqlens: Some(vec![0, 2, 3, 5, 6]),
        cu_groups: Some(vec![0, 2, 4]),
        loss_mask: Some(vec![1, 1, 1, 0, 1, 1]),
        rewards: Some(vec![1.0, 0.0, f32::NAN, 1.0]),
        logp: Some(vec![-1.0, -2.0, -3.0, -4.0, -5.0, -6.0]),
        logp_old: Some(vec![-1.5; 6]),
        logp_ref: Some(vec![-1.25; 6]),
        logp_rollout: Some(vec![-0.5; 6]),
        ..RolloutsBuf::default()
    };
    let write = |name: &str, rollouts: &RolloutsBuf| {
        write("rollouts_safetensors", name, &[&rollouts.to_safetensors().expect("rollouts")]);
    };
    write("good", &good);
    write(
        "needed_tensors_only",
        &RolloutsBuf { loss_mask: None, logp_ref: None, logp_rollout: None, ..good.clone() },
    );
    write("infinite_reward", &RolloutsBuf { rewards: Some(vec![f32::INFINITY; 4]), ..good.clone() });
    write("short_logp", &RolloutsBuf { logp: Some(vec![-1.0; 5]), ..good.clone() });
    write("decreasing_offsets", &RolloutsBuf { cu_seqlens: Some(vec![0, 3, 2, 5, 6]), ..good.clone() });
    write("mask_of_2", &RolloutsBuf { loss_mask: Some(vec![2; 6]), ..good.clone() });
    let turns = RolloutsBuf {
        cu_turns: Some(vec![0, 1, 2, 3, 5, 6]),
        turn_rewards: Some(vec![0.0, 1.0, 0.0, 0.5, 1.0]),
        turn_roles: Some(vec![0, 1, 0, 1, 0]),
        cu_steps: Some(vec![0, 2, 3, 4, 5]),
        cu_step_tokens: Some(vec![0, 1, 2, 3, 5, 6]),
        step_rewards: Some(vec![1.0, 0.0, 1.0, 1.0, 0.0]),
        step_matches: Some(vec![1, 0, 1, 1, 0]),
        ..good.clone()
    };
    write("turns_and_steps", &turns);
    let bytes = good.to_safetensors().expect("rollouts");
    self::write("rollouts_safetensors", "truncated", &[&bytes[..bytes.len() - 3]]);
    // The header says I64 while the data are U32, so the lengths disagree.
    let mut bytes = bytes;
    for i in 0..bytes.len() - 3 {
        if &bytes[i..i + 3] == b"U32" {
            bytes[i..i + 3].copy_from_slice(b"I64");
        }
    }
    self::write("rollouts_safetensors", "wrong_type", &[&bytes]);
}

fn routing() {
    let trace = |experts| {
        let mut trace = RoutingTrace::new(experts, 2, 3).expect("a trace");
        trace.append_padding(3);
        trace.append_absent(1);
        trace.to_safetensors().expect("routing")
    };
    let write = |name: &str, bytes: &[u8]| write("routing_safetensors", name, &[bytes]);
    write("good", &trace(8));
    write("wide", &trace(300));
    let bytes = trace(8);
    write("truncated", &bytes[..bytes.len() - 3]);
    // Fields of the metadata and of the shape, modified in place.
    let changed = |from: &[u8], to: &[u8]| {
        let mut bytes = bytes.clone();
        let at = bytes.windows(from.len()).position(|part| part == from).expect("a field");
        bytes[at..at + to.len()].copy_from_slice(to);
        bytes
    };
    write("few_experts", &changed(b"experts\\\":8", b"experts\\\":4"));
    write("other_layers", &changed(b"layers\\\":2", b"layers\\\":3"));
    write("top_k_of_0", &changed(b"top_k\\\":3", b"top_k\\\":0"));
    write("signed", &changed(b"\"U8\"", b"\"I8\""));
    let mut twice = bytes.clone();
    let last = twice.len() - 7;
    twice[last] = twice[last - 1];
    write("expert_twice", &twice);
}

fn schedules() {
    // The rule, size, seed and step, then the rule's arguments.
    let head = |which: u8, n: u8| [&[which, n][..], &[7; 12]].concat();
    let usual: Vec<u8> = (0..400u32).map(|i| (i * 37 % 0xe0) as u8).collect();
    let names = [
        "balance",
        "largest_remainder",
        "square_root_law",
        "april",
        "replay",
        "groups",
        "arrol",
        "rorecomp",
        "vade",
        "overlap",
        "latr_fit",
        "xrpo",
    ];
    for (which, name) in names.into_iter().enumerate() {
        write("schedules", name, &[&head(which as u8, 9), &usual]);
        write("schedules", &format!("{name}_of_nothing"), &[&head(which as u8, 0)]);
        write("schedules", &format!("{name}_edges"), &[&head(which as u8, 6), &[NAN; 200]]);
    }
}

fn exact_bytes() {
    let numbers = [1.0, -1e300, f64::MIN_POSITIVE / 2.0, 1e300, 0.1];
    let sum: ExactSum = numbers.into_iter().collect();
    let good = sum.to_bytes();
    write("exact_bytes", "sum", &[&good]);
    write("exact_bytes", "zero", &[&ExactSum::ZERO.to_bytes()]);
    write("exact_bytes", "infinite", &[&[f64::INFINITY].into_iter().collect::<ExactSum>().to_bytes()]);
    write("exact_bytes", "truncated", &[&good[..100]]);
    let mut unknown = good;
    unknown[4] = 2;
    write("exact_bytes", "version_2", &[&unknown]);
    let mut moments = ExactMoments::NONE;
    [1.0, -2.5, 0.0].into_iter().for_each(|x| moments.add(x));
    write("exact_bytes", "moments", &[&moments.to_bytes()]);
    write("exact_bytes", "totals", &[&PolicyTotals::default().to_bytes()]);
    write("exact_bytes", "numbers", &[&numbers.map(f64::to_le_bytes).concat()]);
}
