//! Every op of the table, with the variants of its arguments.

mod advantage;
mod baselines;
mod check;
mod correction;
mod exact;
mod gates;
mod logits;
mod moments;
mod over_time;
mod policy;
mod ratios;
mod rewards;
mod routing;
mod sums;
mod tokens;
mod totals;
mod tree;

use crate::batch::{ELEMENTS, OFFSETS, ROWS};
use crate::hash::Source;
use crate::record::{Record, u32s};
use crate::{POISON, POISON64, Runner};
use lockstep_core::Error;
use lockstep_core::kl::{Estimator, Kl};
use lockstep_core::policy_loss::sum;
use lockstep_core::ragged::{Offsets, flag};
use lockstep_core::ratio::Guard;

/// Runs all launches.
pub(crate) fn run<R: Runner>(runner: &R, record: &mut impl Record) -> Result<(), Error> {
    let source = Source::new(2);
    advantage::run(runner, source.fork(1), record)?;
    tokens::run(runner, source.fork(2), record)?;
    policy::run(runner, source.fork(3), record)?;
    sums::run(runner, source.fork(4), record)?;
    check::run(runner, source.fork(5), record);
    baselines::run(runner, source.fork(6), record)?;
    moments::run(runner, source.fork(7), record)?;
    // --- outcome rewards and advantages of sequences: 10 to 19
    rewards::run(runner, source.fork(10), record)?;
    // --- advantages over time: 20 to 29
    over_time::run(runner, source.fork(20), record)?;
    // --- importance ratios and rollout correction: 30 to 39
    correction::run(runner, source.fork(30), record)?;
    ratios::run(runner, source.fork(31), record)?;
    // --- policy losses: 40 to 49
    gates::run(runner, source.fork(40), record)?;
    // --- entropy, values: 50 to 59
    logits::run(runner, source.fork(50), record)?;
    // --- exact sums: 60 to 69
    exact::run(runner, source.fork(60), record)?;
    // --- prefix trees: 70 to 79
    tree::run(runner, source.fork(70), record)?;
    // --- routing replay: 80 to 89
    routing::run(runner, source.fork(80), record)?;
    // --- counts and totals of a batch: 90 to 99
    totals::run(runner, source.fork(90), record)?;
    Ok(())
}

/// Space for the outputs of any launch.
struct Outputs {
    element: [[f32; ELEMENTS]; 2],
    row64: [f64; sum::SUMS * ROWS],
    row_loss: [f64; ROWS],
    row32: [f32; 2 * ROWS],
    counts: [u32; ROWS],
    flags: [u32; ROWS],
}

impl Outputs {
    fn poisoned() -> Self {
        let (single, double) = (f32::from_bits(POISON), f64::from_bits(POISON64));
        Outputs {
            element: [[single; ELEMENTS]; 2],
            row64: [double; sum::SUMS * ROWS],
            row_loss: [double; ROWS],
            row32: [single; 2 * ROWS],
            counts: [POISON; ROWS],
            flags: [POISON; ROWS],
        }
    }
}

/// Returns the offsets of every launch except those of `fold_rows`.
fn offsets() -> Result<Offsets<'static>, Error> {
    Offsets::new("offsets", &OFFSETS, ELEMENTS, "elements")
}

/// Records which alarms are raised. Only the side of the limit on which an alarm lies is specified, not its
/// value.
fn alarms(record: &mut impl Record, alarms: &[u32]) {
    let mut raised = [0; ROWS];
    for (raised, alarm) in raised.iter_mut().zip(alarms) {
        *raised = if *alarm == POISON { POISON } else { u32::from(*alarm > flag::LIMIT) };
    }
    u32s(record, &raised[..alarms.len()]);
}

/// The band of `in_band` in every launch.
const BAND: [f32; 2] = [0.75, 1.25];

/// No guard, the usual bound, one that ordinary log-ratios reach, and the last two straight-through.
fn guards() -> [Guard; 5] {
    [
        Guard::NONE,
        Guard::clamp(Guard::LOG_RATIO_CLAMP),
        Guard::clamp(0.5),
        Guard::straight_through(Guard::LOG_RATIO_CLAMP),
        Guard::straight_through(0.5),
    ]
}

/// Every estimator, plain and straight-through; k3 with verl's clamps, and with each clamp alone.
fn kls() -> [Kl; 10] {
    let both = |estimator| {
        let verls = if estimator == Estimator::K3 { Kl::guarded(estimator) } else { Kl::new(estimator) };
        [Kl::new(estimator), Kl { straight_through: true, ..verls }]
    };
    let ([a, b], [c, d]) = (both(Estimator::K1), both(Estimator::Abs));
    let ([e, f], [g, h]) = (both(Estimator::K2), both(Estimator::K3));
    let k3 = Kl::guarded(Estimator::K3);
    [a, b, c, d, e, f, g, h, Kl { clamp_in: 0.5, ..k3 }, Kl { clamp_out: 0.125, ..k3 }]
}
