//! `row_moments`, `fold_moments` and `whiten`, chained as in a trainer; `discounted_return`, `pass_at_k` and
//! `combine`.

use super::{Outputs, alarms, offsets};
use crate::batch::{Batch, ELEMENTS, ROWS, Range};
use crate::hash::Source;
use crate::record::{Record, f32s, f64s, u32s};
use crate::{POISON64, Runner};
use lockstep_core::Error;
use lockstep_core::advantage::{Combine, DiscountedReturn, Divisor, PassAtK, Whiten};
use lockstep_core::aggregate::moments::MOMENTS;
use lockstep_core::aggregate::{FoldMoments, RowMoments};
use lockstep_core::op::Kernel;
use lockstep_core::ragged::{In, Mask, Out};

pub(super) fn run<R: Runner>(runner: &R, source: Source, record: &mut impl Record) -> Result<(), Error> {
    for case in 0..12 {
        let range = [Range::Realistic, Range::Hostile][case as usize / 6];
        let batch = Batch::new(source.fork(case), range, case);
        let moments = moments(runner, &batch, case, record)?;
        whiten(runner, &batch, moments, case, record)?;
        discounted(runner, &batch, case, record)?;
        pass_at_k(runner, &batch, case, record)?;
        combine(runner, &batch, case, record)?;
    }
    Ok(())
}

fn moments<R: Runner>(
    runner: &R,
    batch: &Batch,
    case: u32,
    record: &mut impl Record,
) -> Result<[f64; MOMENTS], Error> {
    let mut out = Outputs::poisoned();
    let per_row = case % 4 == 3;
    let mut rows = [f64::from_bits(POISON64); MOMENTS * ROWS];
    runner.run(&RowMoments {
        offsets: offsets()?,
        mask: Mask::new(batch.mask()),
        values: In::new(if per_row { &batch.advantage[..ROWS] } else { &batch.values[..] }),
        per_row,
        nan_is_missing: case.is_multiple_of(2),
        row_moments: Out::new(&mut rows),
        row_alarm: Out::new(&mut out.flags),
    });
    record.begin(RowMoments::NAME, case);
    f64s(record, &rows);
    alarms(record, &out.flags);
    let mut moments = [f64::from_bits(POISON64); MOMENTS];
    runner.run(&FoldMoments { row_moments: In::new(&rows), rows: ROWS, moments: Out::new(&mut moments) });
    record.begin(FoldMoments::NAME, case);
    f64s(record, &moments);
    Ok(moments)
}

fn whiten<R: Runner>(
    runner: &R,
    batch: &Batch,
    moments: [f64; MOMENTS],
    case: u32,
    record: &mut impl Record,
) -> Result<(), Error> {
    let mut out = Outputs::poisoned();
    let kernel = Whiten {
        offsets: offsets()?,
        mask: Mask::new(batch.mask()),
        values: In::new(&batch.values),
        nan_is_missing: case.is_multiple_of(2),
        moments: In::new(&moments),
        centre: case % 5 != 3,
        divisor: [Divisor::Inside, Divisor::Floor, Divisor::Outside][case as usize % 3],
        ddof: 1 - case % 2,
        eps: [1e-8, 1e-4][case as usize / 6],
        whitened: Out::new(&mut out.element[0]),
        row_alarm: Out::new(&mut out.flags),
    };
    kernel.check()?;
    runner.run(&kernel);
    record.begin(Whiten::NAME, case);
    f32s(record, &out.element[0]);
    alarms(record, &out.flags);
    Ok(())
}

fn discounted<R: Runner>(
    runner: &R,
    batch: &Batch,
    case: u32,
    record: &mut impl Record,
) -> Result<(), Error> {
    let mut out = Outputs::poisoned();
    let kernel = DiscountedReturn {
        cu_seqlens: offsets()?,
        loss_mask: Mask::new(batch.mask()),
        rewards: In::new(&batch.values),
        gamma: [1.0, 0.9, 0.999, 0.0][case as usize % 4],
        returns: Out::new(&mut out.element[0]),
    };
    kernel.check()?;
    runner.run(&kernel);
    record.begin(DiscountedReturn::NAME, case);
    f32s(record, &out.element[0]);
    Ok(())
}

fn pass_at_k<R: Runner>(runner: &R, batch: &Batch, case: u32, record: &mut impl Record) -> Result<(), Error> {
    let mut out = Outputs::poisoned();
    let kernel = PassAtK {
        cu_groups: offsets()?,
        rewards: In::new(&batch.advantage),
        valid: Mask::new(batch.mask()),
        k: [1, 2, 4, 8, 100, 1000][case as usize % 6],
        threshold: 0.5,
        advantage: Out::new(&mut out.element[0]),
        pass_at_k: Out::new(&mut out.row32[..ROWS]),
        counted: Out::new(&mut out.counts),
    };
    kernel.check()?;
    runner.run(&kernel);
    record.begin(PassAtK::NAME, case);
    f32s(record, &out.element[0]);
    f32s(record, &out.row32[..ROWS]);
    u32s(record, &out.counts);
    Ok(())
}

fn combine<R: Runner>(runner: &R, batch: &Batch, case: u32, record: &mut impl Record) -> Result<(), Error> {
    let mut out = Outputs::poisoned();
    let mut components = [0.0; 2 * ELEMENTS];
    components[..ELEMENTS].copy_from_slice(&batch.values);
    components[ELEMENTS..].copy_from_slice(&batch.advantage);
    let weights = [0.5, 1.5 - case as f32];
    runner.run(&Combine {
        cu_groups: offsets()?,
        components: In::new(&components),
        weights: In::new(&weights),
        combined: Out::new(&mut out.element[0]),
    });
    record.begin(Combine::NAME, case);
    f32s(record, &out.element[0]);
    Ok(())
}
