//! `exact_sum`, `exact_sum_f32`: blocks of values of every exponent.

use super::prelude::*;
use crate::oracle::exact_sum as oracle;
use crate::outputs::by_name;
use lockstep_core::aggregate::ExactDigits;
use lockstep_core::aggregate::exact_sum::{self, BLOCK, CLASSES, Summand};
use lockstep_cpu::Compiled;
use std::ops::Neg;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExactSum {
    /// `exact_sum` of [`Data::element64`].
    Double,
    /// `exact_sum_f32` of the first array.
    Single { square: bool },
}

/// The planes of a block in four parts; a row writes one of each.
const PARTS: [&str; 4] = ["first_quarter", "second_quarter", "third_quarter", "fourth_quarter"];

impl OpTest for ExactSum {
    names! {
        ExactSum::Double => "exact_sum",
        ExactSum::Single { .. } => "exact_sum_f32",
    }
    const ALLOWED: &'static [Allowance] =
        &[allow("exact_sum", &PARTS, 0.0, "integers"), allow("exact_sum_f32", &PARTS, 0.0, "integers")];
    const CATCHES: &'static str =
        "a digit at the seam of two shifts; a subnormal's missing bit; a special value counted as a number";
    const ROWS_ARE_BLOCKS: bool = true;

    fn run(&self, backend: &dyn Backend, data: &Data, out: &mut Outputs<'_>) -> Result<(), String> {
        match *self {
            ExactSum::Double => launch(backend, (data, out), &data.element64, false),
            ExactSum::Single { square } => launch(backend, (data, out), &data.element[0], square),
        }
    }

    fn expect(&self, data: &Data) -> Vec<Want> {
        match *self {
            ExactSum::Double => planes::<f64>(data, &data.element64),
            ExactSum::Single { square } => {
                let own = |x: &f32| if square { f64::from(*x) * f64::from(*x) } else { f64::from(*x) };
                planes::<f32>(data, &data.element[0].iter().map(own).collect::<Vec<_>>())
            }
        }
    }

    fn corpus(source: Source) -> Vec<Case> {
        let all = [ExactSum::Double, ExactSum::Single { square: false }, ExactSum::Single { square: true }];
        let lengths = [1, 33, BLOCK - 1, BLOCK, BLOCK + 1, 9000];
        numbered(pairs(all, lengths), source, |k, (params, length), source| {
            let mask = if k % 3 == 0 { Mask::Random } else { Mask::Absent };
            case(params, length, Kind::ALL[k % 4], mask, source)
        })
    }

    fn random(op: &str, draw: &mut Draw) -> Case {
        let params = match op {
            "exact_sum" => ExactSum::Double,
            _ => ExactSum::Single { square: draw.yes() },
        };
        let (length, kind) = (1 + draw.below(6000), draw.pick(&Kind::ALL));
        case(params, length, kind, draw.pick(&Mask::ALL), draw.source())
    }
}

