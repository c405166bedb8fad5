//! Cases of the ops that check what only a device can see: arrays of several blocks, with faults at their seams.

use super::hash::Source;
use super::masks::{Mask, garbage};
use super::params::Params;
use super::{Case, Data, values};
use lockstep_core::check::{BLOCK, Domain};

/// Lengths around a block.
const LENGTHS: [usize; 6] = [1, 2, 4095, 4096, 4097, 9000];

/// Blocks as rows.
fn blocks(elements: usize) -> Vec<u32> {
    (0..=elements.div_ceil(BLOCK)).map(|block| (block * BLOCK).min(elements) as u32).collect()
}

/// Where faults are planted: nowhere, at both ends, on both sides of a seam, at random.
fn faults(elements: usize, source: Source) -> Vec<Vec<usize>> {
    let seam = BLOCK.min(elements - 1);
    let random = source.below(0, elements);
    vec![
        vec![],
        vec![0],
        vec![elements - 1],
        vec![seam],
        vec![seam.saturating_sub(1), elements - 1],
        vec![random],
    ]
}

/// Cases of `check_offsets` and `check_values`.
pub fn checks(source: Source) -> Vec<Case> {
    let mut cases = Vec::new();
    for length in LENGTHS {
        for (f, faults) in faults(length, source.fork(length as u64)).into_iter().enumerate() {
            cases.push(offsets(length, f, &faults, source.fork((length * 8 + f) as u64)));
        }
    }
    for length in LENGTHS {
        for (f, faults) in faults(length, source.fork(length as u64)).into_iter().enumerate() {
            let domain =
                [Domain::Finite, Domain::LogProbability, Domain::Weight, Domain::Reward][cases.len() % 4];
            let mask = if f % 2 == 0 { Mask::Absent } else { Mask::Random };
            cases.push(checked_values(
                length,
                domain,
                mask,
                f,
                &faults,
                source.fork((length * 8 + f) as u64),
            ));
        }
    }
    cases
}

fn offsets(length: usize, f: usize, faults: &[usize], source: Source) -> Case {
    let mut index = vec![0u32; length];
    for i in 1..length {
        index[i] = index[i - 1] + source.below(i, 5) as u32;
    }
    let elements = index[length - 1] as usize;
    for &fault in faults {
        // The first must be 0, the last `elements`, the others at least the one before.
        index[fault] = if fault + 1 == length {
            elements as u32 + 1
        } else if fault == 0 {
            7
        } else {
            0
        };
    }
    Case {
        label: format!("{length} offsets, faults {f} at {faults:?}"),
        catches: "a seam of two blocks that nobody compares; the first or last entry unchecked",
        params: Params::CheckOffsets { elements },
        data: Data { offsets: blocks(length), index, ..Data::default() },
    }
}

fn checked_values(
    length: usize,
    domain: Domain,
    mask: Mask,
    f: usize,
    faults: &[usize],
    source: Source,
) -> Case {
    let offsets = blocks(length);
    let mut bytes = mask.bytes(&offsets, source.fork(0));
    let mut element: Vec<f32> = (0..length)
        .map(|i| {
            let x = values::spread(source.fork(1), i);
            match domain {
                Domain::LogProbability => -x.abs(),
                Domain::Weight => x.abs(),
                Domain::Finite => x,
                Domain::Reward => {
                    if i % 7 == 0 {
                        f32::NAN
                    } else {
                        x
                    }
                }
            }
        })
        .collect();
    if let Some(bytes) = &bytes {
        (0..length).filter(|i| bytes[*i] == 0).for_each(|i| element[i] = garbage(i));
    }
    for (k, &fault) in faults.iter().enumerate() {
        element[fault] = match domain {
            Domain::LogProbability => [f32::NAN, 0.5, f32::NEG_INFINITY][(f + k) % 3],
            Domain::Weight => [f32::NAN, -1e-45, f32::INFINITY][(f + k) % 3],
            Domain::Finite => [f32::NAN, f32::INFINITY][(f + k) % 2],
            Domain::Reward => [f32::NEG_INFINITY, f32::INFINITY][(f + k) % 2],
        };
        if let Some(bytes) = &mut bytes {
            bytes[fault] = 1;
        }
    }
    Case {
        label: format!("{length} {domain:?} {mask:?}, faults {f} at {faults:?}"),
        catches: "a fault at a seam of two blocks or under the mask; NaN that passes a comparison",
        params: Params::CheckValues { domain },
        data: Data { offsets, mask: bytes, element: vec![element], ..Data::default() },
    }
}
