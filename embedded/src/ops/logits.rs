//! `kl_importance`, `value_loss`, and the ops on rows of logits, chained as in a trainer.

use super::{Outputs, alarms, guards, kls, offsets};
use crate::batch::{Batch, ELEMENTS, ROWS, Range};
use crate::hash::Source;
use crate::record::{Record, f32s, f64s, u32s};
use crate::{POISON, POISON64, Runner};
use lockstep_core::Error;
use lockstep_core::aggregate::{PerRow, Weight, WeightFrom};
use lockstep_core::kl_importance::KlImportance;
use lockstep_core::logits::kl::Direction;
use lockstep_core::logits::statistics::{LogitsMoments, STATE};
use lockstep_core::logits::{
    DrawTokens, LogitRows, LogitsGradient, LogitsKl, LogitsStatistics, OtrExact, OtrSampled,
};
use lockstep_core::op::Kernel;
use lockstep_core::ragged::{In, Mask, Out};
use lockstep_core::value_loss::ValueLoss;

/// Rows of logits, of 131 entries each: a chunk and a remainder.
const TOKENS: usize = 5;
const VOCAB: usize = 131;
/// Draws from each row.
const DRAWS: usize = 7;

pub(super) fn run<R: Runner>(runner: &R, source: Source, record: &mut impl Record) -> Result<(), Error> {
    for case in 0..8 {
        let range = [Range::Realistic, Range::Hostile][case as usize / 4];
        let batch = Batch::new(source.fork(case), range, case);
        kl(runner, &batch, case, record)?;
        values(runner, &batch, case, record)?;
        logits(runner, source.fork(100 + case), range == Range::Hostile, case, record)?;
    }
    Ok(())
}

fn kl<R: Runner>(runner: &R, batch: &Batch, case: u32, record: &mut impl Record) -> Result<(), Error> {
    let mut out = Outputs::poisoned();
    let [value, gradient] = &mut out.element;
    let kernel = KlImportance {
        cu_seqlens: offsets()?,
        loss_mask: Mask::new(batch.mask()),
        logp: In::new(&batch.logp),
        logp_old: In::new(&batch.logp_old),
        logp_ref: In::new(&batch.logp_ref),
        kl: kls()[case as usize],
        guard: guards()[case as usize % 5],
        through_ratio: case.is_multiple_of(2),
        value: Some(Out::new(value)),
        gradient: Some(Out::new(gradient)),
        row_sum: Out::new(&mut out.row64[..ROWS]),
        row_alarm: Out::new(&mut out.flags),
    };
    kernel.check()?;
    runner.run(&kernel);
    record.begin(KlImportance::NAME, case);
    out.element.iter().for_each(|values| f32s(record, values));
    f64s(record, &out.row64[..ROWS]);
    alarms(record, &out.flags);
    Ok(())
}

fn values<R: Runner>(runner: &R, batch: &Batch, case: u32, record: &mut impl Record) -> Result<(), Error> {
    let mut out = Outputs::poisoned();
    let mut tokens = [POISON; ROWS];
    let [gradient, token_loss] = &mut out.element;
    let clips = case % 4 != 3;
    let kernel = ValueLoss {
        cu_seqlens: offsets()?,
        loss_mask: Mask::new(batch.mask()),
        values: In::new(&batch.logp),
        values_old: clips.then(|| In::new(&batch.logp_old[..])),
        returns: In::new(&batch.advantage),
        cliprange_value: if clips { 0.2 } else { f32::INFINITY },
        huber_delta: f32::INFINITY,
        weight: Weight { per_row: PerRow::AtLeastOne, denominator: 7.0, scale: 0.5 },
        weight_from: WeightFrom::ABSENT,
        gradient: Out::new(gradient),
        token_loss: case.is_multiple_of(2).then(|| Out::new(token_loss)),
        row_loss: Out::new(&mut out.row_loss),
        row_clipped: Out::new(&mut out.counts),
        row_tokens: Out::new(&mut tokens),
        row_alarm: Out::new(&mut out.flags),
    };
    kernel.check()?;
    runner.run(&kernel);
    record.begin(ValueLoss::NAME, case);
    let wanted = if case.is_multiple_of(2) { 2 } else { 1 };
    out.element.iter().take(wanted).for_each(|values| f32s(record, values));
    f64s(record, &out.row_loss);
    u32s(record, &out.counts);
    u32s(record, &tokens);
    alarms(record, &out.flags);
    Ok(())
}