fn launch<V: Summand + Sync>(
    backend: &dyn Backend,
    (data, out): (&Data, &mut Outputs<'_>),
    values: &[V],
    square: bool,
) -> Result<(), String>
where
    for<'a> ExactDigits<'a, V>: Compiled,
{
    let digits =
        out.array(exact_sum::digits::<V>(values.len()), move |digits| by_name(&PARTS, &by_row::<V>(&digits)));
    let (values, mask) = (In::new(values), data.masked());
    backend.run(&ExactDigits { values, mask, square, digits })
}

fn planes<V: Summand>(data: &Data, values: &[f64]) -> Vec<Want> {
    let mut all = vec![Vec::new(); V::PLANES];
    for start in (0..values.len()).step_by(BLOCK) {
        let block = start..(start + BLOCK).min(values.len());
        let live: Vec<f64> = block.filter(|i| data.live(*i)).map(|i| values[i]).collect();
        let planes = oracle::planes(&live, V::FIRST, V::PLANES - CLASSES);
        all.iter_mut().zip(planes).for_each(|(plane, digit)| plane.push(digit as f64));
    }
    let digits = by_row::<V>(&all.concat());
    let part = |(name, digits): (&'static str, &[f64])| Want {
        name,
        want: digits.to_vec(),
        magnitude: vec![0.0; digits.len()],
    };
    PARTS.into_iter().zip(digits.chunks(digits.len() / PARTS.len())).map(part).collect()
}

/// Rearranges `[PLANES][blocks]` to `[4][rows]`: the k-th value written by each row.
fn by_row<V: Summand>(digits: &[f64]) -> Vec<f64> {
    let (groups, blocks) = (V::PLANES / PARTS.len(), digits.len() / V::PLANES);
    let rows = (0..PARTS.len()).flat_map(|k| (0..groups * blocks).map(move |row| (k, row)));
    rows.map(|(k, row)| digits[(k * groups + row % groups) * blocks + row / groups]).collect()
}

/// The kind of values.
#[derive(Clone, Copy, Debug)]
enum Kind {
    /// Arbitrary bits: every exponent, NaN, infinities.
    Patterns,
    /// Each value and then its negative.
    Cancelling,
    /// Subnormal and the largest numbers.
    Ends,
    /// Ordinary magnitudes.
    Spread,
}

impl Kind {
    const ALL: [Kind; 4] = [Kind::Patterns, Kind::Cancelling, Kind::Ends, Kind::Spread];

    fn double(self, source: Source, i: usize) -> f64 {
        let (most, least) = (f64::MAX, f64::MIN_POSITIVE);
        let ends = [5e-324, -5e-324, most, -most, least, -0.0, f64::INFINITY, 2.0f64.powi(-537)];
        let wide = |source: Source, i| f64::from(source.spread(i));
        let spread = || wide(source, i) * (1.0 + wide(source.fork(1), i));
        self.value(source, i, ends, f64::from_bits, spread)
    }

    fn single(self, source: Source, i: usize) -> f32 {
        let (most, least) = (f32::MAX, f32::MIN_POSITIVE);
        let ends = [1e-45, -1e-45, most, -most, least, -0.0, f32::NEG_INFINITY, 1.0 + f32::EPSILON];
        let of_bits = |bits| f32::from_bits(bits as u32);
        self.value(source, i, ends, of_bits, || source.spread(i))
    }

    fn value<V: Neg<Output = V> + Copy>(
        self,
        source: Source,
        i: usize,
        ends: [V; 8],
        of_bits: impl Fn(u64) -> V,
        spread: impl Fn() -> V,
    ) -> V {
        match self {
            Kind::Patterns => of_bits(source.bits(i)),
            Kind::Cancelling if i.is_multiple_of(2) => of_bits(source.bits(i / 2)),
            Kind::Cancelling => -of_bits(source.bits(i / 2)),
            Kind::Ends => ends[source.below(i, ends.len())],
            Kind::Spread => spread(),
        }
    }
}

fn case(params: ExactSum, length: usize, kind: Kind, mask: Mask, source: Source) -> Case {
    let bytes = mask.bytes(&[0, length as u32], source.fork(0));
    let live = |i: usize| bytes.as_ref().is_none_or(|bytes| bytes[i] != 0);
    let (mut element, mut element64) = (Vec::new(), Vec::new());
    let planes = match params {
        ExactSum::Double => {
            let value = |i| if live(i) { kind.double(source.fork(1), i) } else { f64::from(garbage(i)) };
            element64 = (0..length).map(value).collect();
            f64::PLANES
        }
        ExactSum::Single { .. } => {
            let value = |i| if live(i) { kind.single(source.fork(1), i) } else { garbage(i) };
            element.push((0..length).map(value).collect());
            f32::PLANES
        }
    };
    // A row writes four digits.
    let digits = (exact_sum::blocks(length) * planes) as u32;
    let offsets = (0..=digits).step_by(PARTS.len()).collect();
    let data = Data { offsets, mask: bytes, element, element64, ..Data::default() };
    Case::of(params, format!("{params:?} {length} {kind:?} {mask:?}"), data)
}
