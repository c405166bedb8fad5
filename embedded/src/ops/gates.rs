//! GMPO, gates with a second policy, precomputed log-ratios, per-sequence weights, and the selection of the n
//! largest.

use super::policy::{self, Wanted};
use super::{BAND, Outputs, alarms, guards, offsets};
use crate::batch::{Batch, ELEMENTS, ROWS, Range};
use crate::hash::Source;
use crate::record::{Record, f32s, f64s, u32s};
use crate::{POISON, Runner};
use lockstep_core::Error;
use lockstep_core::aggregate::moments::MOMENTS;
use lockstep_core::gate::{Divergence, MiniRl, PpoClip, Remix, TrustRegion};
use lockstep_core::op::Kernel;
use lockstep_core::policy_loss::gmpo::Mean;
use lockstep_core::policy_loss::{MetricsOut, PolicyLossGmpo, SequenceRule, SequenceWeight};
use lockstep_core::ragged::{In, Mask, Out};
use lockstep_core::select::{
    ClipTest, Covariance, DIGITS, DigitCounts, NarrowDigits, Order, SHIFTS, SelectTop, SelectionKey,
};

pub(super) fn run<R: Runner>(runner: &R, source: Source, record: &mut impl Record) -> Result<(), Error> {
    let mini = |clip_ratio_low, clip_ratio_high, clip_ratio_c| MiniRl {
        clip_ratio_low,
        clip_ratio_high,
        clip_ratio_c,
    };
    let gates = [mini(0.2, 0.27, 5.0), mini(0.0, 0.0, 1.5), mini(1.0, 4.0, 10.0)];
    policy::gates(runner, source.fork(1), gates, record)?;
    let remix = |clip_ratio_low, clip_ratio_high| Remix { clip_ratio_low, clip_ratio_high };
    policy::gates(runner, source.fork(2), [remix(0.2, 0.2), remix(0.0, 0.0), remix(0.05, 4.0)], record)?;
    let trust = |divergence, [clip_ratio_low, clip_ratio_high, clip_ratio_c]: [f32; 3]| TrustRegion {
        divergence,
        clip_ratio_low,
        clip_ratio_high,
        clip_ratio_c,
    };
    let gates = [
        trust(Divergence::TotalVariation, [0.15, 0.2, 3.0]),
        trust(Divergence::BinaryKl, [0.05, 0.05, 3.0]),
        trust(Divergence::BinaryKl, [0.0, 0.3, 1.5]),
    ];
    policy::gates(runner, source.fork(3), gates, record)?;
    for case in 0..12 {
        let range = Range::ALL[case as usize % 5];
        let batch = Batch::new(source.fork(100 + case), range, case);
        gmpo(runner, &batch, case, record)?;
        sequence_weight(runner, &batch, case, record)?;
        let keys = keys(runner, &batch, case, record)?;
        select(runner, &batch, &keys, case, record)?;
    }
    Ok(())
}

fn gmpo<R: Runner>(runner: &R, batch: &Batch, case: u32, record: &mut impl Record) -> Result<(), Error> {
    let mut out = Outputs::poisoned();
    let wanted = if case.is_multiple_of(2) { Wanted::Coef } else { Wanted::Metrics };
    let per_token = case % 4 > 1;
    let kernel = PolicyLossGmpo {
        cu_seqlens: offsets()?,
        loss_mask: Mask::new(batch.mask()),
        logp: In::new(&batch.logp),
        logp_old: In::new(&batch.logp_old),
        advantage: if per_token { In::new(&batch.advantage) } else { In::new(&batch.advantage[..ROWS]) },
        advantage_per_token: per_token,
        weights: (case % 3 == 1).then(|| In::new(&batch.weights[..])),
        guard: guards()[case as usize % 5],
        mean: Mean::Geometric,
        clip_log_low: [0.4, 0.0, 0.1][case as usize % 3],
        clip_log_high: [0.4, 0.2, 0.0][case as usize % 3],
        denominator: f64::from(case % 5 * 3),
        denominator_from: None,
        coef: Out::new(&mut out.element[0]),
        row_loss: Some(Out::new(&mut out.row_loss)),
        row_tokens: Out::new(&mut out.counts),
        row_alarm: Out::new(&mut out.flags),
        metrics: (wanted == Wanted::Metrics).then(|| MetricsOut {
            row_sums: Out::new(&mut out.row64),
            row_maxima: Out::new(&mut out.row32),
            band: BAND,
        }),
    };
    kernel.check()?;
    runner.run(&kernel);
    record.begin(PolicyLossGmpo::NAME, case);
    f32s(record, &out.element[0]);
    f64s(record, &out.row_loss);
    if wanted == Wanted::Metrics {
        f64s(record, &out.row64);
        f32s(record, &out.row32);
    }
    u32s(record, &out.counts);
    alarms(record, &out.flags);
    Ok(())
}

