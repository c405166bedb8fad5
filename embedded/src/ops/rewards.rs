//! Rewards before advantages, and advantages after the group op.

use super::{Outputs, alarms, offsets};
use crate::batch::{Batch, ELEMENTS, LENGTHS, ROWS, Range};
use crate::hash::Source;
use crate::record::{Record, bytes, f32s, f64s, u32s};
use crate::{POISON64, Runner};
use lockstep_core::Error;
use lockstep_core::advantage::{EntropyBonus, Order, RoleBaseline, Sharpen, Sharpening};
use lockstep_core::op::Kernel;
use lockstep_core::ragged::{In, Mask, Offsets, Out};
use lockstep_core::reward::{
    Criterion, FilterGroups, MaskSequences, NoveltyBands, ShapeRewards, Shaping, VarianceIncrease,
};

/// A byte that no kernel writes.
const POISON_BYTE: u8 = 0xba;

pub(super) fn run<R: Runner>(runner: &R, source: Source, record: &mut impl Record) -> Result<(), Error> {
    for case in 0..14 {
        let range = [Range::Realistic, Range::Hostile][case as usize / 7];
        let batch = Batch::new(source.fork(case), range, case);
        shape(runner, &batch, case, record)?;
        filter(runner, &batch, case, record)?;
        roles(runner, &batch, case, record)?;
        entropy(runner, &batch, case, record)?;
        sharpen(runner, &batch, source.fork(100 + case), case, record)?;
        if case.is_multiple_of(2) {
            pairs(runner, &batch, source.fork(200 + case), case, record)?;
        }
    }
    Ok(())
}

fn shape<R: Runner>(runner: &R, batch: &Batch, case: u32, record: &mut impl Record) -> Result<(), Error> {
    let mut out = Outputs::poisoned();
    let (mut lengths, mut flags) = ([0; ELEMENTS], [0; ELEMENTS]);
    for i in 0..ELEMENTS {
        (lengths[i], flags[i]) = ((i as u32 * 37) % 300, u8::from(i % 3 == 0));
    }
    let kernel = ShapeRewards {
        cu_groups: offsets()?,
        rewards: In::new(&batch.advantage),
        valid: Mask::new(batch.mask()),
        shaping: [
            Shaping::Overlong { max_length: 200, buffer: 100, factor: 1.0, saturate: false },
            Shaping::Overlong { max_length: 200, buffer: 100, factor: 0.7, saturate: true },
            Shaping::Signs { correct: 0.1, wrong: -1.0 },
            Shaping::Flawed { lambda: 0.3 },
            Shaping::Brevity { limit: 190 },
            Shaping::Preferred,
            Shaping::Brevity { limit: 1 },
        ][case as usize % 7],
        threshold: if case == 6 { -1000.0 } else { 0.5 },
        lengths: Some(In::new(&lengths)),
        flags: Some(In::new(&flags)),
        reference: Some(In::new(&LENGTHS)),
        shaped: Out::new(&mut out.element[0]),
    };
    kernel.check()?;
    runner.run(&kernel);
    record.begin(ShapeRewards::NAME, case);
    f32s(record, &out.element[0]);
    Ok(())
}

fn filter<R: Runner>(runner: &R, batch: &Batch, case: u32, record: &mut impl Record) -> Result<(), Error> {
    let mut out = Outputs::poisoned();
    let mut keep = [POISON_BYTE; ELEMENTS];
    let kernel = FilterGroups {
        cu_groups: offsets()?,
        metric: In::new(&batch.advantage),
        valid: Mask::new(batch.mask()),
        criterion: [
            Criterion::Varied,
            Criterion::Spread { eta: 0.3 },
            Criterion::SolveRate { threshold: 0.0, limit: 0.5 },
            Criterion::Balanced { tau: 0.6 },
            Criterion::Equal { value: 1.0 },
            Criterion::Nonzero,
            Criterion::AtMost { limit: 0.25 },
        ][case as usize % 7],
        keep: Out::new(&mut keep),
        kept: Out::new(&mut out.counts),
        statistic: Out::new(&mut out.row32[..ROWS]),
    };
    kernel.check()?;
    runner.run(&kernel);
    record.begin(FilterGroups::NAME, case);
    bytes(record, &keep);
    u32s(record, &out.counts);
    f32s(record, &out.row32[..ROWS]);

    let mut masked = [POISON_BYTE; ELEMENTS];
    runner.run(&MaskSequences {
        cu_seqlens: offsets()?,
        loss_mask: Mask::new(batch.mask()),
        keep: In::new(&keep[..ROWS]),
        masked: Out::new(&mut masked),
    });
    record.begin(MaskSequences::NAME, case);
    bytes(record, &masked);
    Ok(())
}

fn roles<R: Runner>(runner: &R, batch: &Batch, case: u32, record: &mut impl Record) -> Result<(), Error> {
    let mut out = Outputs::poisoned();
    let (mut state, mut after) = ([0.0; ROWS], [f64::from_bits(POISON64); ROWS]);
    state.iter_mut().enumerate().for_each(|(row, state)| *state = row as f64 / 8.0 - 0.5);
    let kernel = RoleBaseline {
        cu_roles: offsets()?,
        rewards: In::new(&batch.advantage),
        valid: Mask::new(batch.mask()),
        decay: [0.95, 0.5, 1.0, 0.0][case as usize % 4],
        order: [Order::SubtractThenUpdate, Order::UpdateThenSubtract][case as usize % 2],
        state: In::new(&state),
        advantage: Out::new(&mut out.element[0]),
        state_out: Out::new(&mut after),
    };
    kernel.check()?;
    runner.run(&kernel);
    record.begin(RoleBaseline::NAME, case);
    f32s(record, &out.element[0]);
    f64s(record, &after);
    Ok(())
}

