//! `token_ratio` and `kl`.

use super::{BAND, Outputs, alarms, guards, kls, offsets};
use crate::Runner;
use crate::batch::{Batch, ROWS, Range};
use crate::hash::Source;
use crate::record::{Record, f32s, f64s};
use lockstep_core::Error;
use lockstep_core::kl::{Estimator, Kl, KlDivergence};
use lockstep_core::op::Kernel;
use lockstep_core::ragged::{In, Mask, Out};
use lockstep_core::ratio::{TokenRatio, token};

const SUMS: usize = token::sum::SUMS * ROWS;

pub(super) fn run<R: Runner>(runner: &R, source: Source, record: &mut impl Record) -> Result<(), Error> {
    let mut case = 0;
    for guard in guards() {
        for range in Range::ALL {
            let batch = Batch::new(source.fork(case), range, case);
            let wanted = case % 5 != 4;
            let mut out = Outputs::poisoned();
            let [ratio, log_ratio] = &mut out.element;
            guard.check()?;
            runner.run(&TokenRatio {
                cu_seqlens: offsets()?,
                loss_mask: Mask::new(batch.mask()),
                logp: In::new(&batch.logp),
                logp_old: In::new(&batch.logp_old),
                guard,
                band: BAND,
                ratio: wanted.then(|| Out::new(ratio)),
                log_ratio: wanted.then(|| Out::new(log_ratio)),
                row_sums: Out::new(&mut out.row64[..SUMS]),
                row_maxima: Out::new(&mut out.row32),
                row_alarm: Out::new(&mut out.flags),
            });
            record.begin(TokenRatio::NAME, case);
            if wanted {
                out.element.iter().for_each(|values| f32s(record, values));
            }
            f64s(record, &out.row64[..SUMS]);
            f32s(record, &out.row32);
            alarms(record, &out.flags);
            case += 1;
        }
    }
    kl(runner, source.fork(case), record)
}

fn kl<R: Runner>(runner: &R, source: Source, record: &mut impl Record) -> Result<(), Error> {
    let mut case = 0;
    let k1 = Kl::new(Estimator::K1);
    let clamped = [Kl { clamp_in: 0.5, ..k1 }, Kl { clamp_out: 0.125, ..k1 }];
    for kl in kls().into_iter().chain(clamped) {
        for range in Range::ALL {
            let batch = Batch::new(source.fork(case), range, case);
            let wanted = case % 7 != 6;
            let mut out = Outputs::poisoned();
            let [value, gradient] = &mut out.element;
            kl.check()?;
            runner.run(&KlDivergence {
                cu_seqlens: offsets()?,
                loss_mask: Mask::new(batch.mask()),
                logp: In::new(&batch.logp),
                logp_ref: In::new(&batch.logp_ref),
                kl,
                value: wanted.then(|| Out::new(value)),
                gradient: wanted.then(|| Out::new(gradient)),
                row_sum: Out::new(&mut out.row64[..ROWS]),
                row_alarm: Out::new(&mut out.flags),
            });
            record.begin(KlDivergence::NAME, case);
            if wanted {
                out.element.iter().for_each(|values| f32s(record, values));
            }
            f64s(record, &out.row64[..ROWS]);
            alarms(record, &out.flags);
            case += 1;
        }
    }
    Ok(())
}
