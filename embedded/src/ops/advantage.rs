//! `group_advantage`, with the rows of the batch as groups.

use super::{Outputs, offsets};
use crate::Runner;
use crate::batch::{Batch, LENGTHS, OFFSETS, ROWS, Range, garbage};
use crate::hash::Source;
use crate::record::{Record, f32s, u32s};
use lockstep_core::Error;
use lockstep_core::advantage::{Baseline, GroupAdvantage, Scale, Singleton};
use lockstep_core::op::Kernel;
use lockstep_core::ragged::{In, Mask, Out};

/// Returns reward `i` of a group of the given kind: 0 or 1; all equal; nearly equal; with NaN; an offset that
/// cancels; large; subnormal; infinite; any.
pub(super) fn reward(kind: usize, source: Source, i: usize) -> f32 {
    let small = source.signed(i);
    match kind {
        0 => source.below(i, 2) as f32,
        1 => 0.1,
        2 => [1.0, 1.000_01][source.below(i, 2)],
        3 if i.is_multiple_of(3) => garbage(i % 3),
        4 => 1e6 + small,
        5 => 1e30 * small,
        6 => f32::from_bits(source.bits(i) as u32 & 0x8000_ffff),
        7 if i.is_multiple_of(16) => garbage(3 + i / 16 % 2),
        _ => small,
    }
}

pub(super) fn run<R: Runner>(runner: &R, source: Source, record: &mut impl Record) -> Result<(), Error> {
    let mut case = 0;
    for norm_by_std in [true, false] {
        for (ddof, eps) in [(1, 1e-6), (0, 1e-4), (1, 0.0)] {
            for singleton in [Singleton::Zero, Singleton::RawReward] {
                let source = source.fork(case);
                let batch = Batch::new(source, Range::Realistic, case);
                let mut rewards = batch.values;
                for row in (0..ROWS).filter(|row| LENGTHS[*row] > 0) {
                    for i in OFFSETS[row] as usize..OFFSETS[row + 1] as usize {
                        if batch.mask().is_none_or(|mask| mask[i] != 0) {
                            rewards[i] = reward((row + case as usize) % 9, source.fork(10), i);
                        }
                    }
                }
                let mut out = Outputs::poisoned();
                let [advantage, _] = &mut out.element;
                let (mean, std) = out.row32.split_at_mut(ROWS);
                let kernel = GroupAdvantage {
                    cu_groups: offsets()?,
                    rewards: In::new(&rewards),
                    valid: Mask::new(batch.mask()),
                    baseline: Baseline::Mean,
                    scale: if norm_by_std { Scale::Std { ddof, eps } } else { Scale::None { ddof } },
                    singleton,
                    limit: f64::INFINITY,
                    least_std: 0.0,
                    weights: None,
                    lengths: None,
                    given: None,
                    moments: None,
                    advantage: Out::new(advantage),
                    mean: Out::new(mean),
                    std: Out::new(std),
                    counted: Out::new(&mut out.counts),
                    status: Out::new(&mut out.flags),
                    pivot: None,
                };
                kernel.check()?;
                runner.run(&kernel);
                record.begin(GroupAdvantage::NAME, case);
                f32s(record, &out.element[0]);
                f32s(record, &out.row32);
                u32s(record, &out.counts);
                u32s(record, &out.flags);
                case += 1;
            }
        }
    }
    Ok(())
}
