//! `group_advantage` with every baseline and scale; its plain form has its own cases.

use super::advantage::reward;
use super::{Outputs, offsets};
use crate::batch::{Batch, LENGTHS, OFFSETS, ROWS, Range};
use crate::hash::Source;
use crate::record::{Record, f32s, u32s};
use crate::{POISON, Runner};
use lockstep_core::Error;
use lockstep_core::advantage::{Baseline, GroupAdvantage, Scale, Singleton};
use lockstep_core::op::Kernel;
use lockstep_core::ragged::{In, Mask, Out};

/// Case numbers continue after those of the plain form.
const FIRST: u32 = 12;

/// Moments of some batch.
const MOMENTS: [f64; 6] = [64.0, 0.25, 40.0, -1.0, 1.0, 21.0];

pub(super) fn run<R: Runner>(runner: &R, source: Source, record: &mut impl Record) -> Result<(), Error> {
    let baselines = [
        Baseline::Mean,
        Baseline::LeaveOneOut,
        Baseline::Weighted { eps: 1e-8 },
        Baseline::Length,
        Baseline::Median,
        Baseline::Second,
        Baseline::Given,
        Baseline::Shrunk { tau2: 0.0, laplace: false },
        Baseline::Shrunk { tau2: 0.05, laplace: true },
    ];
    let scales = [
        Scale::None { ddof: 1 },
        Scale::LeaveOneOutStd { ddof: 1, eps: 1e-6 },
        Scale::Mad { floor: 1e-3 },
        Scale::Mean,
        Scale::Batch { ddof: 0, eps: 1e-4 },
        Scale::Nonzero { norm: 1.5 },
        Scale::Std { ddof: 0, eps: 0.0 },
        Scale::RootMeanSquare { ddof: 1, eps: 1e-5 },
    ];
    for (b, baseline) in baselines.into_iter().enumerate() {
        for s in 0..2 {
            let scale = scales[(2 * b + s) % scales.len()];
            let case = 2 * b as u32 + s as u32;
            launch(runner, source.fork(case), case, (baseline, scale, 0.0), record)?;
        }
    }
    // Standard deviations on both sides of the threshold for division.
    let weighted = Baseline::Weighted { eps: 1e-8 };
    launch(runner, source.fork(18), 18, (weighted, Scale::Std { ddof: 0, eps: 0.0 }, 0.25), record)?;
    launch(runner, source.fork(19), 19, (Baseline::Mean, Scale::Batch { ddof: 1, eps: 1e-4 }, 0.25), record)
}

fn launch<R: Runner>(
    runner: &R,
    source: Source,
    case: u32,
    (baseline, scale, least_std): (Baseline, Scale, f64),
    record: &mut impl Record,
) -> Result<(), Error> {
    let batch = Batch::new(source, Range::Realistic, case);
    let mut rewards = batch.values;
    let mut lengths = [0; OFFSETS[ROWS] as usize];
    for row in (0..ROWS).filter(|row| LENGTHS[*row] > 0) {
        for i in OFFSETS[row] as usize..OFFSETS[row + 1] as usize {
            lengths[i] = source.fork(11).below(i, 5000) as u32;
            if batch.mask().is_none_or(|mask| mask[i] != 0) {
                rewards[i] = reward((row + case as usize) % 9, source.fork(10), i);
            }
        }
    }
    let mut out = Outputs::poisoned();
    let (mean, std) = out.row32.split_at_mut(ROWS);
    let mut pivot = [POISON; ROWS];
    let kernel = GroupAdvantage {
        cu_groups: offsets()?,
        rewards: In::new(&rewards),
        valid: Mask::new(batch.mask()),
        baseline,
        scale,
        singleton: if case.is_multiple_of(3) { Singleton::RawReward } else { Singleton::Zero },
        limit: if case % 4 == 3 { 1.25 } else { f64::INFINITY },
        least_std,
        weights: baseline.needs_weights().then(|| In::new(&batch.weights[..])),
        lengths: (baseline == Baseline::Length).then(|| In::new(&lengths[..])),
        given: baseline.needs_given().then(|| In::new(&batch.advantage[..ROWS])),
        moments: scale.needs_moments().then(|| In::new(&MOMENTS[..])),
        advantage: Out::new(&mut out.element[0]),
        mean: Out::new(mean),
        std: Out::new(std),
        counted: Out::new(&mut out.counts),
        status: Out::new(&mut out.flags),
        pivot: Some(Out::new(&mut pivot)),
    };
    kernel.check()?;
    runner.run(&kernel);
    record.begin(GroupAdvantage::NAME, FIRST + case);
    f32s(record, &out.element[0]);
    f32s(record, &out.row32);
    u32s(record, &out.counts);
    u32s(record, &out.flags);
    u32s(record, &pivot);
    Ok(())
}
