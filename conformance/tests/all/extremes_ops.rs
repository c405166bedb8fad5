//! Every op of the table at the extremes: log-probabilities of −1e4 and −1e30 beside 0, rewards of 1.0 beside
//! 1.0000001.
//!
//! A row either has the oracle's values, all of them finite, or raises its alarm (as an unguarded ratio of
//! e^10000 does), which the host API turns into an error with an index. Nothing in between.

use lockstep::{Device, SimdLevel};
use lockstep_conformance::accuracy::worst;
use lockstep_conformance::cases::Case;
use lockstep_conformance::cases::random::random;
use lockstep_conformance::expect::expect;
use lockstep_conformance::launch;
use lockstep_conformance::output::{Output, Place};
use lockstep_conformance::precision;
use lockstep_core::op::OPS;
use std::collections::BTreeMap;

/// Slots of the log-probabilities, where a number above 0 is a fault.
fn logp_slots(case: &Case) -> Vec<usize> {
    let above = |bad: &[f32]| bad.iter().any(|x| *x > 0.0 && x.is_finite());
    case.params.fault_slots().into_iter().filter(|(_, bad)| above(bad)).map(|(slot, _)| slot).collect()
}

/// Values at the extremes. Two policies are up to `far` apart, in both directions; distances of −1e30 occur
/// in one direction per case, because what is left of a sum of ±1e30 is only rounding.
fn value(far: f32, slot: usize, i: usize, seed: u64) -> f32 {
    let far = if far > 1e4 && slot % 2 == (seed % 2) as usize { 0.25 } else { far };
    [0.0, -far, -0.5, -1e-30, -far, -0.0, -0.5][(i * (slot + 1) + slot) % 7]
}

/// Outcomes of an op's rows.
#[derive(Default)]
pub(crate) struct Tally {
    pub(crate) right: usize,
    pub(crate) alarmed: usize,
}

pub(crate) fn compare(case: &Case, outputs: &[Output], tally: &mut Tally) -> Result<(), String> {
    let rows = case.data.rows();
    let alarm = outputs.iter().find(|output| output.name == "alarm");
    let alarmed = |row: usize| alarm.is_some_and(|alarm| row < alarm.len() && alarm.bits(row) != 0);
    let wants = expect(case);
    for output in outputs.iter().filter(|output| output.name != "alarm") {
        let want = wants.iter().find(|want| want.name == output.name).ok_or("no oracle")?;
        for row in 0..rows {
            if alarmed(row) {
                continue;
            }
            for i in output.range(&case.data.offsets, row) {
                // The largest of nothing is −∞, and a perplexity of e^10000 is ∞: allowed per row, and only
                // where the oracle agrees.
                let element = output.place == Place::Element;
                if output.number(i).is_nan() || element && output.number(i).is_infinite() {
                    return Err(format!("`{}`[{i}] is {} without an alarm", output.name, output.number(i)));
                }
            }
        }
        let (mut masked, mut want) = (Vec::new(), want.clone());
        (0..rows)
            .filter(|row| alarmed(*row))
            .for_each(|row| masked.extend(output.range(&case.data.offsets, row)));
        // A row with an alarm promises nothing.
        masked.into_iter().for_each(|i| want.magnitude[i] = f64::INFINITY);
        for i in 0..output.len() {
            // What binary32 cannot hold is infinite: exponentials of log-ratios are binary32.
            if want.want[i].abs() > f64::from(f32::MAX) && output.number(i).is_infinite() {
                want.want[i] = want.want[i].signum() * f64::INFINITY;
            }
        }
        let worst = worst(output, &want);
        let allowed = precision::units(case.op(), output.name);
        if worst.units > allowed {
            let (got, want) = (output.number(worst.index), want.want[worst.index]);
            return Err(format!(
                "`{}`[{}]: {got:e}, oracle {want:e}: {} units, allowed {allowed}",
                output.name, worst.index, worst.units
            ));
        }
    }
    let bad = (0..rows).filter(|row| alarmed(*row)).count();
    tally.alarmed += bad;
    tally.right += rows - bad;
    Ok(())
}

