//! Every op of the table at the extremes: log-probabilities of −1e4 and −1e30 beside 0, rewards of 1.0 beside
//! 1.0000001.
//!
//! A row either has the oracle's values, all of them finite, or raises its alarm (as an unguarded ratio of
//! e^10000 does), which the host API turns into an error with an index. Nothing in between.

use crate::prelude::*;
use lockstep_conformance::accuracy::worst;
use lockstep_conformance::expect::expect;
use lockstep_conformance::output::{Output, Place};
use lockstep_conformance::precision;
use lockstep_core::op::OpInfo;
use std::panic::{AssertUnwindSafe, catch_unwind};

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
    alarmed: usize,
}

pub(crate) fn compare(case: &Case, outputs: &[Output], tally: &mut Tally) -> Result<(), String> {
    let alarm = outputs.iter().find(|output| output.name == "alarm");
    let alarmed = |row: &usize| alarm.is_some_and(|alarm| *row < alarm.len() && alarm.bits(*row) != 0);
    let (bad, good): (Vec<usize>, Vec<usize>) = (0..case.data.rows()).partition(alarmed);
    let wants = expect(case);
    for output in outputs.iter().filter(|output| output.name != "alarm") {
        let mut want = wants.iter().find(|want| want.name == output.name).ok_or("no oracle")?.clone();
        let of = |rows: &[usize]| -> Vec<usize> {
            rows.iter().flat_map(|row| output.range(&case.data.offsets, *row)).collect()
        };
        for i in of(&good) {
            // The largest of nothing is −∞, and a perplexity of e^10000 is ∞: allowed per row, and only where
            // the oracle agrees.
            let found = output.number(i);
            if found.is_nan() || output.place == Place::Element && found.is_infinite() {
                return Err(format!("`{}`[{i}] is {found} without an alarm", output.name));
            }
        }
        // A row with an alarm promises nothing.
        of(&bad).into_iter().for_each(|i| want.magnitude[i] = f64::INFINITY);
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
    tally.alarmed += bad.len();
    tally.right += good.len();
    Ok(())
}

/// Compares each op on its cases, up to its first failure or panic; requires `least` rows without an alarm of
/// every op that has cases.
fn every<'a, C: Iterator<Item = Case>>(
    ops: impl Iterator<Item = &'a str>,
    least: usize,
    cases: impl Fn(&'a str) -> C,
) {
    let (reference, mut failures) = (levels::reference(), Vec::new());
    for op in ops {
        let (mut tally, mut any) = (Tally::default(), false);
        for case in cases(op) {
            any = true;
            let run = || compare(&case, &launch::run(&reference, &case).unwrap(), &mut tally);
            let ran = catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|_| Err("panic".into()));
            if let Err(failure) = ran {
                failures.push(format!("{op} [{}] {:?}: {failure}", case.label, case.params));
                break;
            }
        }
        println!("{op:<24} {} rows right, {} alarmed", tally.right, tally.alarmed);
        if any && tally.right < least {
            failures.push(format!("{op}: only {} rows without an alarm", tally.right));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// Random cases of an op of ordinary size.
fn drawn(op: &str) -> impl Iterator<Item = (u64, Case)> {
    let all = (0..24).map(move |seed| (seed, random(op, seed).unwrap()));
    all.filter(|(_, case)| case.data.elements() <= 4000)
}

#[test]
fn every_op_with_far_log_probabilities() {
    every(OPS.iter().map(|op| op.name), 20, |op| {
        [1e4, 1e30].into_iter().flat_map(move |far| {
            let cases = drawn(op).take_while(|(_, case)| !logp_slots(case).is_empty());
            cases.map(move |(seed, mut case)| {
                for slot in logp_slots(&case) {
                    for i in 0..case.data.elements() {
                        if case.data.live(i) && slot < case.data.element.len() {
                            case.data.element[slot][i] = value(far, slot, i, seed);
                        }
                    }
                }
                case
            })
        })
    });
}

/// Ops of rewards, values and weights.
const OF_REWARDS: &str = "\
    group_advantage pass_at_k combine shape_rewards filter_groups whiten row_moments aggregate row_scan \
    discounted_return gae vtrace step_return optimal_token_baseline value_loss role_baseline \
    variance_increase effective_sample_size normalize_weights exact_sum_f32";

#[test]
fn every_op_of_rewards_with_rewards_one_rounding_apart() {
    every(OF_REWARDS.split(' '), 0, |op| {
        drawn(op).filter(|(_, case)| !case.data.element.is_empty()).map(|(_, mut case)| {
            for i in 0..case.data.elements().min(case.data.element[0].len()) {
                if case.data.mask.as_ref().is_none_or(|mask| mask.get(i).is_none_or(|byte| *byte != 0)) {
                    case.data.element[0][i] = if i % 3 == 0 { 1.000_000_1 } else { 1.0 };
                }
            }
            case
        })
    });
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
const NOT_TILED: &str = "\
    fold_rows fold_moments batch_counts loss_totals narrow_digits tree_sort tree_nodes tree_advantage \
    gating_forward gating_backward balance_loss";

/// Ops with n² work or inputs: one large case is enough.
const SQUARE: &[&str] = &["novelty_bands", "variance_increase", "filter_groups"];

#[test]
fn every_op_with_rows_of_one_and_of_4096() {
    let of_rows = OPS.iter().map(|op| op.name).filter(|op| NOT_TILED.split(' ').all(|name| name != *op));
    every(of_rows, 0, |op| {
        let logits = OpInfo::named(op).unwrap().file.starts_with("logits/");
        [1, 4096].into_iter().flat_map(move |n| {
            let seeds = if n > 1 && SQUARE.contains(&op) { 1 } else { 4 };
            (0..seeds).filter_map(move |seed| {
                let mut case = tiled(&random(op, seed)?, n)?;
                if logits {
                    // Labels are positions in the row.
                    case.data.row[0][0] = case.data.row[0][0].min((n - 1) as f32);
                }
                Some(case)
            })
        })
    });
}

/// One op from every family whose rows are sequences.
const LONG: &str = "\
    token_ratio rollout_mismatch rollout_correction log_ratio_scan policy_loss_ppo policy_loss_gmpo \
    sequence_weight kl kl_importance value_loss aggregate row_scan whiten discounted_return gae vtrace \
    entropy_bonus sharpen";

#[test]
fn a_sequence_of_a_million_tokens() {
    every(LONG.split(' '), 0, |op| (0..).find_map(|seed| tiled(&random(op, seed)?, 1_000_000)).into_iter());
}
