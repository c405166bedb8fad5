//! `aggregate`, `row_scan`, `fold_rows`.

use super::prelude::*;
use crate::cases::corpus::token_case;
use crate::oracle::{aggregate as oracle, fold, scan};
use lockstep_core::aggregate::{Aggregate, FoldRows, RowScan};
use lockstep_core::team::Direction;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sums {
    /// `aggregate`: with `values`, sums as well as counts.
    Aggregate { values: bool },
    /// `row_scan`.
    RowScan { direction: Direction },
    /// `fold_rows` of [`Data::element64`].
    FoldRows,
}

impl OpTest for Sums {
    names! {
        Sums::Aggregate { .. } => "aggregate",
        Sums::RowScan { .. } => "row_scan",
        Sums::FoldRows => "fold_rows",
    }
    const ALLOWED: &'static [Allowance] = &[
        allow("aggregate", &["row_sum"], 1e-7, SUM64),
        allow("row_scan", &["scanned"], 1.0, ROUNDED),
        allow("fold_rows", &["totals"], 1e-7, SUM64),
    ];

    fn run(&self, backend: &dyn Backend, data: &Data, out: &mut Outputs<'_>) -> Result<(), String> {
        match *self {
            Sums::Aggregate { values } => backend.run(&Aggregate {
                cu_seqlens: data.packed()?,
                loss_mask: data.masked(),
                values: values.then(|| In::new(&data.element[slot::FIRST][..])),
                row_sum: out.row("row_sum"),
                row_tokens: out.row("row_tokens"),
                row_alarm: out.alarm(),
            }),
            Sums::RowScan { direction } => backend.run(&RowScan {
                cu_seqlens: data.packed()?,
                loss_mask: data.masked(),
                values: In::new(&data.element[slot::FIRST]),
                direction,
                scanned: out.element("scanned"),
            }),
            Sums::FoldRows => backend.run(&FoldRows {
                partials: In::new(&data.element64),
                rows: data.elements() / data.rows(),
                totals: out.row("totals"),
            }),
        }
    }

    fn expect(&self, data: &Data) -> Vec<Want> {
        let of_row = |r| oracle::row(&data.wide(slot::FIRST, r), &data.lives(r));
        match *self {
            Sums::Aggregate { values } => vec![
                Want::rows("row_sum", data, |r| {
                    let (sum, magnitude, _) = of_row(r);
                    if values { (sum, magnitude) } else { (0.0, 0.0) }
                }),
                Want::rows("row_tokens", data, |r| (of_row(r).2 as f64, 0.0)),
            ],
            Sums::RowScan { direction } => {
                let mut scanned = Vec::new();
                for r in 0..data.rows() {
                    let (_, magnitude, _) = of_row(r);
                    let suffix = direction == Direction::Suffix;
                    let row = scan::row(&data.wide(slot::FIRST, r), &data.lives(r), suffix);
                    scanned.extend(row.into_iter().map(|y| (y, magnitude)));
                }
                vec![Want::rounded("scanned", scanned)]
            }
            Sums::FoldRows => {
                vec![Want::rows("totals", data, |r| fold::total(&data.element64[data.span(r)]))]
            }
        }
    }

    fn stream(root: Source) -> Source {
        root
    }

    fn corpus(root: Source) -> Vec<Case> {
        let (mut cases, source) = (Vec::new(), root.fork(500));
        let all = [
            Sums::Aggregate { values: true },
            Sums::Aggregate { values: false },
            Sums::RowScan { direction: Direction::Prefix },
            Sums::RowScan { direction: Direction::Suffix },
        ];
        for (params, (j, shape)) in pairs(all, shapes::all().into_iter().enumerate()) {
            let k = cases.len();
            let case = token_case(params, &shape, Mask::ALL[(k + j) % 6], Range::Realistic, k, source);
            cases.push(Case { data: spread_out(case.data, source.fork(1000 + k as u64)), ..case });
        }
        for (k, rows) in [1u32, 2, 31, 33, 128, 129, 1000].into_iter().enumerate() {
            let (source, statistics) = (root.fork(600).fork(k as u64), 5);
            let value = |i| f64::from(source.spread(i)) + f64::from(source.fork(1).spread(i)) / 16_777_216.0;
            let label = format!("{k}: {statistics} statistics of {rows} rows");
            cases.push(Case { label, ..fold_rows(statistics, rows, value) });
        }
        cases
    }

    fn random(op: &str, draw: &mut Draw) -> Case {
        let source = draw.root();
        let params = match op {
            "aggregate" => Sums::Aggregate { values: draw.yes() },
            "row_scan" => Sums::RowScan { direction: draw.pick(&[Direction::Prefix, Direction::Suffix]) },
            _ => {
                let (statistics, rows) = (1 + draw.below(8) as u32, 1 + draw.at_most(3000));
                let factor = |i| 1.0 + f64::from(source.fork(2).spread(i));
                return fold_rows(statistics, rows, |i| f64::from(source.spread(i)) * factor(i));
            }
        };
        let case = draw.tokens(params);
        Case { data: spread_out(case.data, source.fork(4)), ..case }
    }

    fn fault_slots(&self) -> Vec<Fault> {
        match self {
            Sums::Aggregate { values: true } => vec![(slot::FIRST, &NOT_FINITE[..2])],
            _ => Vec::new(),
        }
    }

    fn rows_are_equal(&self) -> bool {
        *self == Sums::FoldRows
    }
}

/// The batch with a single array, of values of very different magnitudes.
fn spread_out(data: Data, source: Source) -> Data {
    let element = vec![data.array(|i| source.spread(i))];
    Data { element, row: Vec::new(), ..data }
}

fn fold_rows(statistics: u32, rows: u32, value: impl Fn(usize) -> f64) -> Case {
    Case {
        label: String::new(),
        catches: "partials indexed [row][statistic]; a sum that starts elsewhere",
        params: Sums::FoldRows.into(),
        data: Data {
            offsets: (0..=statistics).map(|s| s * rows).collect(),
            element64: (0..(statistics * rows) as usize).map(value).collect(),
            ..Data::default()
        },
    }
}