fn entropy<R: Runner>(runner: &R, batch: &Batch, case: u32, record: &mut impl Record) -> Result<(), Error> {
    let mut out = Outputs::poisoned();
    let full = case % 2 == 1;
    let kernel = EntropyBonus {
        cu_seqlens: offsets()?,
        loss_mask: Mask::new(batch.mask()),
        advantage: In::new(&batch.advantage),
        per_token: case.is_multiple_of(3),
        source: In::new(if full { &batch.weights } else { &batch.logp }),
        full,
        alpha: [0.4, 2.0][case as usize / 7],
        kappa: [2.0, 0.5, 1.0][case as usize % 3],
        shaped: Out::new(&mut out.element[0]),
        row_alarm: Out::new(&mut out.flags),
    };
    kernel.check()?;
    runner.run(&kernel);
    record.begin(EntropyBonus::NAME, case);
    f32s(record, &out.element[0]);
    alarms(record, &out.flags);
    Ok(())
}

fn sharpen<R: Runner>(
    runner: &R,
    batch: &Batch,
    source: Source,
    case: u32,
    record: &mut impl Record,
) -> Result<(), Error> {
    let mut out = Outputs::poisoned();
    let (mut logp, mut tokens) = ([0.0; ELEMENTS], [0; ELEMENTS]);
    for i in 0..ELEMENTS {
        (logp[i], tokens[i]) = (-10.0 + 6.0 * f64::from(source.signed(i)), [0, 1, 7, 20][i % 4]);
    }
    let kernel = Sharpen {
        cu_groups: offsets()?,
        advantage: In::new(&batch.values),
        rewards: In::new(&batch.advantage),
        valid: Mask::new(batch.mask()),
        threshold: 0.5,
        logp: In::new(&logp),
        logp_ref: None,
        tokens: case.is_multiple_of(2).then(|| In::new(&tokens[..])),
        sharpening: [
            Sharpening::Novelty { lambda: 2.5, kappa: 0.5 },
            Sharpening::Overconfidence { alpha: 1.0, cap: 5.0, relu: false },
            Sharpening::Overconfidence { alpha: 0.5, cap: f64::INFINITY, relu: true },
        ][case as usize % 3],
        sharpened: Out::new(&mut out.element[0]),
    };
    kernel.check()?;
    runner.run(&kernel);
    record.begin(Sharpen::NAME, case);
    f32s(record, &out.element[0]);
    Ok(())
}

/// Groups for ops over pairs: small, for a microcontroller.
const SMALL: [u32; 7] = [0, 1, 3, 3, 11, 13, 21];
const MEMBERS: usize = 21;
const PAIRS: usize = 1 + 4 + 64 + 4 + 64;

fn pairs<R: Runner>(
    runner: &R,
    batch: &Batch,
    source: Source,
    case: u32,
    record: &mut impl Record,
) -> Result<(), Error> {
    let groups = Offsets::new("offsets", &SMALL, MEMBERS, "elements")?;
    let valid = batch.mask().map(|mask| &mask[..MEMBERS]);
    let [mut shaped, mut novelty] = [[f32::from_bits(crate::POISON); MEMBERS]; 2];
    let (mut start, mut similarity) = ([0u64; 6], [0.0; PAIRS]);
    for g in 1..6 {
        start[g] = start[g - 1] + u64::from(SMALL[g] - SMALL[g - 1]).pow(2);
    }
    similarity.iter_mut().enumerate().for_each(|(k, s)| *s = source.signed(k));
    let mut classes = [0; MEMBERS];
    classes.iter_mut().enumerate().for_each(|(i, class)| *class = [1, 1, 0, 2, 0][source.below(i, 5)]);
    let bands = NoveltyBands {
        cu_groups: groups,
        pair_start: In::new(&start),
        similarity: In::new(&similarity),
        classes: In::new(&classes),
        valid: Mask::new(valid),
        mean_weight: 0.5,
        majority: 0.5,
        minority: -1.0,
        width: 0.5,
        invalid: -1.0,
        shaped: Out::new(&mut shaped),
        novelty: Out::new(&mut novelty),
    };
    bands.check()?;
    runner.run(&bands);
    record.begin(NoveltyBands::NAME, case);
    f32s(record, &shaped);
    f32s(record, &novelty);

    let mut logp = [0.0; MEMBERS];
    logp.iter_mut().enumerate().for_each(|(i, x)| *x = -40.0 + 2.0 * f64::from(source.signed(i)));
    let moved = VarianceIncrease {
        cu_groups: groups,
        rewards: In::new(&batch.advantage[..MEMBERS]),
        valid: Mask::new(valid),
        logp: case.is_multiple_of(4).then(|| In::new(&logp[..])),
        low: f64::NEG_INFINITY,
        high: if case == 6 { 3.0 } else { f64::INFINITY },
        margin: 0.25,
        merge_ties: case.is_multiple_of(3),
        shaped: Out::new(&mut shaped),
    };
    moved.check()?;
    runner.run(&moved);
    record.begin(VarianceIncrease::NAME, case);
    f32s(record, &shaped);
    Ok(())
}
