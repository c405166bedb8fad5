//! The test inputs: structured lengths and designed values, each entry with the bug that it catches.

pub mod corpus;
pub mod masks;
pub mod params;
pub mod random;
pub mod responses;
pub mod rewards;
pub mod select;
pub mod shapes;
pub mod values;

pub use corpus::corpus;
pub use lockstep_embedded::hash;

use self::hash::Source;
use self::masks::garbage;
use self::shapes::Shape;
use crate::ops::{AnyOp, OpTest};
use lockstep_core::ragged::{Mask, Offsets};

/// A packed batch with the arrays of one op. The op decides what each [`slot`] means.
#[derive(Clone, Debug, Default)]
pub struct Data {
    /// Row offsets, `[R+1]`.
    pub offsets: Vec<u32>,
    /// Which elements take part.
    pub mask: Option<Vec<u8>>,
    /// Arrays with one value per element.
    pub element: Vec<Vec<f32>>,
    /// The binary64 input of `fold_rows`, one value per element.
    pub element64: Vec<f64>,
    /// The offsets that `check_offsets` checks, or the lengths of `group_advantage`; one entry per element.
    pub index: Vec<u32>,
    /// Arrays with one value per row.
    pub row: Vec<Vec<f32>>,
}

/// Slots of [`Data::element`].
pub mod slot {
    /// `logp`, or the only array of `aggregate`, `row_scan` (values) and `group_advantage` (rewards).
    pub const FIRST: usize = 0;
    /// `logp`.
    pub const LOGP: usize = 0;
    /// `logp_old`; `logp_ref` of the op `kl`.
    pub const LOGP_OLD: usize = 1;
    /// `logp_ref` of the policy loss.
    pub const LOGP_REF: usize = 2;
    /// Rollout-correction weights.
    pub const WEIGHTS: usize = 3;
    /// Advantages per token.
    pub const ADVANTAGE: usize = 4;
    /// Log-probabilities of the second policy.
    pub const SECOND: usize = 5;
}

impl Data {
    /// Rows of these lengths, without arrays.
    pub fn new(shape: &Shape, mask: masks::Mask, source: Source) -> Data {
        let offsets = shape.offsets();
        let mask = mask.bytes(&offsets, source);
        Data { offsets, mask, ..Data::default() }
    }

    /// An array of live values, with garbage under the mask.
    pub fn array(&self, value: impl Fn(usize) -> f32) -> Vec<f32> {
        self.array_with(0, value)
    }

    /// The same with other garbage.
    pub fn array_with(&self, shift: usize, value: impl Fn(usize) -> f32) -> Vec<f32> {
        let of = |i| if self.live(i) { value(i) } else { garbage(i + shift) };
        (0..self.elements()).map(of).collect()
    }

    /// An array with one value per row.
    pub fn per_row(&self, value: impl Fn(usize) -> f32) -> Vec<f32> {
        (0..self.rows()).map(value).collect()
    }

    /// Array k of a row, for an oracle.
    pub fn wide(&self, k: usize, row: usize) -> Vec<f64> {
        self.element[k][self.span(row)].iter().map(|x| f64::from(*x)).collect()
    }

    /// Which elements of a row take part.
    pub fn lives(&self, row: usize) -> Vec<bool> {
        self.span(row).map(|i| self.live(i)).collect()
    }

    /// The elements of a row that take part.
    pub fn members(&self, row: usize) -> Vec<usize> {
        self.span(row).filter(|i| self.live(*i)).collect()
    }

    /// The offsets, as ops take them.
    pub(crate) fn packed(&self) -> Result<Offsets<'_>, String> {
        offsets("offsets", &self.offsets, self.elements(), "elements")
    }

    /// The mask, as ops take it.
    pub(crate) fn masked(&self) -> Mask<'_> {
        Mask::new(self.mask.as_deref())
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.offsets.len() - 1
    }

    /// Number of elements.
    pub fn elements(&self) -> usize {
        self.offsets[self.rows()] as usize
    }

    /// The elements of a row.
    pub fn span(&self, row: usize) -> std::ops::Range<usize> {
        self.offsets[row] as usize..self.offsets[row + 1] as usize
    }

    /// Whether element `i` takes part.
    pub fn live(&self, i: usize) -> bool {
        self.mask.as_ref().is_none_or(|mask| mask[i] != 0)
    }

    /// Whether element `i` takes part with a reward, which is in the first array.
    pub fn scored(&self, i: usize) -> bool {
        self.live(i) && !self.element[0][i].is_nan()
    }
}

/// A case of each item, made from its number and a stream of that number.
pub(crate) fn numbered<T>(
    items: impl IntoIterator<Item = T>,
    source: Source,
    case: impl Fn(usize, T, Source) -> Case,
) -> Vec<Case> {
    items.into_iter().enumerate().map(|(k, item)| case(k, item, source.fork(k as u64))).collect()
}

/// Every pair, in the order of two nested loops.
pub(crate) fn pairs<A: Clone, B: Clone>(
    outer: impl IntoIterator<Item = A>,
    inner: impl IntoIterator<Item = B> + Clone,
) -> impl Iterator<Item = (A, B)> {
    outer.into_iter().flat_map(move |a| inner.clone().into_iter().map(move |b| (a.clone(), b)))
}

/// Offsets of `count` units, as ops take them.
pub(crate) fn offsets<'a>(
    name: &'static str,
    offsets: &'a [u32],
    count: usize,
    of: &'static str,
) -> Result<Offsets<'a>, String> {
    Offsets::new(name, offsets, count, of).map_err(|error| error.to_string())
}

/// One launch of one op.
#[derive(Clone, Debug)]
pub struct Case {
    /// Description, unique in a corpus.
    pub label: String,
    /// Which bug it catches.
    pub catches: &'static str,
    /// The op and its scalar arguments.
    pub params: AnyOp,
    /// The arrays.
    pub data: Data,
}

impl Case {
    /// A case of an op whose cases all catch the same bugs.
    pub(crate) fn of<P: OpTest>(params: P, label: String, data: Data) -> Case {
        Case { label, catches: P::CATCHES, params: params.into(), data }
    }

    /// The same on groups of rewards.
    pub(crate) fn of_groups<P: OpTest>(params: P, valid: bool, data: Data) -> Case {
        Case::of(params, format!("{params:?}, {} groups, valid {valid}", data.rows()), data)
    }

    /// The case with a number in front of its label.
    pub(crate) fn numbered(self, k: usize) -> Case {
        Case { label: format!("{k}: {}", self.label), ..self }
    }

    /// The op's name in core's table.
    pub fn op(&self) -> &'static str {
        self.params.op()
    }
}
