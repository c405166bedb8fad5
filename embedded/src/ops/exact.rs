//! `exact_sum` and `exact_sum_f32`, and the exact accumulators on the same values.

use crate::batch::garbage;
use crate::hash::Source;
use crate::record::{Record, f64s};
use crate::{Op, POISON64, Runner};
use lockstep_core::Error;
use lockstep_core::aggregate::exact_sum::{self, BLOCK, Summand};
use lockstep_core::aggregate::{ExactDigits, ExactMoments, ExactSum};
use lockstep_core::op::Kernel;
use lockstep_core::ragged::{In, Mask, Out};

/// Values per launch; a block holds more, so one block covers one row.
const LENGTH: usize = 300;
const _: () = assert!(LENGTH <= BLOCK);

pub(super) fn run<R: Runner>(runner: &R, source: Source, record: &mut impl Record) -> Result<(), Error> {
    for case in 0..6 {
        let source = source.fork(case);
        let mask: [u8; LENGTH] = core::array::from_fn(|i| source.below(i, 4) as u8);
        let mask = (case % 3 != 0).then_some(&mask[..]);
        doubles(runner, source.fork(1), mask, case, record)?;
        singles(runner, source.fork(2), mask, case, record)?;
    }
    Ok(())
}

fn doubles<R: Runner>(
    runner: &R,
    source: Source,
    mask: Option<&[u8]>,
    case: u32,
    record: &mut impl Record,
) -> Result<(), Error> {
    // Any bits, or numbers of ordinary magnitude.
    let value = |i: usize| match case % 2 {
        0 => f64::from_bits(source.bits(i)),
        _ => f64::from(source.spread(i)) * f64::from(source.fork(1).spread(i)),
    };
    let values: [f64; LENGTH] = core::array::from_fn(value);
    let mut digits = [f64::from_bits(POISON64); exact_sum::digits::<f64>(LENGTH)];
    launch(runner, &values, mask, false, &mut digits)?;
    record.begin(<ExactDigits<'_, f64>>::NAME, case);
    f64s(record, &digits);
    let (sum, count) = ExactSum::from_digits::<f64>(&digits)?;
    let live = (0..LENGTH).filter(|i| mask.is_none_or(|mask| mask[*i] != 0));
    let added: ExactSum = live.map(|i| values[i]).collect();
    f64s(record, &[sum.finish(), added.finish(), count as f64]);
    Ok(())
}

fn singles<R: Runner>(
    runner: &R,
    source: Source,
    mask: Option<&[u8]>,
    case: u32,
    record: &mut impl Record,
) -> Result<(), Error> {
    let hostile = |i: usize| if source.below(i, 32) == 0 { garbage(i) } else { source.pattern(i) };
    let value = |i: usize| if case.is_multiple_of(2) { hostile(i) } else { source.spread(i) };
    let values: [f32; LENGTH] = core::array::from_fn(value);
    for square in [false, true] {
        let mut digits = [f64::from_bits(POISON64); exact_sum::digits::<f32>(LENGTH)];
        launch(runner, &values, mask, square, &mut digits)?;
        record.begin(<ExactDigits<'_, f32>>::NAME, 2 * case + u32::from(square));
        f64s(record, &digits);
    }
    let live = (0..LENGTH).filter(|i| mask.is_none_or(|mask| mask[*i] != 0));
    let moments: ExactMoments = live.map(|i| values[i]).collect();
    f64s(record, &moments.moments());
    Ok(())
}

fn launch<R: Runner, V: Summand + Sync>(
    runner: &R,
    values: &[V],
    mask: Option<&[u8]>,
    square: bool,
    digits: &mut [f64],
) -> Result<(), Error>
where
    for<'a> ExactDigits<'a, V>: Op,
{
    let kernel =
        ExactDigits { values: In::new(values), mask: Mask::new(mask), square, digits: Out::new(digits) };
    kernel.check()?;
    runner.run(&kernel);
    Ok(())
}
