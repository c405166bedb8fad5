//! The policy losses, with every gate.

use super::{BAND, Outputs, alarms, guards, kls, offsets};
use crate::batch::{Batch, ROWS, Range};
use crate::hash::Source;
use crate::record::{Record, f32s, f64s, u32s};
use crate::{Op, Runner};
use lockstep_core::Error;
use lockstep_core::aggregate::{PerRow, Weight, WeightFrom};
use lockstep_core::gate::{Cispo, DppoKl, DppoTv, Gate, PpoClip, Reinforce, Sapo};
use lockstep_core::op::Kernel;
use lockstep_core::policy_loss::{KlTerm, LossOut, MetricsOut, PolicyLoss};
use lockstep_core::ragged::{In, Mask, Out};
use lockstep_core::ratio::Level;

/// Every kind of per-row divisor, with denominators that are not powers of two, an empty batch's denominator,
/// and a scale.
fn weights() -> [Weight; 6] {
    let weight = |per_row, denominator, scale| Weight { per_row, denominator, scale };
    [
        weight(PerRow::One, 1.0, 1.0),
        weight(PerRow::Length { eps: 1e-8 }, 11.0, 1.0),
        weight(PerRow::AtLeastOne, 15.0, 2.0),
        weight(PerRow::One, 1017.0, 1.0),
        weight(PerRow::Constant(1024.0), 7.0, 1.0),
        weight(PerRow::Length { eps: 1e-8 }, 0.0, 1.0),
    ]
}

pub(super) fn run<R: Runner>(runner: &R, source: Source, record: &mut impl Record) -> Result<(), Error> {
    let ppo = |clip_ratio_low, clip_ratio_high, clip_ratio_c| PpoClip {
        clip_ratio_low,
        clip_ratio_high,
        clip_ratio_c,
    };
    let clips = [ppo(0.2, 0.28, 3.0), ppo(0.0, 0.0, 1.5), ppo(1.0, 4.0, f32::INFINITY)];
    gates(runner, source.fork(1), clips, record)?;
    gates(runner, source.fork(2), [Sapo::new(1.0, 1.05), Sapo::new(2.0, 4.0), Sapo::new(40.0, 0.1)], record)?;
    let cispo = |low, high| Cispo { low, high };
    gates(runner, source.fork(3), [cispo(0.8, 1.28), cispo(-9.0, 5.0), cispo(0.97, 0.98)], record)?;
    gates(runner, source.fork(4), [Reinforce; 3], record)?;
    let tv = |clip_ratio_low, clip_ratio_high, clip_ratio_c| DppoTv {
        clip_ratio_low,
        clip_ratio_high,
        clip_ratio_c,
    };
    gates(runner, source.fork(5), [tv(0.15, 0.15, 3.0), tv(0.05, 0.4, 20.0), tv(0.0, 0.0, 1.5)], record)?;
    let kl = |clip_ratio_low, clip_ratio_high, clip_ratio_c| DppoKl {
        clip_ratio_low,
        clip_ratio_high,
        clip_ratio_c,
    };
    gates(
        runner,
        source.fork(6),
        [kl(0.05, 0.05, 3.0), kl(0.002, 0.3, f32::INFINITY), kl(0.0, 0.0, 1.5)],
        record,
    )
}

/// Runs every gate with every guard and every choice of outputs. The other arguments cycle with coprime
/// periods.
pub(super) fn gates<R: Runner, G: Gate>(
    runner: &R,
    source: Source,
    gates: [G; 3],
    record: &mut impl Record,
) -> Result<(), Error>
where
    for<'a> PolicyLoss<'a, G>: Op,
{
    let mut case = 0;
    for gate in gates {
        for guard in guards() {
            for wanted in [Wanted::Coef, Wanted::Loss, Wanted::Metrics] {
                let batch = Batch::new(source.fork(case), Range::ALL[case as usize % 5], case);
                let bits = source.fork(1000).bits(case as usize);
                // Half of the coefficient-only launches take the path without weights and KL, with one
                // advantage per row.
                let hot = wanted == Wanted::Coef && case / 3 % 2 == 0;
                let on = |bit: u32| bits >> bit & 1 == 1 && !hot;
                let kl = kls()[case as usize % kls().len()];
                let options = Options {
                    per_token: on(0),
                    weights: on(1),
                    kl: on(2).then(|| KlTerm {
                        logp_ref: In::new(&batch.logp_ref),
                        kl,
                        coef: [0.05, 0.0, 1.0][case as usize % 3],
                        weighted: on(3),
                    }),
                    weight: weights()[(case / 3) as usize % 6],
                    level: match (on(4), on(5)) {
                        (true, _) => Level::Sequence { log_max: 0.5 },
                        (false, true) if !G::READS_OLD => Level::Given,
                        _ => Level::Token,
                    },
                    wanted,
                };
                let mut out = Outputs::poisoned();
                let kernel = kernel(&batch, gate, guard, &options, &mut out)?;
                kernel.check()?;
                runner.run(&kernel);
                record.begin(PolicyLoss::<G>::NAME, case);
                f32s(record, &out.element[0]);
                if wanted != Wanted::Coef {
                    f32s(record, &out.element[1]);
                    f64s(record, &out.row_loss);
                }
                if wanted == Wanted::Metrics {
                    f64s(record, &out.row64);
                    f32s(record, &out.row32);
                }
                u32s(record, &out.counts);
                alarms(record, &out.flags);
                case += 1;
            }
        }
    }
    Ok(())
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Wanted {
    Coef,
    Loss,
    Metrics,
}

struct Options<'a> {
    per_token: bool,
    weights: bool,
    kl: Option<KlTerm<'a>>,
    weight: Weight,
    level: Level,
    wanted: Wanted,
}

fn kernel<'a, G: Gate>(
    batch: &'a Batch,
    gate: G,
    guard: lockstep_core::ratio::Guard,
    options: &Options<'a>,
    out: &'a mut Outputs,
) -> Result<PolicyLoss<'a, G>, Error> {
    let [coef, token_loss] = &mut out.element;
    Ok(PolicyLoss {
        cu_seqlens: offsets()?,
        loss_mask: Mask::new(batch.mask()),
        logp: In::new(&batch.logp),
        logp_old: In::new(&batch.logp_old),
        logp_second: G::SECOND.then(|| In::new(&batch.logp_ref[..])),
        advantage: if options.per_token {
            In::new(&batch.advantage)
        } else {
            In::new(&batch.advantage[..ROWS])
        },
        advantage_per_token: options.per_token,
        weights: options.weights.then(|| In::new(&batch.weights[..])),
        level: options.level,
        guard,
        gate,
        kl: options.kl,
        weight: options.weight,
        weight_from: WeightFrom::ABSENT,
        coef: Out::new(coef),
        loss: (options.wanted != Wanted::Coef).then(|| LossOut {
            token_loss: Some(Out::new(token_loss)),
            row_loss: Out::new(&mut out.row_loss),
        }),
        row_tokens: Out::new(&mut out.counts),
        row_alarm: Out::new(&mut out.flags),
        metrics: (options.wanted == Wanted::Metrics).then(|| MetricsOut {
            row_sums: Out::new(&mut out.row64),
            row_maxima: Out::new(&mut out.row32),
            band: BAND,
        }),
    })
}
