//! `rollout_mismatch`, `rollout_correction` and `normalize_weights`, chained as in a trainer.

use super::{Outputs, alarms, offsets};
use crate::batch::{Batch, ELEMENTS, ROWS, Range};
use crate::hash::Source;
use crate::record::{Record, bytes, f32s, f64s, u32s};
use crate::{POISON, POISON64, Runner};
use lockstep_core::Error;
use lockstep_core::correction::{K1Band, Rejections, Rule, Statistic, WeightLevel};
use lockstep_core::correction::{NormalizeWeights, RolloutCorrection, RolloutMismatch, mismatch, weights};
use lockstep_core::op::Kernel;
use lockstep_core::ragged::{In, Mask, Out};

pub(super) fn run<R: Runner>(runner: &R, source: Source, record: &mut impl Record) -> Result<(), Error> {
    for case in 0..20 {
        let batch = Batch::new(source.fork(case), Range::ALL[case as usize % 5], case);
        apart(runner, &batch, case, record)?;
        correct(runner, &batch, case, record)?;
    }
    Ok(())
}

const BOUNDS: [f32; 3] = [20.0, 5.0, f32::INFINITY];

fn apart<R: Runner>(runner: &R, batch: &Batch, case: u32, record: &mut impl Record) -> Result<(), Error> {
    let mut out = Outputs::poisoned();
    let mut sums = [f64::from_bits(POISON64); mismatch::sum::SUMS * ROWS];
    let kernel = RolloutMismatch {
        cu_seqlens: offsets()?,
        loss_mask: Mask::new(batch.mask()),
        logp_old: In::new(&batch.logp),
        logp_rollout: In::new(&batch.logp_old),
        bound: BOUNDS[case as usize % 3],
        row_sums: Out::new(&mut sums),
        row_maxima: Out::new(&mut out.row32),
        row_tokens: Out::new(&mut out.counts),
        row_alarm: Out::new(&mut out.flags),
    };
    kernel.check()?;
    runner.run(&kernel);
    record.begin(RolloutMismatch::NAME, case);
    f64s(record, &sums);
    f32s(record, &out.row32);
    u32s(record, &out.counts);
    alarms(record, &out.flags);
    Ok(())
}

fn correct<R: Runner>(runner: &R, batch: &Batch, case: u32, record: &mut impl Record) -> Result<(), Error> {
    let mut out = Outputs::poisoned();
    let mut sums = [f64::from_bits(POISON64); weights::sum::SUMS * ROWS];
    let mut maxima = [f32::from_bits(POISON); 4 * ROWS];
    let (mut kept, mut row_kept) = ([0xbd; ELEMENTS], [0xbd; ROWS]);
    let [first, second] =
        [case as usize, case as usize * 7 + 3].map(|k| Statistic::ALL[k % Statistic::ALL.len()]);
    let with = |all: Rejections, statistic: Statistic| {
        all.with(statistic, None, if statistic.is_k1() { 3.0 } else { 0.2 }, K1Band::Rho)
    };
    let rejections =
        if case % 4 == 3 { Rejections::NONE } else { with(with(Rejections::NONE, first)?, second)? };
    let [first_out, second_out] = &mut out.element;
    let kernel = RolloutCorrection {
        cu_seqlens: offsets()?,
        loss_mask: Mask::new(batch.mask()),
        logp_old: In::new(&batch.logp),
        logp_rollout: In::new(&batch.logp_old),
        level: [WeightLevel::Token, WeightLevel::Sequence, WeightLevel::Geometric, WeightLevel::One]
            [case as usize % 4],
        rule: [Rule::Truncate, Rule::Mask, Rule::Plain][case as usize % 3],
        band: [0.7, 1.3],
        bounded_below: case.is_multiple_of(2),
        bound: BOUNDS[case as usize % 3],
        rejections,
        weights: Out::new(first_out),
        kept_mask: Out::new(&mut kept),
        row_kept: Out::new(&mut row_kept),
        row_sums: Out::new(&mut sums),
        row_maxima: Out::new(&mut maxima),
        row_alarm: Out::new(&mut out.flags),
    };
    kernel.check()?;
    runner.run(&kernel);
    record.begin(RolloutCorrection::NAME, case);
    f32s(record, first_out);
    bytes(record, &kept);
    bytes(record, &row_kept);
    f64s(record, &sums);
    f32s(record, &maxima);
    alarms(record, &out.flags);

    runner.run(&NormalizeWeights {
        cu_seqlens: offsets()?,
        loss_mask: Mask::new(batch.mask()),
        weights: In::new(first_out),
        totals: In::new(&sums),
        numerator: (weights::sum::WEIGHT * ROWS + 4) as u32,
        denominator: (weights::sum::TOKENS * ROWS + 4) as u32,
        normalized: Out::new(second_out),
    });
    record.begin(NormalizeWeights::NAME, case);
    f32s(record, second_out);
    Ok(())
}