fn sequence_weight<R: Runner>(
    runner: &R,
    batch: &Batch,
    case: u32,
    record: &mut impl Record,
) -> Result<(), Error> {
    let mut out = Outputs::poisoned();
    let rules = [SequenceRule::VESPO, SequenceRule::Topr, SequenceRule::OffPolicyMask { delta: 0.02 }];
    runner.run(&SequenceWeight {
        cu_seqlens: offsets()?,
        loss_mask: Mask::new(batch.mask()),
        logp: In::new(&batch.logp),
        logp_behave: In::new(&batch.logp_old),
        advantage: In::new(&batch.advantage[..ROWS]),
        weights: (case % 2 == 1).then(|| In::new(&batch.weights[..])),
        rule: rules[case as usize % 3],
        out: Out::new(&mut out.element[0]),
        row_alarm: Out::new(&mut out.flags),
    });
    record.begin(SequenceWeight::NAME, case);
    f32s(record, &out.element[0]);
    alarms(record, &out.flags);
    Ok(())
}

fn keys<R: Runner>(
    runner: &R,
    batch: &Batch,
    case: u32,
    record: &mut impl Record,
) -> Result<[u32; ELEMENTS], Error> {
    let mut out = Outputs::poisoned();
    let moments = [[0.0, -1.5, 0.0, 0.0, 0.0, 0.0], [0.0, 0.25, 0.0, 0.0, 0.0, 0.0]];
    let [logp_moments, advantage_moments]: [[f64; MOMENTS]; 2] = moments;
    runner.run(&Covariance {
        cu_seqlens: offsets()?,
        loss_mask: Mask::new(batch.mask()),
        logp: In::new(&batch.logp),
        advantage: In::new(&batch.advantage),
        advantage_per_token: true,
        logp_moments: In::new(&logp_moments),
        advantage_moments: In::new(&advantage_moments),
        covariance: Out::new(&mut out.element[0]),
    });
    record.begin(Covariance::NAME, case);
    f32s(record, &out.element[0]);
    let mut keys = [POISON; ELEMENTS];
    let clip = PpoClip { clip_ratio_low: 0.2, clip_ratio_high: 0.28, clip_ratio_c: f32::INFINITY };
    let random = Order::Random { seed: 7, first: case.into() };
    let kernel = SelectionKey {
        cu_seqlens: offsets()?,
        loss_mask: Mask::new(batch.mask()),
        values: In::new(&out.element[0]),
        band: [[f32::NEG_INFINITY, f32::INFINITY], [-0.5, 5.0]][case as usize % 2],
        unclipped: (case % 3 == 2).then(|| ClipTest {
            logp: In::new(&batch.logp),
            logp_old: In::new(&batch.logp_old),
            advantage: In::new(&batch.advantage[..ROWS]),
            advantage_per_token: false,
            clip,
        }),
        order: if case % 4 < 2 { Order::Largest } else { random },
        keys: Out::new(&mut keys),
    };
    kernel.check()?;
    runner.run(&kernel);
    record.begin(SelectionKey::NAME, case);
    u32s(record, &keys);
    Ok(keys)
}

fn select<R: Runner>(
    runner: &R,
    batch: &Batch,
    keys: &[u32; ELEMENTS],
    case: u32,
    record: &mut impl Record,
) -> Result<(), Error> {
    let (mut counts, mut ties_before) = ([POISON; DIGITS * ROWS], [POISON; ROWS]);
    let mut state = [0, [0, 1, 40, 10_000][case as usize % 4]];
    for shift in SHIFTS {
        runner.run(&DigitCounts {
            offsets: offsets()?,
            keys: In::new(keys),
            state: In::new(&state),
            shift,
            counts: Out::new(&mut counts),
        });
        record.begin(DigitCounts::NAME, case);
        u32s(record, &counts);
        let mut narrowed = [POISON; 2];
        runner.run(&NarrowDigits {
            counts: In::new(&counts),
            rows: ROWS,
            state: In::new(&state),
            shift,
            narrowed: Out::new(&mut narrowed),
            ties_before: Out::new(&mut ties_before),
        });
        record.begin(NarrowDigits::NAME, case);
        u32s(record, &narrowed);
        u32s(record, &ties_before);
        state = narrowed;
    }
    let mut out = Outputs::poisoned();
    runner.run(&SelectTop {
        cu_seqlens: offsets()?,
        loss_mask: Mask::new(batch.mask()),
        keys: In::new(keys),
        state: In::new(&state),
        ties_before: In::new(&ties_before),
        on: case.is_multiple_of(2).then(|| In::new(&batch.logp_old[..])),
        on_value: 0.0,
        off: (case % 2 == 1).then(|| In::new(&batch.logp[..])),
        off_value: 1.0,
        out: Out::new(&mut out.element[0]),
        row_selected: Out::new(&mut out.counts),
    });
    record.begin(SelectTop::NAME, case);
    f32s(record, &out.element[0]);
    u32s(record, &out.counts);
    Ok(())
}
