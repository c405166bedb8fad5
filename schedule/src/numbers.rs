//! Numbers that several schedules compute.

use lockstep_core::num;

/// ⌈x⌉ for 0 <= x, at most `u32::MAX`; 0 if x is not above 0.
pub(super) fn ceil(x: f64) -> u32 {
    let whole = x as u32;
    if f64::from(whole) < x { whole.saturating_add(1) } else { whole }
}

/// x to the nearest integer, halves up, for 0 <= x.
pub(super) fn nearest(x: f64) -> u32 {
    (x + 0.5) as u32
}

/// ln Σ exp(xᵢ); −∞ if empty or all −∞.
pub(super) fn ln_sum_exp(entries: impl Iterator<Item = f64> + Clone) -> f64 {
    let top = entries.clone().fold(f64::NEG_INFINITY, |a, b| if b > a { b } else { a });
    if top == f64::NEG_INFINITY {
        return top;
    }
    let mut sum = 0.0;
    for x in entries {
        sum += num::exp64(x - top);
    }
    top + num::ln64(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounding_up_and_to_nearest() {
        assert_eq!(
            [ceil(0.0), ceil(-3.0), ceil(0.1), ceil(2.0), ceil(2.000001), ceil(1e30)],
            [0, 0, 1, 2, 3, u32::MAX]
        );
        assert_eq!([nearest(0.49), nearest(0.5), nearest(3.2)], [0, 1, 3]);
    }

    #[test]
    fn ln_sum_exp_does_not_overflow() {
        let sum = ln_sum_exp([1000.0, 1000.0].into_iter());
        assert!((sum - 1000.0 - core::f64::consts::LN_2).abs() < 1e-12);
        assert_eq!(ln_sum_exp([f64::NEG_INFINITY].into_iter()), f64::NEG_INFINITY);
    }
}
