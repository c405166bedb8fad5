//! `check_offsets` and `check_values`: two rows, because a row is 4096 elements.

use crate::batch::garbage;
use crate::hash::Source;
use crate::record::{Record, u32s};
use crate::{POISON, Runner};
use lockstep_core::check::{self, CheckOffsets, CheckValues, Domain};
use lockstep_core::op::Kernel;
use lockstep_core::ragged::{In, Mask, Out};

/// A block and part of the next.
const LENGTH: usize = check::BLOCK + 4;
/// Rows of a launch.
const BLOCKS: usize = check::rows(LENGTH);
/// Positions of a fault: none, both ends of each block, and inside.
const PLACES: [Option<usize>; 6] =
    [None, Some(0), Some(17), Some(check::BLOCK - 1), Some(check::BLOCK), Some(LENGTH - 1)];

pub(super) fn run<R: Runner>(runner: &R, source: Source, record: &mut impl Record) {
    offsets(runner, source.fork(1), record);
    values(runner, source.fork(2), record);
}

fn offsets<R: Runner>(runner: &R, source: Source, record: &mut impl Record) {
    let mut good = [0; LENGTH];
    for i in 1..LENGTH {
        good[i] = good[i - 1] + source.below(i, 3) as u32;
    }
    let elements = good[LENGTH - 1] as usize;
    for (case, place) in PLACES.into_iter().enumerate() {
        let offset = place.map_or(0, |i| good[i]);
        if let Some(i) = place {
            // Too large: the next offset is at fault, except at the first and the last.
            good[i] += 7;
        }
        let mut first_fault = [POISON; BLOCKS];
        runner.run(&CheckOffsets {
            offsets: In::new(&good),
            elements,
            first_fault: Out::new(&mut first_fault),
        });
        record.begin(CheckOffsets::NAME, case as u32);
        u32s(record, &first_fault);
        if let Some(i) = place {
            good[i] = offset;
        }
    }
}

fn values<R: Runner>(runner: &R, source: Source, record: &mut impl Record) {
    let mut case = 0;
    for domain in [Domain::Finite, Domain::LogProbability, Domain::Weight, Domain::Reward] {
        for place in PLACES {
            let mask: [u8; LENGTH] =
                core::array::from_fn(|i| source.below(i, 4) as u8 | u8::from(Some(i) == place));
            let masked = case % 3 != 0;
            let values: [f32; LENGTH] = core::array::from_fn(|i| {
                let sign = match domain {
                    Domain::LogProbability => 0x8000_0000,
                    Domain::Weight => 0,
                    Domain::Finite | Domain::Reward => (i as u32) << 31,
                };
                if Some(i) == place {
                    // NaN or infinity.
                    garbage(case as usize % 5)
                } else if masked && mask[i] == 0 {
                    garbage(i)
                } else {
                    f32::from_bits(source.fork(1).spread(i).to_bits() & 0x7fff_ffff | sign)
                }
            });
            let mut first_fault = [POISON; BLOCKS];
            runner.run(&CheckValues {
                values: In::new(&values),
                mask: Mask::new(masked.then_some(&mask[..])),
                domain,
                first_fault: Out::new(&mut first_fault),
            });
            record.begin(CheckValues::NAME, case);
            u32s(record, &first_fault);
            case += 1;
        }
    }
}
