//! The outputs of a launch: poisoned before it, read by name after it.

use crate::cases::Data;
use crate::output::{Output, POISON, POISON64, Place, Values};
use lockstep_core::num::{Bf16, F16, Storage};
use lockstep_core::ragged::{Cells, Out, flag};

/// Memory for the outputs of a launch.
pub(crate) type Space = bumpalo::Bump;

/// An element type of outputs.
pub(crate) trait Captured: Copy {
    /// Bits that no kernel writes.
    const POISON: Self;
    /// The values, with poison as poison.
    fn values(values: Vec<Self>) -> Values;
}

macro_rules! own {
    ($($element:ty: $kind:ident, $poison:expr;)*) => {$(
        impl Captured for $element {
            const POISON: $element = $poison;
            fn values(values: Vec<$element>) -> Values {
                Values::$kind(values)
            }
        }
    )*};
}
own! {
    f32: F32, f32::from_bits(POISON);
    f64: F64, f64::from_bits(POISON64);
    u32: U32, POISON;
}

/// As their bits.
impl Captured for i32 {
    const POISON: i32 = POISON.cast_signed();
    fn values(values: Vec<i32>) -> Values {
        Values::U32(values.into_iter().map(i32::cast_unsigned).collect())
    }
}

/// Counts below 2⁵³, as numbers.
impl Captured for u64 {
    const POISON: u64 = POISON64;
    fn values(values: Vec<u64>) -> Values {
        let number = |n| if n == POISON64 { f64::from_bits(n) } else { n as f64 };
        Values::F64(values.into_iter().map(number).collect())
    }
}

macro_rules! half {
    ($($half:ident: $poison:literal;)*) => {$(
        /// As numbers; the poison is a NaN that no kernel writes.
        impl Captured for $half {
            const POISON: $half = $half($poison);
            fn values(values: Vec<$half>) -> Values {
                let number = |x: $half| if x == Self::POISON { f32::POISON } else { x.widen() };
                Values::F32(values.into_iter().map(number).collect())
            }
        }
    )*};
}
half! {
    Bf16: 0xffba;
    F16: 0xfdba;
}

macro_rules! short {
    ($($short:ty: $poison:literal;)*) => {$(
        /// As numbers.
        impl Captured for $short {
            const POISON: $short = $poison;
            fn values(values: Vec<$short>) -> Values {
                let number = |x: $short| if x == $poison { POISON } else { x.into() };
                Values::U32(values.into_iter().map(number).collect())
            }
        }
    )*};
}
short! {
    u8: 0xba;
    u16: 0xdbad;
}

/// Stands for "no score" in comparisons with an oracle, which compares numbers.
pub(crate) const NO_SCORE: f32 = 1e38;

pub(crate) fn element(name: &'static str, values: Values) -> Output {
    Output { name, place: Place::Element, values }
}

pub(crate) fn row(name: &'static str, values: Values) -> Output {
    Output { name, place: Place::Row, values }
}

/// Which alarms are raised, as 0 or 1. An alarm's exact value is unspecified both below the limit (the
/// magnitudes that enter it depend on the requested outputs) and above it.
pub(crate) fn raised(alarm: Vec<u32>) -> Output {
    let raised = |alarm: u32| if alarm == POISON { POISON } else { u32::from(alarm > flag::LIMIT) };
    row("alarm", Values::U32(alarm.into_iter().map(raised).collect()))
}

/// Splits `[names][rows]` by name.
pub(crate) fn by_name<T: Captured>(names: &'static [&'static str], values: &[T]) -> Vec<Output> {
    let rows = values.len() / names.len();
    let part = |k: usize| T::values(values[k * rows..(k + 1) * rows].to_vec());
    names.iter().enumerate().map(|(k, name)| row(name, part(k))).collect()
}

/// Makes the outputs of one launch of a case.
pub struct Outputs<'a> {
    space: &'a Space,
    elements: usize,
    rows: usize,
    made: Vec<Box<dyn FnOnce() -> Vec<Output> + 'a>>,
}

impl<'a> Outputs<'a> {
    /// None yet.
    pub(crate) fn of(data: &Data, space: &'a Space) -> Self {
        Outputs { space, elements: data.elements(), rows: data.rows(), made: Vec::new() }
    }

    /// An array that becomes outputs after the launch.
    pub(crate) fn array<T: Captured + 'a>(
        &mut self,
        len: usize,
        outputs: impl FnOnce(Vec<T>) -> Vec<Output> + 'a,
    ) -> Out<'a, T> {
        let out = Out::new(self.space.alloc_slice_fill_copy(len, T::POISON));
        let cells: Cells<'a, T> = *out;
        self.made.push(Box::new(move || outputs((0..len).map(|i| cells.get(i)).collect())));
        out
    }

    /// One value per element.
    pub(crate) fn element<T: Captured + 'a>(&mut self, name: &'static str) -> Out<'a, T> {
        self.array(self.elements, move |values| vec![element(name, T::values(values))])
    }

    /// One value per row.
    pub(crate) fn row<T: Captured + 'a>(&mut self, name: &'static str) -> Out<'a, T> {
        self.array(self.rows, move |values| vec![row(name, T::values(values))])
    }

    /// One value per row for each name, `[names][rows]`.
    pub(crate) fn rows<T: Captured + 'a>(&mut self, names: &'static [&'static str]) -> Out<'a, T> {
        self.array(names.len() * self.rows, move |values| by_name(names, &values))
    }

    /// One value for each name.
    pub(crate) fn totals<T: Captured + 'a>(&mut self, names: &'static [&'static str]) -> Out<'a, T> {
        self.array(names.len(), move |values| by_name(names, &values))
    }

    /// Adds outputs that were made from others.
    pub(crate) fn add(&mut self, outputs: Vec<Output>) {
        self.made.push(Box::new(move || outputs));
    }

    /// The alarms; see [`raised`].
    pub(crate) fn alarm(&mut self) -> Out<'a, u32> {
        self.array(self.rows, |alarms| vec![raised(alarms)])
    }

    /// One score per element: [`NO_SCORE`] for the canonical NaN.
    pub(crate) fn scores(&mut self, name: &'static str) -> Out<'a, f32> {
        self.array(self.elements, move |values: Vec<f32>| {
            let score = |x: f32| if x.to_bits() == 0x7fc0_0000 { NO_SCORE } else { x };
            vec![element(name, Values::F32(values.into_iter().map(score).collect()))]
        })
    }

    /// The outputs, in the order in which they were made.
    pub(crate) fn take(self) -> Vec<Output> {
        self.made.into_iter().flat_map(|output| output()).collect()
    }
}
