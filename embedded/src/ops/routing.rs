//! `gating_forward`, natural and replayed, and `gating_backward` of its choice.

use crate::hash::Source;
use crate::record::{Record, f32s, f64s, u32s};
use crate::{POISON, POISON64, Runner};
use lockstep_core::Error;
use lockstep_core::op::Kernel;
use lockstep_core::ragged::{In, Mask, Out, flag};
use lockstep_core::routing::{
    BalanceLoss, ChosenOut, GatingBackward, GatingForward, Replay, Router, RouterKind, Trace,
};

/// Rows of 132 experts: a chunk and a remainder, four groups.
const TOKENS: usize = 6;
const EXPERTS: usize = 132;
const TOP_K: usize = 5;

pub(super) fn run<R: Runner>(runner: &R, source: Source, record: &mut impl Record) -> Result<(), Error> {
    for case in 0..14 {
        gating(runner, source.fork(case), case, record)?;
    }
    Ok(())
}

fn gating<R: Runner>(runner: &R, source: Source, case: u32, record: &mut impl Record) -> Result<(), Error> {
    let kinds = [
        RouterKind::SoftmaxChosen,
        RouterKind::SoftmaxAll,
        RouterKind::SigmoidNormalized,
        RouterKind::Sigmoid,
        RouterKind::SigmoidNormalized,
    ];
    // Next come selections with a bias by roots of softplus, natural and replayed, and selections by
    // probabilities, the last one in groups.
    let kind = match case {
        0..10 => kinds[case as usize % 5],
        10 | 11 => RouterKind::SqrtSoftplus,
        12 => RouterKind::SoftmaxChosen,
        _ => RouterKind::SoftmaxAll,
    };
    let grouped = case < 10 && case % 5 == 4 || case == 13;
    let (groups, top_groups) = if grouped { (4, 2) } else { (1, 1) };
    let router = Router { scale: 1.5, groups, top_groups, ..Router::new(kind, EXPERTS, TOP_K) };
    let mut scores = [0.0; TOKENS * EXPERTS];
    for (i, score) in scores.iter_mut().enumerate() {
        // Row 1: ties; row 2: saturated scores; the last case has an unusable row.
        *score = match i / EXPERTS {
            1 => [0.0, -0.0, 0.5][source.below(i, 3)],
            2 => 1e4 * source.signed(i),
            3 if case == 9 && i % EXPERTS == 7 => f32::NAN,
            _ => 4.0 * source.signed(i),
        };
    }
    let mut bias = [0.0; EXPERTS];
    bias.iter_mut().enumerate().for_each(|(e, bias)| *bias = 0.25 * source.fork(1).signed(e));
    let mut ids = [0xff_u8; TOKENS * TOP_K];
    for (i, id) in ids.iter_mut().enumerate().filter(|(i, _)| i / TOP_K != 4) {
        *id = ((source.fork(2).below(i / TOP_K, 132) + 29 * (i % TOP_K)) % EXPERTS) as u8;
    }
    let replay =
        Replay { trace: Trace::narrow(In::new(&ids), 1, TOP_K), mask: Mask::new(Some(&[1, 1, 1, 1, 1, 0])) };
    let mut chosen = [0xba_u8; TOKENS * TOP_K];
    let poison = f32::from_bits(POISON);
    let (mut gates, mut gradient) = ([poison; TOKENS * TOP_K], [poison; TOKENS * EXPERTS]);
    let (mut sums, mut replayed, mut alarm) = ([poison; TOKENS * 4], [POISON; TOKENS], [POISON; TOKENS]);
    let kernel = GatingForward {
        router,
        rows: TOKENS,
        scores: In::new(&scores),
        bias: (kind.sigmoid() || case >= 10).then(|| In::new(&bias[..])),
        replay: ((5..10).contains(&case) || case == 11).then_some(replay),
        chosen: ChosenOut::narrow(Out::new(&mut chosen)),
        gates: Out::new(&mut gates),
        group_scores: grouped.then(|| Out::new(&mut sums)),
        row_replayed: Out::new(&mut replayed),
        row_alarm: Out::new(&mut alarm),
    };
    kernel.check()?;
    runner.run(&kernel);
    let raised = |alarm: u32| if alarm == POISON { POISON } else { u32::from(alarm > flag::LIMIT) };
    record.begin(GatingForward::NAME, case);
    u32s(record, &chosen.map(u32::from));
    f32s(record, &gates);
    if grouped {
        f32s(record, &sums);
    }
    u32s(record, &replayed);
    u32s(record, &alarm.map(raised));
    let mut coef = [0.0; TOKENS * TOP_K];
    coef.iter_mut().enumerate().for_each(|(i, c)| *c = source.fork(3).signed(i));
    let kernel = GatingBackward {
        router,
        rows: TOKENS,
        scores: In::new(&scores),
        chosen: Trace::narrow(In::new(&chosen), 1, TOP_K),
        gates: In::new(&gates),
        coef: In::new(&coef),
        gradient: Out::new(&mut gradient),
        row_alarm: Out::new(&mut alarm),
    };
    kernel.check()?;
    runner.run(&kernel);
    record.begin(GatingBackward::NAME, case);
    f32s(record, &gradient);
    u32s(record, &alarm.map(raised));
    let mut row_loss = [f64::from_bits(POISON64); TOKENS];
    runner.run(&BalanceLoss {
        experts: EXPERTS,
        rows: TOKENS,
        scores: In::new(&scores),
        load: In::new(&bias),
        weight: 0.5,
        gradient: Out::new(&mut gradient),
        row_loss: Out::new(&mut row_loss),
        row_alarm: Out::new(&mut alarm),
    });
    record.begin(BalanceLoss::NAME, case);
    f32s(record, &gradient);
    f64s(record, &row_loss);
    u32s(record, &alarm.map(raised));
    Ok(())
}
