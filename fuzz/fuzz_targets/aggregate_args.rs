//! Fuzzes the arguments of sums: aggregation, running sums, folds over rows.
#![no_main]

use libfuzzer_sys::fuzz_target;
use lockstep::core::aggregate::{PerRow, Weight};
use lockstep::core::team::Direction;
use lockstep::ops::aggregate::{Aggregated, aggregate, fold_rows};
use lockstep::ops::scan::row_scan;
use lockstep_fuzz::*;

fn same(a: &Aggregated, b: &Aggregated) {
    assert_same_bits("row_sum", bits64(&a.row_sum), bits64(&b.row_sum));
    assert_eq!(a.row_tokens, b.row_tokens);
    assert_same_bits("value", bits64(&[a.value]), bits64(&[b.value]));
}

fuzz_target!(|bytes: &[u8]| {
    let draw = &mut Draw::new(bytes);
    let packed = Packed::draw(draw);
    let Some(batch) = packed.batch() else { return };
    let per_row = match draw.below(4) {
        0 => PerRow::One,
        1 => PerRow::Length { eps: 1e-8 },
        2 => PerRow::AtLeastOne,
        _ => PerRow::Constant(1.0 + f64::from(draw.byte())),
    };
    let weight = Weight { per_row, denominator: f64::from(draw.byte()), scale: 1.0 };
    let direction = draw.one_of(&[Direction::Prefix, Direction::Suffix]);
    let values = draw.floats(batch.tokens(), Like::Reward);
    let live = |i: usize| packed.live(i);
    let names_values = |error: lockstep::Error| assert!(error.to_string().contains('`'), "{error}");

    let result = on_every_level(|device| aggregate(device, &batch, &values, &weight), same);
    assert_domain(&result, "values", &values, Domain::Finite, live);
    match result {
        Ok(out) => {
            assert_finite("row_sum", out.row_sum.iter().copied());
            assert_finite("value", [out.value]);
            for s in 0..batch.sequences() {
                let span = batch.cu_seqlens().span(s);
                let tokens: Vec<usize> = (span.start..span.end).filter(|i| live(*i)).collect();
                assert_eq!(out.row_tokens[s] as usize, tokens.len());
                // At most one binary64 rounding per addition.
                let sum: f64 = tokens.iter().map(|i| f64::from(values[*i])).sum();
                let magnitude: f64 = tokens.iter().map(|i| f64::from(values[*i].abs())).sum();
                assert!((out.row_sum[s] - sum).abs() <= 1e-13 * magnitude, "{} {sum}", out.row_sum[s]);
            }
        }
        Err(error) => names_values(error),
    }

    let result = on_every_level(
        |device| row_scan(device, &batch, &values, direction),
        |a, b| assert_same_bits("scanned", bits32(a), bits32(b)),
    );
    assert_domain(&result, "values", &values, Domain::Finite, live);
    match result {
        Ok(scanned) => assert_finite("scanned", scanned.iter().map(|x| f64::from(*x))),
        Err(error) => names_values(error),
    }

    let partials: Vec<f64> = (0..draw.below(40)).map(|_| draw.double(Like::Reward)).collect();
    let rows = draw.below(9);
    let totals = on_every_level(
        |device| fold_rows(device, &partials, rows),
        |a, b| assert_same_bits("totals", bits64(a), bits64(b)),
    );
    // Sums without rows to share them are refused, as is a rest.
    let whole = partials.len().is_multiple_of(rows);
    match totals {
        Ok(totals) => assert!(whole && totals.len() == partials.len().checked_div(rows).unwrap_or(0)),
        Err(error) => assert!(!whole && error.to_string().contains("`partials`"), "{error}"),
    }
});
