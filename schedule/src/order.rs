//! Sorting by key: highest key first, ties to the lower index.
//!
//! **Special cases**: a NaN key is an error; ±∞ are ordinary keys; −0 equals +0. The order is total, so any
//! sort gives the same result.

use core::cmp::Ordering;
use lockstep_core::Error;
use lockstep_core::require;

/// Fills `order` with the indices of `keys`, best first; the first B of them are the top B.
///
/// Errors: a NaN key (with its index); an `order` of a different length.
pub fn by_key(keys: &[f64], order: &mut [u32]) -> Result<(), Error> {
    require::length("order", keys.len(), "one per key", order.len())?;
    require::each("keys", keys, "a number", |x| !x.is_nan())?;
    sort(order, |i| keys[i as usize]);
    Ok(())
}

/// As [`by_key`], for keys without NaN.
pub(super) fn sort(order: &mut [u32], key: impl Fn(u32) -> f64) {
    for (i, id) in order.iter_mut().enumerate() {
        *id = i as u32;
    }
    order.sort_unstable_by(|a, b| key(*b).partial_cmp(&key(*a)).unwrap_or(Ordering::Equal).then(a.cmp(b)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ties_go_to_the_lower_index() {
        let mut order = [0; 5];
        by_key(&[1.0, 3.0, -0.0, 3.0, 0.0], &mut order).unwrap();
        assert_eq!(order, [1, 3, 0, 2, 4]);
    }

    #[test]
    fn a_nan_is_named() {
        let e = by_key(&[0.0, f64::NAN], &mut [0; 2]).unwrap_err();
        assert!(matches!(e, Error::Value { argument: "keys", index: Some(1), .. }), "{e}");
    }
}
