//! Fuzzes the bytes of exact sums, moments and totals: accepted bytes serialise identically and can be
//! merged; a refusal names the byte.
#![no_main]

use libfuzzer_sys::fuzz_target;
use lockstep::Error;
use lockstep::core::Error as Argument;
use lockstep::core::aggregate::{ExactMoments, ExactSum};
use lockstep::ops::exact::PolicyTotals;

fn refused(bytes: &[u8], error: &Error) {
    match error {
        Error::Argument(Argument::Length { got, .. }) => assert_eq!(*got, bytes.len(), "{error}"),
        Error::Argument(Argument::Value { index: Some(index), .. }) => {
            assert!(*index < bytes.len(), "{error}")
        }
        _ => panic!("{error}"),
    }
}

/// Merges with another sum in both orders, and with the neutral element.
fn merges(sum: ExactSum) {
    let mut one = ExactSum::ZERO;
    one.add(1.0);
    let (mut a, mut b) = (sum, one);
    a.merge(&one);
    b.merge(&sum);
    assert_eq!(a.to_bytes(), b.to_bytes());
    assert_eq!(a.finish().to_bits(), b.finish().to_bits());
    let mut same = sum;
    same.merge(&ExactSum::ZERO);
    assert_eq!(same.to_bytes(), sum.to_bytes());
}

fuzz_target!(|bytes: &[u8]| {
    match ExactSum::from_bytes(bytes) {
        Ok(sum) => {
            assert_eq!(sum.to_bytes(), bytes, "one form for one sum");
            merges(sum);
        }
        Err(error) => refused(bytes, &error.into()),
    }
    match ExactMoments::from_bytes(bytes) {
        Ok(moments) => {
            assert_eq!(moments.to_bytes(), bytes, "one form for the same moments");
            // Whatever was counted, these give numbers or NaN, never a panic.
            _ = (moments.mean(), moments.squares(), moments.variance(1), moments.moments());
            merges(*moments.sum());
        }
        Err(error) => refused(bytes, &error.into()),
    }
    match PolicyTotals::from_bytes(bytes) {
        Ok(totals) => {
            let written = totals.to_bytes();
            let again = PolicyTotals::from_bytes(&written).expect("what was written can be read");
            assert_eq!((again.to_bytes(), again), (written, totals));
        }
        Err(error) => refused(bytes, &error),
    }
    // The bytes as numbers: any split gives the bits of the whole.
    let numbers: Vec<f64> =
        bytes.chunks_exact(8).map(|eight| f64::from_le_bytes(eight.try_into().expect("eight"))).collect();
    let sum = |part: &[f64]| part.iter().copied().collect::<ExactSum>();
    let (first, second) =
        numbers.split_at(usize::from(bytes.first().copied().unwrap_or(0)) % (numbers.len() + 1));
    let mut merged = sum(second);
    merged.merge(&sum(first));
    assert_eq!(merged.to_bytes(), sum(&numbers).to_bytes());
});
