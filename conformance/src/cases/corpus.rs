//! The corpus: every op of the table with every variant of its arguments, over all shapes, masks and value
//! ranges.

use super::hash::Source;
use super::masks::Mask;
use super::shapes::{Shape, named, small};
use super::values::{self, Range};
use super::{Case, Data};
use crate::ops::{AnyOp, group};

/// Every case for this seed. Order, labels and values never change for a given seed, because the digest
/// depends on them.
pub fn corpus(seed: u64) -> Vec<Case> {
    let source = Source::new(seed);
    let mut cases = group::grpo(source.fork(100));
    cases.extend(AnyOp::corpus(source));
    cases
}

/// Log-probabilities of three policies, weights and advantages, with garbage where masked.
pub fn tokens(shape: &Shape, mask: Mask, range: Range, source: Source) -> Data {
    let mut data = Data::new(shape, mask, source.fork(0));
    let old = |i| range.base(source.fork(1), i);
    data.element = vec![
        data.array(|i| range.other(source.fork(2), i, old(i))),
        data.array(old),
        data.array(|i| range.other(source.fork(3), i, old(i))),
        data.array(|i| values::weight(source.fork(4), i)),
        data.array(|i| values::advantage(source.fork(5), i)),
        data.array(|i| range.other(source.fork(8), i, old(i))),
    ];
    data.row = vec![data.per_row(|s| values::advantage(source.fork(6), s))];
    data
}

/// Cases of an op on [`tokens`], on small shapes and every mask; the last ones on special shapes.
pub(crate) fn token_cases<P: Into<AnyOp> + Copy>(
    all: impl Iterator<Item = (P, Range)>,
    last: P,
    source: Source,
) -> Vec<Case> {
    let mut cases: Vec<Case> =
        all.enumerate().map(|(k, (params, range))| cycled(params, range, k, source)).collect();
    for (shape, mask) in EXTREMES {
        cases.push(token_case(last, &named(shape), mask, Range::Realistic, cases.len(), source));
    }
    cases
}

/// Shapes at the extremes.
pub(crate) const EXTREMES: [(&str, Mask); 3] =
    [("large", Mask::Random), ("one", Mask::Absent), ("nothing", Mask::Full)];

/// Case k of an op on [`tokens`], on one of the small shapes and with one of the masks.
pub(crate) fn cycled(params: impl Into<AnyOp>, range: Range, k: usize, source: Source) -> Case {
    token_case(params, &small()[k % 3], Mask::ALL[k % 6], range, k, source)
}

/// Case k of an op on [`tokens`].
pub(crate) fn token_case(
    params: impl Into<AnyOp>,
    shape: &Shape,
    mask: Mask,
    range: Range,
    k: usize,
    source: Source,
) -> Case {
    let label = format!("{k}: {} {mask:?} {range:?}", shape.name);
    let data = tokens(shape, mask, range, source.fork(k as u64));
    Case { label, catches: shape.catches, params: params.into(), data }
}
