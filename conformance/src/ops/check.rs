//! `check_offsets`, `check_values`: arrays of several blocks, with faults at the block boundaries.

use super::prelude::*;
use crate::oracle::check as oracle;
use lockstep_core::check::{BLOCK, CheckOffsets, CheckValues, Domain};

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Check {
    /// `check_offsets` of [`Data::index`], the last of which must be `elements`.
    Offsets { elements: usize },
    /// `check_values` of the first array.
    Values { domain: Domain },
}

impl OpTest for Check {
    names! {
        Check::Offsets { .. } => "check_offsets",
        Check::Values { .. } => "check_values",
    }
    const ALLOWED: &'static [Allowance] = &[
        allow("check_offsets", &["first_fault"], 0.0, "a position"),
        allow("check_values", &["first_fault"], 0.0, "a position"),
    ];
    const CATCHES: &'static str = "a seam of two blocks that nobody compares, or a fault under the mask; the \
                                   first or last entry unchecked; NaN that passes a comparison";
    const ROWS_ARE_BLOCKS: bool = true;

    fn run(&self, backend: &dyn Backend, data: &Data, out: &mut Outputs<'_>) -> Result<(), String> {
        let first_fault = out.row("first_fault");
        match *self {
            Check::Offsets { elements } => {
                backend.run(&CheckOffsets { offsets: In::new(&data.index), elements, first_fault })
            }
            Check::Values { domain } => {
                let (values, mask) = (In::new(&data.element[0]), data.masked());
                backend.run(&CheckValues { values, mask, domain, first_fault })
            }
        }
    }

    fn expect(&self, data: &Data) -> Vec<Want> {
        match *self {
            Check::Offsets { elements } => {
                by_block(data.index.len(), &oracle::offsets(&data.index, elements))
            }
            Check::Values { domain } => {
                let (least, greatest, nan) = match domain {
                    Domain::Finite => (f64::MIN, f64::MAX, false),
                    Domain::LogProbability => (f64::MIN, 0.0, false),
                    Domain::Weight => (0.0, f64::MAX, false),
                    Domain::Reward => (f64::MIN, f64::MAX, true),
                };
                let values = &data.element[0];
                let bad =
                    |i: &usize| data.live(*i) && !oracle::in_domain(values[*i].into(), least, greatest, nan);
                by_block(values.len(), &(0..values.len()).filter(bad).collect::<Vec<_>>())
            }
        }
    }

    fn corpus(source: Source) -> Vec<Case> {
        let mut cases = Vec::new();
        for (op, length) in pairs(0..2, LENGTHS) {
            for (f, faults) in faults(length, source.fork(length as u64)).into_iter().enumerate() {
                let source = source.fork((length * 8 + f) as u64);
                let mask = if f % 2 == 0 { Mask::Absent } else { Mask::Random };
                cases.push(match op {
                    0 => checked_offsets(length, f, &faults, source),
                    _ => checked_values(length, DOMAINS[cases.len() % 4], mask, f, &faults, source),
                });
            }
        }
        cases
    }

    fn random(op: &str, draw: &mut Draw) -> Case {
        let length = 1 + draw.below(10_000);
        let source = draw.source();
        let count = draw.below(4);
        let mut faults: Vec<usize> = (0..count).map(|_| draw.below(length)).collect();
        faults.sort_unstable();
        match op {
            "check_offsets" => checked_offsets(length, 0, &faults, source),
            _ => {
                let (domain, mask) = (draw.pick(&DOMAINS), draw.pick(&Mask::ALL));
                checked_values(length, domain, mask, draw.below(6), &faults, source)
            }
        }
    }
}

const DOMAINS: [Domain; 4] = [Domain::Finite, Domain::LogProbability, Domain::Weight, Domain::Reward];

/// Lengths around the block size.
const LENGTHS: [usize; 6] = [1, 2, 4095, 4096, 4097, 9000];

/// The first fault of each block, from all faults of the array.
fn by_block(elements: usize, faults: &[usize]) -> Vec<Want> {
    let mut want = Want::new("first_fault");
    for start in (0..elements).step_by(BLOCK) {
        let first = faults.iter().find(|i| (start..start + BLOCK).contains(*i));
        want.push(first.map_or(f64::from(u32::MAX), |i| *i as f64), 0.0);
    }
    vec![want]
}

/// Blocks as rows.
fn blocks(elements: usize) -> Vec<u32> {
    (0..=elements.div_ceil(BLOCK)).map(|block| (block * BLOCK).min(elements) as u32).collect()
}

/// Where faults are planted: nowhere, at both ends, on both sides of a block boundary, at random.
fn faults(elements: usize, source: Source) -> Vec<Vec<usize>> {
    let seam = BLOCK.min(elements - 1);
    let (before, last, random) = (seam.saturating_sub(1), elements - 1, source.below(0, elements));
    vec![vec![], vec![0], vec![last], vec![seam], vec![before, last], vec![random]]
}

fn checked_offsets(length: usize, f: usize, faults: &[usize], source: Source) -> Case {
    let mut index = vec![0u32; length];
    for i in 1..length {
        index[i] = index[i - 1] + source.below(i, 5) as u32;
    }
    let elements = index[length - 1] as usize;
    for &fault in faults {
        // The first must be 0, the last `elements`, and the others at least their predecessor.
        index[fault] = match fault {
            last if last + 1 == length => elements as u32 + 1,
            0 => 7,
            _ => 0,
        };
    }
    let data = Data { offsets: blocks(length), index, ..Data::default() };
    Case::of(Check::Offsets { elements }, format!("{length} offsets, faults {f} at {faults:?}"), data)
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
        .map(|i| match (domain, source.fork(1).spread(i)) {
            (Domain::LogProbability, x) => -x.abs(),
            (Domain::Weight, x) => x.abs(),
            (Domain::Reward, _) if i % 7 == 0 => f32::NAN,
            (_, x) => x,
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
    let data = Data { offsets, mask: bytes, element: vec![element], ..Data::default() };
    let label = format!("{length} {domain:?} {mask:?}, faults {f} at {faults:?}");
    Case::of(Check::Values { domain }, label, data)
}
