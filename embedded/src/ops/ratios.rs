//! `log_ratio_scan`, `proximal_logp`, `staleness` and `effective_sample_size`.

use super::{Outputs, alarms, offsets};
use crate::batch::{Batch, ELEMENTS, ROWS, Range};
use crate::hash::Source;
use crate::record::{Record, bytes, f32s, f64s, u32s};
use crate::{POISON, Runner};
use lockstep_core::Error;
use lockstep_core::op::Kernel;
use lockstep_core::ragged::{In, Mask, Out};
use lockstep_core::ratio::{
    EffectiveSampleSize, Interpolation, LogRatioScan, ProximalLogp, ScanKind, Staleness,
};

const KINDS: [ScanKind; 6] = [
    ScanKind::Prefix,
    ScanKind::PrefixBefore,
    ScanKind::MinBefore,
    ScanKind::Min,
    ScanKind::Sum,
    ScanKind::Mean,
];

pub(super) fn run<R: Runner>(runner: &R, source: Source, record: &mut impl Record) -> Result<(), Error> {
    for case in 0..15 {
        let batch = Batch::new(source.fork(case), Range::ALL[case as usize % 5], case);
        let mut versions = [0; ELEMENTS];
        for (i, version) in versions.iter_mut().enumerate() {
            *version = 7 - source.fork(99).below(i, 10) as i32;
        }
        let (cu_seqlens, loss_mask) = (offsets()?, Mask::new(batch.mask()));
        let (logp, logp_old) = (In::new(&batch.logp[..]), In::new(&batch.logp_old[..]));

        let mut out = Outputs::poisoned();
        runner.run(&LogRatioScan {
            offsets: cu_seqlens,
            loss_mask,
            logp,
            logp_old,
            kind: KINDS[case as usize % 6],
            cap_at_one: case.is_multiple_of(2),
            log_ratio: Out::new(&mut out.element[0]),
            row_alarm: Out::new(&mut out.flags),
        });
        record.begin(LogRatioScan::NAME, case);
        f32s(record, &out.element[0]);
        alarms(record, &out.flags);

        let mut out = Outputs::poisoned();
        runner.run(&ProximalLogp {
            cu_seqlens,
            loss_mask,
            versions: In::new(&versions),
            current: 5,
            logp_behave: logp_old,
            logp,
            interpolation: [Interpolation::Loglinear, Interpolation::Linear][case as usize % 2],
            logp_prox: Out::new(&mut out.element[0]),
            row_alarm: Out::new(&mut out.flags),
        });
        record.begin(ProximalLogp::NAME, case);
        f32s(record, &out.element[0]);
        alarms(record, &out.flags);

        let mut out = Outputs::poisoned();
        let (mut kept, mut start) = ([0xbd; ELEMENTS], [POISON.cast_signed(); ROWS]);
        let kernel = Staleness {
            cu_seqlens,
            loss_mask,
            versions: In::new(&versions),
            current: 6,
            max_staleness: case as i32 % 4,
            kept_mask: Out::new(&mut kept),
            row_start: Out::new(&mut start),
            row_off_policy: Out::new(&mut out.counts),
            row_kept: Out::new(&mut out.flags),
        };
        kernel.check()?;
        runner.run(&kernel);
        record.begin(Staleness::NAME, case);
        bytes(record, &kept);
        u32s(record, &start.map(i32::cast_unsigned));
        u32s(record, &out.counts);
        u32s(record, &out.flags);

        let mut out = Outputs::poisoned();
        let (sums, rest) = out.row64.split_at_mut(2 * ROWS);
        runner.run(&EffectiveSampleSize {
            offsets: cu_seqlens,
            mask: loss_mask,
            weights: In::new(&batch.weights),
            eps: 1e-8,
            row_sums: Out::new(sums),
            row_ess: Out::new(&mut rest[..ROWS]),
            row_alarm: Out::new(&mut out.flags),
        });
        record.begin(EffectiveSampleSize::NAME, case);
        f64s(record, &out.row64[..3 * ROWS]);
        alarms(record, &out.flags);
    }
    Ok(())
}
