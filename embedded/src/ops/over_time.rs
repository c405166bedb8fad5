//! `gae`, `vtrace`, `step_return` and `optimal_token_baseline`.

use super::{Outputs, alarms, offsets};
use crate::Runner;
use crate::batch::{Batch, ELEMENTS, ROWS, Range};
use crate::hash::Source;
use crate::record::{Record, f32s};
use lockstep_core::Error;
use lockstep_core::advantage::{Gae, OptimalTokenBaseline, StepReturn, VTrace};
use lockstep_core::op::Kernel;
use lockstep_core::ragged::{In, Mask, Offsets, Out};

pub(super) fn run<R: Runner>(runner: &R, source: Source, record: &mut impl Record) -> Result<(), Error> {
    for case in 0..12 {
        let range = [Range::Realistic, Range::Wide, Range::Hostile][case as usize / 4];
        let batch = Batch::new(source.fork(case), range, case);
        let mut truncated = [0; ROWS];
        for (row, truncated) in truncated.iter_mut().enumerate() {
            *truncated = (row as u8 + case as u8) % 3;
        }
        gae(runner, &batch, &truncated, case, record)?;
        vtrace(runner, &batch, &truncated, case, record)?;
        steps(runner, &batch, case, record)?;
        baseline(runner, &batch, case, record)?;
    }
    Ok(())
}

fn gae<R: Runner>(
    runner: &R,
    batch: &Batch,
    truncated: &[u8; ROWS],
    case: u32,
    record: &mut impl Record,
) -> Result<(), Error> {
    let mut out = Outputs::poisoned();
    let [advantage, returns] = &mut out.element;
    let kernel = Gae {
        cu_seqlens: offsets()?,
        loss_mask: Mask::new(batch.mask()),
        rewards: In::new(&batch.values),
        values: In::new(&batch.advantage),
        bootstrap: (case % 2 == 1).then(|| In::new(&batch.advantage[..ROWS])),
        truncated: Mask::new(Some(truncated)),
        gamma: [1.0, 0.99, 0.5, 0.0][case as usize % 4],
        lambda: [0.95, 1.0, 0.0][case as usize % 3],
        length_alpha: (case % 5 == 2).then_some(0.05),
        advantage: (case % 6 != 4).then(|| Out::new(advantage)),
        returns: (case % 6 != 5).then(|| Out::new(returns)),
        row_alarm: Out::new(&mut out.flags),
    };
    kernel.check()?;
    runner.run(&kernel);
    record.begin(Gae::NAME, case);
    results(record, &out, [case % 6 != 4, case % 6 != 5]);
    Ok(())
}

fn vtrace<R: Runner>(
    runner: &R,
    batch: &Batch,
    truncated: &[u8; ROWS],
    case: u32,
    record: &mut impl Record,
) -> Result<(), Error> {
    let mut out = Outputs::poisoned();
    let [vs, advantage] = &mut out.element;
    let bound = [1.0, 2.0, f64::INFINITY][case as usize % 3];
    let kernel = VTrace {
        cu_seqlens: offsets()?,
        loss_mask: Mask::new(batch.mask()),
        logp: In::new(&batch.logp),
        logp_rollout: In::new(&batch.logp_old),
        rewards: In::new(&batch.values),
        values: In::new(&batch.advantage),
        bootstrap: case.is_multiple_of(2).then(|| In::new(&batch.advantage[..ROWS])),
        truncated: Mask::new(Some(truncated)),
        gamma: [1.0, 0.99, 0.5][case as usize % 3],
        lambda: [1.0, 0.95][case as usize % 2],
        rho_bar: bound,
        rho_pg: bound,
        c_bar: 1.0,
        vs: Out::new(vs),
        advantage: Out::new(advantage),
        row_alarm: Out::new(&mut out.flags),
    };
    kernel.check()?;
    runner.run(&kernel);
    record.begin(VTrace::NAME, case);
    results(record, &out, [true; 2]);
    Ok(())
}

fn steps<R: Runner>(runner: &R, batch: &Batch, case: u32, record: &mut impl Record) -> Result<(), Error> {
    let mut out = Outputs::poisoned();
    let mut matches = [0; ELEMENTS];
    for (i, matches) in matches.iter_mut().enumerate() {
        // Every fifth, or seventeenth, step does not match.
        *matches = ((i as u32 + case) % [5, 17][case as usize % 2]) as u8;
    }
    let kernel = StepReturn {
        cu_steps: offsets()?,
        rewards: In::new(&batch.advantage),
        matches: In::new(&matches),
        gamma: [0.5, 0.9, 1.0, 0.0][case as usize % 4],
        include_first_mismatch: case % 3 == 1,
        returns: Out::new(&mut out.element[0]),
    };
    kernel.check()?;
    runner.run(&kernel);
    record.begin(StepReturn::NAME, case);
    f32s(record, &out.element[0]);
    Ok(())
}

fn baseline<R: Runner>(runner: &R, batch: &Batch, case: u32, record: &mut impl Record) -> Result<(), Error> {
    let mut out = Outputs::poisoned();
    let cu_groups = [0, 4, 5, 5, 9, ROWS as u32];
    let (offsets, mask) = (offsets()?, Mask::new(batch.mask()));
    let live: [u32; ROWS] = core::array::from_fn(|s| {
        let span = offsets.span(s);
        (span.start..span.end).filter(|i| mask.at(*i)).count() as u32
    });
    let kernel = OptimalTokenBaseline {
        cu_groups: Offsets::new("cu_groups", &cu_groups, ROWS, "sequences")?,
        cu_seqlens: offsets,
        loss_mask: mask,
        returns: In::new(&batch.advantage),
        weights: In::new(&batch.weights),
        eps: [1e-8, 0.0][case as usize % 2],
        lone_tail: (case % 3 == 1).then(|| In::new(&live)),
        advantage: Out::new(&mut out.element[0]),
    };
    kernel.check()?;
    runner.run(&kernel);
    record.begin(OptimalTokenBaseline::NAME, case);
    f32s(record, &out.element[0]);
    Ok(())
}

/// Records the requested results and the alarms.
fn results(record: &mut impl Record, out: &Outputs, wanted: [bool; 2]) {
    for (values, _) in out.element.iter().zip(wanted).filter(|(_, wanted)| *wanted) {
        f32s(record, values);
    }
    alarms(record, &out.flags);
}
