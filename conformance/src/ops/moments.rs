//! `row_moments`, `fold_moments`.

use super::prelude::*;
use crate::oracle::moments as oracle;
use lockstep_core::aggregate::moments::{FoldMoments, MOMENTS, RowMoments};

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Moments {
    /// `row_moments` of the first array, or of the first array per row.
    Rows { per_row: bool, nan_is_missing: bool },
    /// `fold_moments` of [`Data::element64`].
    Fold,
}

const NAMES: [&str; MOMENTS] = ["count", "mean", "squares", "low", "high", "nonzero"];
const OTHER_ORDER: &str = "binary64 sums in another order: 2^-29 of a unit for each rounding";

impl OpTest for Moments {
    names! {
        Moments::Rows { .. } => "row_moments",
        Moments::Fold => "fold_moments",
    }
    const ALLOWED: &'static [Allowance] = &[
        allow("row_moments", &["squares"], 1e-7, OTHER_ORDER),
        allow("fold_moments", &["squares"], 1e-7, OTHER_ORDER),
    ];
    const CATCHES: &'static str =
        "a mean of means; the spread between rows left out; extremes of rows without values";

    fn run(&self, backend: &dyn Backend, data: &Data, out: &mut Outputs<'_>) -> Result<(), String> {
        match *self {
            Moments::Rows { per_row, nan_is_missing } => backend.run(&RowMoments {
                offsets: data.packed()?,
                mask: data.masked(),
                values: In::new(if per_row { &data.row[0][..] } else { &data.element[0][..] }),
                per_row,
                nan_is_missing,
                row_moments: out.rows(&NAMES),
                row_alarm: out.alarm(),
            }),
            Moments::Fold => {
                let (row_moments, rows) = (In::new(&data.element64[..]), data.elements() / MOMENTS);
                backend.run(&FoldMoments { row_moments, rows, moments: out.totals(&NAMES) })
            }
        }
    }

    fn expect(&self, data: &Data) -> Vec<Want> {
        let mut wants = NAMES.map(Want::new);
        match *self {
            Moments::Rows { per_row, nan_is_missing } => {
                for r in 0..data.rows() {
                    let value =
                        |i: usize| f64::from(if per_row { data.row[0][r] } else { data.element[0][i] });
                    let counted = |i: &usize| data.live(*i) && !(nan_is_missing && value(*i).is_nan());
                    let values: Vec<f64> = data.span(r).filter(counted).map(value).collect();
                    push_all(&mut wants, sized(&oracle::Moments::of(&values)));
                }
            }
            // The values that the rows' moments came from are the oracle's own.
            Moments::Fold => push_all(&mut wants, sized(&oracle::Moments::of(&behind(data)))),
        }
        wants.into()
    }

    fn corpus(source: Source) -> Vec<Case> {
        let shapes = pairs([false, true], shapes::all().into_iter().enumerate());
        let all = pairs(shapes, [false, true]);
        let mut cases = numbered(all, source, |k, ((per_row, (j, shape)), nan_is_missing), source| {
            of_rows(&shape, Mask::ALL[(k + j) % 6], per_row, nan_is_missing, source)
        });
        cases.extend([1, 2, 31, 33, 128, 129, 1000].map(|rows| fold(rows, source.fork(1000 + rows as u64))));
        cases
    }

    fn random(op: &str, draw: &mut Draw) -> Case {
        if op == "fold_moments" {
            return fold(1 + draw.below(3000), draw.source());
        }
        of_rows(&draw.shape(), draw.pick(&Mask::ALL), draw.yes(), draw.yes(), draw.source())
    }

    fn fault_slots(&self) -> Vec<Fault> {
        match self {
            Moments::Rows { per_row: false, nan_is_missing: false } => vec![(0, NOT_FINITE)],
            Moments::Rows { per_row: false, nan_is_missing: true } => vec![(0, &NOT_FINITE[1..])],
            _ => Vec::new(),
        }
    }

    fn rows_are_blocks(&self) -> bool {
        *self == Moments::Fold
    }
}

fn listed(m: &oracle::Moments) -> [f64; MOMENTS] {
    [m.count, m.mean, m.squares, m.low, m.high, m.nonzero]
}

/// Moments with their magnitudes.
fn sized(m: &oracle::Moments) -> impl Iterator<Item = (f64, f64)> {
    // A mean that is off by 2^-50 of the magnitude shifts the squares by its product with the sum of
    // distances, which is itself a rounding error.
    let scale = m.squares + 1e-7 * (m.squares * m.count).sqrt() * m.magnitude;
    listed(m).into_iter().zip([0.0, m.magnitude, scale, 0.0, 0.0, 0.0])
}

/// An ordinary value, with zeros of both signs; every third row is a constant that binary32 does not hold
/// exactly.
fn value(source: Source, row: usize, i: usize) -> f32 {
    match (row % 3, source.below(i, 8)) {
        (1, _) => 0.1 + (row / 3) as f32,
        (_, 0) => 0.0,
        (_, 1) => -0.0,
        _ => 1.0 + values::advantage(source.fork(1), i),
    }
}

fn of_rows(shape: &Shape, mask: Mask, per_row: bool, nan_is_missing: bool, source: Source) -> Case {
    let mut data = Data::new(shape, mask, source.fork(0));
    let mut array = Vec::new();
    for (r, i) in (0..data.rows()).flat_map(|r| data.span(r).map(move |i| (r, i))) {
        array.push(match data.live(i) {
            false => garbage(i),
            true if nan_is_missing && source.below(i, 9) == 0 => f32::NAN,
            true => value(source.fork(1), r, i),
        });
    }
    let per = |r: usize| match (nan_is_missing, r % 5) {
        (true, 2) => f32::NAN,
        _ => value(source.fork(1), 0, r),
    };
    let (name, n) = (shape.name, array.len());
    let label = format!("{name} {mask:?} per row {per_row} NaN missing {nan_is_missing}, {n}");
    data.row = vec![data.per_row(per)];
    data.element = vec![array];
    let params = Moments::Rows { per_row, nan_is_missing };
    Case { catches: shape.catches, ..Case::of(params, label, data) }
}

/// The values of row r of a `fold_moments` case: small integers, so that every moment of a row is exact.
fn row_values(rows: usize, r: usize) -> Vec<f64> {
    let count = [4, 0, 2, 8, 1][r % 5];
    let at = |k: usize| ((r * 7 + k * 5 + rows) % 9) as f64 - 4.0;
    (0..count).map(|k| if r % 4 == 2 { at(0) } else { at(k) }).collect()
}

fn behind(data: &Data) -> Vec<f64> {
    let rows = data.elements() / MOMENTS;
    (0..rows).flat_map(|r| row_values(rows, r)).collect()
}

fn fold(rows: usize, source: Source) -> Case {
    let mut element64 = vec![0.0; MOMENTS * rows];
    for r in 0..rows {
        let values = listed(&oracle::Moments::of(&row_values(rows, r)));
        (0..MOMENTS).for_each(|k| element64[k * rows + r] = values[k]);
    }
    let data = Data { offsets: vec![0, (MOMENTS * rows) as u32], element64, ..Data::default() };
    Case::of(Moments::Fold, format!("{rows} rows, {}", source.below(0, 1000)), data)
}