#[test]
fn every_op_with_far_log_probabilities() {
    let reference = Device::cpu_with(Some(SimdLevel::Plain), Some(1)).unwrap();
    let (mut failures, mut tallies) = (Vec::new(), BTreeMap::<&str, Tally>::new());
    for op in OPS {
        let mut slots_seen = 0;
        for far in [1e4, 1e30] {
            for seed in 0..24 {
                let mut case = random(op.name, seed).unwrap();
                if case.data.elements() > 4000 {
                    continue;
                }
                let slots = logp_slots(&case);
                slots_seen += slots.len();
                if slots.is_empty() {
                    break;
                }
                for slot in slots {
                    for i in 0..case.data.elements() {
                        if case.data.live(i) && slot < case.data.element.len() {
                            case.data.element[slot][i] = value(far, slot, i, seed);
                        }
                    }
                }
                let outputs = launch::run(&reference, &case).unwrap();
                if let Err(failure) = compare(&case, &outputs, tallies.entry(op.name).or_default()) {
                    failures
                        .push(format!("{} {far:e} [{}] {:?}: {failure}", op.name, case.label, case.params));
                    break;
                }
            }
        }
        println!("{:<24} {slots_seen} slots", op.name);
    }
    for (op, tally) in &tallies {
        println!("{op:<24} {} rows right, {} alarmed", tally.right, tally.alarmed);
        if tally.right < 20 {
            failures.push(format!("{op}: only {} rows without an alarm", tally.right));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// Ops of rewards, values and weights.
const OF_REWARDS: &[&str] = &[
    "group_advantage",
    "pass_at_k",
    "combine",
    "shape_rewards",
    "filter_groups",
    "whiten",
    "row_moments",
    "aggregate",
    "row_scan",
    "discounted_return",
    "gae",
    "vtrace",
    "step_return",
    "optimal_token_baseline",
    "value_loss",
    "role_baseline",
    "variance_increase",
    "effective_sample_size",
    "normalize_weights",
    "exact_sum_f32",
];

#[test]
fn every_op_of_rewards_with_rewards_one_rounding_apart() {
    let reference = Device::cpu_with(Some(SimdLevel::Plain), Some(1)).unwrap();
    let mut failures = Vec::new();
    for op in OF_REWARDS {
        let mut tally = Tally::default();
        for seed in 0..24 {
            let mut case = random(op, seed).unwrap();
            if case.data.elements() > 4000 || case.data.element.is_empty() {
                continue;
            }
            for i in (0..case.data.elements())
                .filter(|i| case.data.mask.as_ref().is_none_or(|m| m.get(*i).is_none_or(|m| *m != 0)))
            {
                let Some(value) = case.data.element[0].get_mut(i) else { continue };
                *value = if i % 3 == 0 { 1.000_000_1 } else { 1.0 };
            }
            let outputs = launch::run(&reference, &case).unwrap();
            if let Err(failure) = compare(&case, &outputs, &mut tally) {
                failures.push(format!("{op} [{}] {:?}: {failure}", case.label, case.params));
                break;
            }
        }
        println!("{op:<24} {} rows right, {} alarmed", tally.right, tally.alarmed);
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// The first row of a case that has elements, repeated to a single row of `n`.
fn tiled(case: &Case, n: usize) -> Option<Case> {
    let data = &case.data;
    let row = (0..data.rows()).find(|row| !data.span(*row).is_empty())?;
    let span = data.span(row);
    fn tile<T: Copy>(all: &[T], span: &std::ops::Range<usize>, n: usize) -> Vec<T> {
        if all.is_empty() { Vec::new() } else { all[span.clone()].iter().copied().cycle().take(n).collect() }
    }
    let mut new = case.clone();
    new.label = format!("{} as one row of {n}", case.label);
    new.data.offsets = vec![0, n as u32];
    new.data.mask = data.mask.as_ref().map(|mask| tile(mask, &span, n));
    new.data.element = data.element.iter().map(|values| tile(values, &span, n)).collect();
    new.data.element64 = tile(&data.element64, &span, n);
    new.data.index = tile(&data.index, &span, n);
    new.data.row = data.row.iter().map(|values| values[row..row + 1].to_vec()).collect();
    Some(new)
}

/// Ops for which one row is not a batch: theirs is made of the statistics of all rows, or of a sorted group
/// or one router's experts (tests/all/extremes_trees_routing.rs).
const NOT_TILED: &[&str] = &[
    "fold_rows",
    "fold_moments",
    "batch_counts",
    "loss_totals",
    "narrow_digits",
    "tree_sort",
    "tree_nodes",
    "tree_advantage",
    "gating_forward",
    "gating_backward",
    "balance_loss",
];

/// The array of labels in the ops on logits.
const LABEL: usize = 0;

/// Ops with n² work or inputs: one large case is enough.
const SQUARE: &[&str] = &["novelty_bands", "variance_increase", "filter_groups"];

#[test]
fn every_op_with_rows_of_one_and_of_4096() {
    let reference = Device::cpu_with(Some(SimdLevel::Plain), Some(1)).unwrap();
    let mut failures = Vec::new();
    for op in OPS.iter().filter(|op| !NOT_TILED.contains(&op.name)) {
        let mut tally = Tally::default();
        for n in [1, 4096] {
            for seed in 0..if n > 1 && SQUARE.contains(&op.name) { 1 } else { 4 } {
                let Some(mut case) = random(op.name, seed).and_then(|case| tiled(&case, n)) else { continue };
                if op.file.starts_with("logits/") {
                    // Labels are positions in the row.
                    case.data.row[LABEL][0] = case.data.row[LABEL][0].min((n - 1) as f32);
                }
                let ran = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                    let outputs = launch::run(&reference, &case).unwrap();
                    let mut tally = Tally::default();
                    compare(&case, &outputs, &mut tally).map(|()| tally)
                }));
                match ran {
                    Ok(Ok(t)) => tally.right += t.right,
                    Ok(Err(failure)) => {
                        failures.push(format!("{} {n} {:?}: {failure}", op.name, case.params))
                    }
                    Err(_) => failures.push(format!("{} {n}: panic", op.name)),
                }
            }
        }
        println!("{:<24} {} rows right", op.name, tally.right);
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// One op from every family whose rows are sequences.
const LONG: &[&str] = &[
    "token_ratio",
    "rollout_mismatch",
    "rollout_correction",
    "log_ratio_scan",
    "policy_loss_ppo",
    "policy_loss_gmpo",
    "sequence_weight",
    "kl",
    "kl_importance",
    "value_loss",
    "aggregate",
    "row_scan",
    "whiten",
    "discounted_return",
    "gae",
    "vtrace",
    "entropy_bonus",
    "sharpen",
];

#[test]
fn a_sequence_of_a_million_tokens() {
    let reference = Device::cpu_with(Some(SimdLevel::Plain), Some(1)).unwrap();
    let mut failures = Vec::new();
    for op in LONG {
        let mut tally = Tally::default();
        let case = (0..).find_map(|seed| random(op, seed).and_then(|case| tiled(&case, 1_000_000))).unwrap();
        let outputs = launch::run(&reference, &case).unwrap();
        if let Err(failure) = compare(&case, &outputs, &mut tally) {
            failures.push(format!("{op} {:?}: {failure}", case.params));
        }
        println!("{op:<24} {} rows right", tally.right);
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
