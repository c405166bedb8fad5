//! An output array and its bits.

pub use lockstep_embedded::{POISON, POISON64};

use std::ops::Range;

/// The values of an output.
#[derive(Clone, Debug)]
pub enum Values {
    /// binary32.
    F32(Vec<f32>),
    /// binary64.
    F64(Vec<f64>),
    /// Counts and flags.
    U32(Vec<u32>),
}

/// Which row an element belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// One entry per element of the op's offsets.
    Element,
    /// One entry per row.
    Row,
}

/// One output array of a launch.
#[derive(Clone, Debug)]
pub struct Output {
    /// Its name, which is the key into the tolerance table.
    pub name: &'static str,
    /// Whether it has entries per element or per row.
    pub place: Place,
    /// The values.
    pub values: Values,
}

impl Output {
    /// Number of elements.
    pub fn len(&self) -> usize {
        match &self.values {
            Values::F32(v) => v.len(),
            Values::F64(v) => v.len(),
            Values::U32(v) => v.len(),
        }
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bits of element `i`.
    pub fn bits(&self, i: usize) -> u64 {
        match &self.values {
            Values::F32(v) => v[i].to_bits().into(),
            Values::F64(v) => v[i].to_bits(),
            Values::U32(v) => v[i].into(),
        }
    }

    /// Element `i` as a number.
    pub fn number(&self, i: usize) -> f64 {
        match &self.values {
            Values::F32(v) => v[i].into(),
            Values::F64(v) => v[i],
            Values::U32(v) => v[i].into(),
        }
    }

    /// The width of an element in bytes.
    pub fn width(&self) -> u8 {
        if matches!(self.values, Values::F64(_)) { 8 } else { 4 }
    }

    /// Whether element `i` was never written.
    pub fn is_poison(&self, i: usize) -> bool {
        self.bits(i) == if self.width() == 8 { POISON64 } else { POISON.into() }
    }

    /// The elements of row `row`.
    pub fn range(&self, offsets: &[u32], row: usize) -> Range<usize> {
        match self.place {
            Place::Element => offsets[row] as usize..offsets[row + 1] as usize,
            Place::Row => row..row + 1,
        }
    }

    /// Little-endian bytes, the form that is hashed.
    pub fn bytes(&self) -> Vec<u8> {
        let bytes = |i| self.bits(i).to_le_bytes().into_iter().take(self.width().into());
        (0..self.len()).flat_map(bytes).collect()
    }
}

/// The first element whose bits differ: output, index, bits of `a`, bits of `b`.
pub fn first_difference(a: &[Output], b: &[Output]) -> Option<(&'static str, usize, u64, u64)> {
    assert_eq!(a.len(), b.len(), "the same launch has the same outputs");
    a.iter().zip(b).find_map(|(a, b)| {
        assert_eq!((a.name, a.len()), (b.name, b.len()));
        (0..a.len()).find(|i| a.bits(*i) != b.bits(*i)).map(|i| (a.name, i, a.bits(i), b.bits(i)))
    })
}
