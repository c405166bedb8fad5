//! Every op of the table at the extremes: log-probabilities of −1e4 and −1e30 beside 0, rewards of 1.0 beside 1.0000001.
//!
//! A row either has the oracle's values, all of them finite, or raises its alarm (an unguarded ratio of e^10000), which the host
//! API turns into an error with an index. Nothing in between.

use lockstep::{Device, Level};
use lockstep_conformance::accuracy::worst;
use lockstep_conformance::cases::random::random;
use lockstep_conformance::cases::{Case, Params, slot};
use lockstep_conformance::expect::expect;
use lockstep_conformance::launch;
use lockstep_conformance::output::{Output, Place};
use lockstep_conformance::precision;
use lockstep_core::op::OPS;
use std::collections::BTreeMap;

/// Slots of the log-probabilities: those where a number above 0 is a fault.
fn logp_slots(case: &Case) -> Vec<usize> {
    match case.params {
        Params::TokenRatio { .. } | Params::Kl { .. } => vec![slot::LOGP, slot::LOGP_OLD],
        Params::Policy(_) => vec![slot::LOGP, slot::LOGP_OLD, slot::LOGP_REF, slot::SECOND],
        Params::Op(any) => {
            let above = |bad: &&[f32]| bad.iter().any(|x| *x > 0.0 && x.is_finite());
            any.fault_slots().into_iter().filter(|(_, bad)| above(&bad)).map(|(slot, _)| slot).collect()
        }
        _ => Vec::new(),
    }
}

/// Values at the extremes: two policies are apart by up to `far`, in both directions; by −1e30 in one direction a case, since what is
/// left of a sum of ±1e30 is rounding alone.
fn value(far: f32, slot: usize, i: usize, seed: u64) -> f32 {
    let far = if far > 1e4 && slot % 2 == (seed % 2) as usize { 0.25 } else { far };
    [0.0, -far, -0.5, -1e-30, -far, -0.0, -0.5][(i * (slot + 1) + slot) % 7]
}

/// What became of the rows of an op.
#[derive(Default)]
struct Tally {
    right: usize,
    alarmed: usize,
}

fn compare(case: &Case, outputs: &[Output], tally: &mut Tally) -> Result<(), String> {
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
                // The largest of nothing is −∞, a perplexity of e^10000 ∞: of rows, and then the oracle says so too.
                let element = output.place == Place::Element;
                if output.number(i).is_nan() || element && output.number(i).is_infinite() {
                    return Err(format!("`{}`[{i}] is {} without an alarm", output.name, output.number(i)));
                }
            }
        }
        let (mut masked, mut want) = (Vec::new(), want.clone());
        (0..rows).filter(|row| alarmed(*row)).for_each(|row| masked.extend(output.range(&case.data.offsets, row)));
        // Of a row with an alarm nothing is promised.
        masked.into_iter().for_each(|i| want.magnitude[i] = f64::INFINITY);
        for i in 0..output.len() {
            // What binary32 does not hold is infinite: exponentials of log-ratios are binary32.
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
    let reference = Device::cpu_with(Some(Level::Plain), Some(1)).unwrap();
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
                    failures.push(format!("{} {far:e} [{}] {:?}: {failure}", op.name, case.label, case.params));
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