fn logits<R: Runner>(
    runner: &R,
    source: Source,
    hostile: bool,
    case: u32,
    record: &mut impl Record,
) -> Result<(), Error> {
    let mut z = [0.0; TOKENS * VOCAB];
    for (i, z) in z.iter_mut().enumerate() {
        *z = match source.below(i, 16) {
            0 => f32::NEG_INFINITY,
            1 => 9.0,
            2 if hostile && i % 3 == 0 => f32::from_bits(0x7fc0_0001),
            3 if hostile => -1e30,
            _ => 6.0 * source.fork(1).signed(i),
        };
    }
    let labels = [0, 17, 130, 64, if hostile { 131 } else { 1 }];
    let coef = [1.0, -0.5, 0.0, 1e-6, 2.0];
    let rows = LogitRows {
        logits: In::new(&z),
        rows: TOKENS,
        vocab: VOCAB,
        live: Mask::new(if case.is_multiple_of(2) { None } else { Some(&[1, 1, 0, 7, 1]) }),
    };
    let (single, double) = (f32::from_bits(POISON), f64::from_bits(POISON64));
    let mut of_row = [[single; TOKENS]; 5];
    let (mut top, mut state) = ([POISON; TOKENS], [double; STATE * TOKENS]);
    let mut flags = [POISON; ROWS];
    let temperature = [1.0, 0.7, 2.0][case as usize % 3];
    let [logp, lse, entropy, collision, score_norm] = &mut of_row;
    let moments = case % 4 != 2;
    let kernel = LogitsStatistics {
        rows,
        labels: In::new(&labels),
        temperature,
        logp: Out::new(logp),
        lse: Out::new(lse),
        top: Out::new(&mut top),
        moments: moments.then(|| LogitsMoments {
            entropy: Out::new(entropy),
            collision: Out::new(collision),
            score_norm: Out::new(score_norm),
        }),
        state: Out::new(&mut state),
        row_alarm: Out::new(&mut flags[..TOKENS]),
    };
    kernel.check()?;
    runner.run(&kernel);
    record.begin(LogitsStatistics::NAME, case);
    of_row.iter().take(if moments { 5 } else { 2 }).for_each(|values| f32s(record, values));
    u32s(record, &top);
    f64s(record, &state);
    alarms(record, &flags[..TOKENS]);

    let mut gradient = [single; ELEMENTS];
    let kernel = LogitsGradient {
        rows,
        labels: In::new(&labels),
        temperature,
        state: In::new(&state),
        coef: In::new(&coef),
        coef_entropy: moments.then(|| In::new(&[-0.001f32, 0.0, 0.5, -1.0, 0.25][..])),
        gradient: Out::new(&mut gradient[..TOKENS * VOCAB]),
        row_alarm: Out::new(&mut flags[..TOKENS]),
    };
    kernel.check()?;
    runner.run(&kernel);
    record.begin(LogitsGradient::NAME, case);
    f32s(record, &gradient[..TOKENS * VOCAB]);
    alarms(record, &flags[..TOKENS]);

    let mut loss = [single; TOKENS];
    let kernel = OtrExact {
        rows,
        labels: In::new(&labels),
        kappa: temperature,
        beta: [0.0, -0.1, 1.0, 0.5][case as usize % 4],
        coef: In::new(&coef),
        loss: Out::new(&mut loss),
        gradient: Some(Out::new(&mut gradient[..TOKENS * VOCAB])),
        row_alarm: Out::new(&mut flags[..TOKENS]),
    };
    kernel.check()?;
    runner.run(&kernel);
    record.begin(OtrExact::NAME, case);
    f32s(record, &loss);
    f32s(record, &gradient[..TOKENS * VOCAB]);
    alarms(record, &flags[..TOKENS]);

    let mut tokens = [POISON; TOKENS * DRAWS];
    let kernel = DrawTokens {
        rows,
        temperature,
        draws: DRAWS,
        seed: 99 + u64::from(case),
        first: u64::from(case) << 33,
        tokens: Out::new(&mut tokens),
        row_alarm: Out::new(&mut flags[..TOKENS]),
    };
    kernel.check()?;
    runner.run(&kernel);
    record.begin(DrawTokens::NAME, case);
    u32s(record, &tokens);
    alarms(record, &flags[..TOKENS]);

    let kernel = OtrSampled {
        rows,
        labels: In::new(&labels),
        candidates: In::new(&tokens),
        draws: DRAWS,
        beta: [0.0, -0.1, 1.0, 0.5][case as usize % 4],
        coef: In::new(&coef),
        loss: Out::new(&mut loss),
        gradient: Some(Out::new(&mut gradient[..TOKENS * VOCAB])),
        row_alarm: Out::new(&mut flags[..TOKENS]),
    };
    kernel.check()?;
    runner.run(&kernel);
    record.begin(OtrSampled::NAME, case);
    f32s(record, &loss);
    f32s(record, &gradient[..TOKENS * VOCAB]);
    alarms(record, &flags[..TOKENS]);

    let mut reference = [0.0; TOKENS * VOCAB];
    for (i, q) in reference.iter_mut().enumerate() {
        *q = if z[i].is_finite() { z[i] + 0.25 * source.fork(2).signed(i) } else { z[i] };
    }
    let directions = [Direction::Policy, Direction::Reference];
    let kernel = LogitsKl {
        rows,
        reference: In::new(&reference),
        direction: directions[case as usize / 2 % 2],
        temperature,
        coef: In::new(&coef),
        value: Out::new(&mut loss),
        gradient: (case % 4 != 1).then(|| Out::new(&mut gradient[..TOKENS * VOCAB])),
        row_alarm: Out::new(&mut flags[..TOKENS]),
    };
    kernel.check()?;
    runner.run(&kernel);
    record.begin(LogitsKl::NAME, case);
    f32s(record, &loss);
    f32s(record, &gradient[..TOKENS * VOCAB]);
    alarms(record, &flags[..TOKENS]);
    Ok(())
}
