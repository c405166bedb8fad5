//! `batch_counts`, a loss that reads its counts, and `loss_totals`, chained as in a trainer.

use super::{BAND, Outputs, alarms, offsets};
use crate::batch::{Batch, ROWS, Range};
use crate::hash::Source;
use crate::record::{Record, f32s, f64s, u32s};
use crate::{POISON, POISON64, Runner};
use lockstep_core::Error;
use lockstep_core::aggregate::totals::COUNTS;
use lockstep_core::aggregate::{BatchCounts, LossTotals, MetricTotals, PerRow, Weight, WeightFrom};
use lockstep_core::gate::Reinforce;
use lockstep_core::op::Kernel;
use lockstep_core::policy_loss::{LossOut, MetricsOut, PolicyLoss, sum};
use lockstep_core::ragged::{In, Mask, Out};
use lockstep_core::ratio::{Guard, Level};

/// The largest number of parts in a case.
const PARTS: usize = 16;

/// Per part: live tokens, sequences with live tokens, the longest sequence.
type Counted = [[u64; PARTS]; 3];

pub(super) fn run<R: Runner>(runner: &R, source: Source, record: &mut impl Record) -> Result<(), Error> {
    for case in 0..8 {
        let batch = Batch::new(source.fork(case), Range::ALL[case as usize % 5], case);
        let parts = [1, 3, ROWS, PARTS][case as usize % 4];
        let mut counted = [[POISON64; PARTS]; 3];
        counts(runner, &batch, parts, &mut counted)?;
        record.begin(BatchCounts::NAME, case);
        counted.iter().for_each(|values| words(record, &values[..parts]));
        let mut out = Outputs::poisoned();
        loss(runner, &batch, &counted, parts, case, &mut out)?;
        record.begin(PolicyLoss::<Reinforce>::NAME, 100 + case);
        f32s(record, &out.element[0]);
        f64s(record, &out.row_loss);
        alarms(record, &out.flags);
        totals(runner, source.fork(100 + case), &out, case, record)?;
    }
    Ok(())
}

/// Records counts, the lower half of each first.
fn words(record: &mut impl Record, values: &[u64]) {
    values.iter().for_each(|value| u32s(record, &[*value as u32, (*value >> 32) as u32]));
}

fn counts<R: Runner>(runner: &R, batch: &Batch, parts: usize, counted: &mut Counted) -> Result<(), Error> {
    let [tokens, nonempty, longest] = counted.each_mut().map(|part| Out::new(&mut part[..parts]));
    let (cu_seqlens, loss_mask) = (offsets()?, Mask::new(batch.mask()));
    let kernel = BatchCounts { cu_seqlens, loss_mask, parts, tokens, nonempty, longest };
    kernel.check()?;
    runner.run(&kernel);
    Ok(())
}

fn loss<R: Runner>(
    runner: &R,
    batch: &Batch,
    counted: &Counted,
    parts: usize,
    case: u32,
    out: &mut Outputs,
) -> Result<(), Error> {
    let [tokens, nonempty, longest] = counted.each_ref().map(|part| In::new(&part[..parts]));
    // Alternates Dr.GRPO with the width of the padded batch, token-mean, and a mean of means.
    let (per_row, denominator, horizon) = match case % 3 {
        0 => (PerRow::Constant(1.0), nonempty, Some(longest)),
        1 => (PerRow::One, tokens, None),
        _ => (PerRow::AtLeastOne, nonempty, None),
    };
    let kernel = PolicyLoss {
        cu_seqlens: offsets()?,
        loss_mask: Mask::new(batch.mask()),
        logp: In::new(&batch.logp),
        logp_old: In::new(&batch.logp_old),
        logp_second: None,
        advantage: In::new(&batch.advantage[..ROWS]),
        advantage_per_token: false,
        weights: None,
        level: Level::Token,
        guard: Guard::clamp(Guard::LOG_RATIO_CLAMP),
        gate: Reinforce,
        kl: None,
        weight: Weight { per_row, denominator: 0.0, scale: 1.0 },
        weight_from: WeightFrom { denominator: Some(denominator), horizon },
        coef: Out::new(&mut out.element[0]),
        loss: Some(LossOut { token_loss: None, row_loss: Out::new(&mut out.row_loss) }),
        row_tokens: Out::new(&mut out.counts),
        row_alarm: Out::new(&mut out.flags),
        metrics: Some(MetricsOut {
            row_sums: Out::new(&mut out.row64),
            row_maxima: Out::new(&mut out.row32),
            band: BAND,
        }),
    };
    kernel.check()?;
    runner.run(&kernel);
    Ok(())
}

fn totals<R: Runner>(
    runner: &R,
    source: Source,
    rows: &Outputs,
    case: u32,
    record: &mut impl Record,
) -> Result<(), Error> {
    let (mut loss, mut counts, mut alarm) = ([f64::from_bits(POISON64)], [POISON64; COUNTS], [POISON]);
    let (mut sums, mut maxima) = ([f64::from_bits(POISON64); sum::SUMS], [f32::from_bits(POISON); 2]);
    // An alarm's value is unspecified, so other values are used here.
    let alarms: [u32; ROWS] = core::array::from_fn(|row| source.bits(row) as u32);
    let kernel = LossTotals {
        row_loss: In::new(&rows.row_loss),
        row_tokens: In::new(&rows.counts),
        row_alarm: In::new(&alarms),
        loss: Out::new(&mut loss),
        counts: Out::new(&mut counts),
        alarm: Out::new(&mut alarm),
        metrics: (!case.is_multiple_of(4)).then(|| MetricTotals {
            row_sums: In::new(&rows.row64),
            row_maxima: In::new(&rows.row32),
            sums: Out::new(&mut sums),
            maxima: Out::new(&mut maxima),
        }),
    };
    kernel.check()?;
    runner.run(&kernel);
    record.begin(LossTotals::NAME, case);
    f64s(record, &loss);
    words(record, &counts);
    u32s(record, &alarm);
    if !case.is_multiple_of(4) {
        f64s(record, &sums);
        f32s(record, &maxima);
    }
    Ok(())
}
