//! `aggregate`, `row_scan` and `fold_rows`.

use super::{Outputs, alarms, offsets};
use crate::batch::{Batch, Range};
use crate::hash::Source;
use crate::record::{Record, f32s, f64s, u32s};
use crate::{POISON64, Runner};
use lockstep_core::Error;
use lockstep_core::aggregate::{Aggregate, FoldRows, RowScan};
use lockstep_core::op::Kernel;
use lockstep_core::ragged::{In, Mask, Out};
use lockstep_core::team::Direction;

pub(super) fn run<R: Runner>(runner: &R, source: Source, record: &mut impl Record) -> Result<(), Error> {
    for case in 0..12 {
        let range = [Range::Realistic, Range::Hostile][case as usize / 6];
        let batch = Batch::new(source.fork(case), range, case);
        aggregate(runner, &batch, case, record)?;
        scan(runner, &batch, case, record)?;
    }
    fold(runner, source.fork(12), record);
    Ok(())
}

fn aggregate<R: Runner>(runner: &R, batch: &Batch, case: u32, record: &mut impl Record) -> Result<(), Error> {
    let mut out = Outputs::poisoned();
    runner.run(&Aggregate {
        cu_seqlens: offsets()?,
        loss_mask: Mask::new(batch.mask()),
        values: (case % 4 != 3).then(|| In::new(&batch.values[..])),
        row_sum: Out::new(&mut out.row_loss),
        row_tokens: Out::new(&mut out.counts),
        row_alarm: Out::new(&mut out.flags),
    });
    record.begin(Aggregate::NAME, case);
    f64s(record, &out.row_loss);
    u32s(record, &out.counts);
    alarms(record, &out.flags);
    Ok(())
}

fn scan<R: Runner>(runner: &R, batch: &Batch, case: u32, record: &mut impl Record) -> Result<(), Error> {
    for direction in [Direction::Prefix, Direction::Suffix] {
        let mut out = Outputs::poisoned();
        runner.run(&RowScan {
            cu_seqlens: offsets()?,
            loss_mask: Mask::new(batch.mask()),
            values: In::new(&batch.values),
            direction,
            scanned: Out::new(&mut out.element[0]),
        });
        record.begin(RowScan::NAME, 2 * case + direction as u32);
        f32s(record, &out.element[0]);
    }
    Ok(())
}

/// Number of statistics in one launch of `fold_rows`.
const STATISTICS: usize = 5;
/// Rows of the largest launch.
const LARGEST: usize = 150;

fn fold<R: Runner>(runner: &R, source: Source, record: &mut impl Record) {
    for (case, rows) in [0, 1, 2, 31, 33, 128, 129, LARGEST].into_iter().enumerate() {
        let source = source.fork(case as u32);
        let mut partials = [0.0; STATISTICS * LARGEST];
        for (i, partial) in partials.iter_mut().enumerate() {
            let tail = f64::from(source.fork(1).spread(i)) / 16_777_216.0;
            *partial = f64::from(source.spread(i)) + tail;
        }
        // One statistic holds the largest number or infinity, another a signalling NaN.
        partials[rows] = [1.0, f64::MAX, f64::INFINITY][case % 3];
        partials[2 * rows] = [1.0, f64::from_bits(0xfff4_0000_0000_0001)][case % 2];
        let mut totals = [f64::from_bits(POISON64); STATISTICS];
        let partials = In::new(&partials[..STATISTICS * rows]);
        runner.run(&FoldRows { partials, rows, totals: Out::new(&mut totals) });
        record.begin(FoldRows::NAME, case as u32);
        f64s(record, &totals);
    }
}
