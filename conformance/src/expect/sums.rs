//! `aggregate`, `row_scan`, `fold_rows`.

use super::Want;
use crate::cases::{Case, slot};
use crate::oracle;
use lockstep_core::team::Direction;

fn row(case: &Case, row: usize) -> (Vec<f64>, Vec<bool>) {
    let span = case.data.span(row);
    let values = span.clone().map(|i| case.data.element[slot::FIRST][i].into()).collect();
    (values, span.map(|i| case.data.live(i)).collect())
}

pub(super) fn aggregate(case: &Case, with_values: bool) -> Vec<Want> {
    let [mut sums, mut tokens] = ["row_sum", "row_tokens"].map(Want::new);
    for r in 0..case.data.rows() {
        let (values, live) = row(case, r);
        let (sum, magnitude, count) = oracle::aggregate::row(&values, &live);
        if with_values {
            sums.push(sum, magnitude)
        } else {
            sums.push(0.0, 0.0)
        }
        tokens.push(count as f64, 0.0);
    }
    vec![sums, tokens]
}

pub(super) fn scan(case: &Case, direction: Direction) -> Vec<Want> {
    let mut scanned = Want::new("scanned");
    for r in 0..case.data.rows() {
        let (values, live) = row(case, r);
        let (_, magnitude, _) = oracle::aggregate::row(&values, &live);
        for y in oracle::scan::row(&values, &live, direction == Direction::Suffix) {
            // Rounded once to binary32; the binary64 sums before that add 1e-6 of a unit of the row's
            // magnitudes.
            scanned.push(y, y.abs() + 1e-6 * magnitude);
        }
    }
    vec![scanned]
}

pub(super) fn fold(case: &Case) -> Vec<Want> {
    let mut totals = Want::new("totals");
    for r in 0..case.data.rows() {
        let (sum, magnitude) = oracle::fold::total(&case.data.element64[case.data.span(r)]);
        totals.push(sum, magnitude);
    }
    vec![totals]
}
